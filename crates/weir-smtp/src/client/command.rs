//! Writes the commands MAIL and RCPT with the parameters that the server supports.
//!
//! Envelopes are stored in the spool in the same form, but with all their parameters, whatever a server offers. The parsers of the
//! receiving side read them back.

use std::borrow::Cow;

use crate::envelope::{MailFrom, Notify, RcptTo, Ret};
use crate::mailbox::Mailbox;

use super::capabilities::Capabilities;

/// What MAIL declares about a message to one server.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Manner {
    /// BODY=8BITMIME.
    pub eight_bit: bool,
    /// SMTPUTF8.
    pub smtputf8: bool,
    /// SIZE.
    pub size_bytes: u64,
}

/// Appends `MAIL FROM:…` for a server.
pub fn write_mail(out: &mut Vec<u8>, sender: &MailFrom, manner: Manner, offered: Capabilities) {
    out.extend_from_slice(b"MAIL FROM:<");
    if let Some(mailbox) = &sender.mailbox {
        out.extend_from_slice(address(mailbox, manner.smtputf8).as_bytes());
    }
    out.push(b'>');
    if offered.size {
        push_number(out, b" SIZE=", manner.size_bytes);
    }
    push_if(out, manner.eight_bit, b" BODY=8BITMIME");
    push_if(out, manner.smtputf8, b" SMTPUTF8");
    if offered.dsn {
        write_ret(out, sender);
    }
    out.extend_from_slice(b"\r\n");
}

/// Appends `RCPT TO:…` for a server.
pub fn write_rcpt(out: &mut Vec<u8>, to: &RcptTo, manner: Manner, offered: Capabilities) {
    out.extend_from_slice(b"RCPT TO:<");
    out.extend_from_slice(address(&to.mailbox, manner.smtputf8).as_bytes());
    out.push(b'>');
    if offered.dsn {
        write_notify(out, to, manner.smtputf8);
    }
    out.extend_from_slice(b"\r\n");
}

/// Appends the path of a sender with all parameters that it has.
pub fn write_sender(out: &mut Vec<u8>, sender: &MailFrom) {
    let path = sender.mailbox.as_ref().map_or("", Mailbox::as_str);
    out.extend_from_slice(format!("<{path}>").as_bytes());
    if let Some(size) = sender.size_bytes {
        push_number(out, b" SIZE=", size);
    }
    push_if(out, sender.eight_bit, b" BODY=8BITMIME");
    push_if(out, sender.smtputf8, b" SMTPUTF8");
    write_ret(out, sender);
    if let Some(auth) = &sender.auth {
        out.extend_from_slice(format!(" AUTH={auth}").as_bytes());
    }
}

/// Appends the path of a recipient with all parameters that it has.
pub fn write_recipient(out: &mut Vec<u8>, to: &RcptTo) {
    out.extend_from_slice(format!("<{}>", to.mailbox).as_bytes());
    write_notify(out, to, true);
}

fn write_ret(out: &mut Vec<u8>, sender: &MailFrom) {
    match sender.ret {
        Some(Ret::Full) => out.extend_from_slice(b" RET=FULL"),
        Some(Ret::Headers) => out.extend_from_slice(b" RET=HDRS"),
        None => {}
    }
    if let Some(envid) = &sender.envid {
        out.extend_from_slice(format!(" ENVID={envid}").as_bytes());
    }
}

fn write_notify(out: &mut Vec<u8>, to: &RcptTo, smtputf8: bool) {
    if let Some(notify) = to.notify {
        out.extend_from_slice(b" NOTIFY=");
        out.extend_from_slice(notify_words(notify).as_bytes());
    }
    // The UTF-8 form (RFC 6533) is allowed only if SMTPUTF8 was declared.
    if let Some(orcpt) = to.orcpt.as_deref().filter(|orcpt| smtputf8 || orcpt.is_ascii()) {
        out.extend_from_slice(format!(" ORCPT={orcpt}").as_bytes());
    }
}

fn notify_words(notify: Notify) -> String {
    let words = [(notify.success, "SUCCESS"), (notify.failure, "FAILURE"), (notify.delay, "DELAY")];
    let words: Vec<_> = words.iter().filter(|(wanted, _)| *wanted).map(|(_, word)| *word).collect();
    if words.is_empty() { "NEVER".into() } else { words.join(",") }
}

/// The mailbox as it is sent. Without SMTPUTF8, the domain is in its ASCII form.
pub fn address(mailbox: &Mailbox, smtputf8: bool) -> Cow<'_, str> {
    if smtputf8 || !mailbox.is_international() {
        return Cow::Borrowed(mailbox.as_str());
    }
    match ascii_domain(mailbox.domain()) {
        Some(domain) => Cow::Owned(format!("{}@{domain}", mailbox.local())),
        None => Cow::Borrowed(mailbox.as_str()),
    }
}

/// Whether the mailbox can be sent only with SMTPUTF8.
pub fn needs_smtputf8(mailbox: &Mailbox) -> bool {
    mailbox.is_international() && !address(mailbox, false).is_ascii()
}

/// The ASCII form of a domain (RFC 5890), lower case.
pub fn ascii_domain(domain: &str) -> Option<String> {
    if domain.is_ascii() {
        return Some(domain.to_ascii_lowercase());
    }
    let name = hickory_resolver::proto::rr::Name::from_utf8(domain).ok()?;
    let text = name.to_ascii();
    Some(text.strip_suffix('.').unwrap_or(&text).to_ascii_lowercase())
}

fn push_if(out: &mut Vec<u8>, wanted: bool, word: &[u8]) {
    if wanted {
        out.extend_from_slice(word);
    }
}

fn push_number(out: &mut Vec<u8>, word: &[u8], number: u64) {
    out.extend_from_slice(word);
    out.extend_from_slice(number.to_string().as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn only_what_was_offered_is_said() {
        let sender = MailFrom::parse("<a@b> RET=HDRS ENVID=q SIZE=3").unwrap();
        let manner = Manner { size_bytes: 9, eight_bit: true, smtputf8: false };
        let nothing = Capabilities::default();
        let all = Capabilities { size: true, dsn: true, ..nothing };
        assert_eq!(
            written(|out| write_mail(out, &sender, manner, all)),
            "MAIL FROM:<a@b> SIZE=9 BODY=8BITMIME RET=HDRS ENVID=q\r\n"
        );
        assert_eq!(
            written(|out| write_mail(out, &MailFrom::default(), Manner::default(), nothing)),
            "MAIL FROM:<>\r\n"
        );
        let to = RcptTo::parse("<c@d> NOTIFY=FAILURE,DELAY ORCPT=rfc822;c@d", false).unwrap();
        assert_eq!(
            written(|out| write_rcpt(out, &to, manner, all)),
            "RCPT TO:<c@d> NOTIFY=FAILURE,DELAY ORCPT=rfc822;c@d\r\n"
        );
        assert_eq!(written(|out| write_rcpt(out, &to, manner, nothing)), "RCPT TO:<c@d>\r\n");
    }

    #[test]
    fn an_international_domain_has_an_ascii_form() {
        let mailbox = Mailbox::parse("ann@bücher.example").unwrap();
        assert_eq!(address(&mailbox, false), "ann@xn--bcher-kva.example");
        assert_eq!(address(&mailbox, true), "ann@bücher.example");
        assert!(!needs_smtputf8(&mailbox));
        assert!(needs_smtputf8(&Mailbox::parse("jürgen@b.example").unwrap()));
        assert!(!needs_smtputf8(&Mailbox::parse("a@b.example").unwrap()));
    }
}
