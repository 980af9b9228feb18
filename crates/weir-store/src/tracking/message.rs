//! One message as it is tracked: what it was, what happened to it, and where it has got to.
//!
//! A message that leaves a delay queue or a quarantine goes on under a new id. It stays one tracked message, with all its ids.
//! Everything in it has a bound, because senders choose how many recipients and how long a subject it has, and a server that never takes it
//! makes a line for every attempt.

use super::fates::{Fates, Move, SplitPart, concerns};
use crate::diary::{DiaryLine, Facts};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Ids of one message.
const IDS_MAX: usize = 64;
/// Recipients by name: as many as a mail usually may have, so that a search for any of them gives a correct answer.
pub(super) const TO_MAX: usize = 1_000;
/// How many of the first acts, and how many of the last ones, are kept.
const FIRST_ACTS: usize = 20;
const LAST_ACTS: usize = 40;
/// The longest text of an act and of an answer, in characters.
const ACT_MAX: usize = 400;
const ANSWER_MAX: usize = 160;

/// A tracked message. Texts are empty where nothing is known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TrackedMessage {
    /// Its place in the order of time; unique.
    pub place: i64,
    /// Its ids, the first one first.
    pub ids: Vec<String>,
    /// When it came, and when something last happened, in nanoseconds since the Unix epoch.
    pub at: i64,
    /// When something last happened.
    pub changed: i64,
    /// The envelope sender.
    pub from: String,
    /// The recipients; of more than a thousand the first.
    pub to: Vec<String>,
    /// How many recipients there are.
    pub recipients: u64,
    /// The subject.
    pub subject: String,
    /// The size in octets.
    pub size: u64,
    /// The address of the client.
    pub client: String,
    /// The user who sent it.
    pub login: String,
    /// How it came.
    pub gate: String,
    /// The feed that scanned it.
    pub feed: String,
    /// What the scan found.
    pub verdict: String,
    /// The server to which it was last sent.
    pub destination: String,
    /// What that server said.
    pub answer: String,
    /// The hash of its Message-ID.
    pub(super) name: String,
    /// What has happened to it, in a word: `accepted`, `held`, `quarantined`, `delivered` and so on; several, with commas, if its recipients
    /// have different fates.
    pub state: String,
    /// How many recipients are where.
    pub(super) fates: Fates,
}

/// One thing that happened to a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Act {
    /// When, in nanoseconds since the Unix epoch.
    pub at: i64,
    /// Which of the message's ids.
    pub id: String,
    /// What, in a word.
    pub event: String,
    /// And in words.
    pub text: String,
    /// What else it is about.
    pub about: Vec<String>,
}

/// The same in the form in which it is stored: a JSON array takes a third of the space of an object with names.
type WrittenMessage = (
    Vec<String>,
    i64,
    i64,
    String,
    (Vec<String>, u64),
    String,
    u64,
    String,
    String,
    String,
    (String, String),
    String,
    String,
    WrittenState,
);
/// State, name, and how many recipients are where, of which older rows say less or nothing.
#[derive(Debug, Serialize, Deserialize)]
struct WrittenState(
    String,
    String,
    #[serde(default)] u64,
    #[serde(default)] u64,
    #[serde(default)] String,
    #[serde(default)] Vec<SplitPart>,
);
/// Microseconds since the message came, which of its ids, what, words, and what else it is about.
#[derive(Debug, Serialize, Deserialize)]
struct WrittenAct(i64, usize, String, String, #[serde(default)] Vec<String>);

impl TrackedMessage {
    /// A message that a line names for the first time.
    pub(super) fn new(place: i64, line: &DiaryLine) -> TrackedMessage {
        TrackedMessage { place, ids: vec![line.id.clone()], at: line.at, ..TrackedMessage::default() }
    }

    /// Applies a line; `acts` are those so far.
    pub(super) fn apply(&mut self, line: &DiaryLine, acts: &mut Vec<Act>) {
        if !self.ids.contains(&line.id) && self.ids.len() < IDS_MAX {
            self.ids.push(line.id.clone());
        }
        self.changed = self.changed.max(line.at);
        match &line.facts {
            Some(facts) => self.learn(facts),
            None if line.event == "accepted" => self.learn(&Facts::of_words(&line.text)),
            None => {}
        }
        if let Some(name) = line.about.iter().find(|thing| thing.starts_with('<')) {
            self.name = name_hash(name);
        }
        if !self.add(line, acts) {
            return;
        }
        if let Some(state) = state_after(&line.event) {
            self.move_on(state, line);
        }
        if matches!(line.event.as_str(), "delivered" | "deferred" | "undeliverable" | "refused") {
            let told = line.text.strip_prefix("to <").and_then(|rest| rest.split_once(">: "));
            self.answer = match (told, concerns(line)) {
                (Some((_, said)), many @ 2..) => format!("to {many} recipients: {said}"),
                _ => line.text.clone(),
            };
            self.answer = self.answer.chars().take(ANSWER_MAX).collect();
            if self.to.is_empty()
                && let Some((to, _)) = told
            {
                self.learn(&Facts { to: to.split(">, <").map(str::to_owned).collect(), ..Facts::default() });
            }
        }
    }

    fn move_on(&mut self, state: &'static str, line: &DiaryLine) {
        let place = |id: &String| self.ids.iter().position(|known| known == id);
        let (id, before) = (place(&line.id).unwrap_or(0), line.about.iter().find_map(place).unwrap_or(0));
        let all = self.recipients.max(1);
        self.fates.apply(&Move { line, state, id, before, all });
        self.state = self.fates.state(all);
    }

    /// Whether it is new.
    fn add(&self, line: &DiaryLine, acts: &mut Vec<Act>) -> bool {
        // The time in the precision in which it is stored, and one of the stored ids, so that the act is recognised again.
        let id = if self.ids.contains(&line.id) { Some(&line.id) } else { self.ids.first() };
        let act = Act {
            at: self.at.saturating_add(self.after(line.at).saturating_mul(1_000)),
            id: id.cloned().unwrap_or_default(),
            event: line.event.clone(),
            text: line.text.chars().take(ACT_MAX).collect(),
            // The Message-ID is not repeated, because only its hash is searched.
            about: line.about.iter().filter(|thing| !thing.starts_with('<')).cloned().collect(),
        };
        // A diary that was restored, or read again after a power cut, contains the same lines once more. Of acts that were left out only the time of the
        // last is known.
        let left_out = acts.get(FIRST_ACTS).filter(|act| act.event == LEFT_OUT);
        if acts.contains(&act) || left_out.is_some_and(|last| act.at <= last.at) {
            return false;
        }
        acts.push(act);
        if acts.len() > FIRST_ACTS + LAST_ACTS {
            let (first, next) = (acts.remove(FIRST_ACTS), acts.remove(FIRST_ACTS));
            acts.insert(FIRST_ACTS, first.and(next));
        }
        true
    }

    /// Microseconds since the message came.
    fn after(&self, at: i64) -> i64 {
        at.saturating_sub(self.at) / 1_000
    }

    /// What is known now and was not known before, or is newer.
    fn learn(&mut self, facts: &Facts) {
        let texts = [
            (&mut self.from, &facts.from),
            (&mut self.subject, &facts.subject),
            (&mut self.client, &facts.client),
            (&mut self.login, &facts.login),
            (&mut self.gate, &facts.gate),
            (&mut self.feed, &facts.feed),
            (&mut self.verdict, &facts.verdict),
            (&mut self.destination, &facts.destination),
        ];
        texts.into_iter().filter(|(_, new)| !new.is_empty()).for_each(|(known, new)| known.clone_from(new));
        if !facts.to.is_empty() {
            self.to = facts.to.iter().take(TO_MAX).cloned().collect();
            self.recipients = facts.recipients.max(facts.to.len() as u64);
        }
        if facts.size > 0 {
            self.size = facts.size;
        }
    }

    /// The facts of the first act; its words are made from them.
    fn facts(&self) -> Facts {
        Facts {
            from: self.from.clone(),
            to: self.to.clone(),
            recipients: self.recipients,
            subject: self.subject.clone(),
            client: self.client.clone(),
            login: self.login.clone(),
            ..Facts::default()
        }
    }

    /// The text for the database.
    pub(super) fn written(&self) -> String {
        let TrackedMessage { ids, at, changed, from, to, recipients, subject, size, client, login, gate, .. } =
            self.clone();
        let TrackedMessage { feed, verdict, destination, answer, state, name, .. } = self.clone();
        let (held, ended, rest, parts) = self.fates.written();
        let row: WrittenMessage = (
            ids,
            at,
            changed,
            from,
            (to, recipients),
            subject,
            size,
            client,
            login,
            gate,
            (feed, verdict),
            destination,
            answer,
            WrittenState(state, name, held, ended, rest, parts),
        );
        serde_json::to_string(&row).unwrap_or_default()
    }

    /// The message in a stored text; None if the text is not one of ours.
    pub(super) fn read(place: i64, text: &str) -> Option<TrackedMessage> {
        let row: WrittenMessage = serde_json::from_str(text).ok()?;
        let (ids, at, changed, from, (to, recipients), subject, size, client, login, gate, found, ..) = row;
        let ((feed, verdict), (destination, answer)) = (found, (row.11, row.12));
        let WrittenState(state, name, held, ended, rest, parts) = row.13;
        let fates = Fates::read((held, ended, rest, parts), &state);
        Some(TrackedMessage {
            place,
            ids,
            at,
            changed,
            from,
            to,
            recipients,
            subject,
            size,
            client,
            login,
            gate,
            feed,
            verdict,
            destination,
            answer,
            name,
            state,
            fates,
        })
    }

    /// The text of its acts for the database.
    pub(super) fn written_acts(&self, acts: &[Act]) -> String {
        let written = |act: &Act| {
            let id = self.ids.iter().position(|id| *id == act.id).unwrap_or(0);
            WrittenAct(self.after(act.at), id, act.event.clone(), act.text.clone(), act.about.clone())
        };
        serde_json::to_string(&acts.iter().map(written).collect::<Vec<_>>()).unwrap_or_default()
    }

    /// The acts in a stored text. If the first has no words, they are made from what is known.
    pub(super) fn read_acts(&self, text: &str) -> Vec<Act> {
        let acts: Vec<WrittenAct> = serde_json::from_str(text).unwrap_or_default();
        let read = |WrittenAct(after, id, event, text, about): WrittenAct| Act {
            at: self.at.saturating_add(after.saturating_mul(1_000)),
            id: self.ids.get(id).or(self.ids.first()).cloned().unwrap_or_default(),
            event,
            text,
            about,
        };
        acts.into_iter().map(read).collect()
    }

    /// The acts as they are shown to people.
    pub(super) fn told(&self, mut acts: Vec<Act>) -> Vec<Act> {
        acts.iter_mut().filter(|act| act.text.is_empty()).for_each(|act| act.text = self.facts().in_words());
        acts
    }
}

impl Act {
    /// One act that stands for this one and the next, and says how many lines are not kept. This one may be such an act already; then it
    /// stands for as many as it says.
    fn and(self, next: Act) -> Act {
        let before = self.text.split(' ').next().filter(|_| self.event == LEFT_OUT);
        let count = before.and_then(|count| count.parse::<u64>().ok()).unwrap_or(1) + 1;
        let text = format!("{count} more lines, which are not kept");
        Act { event: LEFT_OUT.to_owned(), text, about: Vec::new(), ..next }
    }
}

/// What is kept of a Message-ID: a hash, because the whole text would be a large part of what is stored for a small mail.
pub(super) fn name_hash(message_id: &str) -> String {
    let name = message_id.trim_start_matches('<').trim_end_matches('>').to_lowercase();
    crate::hex(&Sha256::digest(name)[..6])
}

/// Where a message may be.
pub const STATES: [&str; 12] = [
    "accepted",
    "held",
    "scanned",
    "waits for the scan",
    "waits for the lab",
    "quarantined",
    "released",
    "deleted",
    "delivered",
    "deferred",
    "bounced",
    "refused",
];

/// The event of a line that replaces several.
const LEFT_OUT: &str = "left-out";

/// The state of a message after an event; None if the event does not change it.
fn state_after(event: &str) -> Option<&'static str> {
    Some(match event {
        "accepted" | "let-go" | "found" => "accepted",
        "held" => "held",
        "scanned" | "verdict" | "late" => "scanned",
        "failed" => "waits for the scan",
        "pending" => "waits for the lab",
        "quarantined" => "quarantined",
        "released" | "freed" => "released",
        "deleted" | "dropped" => "deleted",
        "delivered" => "delivered",
        "deferred" => "deferred",
        "undeliverable" => "bounced",
        "refused" => "refused",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(id: &str, event: &str, text: &str, at: u64) -> DiaryLine {
        DiaryLine::new(id, event, text).at(at)
    }

    fn applied(lines: &[DiaryLine]) -> (TrackedMessage, Vec<Act>) {
        let (mut message, mut acts) = (TrackedMessage::new(7, &lines[0]), Vec::new());
        lines.iter().for_each(|line| message.apply(line, &mut acts));
        (message, acts)
    }

    #[test]
    fn a_message_is_what_its_lines_say() {
        let facts = Facts { from: "a@b".into(), to: vec!["c@d".into()], recipients: 1, size: 9, ..Facts::default() };
        let (message, acts) = applied(&[
            line("m1", "accepted", "", 1_000_000).with(facts).about(["<x@y>"]),
            line("m1", "held", "held: 1 of 1", 2_000_000),
            line("m2", "released", "goes", 3_000_000).about(["m1"]),
            line("m2", "scanned", "", 3_500_000).with(Facts { verdict: "clean".into(), ..Facts::default() }),
            line("m2", "delivered", "to <c@d>: 250 ok", 4_000_000),
            line("m2", "report", "the sender is told", 5_000_000),
        ]);
        assert_eq!((message.ids.len(), message.state.as_str(), message.changed), (2, "delivered", 5_000_000));
        assert_eq!((message.answer.as_str(), message.verdict.as_str()), ("to <c@d>: 250 ok", "clean"));
        assert_eq!(TrackedMessage::read(7, &message.written()).unwrap(), message);
        assert_eq!(message.read_acts(&message.written_acts(&acts)), acts);
        assert!(message.told(acts)[0].text.contains("<a@b> to <c@d>"));
    }

    fn about(line: DiaryLine, concerns: u64) -> DiaryLine {
        line.with(Facts { concerns, ..Facts::default() })
    }

    #[test]
    fn a_message_of_several_fates_has_all_their_states() {
        let to: Vec<String> = (0..40).map(|number| format!("r{number}@x.example")).collect();
        let accepted = line("m1", "accepted", "", 1).with(Facts { to, recipients: 40, ..Facts::default() });
        let mut lines = vec![accepted, about(line("m1", "held", "held: 25 of 40 recipients wait", 2), 25)];
        let mut state_after = |line: DiaryLine| {
            lines.push(line);
            applied(&lines).0.state
        };
        assert_eq!(state_after(line("m1", "scanned", "", 3)), "held, scanned");
        assert_eq!(state_after(line("m1", "delivered", "to <r0@x.example>: 250 ok", 4)), "held, scanned, delivered");
        assert_eq!(
            state_after(about(line("m1", "delivered", "to <r1@x.example>, <…>: 250", 5), 13)),
            "held, scanned, delivered"
        );
        assert_eq!(state_after(line("m1", "deferred", "to <r14@x.example>: 451", 6)), "held, deferred, delivered");
        assert_eq!(state_after(line("m1", "delivered", "to <r14@x.example>: 250", 7)), "held, delivered");
        assert_eq!(state_after(about(line("m2", "released", "goes", 8).about(["m1"]), 1)), "held, released, delivered");
        assert_eq!(state_after(line("m2", "undeliverable", "to <r15@x.example>: 550", 9)), "held, delivered, bounced");
        let deleted = || about(line("m1", "deleted", "deleted from the delay queue", 10), 24);
        assert_eq!(state_after(deleted()), "delivered, bounced, deleted");
        assert_eq!(state_after(deleted()), "delivered, bounced, deleted", "read twice");
    }

    #[test]
    fn all_that_is_dropped_from_the_queue_is_deleted() {
        let facts = Facts { to: vec!["a@x".into(), "b@x".into()], recipients: 2, ..Facts::default() };
        let lines = [
            line("m1", "accepted", "", 1).with(facts),
            line("m1", "delivered", "to <a@x>: 250 ok", 2),
            line("m1", "deferred", "to <b@x>: 451 later", 3),
            line("m1", "dropped", "deleted from the queue by op", 4),
        ];
        let late = line("m1", "deferred", "to <b@x>: 451 still later", 5);
        assert_eq!(applied(&[&lines[..], &[late]].concat()).0.state, "delivered, deleted");
        assert_eq!(applied(&lines[..3]).0.state, "deferred, delivered");
        let (message, _) = applied(&lines);
        assert_eq!(message.state, "delivered, deleted");
        assert_eq!(TrackedMessage::read(7, &message.written()).unwrap(), message);
        let older = message.written().replace(",0,2,\"deferred\",[]]]", "]]");
        assert!(older.ends_with("\"\"]]"), "{older}");
        assert_eq!(TrackedMessage::read(7, &older).unwrap().state, "delivered, deleted", "{older}");
    }

    #[test]
    fn of_a_mail_under_two_ids_one_is_deleted() {
        let facts = Facts { recipients: 120, to: vec!["a@x".into()], ..Facts::default() };
        let lines = [
            line("m1", "accepted", "", 1_000).with(facts),
            about(line("m1", "held", "held: 105 of 120", 2_000), 105),
            about(line("m1", "deferred", "to <a@x>, <b@x>: 451 later", 3_000), 15),
            about(line("m2", "released", "goes", 4_000).about(["m1"]), 50),
            about(line("m2", "dropped", "deleted from the queue by op", 5_000), 50),
        ];
        let (message, _) = applied(&lines);
        assert_eq!(message.state, "held, deferred, deleted");
        assert_eq!(TrackedMessage::read(7, &message.written()).unwrap(), message);
        let late = about(line("m2", "deferred", "to <c@x>: 451 later", 6_000), 50);
        let goes = about(line("m1", "delivered", "to <a@x>, <b@x>: 250 ok", 7_000), 15);
        assert_eq!(applied(&[&lines[..], &[late, goes]].concat()).0.state, "held, delivered, deleted");
    }

    #[test]
    fn a_line_that_is_read_twice_counts_once_and_a_message_has_an_end() {
        let first = line("m1", "accepted", "from 192.0.2.1 as ann: <a@b> to <c@d>, subject \"x\"", 1_234);
        let (message, acts) = applied(&[first.clone(), first.clone()]);
        assert_eq!((acts.len(), message.login.as_str(), message.to.as_slice()), (1, "ann", &["c@d".to_owned()][..]));
        let mut lines = vec![first];
        let deferred = |n: u64| line(&format!("m{n}"), "deferred", &format!("{n}{}", "x".repeat(9_000)), n * 77_777);
        lines.extend((1..5_001).map(deferred));
        let (message, acts) = applied(&lines);
        assert!(message.ids.len() == IDS_MAX && acts.len() == FIRST_ACTS + LAST_ACTS);
        assert_eq!((acts[0].event.as_str(), &acts[acts.len() - 1].text[..4]), ("accepted", "5000"));
        assert_eq!(
            (acts[FIRST_ACTS].event.as_str(), acts[FIRST_ACTS].text.split(' ').next()),
            (LEFT_OUT, Some("4942"))
        );
        let written = (message.written(), message.written_acts(&acts));
        assert!(written.1.len() < 64 << 10);
        // Read back, and then the same diary once more.
        let mut message = TrackedMessage::read(7, &written.0).unwrap();
        let mut acts = message.read_acts(&written.1);
        lines.iter().for_each(|line| message.apply(line, &mut acts));
        assert!((message.written(), message.written_acts(&acts)) == written, "{}", message.written());
        message.apply(&deferred(5_001), &mut acts);
        assert!(message.answer.starts_with("5001") && acts[acts.len() - 1].text.starts_with("5001"));
    }

    #[test]
    fn what_is_no_row_of_ours_is_no_message() {
        for text in ["", "[]", "{}", "[1,2]", "\u{0}"] {
            assert_eq!(TrackedMessage::read(1, text), None, "{text:?}");
        }
        assert!(TrackedMessage::default().read_acts("nonsense").is_empty());
    }
}
