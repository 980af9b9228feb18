//! A short-lived cache of answers, so that a second question about the same message does not count as a second mail.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Messages that are remembered; a message is asked about within minutes.
const MESSAGES_MAX: usize = 5_000;
/// Recipients of one message that are remembered. The rest is asked about anew: then the throttle knows them, or they wait.
const RECIPIENTS_MAX: usize = 200;

/// Answers by message and recipient.
#[derive(Debug, Default)]
pub(super) struct Memory {
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    messages: HashMap<String, HashMap<String, String>>,
    order: VecDeque<String>,
    looked_at: Option<Instant>,
}

impl Memory {
    /// What was answered about this recipient of this message.
    pub(super) fn answer(&self, instance: &str, recipient: &str) -> Option<String> {
        self.kept().messages.get(instance)?.get(recipient).cloned()
    }

    /// Whether anything was answered about this message.
    pub(super) fn knows(&self, instance: &str) -> bool {
        self.kept().messages.contains_key(instance)
    }

    pub(super) fn note(&self, instance: &str, recipient: &str, action: &str) {
        if instance.is_empty() {
            return;
        }
        let mut kept = self.kept();
        if !kept.messages.contains_key(instance) {
            kept.order.push_back(instance.to_owned());
            if kept.order.len() > MESSAGES_MAX
                && let Some(oldest) = kept.order.pop_front()
            {
                kept.messages.remove(&oldest);
            }
        }
        let answers = kept.messages.entry(instance.to_owned()).or_default();
        if answers.len() < RECIPIENTS_MAX {
            answers.insert(recipient.to_owned(), action.to_owned());
        }
    }

    /// Whether something is to be done that is done so often.
    pub(super) fn is_due(&self, now: Instant, every: Duration) -> bool {
        let mut kept = self.kept();
        let due = kept.looked_at.is_none_or(|at| now.saturating_duration_since(at) >= every);
        if due {
            kept.looked_at = Some(now);
        }
        due
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_question_has_the_same_answer_and_memory_is_bounded() {
        let memory = Memory::default();
        memory.note("1", "a@x", "DUNNO");
        memory.note("", "a@x", "DUNNO");
        assert_eq!(memory.answer("1", "a@x").as_deref(), Some("DUNNO"));
        assert!(memory.answer("1", "b@x").is_none() && memory.answer("", "a@x").is_none() && memory.knows("1"));
        (0..300).for_each(|to| memory.note("2", &to.to_string(), "DUNNO"));
        (3..MESSAGES_MAX + 2).for_each(|message| memory.note(&message.to_string(), "a@x", "DUNNO"));
        let kept = memory.kept();
        assert!(!kept.messages.contains_key("1") && kept.messages.len() == MESSAGES_MAX);
        assert_eq!(kept.messages["2"].len(), RECIPIENTS_MAX);
    }
}
