//! Clients that break the protocol: wrong lengths, lines without end, and connections that are cut.

use super::crowd::{Conversation, loopback, runtime};
use super::full_or;
use super::honest::{Honest, PASSWORD, mallory};
use crate::control::gate::Site;
use base64::Engine;
use tokio::io::AsyncWriteExt;

#[test]
fn nonsense_is_answered_or_hung_up_on_and_costs_nothing() {
    let site = Site::new("[limits]\nmessage_size = \"1MiB\"\ndiscard = \"1MiB\"\n");
    let up = site.up();
    mallory(&site);
    let honest = Honest::begin(&site, &up);
    let server = up.plain.as_str();
    runtime().block_on(async {
        for round in 0..full_or(50, 3) {
            wrong_lengths(server).await;
            endless(server).await;
            junk(server).await;
            cut(server, round).await;
            half_closed(server).await;
            strangers_orders(server).await;
        }
    });
    honest.end(&site, &up, "nonsense and cut cables", 250);
    for nobody in ["big@localhost", "cut@localhost", "half@localhost", "weir+release"] {
        assert!(!site.data().join("mail").join(nobody).exists(), "{nobody} got something");
    }
}

async fn greeted(server: &str) -> Conversation {
    let mut client = Conversation::open(server, loopback(6, 0)).await.expect("a connection");
    client.greet().await;
    client
}

async fn login(server: &str) -> Conversation {
    let mut client = greeted(server).await;
    let token = base64::engine::general_purpose::STANDARD.encode(format!("\0mallory\0{PASSWORD}"));
    assert!(client.say(&format!("AUTH PLAIN {token}")).await.starts_with("235"));
    client
}

async fn to(server: &str, whom: &str) -> Conversation {
    let mut client = login(server).await;
    client.say("MAIL FROM:<mallory@localhost>").await;
    assert!(client.say(&format!("RCPT TO:<{whom}>")).await.starts_with("250"));
    client
}

async fn wrong_lengths(server: &str) {
    for (command, expected) in [
        ("BDAT 18446744073709551615 LAST", "552 5.3.4"),
        ("BDAT 99999999999999999999999 LAST", "501 5.5.4"),
        ("BDAT 4294967296", "552 5.3.4"),
        ("BDAT -1 LAST", "501 5.5.4"),
        ("BDAT 0x10 LAST", "501 5.5.4"),
        ("BDAT LAST", "501 5.5.4"),
    ] {
        let mut client = to(server, "big@localhost").await;
        let reply = client.say(command).await;
        assert!(reply.starts_with(expected), "{command}: {reply}");
        // It cannot be known where the next command would begin, so the session ends.
        assert_eq!(client.rest().await, "", "{command}");
    }
    // One chunk promises more than it brings, and another contains commands.
    let mut client = to(server, "big@localhost").await;
    client.send(b"BDAT 100 LAST\r\nFrom: mallory@localhost\r\n\r\n").await;
    drop(client);
    let mut client = to(server, "big@localhost").await;
    client.send(b"BDAT 6\r\nQUIT\r\nRSET\r\n").await;
    assert!(client.reply().await.starts_with("250 2.0.0 6 octets"));
    assert!(client.reply().await.starts_with("250"));
    assert!(client.say("MAIL FROM:<mallory@localhost> SIZE=99999999999").await.starts_with("552 5.3.4"));
    assert!(client.say("MAIL FROM:<mallory@localhost> SIZE=99999999999999999999999").await.starts_with("501"));
}

/// Lines, messages and chunks without end are read up to a bound; then the connection is closed.
async fn endless(server: &str) {
    for login_first in [false, true] {
        let mut client = if login_first { to(server, "big@localhost").await } else { greeted(server).await };
        if login_first {
            assert!(client.say("DATA").await.starts_with("354"));
        }
        let mut sent = 0u64;
        while client.send(&[b'x'; 16 << 10]).await && sent < 64 << 20 {
            sent += 16 << 10;
        }
        assert!(sent < 16 << 20, "{sent} octets of one line were read");
    }
    let mut client = to(server, "big@localhost").await;
    assert!(client.say("DATA").await.starts_with("354"));
    let lines = b"another line of a message that has no end at all\r\n".repeat(400);
    let mut sent = 0u64;
    while client.send(&lines).await && sent < 64 << 20 {
        sent += lines.len() as u64;
    }
    assert!(sent < 16 << 20, "{sent} octets of one message were read");
    // A header without end is refused at the end of the message. A header with a thousand fields is accepted.
    let mut client = to(server, "header@localhost").await;
    client.say("DATA").await;
    let field = format!("X-{}: {}\r\n", "y".repeat(400), "z".repeat(400));
    client.send(field.repeat(400).as_bytes()).await;
    let reply = client.say("\r\nbody\r\n.").await;
    assert!(reply.starts_with("554 5.6.0 the header of this message is too long"), "{reply}");
}

/// Thousands of commands that bring no mail.
async fn junk(server: &str) {
    for (command, code) in
        [("RSET", "421 4.7.0"), ("NOOP", "421 4.7.0"), ("nonsense", "421 4.7.0"), ("HELP", "421 4.7.0")]
    {
        let mut client = greeted(server).await;
        client.send(format!("{command}\r\n").repeat(3_000).as_bytes()).await;
        let said = client.rest().await;
        let last = said.lines().last().unwrap_or_default();
        // We may see the end of a long flood only as a reset.
        assert!(last.starts_with(code) || last.is_empty() || said.len() < 64 << 10, "{command}: {last}");
        assert!(said.lines().count() < 700, "{command}: {} lines", said.lines().count());
    }
    // A mail in between resets the count of such commands, but other commands do not.
    let mut client = login(server).await;
    for _ in 0..40 {
        client.say("MAIL FROM:<mallory@localhost>").await;
        client.say("RSET").await;
    }
    assert!(client.say("VRFY x").await.starts_with("252"));
}

/// Connections that are reset or dropped in the middle of everything.
async fn cut(server: &str, round: usize) {
    let stages: [&[u8]; 6] = [
        b"",
        b"EHLO x\r\nMAIL FR",
        b"DATA\r\nFrom: mallory@localhost\r\n\r\nhalf a mess",
        b"BDAT 1000 LAST\r\nFrom: mallory",
        b"DATA\r\nFrom: mallory@localhost\r\n\r\nwhole\r\n.",
        b"STARTTLS\r\n\x16\x03\x01\x02\x00\x01",
    ];
    for (number, stage) in stages.iter().enumerate() {
        let mut client = to(server, "cut@localhost").await;
        client.send(stage).await;
        if (number + round).is_multiple_of(2) {
            // The other end sees a reset instead of a normal end.
            rustix::net::sockopt::set_socket_linger(client.socket(), Some(std::time::Duration::ZERO))
                .expect("a socket");
        }
        drop(client);
    }
}

/// A client that sends everything and closes its half of the connection gets all replies. An incomplete message is not accepted.
async fn half_closed(server: &str) {
    let mut client = Conversation::open(server, loopback(6, 1)).await.expect("a connection");
    client.send(b"EHLO x\r\nNOOP\r\nVRFY x\r\nQUIT\r\n").await;
    client.close_half().await;
    let said = client.rest().await;
    assert!(said.starts_with("220 ") && said.contains("\r\n252 ") && said.contains("\r\n221 "), "{said}");
    let mut client = to(server, "half@localhost").await;
    client.send(b"DATA\r\nFrom: mallory@localhost\r\n\r\nno end\r\n").await;
    client.close_half().await;
    let said = client.rest().await;
    assert!(said.starts_with("354 ") && said.lines().count() == 1, "{said}");
}

/// Addresses that look like the ones for answers to notices, from somebody who got no notice: they are refused before the message.
async fn strangers_orders(server: &str) {
    let mut client = greeted(server).await;
    client.say("MAIL FROM:<>").await;
    for guess in ["aaaaaaaaaaaaaaaaaaaaaaaaaa", "abcdefghijklmnopqrstuvwxyz"] {
        let reply = client.say(&format!("RCPT TO:<weir+release-{guess}@mail.example>")).await;
        assert!(reply.starts_with("550 5.7.1 this address has been used"), "{reply}");
    }
    assert!(client.say("DATA").await.starts_with("554 5.5.1 no valid recipients"));
    assert!(client.say("RCPT TO:<ann@localhost>").await.starts_with("530 5.7.0"));
}

impl Conversation {
    async fn close_half(&mut self) {
        let _ = self.stream_mut().shutdown().await;
    }
}
