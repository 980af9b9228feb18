//! One order: obtains a certificate and its key for a host name (RFC 8555, 7.4).

use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use instant_acme::{
    Account, AuthorizationHandle, AuthorizationStatus, ChallengeType, Error, Identifier, NewOrder, Order, OrderStatus,
    RetryPolicy,
};
use rcgen::{CertificateParams, DistinguishedName, KeyPair};
use tokio::time::timeout;

use crate::back_off::Cost;
use crate::dns_hook::DnsHook;
use crate::settings::ChallengeKind;
use crate::shared::Sharing;
use weir_tls::{ChallengeError, NamedCertificates};

/// How long the authority may take to check a challenge, and how long to sign.
const POLLING: RetryPolicy =
    RetryPolicy::new().initial_delay(Duration::from_millis(500)).backoff(1.5).timeout(Duration::from_secs(180));

/// The other machines must be told within this time that a challenge is over; if they are not, it ends for them by itself.
const CLOSE_MAX: Duration = Duration::from_secs(30);

/// How a name is proved to be ours, in one order.
pub(crate) struct Proof<'a> {
    pub(crate) kind: ChallengeKind,
    pub(crate) named: &'a NamedCertificates,
    pub(crate) hook: Option<&'a DnsHook>,
    /// Machines that share our records learn of each challenge too, because the authority may ask any of them.
    pub(crate) sharing: &'a Sharing,
    /// The values for which the hook was called to set a record.
    pub(crate) set: Mutex<Vec<String>>,
}

impl Proof<'_> {
    /// Does `order`, which may take so long, and then takes back what was opened for it, however it ended.
    pub(crate) async fn during<T>(
        &self,
        name: &str,
        most: Duration,
        order: impl Future<Output = Result<T, OrderError>>,
    ) -> Result<T, OrderError> {
        let done = timeout(most, order).await.unwrap_or(Err(OrderError::Late));
        self.take_back(name).await;
        done
    }

    /// Closes the challenge, and has the hook remove its records. This takes no longer than the hook's patience for each record.
    async fn take_back(&self, name: &str) {
        self.named.challenges().close(name);
        let _ = timeout(CLOSE_MAX, self.sharing.close_challenge(name)).await;
        let set = std::mem::take(&mut *self.set.lock().unwrap_or_else(PoisonError::into_inner));
        if let Some(hook) = self.hook {
            for value in &set {
                hook.unset(name, value).await;
            }
        }
    }

    /// Obtains a certificate for `name`. Returns its chain and its key as one PEM text. To be called within [`Proof::during`].
    pub(crate) async fn obtain(&self, account: &Account, name: &str) -> Result<String, OrderError> {
        let identifiers = [Identifier::Dns(name.to_owned())];
        let mut order = account.new_order(&NewOrder::new(&identifiers)).await?;
        self.prove(&mut order, name).await?;
        let (request, key) = signing_request(name)?;
        order.finalize_csr(&request).await?;
        let chain = order.poll_certificate(&POLLING).await?;
        Ok(format!("{}\n{}", chain.trim_end(), key))
    }

    async fn prove(&self, order: &mut Order, name: &str) -> Result<(), OrderError> {
        let mut authorizations = order.authorizations();
        while let Some(authorization) = authorizations.next().await {
            self.prove_one(authorization?, name).await?;
        }
        match order.poll_ready(&POLLING).await {
            Ok(OrderStatus::Ready | OrderStatus::Valid) => Ok(()),
            Ok(_) => Err(OrderError::Refused(why_refused(order).await)),
            Err(Error::Api(problem)) => Err(OrderError::Refused(problem.to_string())),
            Err(other) => Err(other.into()),
        }
    }

    async fn prove_one(&self, authorization: AuthorizationHandle<'_>, name: &str) -> Result<(), OrderError> {
        match authorization.status {
            AuthorizationStatus::Valid => return Ok(()),
            AuthorizationStatus::Pending => {}
            other => return Err(OrderError::Refused(format!("the authorization is {other:?}"))),
        }
        let kind = match self.kind {
            ChallengeKind::Http => ChallengeType::Http01,
            ChallengeKind::TlsAlpn => ChallengeType::TlsAlpn01,
            ChallengeKind::Dns => ChallengeType::Dns01,
        };
        // `challenge` borrows the handle for as long as it lives, so it is bound anew here, with a shorter life.
        let mut authorization = authorization;
        let mut challenge = authorization.challenge(kind).ok_or(OrderError::NotOffered)?;
        let answer = challenge.key_authorization();
        self.open(name, &challenge.token, answer.as_str(), answer.dns_value()).await?;
        challenge.set_ready().await?;
        Ok(())
    }

    /// Gets ready to be asked: has the hook set a record with this value, or opens the challenge with this token and answer.
    async fn open(&self, name: &str, token: &str, answer: &str, value: String) -> Result<(), OrderError> {
        if let Some(hook) = self.hook {
            // Noted first, because a hook that fails or is ended may have set the record all the same.
            self.set.lock().unwrap_or_else(PoisonError::into_inner).push(value.clone());
            hook.set(name, &value).await?;
        } else {
            self.named.challenges().open(name, token, answer)?;
            self.sharing.open_challenge(name, token, answer).await?;
        }
        Ok(())
    }
}

/// What the authority says about a challenge that it did not find answered.
async fn why_refused(order: &mut Order) -> String {
    let mut authorizations = order.authorizations();
    while let Some(Ok(mut authorization)) = authorizations.next().await {
        let Ok(state) = authorization.refresh().await else { continue };
        if let Some(problem) = state.challenges.iter().find_map(|challenge| challenge.error.as_ref()) {
            return problem.to_string();
        }
    }
    "the authority does not say why".to_owned()
}

fn signing_request(name: &str) -> Result<(Vec<u8>, String), OrderError> {
    let mut params = CertificateParams::new(vec![name.to_owned()])?;
    params.distinguished_name = DistinguishedName::new();
    let key = KeyPair::generate()?;
    let request = params.serialize_request(&key)?;
    Ok((request.der().to_vec(), key.serialize_pem()))
}

/// Why no certificate was obtained.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OrderError {
    /// The authority checked the name, and the check failed.
    #[error("the authority could not verify that this name is ours: {0}")]
    Refused(String),
    /// The authority does not offer this way of proving a name.
    #[error("the authority does not offer this kind of challenge; set certificates.challenge to another")]
    NotOffered,
    /// The communication with the authority failed.
    #[error("the authority: {0}")]
    Authority(#[from] Error),
    /// The challenge cannot be answered.
    #[error(transparent)]
    Challenge(#[from] ChallengeError),
    /// The hook failed, or the disk.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The other machines could not be told about the challenge.
    #[error("the shared records: {0}")]
    Records(#[from] weir_store::records::RecordsError),
    /// The key or the request could not be made.
    #[error("no request can be made for this name: {0}")]
    Make(#[from] rcgen::Error),
    /// The whole order took too long.
    #[error("the order took too long")]
    Late,
}

/// Problems that say nothing about our name. An authority that was restarted calls an order "malformed" that it has forgotten.
const OF_THE_AUTHORITY: [&str; 5] =
    [":badNonce", ":serverInternal", ":accountDoesNotExist", ":malformed", ":orderNotReady"];

impl OrderError {
    pub(crate) fn cost(&self) -> Cost {
        match self {
            OrderError::Refused(_) | OrderError::NotOffered | OrderError::Make(_) => Cost::FailedProof,
            OrderError::Authority(Error::Api(problem)) => match problem.r#type.as_deref().unwrap_or_default() {
                kind if kind.ends_with(":rateLimited") => Cost::RateLimit,
                kind if OF_THE_AUTHORITY.iter().any(|known| kind.ends_with(known)) => Cost::Little,
                _ => Cost::FailedProof,
            },
            _ => Cost::Little,
        }
    }

    /// Whether the authority has forgotten our account.
    pub(crate) fn is_unknown_account(&self) -> bool {
        let OrderError::Authority(Error::Api(problem)) = self else { return false };
        problem.r#type.as_deref().is_some_and(|kind| kind.ends_with(":accountDoesNotExist"))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn only_what_is_said_of_our_name_makes_us_wait_long() {
        for (kind, cost) in [
            ("malformed", Cost::Little),
            ("orderNotReady", Cost::Little),
            ("badNonce", Cost::Little),
            ("accountDoesNotExist", Cost::Little),
            ("rateLimited", Cost::RateLimit),
            ("rejectedIdentifier", Cost::FailedProof),
            ("unauthorized", Cost::FailedProof),
            ("caa", Cost::FailedProof),
        ] {
            let text = format!("{{\"type\":\"urn:ietf:params:acme:error:{kind}\",\"detail\":\"x\"}}");
            let problem = serde_json::from_str(&text).unwrap();
            assert_eq!(OrderError::Authority(Error::Api(problem)).cost(), cost, "{kind}");
        }
        assert_eq!(OrderError::Refused(String::new()).cost(), Cost::FailedProof);
    }

    const NAME: &str = "www.example.org";

    fn proof<'a>(kind: ChallengeKind, named: &'a NamedCertificates, hook: Option<&'a DnsHook>) -> Proof<'a> {
        Proof { kind, named, hook, sharing: &Sharing::Alone, set: Mutex::default() }
    }

    #[tokio::test]
    async fn the_hook_removes_its_record_however_the_order_ends() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("hook");
        let script =
            "#!/bin/sh\necho $* >>$0.called\ncase $1$3 in sethangs) exec sleep 999;; setfails) exit 1;; esac\n";
        std::fs::write(&program, script).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o700)).unwrap();
        let called = || std::fs::read_to_string(program.with_extension("called")).unwrap_or_default();
        let named = NamedCertificates::for_names(&[NAME.to_owned()]);
        for (value, wait) in [("hangs", 0), ("fails", 0), ("waits", 3600)] {
            let hook = DnsHook { program: program.clone(), wait: Duration::from_secs(wait) };
            let proof = proof(ChallengeKind::Dns, &named, Some(&hook));
            let order = proof.open(NAME, "token", "answer", value.to_owned());
            let outcome = proof.during(NAME, Duration::from_secs(3), order).await;
            assert_eq!(matches!(outcome, Err(OrderError::Late)), value != "fails", "{outcome:?}");
            assert_eq!(called().lines().last(), Some(&*format!("unset _acme-challenge.{NAME} {value}")));
        }
    }

    #[tokio::test]
    async fn a_challenge_is_closed_however_the_order_ends() {
        let named = NamedCertificates::for_names(&[NAME.to_owned()]);
        let path = format!("{}token", weir_tls::CHALLENGE_PATH);
        for (late, most) in [(true, Duration::from_millis(50)), (false, Duration::from_secs(60))] {
            let proof = proof(ChallengeKind::Http, &named, None);
            let order = async {
                proof.open(NAME, "token", "answer", String::new()).await?;
                assert_eq!(named.challenges().answer(NAME, &path).as_deref(), Some("answer"));
                if late { std::future::pending().await } else { Err::<(), _>(OrderError::NotOffered) }
            };
            assert_eq!(matches!(proof.during(NAME, most, order).await, Err(OrderError::Late)), late);
            assert_eq!(named.challenges().answer(NAME, &path), None);
        }
    }
}
