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
use kind::Kind;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use story::Story;
use weir_foundation::audit::AuditView;
use weir_foundation::date::rfc3339;
use weir_foundation::{Foundation, OperationError};
use weir_store::records::{IncidentRecords, IncidentRow};

/// Incidents of one list.
const LIST_MAX: i64 = 200;

/// An incident, as people and programs see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Incident {
    /// Its number.
    pub id: i64,
    /// Which rule opened it: `stopped`, `flood`, `scanner`, `virus`, `malware`, `leader`, `disk`, `gate` or `certificate`.
    pub kind: String,
    /// What happened, in a few words.
    pub title: String,
    /// Whom or what it is about; empty if it is about several, or if the title says it.
    pub subject: String,
    /// Those whom it is about, if it is about several; of very many the first.
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
    /// What people did, from the audit trail, the oldest first.
    pub people_did: Vec<AuditView>,
    /// How much more they did than is listed.
    pub people_did_more: u64,
    /// What it cost others, in sentences.
    pub cost: Vec<String>,
    /// What a person can do.
    pub to_do: String,
    /// The page of the console where that is done; empty if there is none.
    pub page: String,
}

/// Something that was seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct IncidentLine {
    /// When.
    #[schemars(extend("format" = "date-time"))]
    pub at: String,
    /// What, in words.
    pub text: String,
}

fn at(seconds: i64) -> String {
    rfc3339(seconds.saturating_mul(1_000_000_000))
}

impl Incident {
    /// As it is stored; nothing if a newer version wrote it.
    fn of(row: &IncidentRow) -> Option<Incident> {
        let (kind, story) = (Kind::named(&row.kind)?, Story::read(&row.story));
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

    /// Whether it goes on.
    pub fn is_open(&self) -> bool {
        self.ended.is_none()
    }

    /// Its title and whom it is about.
    pub fn headline(&self) -> String {
        let row = IncidentRow { title: self.title.clone(), subject: self.subject.clone(), ..IncidentRow::default() };
        row.headline()
    }
}

/// Where something can be done about it.
fn page(kind: Kind, subject: &str) -> String {
    match (kind, subject) {
        (Kind::Stopped, user) if !user.is_empty() => format!("/throttle/users/{}", Piece(user)),
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
}
