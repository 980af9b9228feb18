//! The commands HELO, EHLO and LHLO, STARTTLS, HELP, XCLIENT and XFORWARD.

use weir_core::time::Instant;

use super::super::reply::{Reply, Status};
use super::super::sasl::Login;
use super::super::settings::Auth;
use super::super::trusted;
use super::{CloseReason, Dialect, Output, Pending, PolicyVerdict, Question, Session, State};

/// How much of the name in HELO is kept.
const NAME_MAX: usize = 255;

impl Session {
    pub(super) fn greet(&mut self) {
        let word = if self.is_lmtp() { "LMTP" } else { "ESMTP" };
        self.say(&Reply::bare(220, format!("{} {word} Weir", self.settings.hostname)));
    }

    pub(super) fn helo(&mut self, name: &str, dialect: Dialect) -> Option<Output<'static>> {
        match (self.is_lmtp(), dialect) {
            (true, Dialect::Smtp | Dialect::Esmtp) => return self.out_of_sequence("this is LMTP: say LHLO"),
            (false, Dialect::Lmtp) => return self.out_of_sequence("this is SMTP: say EHLO"),
            _ => {}
        }
        self.reset();
        self.peer.helo = Some(printable(name));
        self.peer.dialect = dialect;
        let hello = format!("{} greets {}", self.settings.hostname, self.peer.client);
        if dialect == Dialect::Smtp {
            return self.say(&Reply::bare(250, hello));
        }
        let keywords = self.keywords();
        self.say(&Reply::bare(250, format!("{hello}\n{keywords}")))
    }

    /// What EHLO offers to this peer now; one line for each keyword.
    fn keywords(&self) -> String {
        let mut lines = vec!["PIPELINING".to_owned(), format!("SIZE {}", self.settings.limits.message_bytes)];
        lines.extend(["8BITMIME", "SMTPUTF8", "CHUNKING", "ENHANCEDSTATUSCODES"].map(String::from));
        if self.settings.dsn || self.is_trusted() {
            lines.push("DSN".into());
        }
        if self.starttls_offered() {
            lines.push("STARTTLS".into());
        }
        if self.auth_offered() {
            lines.push("AUTH PLAIN LOGIN".into());
        }
        if self.is_trusted() {
            lines.extend([trusted::XCLIENT_KEYWORDS, trusted::XFORWARD_KEYWORDS].map(String::from));
        }
        lines.join("\n")
    }

    fn starttls_offered(&self) -> bool {
        self.settings.starttls && self.peer.tls.is_none()
    }

    pub(super) fn starttls(&mut self) -> Option<Output<'static>> {
        if self.peer.tls.is_some() {
            return self.out_of_sequence("TLS is already active");
        }
        if !self.settings.starttls {
            return self.error(&Reply::fixed(502, Status(5, 5, 1), "STARTTLS is not offered here"));
        }
        if self.transaction.is_some() {
            return self.out_of_sequence("not inside a message; say RSET first");
        }
        self.say(&Reply::fixed(220, Status(2, 0, 0), "ready for TLS"));
        self.state = State::Handshake;
        Some(Output::StartTls)
    }

    pub(super) fn help(&mut self) -> Option<Output<'static>> {
        let hello = if self.is_lmtp() { "LHLO" } else { "HELO EHLO" };
        let auth = if self.settings.auth == Auth::Off { "" } else { "AUTH " };
        let text = format!("{hello} STARTTLS {auth}MAIL RCPT DATA BDAT RSET NOOP VRFY HELP QUIT");
        self.say(&Reply::new(214, Status(2, 0, 0), text))
    }

    pub(super) fn xclient(&mut self, text: &str) -> Option<Output<'static>> {
        if !self.is_trusted() {
            return self.error(&NOT_LISTED);
        }
        if self.transaction.is_some() {
            return self.out_of_sequence("not inside a message; say RSET first");
        }
        match trusted::xclient(&self.peer, text) {
            Ok((peer, user)) => {
                let before = std::mem::replace(&mut self.peer, peer);
                self.ask(Pending::Client { peer: Box::new(before) });
                Some(Output::Ask(Question::Client(user.map(|user| Login::Vouched { user }))))
            }
            Err(reply) => self.error(&reply),
        }
    }

    /// Answers [`Question::Client`]: the session begins again for this client, as `user` if the peer vouched for one.
    pub fn client_answered(&mut self, verdict: Result<Option<std::sync::Arc<str>>, Reply>, now: Instant) {
        let State::Asked(Pending::Client { peer }) = &mut self.state else { return };
        match verdict {
            Ok(user) => {
                self.peer.user = user;
                self.reset();
                self.greet();
                self.back_to_commands(now);
            }
            Err(reply) => {
                self.peer = (**peer).clone();
                self.close(&reply, CloseReason::Refused);
            }
        }
    }

    pub(super) fn xforward(&mut self, text: &str) -> Option<Output<'static>> {
        if !self.is_trusted() {
            return self.error(&NOT_LISTED);
        }
        if self.transaction.is_some() {
            return self.out_of_sequence("not inside a message; say RSET first");
        }
        match trusted::xforward(self.forwarded.take(), text) {
            Ok(forwarded) => {
                self.forwarded = Some(forwarded);
                self.say(&Reply::fixed(250, Status(2, 0, 0), "noted"))
            }
            Err(reply) => self.error(&reply),
        }
    }

    /// Answers whether the client may use the server. If not, it gets this reply and no service.
    pub fn connection_answered(&mut self, verdict: PolicyVerdict) {
        if let PolicyVerdict::Refuse(reply) = verdict {
            self.replies.clear();
            self.close(&reply, CloseReason::Refused);
        }
    }
}

/// The name, with characters that do not belong in a header replaced.
fn printable(name: &str) -> Box<str> {
    let safe = |c: char| if c.is_ascii_alphanumeric() || "-._:[]".contains(c) { c } else { '?' };
    name.chars().take(NAME_MAX).map(safe).collect()
}

const NOT_LISTED: Reply = Reply::fixed(550, Status(5, 7, 0), "your address may not use this command");
