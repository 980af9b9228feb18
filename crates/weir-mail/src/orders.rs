//! Orders by mail: mail to a crafted address of a notice is not delivered; instead, what the address stands for (release or delete) is
//! carried out.
//!
//! Orders usually come from outside, so every port that accepts mail accepts orders. An address is used up only when its mail has been
//! accepted: a sender who hears `451` may try again, and a repeated order finds nothing to do.
//!
//! An order is about what its notice showed, in the situation that the notice was about ([`crafted`]). An order to release a stopped user's
//! mail is not carried out at once: whoever got the notice now gets the evidence and a second address, and decides with that. A deletion is
//! carried out at once, but it must not let the account send again, so the account is locked first.

use crate::accounts::stop_lock;
use crate::held::HeldMail;
use crate::notices::crafted::{self, Action, Order};
use crate::notices::evidence::{self, Evidence};
use crate::notices::{OwnMail, post};
use crate::pipeline::Pipeline;
use crate::throttle::{NotDone, ShownEntries, ThrottleCommand, Throttling, machine};
use std::collections::BTreeMap;
use weir_core::time::Instant;
use weir_smtp::envelope::{Envelope, RcptTo};
use weir_smtp::reply::{Reply, Status};
use weir_smtp::session::PolicyVerdict;
use weir_store::diary::{DiaryLine, Facts};
use weir_store::records::{AuditLine, Fate, HeldFilter, Records};
use weir_store::spool::Spool;

/// Who carries out orders, as they stand now.
pub(crate) struct Orders<'a> {
    /// The domain of crafted addresses.
    pub(crate) hostname: &'a str,
    pub(crate) records: &'a Records,
    pub(crate) throttling: &'a Throttling,
    pub(crate) held: &'a HeldMail,
    /// For the question whether a release is meant.
    pub(crate) spool: &'a Spool,
    pub(crate) pipeline: &'a Pipeline,
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
    pub(crate) async fn verdict(&self, to: &RcptTo) -> Option<PolicyVerdict> {
        let token = self.token_in(to)?;
        Some(match self.purpose(&crafted::digest(token)).await {
            Ok(_) => PolicyVerdict::Accept,
            Err(reply) => PolicyVerdict::Refuse(reply),
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
        let order = self.purpose(digest).await?;
        let fate = if order.action == Action::Delete { Fate::Drop } else { Fate::Go };
        let while_stopped = order.action != Action::Release;
        let only = self.entries_of(&order).await?;
        let messages = self.messages_of(&order).await?;
        let locks = fate == Fate::Drop && self.is_about_a_stop(&order).await?;
        if locks {
            let why = "what waited was deleted by an answer to the notice";
            let locked = stop_lock::lock(&self.records.users(), &order.identity, why, self.now).await;
            locked.map_err(|_| not_now())?;
        }
        let shown = ShownEntries { up_to: order.up_to, situation: order.situation, fate, only, while_stopped };
        let done = self
            .throttling
            .command(&order.identity, ThrottleCommand::DecideShown(shown))
            .await
            .map_err(|_| not_now())?;
        match done.not_done {
            Some(NotDone::OtherSituation) => return Err(other_situation()),
            Some(NotDone::Stopped) => return self.ask_back(&order).await,
            None => self.held.wake(),
        }
        self.note(&messages, fate);
        let mut detail = format!("{} go, {} deleted, by an answer to a notice", done.going, done.dropped);
        if locks {
            detail.push_str("; the account is locked until it gets a new password or is unlocked");
        }
        let said = format!("done for {}: {detail}", order.identity);
        let action = if fate == Fate::Drop { "held.delete" } else { "held.release" };
        self.audit(&order, action, detail).await;
        Ok(Reply::new(250, Status(2, 0, 0), said))
    }

    /// Whether its identity is stopped, and an order of this situation may decide about that.
    async fn is_about_a_stop(&self, order: &Order) -> Result<bool, Reply> {
        let row = self.records.throttles().find(&order.identity).await.map_err(|_| not_now())?;
        let throttle = row.and_then(|row| machine(&row.state, None, self.now).ok());
        Ok(throttle.is_some_and(|throttle| throttle.stopped().is_some() && throttle.situation() == order.situation))
    }

    /// The mails that an order is about, each with how many of its recipients, for the diary.
    async fn messages_of(&self, order: &Order) -> Result<BTreeMap<String, u64>, Reply> {
        let message = order.only.clone().unwrap_or_default();
        let filter = HeldFilter { identity: order.identity.clone(), message, ..HeldFilter::default() };
        let rows = self.records.held().list(&filter, i64::MAX).await.map_err(|_| not_now())?;
        let mut messages = BTreeMap::new();
        for row in rows.into_iter().filter(|row| row.entry <= order.up_to) {
            *messages.entry(row.message).or_default() += 1;
        }
        Ok(messages)
    }

    /// Noted so that people who look for these mails later see what became of them.
    fn note(&self, messages: &BTreeMap<String, u64>, fate: Fate) {
        let (event, what) = if fate == Fate::Drop { ("deleted", "deleted") } else { ("decided", "released") };
        for (message, recipients) in messages {
            let text = format!("{what} from the delay queue by an answer to a notice");
            let facts = Facts { concerns: *recipients, ..Facts::default() };
            self.spool.diary().note(DiaryLine::new(message, event, text).with(facts));
        }
    }

    /// The entries of the one mail that an order is about; nothing if it is about all.
    async fn entries_of(&self, order: &Order) -> Result<Option<Vec<i64>>, Reply> {
        let Some(message) = &order.only else { return Ok(None) };
        let filter = HeldFilter { identity: order.identity.clone(), message: message.clone(), ..HeldFilter::default() };
        let rows = self.records.held().list(&filter, i64::MAX).await.map_err(|_| not_now())?;
        Ok(Some(rows.iter().map(|row| row.entry).collect()))
    }

    /// Asks whoever was told whether a stopped user's mail shall really go, with what there is to know about it.
    async fn ask_back(&self, order: &Order) -> Result<Reply, Reply> {
        let confirm = Order { action: Action::Confirm, ..order.clone() };
        let made = crafted::offer(&self.records.tokens(), &confirm, self.hostname, self.now).await;
        let address = made.ok_or_else(not_now)?;
        let mut rows =
            evidence::waiting(&self.records.held(), &order.identity, order.up_to).await.map_err(|_| not_now())?;
        rows.retain(|row| order.only.as_ref().is_none_or(|only| row.message == *only));
        let who = &order.identity;
        let body = format!(
            "Somebody who has the notice about {who} asked for {} to be sent. {who} is stopped, because this is \
             what a worm or a stolen password looks like. So nothing has been sent yet.\n\n{}\nIf all of this is right, send any \
             mail to {address}\n  and it goes out at once. Otherwise do nothing: it keeps waiting.\n",
            if order.only.is_some() { "one mail that waits" } else { "everything that waits" },
            Evidence::of(&rows).text()
        );
        let subject = format!("Shall the mail of {who} really be sent?");
        let mail = OwnMail { to: &order.told, subject: &subject, body: &body };
        post(self.spool, self.pipeline, self.hostname, self.now, mail).await.map_err(|_| not_now())?;
        self.audit(order, "held.ask", format!("whether it shall go, at {}", order.told)).await;
        let said = format!("{who} is stopped: nothing has been sent, and {} is asked whether it shall be", order.told);
        Ok(Reply::new(250, Status(2, 0, 0), said))
    }

    async fn audit(&self, order: &Order, action: &str, detail: String) {
        let (at, actor, action) = (self.now.0 as i64, "answer to a notice".into(), action.into());
        let line = AuditLine { at, actor, action, subject: order.identity.clone(), detail };
        if let Err(error) = self.records.audit().write(&line).await {
            tracing::error!(%error, ?line, "an order by mail was carried out and could not be audited");
        }
    }

    /// What a token is for.
    async fn purpose(&self, digest: &str) -> Result<Order, Reply> {
        let purpose = self.records.tokens().purpose(digest, self.now.0 as i64).await.map_err(|_| not_now())?;
        purpose.as_deref().and_then(Order::of_purpose).ok_or_else(no_longer_good)
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

fn other_situation() -> Reply {
    Reply::fixed(
        550,
        Status(5, 7, 1),
        "this address was about another situation: the account has been stopped or unlocked since; see the latest notice",
    )
}
