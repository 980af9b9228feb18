//! MTA-STS: what a domain's policy says, and how it is found (RFC 8461 sections 3 and 5).
//!
//! `_mta-sts.DOMAIN` in the DNS says that there is a policy and which; the policy is on `https://mta-sts.DOMAIN`, whose certificate must be
//! right. A policy is valid for as long as it says, even if the DNS no longer mentions it, or announces another one that cannot be fetched:
//! otherwise somebody who forges the DNS and cuts off the HTTPS server could remove it. Policies are in memory, at most `POLICIES_MAX`; a restart forgets them.

use crate::delivery::resolver::txt_records;
use hickory_resolver::TokioResolver;
use hickory_resolver::proto::rr::Name;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use std::collections::HashMap;
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// Policies that are remembered; those that end soonest make room.
const POLICIES_MAX: usize = 10_000;
/// The longest policy.
const POLICY_BYTES: u64 = 64 << 10;
/// How long a policy may take to come.
const FETCH_PATIENCE: Duration = Duration::from_secs(20);
/// A policy that could not be had is asked for again after this.
const AGAIN_AFTER: Duration = Duration::from_secs(300);
/// No policy is believed for longer, whatever it says: a year, as the RFC has it.
const AGE_MAX_S: u64 = 31_557_600;
/// Patterns of one policy.
const PATTERNS_MAX: usize = 100;

/// What a domain asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// How strictly.
    pub mode: Mode,
    /// Names of its servers; `*.` stands for one label.
    mx: Vec<String>,
    max_age: Duration,
}

/// How strictly a policy is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Mail waits rather than go to a server that cannot prove its name.
    Enforce,
    /// The domain tries it out: mail goes.
    Testing,
    /// It has no policy any more.
    None,
}

impl Policy {
    /// Reads a policy; the error says why the text is not one.
    pub fn read(text: &str) -> Result<Policy, String> {
        let (mut version, mut mode, mut age, mut mx) = (None, None, None, Vec::new());
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            let (key, value) = line.split_once(':').ok_or_else(|| format!("{line:?} is not a field"))?;
            let value = value.trim();
            match key.trim() {
                "version" => version = version.or(Some(value)),
                "mode" => mode = mode.or(Some(value)),
                "max_age" => age = age.or(value.parse::<u64>().ok()),
                "mx" if mx.len() < PATTERNS_MAX => mx.push(value.trim_end_matches('.').to_ascii_lowercase()),
                _ => {}
            }
        }
        if version != Some("STSv1") {
            return Err("its version is not STSv1".to_owned());
        }
        let mode = match mode {
            Some("enforce") => Mode::Enforce,
            Some("testing") => Mode::Testing,
            Some("none") => Mode::None,
            _ => return Err("it has no mode".to_owned()),
        };
        let max_age = Duration::from_secs(age.ok_or("it has no max_age")?.min(AGE_MAX_S));
        if mx.is_empty() && mode != Mode::None {
            return Err("it names no server".to_owned());
        }
        Ok(Policy { mode, mx, max_age })
    }

    /// Whether a server of this name is one of the domain's.
    pub fn names(&self, host: &str) -> bool {
        let host = host.trim_end_matches('.').to_ascii_lowercase();
        self.mx.iter().any(|pattern| match pattern.strip_prefix("*.") {
            Some(parent) => host.split_once('.').is_some_and(|(label, rest)| !label.is_empty() && rest == parent),
            None => *pattern == host,
        })
    }
}

/// Finds policies.
pub struct Sts {
    resolver: TokioResolver,
    tls: Arc<ClientConfig>,
    port: u16,
    known: Mutex<HashMap<Box<str>, DomainPolicy>>,
}

/// What is remembered of a domain: the policy that was had last, and the last one that could not be had.
#[derive(Clone, Default)]
struct DomainPolicy {
    believed: Option<Believed>,
    missing: Option<Missing>,
}

/// A policy, under the id that the DNS announced for it.
#[derive(Clone)]
struct Believed {
    id: String,
    policy: Arc<Policy>,
    until: Instant,
}

/// The id of a policy that could not be had, and when it is asked for again.
#[derive(Clone)]
struct Missing {
    id: String,
    again_at: Instant,
}

impl DomainPolicy {
    /// The policy that applies. One that could not be replaced applies until its own time is over (RFC 8461 section 5.1).
    fn policy(&self, now: Instant) -> Option<Arc<Policy>> {
        self.believed.as_ref().filter(|believed| now < believed.until).map(|believed| Arc::clone(&believed.policy))
    }

    /// Whether nothing is to be fetched where the DNS announces this id: its policy is known, or could not be had a moment ago.
    fn is_up_to_date(&self, id: &str, now: Instant) -> bool {
        self.believed.as_ref().is_some_and(|believed| believed.id == id && now < believed.until)
            || self.missing.as_ref().is_some_and(|missing| missing.id == id && now < missing.again_at)
    }

    /// Remembers what came of fetching the policy with this id; none if it could not be had.
    fn note(&mut self, id: String, fetched: Option<Policy>, now: Instant) {
        match fetched {
            Some(policy) => {
                let until = now + policy.max_age;
                *self =
                    DomainPolicy { believed: Some(Believed { id, policy: Arc::new(policy), until }), missing: None };
            }
            None => self.missing = Some(Missing { id, again_at: now + AGAIN_AFTER }),
        }
    }

    /// When nothing of it counts any more; none if nothing ever did.
    fn ends(&self) -> Option<Instant> {
        let believed = self.believed.as_ref().map(|believed| believed.until);
        believed.max(self.missing.as_ref().map(|missing| missing.again_at))
    }
}

impl Sts {
    /// With this resolver and these roots; `port` is where policies are (443).
    pub fn new(resolver: TokioResolver, tls: Arc<ClientConfig>, port: u16) -> Sts {
        Sts { resolver, tls, port, known: Mutex::default() }
    }

    /// The policy of a domain, if it has one that could be had.
    pub async fn policy(&self, domain: &str) -> Option<Arc<Policy>> {
        let id = self.id_of(domain).await;
        let now = Instant::now();
        let known = self.known().get(domain).cloned().unwrap_or_default();
        match id {
            Some(id) if !known.is_up_to_date(&id, now) => self.renewed(domain, id).await,
            _ => known.policy(now),
        }
    }

    /// Fetches the policy. If that fails, the one of before counts as long as it is believed.
    async fn renewed(&self, domain: &str, id: String) -> Option<Arc<Policy>> {
        let fetched = tokio::time::timeout(FETCH_PATIENCE, self.fetch(domain)).await;
        let fetched = fetched.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        let read = fetched.and_then(|text| Policy::read(&text).map_err(io::Error::other));
        if let Err(error) = &read {
            tracing::info!(domain, %error, "the domain announces a policy (MTA-STS) that cannot be had");
        }
        let now = Instant::now();
        let mut all = self.known();
        if !all.contains_key(domain) {
            make_room(&mut all, now);
        }
        let known = all.entry(domain.into()).or_default();
        known.note(id, read.ok(), now);
        known.policy(now)
    }

    /// The id that the DNS announces.
    async fn id_of(&self, domain: &str) -> Option<String> {
        let mut name = Name::from_utf8(format!("_mta-sts.{domain}")).ok()?;
        name.set_fqdn(true);
        let records = txt_records(&self.resolver, name).await;
        let mut policies = records.iter().filter_map(|text| announced(text));
        // More than one is none (RFC 8461 section 3.1).
        policies.next().filter(|_| policies.next().is_none()).map(str::to_owned)
    }

    async fn fetch(&self, domain: &str) -> io::Result<String> {
        let host = format!("mta-sts.{domain}");
        let addresses = self.resolver.lookup_ip(format!("{host}.")).await.map_err(io::Error::other)?;
        let name = ServerName::try_from(host.clone()).map_err(io::Error::other)?;
        let mut last = io::Error::other("its server has no address");
        for address in addresses.iter().take(4) {
            let connected = async {
                let tcp = TcpStream::connect((address, self.port)).await?;
                TlsConnector::from(Arc::clone(&self.tls)).connect(name.clone(), tcp).await
            };
            match connected.await {
                Ok(mut stream) => {
                    let request = format!(
                        "GET /.well-known/mta-sts.txt HTTP/1.1\r\nHost: {host}\r\nUser-Agent: weir\r\nConnection: close\r\n\r\n"
                    );
                    stream.write_all(request.as_bytes()).await?;
                    let mut answer = Vec::new();
                    let read = stream.take(POLICY_BYTES).read_to_end(&mut answer).await;
                    // Some servers hang up without saying so in TLS; the length says whether all of it is here.
                    return read
                        .or_else(|error| if answer.is_empty() { Err(error) } else { Ok(0) })
                        .and_then(|_| body_of(&answer));
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    fn known(&self) -> MutexGuard<'_, HashMap<Box<str>, DomainPolicy>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Sts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sts").field("port", &self.port).finish_non_exhaustive()
    }
}

/// The id in a record such as `v=STSv1; id=20261117;`.
fn announced(text: &str) -> Option<&str> {
    let mut fields = text.split(';').map(str::trim);
    fields.next().filter(|version| *version == "v=STSv1")?;
    let id = fields.find_map(|field| field.strip_prefix("id="))?.trim();
    ((1..=32).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_alphanumeric())).then_some(id)
}

fn make_room(known: &mut HashMap<Box<str>, DomainPolicy>, now: Instant) {
    if known.len() < POLICIES_MAX {
        return;
    }
    known.retain(|_, known| known.ends().is_some_and(|ends| now < ends));
    while known.len() >= POLICIES_MAX {
        let soonest = known.iter().min_by_key(|(_, known)| known.ends()).map(|(domain, _)| domain.clone());
        let Some(soonest) = soonest else { return };
        known.remove(&soonest);
    }
}

/// The body of an answer with the status 200, whole. Redirects are not followed (RFC 8461 section 3.3).
fn body_of(answer: &[u8]) -> io::Result<String> {
    let wrong = |what: &str| io::Error::other(what.to_owned());
    let end = memchr::memmem::find(answer, b"\r\n\r\n").ok_or_else(|| wrong("its server gives no answer"))?;
    let (head, body) = (answer.get(..end).unwrap_or_default(), answer.get(end + 4..).unwrap_or_default());
    let head = String::from_utf8_lossy(head).to_ascii_lowercase();
    let mut lines = head.split("\r\n");
    if lines.next().and_then(|status| status.split(' ').nth(1)) != Some("200") {
        return Err(wrong("its server has no policy"));
    }
    let field =
        |name: &str| head.split("\r\n").find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim);
    let body = match (field("transfer-encoding"), field("content-length").map(str::parse::<usize>)) {
        (Some("chunked"), _) => dechunked(body).ok_or_else(|| wrong("its policy is cut off"))?,
        (Some(_), _) | (None, Some(Err(_))) => return Err(wrong("its server speaks in riddles")),
        (None, Some(Ok(length))) => body.get(..length).ok_or_else(|| wrong("its policy is cut off"))?.to_vec(),
        (None, None) => body.to_vec(),
    };
    String::from_utf8(body).map_err(io::Error::other)
}

fn dechunked(mut body: &[u8]) -> Option<Vec<u8>> {
    let mut whole = Vec::new();
    loop {
        let end = memchr::memmem::find(body, b"\r\n")?;
        let size = std::str::from_utf8(body.get(..end)?).ok()?.split(';').next()?.trim();
        let size = usize::from_str_radix(size, 16).ok()?;
        let chunk = body.get(end + 2..)?;
        if size == 0 {
            return Some(whole);
        }
        whole.extend_from_slice(chunk.get(..size)?);
        body = chunk.get(size..)?.strip_prefix(b"\r\n")?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: &str =
        "version: STSv1\r\nmode: enforce\r\nmx: mail.example.com\r\nmx: *.example.net\r\nmax_age: 604800\r\n";

    #[test]
    fn a_policy_names_servers() {
        let policy = Policy::read(POLICY).unwrap();
        assert_eq!((policy.mode, policy.max_age), (Mode::Enforce, Duration::from_secs(604_800)));
        for name in ["mail.example.com", "MAIL.example.com.", "a.example.net"] {
            assert!(policy.names(name), "{name}");
        }
        for name in
            ["example.net", "a.b.example.net", ".example.net", "mail.example.com.evil.example", "xmail.example.com"]
        {
            assert!(!policy.names(name), "{name}");
        }
        for (from, to) in [
            ("STSv1", "STSv2"),
            ("mode: enforce", "mode: x"),
            ("max_age: ", "age: "),
            ("mx:", "my:"),
            ("version:", "v"),
        ] {
            assert!(Policy::read(&POLICY.replace(from, to)).is_err(), "{from} → {to}");
        }
        assert_eq!(
            Policy::read("version: STSv1\nmode: none\nmax_age: 99999999999\n").unwrap().max_age.as_secs(),
            AGE_MAX_S
        );
    }

    #[test]
    fn a_policy_is_believed_to_its_end_though_the_next_one_cannot_be_had() {
        let begun = Instant::now();
        let at = |second| begun + Duration::from_secs(second);
        let mode = |known: &DomainPolicy, second| known.policy(at(second)).map(|policy| policy.mode);
        let mut known = DomainPolicy::default();
        assert!(!known.is_up_to_date("1", begun) && known.policy(begun).is_none());
        known.note("1".into(), Some(Policy::read(POLICY).unwrap()), begun);
        assert!(known.is_up_to_date("1", at(604_799)) && !known.is_up_to_date("1", at(604_800)));
        // Another one is announced and cannot be had: it is asked for every five minutes, and this one counts meanwhile.
        for tried in [10, 310, 620] {
            assert!(!known.is_up_to_date("2", at(tried)), "{tried}");
            known.note("2".into(), None, at(tried));
            assert!(known.is_up_to_date("2", at(tried + 299)), "{tried}");
            assert_eq!(mode(&known, tried + 299), Some(Mode::Enforce), "{tried}");
        }
        assert!(!known.is_up_to_date("3", at(621)), "a third one may be there");
        assert!(known.is_up_to_date("1", at(621)), "the first one is announced again");
        assert_eq!((mode(&known, 604_799), mode(&known, 604_800)), (Some(Mode::Enforce), None));
        assert_eq!(known.ends(), Some(at(604_800)), "it does not make room for others before");
        // At last it can be had.
        known.note("2".into(), Some(Policy::read(&POLICY.replace("enforce", "testing")).unwrap()), at(1_000));
        assert!(known.is_up_to_date("2", at(1_000)) && !known.is_up_to_date("1", at(1_000)));
        assert_eq!(mode(&known, 1_000), Some(Mode::Testing));
        // One that nobody has ever had.
        let mut never = DomainPolicy::default();
        never.note("1".into(), None, begun);
        assert!(never.is_up_to_date("1", at(299)) && !never.is_up_to_date("1", at(300)));
        assert!(never.policy(begun).is_none() && never.ends() == Some(at(300)));
    }

    #[test]
    fn an_announcement_has_one_id() {
        assert_eq!(announced("v=STSv1; id=20261117T12;"), Some("20261117T12"));
        for wrong in ["v=STSv1", "v=STSv1; id=", "v=STSv1; id=a b", "v=spf1 -all", "id=1; v=STSv1", ""] {
            assert_eq!(announced(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn answers_are_read_whole_or_not_at_all() {
        assert_eq!(body_of(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcd").unwrap(), "abc");
        assert_eq!(
            body_of(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1;x\r\nc\r\n0\r\n\r\n").unwrap(),
            "abc"
        );
        assert_eq!(body_of(b"HTTP/1.0 200 OK\r\n\r\nabc").unwrap(), "abc");
        for wrong in [
            &b""[..],
            b"HTTP/1.1 301 Moved\r\nLocation: https://evil.example/\r\n\r\nversion: STSv1",
            b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\nab",
            b"HTTP/1.1 200 OK\r\n\r\n\xff",
        ] {
            assert!(body_of(wrong).is_err(), "{}", String::from_utf8_lossy(wrong));
        }
    }
}
