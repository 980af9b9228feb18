//! Notices: telling the user and the administrator what happened, why, and what they can do.
//!
//! A stop is reported at once, to the contact address (outside the mailbox, which a worm may own), to the administrator and to the webhook.
//! A delay is reported to the contact only, and only if it is long: mail that goes a minute later needs no notice, and people who get too
//! many notices stop reading them. The administrator finds delays in the daily digest (`digest`). The mail says what the waiting mail has
//! in common and what it brings along (`evidence`), and carries two addresses that are good once: mail to one releases what the notice was
//! about, mail to the other deletes it ([`crafted`]). Nothing acts on a click. The records know which notices are due and which are in the
//! spool, so a kill in between does not lose one, and a full disk delays them. The administrator and the webhook are also notified of
//! attacks (`alarm`).

mod alarm;
pub mod crafted;
pub(crate) mod digest;
pub(crate) mod evidence;
mod settings;
mod unwritten;

pub use settings::Settings;

use crate::brought::Brought;
use crate::counted::wait;
use crate::letter::{Letter, LetterOrigin, LetterTo};
use crate::own_link::{self, Owner};
use crate::pipeline::{Pipeline, Transit};
use crate::throttle::{self, NoticeKind};
use alarm::Bells;
use crafted::{Action, Order};
use evidence::{Evidence, LOOKED_INTO_MAX, NAMED_MAX, brought_text, quoted};
use std::fmt::Write;
use std::path::PathBuf;
use tokio::sync::mpsc;
use unwritten::{Notice, Unwritten};
use weir_core::throttle::{LaneId, StopReason};
use weir_core::time::Instant;
use weir_foundation::clock::Clock;
use weir_foundation::date::Date;
use weir_foundation::supervision;
use weir_foundation::webhook::Calls;
use weir_smtp::envelope::{Envelope, MailFrom};
use weir_smtp::reception::Alarm;
use weir_store::records::{HeldRow, Records};
use weir_store::spool::{Spool, SpoolError};

/// Notices that may wait to be written, about ten megabytes; more are dropped, and the log says so. When half of them wait,
/// only stops are told: an outbreak that stops ten thousand users must not lose one of those among the others.
const WAITING_MAX: usize = 65_536;
/// Mails that a notice has an address of their own for.
const SINGLES_MAX: usize = 5;
/// What happened to whom.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoticeEvent {
    /// What.
    pub kind: NoticeKind,
    /// To whom.
    pub identity: String,
    /// The contact address; empty if none is known.
    pub contact: String,
}

/// A handle to the writer of notices. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Notices {
    told: mpsc::Sender<Told>,
}

#[derive(Debug)]
enum Told {
    Event(NoticeEvent),
    Alarm(Alarm),
}

/// What notices need of the rest of the gate.
#[derive(Clone)]
pub struct NoticeParts {
    /// Where they are written.
    pub spool: Spool,
    /// What they are about.
    pub records: Records,
    /// The files of held mail.
    pub held: PathBuf,
    /// Their way out.
    pub pipeline: Pipeline,
    /// What time it is.
    pub clock: Clock,
}

impl Notices {
    /// Starts the task that writes notices. It ends when the last handle is dropped.
    pub fn start(settings: Settings, parts: NoticeParts) -> Notices {
        let (told, mut incoming) = mpsc::channel(WAITING_MAX);
        supervision::spawn("notices", async move {
            let calls = settings.webhook.clone().map(Calls::start);
            let NoticeParts { spool, records, held, pipeline, clock } = parts;
            let writer = NoticeWriter { settings, calls, spool, records, held, pipeline, clock };
            let (mut bells, mut unwritten) = (Bells::default(), Unwritten::default());
            let mut look = tokio::time::interval(digest::LOOK_EVERY);
            loop {
                tokio::select! {
                    told = incoming.recv() => match told {
                        Some(Told::Event(event)) => writer.tell(event, &mut unwritten).await,
                        Some(Told::Alarm(alarm)) => writer.raise(&alarm, &mut bells).await,
                        None => return,
                    },
                    () = unwritten.is_due() => writer.write_again(&mut unwritten).await,
                    _ = look.tick() => writer.digest().await,
                }
            }
        });
        Notices { told }
    }

    /// Tells people. Does not wait.
    pub fn tell(&self, event: NoticeEvent) {
        let crowded = self.told.capacity() < WAITING_MAX / 2 && event.kind != NoticeKind::Stopped;
        if crowded || self.told.try_send(Told::Event(event)).is_err() {
            tracing::error!("a notice was dropped: too many at once");
        }
    }

    /// Tells the administrator of an attack. Does not wait.
    pub fn raise(&self, alarm: Alarm) {
        // Alarms come in floods; the log has each of them, and a notice that is waiting says enough.
        let _ = self.told.try_send(Told::Alarm(alarm));
    }
}

struct NoticeWriter {
    settings: Settings,
    calls: Option<Calls>,
    spool: Spool,
    records: Records,
    held: PathBuf,
    pipeline: Pipeline,
    clock: Clock,
}

impl NoticeWriter {
    /// The webhook hears of it at once; mails that cannot be written now are written later, behind those of before.
    async fn tell(&self, event: NoticeEvent, unwritten: &mut Unwritten) {
        let seen = self.situation_of(&event.identity).await;
        if is_outdated(&event, seen.as_ref()) {
            return self.told(&event).await;
        }
        let (readers, why) = (self.readers(&event), seen.as_ref().and_then(|seen| seen.stopped));
        let mut notice = Notice { readers, event, why, at: (self.clock)(), written: 0 };
        let done = self.write(&mut notice, seen, Way { calls: self.calls.as_ref(), mails: unwritten.is_empty() }).await;
        match done {
            Ok(true) => self.told(&notice.event).await,
            Ok(false) => unwritten.add(notice),
            Err(error) => {
                tracing::error!(to = ?notice.readers, %error, "a notice cannot be written yet; it is tried again");
                unwritten.add(notice);
            }
        }
    }

    /// Writes the oldest of what could not be written before. One at a time: there may be tens of thousands, and the webhook must hear of
    /// what happens meanwhile.
    async fn write_again(&self, unwritten: &mut Unwritten) {
        let Some(notice) = unwritten.first() else { return };
        let mut seen = self.situation_of(&notice.event.identity).await;
        if !is_outdated(&notice.event, seen.as_ref()) {
            if let Some(seen) = &mut seen {
                // The stop may be over by now; what it was about is still to be told.
                seen.stopped = seen.stopped.or(notice.why);
            }
            if self.write(notice, seen, Way { calls: None, mails: true }).await.is_err() {
                return unwritten.put_off();
            }
        }
        self.told(&notice.event).await;
        unwritten.first_is_written();
    }

    /// It is in the spool.
    async fn told(&self, event: &NoticeEvent) {
        if let Err(error) = self.records.throttles().told(&event.identity, event.kind as i64).await {
            tracing::warn!(%error, "a notice may be sent again after a restart");
        }
    }

    /// Whether all mails of a notice are in the spool. Those that are, are not written again.
    async fn write(&self, notice: &mut Notice, seen: Option<ThrottleThen>, way: Way<'_>) -> Result<bool, SpoolError> {
        let Notice { event, at, readers, written, .. } = notice;
        let up_to = seen.as_ref().map_or(i64::MAX, |seen| seen.up_to);
        let held = evidence::waiting(&self.records.held(), &event.identity, up_to).await.unwrap_or_default();
        let count = seen.as_ref().map_or(held.len(), |seen| seen.waiting);
        let brought = self.brought(&held).await;
        let words = Words { event, seen, held: &held, brought: &brought, count, now: Date::new(*at) };
        if let Some(calls) = way.calls {
            calls.add(words.json());
        }
        while let Some(to) = readers.get(*written).filter(|_| way.mails) {
            self.write_to(&words, to).await?;
            *written += 1;
        }
        Ok(*written == readers.len())
    }

    /// What the oldest of these mails bring along, of those whose files are here.
    async fn brought(&self, held: &[HeldRow]) -> Vec<Brought> {
        let mut mails: Vec<&str> = held.iter().map(|row| row.message.as_str()).collect();
        mails.dedup();
        let files: Vec<PathBuf> =
            mails.iter().take(LOOKED_INTO_MAX).map(|mail| self.held.join(format!("{mail}.eml"))).collect();
        let look = move || files.iter().filter_map(|file| Brought::by_file(file).ok()).collect();
        tokio::task::spawn_blocking(look).await.unwrap_or_default()
    }

    /// Who gets a mail about this.
    fn readers(&self, event: &NoticeEvent) -> Vec<String> {
        let admin = event.kind == NoticeKind::Stopped || self.settings.admin_delays;
        let readers = [Some(&event.contact), Some(&self.settings.admin).filter(|_| admin)];
        readers.into_iter().flatten().filter(|to| !to.is_empty()).cloned().collect()
    }

    /// How somebody's throttle stands now; none if the records cannot say, and then a notice offers no addresses.
    async fn situation_of(&self, identity: &str) -> Option<ThrottleThen> {
        let row = self.records.throttles().find(identity).await.ok().flatten()?;
        let throttle = throttle::machine(&row.state, None, (self.clock)()).ok()?;
        let last = throttle.held().last().map(|held| held.entry);
        let abroad = last.and_then(|entry| throttle.entry(entry)).is_some_and(|(_, lane)| lane == LaneId::Networks);
        let up_to = last.map_or(-1, |entry| entry.0 as i64);
        let stopped = throttle.stopped().map(|stop| stop.reason);
        Some(ThrottleThen { situation: throttle.situation(), up_to, waiting: throttle.held_count(), stopped, abroad })
    }

    async fn write_to(&self, words: &Words<'_>, to: &str) -> Result<(), SpoolError> {
        let release = self.address(Action::Release, words, to, None).await;
        let delete = self.address(Action::Delete, words, to, None).await;
        let addresses = release.zip(delete).map(|(release, delete)| Addresses { release, delete });
        let link = self.link(words, to).await;
        let singles = self.singles(words, to).await;
        let body = words.body(addresses, &singles, &link);
        self.send(to, &words.subject(), &body).await
    }

    /// Puts a notice on its way.
    async fn send(&self, to: &str, subject: &str, body: &str) -> Result<(), SpoolError> {
        let mail = OwnMail { to, subject, body };
        post(&self.spool, &self.pipeline, &self.settings.hostname, (self.clock)(), mail).await
    }

    /// Where to look: a link to the user's own page for the contact, the console for everybody else; empty for none.
    async fn link(&self, words: &Words<'_>, to: &str) -> String {
        let (console, event) = (self.settings.link.trim_end_matches('/'), words.event);
        let Some(seen) = words.seen.as_ref().filter(|_| !console.is_empty() && to == event.contact) else {
            return console.to_owned();
        };
        let fresh = weir_store::hex(&weir_foundation::random::random::<32>());
        let Ok(secret) = self.records.secrets().find_or_set(own_link::SECRET, &fresh).await else {
            return console.to_owned();
        };
        let until_s = (self.clock)().0 / 1_000_000_000 + own_link::GOOD_FOR_S;
        let owner = Owner { identity: &event.identity, contact: &event.contact, situation: seen.situation };
        format!("{console}/link/{}", own_link::key(&secret, owner, until_s))
    }

    /// An address that is good once, for what a notice is about; none if the records do not take it.
    async fn address(&self, action: Action, words: &Words<'_>, told: &str, only: Option<&str>) -> Option<String> {
        let ThrottleThen { situation, up_to, .. } = *words.seen.as_ref()?;
        let (identity, only) = (words.event.identity.clone(), only.map(str::to_owned));
        let order = Order { action, identity, up_to, situation, told: told.to_owned(), only };
        crafted::offer(&self.records.tokens(), &order, &self.settings.hostname, (self.clock)()).await
    }

    /// Addresses that let one mail go, each with the mail in words: of the oldest, if there are several.
    async fn singles(&self, words: &Words<'_>, told: &str) -> Vec<(String, String)> {
        let mails: Vec<&[HeldRow]> = words.held.chunk_by(|a, b| a.message == b.message).collect();
        let mut singles = Vec::new();
        for mail in mails.iter().filter(|_| mails.len() > 1).take(SINGLES_MAX) {
            let [first, others @ ..] = mail else { continue };
            let more = if others.is_empty() { String::new() } else { format!(" and {} more", others.len()) };
            let Some(address) = self.address(Action::Release, words, told, Some(&first.message)).await else {
                continue;
            };
            let (subject, to) = (quoted(&first.subject), quoted(&first.recipient));
            singles.push((format!("\"{subject}\" to {to}{more}"), address));
        }
        singles
    }
}

/// One mail to many can pile up and stop in one step. Then the notice of the stop, which follows, is the true one.
fn is_outdated(event: &NoticeEvent, seen: Option<&ThrottleThen>) -> bool {
    event.kind != NoticeKind::Stopped && seen.is_some_and(|seen| seen.stopped.is_some())
}

/// How a notice goes out.
struct Way<'a> {
    /// By the webhook.
    calls: Option<&'a Calls>,
    /// By mail.
    mails: bool,
}

/// Somebody's throttle at the moment that a notice is about.
struct ThrottleThen {
    situation: u32,
    /// The newest entry of its queue; negative if there is none.
    up_to: i64,
    waiting: usize,
    stopped: Option<StopReason>,
    /// The newest of what waits, waits because it came from networks that are new to the account.
    abroad: bool,
}

/// The addresses in a notice that are good once: mail to the first lets go what it is about, mail to the second deletes it.
struct Addresses {
    release: String,
    delete: String,
}

/// What is said, in words first and numbers after.
struct Words<'a> {
    event: &'a NoticeEvent,
    seen: Option<ThrottleThen>,
    held: &'a [HeldRow],
    /// What some of that brings along.
    brought: &'a [Brought],
    count: usize,
    now: Date,
}

impl Words<'_> {
    fn subject(&self) -> String {
        let who = &self.event.identity;
        match self.event.kind {
            NoticeKind::FirstDelay => format!("Mail from {who} is being delayed"),
            NoticeKind::HalfFull => format!("Mail from {who} is piling up: {}", wait(self.count, "recipient")),
            NoticeKind::Stopped => format!("Mail from {who} is stopped: {} for you", wait(self.count, "recipient")),
        }
    }

    fn body(&self, addresses: Option<Addresses>, singles: &[(String, String)], link: &str) -> String {
        let who = &self.event.identity;
        let abroad = self.seen.as_ref().is_some_and(|seen| seen.abroad);
        let mut text = match self.event.kind {
            NoticeKind::FirstDelay if abroad => format!(
                "Somebody has written to new people as {who} from networks from which this account has not been used before. \
                 The mail is safe and goes out by itself, one new recipient at a time.\nIf it was you, nothing needs to be done. If it \
                 was not, somebody else has the password: change it now, and tell the administrator.\n"
            ),
            NoticeKind::FirstDelay => format!(
                "{who} has written to more new people than usual. The mail is safe and goes out by itself, one new recipient at a \
                 time.\nNothing needs to be done.\n"
            ),
            NoticeKind::HalfFull => format!(
                "{who} keeps writing to new people faster than they are let through{}. {}.\nThe mail is safe and goes \
                 out by itself. If it goes on like this, {who} will be stopped.\n",
                if abroad { ", from networks from which this account has not been used before" } else { "" },
                wait(self.count, "recipient")
            ),
            NoticeKind::Stopped => format!(
                "{who} was stopped at {}: {}. A worm or somebody with the password \
                 looks like this; so does an unusual mailing. {}.\n\nNo new mail is taken from {who}, and what waits stands still. Nothing \
                 is lost.\n",
                self.now,
                self.why_stopped(),
                wait(self.count, "recipient")
            ),
        };
        if let Some(Addresses { release, delete }) = addresses {
            let stopped = self.event.kind == NoticeKind::Stopped;
            let goes = if stopped { "you are asked once more, and then it goes out" } else { "it goes out at once" };
            let otherwise = if stopped {
                " The account stays locked until it gets a new password, or an administrator unlocks it."
            } else {
                ""
            };
            let _ = write!(
                text,
                "\nWhat you can do about all mail that waited when this was written (the oldest of it is named below):\n  It is right: send any mail to {release}\n    and {goes}.\n  It \
                 is not: send any mail to {delete}\n    and it is deleted.{otherwise}\n  Each address is good once, for seven days, and \
                 only until the account is stopped or unlocked again.\n"
            );
        }
        if !singles.is_empty() {
            let _ = writeln!(text, "  Only one of them is right? Send any mail to its address:");
        }
        for (mail, address) in singles {
            let _ = writeln!(text, "    {mail}:\n      {address}");
        }
        if !link.is_empty() {
            let _ = writeln!(text, "  Look at each mail: {link}");
        }
        let _ = writeln!(text, "  An administrator: weir held list --user {who}; weir user unlock {who}");
        let _ = write!(text, "\n{}{}", Evidence::of(self.held).text(), brought_text(self.brought));
        text
    }

    /// What was too much.
    fn why_stopped(&self) -> &'static str {
        match self.seen.as_ref().and_then(|seen| seen.stopped) {
            Some(StopReason::MessagesADay) => "more messages in a day than one account may send",
            Some(StopReason::NewRecipientsADay) => "more new recipients in a day than one account may write to",
            Some(StopReason::Networks) => {
                "too many new people were written to from networks from which the account has not been used before"
            }
            Some(StopReason::Correspondents) => "too many people at once, though they were written to before",
            Some(StopReason::Colleagues) => "too many colleagues at once",
            Some(StopReason::Person) => "a person locked the account",
            Some(StopReason::DelayQueue) | None => "too many new people at once",
        }
    }

    fn json(&self) -> serde_json::Value {
        let held: Vec<_> = self.held.iter().take(NAMED_MAX).map(|row| {
            serde_json::json!({ "to": row.recipient, "subject": row.subject, "source": row.source, "message": row.message })
        }).collect();
        serde_json::json!({
            "event": match self.event.kind {
                NoticeKind::FirstDelay => "throttle.delayed",
                NoticeKind::HalfFull => "throttle.half_full",
                NoticeKind::Stopped => "throttle.stopped",
            },
            "identity": self.event.identity,
            "at": self.now.to_string(),
            "waiting": self.count,
            "held": held,
        })
    }
}

/// A mail of our own.
#[derive(Clone, Copy)]
pub(crate) struct OwnMail<'a> {
    pub(crate) to: &'a str,
    pub(crate) subject: &'a str,
    pub(crate) body: &'a str,
}

/// Puts a mail of our own on its way.
pub(crate) async fn post(
    spool: &Spool,
    pipeline: &Pipeline,
    hostname: &str,
    now: Instant,
    own: OwnMail<'_>,
) -> Result<(), SpoolError> {
    let mut draft = spool.draft()?;
    let text = mail(hostname, &draft.id().to_string(), Date::new(now), own);
    draft.write(text.as_bytes()).await?;
    let envelope = Envelope { sender: MailFrom::default(), recipients: Vec::new(), ..Envelope::default() };
    let mut letter = Letter::new(&envelope, LetterOrigin::Own, "", "", now.0);
    letter.subject = own.subject.to_owned();
    letter.eight_bit = true;
    letter.to = vec![LetterTo { address: own.to.to_owned(), notify: None, orcpt: None }];
    let id = draft.commit(letter.write()).await?;
    pipeline.send(Transit::to_all(id, letter));
    Ok(())
}

/// A mail of our own as a message.
fn mail(host: &str, id: &str, now: Date, own: OwnMail<'_>) -> String {
    let OwnMail { to, subject, body } = own;
    let mut mail = format!(
        "From: Weir <weir@{host}>\r\nTo: <{to}>\r\nSubject: {}\r\nDate: {}\r\nMessage-ID: <{id}@{host}>\r\n\
         Auto-Submitted: auto-generated\r\nMIME-Version: 1.0\r\nContent-Type: text/plain; charset=utf-8\r\n\
         Content-Transfer-Encoding: 8bit\r\n\r\n",
        header_safe(subject),
        now.rfc5322(),
    );
    for line in body.lines() {
        mail.push_str(line);
        mail.push_str("\r\n");
    }
    mail
}

/// A header holds ASCII only; what is not is left out rather than encoded, for it is a login in most cases.
fn header_safe(text: &str) -> String {
    text.chars().map(|c| if c.is_ascii_graphic() || c == ' ' { c } else { '?' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn then(stopped: Option<StopReason>, abroad: bool) -> ThrottleThen {
        ThrottleThen { situation: 3, up_to: 20, waiting: 21, stopped, abroad }
    }

    /// What a notice says before it comes to what people can do.
    fn said(kind: NoticeKind, seen: Option<ThrottleThen>) -> String {
        let event = NoticeEvent { kind, identity: "ann".into(), contact: "ann@private.example".into() };
        let words = Words {
            event: &event,
            seen,
            held: &[],
            brought: &[],
            count: 21,
            now: Date::new(Instant(1_794_798_240_000_000_000)),
        };
        words.body(None, &[], "").split("  An administrator:").next().unwrap_or_default().to_owned()
    }

    #[test]
    fn a_stop_says_what_was_too_much() {
        let reasons = [
            (StopReason::DelayQueue, "too many new people at once"),
            (StopReason::MessagesADay, "more messages in a day than one account may send"),
            (StopReason::NewRecipientsADay, "more new recipients in a day than one account may write to"),
            (StopReason::Person, "a person locked the account"),
            (StopReason::Correspondents, "too many people at once, though they were written to before"),
            (StopReason::Colleagues, "too many colleagues at once"),
            (StopReason::Networks, "from networks from which the account has not been used before"),
        ];
        let mut different = BTreeSet::new();
        for (reason, words) in reasons {
            let text = said(NoticeKind::Stopped, Some(then(Some(reason), false)));
            let begins = "ann was stopped at 2026-11-16";
            assert!(text.starts_with(begins) && text.contains(words) && text.contains("21 recipients wait"), "{text}");
            different.insert(text);
        }
        assert_eq!(different.len(), reasons.len(), "each has words of its own");
        let unknown = said(NoticeKind::Stopped, None);
        assert!(unknown.contains("too many new people at once"), "{unknown}");
    }

    #[test]
    fn a_delay_asks_about_the_password_only_where_the_networks_are_new() {
        const NEW: &str = "from networks from which this account has not been used before";
        for kind in [NoticeKind::FirstDelay, NoticeKind::HalfFull] {
            let (abroad, at_home) = (said(kind, Some(then(None, true))), said(kind, Some(then(None, false))));
            assert!(abroad.contains(NEW) && !at_home.contains("network"), "{abroad}\n{at_home}");
            assert!(abroad.contains("goes out by itself"), "{abroad}");
        }
        let (abroad, at_home) = (true, false);
        let first = |abroad| said(NoticeKind::FirstDelay, Some(then(None, abroad)));
        assert!(first(abroad).contains("somebody else has the password: change it now"), "{}", first(abroad));
        assert!(first(at_home).contains("Nothing needs to be done.") && !first(at_home).contains("password"));
        let half = said(NoticeKind::HalfFull, Some(then(None, true)));
        assert!(half.contains("If it goes on like this, ann will be stopped."), "{half}");
        // What stopped an account is one reason, and where the newest mail came from is not another.
        let stopped = said(NoticeKind::Stopped, Some(then(Some(StopReason::DelayQueue), true)));
        assert!(!stopped.contains("network"), "{stopped}");
    }

    #[test]
    fn a_stop_is_asked_about_once_more_and_a_delay_is_not() {
        let body = |kind| {
            let event = NoticeEvent { kind, identity: "ann".into(), contact: String::new() };
            let words =
                Words { event: &event, seen: None, held: &[], brought: &[], count: 2, now: Date::new(Instant(0)) };
            let addresses = Addresses { release: "weir+release-x@a".into(), delete: "weir+delete-y@a".into() };
            let singles = [("\"lunch\" to bob@b".to_owned(), "weir+release-z@a".to_owned())];
            words.body(Some(addresses), &singles, "https://console")
        };
        let (stop, delay) = (body(NoticeKind::Stopped), body(NoticeKind::FirstDelay));
        assert!(stop.contains("you are asked once more") && stop.contains("stays locked until"), "{stop}");
        assert!(delay.contains("and it goes out at once") && !delay.contains("stays locked"), "{delay}");
        for text in [&stop, &delay] {
            let parts = ["weir+release-x@a", "weir+delete-y@a", "\"lunch\" to bob@b:\n      weir+release-z@a\n"];
            assert!(parts.iter().all(|part| text.contains(part)), "{text}");
            assert!(text.contains("  Look at each mail: https://console\n"), "{text}");
        }
        assert!(!said(NoticeKind::Stopped, None).contains("weir+"), "no addresses where there are none");
    }
}
