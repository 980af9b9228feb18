//! Postfix's policy protocol: the throttle decides about one recipient at a time, and Postfix keeps the mail.
//!
//! [`weir_smtp::policy`] is the protocol without I/O, `door` its sockets, `Submission::may_go` the decision. Postfix may ask
//! several times about one recipient of one message, in several lists of restrictions; the answer is the same.

mod memory;
mod settings;

pub use settings::{OnHeld, PolicySettings};

use crate::door::{Closing, Door, DoorSpec, Socket};
use crate::refusals::{POLICY, Refusals};
use crate::submission::{MayGo, OneRecipient, Submission};
use memory::Memory;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::time::timeout;
use weir_foundation::date::Date;
use weir_smtp::policy::{self, Request, Requests};
use weir_smtp::reception::{Alarm, Reception};
use weir_smtp::reply::{Reply, Status};
use weir_store::diary::Facts;
use weir_store::spool::Spool;

/// How often permissions are looked through that nobody has used.
const FORGET_EVERY: Duration = Duration::from_secs(3_600);
/// The longest name of a user; what is longer is nobody's.
const LOGIN_MAX: usize = 320;

/// What connections share.
pub(crate) struct PolicyDoor {
    on_held: OnHeld,
    idle: Duration,
    submission: Submission,
    refusals: Refusals,
    memory: Memory,
}

impl PolicyDoor {
    /// The door, and where it is.
    pub(crate) fn new(settings: &PolicySettings, submission: Submission, spool: Spool) -> (DoorSpec, PolicyDoor) {
        let place = DoorSpec {
            name: "policy",
            about: "Postfix's policy protocol",
            section: "policy_service",
            listen: settings.listen.clone(),
            listen_unix: settings.listen_unix.clone(),
            clients: settings.clients.clone(),
            connections: settings.connections,
        };
        let (refusals, memory) = (Refusals::new(spool, &POLICY), Memory::default());
        (place, PolicyDoor { on_held: settings.on_held, idle: settings.idle, submission, refusals, memory })
    }

    /// The action for a request.
    async fn answer(&self, request: &Request) -> String {
        if request.login.is_empty() {
            return "DUNNO".to_owned();
        }
        if request.login.len() > LOGIN_MAX || request.login.chars().any(char::is_control) {
            return "REJECT 5.7.1 the name of this login cannot be read".to_owned();
        }
        match (request.state.as_str(), request.recipient.is_empty()) {
            ("RCPT" | "DATA" | "END-OF-MESSAGE", false) => self.about_recipient(request).await,
            // Each of several recipients has been asked about, or nobody can say anything about them.
            ("DATA" | "END-OF-MESSAGE", true) if self.memory.knows(&request.instance) => "DUNNO".to_owned(),
            ("DATA" | "END-OF-MESSAGE", true) => {
                self.raise("Postfix asks after the recipients are named; ask in smtpd_recipient_restrictions");
                "DEFER_IF_PERMIT 4.3.5 the policy service has to be asked about each recipient".to_owned()
            }
            _ => "DUNNO".to_owned(),
        }
    }

    async fn about_recipient(&self, request: &Request) -> String {
        if let Some(known) = self.memory.answer(&request.instance, &request.recipient) {
            return known;
        }
        let asked = OneRecipient {
            login: &request.login,
            sender: &request.sender,
            recipient: &request.recipient,
            client: &request.client_address,
        };
        let action = match self.submission.may_go(&asked).await {
            Ok(MayGo::Now) => "DUNNO".to_owned(),
            Ok(MayGo::Later(until)) => {
                let action = self.later(until);
                let event = if self.on_held == OnHeld::Hold { "held" } else { "deferred" };
                self.refusals.write(event, &action, facts(request));
                action
            }
            Err(reply) => {
                if reply.is_temporary() {
                    self.raise(reply.text());
                }
                self.refusals.note(&reply, facts(request));
                refused(&reply)
            }
        };
        self.memory.note(&request.instance, &request.recipient, &action);
        action
    }

    fn later(&self, until: Option<weir_core::time::Instant>) -> String {
        // A client that comes back at the minute that it was told must not be too early.
        let minute = |at| Date::new(at + Duration::from_secs(59)).hour_minute();
        let when = until.map_or_else(String::new, |at| format!("; it may go at {}", minute(at)));
        match self.on_held {
            OnHeld::Defer => {
                format!("DEFER_IF_PERMIT 4.7.1 too many new recipients at once{when}, try again then")
            }
            OnHeld::Hold => format!("HOLD too many new recipients at once{when}"),
        }
    }

    fn raise(&self, problem: &str) {
        tracing::error!(problem, "no decision about a recipient; Postfix defers it");
        self.submission.alarm(&Alarm::DoorFails { door: "policy_service".into(), problem: problem.into() });
    }
}

/// What is known of a message that nobody here has seen.
fn facts(request: &Request) -> Facts {
    Facts {
        from: request.sender.clone(),
        to: vec![request.recipient.clone()],
        client: request.client_address.clone(),
        login: request.login.clone(),
        ..Facts::default()
    }
}

fn refused(reply: &Reply) -> String {
    let Status(class, subject, detail) = reply.status().unwrap_or(Status(4, 3, 0));
    let action = if reply.is_temporary() { "DEFER_IF_PERMIT" } else { "REJECT" };
    format!("{action} {class}.{subject}.{detail} {}", reply.text())
}

impl Door for PolicyDoor {
    async fn converse(self: Arc<Self>, socket: Socket, _: String, mut closing: Closing) -> io::Result<()> {
        let (mut requests, mut buffer) = (Requests::default(), vec![0; 16 << 10]);
        loop {
            loop {
                let next = requests.next_request();
                let next = next.map_err(|garbled| io::Error::new(io::ErrorKind::InvalidData, garbled))?;
                let Some(request) = next else { break };
                let action = self.answer(&request).await;
                tracing::debug!(user = request.login, recipient = request.recipient, action, "Postfix asked");
                let written = timeout(self.idle, socket.write(&policy::write(&action))).await;
                written.map_err(|_| io::ErrorKind::TimedOut)??;
            }
            if self.memory.is_due(Instant::now(), FORGET_EVERY) {
                self.submission.forget_unused().await;
            }
            let mut descriptors = Vec::new();
            let read = timeout(self.idle, socket.read(&mut buffer, &mut descriptors));
            let length = tokio::select! {
                read = read => read.map_err(|_| io::ErrorKind::TimedOut)??,
                () = closing.begins() => return Ok(()),
            };
            if length == 0 {
                return Ok(());
            }
            requests.feed(&buffer[..length]);
        }
    }
}
