//! Tests of logins, and the encryption that they need.

use super::{MESSAGE, greeted, talk};
use crate::shell::{Shell, settings};
use weir_smtp::session::CloseReason;
use weir_smtp::settings::{Auth, AuthWithoutTls, Settings};

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
