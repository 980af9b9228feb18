//! Tests of the server over real sockets with real TLS, with well-behaved clients.

use std::fs;
use std::time::Duration;

use weir_smtp::limits::SmtpLimits;
use weir_smtp::reply::{Reply, Status};
use weir_smtp::server::TlsMode;
use weir_smtp::settings::{Auth, AuthWithoutTls, Protocol};
use weir_tls::Tls;

use crate::client::{Client, certificate, serve};

const ANN: &str = "AUTH PLAIN AGFubgBzZWNyZXQ=";

#[tokio::test]
async fn a_message_over_tcp() {
    let (server, address) = serve(SmtpLimits::default(), |_| {}, TlsMode::Off);
    let mut client = Client::greeted(address).await;
    assert!(client.send_message("b@b.example").await.starts_with("250 2.0.0 kept"));
    assert!(client.say("QUIT").await.starts_with("221 "));
    assert_eq!(client.rest().await, "");
    server.registry().empty().await;
    let kept = server.reception().kept.lock().unwrap().clone();
    assert_eq!(kept[0].text, b"Subject: hi\r\n\r\ntext\r\n");
    let counters = server.counters();
    assert_eq!((counters.connections, counters.messages, counters.recipients), (1, 1, 1));
    assert_eq!(counters.message_bytes, kept[0].text.len() as u64);
}

#[tokio::test]
async fn a_large_message_arrives_whole() {
    let limits = SmtpLimits { body_line_bytes: 0, ..SmtpLimits::default() };
    let (server, address) = serve(limits, |_| {}, TlsMode::Off);
    let mut client = Client::greeted(address).await;
    let text: String = (0..150_000).map(|number| format!("..{number} and some more text\r\n")).collect();
    client.send(b"MAIL FROM:<a@a>\r\nRCPT TO:<b@b>\r\nDATA\r\n").await;
    client.send(text.as_bytes()).await;
    client.send(b".\r\n").await;
    for code in ["250", "250", "354", "250"] {
        assert!(client.reply().await.starts_with(code));
    }
    let expected: String = (0..150_000).map(|number| format!(".{number} and some more text\r\n")).collect();
    assert!(server.reception().kept.lock().unwrap()[0].text == expected.as_bytes());
}

#[tokio::test]
async fn starttls_with_both_versions() {
    let (_folder, tls) = certificate();
    let (server, address) =
        serve(SmtpLimits::default(), |s| s.auth_without_tls = AuthWithoutTls::Never, TlsMode::StartTls(tls.clone()));
    for (version, name) in [(&rustls::version::TLS12, "TLSv1_2"), (&rustls::version::TLS13, "TLSv1_3")] {
        let mut client = Client::greeted(address).await;
        assert!(client.say(ANN).await.starts_with("538 5.7.11"));
        assert!(client.say("STARTTLS").await.starts_with("220 "));
        let mut client = client.try_encrypted(&tls.files().chain, &[version]).await.unwrap();
        assert!(client.say("EHLO me").await.contains("AUTH PLAIN LOGIN"));
        assert!(client.say(ANN).await.starts_with("235 "));
        assert!(client.send_message("b@b").await.starts_with("250 "));
        assert!(client.say("QUIT").await.starts_with("221 "));
        assert_eq!(client.rest().await, "");
        let kept = server.reception().kept.lock().unwrap().pop().unwrap();
        assert_eq!((kept.peer.tls.unwrap().version, kept.peer.with_keyword(false)), (name, "ESMTPSA"));
    }
    assert_eq!(server.counters().tls_handshakes, 2);
}

#[tokio::test]
async fn implicit_tls() {
    let (_folder, tls) = certificate();
    let (server, address) = serve(SmtpLimits::default(), |s| s.auth = Auth::Required, TlsMode::Implicit(tls.clone()));
    let mut client = Client::connect(address).await.encrypted(&tls.files().chain).await;
    assert!(client.reply().await.starts_with("220 mx.example"));
    let ehlo = client.say("EHLO me").await;
    assert!(ehlo.contains("AUTH") && !ehlo.contains("STARTTLS"), "{ehlo}");
    assert!(client.say("MAIL FROM:<a@a>").await.starts_with("530 5.7.0"));
    assert!(client.say(ANN).await.starts_with("235 "));
    assert!(client.send_message("b@b").await.starts_with("250 "));
    assert_eq!(server.counters().messages, 1);
}

#[tokio::test]
async fn a_renewed_certificate_is_used_without_restart() {
    let (_folder, tls) = certificate();
    let (_other, fresh) = certificate();
    let old = tempfile::NamedTempFile::new().unwrap();
    fs::copy(&tls.files().chain, old.path()).unwrap();
    let (_server, address) = serve(SmtpLimits::default(), |_| {}, TlsMode::Implicit(tls.clone()));
    let mut before = Client::connect(address).await.encrypted(old.path()).await;
    assert!(before.reply().await.starts_with("220 "));

    fs::copy(&fresh.files().chain, &tls.files().chain).unwrap();
    fs::copy(&fresh.files().key, &tls.files().key).unwrap();
    assert!(tls.reload_if_changed().unwrap());
    let mut after = Client::connect(address).await.encrypted(&fresh.files().chain).await;
    assert!(after.reply().await.starts_with("220 "));
    let versions = rustls::DEFAULT_VERSIONS;
    assert!(Client::connect(address).await.try_encrypted(old.path(), versions).await.is_err());
    // The session that began with the old certificate goes on.
    assert!(before.say("EHLO me").await.starts_with("250-"));
}

#[tokio::test]
async fn the_watcher_finds_a_renewal() {
    let (folder, tls) = certificate();
    let (_other, fresh) = certificate();
    let (_server, address) = serve(SmtpLimits::default(), |_| {}, TlsMode::Implicit(tls.clone()));
    let watching = tokio::spawn(tls.clone().watch(Duration::from_millis(5)));
    for name in ["cert.pem", "key.pem"] {
        fs::copy(fresh.files().chain.with_file_name(name), folder.path().join(name)).unwrap();
    }
    // The files are checked again and again, so sooner or later a handshake gets the new certificate.
    let versions = rustls::DEFAULT_VERSIONS;
    while Client::connect(address).await.try_encrypted(&fresh.files().chain, versions).await.is_err() {
        assert!(!watching.is_finished());
    }
    watching.abort();
    assert!(Tls::self_signed(folder.path(), &[]).is_ok());
}

#[tokio::test]
async fn lmtp_over_tcp() {
    let (_server, address) = serve(SmtpLimits::default(), |s| s.protocol = Protocol::Lmtp, TlsMode::Off);
    let mut client = Client::connect(address).await;
    assert!(client.reply().await.contains("LMTP"));
    assert!(client.say("LHLO me").await.starts_with("250-"));
    assert!(client.say("MAIL FROM:<a@a>").await.starts_with("250"));
    for to in ["b", "quota", "c"] {
        assert!(client.say(&format!("RCPT TO:<{to}@b>")).await.starts_with("250"));
    }
    assert!(client.say("DATA").await.starts_with("354"));
    assert!(client.say("x\r\n.").await.starts_with("250 2.0.0 kept for b"));
    assert!(client.reply().await.starts_with("452 4.2.2"));
    assert!(client.reply().await.starts_with("250 2.0.0 kept for c"));
}

#[tokio::test]
async fn all_sessions_of_a_user_can_be_ended() {
    let (server, address) = serve(SmtpLimits::default(), |_| {}, TlsMode::Off);
    let mut idle = Client::greeted(address).await;
    let mut busy = Client::greeted(address).await;
    let mut stranger = Client::greeted(address).await;
    for client in [&mut idle, &mut busy] {
        assert!(client.say(ANN).await.starts_with("235 "));
    }
    assert!(busy.say("MAIL FROM:<a@a>").await.starts_with("250"));
    assert!(busy.say("RCPT TO:<b@b>").await.starts_with("250"));
    assert!(busy.say("DATA").await.starts_with("354"));
    busy.send(b"half a mess").await;
    assert_eq!(server.registry().open_of_user("ann"), 2);
    let locked = Reply::fixed(421, Status(4, 7, 0), "this account has been locked");
    assert_eq!(server.end_user("ann", &locked), 2);
    for client in [&mut idle, &mut busy] {
        assert_eq!(client.rest().await, "421 4.7.0 this account has been locked\r\n");
    }
    assert!(stranger.send_message("b@b").await.starts_with("250 "));
    drop((idle, busy));
    assert!(stranger.say("QUIT").await.starts_with("221"));
    server.registry().empty().await;
    assert_eq!((server.registry().open_of_user("ann"), server.counters().messages), (0, 1));
}

#[tokio::test]
async fn shutdown_lets_a_message_finish() {
    let (server, address) = serve(SmtpLimits::default(), |_| {}, TlsMode::Off);
    let mut idle = Client::greeted(address).await;
    let mut busy = Client::greeted(address).await;
    for line in ["MAIL FROM:<a@a>", "RCPT TO:<b@b>", "DATA"] {
        busy.say(line).await;
    }
    busy.send(b"first half\r\n").await;
    let server = std::sync::Arc::new(server);
    let closing = tokio::spawn({
        let server = server.clone();
        async move { server.shutdown(Duration::from_secs(60)).await }
    });
    assert!(idle.rest().await.starts_with("421 4.3.2"));
    assert!(busy.say("second half\r\n.").await.starts_with("250 2.0.0 kept"));
    assert!(busy.rest().await.starts_with("421 4.3.2"));
    closing.await.unwrap();
    assert_eq!((server.registry().open(), server.counters().messages), (0, 1));
    assert!(tokio::net::TcpStream::connect(address).await.is_err());
}

#[tokio::test]
async fn shutdown_does_not_wait_for_ever() {
    let (server, address) = serve(SmtpLimits::default(), |_| {}, TlsMode::Off);
    let mut stuck = Client::greeted(address).await;
    for line in ["MAIL FROM:<a@a>", "RCPT TO:<b@b>", "DATA"] {
        stuck.say(line).await;
    }
    let (_, said) = tokio::join!(server.shutdown(Duration::from_millis(20)), stuck.rest());
    assert!(said.starts_with("421 4.3.2"), "{said}");
    assert_eq!((server.counters().messages, server.counters().messages_aborted), (0, 1));
}

#[tokio::test]
async fn a_broken_connection_drops_the_message() {
    let (server, address) = serve(SmtpLimits::default(), |_| {}, TlsMode::Off);
    let mut client = Client::greeted(address).await;
    for line in ["MAIL FROM:<a@a>", "RCPT TO:<b@b>", "DATA"] {
        client.say(line).await;
    }
    client.send(b"half a message\r\n").await;
    drop(client);
    server.registry().empty().await;
    assert_eq!((server.counters().messages, server.counters().messages_aborted), (0, 1));
    assert!(server.reception().kept.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_failing_disk_is_told_at_the_end() {
    let (server, address) = serve(SmtpLimits::default(), |_| {}, TlsMode::Off);
    let mut client = Client::greeted(address).await;
    assert!(client.send_message("breaks@b").await.starts_with("452 4.3.1"));
    assert!(client.send_message("b@b").await.starts_with("250 2.0.0"));
    assert_eq!(server.counters().messages_aborted, 1);
}
