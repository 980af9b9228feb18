//! Authenticity: the results of SPF, DKIM and DMARC for a received message, as an `Authentication-Results` field (RFC 8601) and as values
//! on which other code decides.
//!
//! Bounded: a time for everything together, ten look-ups for an SPF record (RFC 7208 section 4.6.4), [`SIGNATURES_MAX`]
//! signatures. What the DNS did not answer in that time is `temperror`: a dead name server delays mail
//! by that time at most, and by twice [`PATIENCE_WHEN_SILENT`] once it is known to be dead: a sender whose own name servers are silent
//! can make that seem so, but then the DNS still answers a question of ours. The policy of the domain in From is asked
//! for beside everything else, so that slow name servers of a sender's own cannot use up the time for it.
//!
//! mail-auth reads and verifies signatures, with our resolver; SPF and DMARC are our own. Not done: ARC (its fields pass unchanged), and
//! reports to domain owners.

mod authors;
mod digest;
mod dkim;
pub mod dmarc;
mod evidence;
pub(super) mod names;
mod spf;
mod tags;

pub use evidence::{Evidence, Witness};

use crate::delivery::ledger::StoredBody;
use crate::delivery::resolver::{Dns, ResolverError, resolver};
use crate::delivery::route::canonical;
use crate::letter::{Client, Letter};
use dmarc::{Confirmed, Finding, Policy};
use mail_auth::dkim::Signature;
use mail_auth::{
    AuthenticatedMessage, AuthenticationResults as Field, DkimOutput, DkimResult, DnsError, Error,
    MessageAuthenticator, SpfOutput, SpfResult,
};
use names::{DnsResolver, NoRecord, can_be_name};
use std::fmt;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::{Instant, timeout_at};
use weir_settings::settings;

/// Signatures of one message that are looked at.
pub const SIGNATURES_MAX: usize = 8;
/// The longest result that is written.
const FIELD_MAX: usize = 4 << 10;
/// After so many messages in a row for which the DNS answered nothing at all, it is asked whether it is dead.
const SILENT_MAX: u32 = 4;
/// How long a dead one is waited for, until it answers again.
pub const PATIENCE_WHEN_SILENT: Duration = Duration::from_secs(1);
/// What is left for the questions of alignment, however long the sender's own name servers took.
const ALIGNMENT_PATIENCE: Duration = Duration::from_secs(2);

settings! {
    /// How authenticity is evaluated.
    #[derive(PartialEq, Eq)]
    pub struct AuthenticitySettings {
        /// The name in whose name the results are given.
        pub hostname: String = fixed("localhost".to_owned()),
        /// The DNS.
        pub dns: Dns = fixed(Dns::System),
        /// How long the DNS is asked about one message; what it did not answer is temperror
        pub patience as "dns_patience": Duration = duration("10s", "100ms"..="1m"),
        /// Messages that are evaluated at once
        pub at_once as "evaluations": usize = count(256, 1..=10_000),
    }
}

/// What was found out about a message.
#[derive(Debug, Clone)]
pub struct Evaluation {
    /// The header field, with its line end.
    pub field: String,
    /// Whether its client may send for the domain of its envelope sender, as that domain says.
    pub sender_passed: bool,
    /// The domains for which SPF or a signature said something.
    pub confirmed: Vec<Confirmed>,
    /// Each domain in From.
    pub dmarc: Vec<Finding>,
    /// There are more domains in From than anybody can be asked about.
    pub too_many_authors: bool,
}

/// Evaluates messages.
pub struct Authenticity {
    authenticator: MessageAuthenticator,
    names: DnsResolver,
    hostname: String,
    patience: Duration,
    /// Messages in a row for which the DNS answered nothing.
    silent: AtomicU32,
    /// It did not answer a question of ours, either.
    dead: AtomicBool,
    /// Questions of ours so far.
    questions: AtomicU64,
}

impl Authenticity {
    /// An evaluator.
    pub fn new(settings: &AuthenticitySettings) -> Result<Authenticity, ResolverError> {
        let resolver = resolver(&settings.dns)?;
        Ok(Authenticity {
            authenticator: MessageAuthenticator(resolver.clone()),
            names: DnsResolver(resolver),
            hostname: settings.hostname.clone(),
            patience: settings.patience,
            silent: AtomicU32::new(0),
            dead: AtomicBool::new(false),
            questions: AtomicU64::new(0),
        })
    }

    /// Evaluates a message as it stands in the spool, our own Received field on top.
    pub(super) async fn authenticate<B: StoredBody>(&self, letter: &Letter, body: B) -> Evaluation {
        let Some(client) = &letter.client else { return self.nothing() };
        match Evidence::read(body).await {
            Ok(evidence) => self.evaluate(letter, client, evidence).await,
            Err(error) => {
                // Delivery will meet the same and say so to the sender.
                tracing::warn!(%error, "a message cannot be read to be evaluated");
                self.nothing()
            }
        }
    }

    /// Evaluates a message of which this was seen.
    pub(super) async fn evaluate(&self, letter: &Letter, client: &Client, mut evidence: Evidence) -> Evaluation {
        let patience = self.present_patience().await;
        let deadline = Instant::now() + patience;
        let digests = evidence.digests.take();
        let mut message = evidence.parsed();
        let hashed = digests.is_some();
        digests.into_iter().for_each(|digests| digests.finish(&mut message));
        let (singles, authors) = (singles(&message), authors::domains(&evidence.header));
        let too_many_authors = authors.is_none();
        let authors = authors.unwrap_or_default();
        let (spf, dkim, policies) = tokio::join!(
            self.spf(client, &letter.from, deadline),
            self.dkim(&message, &singles, hashed, deadline),
            self.policies(&authors, deadline)
        );
        let confirmed = confirmed(&spf, &dkim);
        self.count_silence(!answered(&spf, &dkim, &policies));
        let dmarc = self.findings(&policies, &confirmed, deadline).await;
        let field = self.results(letter, client, (&spf, &dmarc), &dkim);
        Evaluation { field, sender_passed: spf.passed(), confirmed, dmarc, too_many_authors }
    }

    /// SPF of HELO and of the envelope sender.
    async fn spf(&self, client: &Client, sender: &str, deadline: Instant) -> Spf {
        let (helo, sender) = (canonical(&client.helo), canonical_sender(sender));
        let asked = |local, domain| spf::SpfIdentity { client: client.address, helo: &helo, local, domain };
        let hello = self.check(asked("", &helo), deadline).await;
        let from = match sender.rsplit_once('@') {
            Some((local, domain)) => Some(self.check(asked(local, domain), deadline).await),
            None => None,
        };
        let domain = sender.rsplit_once('@').map_or(helo, |(_, domain)| domain.to_owned());
        Spf { hello, from, domain }
    }

    async fn check(&self, identity: spf::SpfIdentity<'_>, deadline: Instant) -> SpfOutput {
        let output = SpfOutput::new(identity.domain.to_owned());
        if !is_domain(identity.domain) {
            return output;
        }
        let checked = timeout_at(deadline, spf::check(&self.names, identity)).await;
        output.with_result(checked.unwrap_or(SpfResult::TempError))
    }

    /// What SPF says of the envelope sender of a client, or of its HELO for mail from nobody; by the words of RFC 8601.
    pub async fn spf_of(&self, address: IpAddr, helo: &str, sender: &str) -> &'static str {
        let client = Client { address, helo: helo.to_owned() };
        let spf = self.spf(&client, sender, Instant::now() + self.patience).await;
        match spf.from.as_ref().unwrap_or(&spf.hello).result() {
            SpfResult::Pass => "pass",
            SpfResult::Fail => "fail",
            SpfResult::SoftFail => "softfail",
            SpfResult::Neutral => "neutral",
            SpfResult::TempError => "temperror",
            SpfResult::PermError => "permerror",
            SpfResult::None => "none",
        }
    }

    /// Every signature by itself: a name server that is silent about one says nothing about the others.
    async fn dkim<'a>(
        &self,
        message: &'a AuthenticatedMessage<'a>,
        singles: &'a [AuthenticatedMessage<'a>],
        hashed: bool,
        deadline: Instant,
    ) -> Vec<DkimOutput<'a>> {
        let mut outputs = Vec::with_capacity(singles.len());
        for single in singles {
            let Some(signature) = single.dkim_headers.first().map(|header| &header.header) else { continue };
            let unknown = || DkimOutput::temp_err(unanswered()).with_signature(signature);
            let verified = timeout_at(deadline, dkim::verify(&self.authenticator, &self.names, single)).await;
            outputs.extend(match verified {
                Ok(verified) if hashed => verified,
                _ => Some(unknown()),
            });
        }
        let broken = message.errors.iter().filter(|header| is_dkim(header.name));
        let room = SIGNATURES_MAX - outputs.len().min(SIGNATURES_MAX);
        outputs.extend(broken.take(room).map(|header| DkimOutput::neutral(header.header.clone())));
        outputs
    }

    /// All at once: a slow name server of one author's domain must not hide what another's wants.
    async fn policies(&self, authors: &[String], deadline: Instant) -> Vec<Policy> {
        let ask = |domain: &String| {
            let (names, domain) = (self.names.clone(), domain.clone());
            tokio::spawn(async move { timeout_at(deadline, Policy::of(&names, &domain)).await })
        };
        let asked: Vec<_> = authors.iter().map(ask).collect();
        let mut policies = Vec::with_capacity(authors.len());
        for (domain, asked) in authors.iter().zip(asked) {
            policies.push(asked.await.ok().and_then(Result::ok).unwrap_or_else(|| Policy::unknown(domain)));
        }
        policies
    }

    async fn findings(&self, policies: &[Policy], confirmed: &[Confirmed], deadline: Instant) -> Vec<Finding> {
        let deadline = deadline.max(Instant::now() + ALIGNMENT_PATIENCE);
        let mut findings = Vec::with_capacity(policies.len());
        for policy in policies {
            let judged = timeout_at(deadline, policy.judge(&self.names, confirmed)).await;
            findings.push(judged.unwrap_or_else(|_| policy.undecided()));
        }
        findings
    }

    fn results(
        &self,
        letter: &Letter,
        client: &Client,
        (spf, dmarc): (&Spf, &[Finding]),
        dkim: &[DkimOutput<'_>],
    ) -> String {
        let with = |dkim: &[DkimOutput<'_>]| {
            let mut field = Field::new(&self.hostname);
            if is_domain(&canonical(&client.helo)) || spf.from.is_none() {
                field = field.with_spf_ehlo_result(&spf.hello, client.address, &client.helo);
            }
            if let Some(from) = &spf.from {
                field = field.with_spf_mailfrom_result(from, client.address, &letter.from, &client.helo);
            }
            field = field.with_dkim_results(dkim, "");
            let dmarc: String = dmarc.iter().map(Policy::written).collect();
            written(&format!("{field}{dmarc}"), letter.utf8)
        };
        // The names in signatures are the sender's to choose: however long, they must not hide what the domains say.
        let field = with(dkim).or_else(|| with(&[])).unwrap_or_else(|| self.no_field());
        tracing::debug!(field = field.trim_end(), from = letter.from, "evaluated");
        field
    }

    /// Of a message that nobody evaluated.
    pub(super) fn nothing(&self) -> Evaluation {
        Evaluation {
            field: self.no_field(),
            sender_passed: false,
            confirmed: Vec::new(),
            dmarc: Vec::new(),
            too_many_authors: false,
        }
    }

    fn no_field(&self) -> String {
        format!("Authentication-Results: {}; none\r\n", self.hostname)
    }

    /// How long the DNS may take for the next message. That it answers nothing about some messages may be the work of their sender, who
    /// would like the policies of others not to be found in time. So it is taken for dead only if it does not answer us either.
    async fn present_patience(&self) -> Duration {
        if self.silent.load(Ordering::Relaxed) < SILENT_MAX {
            return self.patience;
        }
        if self.dns_answers().await {
            self.count_silence(false);
            return self.patience;
        }
        if !self.dead.swap(true, Ordering::Relaxed) {
            tracing::warn!("the DNS does not answer; what it is asked about received mail is `temperror`");
        }
        self.patience.min(PATIENCE_WHEN_SILENT)
    }

    /// Whether the DNS answers about a name below our own. Nobody has asked about it before, so that no answer is remembered here.
    async fn dns_answers(&self) -> bool {
        let number = self.questions.fetch_add(1, Ordering::Relaxed);
        let name = format!("weir-{number}.{}", self.hostname);
        let asked = timeout_at(Instant::now() + PATIENCE_WHEN_SILENT, self.names.txt(&name)).await;
        asked.is_ok_and(|found| found.err().is_none_or(NoRecord::is_an_answer))
    }

    fn count_silence(&self, silent: bool) {
        if silent {
            self.silent.fetch_add(1, Ordering::Relaxed);
        } else {
            self.silent.store(0, Ordering::Relaxed);
            self.dead.store(false, Ordering::Relaxed);
        }
    }
}

/// SPF of both names that a client gives.
struct Spf {
    hello: SpfOutput,
    /// None for mail from `<>`.
    from: Option<SpfOutput>,
    /// The domain that DMARC compares.
    domain: String,
}

impl Spf {
    /// For mail from `<>` HELO stands for the sender.
    fn result(&self) -> SpfResult {
        self.from.as_ref().unwrap_or(&self.hello).result()
    }

    fn passed(&self) -> bool {
        self.result() == SpfResult::Pass
    }
}

/// What DMARC can go by: whatever passed, and whatever the DNS did not tell.
fn confirmed(spf: &Spf, dkim: &[DkimOutput<'_>]) -> Vec<Confirmed> {
    let mut confirmed = Vec::new();
    if matches!(spf.result(), SpfResult::Pass | SpfResult::TempError) {
        confirmed.push(Confirmed { domain: spf.domain.clone(), by_dkim: false, passed: spf.passed() });
    }
    for output in dkim {
        let passed = match output.result() {
            DkimResult::Pass => true,
            DkimResult::TempError(_) => false,
            _ => continue,
        };
        let domain = output.signature().map(|signature| canonical(&signature.d));
        confirmed.extend(domain.map(|domain| Confirmed { domain, by_dkim: true, passed }));
    }
    confirmed
}

/// Whether the DNS said anything at all.
fn answered(spf: &Spf, dkim: &[DkimOutput<'_>], policies: &[Policy]) -> bool {
    let spf = [Some(&spf.hello), spf.from.as_ref()].into_iter().flatten();
    let asked = |output: &SpfOutput| is_domain(output.domain());
    spf.into_iter().any(|output| asked(output) && output.result() != SpfResult::TempError)
        || dkim.iter().any(|output| !matches!(output.result(), DkimResult::TempError(_)))
        || policies.iter().any(Policy::is_known)
}

/// The message once for each of its signatures, which ask for nothing but to be verified.
fn singles<'x>(message: &AuthenticatedMessage<'x>) -> Vec<AuthenticatedMessage<'x>> {
    let single = |header: &mail_auth::common::headers::Header<'x, Signature>| {
        let mut header = header.clone();
        header.header = Signature { r: false, atps: None, atpsh: None, ..header.header };
        AuthenticatedMessage {
            headers: message.headers.clone(),
            from: message.from.clone(),
            body_hashes: message.body_hashes.clone(),
            dkim_headers: vec![header],
            ..AuthenticatedMessage::default()
        }
    };
    message.dkim_headers.iter().take(SIGNATURES_MAX).map(single).collect()
}

fn is_dkim(name: &[u8]) -> bool {
    name.trim_ascii().eq_ignore_ascii_case(b"DKIM-Signature")
}

fn unanswered() -> Error {
    Error::Dns(DnsError::Resolver("no answer in time".into()))
}

/// A name that the DNS can be asked about: of several labels, no address.
fn is_domain(name: &str) -> bool {
    can_be_name(name)
        && name.contains('.')
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
        && name.parse::<IpAddr>().is_err()
}

fn canonical_sender(address: &str) -> String {
    match address.rsplit_once('@') {
        Some((local, domain)) => format!("{local}@{}", canonical(domain)),
        None => String::new(),
    }
}

/// The field with its line end; nothing if it is too long, or if it would break the header, whoever wrote that into theirs.
fn written(results: &str, utf8: bool) -> Option<String> {
    let lines_whole = results.split("\r\n").skip(1).all(|line| line.starts_with('\t'));
    let stray = results.replace("\r\n", "").contains(|c: char| c.is_control() && c != '\t');
    if results.len() > FIELD_MAX || !lines_whole || stray {
        return None;
    }
    let safe = |c: char| if c.is_ascii() || utf8 { c } else { '?' };
    Some(format!("Authentication-Results: {}\r\n", results.chars().map(safe).collect::<String>()))
}

impl fmt::Debug for Authenticity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authenticity").field("hostname", &self.hostname).finish_non_exhaustive()
    }
}
