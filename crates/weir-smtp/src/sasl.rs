//! AUTH PLAIN (RFC 4616) and AUTH LOGIN, one line at a time.
//!
//! The result is a user and a password, both in UTF-8 without control characters and of bounded length. The caller checks whether they are
//! right.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::reply::{Reply, Status};

const USER_MAX: usize = 255;
const PASSWORD_MAX: usize = 1_000;

/// A way to log in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mechanism {
    /// User and password in one message.
    Plain,
    /// User and password in a line each.
    Login,
}

/// A login that a client claims.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Login {
    /// The client gave a password.
    Password {
        /// How it was sent.
        mechanism: Mechanism,
        /// The user as typed.
        user: Box<str>,
        /// The password.
        password: Password,
    },
    /// A listed peer named the user by XCLIENT. There is no password; check that the user exists and is not locked.
    Vouched {
        /// The user.
        user: Box<str>,
    },
}

impl Login {
    /// The user as typed.
    pub fn user(&self) -> &str {
        match self {
            Login::Password { user, .. } | Login::Vouched { user } => user,
        }
    }
}

/// A password. It does not appear in logs.
#[derive(Clone, PartialEq, Eq)]
pub struct Password(Box<str>);

impl Password {
    /// Wraps a password.
    pub fn new(text: &str) -> Password {
        Password(text.into())
    }

    /// The password itself.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password(…)")
    }
}

/// A login exchange in progress, by the line that comes next.
///
/// `Plain` → done; `LoginUser → LoginPassword` → done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Exchange {
    Plain,
    LoginUser,
    LoginPassword { user: Box<str> },
}

/// The result of a line of the exchange.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum SaslStep {
    Challenge(Exchange, &'static str),
    Done(Login),
    Failed(Reply),
}

impl Exchange {
    /// Begins an exchange. `initial` is the response that came with the command (`=` is an empty one).
    pub(crate) fn begin(mechanism: Mechanism, initial: Option<&str>) -> SaslStep {
        let exchange = match mechanism {
            Mechanism::Plain => Exchange::Plain,
            Mechanism::Login => Exchange::LoginUser,
        };
        match initial {
            None => exchange.challenge(),
            Some("=") => exchange.take(Vec::new()),
            Some(text) => exchange.respond(text.as_bytes()),
        }
    }

    /// Takes the client's next line, without CR LF.
    pub(crate) fn respond(self, line: &[u8]) -> SaslStep {
        if line == b"*" {
            return SaslStep::Failed(Reply::fixed(501, Status(5, 7, 0), "login cancelled"));
        }
        match STANDARD.decode(line) {
            Ok(response) => self.take(response),
            Err(_) => SaslStep::Failed(Reply::fixed(501, Status(5, 5, 2), "that is not valid base64")),
        }
    }

    fn challenge(self) -> SaslStep {
        // "Username:" and "Password:" in base64, as every client of LOGIN expects.
        let text = match self {
            Exchange::Plain => "",
            Exchange::LoginUser => "VXNlcm5hbWU6",
            Exchange::LoginPassword { .. } => "UGFzc3dvcmQ6",
        };
        SaslStep::Challenge(self, text)
    }

    fn take(self, response: Vec<u8>) -> SaslStep {
        let Ok(text) = String::from_utf8(response) else {
            return SaslStep::Failed(Reply::fixed(501, Status(5, 5, 2), "user and password must be UTF-8"));
        };
        match self {
            Exchange::Plain => plain(&text),
            Exchange::LoginUser if !is_user(&text) => SaslStep::Failed(BAD_USER),
            Exchange::LoginUser => Exchange::LoginPassword { user: text.into() }.challenge(),
            Exchange::LoginPassword { user } => done(Mechanism::Login, &user, &text),
        }
    }
}

fn plain(text: &str) -> SaslStep {
    let mut parts = text.split('\0');
    let (Some(acts_as), Some(user), Some(password), None) = (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return SaslStep::Failed(Reply::fixed(501, Status(5, 5, 2), "PLAIN needs: identity NUL user NUL password"));
    };
    if !acts_as.is_empty() && acts_as != user {
        return SaslStep::Failed(Reply::fixed(535, Status(5, 7, 8), "acting as another user is not possible"));
    }
    done(Mechanism::Plain, user, password)
}

fn done(mechanism: Mechanism, user: &str, password: &str) -> SaslStep {
    if !is_user(user) {
        return SaslStep::Failed(BAD_USER);
    }
    if password.is_empty() || password.len() > PASSWORD_MAX || password.contains('\0') {
        return SaslStep::Failed(Reply::fixed(535, Status(5, 7, 8), "the password is empty or too long"));
    }
    SaslStep::Done(Login::Password { mechanism, user: user.into(), password: Password::new(password) })
}

/// Whether a user's name has a sensible length and is safe to print.
pub(crate) fn is_user(text: &str) -> bool {
    (1..=USER_MAX).contains(&text.len()) && !text.contains(char::is_control)
}

const BAD_USER: Reply = Reply::fixed(535, Status(5, 7, 8), "the user name is empty, too long, or not printable");

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(text: &str) -> String {
        STANDARD.encode(text)
    }

    fn outcome(step: &SaslStep) -> String {
        match step {
            SaslStep::Challenge(_, text) => format!("334 {text}"),
            SaslStep::Done(Login::Password { user, password, .. }) => format!("{user}/{}", password.reveal()),
            SaslStep::Done(Login::Vouched { .. }) => "vouched".into(),
            SaslStep::Failed(reply) => reply.code().to_string(),
        }
    }

    #[test]
    fn plain_in_one_and_in_two_lines() {
        let response = encoded("\0ann\0secret");
        assert_eq!(outcome(&Exchange::begin(Mechanism::Plain, Some(&response))), "ann/secret");
        assert_eq!(outcome(&Exchange::begin(Mechanism::Plain, None)), "334 ");
        assert_eq!(outcome(&Exchange::Plain.respond(response.as_bytes())), "ann/secret");
        assert_eq!(outcome(&Exchange::Plain.respond(encoded("ann\0ann\0pw").as_bytes())), "ann/pw");
    }

    #[test]
    fn login_asks_twice() {
        let SaslStep::Challenge(user, "VXNlcm5hbWU6") = Exchange::begin(Mechanism::Login, None) else { panic!() };
        let SaslStep::Challenge(password, "UGFzc3dvcmQ6") = user.respond(encoded("ann").as_bytes()) else { panic!() };
        assert_eq!(outcome(&password.respond(encoded("geheim ü").as_bytes())), "ann/geheim ü");
        assert_eq!(outcome(&Exchange::begin(Mechanism::Login, Some(&encoded("ann")))), "334 UGFzc3dvcmQ6");
    }

    #[test]
    fn nonsense_fails() {
        for (text, code) in [
            ("*", "501"),
            ("not base64!", "501"),
            ("YQ", "501"),
            ("/w==", "501"),
            (encoded("ann").as_str(), "501"),
            (encoded("\0ann\0pw\0x").as_str(), "501"),
            (encoded("bob\0ann\0pw").as_str(), "535"),
            (encoded("\0\0pw").as_str(), "535"),
            (encoded("\0a\nb\0pw").as_str(), "535"),
            (encoded("\0ann\0").as_str(), "535"),
            (encoded(&format!("\0{}\0pw", "a".repeat(256))).as_str(), "535"),
            (encoded(&format!("\0ann\0{}", "a".repeat(1001))).as_str(), "535"),
        ] {
            assert_eq!(outcome(&Exchange::Plain.respond(text.as_bytes())), code, "{text}");
        }
        assert_eq!(outcome(&Exchange::begin(Mechanism::Plain, Some("="))), "501");
        assert_eq!(outcome(&Exchange::begin(Mechanism::Login, Some("="))), "535");
    }

    #[test]
    fn a_password_is_not_shown() {
        assert_eq!(format!("{:?}", Password::new("secret")), "Password(…)");
    }
}
