//! Tests with real clients: swaks and Postfix's smtp-source. `make setup` installs them.

use std::net::SocketAddr;
use std::process::Output;

use tokio::process::Command;
use weir_smtp::limits::SmtpLimits;
use weir_smtp::server::TlsMode;
use weir_smtp::settings::{Auth, Protocol};

use crate::client::{certificate, serve};

async fn run(program: &str, arguments: &[&str]) -> Output {
    let output = Command::new(program).args(arguments).kill_on_drop(true).output().await;
    output.unwrap_or_else(|error| panic!("{program}: {error}; `make setup` installs it"))
}

async fn swaks(address: SocketAddr, arguments: &[&str]) -> (bool, String) {
    let (host, port) = (address.ip().to_string(), address.port().to_string());
    let base =
        ["--server", &host, "--port", &port, "--from", "ann@a.example", "--to", "bob@b.example", "--timeout", "20s"];
    let output = run("swaks", &[&base[..], arguments].concat()).await;
    let talk = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    (output.status.success(), talk)
}

#[tokio::test(flavor = "multi_thread")]
async fn swaks_logs_in_under_starttls_and_sends() {
    let (_folder, tls) = certificate();
    let (server, address) = serve(SmtpLimits::default(), |s| s.auth = Auth::Required, TlsMode::StartTls(tls));
    for mechanism in ["PLAIN", "LOGIN"] {
        let login = ["--tls", "--auth", mechanism, "--auth-user", "ann", "--auth-password", "secret"];
        let body = ["--header", "Subject: from swaks", "--body", ".leading dot\\n..two\\nend"];
        let (sent, talk) = swaks(address, &[&login[..], &body[..]].concat()).await;
        assert!(sent, "{talk}");
        let kept = server.reception().kept.lock().unwrap().pop().unwrap();
        let text = String::from_utf8(kept.text).unwrap();
        assert!(text.contains("\r\n.leading dot\r\n..two\r\nend\r\n"), "{text}");
        assert_eq!((kept.peer.user.as_deref(), kept.peer.with_keyword(false)), (Some("ann"), "ESMTPSA"));
    }
    let (sent, talk) =
        swaks(address, &["--tls", "--auth", "PLAIN", "--auth-user", "ann", "--auth-password", "wrong"]).await;
    assert!(!sent && talk.contains("535 5.7.8"), "{talk}");
}

#[tokio::test(flavor = "multi_thread")]
async fn swaks_over_implicit_tls_and_lmtp() {
    let (_folder, tls) = certificate();
    let (server, address) = serve(SmtpLimits::default(), |_| {}, TlsMode::Implicit(tls));
    let (sent, talk) = swaks(address, &["--tls-on-connect"]).await;
    assert!(sent, "{talk}");
    let (lmtp, address) = serve(SmtpLimits::default(), |s| s.protocol = Protocol::Lmtp, TlsMode::Off);
    let (sent, talk) = swaks(address, &["--protocol", "LMTP", "--to", "b@b.example,quota@b.example"]).await;
    assert!(sent && talk.contains("250 2.0.0 kept for b"), "{talk}");
    assert_eq!((server.counters().messages, lmtp.counters().messages), (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn swaks_behind_a_proxy() {
    let trusted = |s: &mut weir_smtp::settings::Settings| s.trusted = vec!["127.0.0.1".parse().unwrap()];
    let (server, address) = serve(SmtpLimits::default(), trusted, TlsMode::Off);
    let xclient = ["--xclient-addr", "192.0.2.44", "--xclient-name", "home.example", "--xclient-login", "ann"];
    let (sent, talk) = swaks(address, &xclient).await;
    assert!(sent, "{talk}");
    let kept = server.reception().kept.lock().unwrap().pop().unwrap();
    assert_eq!((kept.peer.client.to_string().as_str(), kept.peer.user.as_deref()), ("192.0.2.44", Some("ann")));
}

#[tokio::test(flavor = "multi_thread")]
async fn smtp_source_in_parallel() {
    let (server, address) = serve(SmtpLimits::default(), |_| {}, TlsMode::Off);
    let (lmtp, lmtp_address) = serve(SmtpLimits::default(), |s| s.protocol = Protocol::Lmtp, TlsMode::Off);
    for (address, extra) in [(address, vec![]), (address, vec!["-d"]), (lmtp_address, vec!["-L", "-r", "3"])] {
        let target = address.to_string();
        let base = ["-s", "20", "-m", "400", "-l", "4096", "-f", "a@a.example", "-t", "b@b.example"];
        let output = run("smtp-source", &[&base[..], &extra, &[&target]].concat()).await;
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    assert_eq!((server.counters().messages, lmtp.counters().messages, lmtp.counters().recipients), (800, 400, 1_200));
    let kept = server.reception().kept.lock().unwrap();
    assert!(kept.iter().all(|message| message.text.len() > 4_096 && message.text.ends_with(b"\r\n")));
}
