//! Orders by mail: what a crafted address asks for is carried out instead of delivered.

use super::Submission;
use crate::notices::crafted::{self, Action};
use crate::outbound::Outbound;
use crate::smtp::envelope::{Envelope, RcptTo};
use crate::smtp::reply::{Reply, Status};
use crate::smtp::session::Verdict;
use crate::throttle::Command;
use weir_store::records::{AuditLine, HeldFilter};

/// Most entries one order decides about.
const ENTRIES_MAX: i64 = 100_000;

impl<O: Outbound> Submission<O> {
    /// Whether the recipient is a crafted address of ours.
    pub(super) fn is_order(&self, to: &RcptTo) -> bool {
        self.token_in(to).is_some()
    }

    /// Whether a crafted address may be written to, if the recipient is one. Whoever has no address that is good may not
    /// send us a message for nothing; it is used up only when the message has come.
    pub(super) async fn order_verdict(&self, to: &RcptTo) -> Option<Verdict> {
        let token = self.token_in(to)?;
        let now = (self.shared.clock.0)().0 as i64;
        Some(match self.shared.records.token_is_good(&crafted::digest(token), now).await {
            Ok(true) => Verdict::Accept,
            Ok(false) => Verdict::Refuse(no_longer_good()),
            Err(_) => Verdict::Refuse(Reply::new(451, Status(4, 3, 0), "this cannot be done now, try again later")),
        })
    }

    /// Takes the crafted addresses out of an envelope and carries them out; what was done, if there were any.
    pub(super) async fn carry_out_orders(&self, envelope: &mut Envelope) -> Result<Option<Reply>, Reply> {
        let (orders, others): (Vec<RcptTo>, Vec<RcptTo>) =
            envelope.recipients.drain(..).partition(|to| self.is_order(to));
        envelope.recipients = others;
        let mut said = None;
        for order in &orders {
            if let Some(token) = self.token_in(order) {
                said = Some(self.carry_out_order(token).await?);
            }
        }
        Ok(said)
    }

    async fn carry_out_order(&self, token: &str) -> Result<Reply, Reply> {
        let (records, now) = (&self.shared.records, (self.shared.clock.0)().0 as i64);
        let later = |_| Reply::new(451, Status(4, 3, 0), "this cannot be done now, try again later");
        let purpose = records.token_use(&crafted::digest(token), now).await.map_err(later)?;
        let Some((action, identity)) = purpose.as_deref().and_then(Action::of_purpose) else {
            return Err(no_longer_good());
        };
        let filter = HeldFilter { identity: identity.to_owned(), ..HeldFilter::default() };
        let entries = records.held(&filter, ENTRIES_MAX).await.map_err(later)?.iter().map(|row| row.entry).collect();
        let (command, what) = match action {
            Action::Release => (Command::Release(entries), "held.release"),
            Action::Delete => (Command::Delete(entries), "held.delete"),
        };
        let later = |_| Reply::new(451, Status(4, 3, 0), "this cannot be done now, ask an administrator");
        let done = self.shared.throttling.command(identity, command).await.map_err(later)?;
        self.shared.held.wake();
        let detail = format!("{} go, {} deleted, by a crafted mail", done.going, done.dropped);
        let (actor, action, subject) = ("crafted mail".into(), what.into(), identity.to_owned());
        if let Err(error) = records.audit(&AuditLine { at: now, actor, action, subject, detail: detail.clone() }).await
        {
            tracing::error!(%error, identity, "an order by mail was carried out and could not be audited");
        }
        Ok(Reply::new(250, Status(2, 0, 0), format!("done for {identity}: {detail}")))
    }

    fn token_in<'a>(&self, to: &'a RcptTo) -> Option<&'a str> {
        let found = crafted::parse(to.mailbox.local(), to.mailbox.domain(), &self.shared.settings.hostname);
        found.map(|(_, token)| token)
    }
}

fn no_longer_good() -> Reply {
    Reply::fixed(550, Status(5, 7, 1), "this address has been used, or is no longer good")
}
