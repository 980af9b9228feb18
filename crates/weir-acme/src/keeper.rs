//! The task that gets certificates and renews them.
//!
//! A certificate is renewed when two thirds of its life are over, or a little earlier: a random time of at most a thirtieth of its life, so
//! that certificates that were got together are not all renewed at the same moment. Cost: the task wakes once a minute, or every few
//! seconds where machines share their records.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use instant_acme::{Account, NewAccount};
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep};
use weir_tls::{NamedCertificates, Validity};

use crate::back_off::{spread, wait};
use crate::dns_hook::DnsHook;
use crate::folder::CertificateFolder;
use crate::http_client::AuthorityClient;
use crate::order::{OrderError, Proof};
use crate::settings::CertificateSettings;
use crate::shared::{LOOK, Sharing};

/// The task looks for something to do at least this often.
const EVERY: Duration = Duration::from_secs(60);
/// An order that takes longer is given up. What the hook may take comes on top.
const ORDER_MAX: Duration = Duration::from_secs(480);
/// A name whose certificate could not be got before Weir was started again is tried after this.
const AFTER_START: Duration = Duration::from_secs(30);
/// How long until the same alarm is raised again.
const ALARM_EVERY: Duration = Duration::from_secs(86_400);

/// A certificate is about to expire, and no new one could be obtained.
#[derive(Debug, Clone)]
pub struct Alarm {
    /// The host name.
    pub name: String,
    /// When it runs out; None if there never was one.
    pub until: Option<SystemTime>,
    /// Why there is no new one.
    pub problem: String,
}

/// Obtains certificates and renews them.
pub struct CertificateKeeper {
    settings: CertificateSettings,
    folder: CertificateFolder,
    named: Arc<NamedCertificates>,
    sharing: Arc<Sharing>,
    alarm: Box<dyn Fn(Alarm) + Send + Sync>,
}

/// The keeper's state for one name.
struct NamePlan {
    failures: u32,
    next_try: Instant,
    problem: String,
    alarmed: Option<Instant>,
    /// How much earlier than necessary this certificate is renewed, from 0 to 1 (times a thirtieth of its life).
    spread: f64,
}

#[derive(Serialize, Deserialize)]
struct KeptAccount {
    directory: String,
    credentials: serde_json::Value,
}

impl CertificateKeeper {
    /// A keeper of certificates for these names. What it gets is served from `named`. `alarm` must not block.
    pub fn new(
        settings: CertificateSettings,
        folder: CertificateFolder,
        named: Arc<NamedCertificates>,
        sharing: Arc<Sharing>,
        alarm: impl Fn(Alarm) + Send + Sync + 'static,
    ) -> CertificateKeeper {
        CertificateKeeper { settings, folder, named, sharing, alarm: Box::new(alarm) }
    }

    /// Gets and renews certificates for ever; run it as a task.
    pub async fn run(self) {
        let fresh = |name: &String| {
            let rest = if self.folder.has_failed(name) { AFTER_START } else { Duration::ZERO };
            (name.to_ascii_lowercase(), NamePlan { next_try: Instant::now() + rest, ..NamePlan::new() })
        };
        let mut plans: BTreeMap<String, NamePlan> = self.settings.names.iter().map(fresh).collect();
        loop {
            if let Err(error) = self.follow_others().await {
                tracing::warn!(%error, "the certificates of other machines cannot be read");
            }
            for (name, plan) in &mut plans {
                self.look_at(name, plan).await;
            }
            sleep(self.next_look(&plans)).await;
        }
    }

    fn next_look(&self, plans: &BTreeMap<String, NamePlan>) -> Duration {
        let longest = match *self.sharing {
            Sharing::Alone => EVERY,
            Sharing::With(_) => LOOK,
        };
        let due = plans.iter().map(|(name, plan)| {
            let rest = plan.next_try.saturating_duration_since(Instant::now());
            rest.max(self.due_in(name, plan))
        });
        due.min().unwrap_or(longest).clamp(Duration::from_millis(200), longest)
    }

    /// How long until this name needs a certificate; zero if it needs one now.
    fn due_in(&self, name: &str, plan: &NamePlan) -> Duration {
        let Some(validity) = self.named.validity(name) else { return Duration::ZERO };
        renewal(&validity, plan.spread).duration_since(SystemTime::now()).unwrap_or_default()
    }

    async fn look_at(&self, name: &str, plan: &mut NamePlan) {
        if self.due_in(name, plan).is_zero() && plan.next_try <= Instant::now() {
            match self.sharing.may_ask(order_max(&self.settings)).await {
                Ok(true) => self.get(name, plan).await,
                Ok(false) => {}
                Err(error) => tracing::warn!(%error, "who asks for certificates cannot be read from the records"),
            }
        }
        self.raise_alarm(name, plan);
    }

    async fn get(&self, name: &str, plan: &mut NamePlan) {
        let hook = hook(&self.settings);
        let (kind, set) = (self.settings.challenge, Mutex::default());
        let proof = Proof { kind, named: &self.named, hook: hook.as_ref(), sharing: &self.sharing, set };
        let ordered = proof.during(name, order_max(&self.settings), self.order(name, &proof)).await;
        match ordered {
            Ok(validity) => {
                *plan = NamePlan::new();
                self.folder.forget_failure(name);
                let days = validity.until.duration_since(SystemTime::now()).unwrap_or_default().as_secs() / 86_400;
                tracing::info!(name, days, "a certificate was got");
            }
            Err(error) => {
                plan.failures += 1;
                let rest = wait(plan.failures, error.cost(), spread());
                plan.next_try = Instant::now() + rest;
                plan.problem = error.to_string();
                self.named.failed(name, &plan.problem);
                self.folder.note_failure(name);
                let again_s = rest.as_secs();
                tracing::warn!(name, %error, again_s, "no certificate could be got; what is in use stays");
            }
        }
    }

    async fn order(&self, name: &str, proof: &Proof<'_>) -> Result<Validity, OrderError> {
        let account = self.account().await?;
        let ordered = proof.obtain(&account, name).await;
        if ordered.as_ref().is_err_and(OrderError::is_unknown_account) {
            self.keep_account("").await?;
        }
        let pem = ordered?;
        let now = SystemTime::now();
        self.named.check(name, &pem, now).map_err(io::Error::other)?;
        // The certificate is stored before it is used, so that it is still there after a crash. If it cannot be stored, it is used all the
        // same, until the next start.
        let kept = self.folder.keep(name, &pem);
        let validity = self.named.put(name, &pem, now).map_err(io::Error::other)?;
        kept?;
        self.sharing.keep(name, &pem).await?;
        Ok(validity)
    }

    /// The stored account, or a new one.
    async fn account(&self) -> Result<Account, OrderError> {
        let client = || AuthorityClient::new(self.settings.ca_file.as_deref());
        let kept = match &*self.sharing {
            Sharing::Alone => self.folder.account(),
            shared => shared.account().await?,
        };
        let kept = kept.and_then(|json| serde_json::from_str::<KeptAccount>(&json).ok());
        if let Some(kept) = kept.filter(|kept| kept.directory == self.settings.directory)
            && let Ok(credentials) = serde_json::from_value(kept.credentials)
        {
            return Ok(Account::builder_with_http(Box::new(client()?)).from_credentials(credentials).await?);
        }
        let contact = format!("mailto:{}", self.settings.contact);
        let contacts = [contact.as_str()];
        let contact = if self.settings.contact.is_empty() { &[][..] } else { &contacts };
        let new =
            NewAccount { contact, terms_of_service_agreed: self.settings.accept_terms, only_return_existing: false };
        let directory = self.settings.directory.clone();
        let builder = Account::builder_with_http(Box::new(client()?));
        let (account, credentials) = builder.create(&new, directory.clone(), None).await?;
        let credentials = serde_json::to_value(&credentials).map_err(io::Error::other)?;
        let json = serde_json::to_string(&KeptAccount { directory, credentials }).map_err(io::Error::other)?;
        self.keep_account(&json).await?;
        Ok(account)
    }

    async fn keep_account(&self, json: &str) -> Result<(), OrderError> {
        self.folder.keep_account(json)?;
        Ok(self.sharing.keep_account(json).await?)
    }

    /// Takes over certificates that other machines obtained, and answers their challenges.
    async fn follow_others(&self) -> Result<(), weir_store::records::RecordsError> {
        if matches!(*self.sharing, Sharing::Alone) {
            return Ok(());
        }
        self.sharing.follow_challenges(&self.named).await?;
        for (name, pem) in self.sharing.certificates().await? {
            let before = self.named.validity(&name);
            // A certificate that is not for one of our names, or expires before ours, is refused here.
            let Ok(validity) = self.named.put(&name, &pem, SystemTime::now()) else { continue };
            if before != Some(validity) {
                tracing::info!(name, "a certificate that another machine got is in use");
                if let Err(error) = self.folder.keep(&name, &pem) {
                    tracing::warn!(name, %error, "a certificate cannot be kept in the data folder");
                }
            }
        }
        Ok(())
    }

    fn raise_alarm(&self, name: &str, plan: &mut NamePlan) {
        let validity = self.named.validity(name);
        let urgent = match &validity {
            Some(validity) => is_urgent(validity, self.settings.alarm_before, SystemTime::now()),
            None => plan.failures > 1,
        };
        let told = plan.alarmed.is_some_and(|at| at.elapsed() < ALARM_EVERY);
        if urgent && plan.failures > 0 && !told {
            plan.alarmed = Some(Instant::now());
            let (until, problem) = (validity.map(|validity| validity.until), plan.problem.clone());
            (self.alarm)(Alarm { name: name.to_owned(), until, problem });
        }
    }
}

impl NamePlan {
    fn new() -> NamePlan {
        NamePlan { failures: 0, next_try: Instant::now(), problem: String::new(), alarmed: None, spread: spread() }
    }
}

fn hook(settings: &CertificateSettings) -> Option<DnsHook> {
    settings.hook.clone().map(|program| DnsHook { program, wait: settings.hook_wait })
}

/// How long an order may take before what was opened for it is taken back.
fn order_max(settings: &CertificateSettings) -> Duration {
    ORDER_MAX + hook(settings).map_or(Duration::ZERO, |hook| hook.set_max())
}

/// The time at which a certificate is renewed.
fn renewal(validity: &Validity, spread: f64) -> SystemTime {
    let life = validity.until.duration_since(validity.from).unwrap_or_default();
    validity.from + life * 2 / 3 - (life / 30).mul_f64(spread.clamp(0.0, 1.0))
}

/// Whether somebody should be told that the certificate is about to expire. Certificates that are valid only for days are renewed later
/// than `before`, so for them a part of their life counts.
fn is_urgent(validity: &Validity, before: Duration, now: SystemTime) -> bool {
    let life = validity.until.duration_since(validity.from).unwrap_or_default();
    validity.until.duration_since(now).unwrap_or_default() < before.min(life / 6)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(86_400);

    #[test]
    fn the_keeper_can_be_run_as_a_task() {
        fn is_task<T: Future<Output = ()> + Send>(_run: impl FnOnce(CertificateKeeper) -> T) {}
        is_task(CertificateKeeper::run);
    }

    #[test]
    fn a_certificate_is_renewed_early_and_not_all_at_once() {
        let from = SystemTime::UNIX_EPOCH;
        let validity = Validity { from, until: from + 90 * DAY };
        assert_eq!(renewal(&validity, 0.0), from + 60 * DAY);
        assert_eq!(renewal(&validity, 1.0), from + 57 * DAY);
    }

    #[test]
    fn an_order_has_its_own_time_besides_that_of_the_hook() {
        let hour = Duration::from_secs(3600);
        let http = CertificateSettings { hook_wait: hour, ..CertificateSettings::default() };
        assert_eq!(order_max(&http), ORDER_MAX, "without a hook nobody waits for it");
        let dns = CertificateSettings { hook: Some("/hook".into()), ..http };
        assert!(order_max(&dns) >= hour + ORDER_MAX, "{:?}", order_max(&dns));
    }

    #[test]
    fn an_alarm_comes_before_the_end_and_after_the_renewal() {
        let from = SystemTime::UNIX_EPOCH;
        for (days, before, alarm_from) in [(90, 10, 80), (6, 10, 5)] {
            let validity = Validity { from, until: from + days * DAY };
            let urgent = |at: Duration| is_urgent(&validity, before * DAY, from + at);
            assert!(!urgent(alarm_from * DAY) && urgent(alarm_from * DAY + Duration::from_secs(1)), "{days}");
            assert!(renewal(&validity, 0.0) < from + alarm_from * DAY, "{days}");
        }
    }
}
