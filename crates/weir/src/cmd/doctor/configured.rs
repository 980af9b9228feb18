//! Checks of `weir doctor` on what the configuration needs of this machine and of other servers.

use super::{Finding, Grade};
use crate::assembly;
use crate::config::{Config, Loaded};
use std::io;
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, SystemTime};
use weir_mail::delivery::{MailServer, RuleWay};
use weir_tls::{CertificateFiles, Validity};

const PATIENCE: Duration = Duration::from_secs(3);
/// At most this many servers are tried, and so many of them at the same time.
const SERVERS_MAX: usize = 100;
const AT_ONCE: usize = 20;
/// At most this many addresses of one name are tried.
const ADDRESSES_MAX: usize = 4;
const SHORT: Duration = Duration::from_secs(14 * 86_400);

pub(super) fn look(loaded: &Loaded, runs: bool) -> Vec<Finding> {
    let config = &loaded.config;
    let mut findings = Vec::new();
    if config.stops_are_silent() && assembly::mail_is_wanted(config, loaded, false) {
        let next = "set notices.admin or notices.webhook";
        findings.push(Finding::new(Grade::Soon, "nobody would be told when a user is stopped", next));
    }
    for problem in assembly::lab_problems(config) {
        let next =
            "apt-get install qemu-system-x86 qemu-utils bubblewrap, or leave lab.vms empty; then run `weir check`";
        findings.push(Finding::new(Grade::Broken, format!("the lab would not start: {problem}"), next));
    }
    for files in assembly::needs::certificates(loaded) {
        findings.extend(of_files(&files));
    }
    if config.submission.is_public()
        && config.submission.certificate().is_none()
        && config.certificates.names.is_empty()
    {
        let what = "mail programs on other machines get a certificate that Weir signed itself; they will show a warning, or refuse it";
        let next = "set submission.certificate and key, or let Weir get one: [certificates] (docs/certificates.md)";
        findings.push(Finding::new(Grade::Soon, what, next));
    }
    for name in &config.certificates.names {
        let host = name.strip_prefix("*.").unwrap_or(name);
        if (host, 443).to_socket_addrs().map_or(true, |mut found| found.next().is_none()) {
            let what = format!(
                "{host} is not in the DNS, as far as this machine can see, so Weir cannot get a certificate for it"
            );
            findings.push(Finding::new(
                Grade::Soon,
                what,
                "add an A record (and AAAA) with this machine's public address",
            ));
        }
    }
    let clamds = values(loaded, "scan.clamav", "addresses");
    let clamds = clamds.into_iter().map(|at| Needed::new("clamd".to_owned(), "scan.clamav.addresses", at));
    let servers = config.web.backends.iter().flat_map(|backend| backend.servers.clone());
    let servers = servers.filter(|_| config.web.enabled);
    let servers = servers.map(|at| Needed::new("the web server".to_owned(), "web.backends", at));
    let needed: Vec<Needed> = clamds.chain(next_hops(config)).chain(servers).collect();
    findings.extend(unreachable(&needed, runs));
    findings
}

/// A server that the configuration names, and that Weir needs.
struct Needed {
    who: String,
    key: &'static str,
    at: String,
}

impl Needed {
    fn new(who: String, key: &'static str, at: String) -> Needed {
        Needed { who, key, at }
    }
}

/// The servers to which mail is delivered: the smarthost, the servers for single domains, those for our own domains, and the one that gets
/// mail back.
fn next_hops(config: &Config) -> Vec<Needed> {
    let (delivery, inbound) = (&config.delivery, &config.inbound);
    let host = |server: &MailServer| Needed::new("the smarthost".to_owned(), "delivery.hosts", server.to_string());
    let mut all: Vec<Needed> = delivery.hosts.iter().map(host).collect();
    let others = delivery.routes.iter().map(|rule| ("delivery.routes", &rule.domain, Some(&rule.way)));
    let ours = inbound.domains.iter().map(|rule| ("inbound.domains", &rule.domain, rule.way.as_ref()));
    for (key, domain, way) in others.chain(ours.filter(|_| inbound.is_on())) {
        if let Some(RuleWay::Smtp(server) | RuleWay::Lmtp(server)) = way {
            let at = server.to_string();
            // Several domains may have the same server.
            if !all.iter().any(|known| known.at == at) {
                all.push(Needed::new(format!("the next server for {domain}"), key, at));
            }
        }
    }
    let back = |server: &MailServer| {
        Needed::new("the server for mail that is handed back".to_owned(), "inbound.hand_back", server.to_string())
    };
    all.extend(inbound.hand_back.iter().filter(|_| inbound.is_on()).map(back));
    all
}

/// Findings about the servers that cannot be reached.
fn unreachable(needed: &[Needed], runs: bool) -> Vec<Finding> {
    let mut findings = Vec::new();
    for some in needed.get(..SERVERS_MAX).unwrap_or(needed).chunks(AT_ONCE) {
        let outcomes: Vec<io::Result<()>> = std::thread::scope(|scope| {
            let tries: Vec<_> = some.iter().map(|server| scope.spawn(|| connect(&server.at))).collect();
            let panicked = |_| Err(io::Error::other("the connection was closed"));
            tries.into_iter().map(|tried| tried.join().unwrap_or_else(panicked)).collect()
        });
        for (Needed { who, key, at }, outcome) in some.iter().zip(outcomes) {
            if let Err(error) = outcome {
                let grade = if runs { Grade::Broken } else { Grade::Soon };
                let next = format!("start it, or correct {key}");
                findings.push(Finding::new(grade, format!("{who} at {at} cannot be reached: {error}"), next));
            }
        }
    }
    if needed.len() > SERVERS_MAX {
        let what = format!("only the first {SERVERS_MAX} of {} servers were tried", needed.len());
        findings.push(Finding::new(Grade::Note, what, "weir status --long shows how deliveries to them are going"));
    }
    findings
}

/// The texts in a setting that is a list.
fn values(loaded: &Loaded, section: &str, key: &str) -> Vec<String> {
    let setting = loaded.settings.iter().find(|setting| (setting.section, setting.key) == (section, key));
    let text = setting.map_or("", |setting| setting.value.as_str());
    text.split('"').skip(1).step_by(2).map(str::to_owned).collect()
}

fn connect(at: &str) -> io::Result<()> {
    if let Some(path) = at.strip_prefix("unix:") {
        return UnixStream::connect(path).map(drop);
    }
    // All these settings have a port when they have been read, also where it may be left out in the file.
    let with_port = at.strip_prefix("https://").unwrap_or(at);
    // A name may have several addresses. It is enough if one can be reached.
    let mut outcome = Err(io::ErrorKind::NotFound.into());
    for address in with_port.to_socket_addrs()?.take(ADDRESSES_MAX) {
        outcome = TcpStream::connect_timeout(&address, PATIENCE).map(drop);
        if outcome.is_ok() {
            break;
        }
    }
    outcome
}

fn of_files(files: &CertificateFiles) -> Option<Finding> {
    let shown = files.chain.display();
    let Some(validity) = dates(&files.chain) else {
        let what = format!("the certificate {shown} cannot be read");
        return Some(Finding::new(
            Grade::Broken,
            what,
            "it must be PEM, and the user that runs Weir must be able to read it",
        ));
    };
    let next = "renew it, or let Weir get certificates by itself: [certificates] (docs/certificates.md)";
    match validity.until.duration_since(SystemTime::now()) {
        Err(_) => Some(Finding::new(Grade::Broken, format!("the certificate {shown} has expired"), next)),
        Ok(left) if left < SHORT => {
            let what = format!("the certificate {shown} expires in {} hours", left.as_secs() / 3600);
            Some(Finding::new(Grade::Soon, what, next))
        }
        Ok(_) => None,
    }
}

fn dates(chain: &Path) -> Option<Validity> {
    use tokio_rustls::rustls::pki_types::CertificateDer;
    use tokio_rustls::rustls::pki_types::pem::PemObject;
    Validity::of(&CertificateDer::from_pem_file(chain).ok()?)
}
