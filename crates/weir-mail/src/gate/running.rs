//! The running gate, as the operations use it.

use super::receiving::Receiving;
use super::stages::Stages;
use crate::accounts::{Accounts, WrongLogins};
use crate::held::HeldMail;
use crate::inbound::senders::SenderList;
use crate::operations::{Backend, Banning, Listener, Vital};
use crate::queue::Queue;
use crate::scan::Scanning;
use crate::submission::Submission;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use weir_core::time::Instant;
use weir_foundation::OperationFuture;
use weir_foundation::date::Date;
use weir_smtp::counters::CounterValues;
use weir_smtp::registry::Registry;
use weir_smtp::reply::{Reply, Status};
use weir_smtp::server::SmtpServer;
use weir_store::diary::Diary;
use weir_store::spool::Spool;

/// The parts of a running gate that the operations reach into.
pub(super) struct Running {
    pub(super) server: Arc<SmtpServer<Submission>>,
    pub(super) accounts: Accounts,
    pub(super) receiving: Option<Receiving>,
    pub(super) senders: SenderList,
    pub(super) held: HeldMail,
    pub(super) spool: Spool,
    pub(super) stages: Stages,
    pub(super) listeners: Vec<Listener>,
    pub(super) since: Instant,
    /// Where the certificate is.
    pub(super) certificate: PathBuf,
}

impl Backend for Running {
    fn vital(&self) -> Option<Vital> {
        let receiving = self.receiving.as_ref().map(|receiving| &receiving.server);
        Some(Vital {
            pid: std::process::id(),
            since: Date::new(self.since).rfc3339(),
            listeners: self.listeners.clone(),
            delivery: self.stages.delivery.about().to_owned(),
            next_hops: self.stages.delivery.next_hops(),
            sessions: self.server.registry().open() + receiving.map_or(0, |server| server.registry().open()),
            counters: named(&self.server.counters()),
            inbound: receiving.map(|server| named(&server.counters())),
            guessed_at: self.accounts.guessed_at(),
            certificate: Some(self.certificate.clone()),
        })
    }

    fn wake(&self) {
        self.held.wake();
        self.stages.scan.wake();
    }

    fn scanning(&self) -> Option<&Scanning> {
        Some(&self.stages.scan)
    }

    fn end_sessions(&self, user: &str, why: &str) -> usize {
        end_sessions(self.server.registry(), user, why)
    }

    fn sessions_of(&self, user: &str) -> usize {
        self.server.registry().open_of_user(user)
    }

    fn wrong_logins(&self, user: &str) -> WrongLogins {
        self.accounts.wrong_logins(user)
    }

    fn note_wrong_login(&self, user: &str, password: &str, from: IpAddr) {
        self.accounts.note_wrong_login(user, password, from);
    }

    fn banning(&self) -> Vec<Banning> {
        let submission =
            Banning { server: "submission", registry: Arc::clone(self.server.registry()), clock: self.server.clock() };
        let inbound = self.receiving.as_ref().map(|receiving| Banning {
            server: "inbound",
            registry: Arc::clone(receiving.server.registry()),
            clock: receiving.server.clock(),
        });
        std::iter::once(submission).chain(inbound).collect()
    }

    fn senders(&self) -> Option<&SenderList> {
        Some(&self.senders)
    }

    fn keys_changed(&self) {
        self.stages.delivery.keys_changed();
    }

    fn spool(&self) -> OperationFuture<'_, Spool> {
        let spool = self.spool.clone();
        Box::pin(async move { Ok(spool) })
    }

    fn queue(&self) -> &dyn Queue {
        &self.stages
    }

    fn diary(&self) -> Diary {
        self.spool.diary().clone()
    }
}

/// Ends the sessions of a user. One that is being answered hears its answer first.
pub(super) fn end_sessions(registry: &Registry, user: &str, why: &str) -> usize {
    registry.end_user(user, &Reply::new(421, Status(4, 7, 0), why.to_owned()))
}

fn named(counters: &CounterValues) -> BTreeMap<String, u64> {
    counters.named().into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}
