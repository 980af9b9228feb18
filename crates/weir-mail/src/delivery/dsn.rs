//! Reports to senders: delivery status notifications (RFC 3464, RFC 3461, RFC 6533).
//!
//! Three parts: plain words for people, fields for programs, and the header of the message (or all of it, if it failed, the sender
//! asked, and it is short). Nothing from outside can add a header or a part: texts are one line without control characters,
//! and the boundary is random. Everything is ASCII unless an address is not. The sender of a report is null, so no
//! report is ever about a report.

mod advice;

use std::fmt::Write;
use std::sync::Arc;

use weir_core::time::Instant;

use self::advice::advice;
use super::ledger::{LedgerError, OwnMail, StoredBody};
use super::message::{OutgoingMessage, Recipient};
use super::queue::{Action, ReportKind, Reported, SenderReport};
use weir_foundation::date::Date;
use weir_smtp::envelope::{MailFrom, RcptTo, Ret};
use weir_smtp::mailbox::Mailbox;
use weir_smtp::outcome::{DeliveryOutcome, clean};
use weir_smtp::xtext;

/// Who reports, and how much of the message goes back.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReportSettings {
    /// Our name.
    pub hostname: Arc<str>,
    /// Who answers questions.
    pub postmaster: String,
    /// The most octets of a message that go back with its report. Default 64 KiB.
    pub returned_max: usize,
}

/// The most octets of a header that go back.
const HEADER_MAX: usize = 16 << 10;

/// What goes back of the message.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Returned {
    text: Vec<u8>,
    whole: bool,
}

impl Returned {
    /// Reads what is to go back: the header, or all of it if it failed, is short, and that was asked for. A body that cannot be read gives nothing.
    pub async fn read<B: StoredBody>(
        report: &SenderReport,
        settings: &ReportSettings,
        body: Result<B, LedgerError>,
    ) -> Returned {
        let failed = report.recipients.iter().any(|reported| reported.action == Action::Failed);
        let full = report.message.sender.ret == Some(Ret::Full) && failed;
        let whole = full && report.message.size_bytes <= settings.returned_max as u64;
        let most = if whole { settings.returned_max } else { HEADER_MAX };
        let mut text = Vec::new();
        let Ok(mut body) = body else { return Returned::default() };
        while text.len() < most {
            match body.next().await {
                Ok(Some(piece)) => text.extend_from_slice(&piece),
                Ok(None) => break,
                Err(_) => return Returned::default(),
            }
            if !whole && memchr::memmem::find(&text, b"\r\n\r\n").is_some() {
                break;
            }
        }
        if !whole {
            let end = memchr::memmem::find(&text, b"\r\n\r\n").map_or(text.len(), |at| at + 2);
            cut_lines(&mut text, end.min(HEADER_MAX));
        }
        Returned { text, whole }
    }
}

/// Cuts after the last whole line within `most` octets.
fn cut_lines(text: &mut Vec<u8>, most: usize) {
    let within = text.get(..most).unwrap_or(text);
    let end = memchr::memrchr(b'\n', within).map_or(0, |at| at + 1);
    text.truncate(end);
}

/// Writes the report as a mail to the sender; nothing if there is nobody to write to.
pub fn compose(report: &SenderReport, settings: &ReportSettings, returned: &Returned, now: Instant) -> Option<OwnMail> {
    let to = report.message.sender.mailbox.clone()?;
    let composer = Composer {
        report,
        settings,
        returned,
        now,
        international: is_international(report, &to),
        boundary: boundary(),
    };
    let text = composer.text(&to);
    let sender = MailFrom { eight_bit: !text.is_ascii(), smtputf8: composer.international, ..MailFrom::default() };
    let recipient = Recipient { index: 0, to: RcptTo { mailbox: to, notify: None, orcpt: None } };
    // Mail from outside has an owner too, but nobody whom a report could be charged to.
    let owner = if report.message.sign { Arc::clone(&report.message.owner) } else { "".into() };
    let envelope = OutgoingMessage {
        id: report.message.id,
        owner,
        sender,
        recipients: Box::new([recipient]),
        size_bytes: text.len() as u64,
        accepted_at: now,
        sign: true,
        added: "".into(),
        hand_back: false,
        long_lines: false,
    };
    Some(OwnMail { envelope, text })
}

fn is_international(report: &SenderReport, to: &Mailbox) -> bool {
    let addressed = report.recipients.iter().filter_map(|reported| report.message.recipients.get(reported.place));
    to.is_international() || addressed.into_iter().any(|recipient| recipient.to.mailbox.is_international())
}

fn boundary() -> String {
    use std::hash::BuildHasher;
    // Hash keys are random for each: nobody outside can guess the boundary.
    let random = || std::hash::RandomState::new().hash_one(0);
    format!("weir-{:016x}{:016x}", random(), random())
}

struct Composer<'a> {
    report: &'a SenderReport,
    settings: &'a ReportSettings,
    returned: &'a Returned,
    now: Instant,
    international: bool,
    boundary: String,
}

impl Composer<'_> {
    fn text(&self, to: &Mailbox) -> Vec<u8> {
        let mut out = self.header(to);
        let charset = if self.international { "utf-8" } else { "us-ascii" };
        self.part(&mut out, &format!("text/plain; charset={charset}"), "Notification");
        self.words(&mut out);
        let kind = if self.international { "message/global-delivery-status" } else { "message/delivery-status" };
        self.part(&mut out, kind, "Delivery report");
        self.fields(&mut out);
        let mut out = out.into_bytes();
        if !self.returned.text.is_empty() {
            self.original(&mut out);
        }
        out.extend_from_slice(format!("\r\n--{}--\r\n", self.boundary).as_bytes());
        out
    }

    fn header(&self, to: &Mailbox) -> String {
        let Composer { settings, boundary, report, .. } = self;
        let (host, date) = (&settings.hostname, Date::new(self.now).rfc5322());
        let subject = match (report.kind, self.has(Action::Failed)) {
            (ReportKind::Delay, _) => "Your mail is delayed",
            (ReportKind::Final, true) => "Your mail could not be delivered",
            (ReportKind::Final, false) => "Your mail was delivered",
        };
        let mut out = format!(
            "From: Mail delivery <{}>\r\nTo: <{to}>\r\nSubject: {subject}\r\nDate: {date}\r\n\
             Message-ID: <{}.{}@{host}>\r\nAuto-Submitted: auto-replied\r\n",
            settings.postmaster,
            report.message.id,
            boundary.trim_start_matches("weir-"),
        );
        if let Some(id) = self.original_id() {
            out.push_str(&format!("In-Reply-To: {id}\r\nReferences: {id}\r\n"));
        }
        out.push_str(&format!(
            "MIME-Version: 1.0\r\nContent-Type: multipart/report; report-type=delivery-status;\r\n\tboundary=\"{boundary}\"\r\n\r\n\
             This is a report in MIME format.\r\n"
        ));
        out
    }

    /// The Message-ID of the message, if it is a plain one.
    fn original_id(&self) -> Option<String> {
        let text = String::from_utf8_lossy(&self.returned.text);
        let line = text
            .split("\r\n")
            .take_while(|line| !line.is_empty())
            .find(|line| line.get(..11).is_some_and(|name| name.eq_ignore_ascii_case("message-id:")))?;
        let id = line.get(11..)?.trim();
        let plain = id.len() <= 300
            && id.starts_with('<')
            && id.ends_with('>')
            && id.bytes().all(|byte| byte.is_ascii_graphic());
        plain.then(|| id.to_owned())
    }

    fn part(&self, out: &mut String, kind: &str, description: &str) {
        let encoding = if self.international { "8bit" } else { "7bit" };
        let boundary = &self.boundary;
        // Writing to a string cannot fail.
        let _ = write!(
            out,
            "\r\n--{boundary}\r\nContent-Type: {kind}\r\nContent-Description: {description}\r\n\
             Content-Transfer-Encoding: {encoding}\r\n\r\n"
        );
    }

    fn words(&self, out: &mut String) {
        let mut say = |line: &str| out.push_str(&format!("{}\r\n", self.safe(line)));
        say(&format!("This is the mail server {}.", self.settings.hostname));
        say("");
        say(&format!("It is about your mail of {}.", Date::new(self.report.message.accepted_at).rfc5322()));
        for (action, title) in [
            (Action::Failed, "It could not be delivered to:"),
            (Action::Delayed, "It has not been delivered yet to:"),
            (Action::Delivered, "It was delivered to:"),
            (Action::Relayed, "It was passed on, to a server that sends no reports itself, for:"),
        ] {
            let those: Vec<_> = self.report.recipients.iter().filter(|reported| reported.action == action).collect();
            if those.is_empty() {
                continue;
            }
            say("");
            say(title);
            those.iter().for_each(|reported| self.recipient_words(reported, &mut say));
        }
        say("");
        match self.report.kind {
            ReportKind::Delay => {
                say("You need not do anything: we go on trying.");
                say(&format!(
                    "If it cannot be delivered by {}, you will be told.",
                    Date::new(self.report.until).rfc5322()
                ));
            }
            ReportKind::Final if self.has(Action::Failed) => {
                say(&format!("It will not be tried again. Questions go to {}.", self.settings.postmaster));
            }
            ReportKind::Final => say("You asked to be told. Nothing is wrong."),
        }
    }

    fn recipient_words(&self, reported: &Reported, say: &mut impl FnMut(&str)) {
        let outcome = &reported.outcome;
        say("");
        say(&format!("  <{}>", self.address(reported)));
        if matches!(reported.action, Action::Failed | Action::Delayed) {
            let who = match (&outcome.peer, outcome.code) {
                (Some(peer), Some(_)) => format!("The server {peer} says:"),
                (Some(peer), None) => format!("The reason, with the server {peer}:"),
                (None, _) => "The reason:".to_owned(),
            };
            say(&format!("    {who}"));
            let code = outcome.code.map(|code| format!("{code} ")).unwrap_or_default();
            wrapped(&format!("{code}{} {}", outcome.status, outcome.text))
                .iter()
                .for_each(|line| say(&format!("    {line}")));
        }
        if reported.action == Action::Failed {
            wrapped(advice(outcome)).iter().for_each(|line| say(&format!("    {line}")));
        }
    }

    fn fields(&self, out: &mut String) {
        let mut field = |name: &str, value: &str| out.push_str(&format!("{name}: {}\r\n", self.safe(value)));
        field("Reporting-MTA", &format!("dns; {}", self.settings.hostname));
        if let Some(envid) = self.report.message.sender.envid.as_deref().and_then(xtext::decode) {
            field("Original-Envelope-Id", &clean(&envid));
        }
        field("Arrival-Date", &Date::new(self.report.message.accepted_at).rfc5322());
        for reported in &self.report.recipients {
            field_break(out);
            self.recipient_fields(reported, out);
        }
    }

    fn recipient_fields(&self, reported: &Reported, out: &mut String) {
        let mut field = |name: &str, value: &str| out.push_str(&format!("{name}: {}\r\n", self.safe(value)));
        let DeliveryOutcome { status, code, text, peer, .. } = &*reported.outcome;
        let recipient = self.report.message.recipients.get(reported.place);
        if let Some(orcpt) = recipient.and_then(|recipient| recipient.to.orcpt.as_deref()).and_then(original_recipient)
        {
            field("Original-Recipient", &orcpt);
        }
        let address = self.address(reported);
        let kind = if address.is_ascii() { "rfc822" } else { "utf-8" };
        field("Final-Recipient", &format!("{kind}; {address}"));
        let action = match reported.action {
            Action::Failed => "failed",
            Action::Delayed => "delayed",
            Action::Delivered => "delivered",
            Action::Relayed => "relayed",
        };
        field("Action", action);
        field("Status", &status.to_string());
        if let Some(peer) = peer {
            field("Remote-MTA", &format!("dns; {peer}"));
        }
        if matches!(reported.action, Action::Failed | Action::Delayed) {
            let kind = if code.is_some() { "smtp" } else { "x-weir" };
            let code = code.map(|code| format!("{code} ")).unwrap_or_default();
            field("Diagnostic-Code", &format!("{kind}; {code}{status} {text}"));
        }
        field("Last-Attempt-Date", &Date::new(self.now).rfc5322());
        if reported.action == Action::Delayed {
            field("Will-Retry-Until", &Date::new(self.report.until).rfc5322());
        }
    }

    fn original(&self, out: &mut Vec<u8>) {
        let kind = match (self.returned.whole, self.international) {
            (true, false) => "message/rfc822",
            (true, true) => "message/global",
            (false, false) => "text/rfc822-headers",
            (false, true) => "message/global-headers",
        };
        let what = if self.returned.whole { "Your mail" } else { "The header of your mail" };
        let encoding = if self.returned.text.is_ascii() { "7bit" } else { "8bit" };
        let head = format!(
            "\r\n--{}\r\nContent-Type: {kind}\r\nContent-Description: {what}\r\nContent-Transfer-Encoding: {encoding}\r\n\r\n",
            self.boundary
        );
        out.extend_from_slice(head.as_bytes());
        out.extend_from_slice(&self.returned.text);
    }

    fn address(&self, reported: &Reported) -> String {
        let recipient = self.report.message.recipients.get(reported.place);
        recipient.map(|recipient| recipient.to.mailbox.to_string()).unwrap_or_default()
    }

    fn has(&self, action: Action) -> bool {
        self.report.recipients.iter().any(|reported| reported.action == action)
    }

    /// One line; ASCII unless the report is international.
    fn safe(&self, line: &str) -> String {
        let fits = |c: char| if c.is_control() || (!self.international && !c.is_ascii()) { '?' } else { c };
        line.chars().map(fits).collect()
    }
}

fn field_break(out: &mut String) {
    out.push_str("\r\n");
}

/// `type;address` with the address decoded.
fn original_recipient(orcpt: &str) -> Option<String> {
    let (kind, address) = orcpt.split_once(';')?;
    let address = if kind.eq_ignore_ascii_case("utf-8") { address.to_owned() } else { xtext::decode(address)? };
    Some(format!("{kind}; {}", clean(&address)))
}

/// Lines of at most about 70 characters.
fn wrapped(text: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let full = lines.last().is_some_and(|line| !line.is_empty() && line.len() + word.len() > 70);
        if full {
            lines.push(String::new());
        }
        if let Some(line) = lines.last_mut() {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines
}

#[cfg(test)]
mod tests;
