//! The list of incidents that are open or were closed a short while ago. It opens, continues, closes and reopens incidents. It does no I/O:
//! looks at the gates, changes and the time are passed in.
//!
//! - A sign opens an incident when it has lasted for a time that depends on its kind, and closes it when it has been gone for a quiet time.
//!   If it comes back soon after that, the same incident goes on, and its next quiet time is twice as long: an attack in waves makes one
//!   incident, not a hundred.
//! - At most [`NAMED_MAX`] incidents of a kind are open at once. All others of that kind are counted in one additional incident.
//! - Stopped accounts have a story each, up to [`STOPPED_MAX`] at once: people look for them by name afterwards. Beyond [`NAMED_MAX`] there
//!   is one about all of them as well, and no separate messages are sent about the others: ten thousand stopped accounts cause a few
//!   messages, not ten thousand.
//! - If a look cannot read something, the incident about it stays open.

use super::kind::IncidentKind;
use super::rules::{LookFindings, Sign};
use super::story::Story;
use super::tally::Tally;
use crate::words::grouped;
use std::collections::BTreeMap;
use weir_foundation::audit::AuditView;
use weir_store::records::IncidentRow;

/// How many open incidents of one kind there are at most, each about one subject.
pub(super) const NAMED_MAX: usize = 5;
/// The same for stopped accounts.
pub(super) const STOPPED_MAX: usize = 50;
/// How many subjects are named in a sentence about several.
const SUBJECTS_NAMED: usize = 5;
/// How often the quiet time may be doubled.
const DOUBLED_MAX: u32 = 6;
const QUIET_MAX_S: i64 = 3_600;
/// An open incident is written at least this often, which shows that a relay is responsible for it.
const WRITE_EVERY_S: i64 = 10;
/// An incident that another relay is responsible for is not tried for this long.
const ELSEWHERE_S: i64 = 60;

/// One incident of the book.
#[derive(Debug, Clone)]
pub(super) struct BookEntry {
    pub(super) kind: IncidentKind,
    pub(super) row: IncidentRow,
    pub(super) story: Story,
    /// Whether it differs from what is stored.
    pub(super) changed: bool,
    /// Whether this look opened it.
    just_begun: bool,
}

impl BookEntry {
    /// As it was stored; nothing if its kind is not known to this version.
    pub(super) fn read(row: IncidentRow) -> Option<BookEntry> {
        Some(BookEntry {
            kind: IncidentKind::named(&row.kind)?,
            story: Story::read(&row.story),
            row,
            changed: false,
            just_begun: false,
        })
    }

    pub(super) fn is_open(&self) -> bool {
        self.row.closed_s.is_none()
    }

    fn quiet_s(&self) -> i64 {
        let quiet = self.kind.words().quiet_s << self.story.again.min(DOUBLED_MAX);
        quiet.min(QUIET_MAX_S.max(self.kind.words().quiet_s))
    }

    fn may_go_on(&self, now_s: i64) -> bool {
        self.row.closed_s.is_some_and(|closed| now_s - closed < self.kind.words().again_s.max(2 * self.quiet_s()))
    }
}

/// What is open, and what was until a moment ago.
#[derive(Debug, Default)]
pub(super) struct Book {
    relay: String,
    pub(super) entries: Vec<BookEntry>,
    /// Signs that have not been there for long enough yet, and since when they are there.
    waiting: BTreeMap<(IncidentKind, String), i64>,
    /// Incidents that another relay is responsible for, and until when this is assumed.
    elsewhere: BTreeMap<(IncidentKind, String), i64>,
    last: Option<Tally>,
}

impl Book {
    /// A book of this relay with what it has stored.
    pub(super) fn new(relay: &str, rows: Vec<IncidentRow>) -> Book {
        let entries = rows.into_iter().filter_map(BookEntry::read).collect();
        Book { relay: relay.to_owned(), entries, ..Book::default() }
    }

    /// Evaluates a look.
    pub(super) fn look(&mut self, seen: &LookFindings, now_s: i64) {
        let signs = self.gathered(seen);
        let before = self.count(&seen.tally);
        self.waiting.retain(|key, _| signs.iter().any(|sign| (sign.kind, &sign.subject) == (key.0, &key.1)));
        self.elsewhere.retain(|_, until| *until > now_s);
        for sign in &signs {
            self.sign(sign, now_s);
        }
        // An incident that has just begun did so between the last look and this one.
        for entry in self.entries.iter_mut().filter(|entry| entry.just_begun) {
            entry.story.tally.add(&before, &seen.tally);
            entry.just_begun = false;
        }
        for entry in self.entries.iter_mut().filter(|entry| entry.is_open()) {
            let gone_s = now_s - entry.story.sign_s;
            if gone_s >= entry.quiet_s() && !seen.blind.contains(&entry.kind) {
                // It was over when its sign was last seen.
                entry.row.closed_s = Some(entry.story.sign_s.max(entry.row.opened_s));
                entry.story.change();
                entry.changed = true;
            }
            entry.changed |= now_s - entry.row.seen_s >= WRITE_EVERY_S;
        }
        self.entries.retain(|entry| entry.is_open() || entry.changed || entry.may_go_on(now_s));
    }

    /// Somebody changed something.
    pub(super) fn act(&mut self, number: i64, line: &AuditView) {
        // What Weir itself did is in the story already.
        if line.actor == "weir" {
            return;
        }
        for entry in &mut self.entries {
            if entry.kind.concerns(&entry.row.subject, line) && entry.story.act(number, line) {
                entry.changed = true;
            }
        }
    }

    /// Another relay is responsible for this one.
    pub(super) fn leave(&mut self, kind: IncidentKind, subject: &str, now_s: i64) {
        self.entries.retain(|entry| entry.row.id != 0 || entry.kind != kind || entry.row.subject != subject);
        self.elsewhere.insert((kind, subject.to_owned()), now_s + ELSEWHERE_S);
    }

    /// The signs of a look; if there are too many of one kind, the rest is combined into one.
    fn gathered(&self, seen: &LookFindings) -> Vec<Sign> {
        let mut signs = Vec::new();
        let mut crowds: BTreeMap<IncidentKind, Vec<&Sign>> = BTreeMap::new();
        let mut named: BTreeMap<IncidentKind, usize> = BTreeMap::new();
        for entry in self.entries.iter().filter(|entry| entry.is_open() && !entry.row.subject.is_empty()) {
            *named.entry(entry.kind).or_default() += 1;
        }
        for sign in &seen.signs {
            let named = named.entry(sign.kind).or_default();
            let is_stop = sign.kind == IncidentKind::Stopped;
            if self.find(sign).is_some_and(|at| self.entries[at].is_open()) {
                signs.push(sign.clone());
            } else if *named < if is_stop { STOPPED_MAX } else { NAMED_MAX } {
                let untold = *named >= NAMED_MAX;
                *named += usize::from(sign.opens);
                signs.push(Sign { untold, ..sign.clone() });
            } else if sign.opens && !is_stop {
                crowds.entry(sign.kind).or_default().push(sign);
            }
        }
        for kind in seen.more.keys() {
            crowds.entry(*kind).or_default();
        }
        let stops: Vec<&Sign> = seen.signs.iter().filter(|sign| sign.kind == IncidentKind::Stopped).collect();
        if stops.len() > NAMED_MAX || crowds.contains_key(&IncidentKind::Stopped) {
            crowds.insert(IncidentKind::Stopped, stops);
        }
        let more = |kind: &IncidentKind| seen.more.get(kind).copied().unwrap_or(0);
        signs.extend(crowds.iter().map(|(kind, crowd)| crowd_sign(*kind, crowd, more(kind))));
        signs
    }

    /// Counts what everybody got since the last look, which it returns.
    fn count(&mut self, tally: &Tally) -> Tally {
        let before = self.last.replace(*tally).unwrap_or(*tally);
        for entry in self.entries.iter_mut().filter(|entry| entry.is_open()) {
            entry.story.tally.add(&before, tally);
        }
        before
    }

    fn find(&self, sign: &Sign) -> Option<usize> {
        // The newest of several, because the others are over.
        self.entries.iter().rposition(|entry| entry.kind == sign.kind && entry.row.subject == sign.subject)
    }

    fn sign(&mut self, sign: &Sign, now_s: i64) {
        match self.find(sign) {
            Some(at) if self.entries[at].is_open() => {
                let entry = &mut self.entries[at];
                entry.changed |= entry.story.goes_on(&sign.says, sign.height, now_s);
                entry.changed |= entry.story.name(&sign.names);
            }
            _ if !sign.opens => {}
            Some(at) => self.begin_again(at, sign, now_s),
            None => self.begin(sign, now_s),
        }
    }

    fn begin(&mut self, sign: &Sign, now_s: i64) {
        let key = (sign.kind, sign.subject.clone());
        if self.elsewhere.contains_key(&key) {
            return;
        }
        let since = *self.waiting.entry(key.clone()).or_insert(now_s);
        if now_s - since < sign.kind.words().patience_s {
            return;
        }
        self.waiting.remove(&key);
        let words = sign.kind.words();
        let row = IncidentRow {
            id: 0,
            scope: if words.of_site { String::new() } else { self.relay.clone() },
            relay: self.relay.clone(),
            kind: words.name.to_owned(),
            subject: sign.subject.clone(),
            title: sign.kind.title(&sign.subject).to_owned(),
            opened_s: since,
            seen_s: now_s,
            closed_s: None,
            story: String::new(),
        };
        let mut story = Story::begun(&sign.says, sign.height, now_s);
        story.name(&sign.names);
        if sign.untold {
            story.keep_quiet();
        }
        self.entries.push(BookEntry { kind: sign.kind, row, story, changed: true, just_begun: true });
    }

    fn begin_again(&mut self, at: usize, sign: &Sign, now_s: i64) {
        let entry = &mut self.entries[at];
        if !entry.may_go_on(now_s) {
            self.entries.remove(at);
            return self.begin(sign, now_s);
        }
        entry.row.closed_s = None;
        entry.story.again += 1;
        entry.story.change();
        entry.story.name(&sign.names);
        entry.story.tell("It began again.", now_s);
        entry.story.sign_s = now_s;
        entry.story.height = sign.height;
        sign.says.iter().for_each(|says| entry.story.tell(says, now_s));
        entry.changed = true;
    }
}

/// One sign that stands for many.
fn crowd_sign(kind: IncidentKind, crowd: &[&Sign], more: u64) -> Sign {
    let number = crowd.len() as u64 + more;
    let named: Vec<&str> = crowd.iter().take(SUBJECTS_NAMED).map(|sign| sign.subject.as_str()).collect();
    let what = match (kind, number) {
        (IncidentKind::Stopped, _) => format!("{} accounts are stopped", grouped(number)),
        _ => format!("The same is seen {} times more", grouped(number)),
    };
    let among = match named.as_slice() {
        [] => String::new(),
        named => format!(", among them {}", named.join(", ")),
    };
    let names = crowd.iter().map(|sign| sign.subject.clone()).collect();
    Sign { names, ..Sign::new(kind, "", format!("{what}{among}."), number as f64) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sign(kind: IncidentKind, subject: &str, height: f64) -> Sign {
        Sign::new(kind, subject, format!("{subject}: {height}"), height)
    }

    fn seen(signs: Vec<Sign>) -> LookFindings {
        LookFindings { signs, ..LookFindings::default() }
    }

    fn stopped(subject: &str) -> LookFindings {
        seen(vec![sign(IncidentKind::Stopped, subject, 20.0)])
    }

    /// Gives numbers, as the store does.
    fn stored(book: &mut Book) -> usize {
        let mut written = 0;
        for (at, entry) in book.entries.iter_mut().enumerate() {
            written += usize::from(entry.changed);
            entry.row.id = at as i64 + 1;
            entry.changed = false;
        }
        written
    }

    fn open(book: &Book) -> usize {
        book.entries.iter().filter(|entry| entry.is_open()).count()
    }

    #[test]
    fn an_incident_begins_goes_on_and_is_over_after_a_quiet_time() {
        let mut book = Book::new("one", Vec::new());
        book.look(&stopped("ann"), 1_000);
        assert_eq!((stored(&mut book), open(&book)), (1, 1));
        book.look(&stopped("ann"), 1_002);
        assert_eq!(stored(&mut book), 0, "nothing new is nothing to write");
        book.look(&seen(vec![sign(IncidentKind::Stopped, "ann", 90.0)]), 1_004);
        assert_eq!(stored(&mut book), 1, "it became worse");
        book.look(&LookFindings::default(), 1_060);
        assert_eq!(open(&book), 1, "not yet");
        book.look(&LookFindings { blind: [IncidentKind::Stopped].into(), ..LookFindings::default() }, 5_000);
        assert_eq!(open(&book), 1, "nobody could see");
        book.look(&LookFindings::default(), 5_002);
        let entry = &book.entries[0];
        assert_eq!((entry.row.opened_s, entry.row.closed_s), (1_000, Some(1_004)), "{entry:?}");
        assert_eq!(entry.story.lines.len(), 2);
        book.look(&LookFindings::default(), 50_000);
        assert!(!book.entries.is_empty(), "what is not stored is not forgotten");
        stored(&mut book);
        book.look(&LookFindings::default(), 50_002);
        assert!(book.entries.is_empty());
    }

    #[test]
    fn a_story_counts_from_the_look_before_its_beginning() {
        let mut book = Book::new("one", Vec::new());
        let tally = |served: u32| {
            serde_json::from_value(serde_json::json!({ "served": served, "web_waiting": 40 })).expect("figures")
        };
        book.look(&LookFindings { tally: tally(100), ..LookFindings::default() }, 1_000);
        let flood = |served| LookFindings {
            signs: vec![sign(IncidentKind::Flood, "app", 40.0)],
            tally: tally(served),
            ..LookFindings::default()
        };
        book.look(&flood(130), 1_002);
        let cost = |book: &Book| book.entries[0].story.tally.cost(IncidentKind::Flood)[0].clone();
        assert!(
            cost(&book).contains("30 requests were served") && cost(&book).contains("At most 40 waited"),
            "{}",
            cost(&book)
        );
        book.look(&flood(150), 1_004);
        assert!(cost(&book).contains("50 requests were served"), "{}", cost(&book));
    }

    #[test]
    fn waves_are_one_incident_and_its_quiet_time_grows() {
        let mut book = Book::new("one", Vec::new());
        let (mut now_s, mut changes) = (0, 0);
        for _ in 0..200 {
            for _ in 0..10 {
                now_s += 2;
                book.look(&seen(vec![sign(IncidentKind::Flood, "app", 100.0)]), now_s);
                stored(&mut book);
            }
            for _ in 0..100 {
                now_s += 2;
                book.look(&LookFindings::default(), now_s);
                stored(&mut book);
            }
            changes = book.entries[0].story.changes;
        }
        assert_eq!(book.entries.len(), 1);
        assert!(changes < 10, "{changes} notices in {now_s} s");
    }

    #[test]
    fn a_sign_must_last_before_it_counts_and_a_weak_one_opens_nothing() {
        let mut book = Book::new("one", Vec::new());
        let leader = || seen(vec![sign(IncidentKind::Leader, "", 1.0)]);
        book.look(&leader(), 100);
        book.look(&leader(), 110);
        book.look(&LookFindings::default(), 112);
        book.look(&leader(), 114);
        book.look(&leader(), 128);
        assert!(book.entries.is_empty(), "it was gone in between");
        book.look(&leader(), 130);
        assert_eq!(book.entries[0].row.opened_s, 114, "it began when it was first seen");
        let weak = Sign { opens: false, ..sign(IncidentKind::Flood, "app", 9.0) };
        book.look(&seen(vec![weak.clone()]), 132);
        assert_eq!(book.entries.len(), 1);
        book.look(&seen(vec![sign(IncidentKind::Flood, "app", 50.0)]), 134);
        book.look(&seen(vec![weak]), 400);
        assert_eq!(book.entries[1].story.sign_s, 400, "and a weak one keeps open what is");
    }

    #[test]
    fn ten_thousand_stopped_accounts_are_a_few_incidents_with_a_count() {
        let mut book = Book::new("one", Vec::new());
        let signs =
            |from: usize| (from..from + 20).map(|n| sign(IncidentKind::Stopped, &format!("user{n}"), 20.0)).collect();
        let looks = |from: usize| LookFindings {
            signs: signs(from),
            more: [(IncidentKind::Stopped, 9_980)].into(),
            blind: [IncidentKind::Stopped].into(),
            ..LookFindings::default()
        };
        for at in 0..1_000 {
            book.look(&looks(10 * at as usize), 1_000 + at);
            stored(&mut book);
        }
        assert_eq!(book.entries.len(), STOPPED_MAX + 1);
        let told = book.entries.iter().filter(|entry| entry.story.told < entry.story.changes).count();
        assert_eq!(told, NAMED_MAX + 1, "the others are in the one about all of them");
        let crowd = book.entries.iter().find(|entry| entry.row.subject.is_empty()).expect("one about several");
        assert_eq!(crowd.row.title, "Many accounts stopped");
        assert!(
            crowd.story.lines[0].1.contains("10\u{202f}000 accounts are stopped, among them user0, user1"),
            "{crowd:?}"
        );
        assert!(crowd.story.lines.len() < 4 && crowd.story.height >= 9_995.0);
        assert_eq!(crowd.story.names.len(), crate::incidents::story::NAMES_MAX);
    }

    #[test]
    fn the_sixth_stopped_account_has_a_story_too_and_the_one_about_all_names_it() {
        let mut book = Book::new("one", Vec::new());
        let all = || seen((0..7).map(|n| sign(IncidentKind::Stopped, &format!("user{n}"), 20.0)).collect());
        book.look(&all(), 1_000);
        stored(&mut book);
        let subjects: Vec<&str> = book.entries.iter().map(|entry| entry.row.subject.as_str()).collect();
        assert_eq!(subjects, ["user0", "user1", "user2", "user3", "user4", "user5", "user6", ""]);
        assert_eq!(book.entries[7].story.names, ["user0", "user1", "user2", "user3", "user4", "user5", "user6"]);
        // They are over without a word, too.
        book.look(&LookFindings::default(), 1_100);
        let untold = book.entries.iter().filter(|entry| entry.story.told == entry.story.changes);
        assert_eq!((open(&book), untold.count()), (0, 2));
    }

    #[test]
    fn what_another_relay_looks_after_is_left_to_it_for_a_while() {
        let mut book = Book::new("two", Vec::new());
        book.look(&stopped("ann"), 1_000);
        book.leave(IncidentKind::Stopped, "ann", 1_000);
        book.look(&stopped("ann"), 1_030);
        assert!(book.entries.is_empty());
        book.look(&stopped("ann"), 1_070);
        assert_eq!(book.entries.len(), 1, "it is tried again");
    }

    #[test]
    fn an_incident_goes_on_after_a_restart() {
        let mut book = Book::new("one", Vec::new());
        book.look(&stopped("ann"), 1_000);
        stored(&mut book);
        let rows = book.entries.iter().map(|entry| IncidentRow { story: entry.story.written(), ..entry.row.clone() });
        let mut again = Book::new("one", rows.collect());
        again.look(&stopped("ann"), 2_000);
        assert_eq!((again.entries.len(), again.entries[0].row.opened_s, open(&again)), (1, 1_000, 1));
    }

    #[test]
    fn what_people_did_is_told_once_and_what_weir_did_is_not() {
        let mut book = Book::new("one", Vec::new());
        book.look(&stopped("ann"), 1_000);
        let line = |actor: &str, action: &str, subject: &str| AuditView {
            at: "2026-11-17T20:00:00Z".into(),
            actor: actor.into(),
            action: action.into(),
            subject: subject.into(),
            detail: String::new(),
        };
        book.act(7, &line("olga", "user.lock", "ann"));
        book.act(7, &line("olga", "user.lock", "ann"));
        book.act(8, &line("olga", "user.lock", "bob"));
        book.act(9, &line("weir", "user.lock", "ann"));
        let acts = &book.entries[0].story.acts;
        assert_eq!((acts.len(), acts[0].who.as_str()), (1, "olga"));
    }
}
