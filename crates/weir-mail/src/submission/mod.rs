//! Submission: accepts mail from users, and asks the throttle about it.
//!
//! The order of the steps makes it crash-safe. The body streams into the spool. Then the letter is committed and the throttle decides, both
//! at the same time, because each waits for a disk. Held mail gets a file of its own. Only when all of this is durable does the client hear
//! `250`. A failure on the way is a temporary refusal and leaves nothing behind, except that the throttle may have counted the mail. A
//! message found in the spool at start without a decision is decided then; it may have been acknowledged, so it is never refused. Entries
//! found without a message are dropped (`HeldMail::drop_orphans`).

mod asked;
mod settings;
mod standing;
mod submission_settings;
mod takeover;
mod withdrawal;

pub(crate) use asked::{MayGo, OneRecipient};
use settings::Split;
pub use settings::{Identity, Notify, RaiseAlarm, Settings, recipient_key};
pub use submission_settings::SubmissionSettings;
pub(crate) use takeover::{OfferedMessage, copied, header_of};

use crate::accounts::{Accounts, Login as Account};
use crate::decided::Decided;
use crate::held::{HeldError, HeldMail};
use crate::intake::{Care, Incoming, Missing, refusal, trace};
use crate::letter::{Letter, LetterOrigin};
use crate::orders::Orders;
use crate::pipeline::{Pipeline, Transit};
use crate::throttle::{NoticeKind, Submission as Question, SubmitOutcome, Throttling, ThrottlingError};
use std::sync::Arc;
use weir_core::address::canonical;
use weir_foundation::clock::Clock;
use weir_foundation::date::Date;
use weir_smtp::envelope::{Envelope, MailFrom, RcptTo};
use weir_smtp::mailbox::Mailbox;
use weir_smtp::peer::SmtpPeer;
use weir_smtp::reception::{Alarm, Reception};
use weir_smtp::reply::{Reply, Status};
use weir_smtp::sasl::Login;
use weir_smtp::session::{LoginVerdict, MessageAnswer, PolicyVerdict};
use weir_store::diary::{DiaryLine, Facts};
use weir_store::records::{ASKED_BY_SERVER, HeldRow, Records, UserRow};
use weir_store::spool::{Draft, MessageId, Share, Spool};

/// Notices that a start makes up for; more than that cannot be an accident.
const UNTOLD_MAX: i64 = 500;

/// The reception behind the submission ports. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Submission {
    shared: Arc<SubmissionParts>,
}

/// What submission needs of the rest of the gate.
#[derive(Debug)]
pub struct SubmissionParts {
    /// How it behaves.
    pub settings: Arc<Settings>,
    /// Mail in transit.
    pub spool: Spool,
    /// Users and throttle states.
    pub records: Records,
    /// Logins.
    pub accounts: Accounts,
    /// Decisions.
    pub throttling: Throttling,
    /// Held mail.
    pub held: HeldMail,
    /// The stages that follow.
    pub pipeline: Pipeline,
    /// What time it is.
    pub clock: ClockBox,
}

/// A clock that can be shown in a debug print.
#[derive(Clone)]
pub struct ClockBox(pub Clock);

impl std::fmt::Debug for ClockBox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Clock")
    }
}

impl Submission {
    /// A reception with these parts.
    pub fn new(shared: SubmissionParts) -> Submission {
        Submission { shared: Arc::new(shared) }
    }

    /// A way back to it that does not keep it alive.
    pub(crate) fn weakly(&self) -> impl Fn() -> Option<Submission> + use<> {
        let shared = Arc::downgrade(&self.shared);
        move || shared.upgrade().map(|shared| Submission { shared })
    }

    /// Decides a letter found in the spool, whose decision was never made or never written down. If that cannot be
    /// done now, the letter stays, and it can be tried again.
    pub async fn resume(&self, id: MessageId, letter: Letter) -> Result<(), Reply> {
        let rows = self.shared.held.rows_of(id).await.map_err(|error| {
            tracing::error!(%id, %error, "the records do not answer");
            Reply::new(451, Status(4, 3, 0), "held mail cannot be looked up now, try again later")
        })?;
        if letter.taken_over {
            // The throttle decided before it was committed. Without rows, what was held has gone already; the rest was never ours.
            return self.carry_on(id, Arc::new(letter), Vec::new(), !rows.is_empty()).await;
        }
        if !rows.is_empty() {
            let places = (0..letter.to.len()).filter(|place| !rows.contains(&(*place as i64))).collect();
            return self.carry_on(id, Arc::new(letter), places, true).await;
        }
        let (identity, user) = (letter.owner.clone(), self.user(&letter.owner).await?);
        let case = Case {
            id,
            identity: &identity,
            user: user.as_ref(),
            taken_before: true,
            message_id: "",
            size: 0,
            elsewhere: false,
        };
        match self.decide(&case, letter).await {
            Ok(_) => Ok(()),
            Err(SubmissionRefusal::Certain(reply) | SubmissionRefusal::InDoubt(reply)) => Err(reply),
        }
    }

    /// Tells people what a former life decided and did not live to tell.
    pub async fn tell_untold(&self) {
        let untold = match self.shared.records.throttles().untold(UNTOLD_MAX).await {
            Ok(untold) => untold,
            Err(error) => return tracing::error!(%error, "notices that a kill cut off cannot be looked up"),
        };
        for (identity, number) in untold {
            if let (Some(kind), Ok(user)) = (NoticeKind::of(number), self.user(&identity).await) {
                self.tell(kind, &identity, user.as_ref());
            }
        }
    }

    /// Throttles a committed letter, and sends on what may go.
    async fn decide(&self, case: &Case<'_>, letter: Letter) -> Result<Reply, SubmissionRefusal> {
        let ruling = self.ask(case, &letter).await?;
        self.carry_out(case, letter, ruling).await
    }

    /// What the throttle says to a letter.
    async fn ask(&self, case: &Case<'_>, letter: &Letter) -> Result<Ruling, SubmissionRefusal> {
        let Split { trusted, mut asked } = self.shared.settings.split(case.user, letter);
        self.shared.settings.bring_together(&mut asked, letter);
        if asked.is_empty() {
            self.unless_stopped(case).await.map_err(SubmissionRefusal::Certain)?;
            return Ok(Ruling { trusted, asked, outcome: everything_goes() });
        }
        let question = self.question(case, letter, &asked);
        let outcome = self.shared.throttling.submit(question).await.map_err(|error| no_decision(case.id, &error))?;
        Ok(Ruling { trusted, asked, outcome })
    }

    /// Carries out what the throttle said to a letter that is in the spool.
    async fn carry_out(&self, case: &Case<'_>, letter: Letter, ruling: Ruling) -> Result<Reply, SubmissionRefusal> {
        let Case { id, identity, user, .. } = *case;
        let Ruling { trusted: mut going, asked, outcome } = ruling;
        let SubmitOutcome::Accepted { at_once, held, expected, queue, stopped, notice } = outcome else {
            return Err(SubmissionRefusal::Certain(self.stopped_reply(identity)));
        };
        let total = letter.to.len();
        going.extend(at_once.iter().filter_map(|place| asked.get(*place)));
        going.sort_unstable();
        // The throttle has counted the mail, whatever becomes of it now.
        if let Some(kind) = notice {
            self.tell(kind, identity, user);
        }
        let diary = self.shared.spool.diary();
        let line = DiaryLine::new(id, "accepted", "").with(letter.facts(case.size));
        diary.note(line.about([case.message_id]).at(letter.at));
        self.carry_on(id, Arc::new(letter), going, held > 0).await.map_err(SubmissionRefusal::InDoubt)?;
        tracing::debug!(%id, identity, at_once = at_once.len(), held, queue, ?stopped, "decided");
        let said = match (held, expected) {
            (0, _) => format!("accepted, on its way to {total} recipient{}", plural(total)),
            (_, Some((_, last))) => format!(
                "held: {held} of {total} recipient{} {} in the delay queue ({queue} in all), the last is expected to go at {}",
                plural(total),
                if held == 1 { "waits" } else { "wait" },
                Date::new(last).hour_minute()
            ),
            (_, None) => format!(
                "held: {held} of {total} recipient{} {} for your decision; you are stopped, see the notice",
                plural(total),
                if held == 1 { "waits" } else { "wait" },
            ),
        };
        let line = DiaryLine::new(id, if held > 0 { "held" } else { "let-go" }, said.as_str());
        diary.note(line.with(Facts { concerns: held as u64, ..Facts::default() }));
        let link = self.shared.settings.link.trim_end_matches('/');
        let see = match expected {
            _ if held == 0 || link.is_empty() => String::new(),
            Some(_) => format!(", see {link}"),
            None => format!(" and {link}"),
        };
        Ok(Reply::new(250, Status(2, 0, 0), format!("{id} {said}{see}")))
    }

    /// What was decided is carried out: the held part gets a file of its own, the rest goes.
    async fn carry_on(&self, id: MessageId, letter: Arc<Letter>, places: Vec<usize>, held: bool) -> Result<(), Reply> {
        if held {
            self.shared.held.keep(id, &letter).await.map_err(|error| not_kept(&error))?;
        }
        let _ = self.shared.spool.mark(id, Decided::mark(&places));
        if places.is_empty() {
            let _ = self.shared.spool.finish(id);
        } else {
            self.shared.pipeline.send(Transit { id, letter, places });
        }
        Ok(())
    }

    /// Asks for the recipients at these places.
    fn question(&self, case: &Case<'_>, letter: &Letter, places: &[usize]) -> Question {
        let settings = &self.shared.settings;
        let addresses: Vec<String> =
            places.iter().filter_map(|place| letter.to.get(*place)).map(|to| to.address.clone()).collect();
        let template = HeldRow {
            message: case.id.to_string(),
            relay: case.relay(&settings.relay),
            sender: letter.from.clone(),
            subject: letter.subject.clone(),
            source: letter.source.clone(),
            held_at: letter.at as i64,
            ..HeldRow::default()
        };
        Question {
            identity: case.identity.to_owned(),
            params: settings.params_of(case.user),
            recipients: addresses.iter().map(|address| settings.key_of(address)).collect(),
            classes: addresses.iter().map(|address| settings.class_of(address)).collect(),
            network: settings.network_of(&letter.source, case.identity),
            sent_as: settings.own_address(&letter.from),
            addresses,
            places: places.to_vec(),
            template,
            learn_only: settings.learn_only,
            tell_delays_over: settings.tell_delays_over,
            taken_before: case.taken_before,
        }
    }

    fn orders(&self) -> Orders<'_> {
        let SubmissionParts { settings, records, throttling, held, spool, pipeline, clock, .. } = &*self.shared;
        Orders { hostname: &settings.hostname, records, throttling, held, spool, pipeline, now: (clock.0)() }
    }

    fn tell(&self, kind: NoticeKind, identity: &str, user: Option<&UserRow>) {
        let contact = user.map_or_else(String::new, |user| user.contact.clone());
        (self.shared.settings.notify)(kind, identity, &contact);
    }
}

impl Reception for Submission {
    type Body = Incoming;

    async fn authenticate(&self, peer: &SmtpPeer, login: &Login) -> LoginVerdict {
        let account = match login {
            Login::Password { user, password, .. } => {
                self.shared.accounts.login(user, password.reveal(), peer.client).await
            }
            Login::Vouched { user } => self.shared.accounts.vouched(user).await,
        };
        match account {
            Account::Right(user) => LoginVerdict::Accept(user.name.into()),
            Account::Wrong => LoginVerdict::Refuse(Reply::new(535, Status(5, 7, 8), "wrong name or password")),
            Account::Locked(why) => LoginVerdict::Unavailable(Reply::new(535, Status(5, 7, 1), why)),
            Account::Slowed => LoginVerdict::Unavailable(Reply::fixed(
                454,
                Status(4, 7, 0),
                "too many wrong passwords were tried for this account; try again later, or from a network where you have logged in before",
            )),
            Account::Unavailable(why) => {
                tracing::error!(%why, "a login could not be checked");
                LoginVerdict::Unavailable(Reply::new(
                    454,
                    Status(4, 7, 0),
                    "the login cannot be checked now, try again later",
                ))
            }
        }
    }

    async fn mail_from(&self, peer: &SmtpPeer, sender: &MailFrom) -> PolicyVerdict {
        let Some(identity) = self.identity_of(peer) else {
            // Nobody in particular may still send an order to a crafted address; `rcpt_to` sees to the rest.
            return PolicyVerdict::Accept;
        };
        match self.check_sender(peer, &identity, sender).await {
            Ok(()) => PolicyVerdict::Accept,
            Err(reply) => PolicyVerdict::Refuse(reply),
        }
    }

    async fn rcpt_to(&self, peer: &SmtpPeer, _envelope: &Envelope, to: &RcptTo) -> PolicyVerdict {
        if let Some(verdict) = self.orders().verdict(to).await {
            return verdict;
        }
        // From some peers the header will say whose it is.
        if self.identity_of(peer).is_none() && !self.shared.settings.reads_received_from(peer) {
            return PolicyVerdict::Refuse(self.nobody());
        }
        match canonical(to.mailbox.as_str()) {
            Ok(_) => PolicyVerdict::Accept,
            Err(_) if to.mailbox == Mailbox::postmaster() => PolicyVerdict::Accept,
            Err(why) => PolicyVerdict::Refuse(Reply::new(553, Status(5, 1, 3), format!("the recipient {why}"))),
        }
    }

    async fn begin_body(&self, peer: &SmtpPeer, envelope: &Envelope) -> Result<Incoming, Reply> {
        let settings = &self.shared.settings;
        let may_be = match self.identity_of(peer).filter(|_| settings.sender_must_match) {
            Some(identity) => self.user(&identity).await?.map(|user| user.addresses),
            None => None,
        };
        // A user who has too much mail waiting already is refused before the body is sent.
        self.identity_of(peer).map_or(Ok(()), |identity| self.check_share(&identity))?;
        let draft = self.shared.spool.draft().map_err(|error| refusal(&error))?;
        let date = Date::new((self.shared.clock.0)()).rfc5322();
        let trace = match settings.received_names_client {
            true => trace::received(&settings.hostname, peer, envelope, draft.id(), &date),
            false => trace::received_from_nobody(&settings.hostname, peer, envelope, draft.id(), &date),
        };
        let message_id = format!("<{}@{}>", draft.id(), settings.hostname);
        let from = envelope.sender.mailbox.as_ref().map(ToString::to_string);
        let (hostname, missing) = (settings.hostname.clone(), Missing { date, message_id, from });
        Ok(Incoming::new(draft, trace, Care::Submitted { hostname, missing, may_be }))
    }

    async fn finish(&self, peer: &SmtpPeer, envelope: Envelope, body: Incoming) -> MessageAnswer {
        // In a box: a connection that waits for its client should not be large for it.
        match Box::pin(self.take(peer, envelope, body)).await {
            Ok(reply) | Err(reply) => MessageAnswer::All(reply),
        }
    }

    fn alarm(&self, alarm: &Alarm) {
        (self.shared.settings.alarm)(alarm);
    }
}

impl Submission {
    async fn take(&self, peer: &SmtpPeer, mut envelope: Envelope, body: Incoming) -> Result<Reply, Reply> {
        let (draft, header) = body.complete().await?;
        let mut ordered = self.orders().carry_out(&mut envelope).await?;
        if let Some(done) = ordered.take_if(|_| envelope.recipients.is_empty()) {
            return self.orders().use_up(done).await;
        }
        let (identity, user) = self.whose(peer, &envelope.sender, &header).await?;
        let (now, source) = ((self.shared.clock.0)(), self.source(peer, &header));
        let mut letter = Letter::new(&envelope, LetterOrigin::Submitted, &identity, &source, now.0);
        letter.subject = header.subject;
        // Programs that declare nothing send 8-bit text all the same.
        letter.eight_bit |= envelope.text.eight_bit;
        letter.long_lines = envelope.text.long_lines;
        let message_id = match header.message_id.is_empty() {
            true => format!("<{}@{}>", draft.id(), self.shared.settings.hostname),
            false => header.message_id,
        };
        let (id, user) = (draft.id(), user.as_ref());
        let size = draft.size();
        let case = Case {
            id,
            identity: &identity,
            user,
            taken_before: false,
            message_id: &message_id,
            size,
            elsewhere: false,
        };
        let charged = self.shared.spool.shares().charge(id, &identity, size, &self.shared.settings.share);
        charged.map_err(|share| too_much(&identity, share))?;
        match self.commit_and_decide(&case, letter, draft).await {
            Ok(reply) => {
                if let Some(done) = ordered {
                    let _ = self.orders().use_up(done).await;
                }
                Ok(reply)
            }
            Err(SubmissionRefusal::Certain(reply)) => {
                let _ = self.shared.spool.finish(case.id);
                Err(reply)
            }
            Err(SubmissionRefusal::InDoubt(reply)) => {
                self.withdraw(case.id, &identity);
                Err(reply)
            }
        }
    }

    /// Whether somebody may have another message here.
    fn check_share(&self, identity: &str) -> Result<(), Reply> {
        let share = self.shared.spool.shares().of(identity);
        if self.shared.settings.share.allow(share, 0) { Ok(()) } else { Err(too_much(identity, share)) }
    }

    /// Each waits for a disk, so both go at once.
    async fn commit_and_decide(
        &self,
        case: &Case<'_>,
        letter: Letter,
        draft: Draft,
    ) -> Result<Reply, SubmissionRefusal> {
        let (committed, ruling) = tokio::join!(draft.commit(letter.write()), self.ask(case, &letter));
        match (committed, ruling?) {
            (Ok(_), ruling) => self.carry_out(case, letter, ruling).await,
            (Err(error), Ruling { outcome: SubmitOutcome::Accepted { notice, .. }, .. }) => {
                if let Some(kind) = notice {
                    self.tell(kind, case.identity, case.user);
                }
                Err(SubmissionRefusal::InDoubt(refusal(&error)))
            }
            (Err(error), _) => Err(SubmissionRefusal::Certain(refusal(&error))),
        }
    }
}

/// A letter in the spool about which the throttle is asked.
#[derive(Clone, Copy)]
struct Case<'a> {
    id: MessageId,
    identity: &'a str,
    user: Option<&'a UserRow>,
    /// Its sender may have heard `250` before a kill.
    taken_before: bool,
    /// What its header calls it; empty if that is not known any more.
    message_id: &'a str,
    /// Its size; 0 if that is not at hand.
    size: u64,
    /// Another server has it and keeps it.
    elsewhere: bool,
}

impl Case<'_> {
    /// Who keeps the message: this relay, unless there is none here.
    fn relay(&self, own: &str) -> String {
        if self.elsewhere { ASKED_BY_SERVER.to_owned() } else { own.to_owned() }
    }
}

/// What the throttle said, and whom it was asked about.
struct Ruling {
    /// The places of recipients that go without asking.
    trusted: Vec<usize>,
    /// The places of those it was asked about.
    asked: Vec<usize>,
    outcome: SubmitOutcome,
}

/// Why a letter is not taken.
enum SubmissionRefusal {
    /// Nothing of it is in the records.
    Certain(Reply),
    /// Something of it may be.
    InDoubt(Reply),
}

fn no_decision(id: MessageId, error: &ThrottlingError) -> SubmissionRefusal {
    tracing::error!(%id, %error, "no decision; the mail is refused for now");
    SubmissionRefusal::InDoubt(match error {
        ThrottlingError::Disk(_) => {
            Reply::new(452, Status(4, 3, 1), "the disk is full; nothing was taken, try again later")
        }
        _ => Reply::new(451, Status(4, 3, 0), "the throttle cannot decide now; nothing was taken, try again later"),
    })
}

fn not_kept(error: &HeldError) -> Reply {
    tracing::error!(%error, "held mail could not be kept");
    Reply::new(452, Status(4, 3, 1), "the message could not be made safe; try again later")
}

/// One user must not fill the disk that all others share.
fn too_much(identity: &str, share: Share) -> Reply {
    let Share { messages, octets } = share;
    tracing::warn!(identity, messages, octets, "a user has as much mail here as one may have; more is refused for now");
    let text = format!(
        "{messages} message{} of {identity} ({} MiB) wait here, as many as one user may have; try again when some have gone",
        plural(messages as usize),
        octets.div_ceil(1 << 20),
    );
    Reply::new(452, Status(4, 3, 1), text)
}

fn everything_goes() -> SubmitOutcome {
    SubmitOutcome::Accepted { at_once: Vec::new(), held: 0, expected: None, queue: 0, stopped: None, notice: None }
}

fn plural(count: usize) -> &'static str {
    if count == 1 { "" } else { "s" }
}
