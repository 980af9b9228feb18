//! How a machine joins a lab: with a single-use token that it shows to a machine of the lab.
//!
//! `ADDRESS:PORT/FINGERPRINT/SECRET`. The newcomer calls the address, sees by the fingerprint that it has the right lab, and
//! shows the secret with its name, address and public key. It gets its certificate and the lab's secrets. What the newcomer
//! may be (role, priority) was written down when the token was made, with a code that only eligible machines can make; the token is used up
//! by the first machine that shows it. A machine that is already in the lab gets the same answer when it asks for a new certificate.

use super::authority::{Authority, Issue};
use super::code::{self, Code};
use super::connection::{Lines, connect, tune};
use super::credentials::{Credentials, CredentialsError, server_name};
use super::identity::{Identity, hex, role_name, role_of, unhex};
use super::local_net::LocalNet;
use super::registry::row;
use rcgen::{KeyPair, PKCS_ED25519, PublicKeyData};
use ring::hmac;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::CryptoProvider;
use rustls::{ClientConfig, RootCertStore};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::io::AsyncWriteExt;
use tokio_rustls::TlsConnector;
use weir_core::election::{Priority, Role};
use weir_store::records::{NodeRow, Records, RecordsError};
use weir_tls::certificates_by;

const PATIENCE: Duration = Duration::from_secs(10);

/// What a newcomer gets, and also a machine that renews its certificate.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Welcome {
    pub(crate) certificate: String,
    pub(crate) authority: String,
    /// Not for machines outside the lab.
    beat_key: Option<String>,
    /// Only for eligible machines.
    seal: Option<String>,
}

impl Welcome {
    /// What a machine of this identity and key gets.
    pub(crate) fn new(
        authority: &Authority,
        own: &Credentials,
        identity: &Identity,
        key: [u8; 32],
    ) -> Result<Welcome, String> {
        let certificate = authority.certify(identity, key).map_err(|error| error.to_string())?;
        let secret = |secret: Option<[u8; 32]>, may: bool| secret.filter(|_| may).map(|secret| hex(&secret));
        Ok(Welcome {
            certificate,
            authority: authority.certificates.clone(),
            beat_key: secret(own.beat_key, identity.role != Role::External),
            seal: secret(own.seal, identity.role == Role::Eligible),
        })
    }

    /// The line in which it is sent.
    pub(crate) fn line(&self) -> Result<String, String> {
        serde_json::to_string(self).map(|json| format!("welcome {json}")).map_err(|error| error.to_string())
    }

    /// The answer of a machine of the lab; or why there is none.
    pub(crate) fn read(answer: &str) -> Result<Welcome, String> {
        let Some(welcome) = answer.strip_prefix("welcome ") else {
            return Err(answer.strip_prefix("bye ").unwrap_or("it hung up").to_owned());
        };
        serde_json::from_str(welcome).map_err(|_| "its answer cannot be read: is it another version?".into())
    }
}

/// Why a machine cannot join.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// The text is not a token.
    #[error(
        "this is no token of a lab: it reads ADDRESS:PORT/FINGERPRINT/SECRET; nor a code, which has 20 letters and digits"
    )]
    Token,
    /// The network cannot be asked.
    #[error(
        "the network cannot be asked for the lab: {0}\n  hint: lab.address is this machine's address in the lab's network"
    )]
    Seek(std::io::Error),
    /// No machine answers to the code.
    #[error(
        "no lab in this network answers to this code\n  hint: is it typed right, still good, and not used yet? From another network the token of `weir lab invite` is needed"
    )]
    NotFound,
    /// The lab cannot be reached, or is another one.
    #[error("{0} cannot be reached, or is not of the lab that the token names: {1}")]
    Call(SocketAddr, std::io::Error),
    /// The lab refuses.
    #[error("the lab does not admit this machine: {0}")]
    Refused(String),
    /// A key cannot be made.
    #[error("a key cannot be made: {0}")]
    Key(#[from] rcgen::Error),
    /// What was received cannot be stored.
    #[error("{0}")]
    Credentials(#[from] CredentialsError),
}

/// Founds a lab in these records, with its first machine.
pub async fn found(
    records: &Records,
    identity: &Identity,
    address: IpAddr,
    issue: Issue,
) -> Result<Credentials, FoundError> {
    let (mut seal, mut beat_key) = ([0; 32], [0; 32]);
    weir_store::random(&mut seal).map_err(super::authority::AuthorityError::Random)?;
    weir_store::random(&mut beat_key).map_err(super::authority::AuthorityError::Random)?;
    let authority = Authority::found(records, &seal, issue).await?;
    let key = KeyPair::generate_for(&PKCS_ED25519).map_err(super::authority::AuthorityError::Make)?;
    let public = <[u8; 32]>::try_from(key.der_bytes()).map_err(|_| FoundError::Taken)?;
    let certificate = authority.certify(identity, public)?;
    let (key, authority) = (key.serialize_pem(), authority.certificates);
    let credentials = Credentials { key, certificate, authority, beat_key: Some(beat_key), seal: Some(seal) };
    let (_, key) = credentials.identity()?;
    match records
        .lab_nodes()
        .register(&NodeRow { registered_at: now(), ..row(identity, key, &address.to_string()) })
        .await
    {
        Ok(true) => Ok(credentials),
        Ok(false) => Err(FoundError::Taken),
        Err(error) => Err(super::authority::AuthorityError::Records(error).into()),
    }
}

/// Why no lab was founded.
#[derive(Debug, thiserror::Error)]
pub enum FoundError {
    /// No authority.
    #[error("{0}")]
    Authority(#[from] super::authority::AuthorityError),
    /// No credentials.
    #[error("{0}")]
    Credentials(#[from] CredentialsError),
    /// The name is taken.
    #[error("a machine of this name is registered already")]
    Taken,
}

/// What a token admits, in the records `lab ROLE PRIORITY UNTIL CODE`. The code is made with the seal, so access to the database alone admits nobody.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Invitation {
    role: Role,
    priority: Priority,
    /// Nanoseconds of Unix time.
    until: i64,
}

impl Invitation {
    /// The form in which the records keep it, under the digest of its secret.
    fn write(&self, seal: &[u8; 32], digest: &str) -> String {
        let text = format!("lab {} {} {}", role_name(self.role), self.priority.0, self.until);
        let code = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, seal), Self::signed(digest, &text).as_bytes());
        format!("{text} {}", hex(code.as_ref()))
    }

    /// None if it was not written by somebody with the seal, under this digest.
    fn read(seal: &[u8; 32], digest: &str, kept: &str) -> Option<Invitation> {
        let (text, code) = kept.rsplit_once(' ')?;
        let key = hmac::Key::new(hmac::HMAC_SHA256, seal);
        hmac::verify(&key, Self::signed(digest, text).as_bytes(), &unhex(code)?).ok()?;
        let words: Vec<&str> = text.split(' ').collect();
        let ["lab", role, priority, until] = words[..] else { return None };
        Some(Invitation {
            role: role_of(role)?,
            priority: Priority(priority.parse().ok()?),
            until: until.parse().ok()?,
        })
    }

    fn signed(digest: &str, text: &str) -> String {
        format!("weir-lab token {digest} {text}")
    }
}

/// Makes a token for one machine of this role and priority, to be used at `at` within `valid`.
pub(crate) async fn invite(
    records: &Records,
    credentials: &Credentials,
    at: SocketAddr,
    (role, priority): (Role, Priority),
    valid: Duration,
) -> Result<Invited, InviteError> {
    let seal = credentials.seal.ok_or(InviteError::NotEligible)?;
    let code = Code::random().map_err(InviteError::Random)?;
    let secret = code.secret();
    let until = now().saturating_add(i64::try_from(valid.as_nanos()).unwrap_or(i64::MAX));
    let kept = Invitation { role, priority, until }.write(&seal, &digest(secret));
    code::publish(records, &code, until, now()).await?;
    records.tokens().add(&digest(secret), &kept, until, now()).await?;
    let fingerprint = credentials.fingerprint()?;
    Ok(Invited { token: format!("{at}/{fingerprint}/{secret}"), code: code.shown() })
}

/// Why this machine cannot invite another one.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InviteError {
    /// It does not know the secret with which invitations are signed.
    #[error("this machine cannot admit others: only eligible ones can")]
    NotEligible,
    /// The system has no random numbers for a code.
    #[error("{0}")]
    Random(std::io::Error),
    /// Its own credentials cannot be read.
    #[error("{0}")]
    Credentials(#[from] CredentialsError),
    /// The invitation cannot be stored.
    #[error("{0}")]
    Records(#[from] RecordsError),
}

/// What a machine needs to join: both contain the same secret.
#[derive(Debug, Clone)]
pub struct Invited {
    /// For any network: it contains the address of the lab.
    pub token: String,
    /// For people to type, on a machine in the lab's network.
    pub code: String,
}

/// The answer of a lab to `join SECRET NAME ADDRESS KEY`.
pub(crate) async fn admit(
    records: &Records,
    authority: &Authority,
    own: &Credentials,
    line: &str,
) -> Result<String, String> {
    let words: Vec<&str> = line.split(' ').collect();
    let ["join", secret, name, address, key] = words[..] else { return Err("that is no request to join".into()) };
    let key: [u8; 32] = unhex(key).and_then(|key| key.try_into().ok()).ok_or("that is no key")?;
    let address: IpAddr = address.parse().map_err(|_| "that is no address")?;
    Identity::new(name, Role::Dispatcher, Priority(0)).ok_or("that is not a valid name for a machine")?;
    let said = |error: RecordsError| error.to_string();
    if records.lab_nodes().all().await.map_err(said)?.iter().any(|node| node.node == name) {
        return Err(format!("a machine named {name} is in the lab already"));
    }
    let seal = own.seal.ok_or("this machine cannot admit others: only eligible ones can")?;
    let kept = records.tokens().redeem(&digest(secret), now()).await.map_err(said)?;
    let invited = kept.and_then(|kept| {
        let invitation = Invitation::read(&seal, &digest(secret), &kept);
        if invitation.is_none() {
            tracing::warn!(name, "a token in the records was made by nobody who may admit machines");
        }
        invitation.filter(|invitation| now() <= invitation.until)
    });
    let Invitation { role, priority, .. } = invited.ok_or("the token is not known, was used, or is too old")?;
    let identity = Identity::new(name, role, priority).ok_or("that is not a valid name for a machine")?;
    let welcome = Welcome::new(authority, own, &identity, key)?;
    let certified = Credentials { certificate: welcome.certificate.clone(), ..own.clone() };
    let (_, key) = certified.identity().map_err(|error| error.to_string())?;
    let newcomer = NodeRow { registered_at: now(), ..row(&identity, key, &address.to_string()) };
    if !records.lab_nodes().register(&newcomer).await.map_err(said)? {
        return Err(format!("the name {name} or the key is taken"));
    }
    tracing::info!(name, role = role_name(role), priority = priority.0, "a machine joined the lab");
    welcome.line()
}

/// Joins a lab by a token, or by a code if the lab is in the network of `net`.
pub async fn join_by(typed: &str, name: &str, net: &LocalNet) -> Result<Credentials, JoinError> {
    let Some(code) = Code::read(typed) else { return join(typed, name, net.address).await };
    let sought = code::seek(&code, net).await.map_err(JoinError::Seek)?;
    join(&sought.ok_or(JoinError::NotFound)?, name, net.address).await
}

/// Joins a lab by a token.
pub async fn join(token: &str, name: &str, address: IpAddr) -> Result<Credentials, JoinError> {
    let parts: Vec<&str> = token.trim().split('/').collect();
    let [at, fingerprint, secret] = parts[..] else { return Err(JoinError::Token) };
    let at: SocketAddr = at.parse().map_err(|_| JoinError::Token)?;
    let pinned: [u8; 32] = unhex(fingerprint).and_then(|bytes| bytes.try_into().ok()).ok_or(JoinError::Token)?;
    let key = KeyPair::generate_for(&PKCS_ED25519)?;
    let request = format!("weir-lab 1 join\njoin {secret} {name} {address} {}\n", hex(key.der_bytes()));
    let talk = tokio::time::timeout(PATIENCE, talk(at, address, pinned, &request)).await;
    let late = || std::io::Error::from(std::io::ErrorKind::TimedOut);
    let answer = talk.unwrap_or_else(|_| Err(late())).map_err(|error| JoinError::Call(at, error))?;
    let welcome = Welcome::read(&answer).map_err(JoinError::Refused)?;
    let unreadable = || JoinError::Refused("its answer cannot be read: is it another version?".into());
    let secret = |text: &str| unhex(text).and_then(|bytes| <[u8; 32]>::try_from(bytes).ok()).ok_or_else(unreadable);
    Ok(Credentials {
        key: key.serialize_pem(),
        certificate: welcome.certificate,
        authority: welcome.authority,
        beat_key: welcome.beat_key.as_deref().map(secret).transpose()?,
        seal: welcome.seal.as_deref().map(secret).transpose()?,
    })
}

async fn talk(at: SocketAddr, from: IpAddr, pinned: [u8; 32], request: &str) -> std::io::Result<String> {
    let stream = connect(from, at).await?;
    tune(&stream)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = pinned_to(pinned, &provider);
    let config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(std::io::Error::other)?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    let mut stream = TlsConnector::from(Arc::new(config)).connect(server_name(), stream).await?;
    stream.write_all(request.as_bytes()).await?;
    stream.flush().await?;
    Ok(Lines::new(stream).line().await?.unwrap_or_default())
}

/// Trusts only the authority with this fingerprint.
fn pinned_to(fingerprint: [u8; 32], provider: &Arc<CryptoProvider>) -> Arc<dyn ServerCertVerifier> {
    let trusted = Arc::clone(provider);
    certificates_by(provider, move |shown| {
        let stranger = rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer);
        let authority = shown.intermediates.iter().find(|der| <[u8; 32]>::from(Sha256::digest(der)) == fingerprint);
        let mut roots = RootCertStore::empty();
        roots.add(authority.ok_or(stranger)?.clone().into_owned())?;
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&trusted));
        let verifier = verifier.build().map_err(|error| rustls::Error::General(error.to_string()))?;
        verifier.verify_server_cert(shown.end_entity, shown.intermediates, shown.name, &[], shown.now).map(drop)
    })
}

fn digest(secret: &str) -> String {
    hex(&Sha256::digest(secret.as_bytes()))
}

fn now() -> i64 {
    let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(wall.as_nanos()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::super::clock::CalendarClock;
    use super::*;

    #[tokio::test]
    async fn a_token_admits_one_machine_as_what_it_says() {
        let home = tempfile::tempdir().unwrap();
        let records = Records::sqlite(&home.path().join("records.db")).await.unwrap();
        let first = Identity::new("n1", Role::Eligible, Priority(3)).unwrap();
        let issue = Issue { now: SystemTime::now(), life: Duration::from_secs(3600) };
        let own = found(&records, &first, std::net::Ipv4Addr::LOCALHOST.into(), issue).await.unwrap();
        let clock = CalendarClock::default();
        assert!(own.server(&clock).is_ok() && own.client(&clock).is_ok());
        own.write(&home.path().join("node")).unwrap();
        assert_eq!(Credentials::read(&home.path().join("node")).unwrap().identity().unwrap().0, first);
        let authority = Authority::open(&records, &own.seal.unwrap(), issue).await.unwrap();
        let at = "127.0.0.1:7300".parse().unwrap();
        let invited = async |role| {
            let token = invite(&records, &own, at, (role, Priority(9)), Duration::from_secs(60)).await.unwrap();
            token.token.rsplit('/').next().unwrap().to_owned()
        };
        let key = |seed: u8| hex(&[seed; 32]);
        let secret = invited(Role::Dispatcher).await;
        let request = |secret: &str, name: &str, seed| format!("join {secret} {name} 127.0.0.2 {}", key(seed));
        for (bad, why) in [
            (request("00", "n2", 1), "not known"),
            (request(&secret, "n1", 1), "in the lab already"),
            (request(&secret, "../x", 1), "not a valid name"),
            (format!("join {secret} n2 somewhere {}", key(1)), "no address"),
            (format!("join {secret} n2 127.0.0.2 abc"), "no key"),
            ("election".into(), "no request"),
        ] {
            let refused = admit(&records, &authority, &own, &bad).await.unwrap_err();
            assert!(refused.contains(why), "{bad}: {refused}");
        }
        let welcome = admit(&records, &authority, &own, &request(&secret, "n2", 1)).await.unwrap();
        assert!(welcome.starts_with("welcome ") && welcome.contains("\"seal\":null"), "a dispatcher opens no seal");
        let again = admit(&records, &authority, &own, &request(&secret, "n3", 2)).await.unwrap_err();
        assert!(again.contains("was used"), "{again}");
        let eligible =
            admit(&records, &authority, &own, &request(&invited(Role::Eligible).await, "n3", 2)).await.unwrap();
        assert!(!eligible.contains("\"seal\":null"));
        let outside =
            admit(&records, &authority, &own, &request(&invited(Role::External).await, "n4", 3)).await.unwrap();
        assert!(outside.contains("\"seal\":null") && outside.contains("\"beat_key\":null"), "no secrets outside");
        let nodes: Vec<_> =
            records.lab_nodes().all().await.unwrap().into_iter().map(|n| (n.node, n.role, n.priority)).collect();
        let expected = [("n1", "eligible", 3), ("n2", "dispatcher", 9), ("n3", "eligible", 9), ("n4", "external", 9)];
        assert_eq!(nodes, expected.map(|(name, role, priority)| (name.to_owned(), role.to_owned(), priority)));
    }

    #[tokio::test]
    async fn what_the_database_says_admits_nobody_without_the_seal() {
        let home = tempfile::tempdir().unwrap();
        let records = Records::sqlite(&home.path().join("records.db")).await.unwrap();
        let first = Identity::new("n1", Role::Eligible, Priority(3)).unwrap();
        let issue = Issue { now: SystemTime::now(), life: Duration::from_secs(3600) };
        let own = found(&records, &first, std::net::Ipv4Addr::LOCALHOST.into(), issue).await.unwrap();
        let authority = Authority::open(&records, &own.seal.unwrap(), issue).await.unwrap();
        let at = "127.0.0.1:7300".parse().unwrap();
        let invited = async |valid| {
            let token = invite(&records, &own, at, (Role::Dispatcher, Priority(9)), valid).await.unwrap();
            token.token.rsplit('/').next().unwrap().to_owned()
        };
        let hour = Duration::from_secs(3600);
        let later = now() + 3_600_000_000_000;
        let (mine, other, old) = (invited(hour).await, invited(hour).await, invited(Duration::ZERO).await);
        let genuine = records.tokens().redeem(&digest(&mine), 0).await.unwrap().unwrap();
        let of_other = records.tokens().redeem(&digest(&other), 0).await.unwrap().unwrap();
        let over = records.tokens().redeem(&digest(&old), 0).await.unwrap().unwrap();
        let until = genuine.split(' ').nth(3).unwrap();
        let own_code = Invitation { role: Role::Eligible, priority: Priority(0), until: later };
        for (secret, kept) in [
            ("x", "lab eligible 0".to_owned()),
            ("x", genuine.clone()),
            ("x", own_code.write(&[0; 32], &digest("x"))),
            (mine.as_str(), genuine.replace("dispatcher", "eligible")),
            (mine.as_str(), genuine.replace(" 9 ", " 0 ")),
            (mine.as_str(), genuine.replace(until, &later.to_string())),
            (mine.as_str(), of_other),
            (old.as_str(), over),
        ] {
            records.tokens().add(&digest(secret), &kept, later, now()).await.unwrap();
            let request = format!("join {secret} n2 127.0.0.2 {}", hex(&[1; 32]));
            let refused = admit(&records, &authority, &own, &request).await.unwrap_err();
            assert!(refused.contains("not known"), "{kept}: {refused}");
        }
        records.tokens().add(&digest(&mine), &genuine, later, now()).await.unwrap();
        let request = format!("join {mine} n2 127.0.0.2 {}", hex(&[1; 32]));
        assert!(admit(&records, &authority, &own, &request).await.unwrap().contains("\"seal\":null"));
        let without = Credentials { seal: None, ..own.clone() };
        assert!(invite(&records, &without, at, (Role::Dispatcher, Priority(9)), hour).await.is_err());
    }
}
