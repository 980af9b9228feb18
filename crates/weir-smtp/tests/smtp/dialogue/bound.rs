//! Tests of the limits that end a session: too many recipients, errors, commands or octets, a client that is too slow, and the server's own
//! decision.

use super::{MESSAGE, greeted, talk, with_limits};
use crate::shell::{Shell, settings};
use std::time::Duration;
use weir_core::time::Instant;
use weir_smtp::limits::SmtpLimits;
use weir_smtp::reply::{Reply, Status};
use weir_smtp::session::{CloseReason, Ending};

#[test]
fn recipients_are_bounded() {
    let mut shell = greeted(with_limits(SmtpLimits { recipients: 2, refused_recipients: 3, ..SmtpLimits::default() }));
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
    let limits = SmtpLimits { errors: 3, junk_commands: 5, commands: 40, ..SmtpLimits::default() };
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

    // A message resets the count of junk commands before it.
    let mut shell = greeted(with_limits(limits.clone()));
    for _ in 0..4 {
        talk(&mut shell, &[("NOOP\r\nNOOP\r\nRSET\r\n", &["250", "250", "250"])]);
        talk(&mut shell, MESSAGE);
    }
    // The count of all commands is never reset: 1 + 4 × 6 so far.
    for _ in 0..5 {
        talk(&mut shell, MESSAGE);
    }
    talk(&mut shell, &[("MAIL FROM:<a@a>\r\n", &["421 4.7.0 too many commands in one session"])]);
    assert_eq!(shell.closed, Some(CloseReason::Commands));
}

#[test]
fn long_and_endless_lines() {
    let limits = SmtpLimits { command_line_bytes: 512, discard_bytes: 5_000, ..SmtpLimits::default() };
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

fn after(seconds: u64) -> Instant {
    Instant::ZERO + Duration::from_secs(seconds)
}

#[test]
fn slow_clients_are_told_and_left() {
    let limits = SmtpLimits {
        first_command: Duration::from_secs(10),
        command: Duration::from_secs(100),
        data_block: Duration::from_secs(50),
        data_total: Duration::from_secs(120),
        session_total: Duration::from_secs(1_000),
        ..SmtpLimits::default()
    };
    let fresh = || Shell::new(with_limits(limits.clone()));
    let timed_out = |shell: &mut Shell, at: u64| {
        shell.session.timeout(after(at - 1));
        assert_eq!(shell.say(""), "");
        shell.session.timeout(after(at));
        let said = shell.say("");
        assert_eq!((said.get(..9), shell.closed), (Some("421 4.4.2"), Some(CloseReason::Timeout)), "{said}");
    };

    // There is no first command, although octets trickle in.
    let mut shell = fresh();
    shell.say("");
    shell.now = after(9);
    shell.say("EH");
    assert_eq!(shell.session.deadline(), after(10));
    timed_out(&mut shell, 10);

    // The second command comes too slowly.
    let mut shell = fresh();
    shell.now = after(5);
    shell.say("EHLO me\r\n");
    shell.now = after(100);
    shell.say("MAIL FR");
    timed_out(&mut shell, 105);

    // No octet of the message comes.
    let mut shell = fresh();
    shell.say("EHLO me\r\n");
    talk(&mut shell, &MESSAGE[..3]);
    timed_out(&mut shell, 50);

    // An octet comes every now and then, without end.
    let mut shell = fresh();
    shell.say("EHLO me\r\n");
    talk(&mut shell, &MESSAGE[..3]);
    for second in (40..120).step_by(40) {
        shell.now = after(second);
        shell.say("x");
    }
    timed_out(&mut shell, 120);
    assert_eq!(shell.kept.len(), 0);

    // A session does not end.
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
