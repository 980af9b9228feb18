//! Tests of the message itself: its size, its faults, BDAT chunks, and a store that cannot accept it.

use super::{MESSAGE, greeted, talk, with_limits};
use crate::shell::{Shell, settings};
use weir_smtp::limits::SmtpLimits;
use weir_smtp::session::CloseReason;
use weir_smtp::settings::{Protocol, Settings};

#[test]
fn the_size_limit_holds_at_mail_and_while_streaming() {
    let limits = SmtpLimits { message_bytes: 2_000, discard_bytes: 5_000, ..SmtpLimits::default() };
    let mut shell = greeted(with_limits(limits));
    talk(&mut shell, &[("MAIL FROM:<a@a> SIZE=2001\r\n", &["552 5.3.4"])]);
    talk(&mut shell, &[("MAIL FROM:<a@a> SIZE=99999999999999999999\r\n", &["552 5.3.4"])]);
    talk(&mut shell, &MESSAGE[..3]);
    let line = "x".repeat(498) + "\r\n";
    talk(&mut shell, &[(&line.repeat(4), &[]), (".\r\n", &["250 2.0.0"])]);
    talk(&mut shell, &MESSAGE[..3]);
    talk(&mut shell, &[(&line.repeat(5), &[]), (".\r\n", &["552 5.3.4 the message is larger than 2000 octets"])]);
    assert_eq!((shell.kept.len(), shell.aborted), (1, 1));
    // The message is read to its end for a proper reply, but only as long as that costs little; then the connection is closed.
    talk(&mut shell, &MESSAGE[..3]);
    talk(&mut shell, &[(&line.repeat(15), &["552 5.3.4"])]);
    assert_eq!(shell.closed, Some(CloseReason::Endless));
}

#[test]
fn who_is_named_twice_gets_the_message_once() {
    let named: [(&str, &[&str]); 5] = [
        ("MAIL FROM:<a@a>\r\n", &["250"]),
        ("RCPT TO:<b@b.example> NOTIFY=NEVER\r\n", &["250"]),
        ("RCPT TO:<c@b.example>\r\n", &["250"]),
        ("RCPT TO:<b@B.example>\r\n", &["250"]),
        ("RCPT TO:<B@b.example>\r\n", &["250"]),
    ];
    for body in ["DATA\r\n", "BDAT 3 LAST\r\nx\r\n"] {
        let mut shell = greeted(settings());
        talk(&mut shell, &named);
        shell.say(body);
        if body.starts_with("DATA") {
            talk(&mut shell, &[("x\r\n.\r\n", &["250 2.0.0"])]);
        }
        assert_eq!(shell.kept[0].recipients(), ["b@b.example", "c@b.example", "B@b.example"]);
    }
    let mut shell = Shell::new(Settings { protocol: Protocol::Lmtp, ..settings() });
    shell.say("LHLO me\r\n");
    talk(&mut shell, &named);
    talk(&mut shell, &[("DATA\r\n", &["354"]), ("x\r\n.\r\n", &["250", "250", "250", "250"])]);
}

#[test]
fn faults_of_a_message_are_told_at_its_end_and_the_session_goes_on() {
    let mut shell = greeted(settings());
    for (text, reason) in [
        ("a\nb\r\n.\r\n", "a LF without CR"),
        ("a\rb\r\n.\r\n", "a CR without LF"),
        ("a\0b\r\n.\r\n", "a NUL octet"),
        (&*format!("{}\r\n.\r\n", "x".repeat(999)), "a line of the message is longer than 998 octets"),
    ] {
        talk(&mut shell, &MESSAGE[..3]);
        talk(&mut shell, &[(text, &[&*format!("554 5.6.0 refused: {reason}")])]);
    }
    talk(&mut shell, MESSAGE);
    assert_eq!(shell.kept.len(), 1);
}

#[test]
fn long_lines_can_be_allowed() {
    let mut shell = greeted(with_limits(SmtpLimits { body_line_bytes: 0, ..SmtpLimits::default() }));
    talk(&mut shell, &MESSAGE[..3]);
    let text = "x".repeat(100_000) + "\r\n.\r\n";
    talk(&mut shell, &[(&text, &["250 2.0.0"])]);
    assert_eq!(shell.kept[0].text.len(), 100_002);
}

#[test]
fn a_full_or_failing_store_is_told_and_nothing_is_kept() {
    let mut shell = greeted(settings());
    talk(
        &mut shell,
        &[("MAIL FROM:<full@a>\r\n", &["250"]), ("RCPT TO:<b@b>\r\n", &["250"]), ("DATA\r\n", &["452 4.3.1"])],
    );
    talk(
        &mut shell,
        &[("MAIL FROM:<a@a>\r\n", &["250"]), ("RCPT TO:<breaks@b>\r\n", &["250"]), ("DATA\r\n", &["354"])],
    );
    talk(&mut shell, &[("one\r\n", &[]), ("two\r\n.\r\n", &["452 4.3.1 the disk is full"])]);
    talk(&mut shell, &MESSAGE[..3]);
    talk(&mut shell, &[("VIRUS\r\n.\r\n", &["554 5.7.1"])]);
    talk(&mut shell, &[("MAIL FROM:<full@a>\r\n", &["250"]), ("RCPT TO:<b@b>\r\n", &["250"])]);
    talk(
        &mut shell,
        &[("BDAT 4\r\nabcd", &["452 4.3.1"]), ("BDAT 3 LAST\r\ne\r\n", &["452 4.3.1"]), ("NOOP\r\n", &["250"])],
    );
}

#[test]
fn chunks() {
    let mut shell = greeted(settings());
    let start: &[(&str, &[&str])] = &[("MAIL FROM:<a@a>\r\n", &["250"]), ("RCPT TO:<b@b>\r\n", &["250"])];
    talk(&mut shell, start);
    talk(
        &mut shell,
        &[
            ("BDAT 6\r\nab\r\n.\r", &["250 2.0.0 6 octets received"]),
            ("BDAT 0\r\n", &["250 2.0.0 0 octets"]),
            ("BDAT 3\r\n\ncd", &["250 2.0.0 3 octets"]),
            ("DATA\r\n", &["503 5.5.1 DATA and BDAT do not mix"]),
            ("MAIL FROM:<a@a>\r\n", &["503 5.5.1"]),
            ("RCPT TO:<a@a>\r\n", &["503 5.5.1"]),
            ("BDAT 0 LAST\r\n", &["250 2.0.0 kept"]),
        ],
    );
    assert_eq!(shell.kept[0].text, b"ab\r\n.\r\ncd\r\n");
    // Everything at once, pipelined, with a command directly after the last octet.
    talk(&mut shell, start);
    talk(
        &mut shell,
        &[("BDAT 3\r\nx\r\nBDAT 3 LAST\r\ny\r\nNOOP\r\n", &["250 2.0.0 3", "250 2.0.0 kept", "250 2.0.0 ok"])],
    );
    assert_eq!(shell.kept[1].text, b"x\r\ny\r\n");
    // RSET between chunks drops the message.
    talk(&mut shell, start);
    talk(&mut shell, &[("BDAT 3\r\nx\r\n", &["250"]), ("RSET\r\n", &["250 2.0.0 forgotten"]), ("DATA\r\n", &["503"])]);
    // An empty message, and one that is refused in the middle: later chunks get the same reply, and LAST ends it.
    talk(&mut shell, start);
    talk(&mut shell, &[("BDAT 0 LAST\r\n", &["250 2.0.0 kept"])]);
    talk(&mut shell, start);
    talk(
        &mut shell,
        &[("BDAT 2\r\n\n\n", &["554 5.6.0"]), ("BDAT 1\r\nx", &["554 5.6.0"]), ("BDAT 0 LAST\r\n", &["554 5.6.0"])],
    );
    talk(&mut shell, MESSAGE);
    assert_eq!(shell.kept.len(), 4);
}

/// A client that sends the message with its envelope learns too late that nobody is to get it. What follows is the next message, and must not
/// get into the envelope of this one.
#[test]
fn the_last_chunk_for_nobody_ends_the_transaction() {
    let mut shell = greeted(settings());
    talk(
        &mut shell,
        &[
            (
                "MAIL FROM:<first@a>\r\nRCPT TO:<refused@b>\r\nBDAT 3 LAST\r\nx\r\n",
                &["250", "550", "554 5.5.1 no valid recipients"],
            ),
            ("MAIL FROM:<second@a>\r\nRCPT TO:<c@d>\r\nBDAT 3 LAST\r\ny\r\n", &["250", "250", "250 2.0.0 kept"]),
            // More of the message is to come: it is not over yet.
            ("MAIL FROM:<third@a>\r\nBDAT 3\r\nx\r\n", &["250", "554 5.5.1"]),
            ("MAIL FROM:<fourth@a>\r\n", &["503 5.5.1"]),
            ("BDAT 0 LAST\r\n", &["554 5.5.1"]),
            ("MAIL FROM:<fourth@a>\r\n", &["250"]),
        ],
    );
    assert_eq!(shell.kept.len(), 1);
    assert_eq!(shell.kept[0].recipients(), ["c@d"]);
}
