//! Decides about one recipient for another server that keeps the mail (policy service). Weir has no message to hold, so the client has to
//! try again.
//!
//! A recipient that would be held has its entry in the delay queue all the same, with a row that no relay keeps a message for. When its
//! turn comes, or a person releases it, the row says so, and the next time that server asks about it, it goes. Until then all questions
//! about the same user and recipient count as one: asking again neither costs anything nor speeds it up.

use super::{Case, Ruling, Submission, SubmissionRefusal};
use crate::letter::{Letter, LetterOrigin};
use crate::submission::standing::check_lock;
use crate::throttle::{SubmitOutcome, machine};
use weir_core::throttle::EntryId;
use weir_core::time::Instant;
use weir_smtp::envelope::{Envelope, MailFrom, RcptTo};
use weir_smtp::mailbox::Mailbox;
use weir_smtp::reply::{Reply, Status};
use weir_store::records::{Fate, HeldRow, RecordsError, UserRow};

/// What is shown where a subject would be: nobody here has seen the mail.
const SUBJECT: &str = "(the mail is with the server that asked)";
/// A permission that nobody has used for so long is forgotten; servers give up on mail after five days.
const FORGOTTEN_AFTER_NS: i64 = 7 * 86_400 * 1_000_000_000;

/// One recipient that another server asks about.
pub(crate) struct OneRecipient<'a> {
    /// Who is logged in there, as that server says.
    pub(crate) login: &'a str,
    pub(crate) sender: &'a str,
    pub(crate) recipient: &'a str,
    /// The client of that server.
    pub(crate) client: &'a str,
}

/// What becomes of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MayGo {
    Now,
    /// Not before this time, as far as is known now.
    Later(Option<Instant>),
}

impl Submission {
    /// Who a login of another server is here. Refuses those who are locked.
    pub(super) async fn known(&self, login: &str) -> Result<(String, Option<UserRow>), Reply> {
        let identity = self.shared.accounts.spelled(login).await.map_err(|error| away(&error))?;
        let user = self.user(&identity).await?;
        user.as_ref().map_or(Ok(()), check_lock)?;
        Ok((identity, user))
    }

    /// Whether mail may go to one recipient now.
    pub(crate) async fn may_go(&self, asked: &OneRecipient<'_>) -> Result<MayGo, Reply> {
        let (identity, user) = self.known(asked.login).await?;
        let exempt = user.as_ref().is_some_and(|user| user.profile == "exempt");
        if !exempt && !self.shared.settings.learn_only {
            self.check_stop(&identity).await?;
        }
        let recipient = asked.recipient.to_lowercase();
        if let Some(known) = self.asked_before(&identity, &recipient).await? {
            return Ok(known);
        }
        let envelope = Envelope {
            sender: MailFrom { mailbox: Mailbox::parse(asked.sender).ok(), ..MailFrom::default() },
            recipients: vec![recipient_of(&recipient)?],
            ..Envelope::default()
        };
        if self.is_order(&envelope.recipients[0]) {
            return Ok(MayGo::Now);
        }
        let now = (self.shared.clock.0)();
        let mut letter = Letter::new(&envelope, LetterOrigin::Submitted, &identity, asked.client, now.0);
        SUBJECT.clone_into(&mut letter.subject);
        letter.taken_over = true;
        self.ask_about(&identity, user.as_ref(), &letter).await
    }

    async fn ask_about(&self, identity: &str, user: Option<&UserRow>, letter: &Letter) -> Result<MayGo, Reply> {
        // A name for the row, as messages have one; there is no message.
        let draft = self.shared.spool.draft().map_err(|error| crate::intake::refusal(&error))?;
        let case =
            Case { id: draft.id(), identity, user, taken_before: false, message_id: "", size: 0, elsewhere: true };
        let ruled = self.ask(&case, letter).await.map_err(|refused| match refused {
            SubmissionRefusal::Certain(reply) | SubmissionRefusal::InDoubt(reply) => reply,
        });
        let Ruling { outcome, .. } = ruled?;
        let SubmitOutcome::Accepted { held, expected, notice, stopped, .. } = outcome else {
            return Err(self.stopped_reply(identity));
        };
        if let Some(kind) = notice {
            self.tell(kind, identity, user);
        }
        match (held, stopped) {
            (0, _) => Ok(MayGo::Now),
            (_, Some(_)) => Err(self.stopped_reply(identity)),
            (_, None) => Ok(MayGo::Later(expected.map(|(_, last)| last))),
        }
    }

    /// The answer, if this recipient was asked about before and that is not settled.
    async fn asked_before(&self, identity: &str, recipient: &str) -> Result<Option<MayGo>, Reply> {
        let held = self.shared.records.held();
        let rows = held.asked(identity, recipient).await.map_err(|error| away(&error))?;
        let Some(HeldRow { entry, fate, .. }) = rows.into_iter().next() else { return Ok(None) };
        let used = [(identity.to_owned(), entry)];
        match fate {
            Fate::Held => Ok(Some(MayGo::Later(self.expected(identity, entry).await?))),
            Fate::Go => {
                held.done(&used).await.map_err(|error| away(&error))?;
                Ok(Some(MayGo::Now))
            }
            Fate::Drop => {
                held.done(&used).await.map_err(|error| away(&error))?;
                Err(Reply::new(550, Status(5, 7, 1), "somebody has decided that this mail is not to be sent"))
            }
        }
    }

    async fn expected(&self, identity: &str, entry: i64) -> Result<Option<Instant>, Reply> {
        let row = self.shared.records.throttles().find(identity).await.map_err(|error| away(&error))?;
        let throttle = row.and_then(|row| machine(&row.state, None, (self.shared.clock.0)()).ok());
        let held = throttle.and_then(|throttle| throttle.held().find(|held| held.entry == EntryId(entry as u64)));
        Ok(held.and_then(|held| held.expected_at))
    }

    /// Forgets permissions that nobody has used.
    pub(crate) async fn forget_unused(&self) {
        let before = ((self.shared.clock.0)().0 as i64).saturating_sub(FORGOTTEN_AFTER_NS);
        if let Err(error) = self.shared.records.held().forget_asked(before).await {
            tracing::warn!(%error, "permissions that nobody used are not forgotten yet");
        }
    }
}

fn recipient_of(address: &str) -> Result<RcptTo, Reply> {
    RcptTo::parse(&format!("<{address}>"), true)
}

fn away(error: &RecordsError) -> Reply {
    tracing::error!(%error, "the records do not answer");
    Reply::new(451, Status(4, 3, 0), "the throttle cannot decide now, try again later")
}
