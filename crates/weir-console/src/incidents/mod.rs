//! Incidents: opened and closed by rules, each with its story.
//!
//! The `rules` examine every look at the gates (`pulse`), and the `book` opens, continues and closes incidents by what they find. The
//! `watch` does the reading and writing around that: incidents are stored in the records, so they survive a restart, are part of a backup,
//! and are seen by all relays that share a database. Each opening and closing is a line of the audit trail, from which the webhook learns
//! of it.

mod book;
mod kind;
mod rules;
mod story;
mod tally;
mod watch;

pub use watch::IncidentWatch;

use crate::html::Piece;
use kind::IncidentKind;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use story::Story;
use weir_foundation::audit::AuditView;
use weir_foundation::date::rfc3339;
use weir_foundation::{Foundation, OperationError};
use weir_store::records::{IncidentRecords, IncidentRow};

/// How many incidents a list has at most.
const LIST_MAX: i64 = 200;
/// How many stops of one account are shown.
const STOPS_MAX: i64 = 10;

/// An incident, as people and programs see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Incident {
    /// Its number.
    pub id: i64,
    /// Which rule opened it: `stopped`, `flood`, `scanner`, `virus`, `malware`, `leader`, `disk`, `gate`, `certificate` or `guessing`.
    pub kind: String,
    /// What happened, in a few words.
    pub title: String,
    /// Whom or what it is about; empty if it is about several, or if the title says it.
    pub subject: String,
    /// The subjects, if there are several; if there are very many, the first of them.
    #[serde(default)]
    pub names: Vec<String>,
    /// The relay that it concerns; empty if it concerns the whole site.
    pub relay: String,
    /// When it began.
    #[schemars(extend("format" = "date-time"))]
    pub began: String,
    /// When it was over; nothing while it goes on.
    #[schemars(extend("format" = "date-time"))]
    pub ended: Option<String>,
    /// How often it began again after it had seemed to be over.
    pub began_again: u32,
    /// What was seen, the oldest first.
    pub seen: Vec<IncidentLine>,
    /// What Weir did about it by itself.
    pub weir_did: String,
    /// What people did about it, from the audit trail, the oldest first.
    pub people_did: Vec<AuditView>,
    /// How many more things they did than are listed.
    pub people_did_more: u64,
    /// What it cost others, in sentences.
    pub cost: Vec<String>,
    /// What a person can do.
    pub to_do: String,
    /// The page of the console where that is done; empty if there is none.
    pub page: String,
}

/// A time when an account was stopped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PastStop {
    /// The number of its incident.
    pub incident: i64,
    /// When it was stopped.
    #[schemars(extend("format" = "date-time"))]
    pub began: String,
    /// When that was over; nothing while it goes on.
    #[schemars(extend("format" = "date-time"))]
    pub ended: Option<String>,
    /// The largest number of recipients that waited.
    pub held: u64,
    /// How it ended, and by whom, in words.
    pub outcome: String,
}

/// Something that was seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct IncidentLine {
    /// When.
    #[schemars(extend("format" = "date-time"))]
    pub at: String,
    /// What was seen, in words.
    pub text: String,
}

fn at(seconds: i64) -> String {
    rfc3339(seconds.saturating_mul(1_000_000_000))
}

impl Incident {
    /// From its stored form; None if a newer version wrote it.
    fn of(row: &IncidentRow) -> Option<Incident> {
        let (kind, story) = (IncidentKind::named(&row.kind)?, Story::read(&row.story));
        let words = kind.words();
        let act = |act: &story::StoryAct| AuditView {
            at: act.at.clone(),
            actor: act.who.clone(),
            action: act.action.clone(),
            subject: act.subject.clone(),
            detail: act.detail.clone(),
        };
        Some(Incident {
            id: row.id,
            kind: row.kind.clone(),
            title: row.title.clone(),
            subject: row.subject.clone(),
            names: story.names.clone(),
            relay: row.scope.clone(),
            began: at(row.opened_s),
            ended: row.closed_s.map(at),
            began_again: story.again,
            seen: story.lines.iter().map(|(when, text)| IncidentLine { at: at(*when), text: text.clone() }).collect(),
            weir_did: words.weir_did.to_owned(),
            people_did: story.acts.iter().map(act).collect(),
            people_did_more: story.more_acts,
            cost: story.tally.cost(kind),
            to_do: words.to_do.to_owned(),
            page: page(kind, &row.subject),
        })
    }

    /// The incident of a stopped account, as its page lists it.
    fn stop(row: &IncidentRow) -> PastStop {
        let story = Story::read(&row.story);
        PastStop {
            incident: row.id,
            began: at(row.opened_s),
            ended: row.closed_s.map(at),
            held: story.height as u64,
            outcome: outcome(row, &story),
        }
    }

    /// Whether it is not over yet.
    pub fn is_open(&self) -> bool {
        self.ended.is_none()
    }

    /// Its title and whom it is about.
    pub fn headline(&self) -> String {
        let row = IncidentRow { title: self.title.clone(), subject: self.subject.clone(), ..IncidentRow::default() };
        row.headline()
    }
}

/// How a stop ended, and by whom, as far as its story tells.
fn outcome(row: &IncidentRow, story: &Story) -> String {
    let mut acts: Vec<String> = Vec::new();
    for act in &story.acts {
        let done = match act.action.as_str() {
            "user.unlock" => "unlocked",
            "user.lock" => "locked",
            "user.secure" => "secured",
            "user.passwd" => "given a new password",
            "held.release" | "held.trust" => "mail released",
            "held.delete" => "mail deleted",
            _ => continue,
        };
        let said = format!("{done} by {}", act.who);
        if acts.last() != Some(&said) {
            acts.push(said);
        }
    }
    let nobody = if row.closed_s.is_some() { "over; no act of a person is on record" } else { "still stopped" };
    if acts.is_empty() { nobody.to_owned() } else { acts.join(", ") }
}

/// The page where something can be done about it.
fn page(kind: IncidentKind, subject: &str) -> String {
    match (kind, subject) {
        (IncidentKind::Stopped | IncidentKind::Guessing, user) if !user.is_empty() => {
            format!("/throttle/users/{}", Piece(user))
        }
        _ => kind.words().page.to_owned(),
    }
}

/// Shows incidents. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Incidents {
    records: IncidentRecords,
}

impl Incidents {
    /// Those of this site.
    pub fn new(foundation: &Foundation) -> Incidents {
        Incidents { records: foundation.records.incidents() }
    }

    /// The open ones and the newest of the others.
    pub async fn list(&self) -> Result<Vec<Incident>, OperationError> {
        Ok(self.records.newest(LIST_MAX).await?.iter().filter_map(Incident::of).collect())
    }

    /// When this account was stopped, the newest first.
    pub async fn stops_of(&self, account: &str) -> Result<Vec<PastStop>, OperationError> {
        let subject = story::cut(account, story::SUBJECT_MAX);
        let rows = self.records.about(IncidentKind::Stopped.words().name, &subject, STOPS_MAX).await?;
        Ok(rows.iter().map(Incident::stop).collect())
    }

    /// One of them.
    pub async fn show(&self, id: &str) -> Result<Incident, OperationError> {
        let row = match id.parse() {
            Ok(id) => self.records.find(id).await?,
            Err(_) => None,
        };
        row.as_ref().and_then(Incident::of).ok_or_else(|| {
            let shown: String = id.chars().take(20).collect();
            OperationError::unknown(format!("there is no incident {shown:?}"), "`weir incidents` lists them")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_stored_is_shown_and_what_a_newer_weir_wrote_is_left_out() {
        let story = Story::begun(&["demo is stopped".into()], 21.0, 1_794_798_240);
        let row = IncidentRow {
            id: 3,
            kind: "stopped".into(),
            subject: "a/b <x>".into(),
            title: "Account stopped".into(),
            opened_s: 1_794_798_240,
            closed_s: Some(1_794_798_300),
            story: story.written(),
            ..IncidentRow::default()
        };
        let shown = Incident::of(&row).unwrap();
        assert_eq!((shown.began.as_str(), shown.is_open()), ("2026-11-16T03:04:00Z", false));
        assert_eq!(shown.page, "/throttle/users/a%2Fb%20%3Cx%3E");
        assert_eq!((shown.headline().as_str(), shown.seen.len()), ("Account stopped: a/b <x>", 1));
        assert_eq!(Incident::of(&IncidentRow { kind: "meteorite".into(), ..row }), None);
    }

    #[test]
    fn a_stop_says_how_much_waited_and_who_ended_it() {
        let mut story = Story::begun(&["ann is stopped".into()], 21.0, 1_794_798_240);
        story.goes_on(&["ann is stopped".into()], 90.0, 1_794_798_250);
        let row = |story: &Story, closed_s| IncidentRow {
            id: 3,
            opened_s: 1_794_798_240,
            closed_s,
            story: story.written(),
            ..IncidentRow::default()
        };
        assert_eq!(Incident::stop(&row(&story, None)).outcome, "still stopped");
        assert_eq!(Incident::stop(&row(&story, Some(1))).outcome, "over; no act of a person is on record");
        for (number, (action, who)) in
            [("held.delete", "web:olga"), ("held.delete", "web:olga"), ("user.set", "x"), ("user.unlock", "cli:root")]
                .into_iter()
                .enumerate()
        {
            let line = AuditView {
                at: "2026-11-17T20:00:00Z".into(),
                actor: who.into(),
                action: action.into(),
                subject: "ann".into(),
                detail: String::new(),
            };
            story.act(number as i64 + 1, &line);
        }
        let stop = Incident::stop(&row(&story, Some(1_794_798_300)));
        assert_eq!((stop.held, stop.outcome.as_str()), (90, "mail deleted by web:olga, unlocked by cli:root"));
        assert_eq!(stop.ended.as_deref(), Some("2026-11-16T03:05:00Z"));
    }
}
