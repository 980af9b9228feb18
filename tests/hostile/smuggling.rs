//! SMTP smuggling: no octets inside of a message are taken for its end, and commands that were pipelined where they must not be are not
//! carried out.

use super::crowd::{Conversation, loopback, runtime};
use super::honest::{Honest, PASSWORD, mallory};
use crate::control::gate::Site;
use base64::Engine;

/// Octets that some server takes for the end of a message.
const FALSE_ENDS: &[&[u8]] = &[
    b"\n.\n",
    b"\n.\r\n",
    b"\r\n.\n",
    b"\r.\r",
    b"\r\n.\r",
    b"\r.\r\n",
    b"\n.\r",
    b"\r.\n",
    b"\r\n.\r\r\n",
    b"\r\n\0.\r\n",
    b"\r\n.\0\r\n",
    b"\r\r\n.\r\r\n",
    b"\n\r\n.\n",
    b"\r\n.\r\0\n",
];
/// The commands that would be carried out if Weir did.
const SMUGGLED: &[u8] =
    b"MAIL FROM:<mallory@localhost>\r\nRCPT TO:<victim@localhost>\r\nDATA\r\nFrom: mallory@localhost\r\n\r\nsmuggled\r\n";

/// Submission repairs bare CR and LF: what was to be smuggled becomes the text of one mail, to its one recipient.
#[test]
fn nothing_is_smuggled_where_line_ends_are_mended() {
    let site = Site::new("");
    let up = site.up();
    mallory(&site);
    let mended = FALSE_ENDS.iter().filter(|end| !end.contains(&0)).count();
    runtime().block_on(async {
        for end in FALSE_ENDS {
            let expected = if end.contains(&0) { "554 5.6.0 refused: a NUL" } else { "250 2.0.0 " };
            by_data(&up.plain, end, expected).await;
            by_chunk(&up.plain, end, expected).await;
        }
    });
    let mails = site.arrived("dots@localhost", 2 * mended);
    assert_eq!(mails.len(), 2 * mended);
    for mail in mails {
        let text = std::fs::read_to_string(mail).expect("text");
        assert!(text.contains("RCPT TO:<victim@localhost>") && text.trim_end().ends_with("smuggled"), "{text:?}");
    }
    assert!(!site.data().join("mail/victim@localhost").exists(), "something was smuggled");
}

#[test]
fn nothing_is_smuggled() {
    let site = Site::with_submission("mend_text = false\n", "");
    let up = site.up();
    mallory(&site);
    let honest = Honest::begin(&site, &up);
    runtime().block_on(async {
        for end in FALSE_ENDS {
            by_data(&up.plain, end, "554 5.6.0 refused: a ").await;
            by_chunk(&up.plain, end, "554 5.6.0 refused: a ").await;
        }
        before_its_time(&up.plain).await;
        after_starttls(&up.plain).await;
        through_commands(&up.plain).await;
    });
    honest.end(&site, &up, "smuggling", 200);
    assert!(!site.data().join("mail/victim@localhost").exists(), "something was smuggled");
    // The honest parts of mallory's own mail arrived as they were written, including all dots.
    let mails: Vec<String> = site
        .arrived("dots@localhost", 2)
        .iter()
        .map(|file| std::fs::read_to_string(file).expect("text").replace("\r\n", "\n"))
        .collect();
    assert!(mails.iter().all(|mail| mail.ends_with("\n.\n..\nno end\n")), "{mails:?}");
}

async fn login(server: &str) -> Conversation {
    let mut client = Conversation::open(server, loopback(3, 0)).await.expect("a connection");
    client.greet().await;
    let token = base64::engine::general_purpose::STANDARD.encode(format!("\0mallory\0{PASSWORD}"));
    assert!(client.say(&format!("AUTH PLAIN {token}")).await.starts_with("235"));
    client
}

/// In DATA: everything is one message, and the next reply is for the next command.
async fn by_data(server: &str, end: &[u8], expected: &str) {
    let mut client = login(server).await;
    for line in ["MAIL FROM:<mallory@localhost>", "RCPT TO:<dots@localhost>", "DATA"] {
        client.say(line).await;
    }
    let body = [b"From: mallory@localhost\r\n\r\nfirst", end, SMUGGLED, b"\r\n.\r\n"].concat();
    client.send(&body).await;
    let reply = client.reply().await;
    assert!(reply.starts_with(expected), "{end:?}: {reply}");
    assert!(client.say("VRFY sync").await.starts_with("252"), "{end:?}");
    assert!(client.say("QUIT").await.starts_with("221"));
}

/// In BDAT: dots have no meaning, but everything else is the same, because the next server may use DATA.
async fn by_chunk(server: &str, end: &[u8], expected: &str) {
    let mut client = login(server).await;
    let body = [b"From: mallory@localhost\r\n\r\nfirst", end, SMUGGLED].concat();
    let lines = ["MAIL FROM:<mallory@localhost>", "RCPT TO:<dots@localhost>"];
    for line in lines {
        client.say(line).await;
    }
    client.send(&[format!("BDAT {} LAST\r\n", body.len()).as_bytes(), &body].concat()).await;
    let reply = client.reply().await;
    assert!(reply.starts_with(expected), "{end:?}: {reply}");
    assert!(client.say("VRFY sync").await.starts_with("252"), "{end:?}");
}

/// Text after DATA that is sent before the 354 is part of the message and not commands; the same holds for the octets of a chunk.
async fn before_its_time(server: &str) {
    let text = "From: mallory@localhost\r\n\r\n..\r\n...\r\nno end\r\n.\r\n";
    let mut client = login(server).await;
    let all = format!("MAIL FROM:<mallory@localhost>\r\nRCPT TO:<dots@localhost>\r\nDATA\r\n{text}VRFY sync\r\n");
    client.send(all.as_bytes()).await;
    for code in ["250", "250", "354", "250 2.0.0", "252"] {
        let reply = client.reply().await;
        assert!(reply.starts_with(code), "{code}: {reply}");
    }
    let chunk = "From: mallory@localhost\r\n\r\n.\r\n..\r\nno end\r\n";
    let length = chunk.len();
    let all = format!(
        "RSET\r\nMAIL FROM:<mallory@localhost>\r\nRCPT TO:<dots@localhost>\r\nBDAT {length} LAST\r\n{chunk}VRFY x\r\n"
    );
    client.send(all.as_bytes()).await;
    for code in ["250", "250", "250", "250 2.0.0", "252"] {
        let reply = client.reply().await;
        assert!(reply.starts_with(code), "{code}: {reply}");
    }
    // DATA is refused here, so what follows are commands. They are invalid, and nothing in them is carried out.
    let mut nobody = Conversation::open(server, loopback(3, 1)).await.expect("a connection");
    nobody.greet().await;
    let pipelined = [b"MAIL FROM:<x@y>\r\nRCPT TO:<victim@localhost>\r\nDATA\r\n", SMUGGLED, b".\r\nQUIT\r\n"].concat();
    nobody.send(&pipelined).await;
    let said = nobody.rest().await;
    assert!(said.contains("530 5.7.0 log in first") && said.contains("554 5.5.1 no valid recipients"), "{said}");
    assert!(!said.contains("354 "), "{said}");
}

/// Text that was sent unencrypted after STARTTLS is dropped, and not carried out after the handshake.
async fn after_starttls(server: &str) {
    let mut client = Conversation::open(server, loopback(3, 2)).await.expect("a connection");
    client.greet().await;
    client.send(b"STARTTLS\r\nEHLO evil\r\nMAIL FROM:<evil@localhost>\r\nVRFY x\r\n").await;
    assert!(client.reply().await.starts_with("220"));
    // There is no handshake, so there must be no reply to the injected text.
    client.send(b"this is no handshake").await;
    assert_eq!(client.rest().await.matches("25").count(), 0);
}

/// Line ends and NULs inside commands.
async fn through_commands(server: &str) {
    let mut client = login(server).await;
    for line in
        ["MAIL FROM:<mallory@localhost>\nRCPT TO:<victim@localhost>", "NOOP\rRSET", "NO\0OP", "MAIL FROM:<a\nb@c>"]
    {
        client.send(format!("{line}\r\n").as_bytes()).await;
        let reply = client.reply().await;
        assert!(reply.starts_with("500 5.5.2"), "{line:?}: {reply}");
        // A bare LF ends a line too, and what follows is a line of its own, which is refused too.
        if line.contains('\n') {
            let reply = client.reply().await;
            assert!(reply.starts_with("50"), "{line:?}: {reply}");
        }
    }
    assert!(client.say("VRFY sync").await.starts_with("252"));
}
