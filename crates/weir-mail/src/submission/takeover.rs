//! Decides about mail that another server has (milter): Weir takes over the mail that would be held, and the rest stays with that server.
//!
//! The order of the steps makes it crash-safe. The throttle decides first, and its decision is durable; then the message is committed to
//! the spool and gets its file among the held mail; only then does the server hear that these recipients are no longer its own. Killed
//! before the commit, we have entries without a message, and the next start drops them ([`crate::held::HeldMail::drop_orphans`]); killed
//! after it, the message is held. In both cases the server heard no answer, so it defers the mail: nothing is lost, and a client that sends
//! again may have what was taken over held a second time.

use super::{Case, Ruling, Submission, SubmissionRefusal, not_kept, plural};
use crate::decided::Decided;
use crate::intake::header::{HEADER_MAX, MailHeader, end_of_header};
use crate::intake::{Care, Incoming, Missing, refusal, trace};
use crate::letter::{Letter, LetterOrigin};
use crate::notices::crafted;
use crate::throttle::SubmitOutcome;
use std::collections::BTreeSet;
use weir_foundation::date::Date;
use weir_scan::content::Content;
use weir_smtp::envelope::{Envelope, RcptTo};
use weir_smtp::peer::SmtpPeer;
use weir_smtp::reception::BodySink;
use weir_smtp::reply::{Reply, Status};
use weir_store::diary::{DiaryLine, Facts};
use weir_store::spool::Draft;

/// How much of a message is copied at a time.
const PIECE: usize = 64 << 10;

/// A message that another server has.
pub(crate) struct OfferedMessage<'a> {
    /// Who is logged in there, as that server says.
    pub(crate) login: &'a str,
    /// The client of that server.
    pub(crate) peer: &'a SmtpPeer,
    pub(crate) envelope: &'a Envelope,
    pub(crate) content: &'a Content,
    /// What the content turned out to be.
    pub(crate) eight_bit: bool,
    pub(crate) long_lines: bool,
}

impl Submission {
    /// The places of the recipients that were taken over: they are held here, durably. A refusal is about all of them.
    pub(crate) async fn take_over(&self, asked: &OfferedMessage<'_>) -> Result<Vec<usize>, Reply> {
        let (identity, user) = self.known(asked.login).await?;
        self.check_share(&identity)?;
        let draft = self.shared.spool.draft().map_err(|error| refusal(&error))?;
        let header = header_of(asked.content)?;
        let letter = self.letter_of(asked, &identity, &header);
        let message_id = header.message_id.clone();
        let case = Case {
            id: draft.id(),
            identity: &identity,
            user: user.as_ref(),
            taken_before: false,
            message_id: &message_id,
            size: asked.content.length(),
            elsewhere: false,
        };
        match self.rule(&case, asked, letter, draft).await {
            Ok(held) => Ok(held),
            Err(SubmissionRefusal::Certain(reply)) => Err(reply),
            Err(SubmissionRefusal::InDoubt(reply)) => {
                self.withdraw(case.id, &identity);
                Err(reply)
            }
        }
    }

    /// Whether an address is one from a notice of ours: it goes to Weir and to nobody else, so it is no recipient for the throttle.
    pub(crate) fn is_order(&self, to: &RcptTo) -> bool {
        crafted::parse(to.mailbox.local(), to.mailbox.domain(), &self.shared.settings.hostname).is_some()
    }

    fn letter_of(&self, asked: &OfferedMessage<'_>, identity: &str, header: &MailHeader) -> Letter {
        let (now, source) = ((self.shared.clock.0)(), asked.peer.client.to_string());
        let mut letter = Letter::new(asked.envelope, LetterOrigin::Submitted, identity, &source, now.0);
        letter.subject.clone_from(&header.subject);
        letter.eight_bit |= asked.eight_bit;
        letter.long_lines = asked.long_lines;
        letter.taken_over = true;
        letter
    }

    async fn rule(
        &self,
        case: &Case<'_>,
        asked: &OfferedMessage<'_>,
        letter: Letter,
        draft: Draft,
    ) -> Result<Vec<usize>, SubmissionRefusal> {
        let Ruling { trusted, asked: places, outcome } = self.ask(case, &letter).await?;
        let SubmitOutcome::Accepted { at_once, held, expected, queue, notice, .. } = outcome else {
            return Err(SubmissionRefusal::Certain(self.stopped_reply(case.identity)));
        };
        // The throttle has counted the mail, whatever becomes of it now.
        if let Some(kind) = notice {
            self.tell(kind, case.identity, case.user);
        }
        if held == 0 {
            return Ok(Vec::new());
        }
        let goes: BTreeSet<usize> =
            trusted.into_iter().chain(at_once.iter().filter_map(|asked| places.get(*asked).copied())).collect();
        let taken: Vec<usize> = (0..letter.to.len()).filter(|place| !goes.contains(place)).collect();
        let incoming = self.incoming(asked, draft, &letter);
        self.keep_held(case, incoming, asked.content, &letter).await.map_err(SubmissionRefusal::InDoubt)?;
        let until = match expected {
            Some((_, last)) => format!("the last is expected to go at {}", Date::new(last).hour_minute()),
            None => format!("{} is stopped, and they wait for a decision", case.identity),
        };
        let said = format!(
            "another server asked: {held} of {} recipient{} taken over and held ({queue} in all), {until}",
            letter.to.len(),
            plural(letter.to.len()),
        );
        let facts = Facts { concerns: held as u64, ..Facts::default() };
        tracing::debug!(id = %case.id, identity = case.identity, held, queue, "taken over");
        self.shared.spool.diary().note(DiaryLine::new(case.id, "held", said).with(facts));
        Ok(taken)
    }

    /// Makes what is held durable.
    async fn keep_held(
        &self,
        case: &Case<'_>,
        incoming: Incoming,
        content: &Content,
        letter: &Letter,
    ) -> Result<(), Reply> {
        let draft = copied(incoming, content).await?;
        draft.commit(letter.write()).await.map_err(|error| refusal(&error))?;
        let line = DiaryLine::new(case.id, "accepted", "").with(letter.facts(case.size));
        self.shared.spool.diary().note(line.about([case.message_id]).at(letter.at));
        self.shared.held.keep(case.id, letter).await.map_err(|error| not_kept(&error))?;
        let _ = self.shared.spool.mark(case.id, Decided::mark(&[]));
        let _ = self.shared.spool.finish(case.id);
        Ok(())
    }

    fn incoming(&self, asked: &OfferedMessage<'_>, draft: Draft, letter: &Letter) -> Incoming {
        let settings = &self.shared.settings;
        let date = Date::new((self.shared.clock.0)()).rfc5322();
        let trace = match settings.received_names_client {
            true => trace::received(&settings.hostname, asked.peer, asked.envelope, draft.id(), &date),
            false => trace::received_from_nobody(&settings.hostname, asked.peer, asked.envelope, draft.id(), &date),
        };
        let message_id = format!("<{}@{}>", draft.id(), settings.hostname);
        let from = Some(letter.from.clone()).filter(|from| !from.is_empty());
        let (hostname, missing) = (settings.hostname.clone(), Missing { date, message_id, from });
        Incoming::new(draft, trace, Care::Submitted { hostname, missing, may_be: None })
    }
}

/// What matters of the header of a message.
pub(crate) fn header_of(content: &Content) -> Result<MailHeader, Reply> {
    let mut start = vec![0; usize::try_from(content.length()).unwrap_or(HEADER_MAX).min(HEADER_MAX)];
    let length = content.read_at(&mut start, 0).map_err(|error| unreadable(&error))?;
    start.truncate(length);
    let end = end_of_header(&start, 0).unwrap_or(length);
    Ok(MailHeader::read(start.get(..end).unwrap_or_default()))
}

/// The message on its way into the spool.
pub(crate) async fn copied(mut incoming: Incoming, content: &Content) -> Result<Draft, Reply> {
    let (mut piece, mut at) = (vec![0; PIECE], 0);
    loop {
        let length = content.read_at(&mut piece, at).map_err(|error| unreadable(&error))?;
        if length == 0 {
            return Ok(incoming.complete().await?.0);
        }
        incoming.write(&piece[..length]).await?;
        at += length as u64;
    }
}

fn unreadable(error: &std::io::Error) -> Reply {
    tracing::error!(%error, "a message that another server asks about cannot be read");
    Reply::new(451, Status(4, 3, 0), "the message could not be kept; nothing was taken, try again later")
}
