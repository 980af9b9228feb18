//! The envelope: sender, recipients, and the parameters of MAIL and RCPT.
//!
//! SIZE (RFC 1870), BODY (6152), SMTPUTF8 (6531), AUTH (4954) and the DSN parameters (3461, 6533) are parsed and handed on. A parameter
//! that we did not offer is refused by its name. ENVID and ORCPT stay in xtext as they came.

use super::body::TextTraits;
use super::mailbox::{Mailbox, Path, PathError, parse_path};
use super::peer::Forwarded;
use super::reply::{Reply, Status};
use super::xtext;
use std::collections::HashSet;

/// Sender and recipients of one message.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Envelope {
    /// MAIL FROM.
    pub sender: MailFrom,
    /// RCPT TO, as far as they were accepted, in order.
    pub recipients: Vec<RcptTo>,
    /// What XFORWARD says about the first client; only from listed peers.
    pub forwarded: Option<Box<Forwarded>>,
    /// Properties of the text, known after all of it was read.
    pub text: TextTraits,
}

/// MAIL FROM with its parameters.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MailFrom {
    /// The sender; `None` is `<>`, the sender of bounces.
    pub mailbox: Option<Mailbox>,
    /// The size the client declared.
    pub size_bytes: Option<u64>,
    /// Whether the client declared an 8-bit body.
    pub eight_bit: bool,
    /// Whether addresses and headers may be UTF-8.
    pub smtputf8: bool,
    /// How much of the message a bounce should return.
    pub ret: Option<Ret>,
    /// The sender's own id of the envelope, in xtext.
    pub envid: Option<Box<str>>,
    /// The user who submitted the message first, as the client claims, in xtext; `<>` if unknown. It proves nothing.
    pub auth: Option<Box<str>>,
}

/// RCPT TO with its parameters.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RcptTo {
    /// The recipient.
    pub mailbox: Mailbox,
    /// When the sender wants reports; `None` if MAIL did not say.
    pub notify: Option<Notify>,
    /// The original recipient: type, `;`, address in xtext.
    pub orcpt: Option<Box<str>>,
}

/// The parameter RET of DSN.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ret {
    /// The whole message.
    Full,
    /// The header only.
    Headers,
}

/// The parameter NOTIFY of DSN; all false means NEVER.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Notify {
    /// On delivery.
    pub success: bool,
    /// On failure.
    pub failure: bool,
    /// On delay.
    pub delay: bool,
}

impl Envelope {
    pub(crate) fn new(sender: MailFrom, forwarded: Option<Box<Forwarded>>) -> Envelope {
        Envelope { sender, recipients: Vec::new(), forwarded, text: TextTraits::default() }
    }

    /// Removes repeated recipients: somebody who was named several times gets the message once. The case of the domain does not matter.
    pub(crate) fn fold_repeats(&mut self) {
        if self.recipients.len() < 2 {
            return;
        }
        let mut seen = HashSet::with_capacity(self.recipients.len());
        self.recipients
            .retain(|to| seen.insert((to.mailbox.local().to_owned(), to.mailbox.domain().to_ascii_lowercase())));
    }

    /// Removes requests that a stranger must not make: reports of success, and the return of the whole message. These would go to whatever
    /// address the stranger names as the sender.
    pub fn forget_wishes(&mut self) {
        self.sender.ret = self.sender.ret.map(|_| Ret::Headers);
        for notify in self.recipients.iter_mut().filter_map(|to| to.notify.as_mut()) {
            notify.success = false;
        }
    }
}

impl MailFrom {
    /// Parses the text after `MAIL FROM:`.
    pub fn parse(text: &str) -> Result<MailFrom, Reply> {
        let (path, rest) = parse_path(text).map_err(|e| bad_path(e, Status(5, 1, 7), "MAIL FROM:<address>"))?;
        let mailbox = match path {
            Path::Null => None,
            Path::Mailbox(mailbox) => Some(mailbox),
            Path::Postmaster => return Err(bad_path(PathError::Domain, Status(5, 1, 7), "MAIL FROM:<address>")),
        };
        let mut from = MailFrom { mailbox, ..MailFrom::default() };
        for parameter in parameters(rest)? {
            let (key, value) = key_and_value(parameter);
            from.set(&key, value)?;
        }
        from.international_declared()
    }

    fn set(&mut self, key: &str, value: Option<&str>) -> Result<(), Reply> {
        match (key, value) {
            ("SIZE", Some(value)) => self.size_bytes = Some(parse_size(value).ok_or_else(|| bad_parameter(key))?),
            ("BODY", Some(value)) => self.eight_bit = parse_body(value)?,
            ("SMTPUTF8", None) => self.smtputf8 = true,
            ("RET", Some(value)) => self.ret = Some(parse_ret(value)?),
            ("ENVID", Some(value)) if self.envid.is_none() => self.envid = Some(xtext_value(key, value, 100)?),
            ("AUTH", Some(value)) => self.auth = Some(xtext_value(key, value, 500)?),
            ("SIZE" | "BODY" | "SMTPUTF8" | "RET" | "ENVID" | "AUTH", _) => return Err(bad_parameter(key)),
            _ => return Err(unknown_parameter(key)),
        }
        Ok(())
    }

    fn international_declared(self) -> Result<MailFrom, Reply> {
        match &self.mailbox {
            Some(mailbox) if mailbox.is_international() && !self.smtputf8 => Err(NOT_DECLARED),
            _ => Ok(self),
        }
    }
}

impl RcptTo {
    /// Parses the text after `RCPT TO:`. `smtputf8` says whether MAIL declared SMTPUTF8.
    pub fn parse(text: &str, smtputf8: bool) -> Result<RcptTo, Reply> {
        let (path, rest) = parse_path(text).map_err(|e| bad_path(e, Status(5, 1, 3), "RCPT TO:<address>"))?;
        let mailbox = match path {
            Path::Null => return Err(bad_path(PathError::Local, Status(5, 1, 3), "RCPT TO:<address>")),
            Path::Mailbox(mailbox) => mailbox,
            Path::Postmaster => Mailbox::postmaster(),
        };
        if mailbox.is_international() && !smtputf8 {
            return Err(NOT_DECLARED);
        }
        let mut to = RcptTo { mailbox, notify: None, orcpt: None };
        for parameter in parameters(rest)? {
            let (key, value) = key_and_value(parameter);
            to.set(&key, value, smtputf8)?;
        }
        Ok(to)
    }

    fn set(&mut self, key: &str, value: Option<&str>, smtputf8: bool) -> Result<(), Reply> {
        match (key, value) {
            ("NOTIFY", Some(value)) if self.notify.is_none() => {
                self.notify = Some(parse_notify(value).ok_or_else(|| bad_parameter(key))?);
            }
            ("ORCPT", Some(value)) if self.orcpt.is_none() => {
                self.orcpt = Some(parse_orcpt(value, smtputf8).ok_or_else(|| bad_parameter(key))?);
            }
            ("NOTIFY" | "ORCPT", _) => return Err(bad_parameter(key)),
            _ => return Err(unknown_parameter(key)),
        }
        Ok(())
    }
}

/// The words after the path. If something follows the `>` without a space, that is refused.
fn parameters(rest: &str) -> Result<impl Iterator<Item = &str>, Reply> {
    if !rest.is_empty() && !rest.starts_with(' ') {
        return Err(Reply::fixed(501, Status(5, 5, 4), "a space must follow the address"));
    }
    Ok(rest.split(' ').filter(|word| !word.is_empty()))
}

fn key_and_value(parameter: &str) -> (String, Option<&str>) {
    let (key, value) = match parameter.split_once('=') {
        Some((key, value)) => (key, Some(value)),
        None => (parameter, None),
    };
    (key.to_ascii_uppercase(), value)
}

/// Parses a size: digits only, at most 20 of them (RFC 1870). A number that is too large counts as "larger than anything".
pub(crate) fn parse_size(text: &str) -> Option<u64> {
    let digits = (1..=20).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().unwrap_or(u64::MAX))
}

fn parse_body(value: &str) -> Result<bool, Reply> {
    match value.to_ascii_uppercase().as_str() {
        "7BIT" => Ok(false),
        "8BITMIME" => Ok(true),
        "BINARYMIME" => Err(Reply::fixed(555, Status(5, 5, 4), "BODY=BINARYMIME is not offered here")),
        _ => Err(bad_parameter("BODY")),
    }
}

fn parse_ret(value: &str) -> Result<Ret, Reply> {
    match value.to_ascii_uppercase().as_str() {
        "FULL" => Ok(Ret::Full),
        "HDRS" => Ok(Ret::Headers),
        _ => Err(bad_parameter("RET")),
    }
}

fn parse_notify(value: &str) -> Option<Notify> {
    if value.eq_ignore_ascii_case("NEVER") {
        return Some(Notify::default());
    }
    let mut notify = Notify::default();
    for word in value.split(',') {
        match word.to_ascii_uppercase().as_str() {
            "SUCCESS" => notify.success = true,
            "FAILURE" => notify.failure = true,
            "DELAY" => notify.delay = true,
            _ => return None,
        }
    }
    Some(notify)
}

/// Parses `type;address`. The address is in xtext or, under SMTPUTF8, in the UTF-8 form of RFC 6533.
fn parse_orcpt(value: &str, smtputf8: bool) -> Option<Box<str>> {
    let (kind, address) = value.split_once(';')?;
    let kind_valid = !kind.is_empty() && kind.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    let plain = xtext::is_valid(address);
    let utf8 = smtputf8 && kind.eq_ignore_ascii_case("utf-8") && !address.contains([' ', '+', '=']);
    let valid = kind_valid && (plain || utf8) && !address.is_empty() && value.len() <= 500;
    valid.then(|| value.into())
}

fn xtext_value(key: &str, value: &str, max: usize) -> Result<Box<str>, Reply> {
    if !value.is_empty() && value.len() <= max && xtext::is_valid(value) {
        return Ok(value.into());
    }
    Err(bad_parameter(key))
}

const NOT_DECLARED: Reply =
    Reply::fixed(553, Status(5, 6, 7), "an address with characters beyond ASCII needs SMTPUTF8 on MAIL FROM");

fn bad_path(error: PathError, status: Status, usage: &str) -> Reply {
    let code = if error == PathError::Brackets { 501 } else { 553 };
    Reply::new(code, status, format!("{error}; usage: {usage}"))
}

fn bad_parameter(key: &str) -> Reply {
    Reply::new(501, Status(5, 5, 4), format!("the value of {key} is not valid"))
}

fn unknown_parameter(key: &str) -> Reply {
    let shown: String = key.chars().take(40).collect();
    Reply::new(555, Status(5, 5, 4), format!("parameter {shown} is not known here"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mail_parameters_are_read() {
        let from = MailFrom::parse("<a@b> SIZE=123 BODY=8bitmime RET=HDRS ENVID=QQ+2B1 smtputf8 AUTH=<>").unwrap();
        assert_eq!(from.mailbox.unwrap().as_str(), "a@b");
        assert_eq!((from.size_bytes, from.eight_bit, from.smtputf8), (Some(123), true, true));
        assert_eq!(
            (from.ret, from.envid.as_deref(), from.auth.as_deref()),
            (Some(Ret::Headers), Some("QQ+2B1"), Some("<>"))
        );
        assert_eq!(MailFrom::parse("<>").unwrap(), MailFrom::default());
    }

    #[test]
    fn a_size_that_overflows_is_huge_not_small() {
        assert_eq!(parse_size("18446744073709551616"), Some(u64::MAX));
        assert_eq!(parse_size("99999999999999999999"), Some(u64::MAX));
        assert_eq!(parse_size("000000000000000000000000001"), None);
        assert_eq!((parse_size(""), parse_size("-1"), parse_size("+1")), (None, None, None));
    }

    #[test]
    fn rcpt_parameters_are_read() {
        let to = RcptTo::parse("<a@b> NOTIFY=SUCCESS,delay ORCPT=rfc822;x+2By@z", false).unwrap();
        assert_eq!(to.notify, Some(Notify { success: true, failure: false, delay: true }));
        assert_eq!(to.orcpt.as_deref(), Some("rfc822;x+2By@z"));
        assert_eq!(RcptTo::parse("<a@b> NOTIFY=NEVER", false).unwrap().notify, Some(Notify::default()));
        assert!(RcptTo::parse("<ü@b> ORCPT=utf-8;ü@b", true).is_ok());
        assert_eq!(RcptTo::parse("<Postmaster>", false).unwrap().mailbox, Mailbox::postmaster());
    }

    #[test]
    fn wrong_parameters_are_refused_with_their_name() {
        for (text, code, word) in [
            ("<a@b> SIZE=x", 501, "SIZE"),
            ("<a@b> SIZE", 501, "SIZE"),
            ("<a@b> BODY=9BIT", 501, "BODY"),
            ("<a@b> BODY=BINARYMIME", 555, "BINARYMIME"),
            ("<a@b> HOLDFOR=1", 555, "HOLDFOR"),
            ("<a@b> ENVID=a+0D+0AX", 501, "ENVID"),
            ("<a@b>SIZE=1", 501, "space"),
            ("<ü@b>", 553, "SMTPUTF8"),
            ("<postmaster>", 553, "domain"),
            ("a@b", 501, "< >"),
        ] {
            let reply = MailFrom::parse(text).unwrap_err();
            assert_eq!(reply.code(), code, "{text}");
            assert!(reply.text().contains(word), "{text}: {}", reply.text());
        }
        for text in
            ["<>", "<a@b> NOTIFY=NEVER,DELAY", "<a@b> NOTIFY=", "<a@b> ORCPT=x", "<a@b> ORCPT=rfc822;a+0A", "<ü@b>"]
        {
            assert!(RcptTo::parse(text, false).is_err(), "{text}");
        }
    }
}
