//! Parses one command line.
//!
//! smtp-proto parses the simple commands. We parse the others ourselves: MAIL and RCPT for the reasons given in [`super::envelope`],
//! XCLIENT and XFORWARD because smtp-proto does not know them, and BDAT because smtp-proto lets its size overflow, and then we would take
//! message text for commands. Control characters were removed from the line before.

use std::borrow::Cow;

use smtp_proto::{AUTH_LOGIN, AUTH_PLAIN, Error, Request};

use super::envelope::parse_size;
use super::reply::{Reply, Status};
use super::sasl::Mechanism;

/// A command that can be carried out.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Command<'a> {
    Helo(Cow<'a, str>),
    Ehlo(Cow<'a, str>),
    Lhlo(Cow<'a, str>),
    /// The text after `MAIL FROM:`.
    Mail(&'a str),
    /// The text after `RCPT TO:`.
    Rcpt(&'a str),
    Data,
    Bdat {
        bytes: u64,
        last: bool,
    },
    /// BDAT with a size that cannot be read, so that the beginning of the next command is not known.
    BadBdat,
    Auth {
        mechanism: Mechanism,
        initial: Option<Cow<'a, str>>,
    },
    StartTls,
    Rset,
    Noop,
    Vrfy,
    Help,
    Quit,
    XClient(&'a str),
    XForward(&'a str),
    /// A word of HTTP: a browser or proxy was tricked into connecting to us.
    Http,
}

impl<'a> Command<'a> {
    /// Parses a line that ends with CR LF. If the command cannot be carried out, returns the reply that says so.
    pub(crate) fn parse(line: &'a [u8]) -> Result<Command<'a>, Reply> {
        let text = line.strip_suffix(b"\r\n").unwrap_or(line);
        let verb_end = memchr::memchr(b' ', text).unwrap_or(text.len());
        let (verb, arguments) = text.split_at(verb_end);
        let mut upper = [0; 8];
        if verb.is_empty() {
            return Err(UNKNOWN);
        }
        let known = upper.get_mut(..verb.len()).map(|upper| {
            upper.copy_from_slice(verb);
            upper.make_ascii_uppercase();
            &*upper
        });
        match known.unwrap_or_default() {
            b"MAIL" => after_word(arguments, "FROM:", "MAIL FROM:<address> [parameters]").map(Command::Mail),
            b"RCPT" => after_word(arguments, "TO:", "RCPT TO:<address> [parameters]").map(Command::Rcpt),
            b"BDAT" => Ok(bdat(arguments)),
            b"XCLIENT" => utf8(arguments).map(Command::XClient),
            b"XFORWARD" => utf8(arguments).map(Command::XForward),
            b"GET" | b"POST" | b"PUT" | b"HEAD" | b"CONNECT" | b"OPTIONS" => Ok(Command::Http),
            b"DATA" | b"STARTTLS" | b"RSET" | b"QUIT" if !arguments.trim_ascii().is_empty() => Err(NO_ARGUMENTS),
            _ => simple(line),
        }
    }
}

fn simple(line: &[u8]) -> Result<Command<'_>, Reply> {
    let request = Request::parse(&mut line.iter()).map_err(|error| refusal(&error))?;
    Ok(match request {
        Request::Helo { host } => Command::Helo(host),
        Request::Ehlo { host } => Command::Ehlo(host),
        Request::Lhlo { host } => Command::Lhlo(host),
        Request::Data => Command::Data,
        Request::Auth { mechanism, initial_response } => auth(mechanism, initial_response)?,
        Request::StartTls => Command::StartTls,
        Request::Rset => Command::Rset,
        Request::Noop { .. } => Command::Noop,
        Request::Vrfy { .. } => Command::Vrfy,
        Request::Help { .. } => Command::Help,
        Request::Quit => Command::Quit,
        Request::Expn { .. } | Request::Etrn { .. } | Request::Atrn { .. } | Request::Burl { .. } => {
            return Err(Reply::fixed(502, Status(5, 5, 1), "this command is not offered here"));
        }
        Request::Mail { .. } | Request::Rcpt { .. } | Request::Bdat { .. } => return Err(UNKNOWN),
    })
}

fn auth(mechanism: u64, initial: Cow<'_, str>) -> Result<Command<'_>, Reply> {
    let mechanism = match mechanism {
        AUTH_PLAIN => Mechanism::Plain,
        AUTH_LOGIN => Mechanism::Login,
        _ => return Err(Reply::fixed(504, Status(5, 5, 4), "this mechanism is not offered; use PLAIN or LOGIN")),
    };
    Ok(Command::Auth { mechanism, initial: Some(initial).filter(|text| !text.is_empty()) })
}

fn after_word<'a>(arguments: &'a [u8], word: &str, usage: &'static str) -> Result<&'a str, Reply> {
    let text = utf8(arguments)?.trim_start_matches(' ');
    match text.split_at_checked(word.len()) {
        Some((start, rest)) if start.eq_ignore_ascii_case(word) => Ok(rest),
        _ => Err(Reply::new(501, Status(5, 5, 2), format!("usage: {usage}"))),
    }
}

fn utf8(text: &[u8]) -> Result<&str, Reply> {
    std::str::from_utf8(text).map_err(|_| Reply::fixed(501, Status(5, 5, 2), "the command is not valid UTF-8"))
}

fn bdat(arguments: &[u8]) -> Command<'static> {
    let Ok(text) = std::str::from_utf8(arguments) else { return Command::BadBdat };
    let mut words = text.split(' ').filter(|word| !word.is_empty());
    let Some(bytes) = words.next().and_then(parse_size) else { return Command::BadBdat };
    match (words.next(), words.next()) {
        (None, None) => Command::Bdat { bytes, last: false },
        (Some(word), None) if word.eq_ignore_ascii_case("LAST") => Command::Bdat { bytes, last: true },
        _ => Command::BadBdat,
    }
}

fn refusal(error: &Error) -> Reply {
    match error {
        Error::SyntaxError { syntax } => Reply::new(501, Status(5, 5, 4), format!("usage: {syntax}")),
        Error::InvalidParameter { param } => Reply::new(501, Status(5, 5, 4), format!("{param} is not valid")),
        _ => UNKNOWN,
    }
}

const UNKNOWN: Reply = Reply::fixed(500, Status(5, 5, 2), "command not recognised");
const NO_ARGUMENTS: Reply = Reply::fixed(501, Status(5, 5, 4), "this command takes no arguments");

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Command<'_>, u16> {
        Command::parse(line.as_bytes()).map_err(|reply| reply.code())
    }

    #[test]
    fn commands_in_any_case() {
        assert_eq!(parse("ehlo me\r\n"), Ok(Command::Ehlo("me".into())));
        assert_eq!(parse("mail FROM:<a@b> SIZE=1\r\n"), Ok(Command::Mail("<a@b> SIZE=1")));
        assert_eq!(parse("RCPT  to: <a@b>\r\n"), Ok(Command::Rcpt(" <a@b>")));
        assert_eq!(parse("data \r\n"), Ok(Command::Data));
        assert_eq!(parse("NoOp hello\r\n"), Ok(Command::Noop));
        assert_eq!(
            parse("AUTH plain AGE=\r\n"),
            Ok(Command::Auth { mechanism: Mechanism::Plain, initial: Some("AGE=".into()) })
        );
        assert_eq!(parse("AUTH LOGIN\r\n"), Ok(Command::Auth { mechanism: Mechanism::Login, initial: None }));
    }

    #[test]
    fn chunk_sizes_never_wrap() {
        assert_eq!(parse("BDAT 12 last\r\n"), Ok(Command::Bdat { bytes: 12, last: true }));
        assert_eq!(parse("BDAT 0\r\n"), Ok(Command::Bdat { bytes: 0, last: false }));
        assert_eq!(parse("BDAT 18446744073709551617\r\n"), Ok(Command::Bdat { bytes: u64::MAX, last: false }));
        for line in ["BDAT\r\n", "BDAT x\r\n", "BDAT -1\r\n", "BDAT 1 LAST x\r\n", "BDAT 1 FIRST\r\n"] {
            assert_eq!(parse(line), Ok(Command::BadBdat), "{line}");
        }
    }

    #[test]
    fn what_cannot_be_carried_out() {
        for (line, code) in [
            ("\r\n", 500),
            (" \r\n", 500),
            (" QUIT\r\n", 500),
            ("FOO\r\n", 500),
            ("STARTTLSX\r\n", 500),
            ("MAILFROM:<a@b>\r\n", 500),
            ("MAIL\r\n", 501),
            ("MAIL TO:<a@b>\r\n", 501),
            ("EHLO\r\n", 501),
            ("DATA now\r\n", 501),
            ("EXPN list\r\n", 502),
            ("AUTH\r\n", 501),
            ("AUTH CRAM-MD5\r\n", 504),
            ("VRFY\r\n", 501),
        ] {
            assert_eq!(parse(line), Err(code), "{line}");
        }
        assert_eq!(parse("GET / HTTP/1.1\r\n"), Ok(Command::Http));
        assert_eq!(Command::parse(b"RCPT TO:<\xff@b>\r\n").unwrap_err().code(), 501);
    }
}
