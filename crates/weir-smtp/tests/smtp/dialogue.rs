//! One dialogue for each rule. A dialogue is a list of lines that the client sends, each with the beginnings of the lines of the reply.

mod bound;
mod commands;
mod listed_peer;
mod login;
mod message;

use weir_smtp::limits::SmtpLimits;
use weir_smtp::settings::Settings;

use crate::shell::{Shell, settings};

/// Sends each line in turn, and checks the beginning of every line of the replies.
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

fn with_limits(limits: SmtpLimits) -> Settings {
    Settings { limits: limits.bounded(), ..settings() }
}

const MESSAGE: &[(&str, &[&str])] = &[
    ("MAIL FROM:<a@a.example>\r\n", &["250 2.1.0"]),
    ("RCPT TO:<b@b.example>\r\n", &["250 2.1.5"]),
    ("DATA\r\n", &["354 "]),
    ("Subject: hi\r\n\r\ntext\r\n", &[]),
    (".\r\n", &["250 2.0.0 kept for b"]),
];
