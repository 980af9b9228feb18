//! One dialogue a rule. A dialogue is a list of what the client says and how the replies must begin, a line each.

use std::time::Duration;

use weir_core::time::Instant;
use weir_mail::smtp::envelope::{Notify, Ret};
use weir_mail::smtp::limits::Limits;
use weir_mail::smtp::reply::{Reply, Status};
use weir_mail::smtp::session::{CloseReason, Ending};
use weir_mail::smtp::settings::{Auth, AuthWithoutTls, Protocol, Settings};

use crate::shell::{Shell, settings};

/// Says each line in turn; every line of the replies must begin as told.
fn talk(shell: &mut Shell, dialogue: &[(&str, &[&str])]) {
    for (line, expected) in dialogue {
        let said = shell.say(line);
        let lines: Vec<&str> = said.lines().collect();
        let fits =
            lines.len() == expected.len() && lines.iter().zip(*expected).all(|(line, begin)| line.starts_with(begin));
        assert!(fits, "to {line:?} came {lines:#?}, not {expected:#?}");
    }
}

/// A session that has said EHLO.
fn greeted(settings: Settings) -> Shell {
    let mut shell = Shell::new(settings);
    assert_eq!(shell.say(""), "220 mx.example ESMTP Weir\r\n");
    shell.say("EHLO me\r\n");
    shell
}

fn with_limits(limits: Limits) -> Settings {
    Settings { limits: limits.bounded(), ..settings() }
}

const MESSAGE: &[(&str, &[&str])] = &[
    ("MAIL FROM:<a@a.example>\r\n", &["250 2.1.0"]),
    ("RCPT TO:<b@b.example>\r\n", &["250 2.1.5"]),
    ("DATA\r\n", &["354 "]),
    ("Subject: hi\r\n\r\ntext\r\n", &[]),
    (".\r\n", &["250 2.0.0 kept for b"]),
];

#[test]
fn a_message_is_taken_and_the_next_one_too() {
    let mut shell = greeted(settings());
    talk(&mut shell, MESSAGE);
    talk(&mut shell, MESSAGE);
    talk(&mut shell, &[("QUIT\r\n", &["221 2.0.0"])]);
    assert_eq!((shell.kept.len(), shell.closed), (2, Some(CloseReason::Quit)));
    assert_eq!(shell.kept[0].text, b"Subject: hi\r\n\r\ntext\r\n");
    assert_eq!(shell.kept[0].peer.with_keyword(false), "ESMTP");
}

#[test]
fn ehlo_offers_what_we_have() {
    let mut shell = Shell::new(Settings { starttls: true, ..settings() });
    shell.say("");
    talk(
        &mut shell,
        &[(
            "EHLO me\r\n",
            &[
                "250-mx.example greets 127.0.0.1",
                "250-PIPELINING",
                "250-SIZE 26214400",
                "250-8BITMIME",
                "250-SMTPUTF8",
                "250-CHUNKING",
                "250-ENHANCEDSTATUSCODES",
                "250-DSN",
                "250-STARTTLS",
                "250 AUTH PLAIN LOGIN",
            ],
        )],
    );
    talk(&mut shell, &[("HELO me\r\n", &["250 mx.example greets 127.0.0.1"])]);
}

#[test]
fn pipelined_commands_get_their_replies_in_order() {
    let mut shell = greeted(settings());
    let all = "MAIL FROM:<a@a>\r\nRCPT TO:<refused@b>\r\nRCPT TO:<b@b>\r\nRCPT TO:<later@b>\r\nDATA\r\n";
    talk(&mut shell, &[(all, &["250 2.1.0", "550 5.1.1", "250 2.1.5", "450 4.2.1", "354 "])]);
    talk(&mut shell, &[("x\r\n.\r\nRSET\r\nQUIT\r\n", &["250 2.0.0 kept", "250 2.0.0 forgotten", "221 "])]);
    assert_eq!(shell.kept[0].recipients(), ["b@b"]);
}

#[test]
fn commands_out_of_sequence_are_refused() {
    let mut shell = Shell::new(settings());
    shell.say("");
    talk(
        &mut shell,
        &[
            ("MAIL FROM:<a@a>\r\n", &["503 5.5.1"]),
            ("RCPT TO:<a@a>\r\n", &["503 5.5.1"]),
            ("DATA\r\n", &["503 5.5.1"]),
            ("AUTH PLAIN AGFubgBzZWNyZXQ=\r\n", &["503 5.5.1"]),
            ("LHLO me\r\n", &["503 5.5.1"]),
            ("HELO me\r\n", &["250 "]),
            ("RCPT TO:<a@a>\r\n", &["503 5.5.1"]),
            ("MAIL FROM:<a@a>\r\n", &["250 2.1.0"]),
            ("MAIL FROM:<a@a>\r\n", &["503 5.5.1"]),
            ("DATA\r\n", &["554 5.5.1"]),
            ("RCPT TO:<refused@a>\r\n", &["550 5.1.1"]),
            ("DATA\r\n", &["554 5.5.1"]),
            ("RSET\r\n", &["250 2.0.0"]),
            ("DATA\r\n", &["503 5.5.1"]),
        ],
    );
    assert_eq!(shell.session.peer().with_keyword(false), "SMTP");
}

#[test]
fn a_new_ehlo_forgets_the_message() {
    let mut shell = greeted(settings());
    talk(&mut shell, &[("MAIL FROM:<a@a>\r\n", &["250 2.1.0"]), ("RCPT TO:<b@b>\r\n", &["250 2.1.5"])]);
    shell.say("EHLO again\r\n");
    talk(&mut shell, &[("DATA\r\n", &["503 5.5.1"]), ("MAIL FROM:<a@a>\r\n", &["250 2.1.0"])]);
}

#[test]
fn small_commands() {
    let mut shell = greeted(settings());
    talk(
        &mut shell,
        &[
            ("NOOP\r\n", &["250 2.0.0"]),
            ("NOOP what ever\r\n", &["250 2.0.0"]),
            ("VRFY ann\r\n", &["252 2.5.2"]),
            ("HELP\r\n", &["214 2.0.0"]),
            ("EXPN list\r\n", &["502 5.5.1"]),
            ("ETRN x\r\n", &["502 5.5.1"]),
            ("FOO\r\n", &["500 5.5.2"]),
            ("\r\n", &["500 5.5.2"]),
            ("NOOP\n", &["500 5.5.2 a command must end with CR LF"]),
            ("NO\rOP\r\n", &["500 5.5.2"]),
            ("NOOP \0\r\n", &["500 5.5.2"]),
            ("QUIT now\r\n", &["501 5.5.4"]),
            ("STARTTLS\r\n", &["502 5.5.1"]),
        ],
    );
}

#[test]
fn http_is_shown_the_door() {
    let mut shell = Shell::new(settings());
    shell.say("");
    talk(&mut shell, &[("POST / HTTP/1.1\r\nHost: x\r\n\r\nEHLO a\r\nMAIL FROM:<a@a>\r\n", &["554 5.7.0"])]);
    assert_eq!(shell.closed, Some(CloseReason::NotSmtp));
}

#[test]
fn dsn_parameters_are_handed_on() {
    let mut shell = greeted(settings());
    talk(
        &mut shell,
        &[
            ("MAIL FROM:<a@a> RET=HDRS ENVID=abc+2B1 BODY=8BITMIME SMTPUTF8 SIZE=20\r\n", &["250 2.1.0"]),
            ("RCPT TO:<bücher@b> NOTIFY=FAILURE,DELAY ORCPT=rfc822;old@b\r\n", &["250 2.1.5"]),
            ("RCPT TO:<c@b> NOTIFY=NEVER\r\n", &["250 2.1.5"]),
            ("DATA\r\n", &["354 "]),
            ("é\r\n.\r\n", &["250 2.0.0"]),
        ],
    );
    let envelope = &shell.kept[0].envelope;
    assert_eq!((envelope.sender.ret, envelope.sender.envid.as_deref()), (Some(Ret::Headers), Some("abc+2B1")));
    assert!(envelope.sender.eight_bit && envelope.sender.smtputf8);
    assert_eq!(envelope.recipients[0].notify, Some(Notify { success: false, failure: true, delay: true }));
    assert_eq!(envelope.recipients[0].orcpt.as_deref(), Some("rfc822;old@b"));
    assert_eq!(envelope.recipients[1].notify, Some(Notify::default()));
    assert_eq!(shell.kept[0].peer.with_keyword(true), "UTF8SMTP");
}

#[test]
fn the_size_limit_holds_at_mail_and_while_streaming() {
    let limits = Limits { message_bytes: 2_000, discard_bytes: 5_000, ..Limits::default() };
    let mut shell = greeted(with_limits(limits));
    talk(&mut shell, &[("MAIL FROM:<a@a> SIZE=2001\r\n", &["552 5.3.4"])]);
    talk(&mut shell, &[("MAIL FROM:<a@a> SIZE=99999999999999999999\r\n", &["552 5.3.4"])]);
    talk(&mut shell, &MESSAGE[..3]);
    let line = "x".repeat(498) + "\r\n";
    talk(&mut shell, &[(&line.repeat(4), &[]), (".\r\n", &["250 2.0.0"])]);
    talk(&mut shell, &MESSAGE[..3]);
    talk(&mut shell, &[(&line.repeat(5), &[]), (".\r\n", &["552 5.3.4 the message is larger than 2000 octets"])]);
    assert_eq!((shell.kept.len(), shell.aborted), (1, 1));
    // The reply is honest as long as that costs little; then the line is cut.
    talk(&mut shell, &MESSAGE[..3]);
    talk(&mut shell, &[(&line.repeat(15), &["552 5.3.4"])]);
    assert_eq!(shell.closed, Some(CloseReason::Endless));
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
    let mut shell = greeted(with_limits(Limits { body_line_bytes: 0, ..Limits::default() }));
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
    // Everything in one go, pipelined, with a command right behind the last octet.
    talk(&mut shell, start);
    talk(
        &mut shell,
        &[("BDAT 3\r\nx\r\nBDAT 3 LAST\r\ny\r\nNOOP\r\n", &["250 2.0.0 3", "250 2.0.0 kept", "250 2.0.0 ok"])],
    );
    assert_eq!(shell.kept[1].text, b"x\r\ny\r\n");
    // RSET between chunks drops the message.
    talk(&mut shell, start);
    talk(&mut shell, &[("BDAT 3\r\nx\r\n", &["250"]), ("RSET\r\n", &["250 2.0.0 forgotten"]), ("DATA\r\n", &["503"])]);
    // An empty message, and one that is refused in its middle: later chunks hear the same, LAST ends it.
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

#[test]
fn recipients_are_bounded() {
    let mut shell = greeted(with_limits(Limits { recipients: 2, refused_recipients: 3, ..Limits::default() }));
    talk(
        &mut shell,
        &[
            ("MAIL FROM:<a@a>\r\n", &["250"]),
            ("RCPT TO:<b@b>\r\n", &["250 2.1.5"]),
            ("RCPT TO:<c@b>\r\n", &["250 2.1.5"]),
            ("RCPT TO:<d@b>\r\n", &["452 4.5.3"]),
            ("DATA\r\n", &["354"]),
            (".\r\n", &["250 2.0.0"]),
            ("MAIL FROM:<a@a>\r\n", &["250"]),
            ("RCPT TO:<refused@b>\r\n", &["550"]),
            ("RCPT TO:<later@b>\r\n", &["450"]),
            ("RCPT TO:<refused@b>\r\n", &["550", "421 4.7.0 too many refused"]),
        ],
    );
    assert_eq!((shell.kept[0].recipients().len(), shell.closed), (2, Some(CloseReason::Errors)));
}

#[test]
fn errors_junk_and_commands_are_bounded() {
    let limits = Limits { errors: 3, junk_commands: 5, commands: 40, ..Limits::default() };
    let mut shell = greeted(with_limits(limits.clone()));
    talk(&mut shell, &[("X\r\nX\r\nX\r\nNOOP\r\n", &["500", "500", "500", "421 4.7.0 too many errors"])]);
    assert_eq!(shell.closed, Some(CloseReason::Errors));
    assert_eq!(shell.say("NOOP\r\n"), "");

    let mut shell = greeted(with_limits(limits.clone()));
    talk(
        &mut shell,
        &[("NOOP\r\nNOOP\r\nNOOP\r\nNOOP\r\nNOOP\r\nNOOP\r\n", &["250", "250", "250", "250", "421 4.7.0"])],
    );
    assert_eq!(shell.closed, Some(CloseReason::Commands));

    // A message makes good for the junk before it.
    let mut shell = greeted(with_limits(limits.clone()));
    for _ in 0..4 {
        talk(&mut shell, &[("NOOP\r\nNOOP\r\nRSET\r\n", &["250", "250", "250"])]);
        talk(&mut shell, MESSAGE);
    }
    // The count of all commands has no pardon: 1 + 4 × 6 so far.
    for _ in 0..5 {
        talk(&mut shell, MESSAGE);
    }
    talk(&mut shell, &[("MAIL FROM:<a@a>\r\n", &["421 4.7.0 too many commands in one session"])]);
    assert_eq!(shell.closed, Some(CloseReason::Commands));
}

#[test]
fn long_and_endless_lines() {
    let limits = Limits { command_line_bytes: 512, discard_bytes: 5_000, ..Limits::default() };
    let mut shell = greeted(with_limits(limits.clone()));
    let fits = format!("NOOP {}\r\n", "x".repeat(505));
    let long = format!("NOOP {}\r\n", "x".repeat(506));
    talk(&mut shell, &[(&fits, &["250"]), (&long, &["500 5.5.2 the line is too long"]), ("NOOP\r\n", &["250"])]);
    let mut said = String::new();
    for _ in 0..100 {
        said += &shell.say("x".repeat(99));
        assert!(shell.session.buffered() < 2_000);
    }
    assert_eq!((said.as_str(), shell.closed), ("500 5.5.2 the line is too long\r\n", Some(CloseReason::Endless)));
}

#[test]
fn logins() {
    let mut shell = greeted(settings());
    talk(
        &mut shell,
        &[
            ("AUTH PLAIN\r\n", &["334 "]),
            ("*\r\n", &["501 5.7.0 login cancelled"]),
            ("AUTH LOGIN\r\n", &["334 VXNlcm5hbWU6"]),
            ("not base64\r\n", &["501 5.5.2"]),
            ("AUTH CRAM-MD5\r\n", &["504 5.5.4"]),
            ("AUTH PLAIN AGRvd24AeA==\r\n", &["454 4.7.0"]),
            ("AUTH PLAIN AGJvYgB4\r\n", &["535 5.7.8"]),
            ("AUTH LOGIN\r\n", &["334 VXNlcm5hbWU6"]),
            ("YW5u\r\n", &["334 UGFzc3dvcmQ6"]),
            ("c2VjcmV0\r\n", &["235 2.7.0"]),
            ("AUTH PLAIN AGFubgBzZWNyZXQ=\r\n", &["503 5.5.1 you are already logged in"]),
        ],
    );
    assert!(!shell.say("EHLO me\r\n").contains("AUTH"));
    talk(&mut shell, MESSAGE);
    assert_eq!(shell.kept[0].peer.user.as_deref(), Some("ann"));
    assert_eq!(shell.kept[0].peer.with_keyword(false), "ESMTPA");
}

#[test]
fn login_lines_are_bounded() {
    let mut shell = greeted(settings());
    let long = "A".repeat(3_000) + "\r\n";
    talk(&mut shell, &[("AUTH PLAIN\r\n", &["334"]), (&long, &["500 5.5.6"]), ("NOOP\r\n", &["250"])]);
    talk(&mut shell, &[("AUTH LOGIN\r\n", &["334"]), ("YW5u\n", &["500 5.5.2"]), ("NOOP\r\n", &["250"])]);
}

#[test]
fn failed_logins_end_the_session() {
    let mut shell = greeted(settings());
    talk(
        &mut shell,
        &[
            ("AUTH PLAIN AGJvYgB4\r\n", &["535 5.7.8"]),
            ("AUTH PLAIN AGJvYgB5\r\n", &["535 5.7.8"]),
            ("AUTH PLAIN AGJvYgB6\r\n", &["535 5.7.8", "421 4.7.0 too many failed logins"]),
        ],
    );
    assert_eq!(shell.closed, Some(CloseReason::Logins));
}

#[test]
fn passwords_need_encryption() {
    let far = "192.0.2.7:5000";
    let mut shell = Shell::from(Settings { starttls: true, auth: Auth::Required, ..settings() }, far);
    shell.say("");
    let ehlo = shell.say("EHLO me\r\n");
    assert!(!ehlo.contains("AUTH") && ehlo.contains("STARTTLS"));
    talk(
        &mut shell,
        &[("AUTH PLAIN AGFubgBzZWNyZXQ=\r\n", &["538 5.7.11"]), ("MAIL FROM:<a@a>\r\n", &["530 5.7.0 say STARTTLS"])],
    );
    talk(&mut shell, &[("STARTTLS\r\n", &["220 2.0.0"])]);
    assert!(shell.say("EHLO me\r\n").contains("AUTH PLAIN LOGIN"));
    talk(&mut shell, &[("MAIL FROM:<a@a>\r\n", &["530 5.7.0 log in"]), ("AUTH PLAIN AGFubgBzZWNyZXQ=\r\n", &["235"])]);
    talk(&mut shell, MESSAGE);
    assert_eq!(shell.kept[0].peer.with_keyword(false), "ESMTPSA");

    for (policy, address, offered) in [
        (AuthWithoutTls::Never, "127.0.0.1:1", false),
        (AuthWithoutTls::Loopback, "127.0.0.1:1", true),
        (AuthWithoutTls::Loopback, "[::1]:1", true),
        (AuthWithoutTls::Loopback, far, false),
        (AuthWithoutTls::Everywhere, far, true),
    ] {
        let mut shell = Shell::from(Settings { auth_without_tls: policy, ..settings() }, address);
        assert_eq!(shell.say("EHLO me\r\n").contains("AUTH"), offered, "{policy:?} {address}");
    }
    let mut shell = greeted(Settings { auth: Auth::Off, ..settings() });
    talk(&mut shell, &[("AUTH PLAIN AGFubgBzZWNyZXQ=\r\n", &["502 5.5.1"])]);
}

#[test]
fn starttls_forgets_everything_and_drops_what_was_injected() {
    let mut shell = greeted(Settings { starttls: true, require_tls: true, ..settings() });
    talk(&mut shell, &[("MAIL FROM:<a@a>\r\n", &["530 5.7.0 say STARTTLS first"])]);
    let injected = "STARTTLS\r\nEHLO evil\r\nMAIL FROM:<evil@a>\r\nRCPT TO:<b@b>\r\nNO";
    talk(&mut shell, &[(injected, &["220 2.0.0 ready for TLS"])]);
    assert_eq!(shell.session.peer().helo, None);
    talk(&mut shell, &[("OP\r\n", &["500 5.5.2"]), ("MAIL FROM:<a@a>\r\n", &["503 5.5.1 say EHLO"])]);
    assert!(!shell.say("EHLO me\r\n").contains("STARTTLS"));
    talk(&mut shell, &[("STARTTLS\r\n", &["503 5.5.1 TLS is already active"])]);
    talk(&mut shell, MESSAGE);
    assert_eq!(shell.kept[0].envelope.sender.mailbox.as_ref().unwrap().as_str(), "a@a.example");
}

#[test]
fn starttls_not_inside_a_message() {
    let mut shell = greeted(Settings { starttls: true, ..settings() });
    talk(
        &mut shell,
        &[("MAIL FROM:<a@a>\r\n", &["250"]), ("STARTTLS\r\n", &["503 5.5.1"]), ("AUTH LOGIN\r\n", &["503 5.5.1"])],
    );
}

#[test]
fn xclient_and_xforward_are_for_listed_peers() {
    let mut stranger = greeted(settings());
    assert!(!stranger.say("EHLO me\r\n").contains("XCLIENT"));
    talk(&mut stranger, &[("XCLIENT ADDR=192.0.2.9\r\n", &["550 5.7.0"]), ("XFORWARD NAME=x\r\n", &["550 5.7.0"])]);

    let trusted = || Settings { trusted: vec!["127.0.0.0/8".parse().unwrap()], auth: Auth::Required, ..settings() };
    let mut proxy = greeted(trusted());
    let ehlo = proxy.say("EHLO me\r\n");
    assert!(ehlo.contains("XCLIENT NAME ADDR PORT PROTO HELO LOGIN") && ehlo.contains("XFORWARD"), "{ehlo}");
    talk(
        &mut proxy,
        &[
            ("XFORWARD NAME=spike.example ADDR=192.0.2.3 IDENT=ABC\r\n", &["250 2.0.0"]),
            ("XCLIENT ADDR=nonsense\r\n", &["501 5.5.4"]),
            ("XCLIENT ADDR=192.0.2.9 NAME=home.example LOGIN=ann PROTO=ESMTP\r\n", &["220 mx.example"]),
            ("MAIL FROM:<a@a>\r\n", &["503 5.5.1 say EHLO"]),
        ],
    );
    assert!(!proxy.say("EHLO me\r\n").contains("XCLIENT"), "the client itself is not listed");
    talk(&mut proxy, &[("XCLIENT ADDR=127.0.0.1\r\n", &["550 5.7.0"])]);
    talk(&mut proxy, MESSAGE);
    let peer = &proxy.kept[0].peer;
    assert_eq!((peer.client.to_string().as_str(), peer.user.as_deref()), ("192.0.2.9", Some("ann")));
    assert_eq!((peer.name.as_deref(), peer.socket.ip().to_string().as_str()), (Some("home.example"), "127.0.0.1"));
    assert_eq!(proxy.kept[0].envelope.forwarded, None, "XFORWARD came before the session began anew");

    let mut locked = greeted(trusted());
    talk(&mut locked, &[("XCLIENT ADDR=192.0.2.9 LOGIN=locked\r\n", &["550 5.7.1"])]);
    assert_eq!(locked.closed, Some(CloseReason::Refused));
}

#[test]
fn xforward_belongs_to_one_message() {
    let mut proxy = greeted(Settings { trusted: vec!["127.0.0.1".parse().unwrap()], ..settings() });
    talk(&mut proxy, &[("XFORWARD NAME=spike ADDR=192.0.2.3\r\n", &["250"]), ("XFORWARD IDENT=ABC\r\n", &["250"])]);
    talk(&mut proxy, MESSAGE);
    talk(&mut proxy, MESSAGE);
    let forwarded = proxy.kept[0].envelope.forwarded.as_ref().unwrap();
    assert_eq!((forwarded.name.as_deref(), forwarded.ident.as_deref()), (Some("spike"), Some("ABC")));
    assert_eq!(proxy.kept[1].envelope.forwarded, None);
    talk(
        &mut proxy,
        &[("MAIL FROM:<a@a>\r\n", &["250"]), ("XFORWARD NAME=x\r\n", &["503"]), ("XCLIENT NAME=x\r\n", &["503"])],
    );
}

#[test]
fn lmtp_answers_for_every_recipient() {
    let mut shell = Shell::new(Settings { protocol: Protocol::Lmtp, ..settings() });
    assert_eq!(shell.say(""), "220 mx.example LMTP Weir\r\n");
    talk(&mut shell, &[("EHLO me\r\n", &["503 5.5.1 this is LMTP"])]);
    assert!(shell.say("LHLO me\r\n").contains("250-PIPELINING"));
    let start: &[(&str, &[&str])] = &[
        ("MAIL FROM:<a@a>\r\n", &["250"]),
        ("RCPT TO:<b@b>\r\n", &["250"]),
        ("RCPT TO:<refused@b>\r\n", &["550"]),
        ("RCPT TO:<quota@b>\r\n", &["250"]),
    ];
    talk(&mut shell, start);
    talk(&mut shell, &[("DATA\r\n", &["354"]), ("x\r\n.\r\n", &["250 2.0.0 kept for b", "452 4.2.2 mailbox full"])]);
    talk(&mut shell, start);
    talk(&mut shell, &[("BDAT 3 LAST\r\nx\r\n", &["250 2.0.0 kept for b", "452 4.2.2"])]);
    talk(&mut shell, start);
    talk(&mut shell, &[("DATA\r\n", &["354"]), ("x\n.\r\n.\r\n", &["554 5.6.0", "554 5.6.0"])]);
    assert_eq!(shell.kept[0].peer.with_keyword(false), "LMTP");
}

fn after(seconds: u64) -> Instant {
    Instant::ZERO + Duration::from_secs(seconds)
}

#[test]
fn slow_clients_are_told_and_left() {
    let limits = Limits {
        first_command: Duration::from_secs(10),
        command: Duration::from_secs(100),
        data_block: Duration::from_secs(50),
        data_total: Duration::from_secs(120),
        session_total: Duration::from_secs(1_000),
        ..Limits::default()
    };
    let fresh = || Shell::new(with_limits(limits.clone()));
    let timed_out = |shell: &mut Shell, at: u64| {
        shell.session.timeout(after(at - 1));
        assert_eq!(shell.say(""), "");
        shell.session.timeout(after(at));
        let said = shell.say("");
        assert_eq!((said.get(..9), shell.closed), (Some("421 4.4.2"), Some(CloseReason::Timeout)), "{said}");
    };

    // No first command, though octets trickle in.
    let mut shell = fresh();
    shell.say("");
    shell.now = after(9);
    shell.say("EH");
    assert_eq!(shell.session.deadline(), after(10));
    timed_out(&mut shell, 10);

    // A slow second command.
    let mut shell = fresh();
    shell.now = after(5);
    shell.say("EHLO me\r\n");
    shell.now = after(100);
    shell.say("MAIL FR");
    timed_out(&mut shell, 105);

    // No octet of the message.
    let mut shell = fresh();
    shell.say("EHLO me\r\n");
    talk(&mut shell, &MESSAGE[..3]);
    timed_out(&mut shell, 50);

    // An octet every now and then, for ever.
    let mut shell = fresh();
    shell.say("EHLO me\r\n");
    talk(&mut shell, &MESSAGE[..3]);
    for second in (40..120).step_by(40) {
        shell.now = after(second);
        shell.say("x");
    }
    timed_out(&mut shell, 120);
    assert_eq!(shell.kept.len(), 0);

    // A session that never ends.
    let mut shell = fresh();
    shell.say("EHLO me\r\n");
    for second in (0..990).step_by(90) {
        shell.now = after(second);
        talk(&mut shell, MESSAGE);
    }
    timed_out(&mut shell, 1_000);
}

#[test]
fn the_server_can_end_a_session() {
    let shutdown = || Reply::fixed(421, Status(4, 3, 2), "going down");
    let mut idle = greeted(settings());
    idle.session.end(shutdown(), Ending::AfterMessage);
    talk(&mut idle, &[("", &["421 4.3.2"]), ("NOOP\r\n", &[])]);

    let mut busy = greeted(settings());
    talk(&mut busy, &MESSAGE[..4]);
    busy.session.end(shutdown(), Ending::AfterMessage);
    talk(&mut busy, &[("more\r\n", &[]), (".\r\nNOOP\r\n", &["250 2.0.0 kept", "421 4.3.2"])]);
    assert_eq!((busy.kept.len(), busy.closed), (1, Some(CloseReason::Ended)));

    let mut chunked = greeted(settings());
    talk(
        &mut chunked,
        &[("MAIL FROM:<a@a>\r\n", &["250"]), ("RCPT TO:<b@b>\r\n", &["250"]), ("BDAT 1\r\nx", &["250"])],
    );
    chunked.session.end(shutdown(), Ending::AfterMessage);
    talk(&mut chunked, &[("", &[]), ("BDAT 1 LAST\r\ny", &["250 2.0.0 kept", "421 4.3.2"])]);

    let mut locked = greeted(settings());
    talk(&mut locked, &MESSAGE[..4]);
    locked.session.end(Reply::fixed(421, Status(4, 7, 0), "locked"), Ending::AtOnce);
    talk(&mut locked, &[("more\r\n.\r\n", &["421 4.7.0"])]);
    assert_eq!((locked.kept.len(), locked.closed), (0, Some(CloseReason::Ended)));
}

#[test]
fn names_are_made_safe() {
    let mut shell = greeted(settings());
    shell.say("EHLO x(y)<z>\"é'\r\n");
    assert_eq!(shell.session.peer().helo.as_deref(), Some("x?y??z????"));
    talk(&mut shell, &[("EHLO \r\n", &["501 5.5.4"]), ("HELO\r\n", &["501 5.5.4"])]);
}
