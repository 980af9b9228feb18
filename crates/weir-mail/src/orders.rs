//! Orders by mail: what a crafted address asks for is carried out instead of delivered.
//!
//! Who writes to such an address writes from outside as a rule, so every port that takes mail takes orders. An address is used
//! up when its mail has been taken, and not before: a sender who hears `451` may come again, and a repeat finds nothing to do.

use crate::held::HeldMail;
use crate::notices::crafted::{self, Action};
use crate::throttle::{ThrottleCommand, Throttling};
use weir_core::time::Instant;
use weir_smtp::envelope::{Envelope, RcptTo};
use weir_smtp::reply::{Reply, Status};
use weir_smtp::session::Verdict;
use weir_store::records::{AuditLine, HeldFilter, Records};

/// Most entries one order decides about.
const ENTRIES_MAX: i64 = 100_000;

/// Who carries out orders, as they stand now.
pub(crate) struct Orders<'a> {
    /// The domain of crafted addresses.
    pub(crate) hostname: &'a str,
    pub(crate) records: &'a Records,
    pub(crate) throttling: &'a Throttling,
    pub(crate) held: &'a HeldMail,
    pub(crate) now: Instant,
}

/// The orders of one mail, which have been carried out.
pub(crate) struct Done {
    /// What was done last.
    reply: Reply,
    digests: Vec<String>,
}

impl Orders<'_> {
    /// Whether a crafted address may be written to, if the recipient is one. Whoever has no address that is good may not
    /// send us a message for nothing.
    pub(crate) async fn verdict(&self, to: &RcptTo) -> Option<Verdict> {
        let token = self.token_in(to)?;
        Some(match self.purpose(&crafted::digest(token)).await {
            Ok(_) => Verdict::Accept,
            Err(reply) => Verdict::Refuse(reply),
        })
    }

    /// Takes the crafted addresses out of an envelope and carries them out, if there are any.
    pub(crate) async fn carry_out(&self, envelope: &mut Envelope) -> Result<Option<Done>, Reply> {
        let (orders, others): (Vec<RcptTo>, Vec<RcptTo>) =
            envelope.recipients.drain(..).partition(|to| self.token_in(to).is_some());
        envelope.recipients = others;
        let (mut said, mut digests) = (None, Vec::new());
        for digest in orders.iter().filter_map(|order| self.token_in(order)).map(crafted::digest) {
            said = Some(self.carry_out_one(&digest).await?);
            digests.push(digest);
        }
        Ok(said.map(|reply| Done { reply, digests }))
    }

    /// The mail of these orders is taken: their addresses are no longer good. What was done, for its sender.
    pub(crate) async fn use_up(&self, done: Done) -> Result<Reply, Reply> {
        for digest in &done.digests {
            self.records.tokens().redeem(digest, self.now.0 as i64).await.map_err(|error| {
                tracing::error!(%error, "an order by mail was carried out, and its address is still good");
                not_now()
            })?;
        }
        Ok(done.reply)
    }

    async fn carry_out_one(&self, digest: &str) -> Result<Reply, Reply> {
        let (action, identity) = self.purpose(digest).await?;
        let filter = HeldFilter { identity: identity.clone(), ..HeldFilter::default() };
        let rows = self.records.held().list(&filter, ENTRIES_MAX).await.map_err(|_| not_now())?;
        let entries = rows.iter().map(|row| row.entry).collect();
        let (command, what) = match action {
            Action::Release => (ThrottleCommand::Release(entries), "held.release"),
            Action::Delete => (ThrottleCommand::Delete(entries), "held.delete"),
        };
        let done = self.throttling.command(&identity, command).await.map_err(|_| not_now())?;
        self.held.wake();
        let detail = format!("{} go, {} deleted, by a crafted mail", done.going, done.dropped);
        let said = format!("done for {identity}: {detail}");
        let (at, actor, action) = (self.now.0 as i64, "crafted mail".into(), what.into());
        if let Err(error) =
            self.records.audit().write(&AuditLine { at, actor, action, subject: identity, detail }).await
        {
            tracing::error!(%error, said, "an order by mail was carried out and could not be audited");
        }
        Ok(Reply::new(250, Status(2, 0, 0), said))
    }

    /// What a token is for, and whose mail it is about.
    async fn purpose(&self, digest: &str) -> Result<(Action, String), Reply> {
        let purpose = self.records.tokens().purpose(digest, self.now.0 as i64).await.map_err(|_| not_now())?;
        let known = purpose.as_deref().and_then(Action::of_purpose);
        known.map(|(action, identity)| (action, identity.to_owned())).ok_or_else(no_longer_good)
    }

    fn token_in<'a>(&self, to: &'a RcptTo) -> Option<&'a str> {
        crafted::parse(to.mailbox.local(), to.mailbox.domain(), self.hostname).map(|(_, token)| token)
    }
}

fn not_now() -> Reply {
    Reply::fixed(451, Status(4, 3, 0), "this cannot be done now, try again later")
}

fn no_longer_good() -> Reply {
    Reply::fixed(550, Status(5, 7, 1), "this address has been used, or is no longer good")
}
