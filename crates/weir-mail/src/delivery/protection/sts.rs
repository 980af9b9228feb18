//! MTA-STS: what a domain's policy says, and how it is found (RFC 8461 sections 3 and 5).
//!
//! `_mta-sts.DOMAIN` in the DNS says that there is a policy and which; the policy is on `https://mta-sts.DOMAIN`, whose certificate must be
//! right. A policy is valid for as long as it says, even if the DNS no longer mentions it: otherwise somebody who forges the DNS could
//! remove it. Policies are in memory, at most `POLICIES_MAX`; a restart forgets them.

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
    known: Mutex<HashMap<Box<str>, Known>>,
}

/// What is remembered of a domain.
#[derive(Clone)]
struct Known {
    id: String,
    /// None if it could not be had.
    policy: Option<Arc<Policy>>,
    until: Instant,
}

impl Sts {
    /// With this resolver and these roots; `port` is where policies are (443).
    pub fn new(resolver: TokioResolver, tls: Arc<ClientConfig>, port: u16) -> Sts {
        Sts { resolver, tls, port, known: Mutex::default() }
    }

    /// The policy of a domain, if it has one that could be had.
    pub async fn policy(&self, domain: &str) -> Option<Arc<Policy>> {
        let now = Instant::now();
        let known = self.known().get(domain).filter(|known| now < known.until).cloned();
        let id = self.id_of(domain).await;
        match (known, id) {
            (Some(known), None) => known.policy,
            (Some(known), Some(id)) if known.id == id => known.policy,
            (_, None) => None,
            (known, Some(id)) => self.renewed(domain, id, known).await,
        }
    }

    /// Fetches the policy. If that fails, the one of before counts as long as it is believed.
    async fn renewed(&self, domain: &str, id: String, before: Option<Known>) -> Option<Arc<Policy>> {
        let fetched = tokio::time::timeout(FETCH_PATIENCE, self.fetch(domain)).await;
        let fetched = fetched.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        let read = fetched.and_then(|text| Policy::read(&text).map_err(io::Error::other));
        let now = Instant::now();
        let new = match read {
            Ok(policy) => Known { id, until: now + policy.max_age, policy: Some(Arc::new(policy)) },
            Err(error) => {
                tracing::info!(domain, %error, "the domain announces a policy (MTA-STS) that cannot be had");
                let policy = before.and_then(|before| before.policy);
                Known { id, until: now + AGAIN_AFTER, policy }
            }
        };
        let policy = new.policy.clone();
        let mut known = self.known();
        make_room(&mut known, now);
        known.insert(domain.into(), new);
        policy
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

    fn known(&self) -> MutexGuard<'_, HashMap<Box<str>, Known>> {
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

fn make_room(known: &mut HashMap<Box<str>, Known>, now: Instant) {
    if known.len() < POLICIES_MAX {
        return;
    }
    known.retain(|_, known| now < known.until);
    while known.len() >= POLICIES_MAX {
        let soonest = known.iter().min_by_key(|(_, known)| known.until).map(|(domain, _)| domain.clone());
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
