//! The command AUTH: when it is allowed, the exchange with the client, and the result.

use weir_core::time::Instant;

use super::super::reply::{Reply, Status};
use super::super::sasl::{Exchange, Mechanism, SaslStep};
use super::super::settings::{Auth, AuthWithoutTls};
use super::{CloseReason, LoginVerdict, Output, Pending, Question, Session, State};

impl Session {
    /// Whether a password may be sent over this connection.
    pub(super) fn auth_allowed(&self) -> bool {
        let plain = match self.settings.auth_without_tls {
            AuthWithoutTls::Never => false,
            AuthWithoutTls::Loopback => self.peer.is_loopback(),
            AuthWithoutTls::Everywhere => true,
        };
        self.peer.tls.is_some() || plain
    }

    pub(super) fn auth_offered(&self) -> bool {
        self.settings.auth != Auth::Off && self.auth_allowed() && self.peer.user.is_none()
    }

    pub(super) fn auth(&mut self, mechanism: Mechanism, initial: Option<&str>) -> Option<Output<'static>> {
        if self.settings.auth == Auth::Off {
            return self.error(&Reply::fixed(502, Status(5, 5, 1), "AUTH is not offered here"));
        }
        if !self.auth_allowed() {
            return self.error(&Reply::fixed(538, Status(5, 7, 11), "say STARTTLS first: a password needs encryption"));
        }
        if self.peer.helo.is_none() {
            return self.out_of_sequence("say EHLO first");
        }
        if self.peer.user.is_some() {
            return self.out_of_sequence("you are already logged in");
        }
        if self.transaction.is_some() {
            return self.out_of_sequence("not inside a message; say RSET first");
        }
        self.login_step(Exchange::begin(mechanism, initial))
    }

    pub(super) fn login_step(&mut self, step: SaslStep) -> Option<Output<'static>> {
        match step {
            SaslStep::Challenge(exchange, text) => {
                self.state = State::Sasl(exchange);
                self.say(&Reply::bare(334, text))
            }
            SaslStep::Done(login) => {
                self.ask(Pending::Login);
                Some(Output::Ask(Question::Login(login)))
            }
            SaslStep::Failed(reply) => self.error(&reply),
        }
    }

    /// Answers [`Question::Login`].
    pub fn login_answered(&mut self, verdict: LoginVerdict, now: Instant) {
        if !matches!(self.state, State::Asked(Pending::Login)) {
            return;
        }
        self.back_to_commands(now);
        if matches!(self.state, State::Closed(_)) {
            return;
        }
        match verdict {
            LoginVerdict::Accept(user) => {
                self.peer.user = Some(user);
                self.say(&Reply::fixed(235, Status(2, 7, 0), "welcome"));
            }
            LoginVerdict::Refuse(reply) => self.login_refused(&reply),
            LoginVerdict::Unavailable(reply) => {
                self.error(&reply);
            }
            LoginVerdict::RefuseAndClose(reply) => self.close(&reply, CloseReason::Logins),
        }
    }

    fn login_refused(&mut self, reply: &Reply) {
        self.say(reply);
        self.tally.failed_logins += 1;
        if self.tally.failed_logins >= self.settings.limits.failed_logins_per_session {
            self.close(&TOO_MANY_LOGINS, CloseReason::Logins);
        }
    }
}

const TOO_MANY_LOGINS: Reply = Reply::fixed(421, Status(4, 7, 0), "too many failed logins; closing");
