//! Tries the new Weir from this machine, and prints the result.

use super::InstallPaths;
use super::plan::Trial;
use crate::control::Control;
use crate::folder_args::FolderArgs;
use anyhow::Context;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, crypto};
use weir_console::api::whole::STATUS;
use weir_tls::{Validity, any_certificate, time_left};

/// The texts of plugins may be long; more than this is cut off.
const SAID_MAX: usize = 500;
/// How long one conversation may take.
const PATIENCE: Duration = Duration::from_secs(15);
/// How long to wait for a certificate.
const PATIENCE_FOR_AUTHORITY: Duration = Duration::from_secs(120);
/// How long to wait for a sample's verdict.
const PATIENCE_FOR_LAB: Duration = Duration::from_secs(60);

/// Tries everything and prints what does not work. A failed trial does not make quickstart fail.
pub(super) fn run(trial: &Trial, place: &InstallPaths, out: &mut dyn Write) -> anyhow::Result<()> {
    match trial {
        Trial::Nothing => Ok(()),
        Trial::Web { host, plain, secure, authority } => {
            if *authority {
                wait_for_certificate(place, out)?;
            }
            report(out, &format!("http://{host}"), plain_page(*plain, host))?;
            report(out, &format!("https://{host}"), secure_page(*secure, host))
        }
        Trial::Smtp { at, own, next_hop } => {
            if let Some(next) = next_hop {
                report(out, &format!("the server behind, {next}"), greeting(next))?;
            }
            report(out, &format!("SMTP at {at}"), smtp(*at, own.as_deref()))
        }
        Trial::Lab => report(out, "the lab", sample(place)),
    }
}

fn report(out: &mut dyn Write, what: &str, outcome: anyhow::Result<String>) -> anyhow::Result<()> {
    match outcome {
        Ok(said) => writeln!(out, "Tried {what}: {said}")?,
        Err(error) => writeln!(out, "Tried {what}: FAILED: {error:#}")?,
    }
    Ok(out.flush()?)
}

fn wait_for_certificate(place: &InstallPaths, out: &mut dyn Write) -> anyhow::Result<()> {
    let begun = Instant::now();
    writeln!(out, "Waiting for the certificate ...")?;
    out.flush()?;
    loop {
        let status = Control::reach(&FolderArgs::of_folder(place.data.clone()))?.ask(&STATUS, &())?;
        let missing: Vec<_> = status.certificates.iter().filter(|certificate| certificate.until.is_none()).collect();
        let Some(first) = missing.first() else {
            return Ok(writeln!(out, "The certificate is here.")?);
        };
        if begun.elapsed() > PATIENCE_FOR_AUTHORITY {
            let why = first.problem.as_deref().unwrap_or("the authority has not answered yet");
            let said = "Weir keeps trying; until then clients get a self-signed one";
            return Ok(writeln!(out, "There is no certificate for {} yet: {why}. {said}.", first.name)?);
        }
        std::thread::sleep(Duration::from_millis(200));
    }
}

fn request(host: &str) -> String {
    format!("GET / HTTP/1.1\r\nHost: {host}\r\nUser-Agent: weir-quickstart\r\nConnection: close\r\n\r\n")
}

fn plain_page(at: SocketAddr, host: &str) -> anyhow::Result<String> {
    let mut stream = connect(at)?;
    stream.write_all(request(host).as_bytes())?;
    let mut status = String::new();
    BufReader::new(stream).read_line(&mut status)?;
    Ok(status.trim().to_owned())
}

fn secure_page(at: SocketAddr, host: &str) -> anyhow::Result<String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async { tokio::time::timeout(PATIENCE, secure_page_of(at, host)).await.context("no answer")? })
}

async fn secure_page_of(at: SocketAddr, host: &str) -> anyhow::Result<String> {
    let provider = Arc::new(crypto::ring::default_provider());
    let verifier = any_certificate(&provider);
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let config = config.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth();
    let stream = tokio::net::TcpStream::connect(at).await?;
    let name = ServerName::try_from(host.to_owned())?;
    let mut stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
    let certificates = stream.get_ref().1.peer_certificates().unwrap_or_default();
    let until = certificates.first().and_then(Validity::of).map(|validity| validity.until);
    let left = until.map(|until| until.duration_since(SystemTime::now()));
    let certificate = match left {
        Some(Ok(left)) => format!("a certificate that is valid for {}", time_left(left)),
        Some(Err(_)) => "a certificate that HAS EXPIRED".to_owned(),
        None => "a certificate that cannot be read".to_owned(),
    };
    stream.write_all(request(host).as_bytes()).await?;
    let mut answer = Vec::new();
    // Some servers close the connection without ending TLS first, so an error here does not matter.
    let _ = (&mut stream).take(1 << 20).read_to_end(&mut answer).await;
    let status = String::from_utf8_lossy(answer.split(|octet| *octet == b'\r').next().unwrap_or_default()).into_owned();
    Ok(format!("{status}, {} bytes, with {certificate}", answer.len()))
}

fn connect(at: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&at, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(stream)
}

fn greeting(server: &str) -> anyhow::Result<String> {
    let at = server.to_socket_addrs()?.next().context("it has no address")?;
    let mut said = String::new();
    BufReader::new(connect(at)?).read_line(&mut said)?;
    Ok(said.trim().to_owned())
}

/// Holds a session without sending mail. Strangers must not be able to send to the world, and mail for our own domain must be accepted.
fn smtp(at: SocketAddr, own: Option<&str>) -> anyhow::Result<String> {
    let stream = connect(at)?;
    let mut session = SmtpSession { lines: BufReader::new(stream.try_clone()?), stream };
    session.reply()?;
    let hello = session.say("EHLO quickstart.invalid")?;
    let tls = if hello.contains("STARTTLS") { "with TLS" } else { "WITHOUT TLS" };
    session.say("MAIL FROM:<>")?;
    let world = session.say("RCPT TO:<somebody@stranger.invalid>")?;
    anyhow::ensure!(!world.starts_with('2'), "it relays mail from strangers to any address: {world}");
    let own = match own {
        Some(address) => format!("; {address}: {}", session.say(&format!("RCPT TO:<{address}>"))?),
        None => String::new(),
    };
    let _ = session.say("QUIT");
    Ok(format!("it answers {tls}, and refuses to relay mail from strangers{own}"))
}

struct SmtpSession {
    lines: BufReader<TcpStream>,
    stream: TcpStream,
}

impl SmtpSession {
    fn say(&mut self, command: &str) -> io::Result<String> {
        self.stream.write_all(format!("{command}\r\n").as_bytes())?;
        self.reply()
    }

    fn reply(&mut self) -> io::Result<String> {
        let mut all = String::new();
        loop {
            let mut line = String::new();
            if self.lines.read_line(&mut line)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            all.push_str(&line);
            if line.as_bytes().get(3) != Some(&b'-') {
                return Ok(all.trim().to_owned());
            }
        }
    }
}

/// Submits a harmless text and waits for the verdict.
fn sample(place: &InstallPaths) -> anyhow::Result<String> {
    let file = std::env::temp_dir().join(format!("weir-quickstart-{}.txt", std::process::id()));
    std::fs::write(&file, format!("A harmless sample of {:?}.\n", SystemTime::now()))?;
    let weir = |args: &[&str]| -> anyhow::Result<String> {
        let output = Command::new(std::env::current_exe()?).args(args).arg("--data").arg(&place.data).output()?;
        anyhow::ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr).trim());
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let submitted = weir(&["lab", "submit", &file.to_string_lossy()]);
    let _ = std::fs::remove_file(&file);
    submitted?;
    let begun = Instant::now();
    loop {
        let list: serde_json::Value = serde_json::from_str(&weir(&["lab", "list", "--json"])?)?;
        let state = list[0]["state"].as_str().unwrap_or("nowhere").to_owned();
        let waits = ["nowhere", "queued", "running"].contains(&state.as_str());
        if !waits || begun.elapsed() > PATIENCE_FOR_LAB {
            let number = list[0]["sample"].to_string();
            let why: serde_json::Value = serde_json::from_str(&weir(&["lab", "why", &number, "--json"])?)?;
            return Ok(sample_in_words(&state, waits, &why));
        }
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// The state of the sample in words, and the reason.
fn sample_in_words(state: &str, waits: bool, why: &serde_json::Value) -> String {
    let words = |key: &str| {
        let list = why[key].as_array().into_iter().flatten().filter_map(serde_json::Value::as_str);
        list.collect::<Vec<_>>().join("; ")
    };
    if waits {
        return format!("a harmless sample is still {state}: {}", why["why"].as_str().unwrap_or("nobody says why"));
    }
    let (verdict, reasons, failed) = (why["verdict"].as_str().unwrap_or("none"), words("reasons"), words("failed"));
    let because = if reasons.is_empty() { String::new() } else { format!(", because {reasons}") };
    let failed = if failed.is_empty() { String::new() } else { format!(". What failed: {failed}") };
    let said = format!("a harmless sample is {state}, its verdict: {verdict}{because}{failed}");
    weir_scan::plain::shown(&said, SAID_MAX)
}
