//! Authenticity: what SPF, DKIM and DMARC say of a received message, as an `Authentication-Results` field (RFC 8601).
//!
//! Evaluated after acceptance and before delivery. Nothing is refused for it here; the field tells those who come after.
//! Bounded: a time for everything together, ten look-ups for an SPF record (RFC 7208 section 4.6.4), [`SIGNATURES_MAX`]
//! signatures. What the DNS did not answer in that time is `temperror`, and the mail goes on: a dead name server delays mail
//! by that time at most, and by [`PATIENCE_WHEN_SILENT`] once it is known to be dead. Memory: the header; the body streams
//! through the hashes.
//!
//! mail-auth evaluates, with our resolver. Left to others: ARC (its fields pass as they came), reports to domain owners.

mod digest;

use crate::delivery::ledger::{LedgerError, StoredBody};
use crate::delivery::resolver::{Dns, ResolverError, resolver};
use crate::delivery::route::canonical;
use crate::intake::header::{HEADER_MAX, end_of_header};
use crate::letter::{Client, Letter};
use digest::BodyDigests;
use mail_auth::common::crypto::Algorithm;
use mail_auth::dkim::{DkimError, Signature};
use mail_auth::dmarc::verify::DmarcParameters;
use mail_auth::spf::verify::SpfParameters;
use mail_auth::{
    AuthenticatedMessage, AuthenticationResults as Field, DkimOutput, DmarcOutput, DmarcResult, DnsError, Error,
    MessageAuthenticator, SpfOutput, SpfResult,
};
use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tokio::time::{Instant, timeout_at};
use weir_settings::settings;
use weir_smtp::header_field;

/// Signatures of one message that are looked at.
pub const SIGNATURES_MAX: usize = 8;
/// The most that may be compared for one signature: names that it signs, times fields of the header.
const COMPARISONS_MAX: usize = 1 << 18;
/// The longest domain or selector that can be one.
const NAME_MAX: usize = 255;
/// The longest result that is written.
const FIELD_MAX: usize = 4 << 10;
/// Bodies above this are hashed on a thread that may take its time.
const LARGE: usize = 256 << 10;
/// After so many messages in a row for which the DNS took all the time there was, it is taken to be dead.
const SILENT_MAX: u32 = 4;
/// How long it is then waited for, until it answers again.
pub const PATIENCE_WHEN_SILENT: Duration = Duration::from_secs(1);

settings! {
    /// How authenticity is evaluated.
    #[derive(PartialEq, Eq)]
    pub struct AuthenticitySettings {
        /// The name in whose name the results are given.
        pub hostname: String = fixed("localhost".to_owned()),
        /// The DNS.
        pub dns: Dns = fixed(Dns::System),
        /// How long the DNS is asked about one message; what it did not answer is temperror, and the mail goes on
        pub patience as "dns_patience": Duration = duration("10s", "100ms"..="1m"),
        /// Messages that are evaluated at once
        pub at_once as "evaluations": usize = count(256, 1..=10_000),
    }
}

/// Evaluates messages.
pub struct Authenticity {
    authenticator: MessageAuthenticator,
    hostname: String,
    patience: Duration,
    /// Messages in a row for which the DNS took all the time there was.
    silent: AtomicU32,
}

impl Authenticity {
    /// An evaluator.
    pub fn new(settings: &AuthenticitySettings) -> Result<Authenticity, ResolverError> {
        Ok(Authenticity {
            authenticator: MessageAuthenticator(resolver(&settings.dns)?),
            hostname: settings.hostname.clone(),
            patience: settings.patience,
            silent: AtomicU32::new(0),
        })
    }

    /// Evaluates a message as it stands in the spool, our own Received field on top. The header field, with its line end.
    pub async fn authenticate<B: StoredBody>(&self, letter: &Letter, body: B) -> String {
        let Some(client) = &letter.client else { return self.nothing() };
        let (header, start) = match read_header(body).await {
            Ok(read) => read,
            Err(error) => {
                // Delivery will meet the same and say so to the sender.
                tracing::warn!(%error, "a message cannot be read to be evaluated");
                return self.nothing();
            }
        };
        let deadline = Instant::now() + self.present_patience();
        let field = self.evaluate(letter, client, (&header, start), deadline).await;
        self.count_silence(Instant::now() >= deadline);
        field
    }

    async fn evaluate<B: StoredBody>(
        &self,
        letter: &Letter,
        client: &Client,
        (header, start): (&[u8], Start<B>),
        deadline: Instant,
    ) -> String {
        // Our own trace, the first field, was not there when others signed.
        let theirs = header.get(header_field::end(header)..).unwrap_or_default();
        let mut message = AuthenticatedMessage::parse_with_opts(theirs, None, true).unwrap_or_default();
        let hashed = hash_body(&mut message, start).await;
        let singles = singles(&message);
        let (spf, dkim) =
            tokio::join!(self.spf(letter, client, deadline), self.dkim(&message, &singles, hashed, deadline));
        let dmarc = self.dmarc(&message, &spf, &dkim, deadline).await;
        self.results(letter, client, (&spf, dmarc.as_ref()), &dkim)
    }

    /// SPF of HELO and of the envelope sender.
    async fn spf(&self, letter: &Letter, client: &Client, deadline: Instant) -> Spf {
        let (helo, sender) = (canonical(&client.helo), canonical_sender(&letter.from));
        let hello = match is_domain(&helo) {
            true => {
                self.check(SpfParameters::verify_ehlo(client.address, &helo, &self.hostname), &helo, deadline).await
            }
            false => SpfOutput::new(helo.clone()),
        };
        let from = match sender.rsplit_once('@') {
            Some((_, domain)) if is_domain(domain) => {
                let parameters = SpfParameters::verify_mail_from(client.address, &helo, &self.hostname, &sender);
                Some(self.check(parameters, domain, deadline).await)
            }
            Some((_, domain)) => Some(SpfOutput::new(domain.to_owned())),
            None => None,
        };
        let domain = sender.rsplit_once('@').map_or(helo, |(_, domain)| domain.to_owned());
        Spf { hello, from, domain }
    }

    async fn check(&self, parameters: SpfParameters<'_>, domain: &str, deadline: Instant) -> SpfOutput {
        let checked = timeout_at(deadline, self.authenticator.verify_spf(parameters)).await;
        checked.unwrap_or_else(|_| SpfOutput::new(domain.to_owned()).with_result(SpfResult::TempError))
    }

    /// Every signature by itself: a name server that is silent about one says nothing about the others.
    async fn dkim<'a>(
        &self,
        message: &'a AuthenticatedMessage<'a>,
        singles: &'a [AuthenticatedMessage<'a>],
        hashed: Result<(), LedgerError>,
        deadline: Instant,
    ) -> Vec<DkimOutput<'a>> {
        let mut outputs = Vec::with_capacity(singles.len());
        for single in singles {
            let Some(signature) = single.dkim_headers.first().map(|header| &header.header) else { continue };
            let output = match unfit(signature, message.headers.len()) {
                Some(error) => DkimOutput::perm_err(error).with_signature(signature),
                None if hashed.is_err() => DkimOutput::temp_err(unanswered()).with_signature(signature),
                None => match timeout_at(deadline, self.authenticator.verify_dkim(single)).await {
                    Ok(found) => found.into_iter().next().unwrap_or_else(|| DkimOutput::perm_err(Error::ParseError)),
                    Err(_) => DkimOutput::temp_err(unanswered()).with_signature(signature),
                },
            };
            outputs.push(output);
        }
        let broken = message.errors.iter().filter(|header| is_dkim(header.name));
        let room = SIGNATURES_MAX - outputs.len().min(SIGNATURES_MAX);
        outputs.extend(broken.take(room).map(|header| DkimOutput::neutral(header.header.clone())));
        outputs
    }

    async fn dmarc(
        &self,
        message: &AuthenticatedMessage<'_>,
        spf: &Spf,
        dkim: &[DkimOutput<'_>],
        deadline: Instant,
    ) -> Option<DmarcOutput> {
        let from = message.from.first()?.rsplit_once('@')?.1;
        if !is_domain(&canonical(from)) {
            return None;
        }
        let parameters = DmarcParameters {
            message,
            dkim_output: dkim,
            dkim2_output: None,
            rfc5321_mail_from_domain: &spf.domain,
            spf_output: spf.from.as_ref().unwrap_or(&spf.hello),
        };
        let verified = timeout_at(deadline, self.authenticator.verify_dmarc(parameters)).await;
        Some(verified.unwrap_or_else(|_| {
            let silence = DmarcResult::TempError(unanswered());
            DmarcOutput::default().with_domain(&canonical(from)).with_spf_result(silence)
        }))
    }

    fn results(
        &self,
        letter: &Letter,
        client: &Client,
        (spf, dmarc): (&Spf, Option<&DmarcOutput>),
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
            if let Some(dmarc) = dmarc {
                field = field.with_dmarc_result(dmarc);
            }
            written(&field.to_string(), letter.utf8)
        };
        // The names in signatures are the sender's to choose: however long, they must not hide what the domains say.
        let field = with(dkim).or_else(|| with(&[])).unwrap_or_else(|| self.nothing());
        tracing::debug!(field = field.trim_end(), from = letter.from, "evaluated");
        field
    }

    /// The field of a message that nobody evaluated.
    pub(super) fn nothing(&self) -> String {
        format!("Authentication-Results: {}; none\r\n", self.hostname)
    }

    fn present_patience(&self) -> Duration {
        match self.silent.load(Ordering::Relaxed) >= SILENT_MAX {
            true => self.patience.min(PATIENCE_WHEN_SILENT),
            false => self.patience,
        }
    }

    fn count_silence(&self, silent: bool) {
        if !silent {
            self.silent.store(0, Ordering::Relaxed);
        } else if self.silent.fetch_add(1, Ordering::Relaxed) + 1 == SILENT_MAX {
            tracing::warn!("the DNS does not answer; received mail goes on as `temperror`");
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

/// What follows the header.
struct Start<B> {
    /// What came in the same piece.
    behind: Vec<u8>,
    body: B,
}

/// The header with its empty line, at most as long as acceptance let through.
async fn read_header<B: StoredBody>(mut body: B) -> Result<(Vec<u8>, Start<B>), LedgerError> {
    let mut read: Vec<u8> = Vec::new();
    while let Some(piece) = body.next().await? {
        let looked = read.len();
        read.extend_from_slice(&piece);
        if let Some(end) = end_of_header(&read, looked) {
            let behind = read.split_off(end);
            return Ok((read, Start { behind, body }));
        }
        // Our own trace comes on top of the longest header.
        if read.len() > HEADER_MAX * 2 {
            break;
        }
    }
    Ok((read, Start { behind: Vec::new(), body }))
}

/// Hashes the body as far as there is a signature that wants it.
async fn hash_body<B: StoredBody>(message: &mut AuthenticatedMessage<'_>, start: Start<B>) -> Result<(), LedgerError> {
    let mut digests = BodyDigests::wanted(message);
    if digests.is_empty() {
        return Ok(());
    }
    let Start { behind, mut body } = start;
    let mut hashed = behind.len();
    digests.write(&behind);
    while let Some(piece) = body.next().await? {
        hashed = hashed.saturating_add(piece.len());
        if hashed < LARGE {
            digests.write(&piece);
            continue;
        }
        let hashing = tokio::task::spawn_blocking(move || {
            digests.write(&piece);
            digests
        });
        digests = hashing.await.map_err(|error| LedgerError::Unavailable(error.to_string()))?;
    }
    digests.finish(message);
    Ok(())
}

/// The message once for each of its signatures.
fn singles<'x>(message: &AuthenticatedMessage<'x>) -> Vec<AuthenticatedMessage<'x>> {
    let single = |header: &mail_auth::common::headers::Header<'x, Signature>| AuthenticatedMessage {
        headers: message.headers.clone(),
        from: message.from.clone(),
        body_hashes: message.body_hashes.clone(),
        dkim_headers: vec![header.clone()],
        ..AuthenticatedMessage::default()
    };
    message.dkim_headers.iter().take(SIGNATURES_MAX).map(single).collect()
}

/// Why a signature is not even tried.
fn unfit(signature: &Signature, fields: usize) -> Option<Error> {
    let names = [&signature.d, &signature.s, &signature.i];
    if names.iter().any(|name| name.len() > NAME_MAX) || signature.h.len().saturating_mul(fields) > COMPARISONS_MAX {
        return Some(Error::ParseError);
    }
    // RFC 8301: such a signature proves nothing.
    (signature.a == Algorithm::RsaSha1).then_some(Error::Dkim(DkimError::UnsupportedAlgorithm))
}

fn is_dkim(name: &[u8]) -> bool {
    name.trim_ascii().eq_ignore_ascii_case(b"DKIM-Signature")
}

fn unanswered() -> Error {
    Error::Dns(DnsError::Resolver("no answer in time".into()))
}

/// A name that the DNS can be asked about: of several labels, no address.
fn is_domain(name: &str) -> bool {
    name.len() <= NAME_MAX
        && name.contains('.')
        && !name.contains(['[', '@', ' '])
        && name.parse::<std::net::IpAddr>().is_err()
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
