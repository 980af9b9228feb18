//! The operation that finds messages by sender, recipient, subject, client, user, verdict or time (message tracking).

use super::{OperationError, OperationsParts, when};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weir_foundation::date::asked_time;
use weir_store::spool::MessageId;
use weir_store::tracking::{MessageFilter, PAGE_MAX, STATES, TrackedMessage, Tracking, TrackingError};

/// The longest text of one field, in characters.
const FIELD_MAX: usize = 320;
/// Recipients of one message that an answer names; all of them are looked at.
const TO_MAX: usize = 20;
/// Messages of one page, if nobody says how many.
const PAGE: usize = 50;

/// Which messages are looked for. What is empty does not restrict; all that is given must fit.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct MailFilter {
    /// Words in any field, or the id of a message. A word may end in `*`.
    pub text: String,
    /// The envelope sender: an address, the name before the `@`, or a domain.
    pub from: String,
    /// A recipient, likewise.
    pub to: String,
    /// Words of the subject.
    pub subject: String,
    /// The address of the client.
    pub client: String,
    /// The user who sent it.
    pub login: String,
    /// What the scan found: `clean`, `infected`, `spam`, `suspicious`, `forbidden`, `failed`, or words of a virus's name.
    pub verdict: String,
    /// Where it, or a part of its recipients, has got to: `accepted`, `held`, `quarantined`, `delivered`, `deferred`, `bounced`, `deleted`, `released`.
    pub state: String,
    /// Not before: a time such as `2026-11-17T18:00:00Z` or `2026-11-17`, or an age such as `90m`, `2h` or `7d`.
    pub since: String,
    /// Before, likewise.
    pub until: String,
    /// For the next page: what the last one said under `next`.
    pub after: Option<i64>,
    /// So many, at most 200; 50 if nothing is said.
    pub most: Option<usize>,
}

/// Messages that were found, the newest first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MailFound {
    /// The messages.
    pub messages: Vec<FoundMail>,
    /// Ask with this as `after` for older ones; nothing if there are none.
    pub next: Option<i64>,
    /// What to know about the answer, in sentences.
    pub notes: Vec<String>,
}

/// A message that was found. Texts are empty where nothing is known.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FoundMail {
    /// Its id; `weir trace` tells its way.
    pub message: String,
    /// The ids that it went on under.
    pub later: Vec<String>,
    /// When it came.
    #[schemars(extend("format" = "date-time"))]
    pub at: String,
    /// When something last happened to it.
    #[schemars(extend("format" = "date-time"))]
    pub changed: String,
    /// The envelope sender; empty for a report.
    pub from: String,
    /// The first recipients.
    pub to: Vec<String>,
    /// How many recipients there are.
    pub recipients: u64,
    /// The subject.
    pub subject: String,
    /// Its size in octets.
    pub size_bytes: u64,
    /// The address of the client.
    pub client: String,
    /// The user who sent it.
    pub login: String,
    /// How it came: `submission`, `inbound` or `weir`.
    pub gate: String,
    /// The feed that scanned it.
    pub feed: String,
    /// What the scan found.
    pub verdict: String,
    /// Where it has got to; several states, with commas, where its recipients have different fates.
    pub state: String,
    /// The server that it went to last.
    pub destination: String,
    /// What became of the last attempt at delivery.
    pub answer: String,
}

impl From<TrackedMessage> for FoundMail {
    fn from(tracked: TrackedMessage) -> FoundMail {
        let mut ids = tracked.ids.into_iter();
        FoundMail {
            message: ids.next().unwrap_or_default(),
            later: ids.collect(),
            at: when(tracked.at),
            changed: when(tracked.changed),
            from: tracked.from,
            to: tracked.to.into_iter().take(TO_MAX).collect(),
            recipients: tracked.recipients,
            subject: tracked.subject,
            size_bytes: tracked.size,
            client: tracked.client,
            login: tracked.login,
            gate: tracked.gate,
            feed: tracked.feed,
            verdict: tracked.verdict,
            state: tracked.state,
            destination: tracked.destination,
            answer: tracked.answer,
        }
    }
}

/// Looks for messages. Cheap to clone.
#[derive(Clone)]
pub struct FindOperations {
    tracking: Tracking,
}

impl FindOperations {
    pub(super) fn new(parts: &OperationsParts) -> FindOperations {
        FindOperations { tracking: parts.tracking.clone() }
    }

    /// Messages that fit, the newest first.
    pub async fn find(&self, filter: &MailFilter) -> Result<MailFound, OperationError> {
        if !self.tracking.is_on() {
            let hint = "set store.tracking_size, the room for what is remembered";
            return Err(OperationError::conflict("messages are not tracked here", hint));
        }
        let mut found = self.page(filter).await?;
        if self.tracking.has_missed() {
            let note = "mail came faster than it could be tracked, so some is missing; a larger store.diary_size helps";
            found.notes.push(note.to_owned());
        }
        Ok(found)
    }

    async fn page(&self, filter: &MailFilter) -> Result<MailFound, OperationError> {
        let id = filter.text.trim().to_ascii_lowercase();
        if id.parse::<MessageId>().is_ok()
            && let Some((message, _)) = self.tracking.message(&id).await.map_err(|error| failed(&error))?
        {
            return Ok(MailFound { messages: vec![message.into()], ..MailFound::default() });
        }
        let most = filter.most.unwrap_or(PAGE).clamp(1, PAGE_MAX);
        let found = self.tracking.search(&checked(filter)?, most).await.map_err(|error| failed(&error))?;
        let last = found.messages.last().map(|message| message.place);
        let behind = "the newest mail is still being taken in; ask again in a moment";
        Ok(MailFound {
            next: last.filter(|_| found.more),
            messages: found.messages.into_iter().map(FoundMail::from).collect(),
            notes: found.behind.then(|| behind.to_owned()).into_iter().collect(),
        })
    }
}

/// What is asked for, within its bounds.
fn checked(filter: &MailFilter) -> Result<MessageFilter, OperationError> {
    let MailFilter { text, from, to, subject, client, login, verdict, state, since, until, after, .. } = filter.clone();
    let fields = [&text, &from, &to, &subject, &client, &login, &verdict, &state];
    if let Some(long) = fields.into_iter().find(|field| field.chars().count() > FIELD_MAX) {
        let begin: String = long.chars().take(20).collect();
        let hint = format!("a field has at most {FIELD_MAX} characters");
        return Err(OperationError::invalid(format!("{begin:?}… is too long"), hint));
    }
    let named = state.trim().to_lowercase();
    if !named.is_empty() && !STATES.iter().any(|known| names_state(&named, known)) {
        let shown: String = state.chars().take(40).collect();
        let hint = format!("a state is one of: {}", STATES.join(", "));
        return Err(OperationError::invalid(format!("there is no state {shown:?}"), hint));
    }
    Ok(MessageFilter {
        text,
        from,
        to,
        subject,
        client,
        login,
        verdict,
        state,
        name: String::new(),
        since: asked_time(&since)?,
        until: asked_time(&until)?,
        before: after,
    })
}

/// Whether words mean a state: they are all of its own, or the first.
fn names_state(words: &str, state: &str) -> bool {
    state == words || state.split(' ').next() == Some(words)
}

/// Tracking failed: whose fault that is, is in the words.
pub(super) fn failed(error: &TrackingError) -> OperationError {
    OperationError::Failed(format!("message tracking: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_without_an_end_is_refused() {
        let filter = MailFilter { subject: "x".repeat(5_000), ..MailFilter::default() };
        assert!(checked(&filter).unwrap_err().to_string().len() < 200);
    }

    #[test]
    fn a_state_that_there_is_not_is_refused_with_those_that_there_are() {
        let state = |state: &str| checked(&MailFilter { state: state.into(), ..MailFilter::default() });
        for good in ["", "held", "Delivered", "waits", "waits for the scan", "bounced"] {
            assert!(state(good).is_ok(), "{good}");
        }
        for bad in ["nonsense", "hel", "deliver", "waits for"] {
            let refused = format!("{:?}", state(bad).unwrap_err());
            assert!(
                refused.contains("there is no state") && refused.contains("waits for the lab, quarantined"),
                "{refused}"
            );
        }
    }
}
