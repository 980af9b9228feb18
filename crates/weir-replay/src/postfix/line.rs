//! One line of a Postfix log: what happened to which queue id.
//!
//! `STAMP HOST NAME/DAEMON[PID]: QUEUEID: event`. The name may be that of any instance (`postfix-out`) and carry a
//! service (`postfix/submission/smtpd`). A line that says nothing about a mail is nothing. Addresses are taken as
//! Postfix quotes them; a `>` inside a quoted local part does not end one.

/// What a line says about one mail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LogEvent<'a> {
    /// smtpd accepted its envelope; `user` had logged in; it came back from a filter as the mail `copy_of`.
    Client { user: Option<&'a str>, copy_of: Option<&'a str> },
    /// Handed in by a local command, or queued anew: then it had the id `before`.
    Pickup { before: Option<&'a str> },
    /// Its content arrived.
    Cleanup,
    /// It entered the active queue.
    Queued { from: &'a str },
    /// An attempt to deliver to `to` (as the sender wrote it); `next` is its id in the next queue, if known.
    Delivery { to: &'a str, next: Option<&'a str> },
    /// It left the queue.
    Removed,
}

/// A queue id and its event, from a line without its stamp.
pub(crate) fn parse(line: &str) -> Option<(&str, LogEvent<'_>)> {
    let (daemon, rest) = daemon(line)?;
    let (id, rest) = rest.split_once(": ")?;
    if !is_queue_id(id) {
        return None;
    }
    event(daemon, rest).map(|event| (id, event))
}

/// The daemon's name and what it says. The tag follows the host; some systems put a facility between.
fn daemon(line: &str) -> Option<(&str, &str)> {
    let mut rest = line;
    for _ in 0..4 {
        let (word, after) = rest.split_once(' ')?;
        if let Some(tag) = word.strip_suffix(':') {
            let name = tag.split('[').next()?;
            return name.rsplit_once('/').map(|(_, daemon)| (daemon, after.trim_start()));
        }
        rest = after.trim_start();
    }
    None
}

/// Short ids are hexadecimal, long ones letters (no vowels) and digits. Words such as `warning` are not.
fn is_queue_id(id: &str) -> bool {
    (5..=20).contains(&id.len())
        && id.bytes().all(|b| b.is_ascii_alphanumeric())
        && id.bytes().any(|b| !b.is_ascii_lowercase())
        && id != "NOQUEUE"
}

fn event<'a>(daemon: &str, rest: &'a str) -> Option<LogEvent<'a>> {
    match daemon {
        "smtpd" | "smtps" | "qmqpd" if rest.starts_with("client=") => {
            Some(LogEvent::Client { user: field(rest, "sasl_username="), copy_of: field(rest, "orig_queue_id=") })
        }
        "pickup" if rest.starts_with("uid=") => {
            Some(LogEvent::Pickup { before: rest.rsplit_once(" orig_id=").map(|(_, id)| id.trim()) })
        }
        "cleanup" if rest.starts_with("message-id=") || rest.starts_with("resent-message-id=") => {
            Some(LogEvent::Cleanup)
        }
        "qmgr" | "nqmgr" | "oqmgr" => queue(rest),
        _ => delivery(rest),
    }
}

fn queue(rest: &str) -> Option<LogEvent<'_>> {
    if rest.trim_end() == "removed" {
        return Some(LogEvent::Removed);
    }
    let (from, after) = address(rest.strip_prefix("from=<")?)?;
    // `from=<…>, status=expired` ends a mail and does not queue it.
    after.starts_with(", size=").then_some(LogEvent::Queued { from })
}

fn delivery(rest: &str) -> Option<LogEvent<'_>> {
    let (to, after) = address(rest.strip_prefix("to=<")?)?;
    let (written, after) = match after.strip_prefix(", orig_to=<") {
        Some(original) => address(original)?,
        None => (to, after),
    };
    let (_, status) = after.split_once("status=")?;
    let next = ["queued as ", "forwarded as "].iter().find_map(|words| status.rsplit_once(words));
    let next = next.map(|(_, id)| id.split(|c: char| !c.is_ascii_alphanumeric()).next().unwrap_or_default());
    Some(LogEvent::Delivery { to: written, next: next.filter(|id| is_queue_id(id)) })
}

/// A field of a list such as `client=…, sasl_method=…, sasl_username=…`.
fn field<'a>(list: &'a str, name: &str) -> Option<&'a str> {
    list.split(", ").find_map(|item| item.strip_prefix(name)).map(str::trim_end).filter(|value| !value.is_empty())
}

/// An address up to the `>` that ends it, and what follows.
fn address(text: &str) -> Option<(&str, &str)> {
    let (mut quoted, mut escaped) = (false, false);
    for (i, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b'>' if !quoted => return Some((&text[..i], &text[i + 1..])),
            _ => {}
        }
    }
    // Before 3.5, Postfix did not quote: a stray quotation mark means nothing then.
    text.split_once('>')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_of_a_mail() {
        let cases = [
            (
                "mail postfix/submission/smtpd[7]: 4F2A1B3C4D: client=pc[10.0.0.1], sasl_method=PLAIN, sasl_username=ann",
                LogEvent::Client { user: Some("ann"), copy_of: None },
            ),
            (
                "mail postfix/smtpd[7]: 4F2A1B3C4D: client=localhost[127.0.0.1], orig_queue_id=4Tmg3q0sPvz1x, orig_client=pc[1.2.3.4]",
                LogEvent::Client { user: None, copy_of: Some("4Tmg3q0sPvz1x") },
            ),
            ("mail postfix/pickup[7]: 4F2A1B3C4D: uid=1000 from=<ann>", LogEvent::Pickup { before: None }),
            (
                "mail postfix/pickup[7]: 4F2A1B3C4D: uid=1000 from=<ann@x> orig_id=5F2A1B3C4D",
                LogEvent::Pickup { before: Some("5F2A1B3C4D") },
            ),
            ("mail mail.info postfix/cleanup[7]: 4F2A1B3C4D: message-id=<1@x>", LogEvent::Cleanup),
            (
                "mail postfix-out/qmgr[7]: 4F2A1B3C4D: from=<Ann@x>, size=300, nrcpt=2 (queue active)",
                LogEvent::Queued { from: "Ann@x" },
            ),
            ("mail postfix/qmgr[7]: 4F2A1B3C4D: removed", LogEvent::Removed),
            (
                "mail postfix/smtp[7]: 4F2A1B3C4D: to=<bob@y>, relay=mx[1.2.3.4]:25, delay=1, delays=0/0/0/1, dsn=2.0.0, status=sent (250 2.0.0 Ok: queued as 4Tmg3q0sPvz1x)",
                LogEvent::Delivery { to: "bob@y", next: Some("4Tmg3q0sPvz1x") },
            ),
            (
                "mail postfix/local[7]: 4F2A1B3C4D: to=<c@x>, orig_to=<list@x>, relay=local, delay=1, dsn=2.0.0, status=sent (forwarded as 5F2A1B3C4D)",
                LogEvent::Delivery { to: "list@x", next: Some("5F2A1B3C4D") },
            ),
            (
                "mail postfix/error[7]: 4F2A1B3C4D: to=<\"a>, b\"@y>, relay=none, delay=1, dsn=4.4.1, status=deferred (timed out)",
                LogEvent::Delivery { to: "\"a>, b\"@y", next: None },
            ),
        ];
        for (line, event) in cases {
            let (id, found) = parse(line).unwrap_or_else(|| panic!("{line}"));
            assert_eq!((id, found), ("4F2A1B3C4D", event), "{line}");
        }
    }

    #[test]
    fn other_lines_say_nothing() {
        for line in [
            "",
            "mail",
            "mail postfix/smtpd[7]: connect from pc[10.0.0.1]",
            "mail postfix/smtpd[7]: warning: from=<a>, size=1",
            "mail dovecot: imap(ann): Logged out",
            "mail postfix/smtpd[7]: NOQUEUE: client=pc[1.1.1.1], sasl_username=ann",
            "mail postfix/smtpd[7]: NOQUEUE: reject: RCPT from x[1.1.1.1]: 550; from=<a@x> to=<b@y> proto=ESMTP",
            "mail postfix/cleanup[7]: 4F2A1B3C4D: milter-reject: END-OF-MESSAGE from x[1.1.1.1]: 5.7.1; from=<a@x> to=<b@y>",
            "mail postfix/qmgr[7]: 4F2A1B3C4D: from=<a@x>, status=expired, returned to sender",
            "mail postfix/smtp[7]: 4F2A1B3C4D: host mx[1.2.3.4] said: 450 to=<b@y>",
            "mail postfix/smtp[7]: 4F2A1B3C4D: to=<b@y",
            "mail postfix/bounce[7]: 4F2A1B3C4D: sender non-delivery notification: 5F2A1B3C4D",
            "mail kernel: to=<a>: b",
        ] {
            assert_eq!(parse(line), None, "{line}");
        }
    }
}
