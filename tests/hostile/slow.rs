//! Slow clients: whatever they are in the middle of, sending an octet now and then gives them no more time than silence.

use super::crowd::{Conversation, loopback, runtime};
use super::full_or;
use super::honest::{Honest, PASSWORD, mallory};
use crate::control::gate::Site;
use base64::Engine;
use std::time::Duration;

const LIMITS: &str = "[limits]\nfirst_command = \"1s\"\ncommand = \"1s\"\ndata_block = \"1s\"\ndata_total = \"2s\"\n\
     tls_handshake = \"1s\"\n";
const TRICKLE: Duration = Duration::from_millis(100);

/// A point at which a client becomes slow: what it sends before, and what it sends slowly then.
struct Phase {
    name: &'static str,
    tls_port: bool,
    login: bool,
    before: &'static [&'static str],
    trickle: &'static [u8],
}

const PHASES: &[Phase] = &[
    Phase { name: "no word at all", tls_port: false, login: false, before: &[], trickle: b"" },
    Phase { name: "the first command", tls_port: false, login: false, before: &[], trickle: b"E" },
    Phase { name: "after EHLO", tls_port: false, login: false, before: &["EHLO slow"], trickle: b"N" },
    Phase { name: "a login", tls_port: false, login: false, before: &["EHLO slow", "AUTH LOGIN"], trickle: b"A" },
    Phase {
        name: "the envelope",
        tls_port: false,
        login: true,
        before: &["MAIL FROM:<mallory@localhost>"],
        trickle: b"R",
    },
    Phase {
        name: "the message",
        tls_port: false,
        login: true,
        before: &["MAIL FROM:<mallory@localhost>", "RCPT TO:<slow@localhost>", "DATA"],
        trickle: b"x",
    },
    Phase {
        name: "a chunk",
        tls_port: false,
        login: true,
        before: &["MAIL FROM:<mallory@localhost>", "RCPT TO:<slow@localhost>", "BDAT 1000000 LAST\r\nNOOP"],
        trickle: b"x",
    },
    Phase { name: "STARTTLS", tls_port: false, login: false, before: &["EHLO slow", "STARTTLS"], trickle: b"\x16" },
    Phase { name: "a handshake", tls_port: true, login: false, before: &[], trickle: b"\x16" },
];

#[test]
fn slow_clients_are_left_whatever_they_are_doing() {
    let each = full_or(200, 10);
    // An address gets its place back only after a session that is being ended has really gone.
    let site = Site::new(&format!("{LIMITS}connections_per_address = 2000\nconnections_per_user = 2000\n"));
    let up = site.up();
    mallory(&site);
    let honest = Honest::begin(&site, &up);
    runtime().block_on(async {
        let mut running = Vec::new();
        for (crowd, phase) in PHASES.iter().enumerate() {
            for _ in 0..each {
                let server = if phase.tls_port { up.tls.clone() } else { up.plain.clone() };
                running.push(tokio::spawn(slow(server, phase, crowd)));
            }
        }
        for run in running {
            run.await.expect("it is left in the end");
        }
    });
    assert!(honest.is_served());
    let status = site.json(&["status"]);
    let counters = &status["gate"]["counters"];
    let (timeouts, failures) = (counters["timeouts"].as_u64(), counters["tls_failures"].as_u64());
    eprintln!("{} slow clients: {timeouts:?} timeouts, {failures:?} failed handshakes", PHASES.len() * each);
    assert_eq!(failures, Some(2 * each as u64));
    honest.end(&site, &up, "slow clients at every phase", 250);
    assert!(!site.data().join("mail/slow@localhost").exists());
}

/// Sends what comes before, then an octet now and then, until the server closes the connection.
async fn slow(server: String, phase: &Phase, crowd: usize) {
    let mut client = Conversation::open(&server, loopback(4, crowd)).await.expect("a connection");
    if phase.login {
        client.greet().await;
        let token = base64::engine::general_purpose::STANDARD.encode(format!("\0mallory\0{PASSWORD}"));
        let mut said = client.say(&format!("AUTH PLAIN {token}")).await;
        if !said.starts_with("235") {
            // With so many at once, "try again" is a proper answer, but then this phase is not reached.
            said = client.rest().await;
            assert!(said.is_empty() || said.starts_with("421"), "{}: {said}", phase.name);
            return;
        }
    } else if !phase.tls_port {
        client.reply().await;
    }
    for line in phase.before {
        client.send(format!("{line}\r\n").as_bytes()).await;
    }
    let trickling = async {
        loop {
            tokio::time::sleep(TRICKLE).await;
            if !phase.trickle.is_empty() {
                client.send(phase.trickle).await;
            }
            let mut seen = [0; 256];
            // The connection was closed: there is nothing more to read, or a reset.
            match client.socket().try_read(&mut seen) {
                Ok(0) => return,
                Err(error) if error.kind() != std::io::ErrorKind::WouldBlock => return,
                _ => {}
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(60), trickling)
        .await
        .unwrap_or_else(|_| panic!("{}: still there", phase.name));
}
