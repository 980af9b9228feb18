//! What a server offers in its answer to EHLO or LHLO (RFC 5321 section 4.1.1.1).
//!
//! Unknown keywords are ignored. The first line is the server's name.

use super::reply::Reply;

/// What a server offers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Capabilities {
    /// Several commands in one write (RFC 2920).
    pub pipelining: bool,
    /// Bodies with octets above 127 (RFC 6152).
    pub eight_bit: bool,
    /// Addresses and headers in UTF-8 (RFC 6531).
    pub smtputf8: bool,
    /// TLS on request (RFC 3207).
    pub starttls: bool,
    /// BDAT (RFC 3030).
    pub chunking: bool,
    /// Delivery status notifications (RFC 3461).
    pub dsn: bool,
    /// The size of a message can be declared (RFC 1870).
    pub size: bool,
    /// The largest message that it accepts, if it says so.
    pub size_max: Option<u64>,
    /// AUTH PLAIN.
    pub auth_plain: bool,
    /// AUTH LOGIN.
    pub auth_login: bool,
}

impl Capabilities {
    /// Parses the answer to EHLO.
    pub fn parse(reply: &Reply) -> Capabilities {
        let mut all = Capabilities::default();
        reply.text.split('\n').skip(1).for_each(|line| all.add(line));
        all
    }

    fn add(&mut self, line: &str) {
        // Some old servers write AUTH=PLAIN.
        let mut words = line.split([' ', '=', '\r', '\t']).filter(|word| !word.is_empty());
        match words.next().unwrap_or_default().to_ascii_uppercase().as_str() {
            "PIPELINING" => self.pipelining = true,
            "8BITMIME" => self.eight_bit = true,
            "SMTPUTF8" => self.smtputf8 = true,
            "STARTTLS" => self.starttls = true,
            "CHUNKING" => self.chunking = true,
            "DSN" => self.dsn = true,
            "SIZE" => self.size_line(words.next()),
            "AUTH" => words.for_each(|word| self.auth(word)),
            _ => {}
        }
    }

    fn size_line(&mut self, limit: Option<&str>) {
        self.size = true;
        // Zero means "no limit" (RFC 1870 section 4).
        self.size_max = limit.and_then(|text| text.parse().ok()).filter(|limit| *limit > 0);
    }

    fn auth(&mut self, mechanism: &str) {
        self.auth_plain |= mechanism.eq_ignore_ascii_case("PLAIN");
        self.auth_login |= mechanism.eq_ignore_ascii_case("LOGIN");
    }
}

/// The name that a server gives itself in its greeting or in its answer to EHLO.
pub fn announced_name(reply: &Reply) -> &str {
    reply.text.split([' ', '\n', '\r', '\t']).next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Capabilities {
        Capabilities::parse(&Reply { code: 250, text: text.into() })
    }

    #[test]
    fn keywords_are_read_in_any_case() {
        let all = parse(
            "mx.example hello\nPIPELINING\nsize 1000\n8bitmime\nSMTPUTF8\nSTARTTLS\nCHUNKING\nDSN\nAUTH plain LOGIN\nX",
        );
        assert!(all.pipelining && all.eight_bit && all.smtputf8 && all.starttls && all.chunking && all.dsn);
        assert!(all.auth_plain && all.auth_login);
        assert_eq!((all.size, all.size_max), (true, Some(1000)));
    }

    #[test]
    fn the_first_line_is_a_name_and_sizes_may_be_odd() {
        assert_eq!(parse("PIPELINING"), Capabilities::default());
        assert_eq!(parse("x\nSIZE\nPIPELININGS").size_max, None);
        assert_eq!(parse("x\nSIZE 0").size_max, None);
        assert_eq!(parse("x\nSIZE 99999999999999999999999").size_max, None);
        assert!(parse("x\nAUTH=PLAIN").auth_plain);
        assert_eq!(announced_name(&Reply { code: 220, text: "mx.example ESMTP".into() }), "mx.example");
    }
}
