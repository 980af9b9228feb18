//! Tests of commands: what is offered, in which order commands may come, and with which parameters.

use super::{MESSAGE, greeted, talk};
use crate::shell::{Shell, settings};
use weir_smtp::envelope::{Notify, Ret};
use weir_smtp::session::CloseReason;
use weir_smtp::settings::{Protocol, Settings};

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

#[test]
fn names_are_made_safe() {
    let mut shell = greeted(settings());
    shell.say("EHLO x(y)<z>\"é'\r\n");
    assert_eq!(shell.session.peer().helo.as_deref(), Some("x?y??z????"));
    talk(&mut shell, &[("EHLO \r\n", &["501 5.5.4"]), ("HELO\r\n", &["501 5.5.4"])]);
}
