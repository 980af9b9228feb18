//! Two daily limits, against a patient worm that sends one mail per period for ever.
//!
//! Not in the paper. A day is 24 hours of the caller's clock: a UTC day where the beginning is the Unix
//! epoch. A recipient is new if it is not in the working set when the mail comes in.

use super::StopReason;
use super::params::Params;
use crate::time::Instant;

const DAY_NS: u64 = 86_400_000_000_000;

/// What a user has sent today.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Today {
    /// Which day, counted from the caller's beginning.
    pub day: u64,
    /// Mails accepted.
    pub messages: u32,
    /// Recipients outside the working set.
    pub new_recipients: u32,
}

impl Today {
    /// Counts a mail with so many new recipients. Returns the limit that it exceeds.
    pub(super) fn count(&mut self, now: Instant, new: u32, params: &Params) -> Option<StopReason> {
        let day = now.0 / DAY_NS;
        if day != self.day {
            *self = Today { day, ..Today::default() };
        }
        self.messages = self.messages.saturating_add(1);
        self.new_recipients = self.new_recipients.saturating_add(new);
        if params.messages_a_day.is_some_and(|cap| self.messages > cap) {
            return Some(StopReason::MessagesADay);
        }
        let over = params.new_recipients_a_day.is_some_and(|cap| new > 0 && self.new_recipients > cap);
        over.then_some(StopReason::NewRecipientsADay)
    }

    /// Starts counting again, because a person has looked.
    pub(super) fn forgive(&mut self) {
        *self = Today { day: self.day, ..Today::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fence_breaks_above_its_cap_and_opens_with_the_day() {
        let params = Params { messages_a_day: Some(2), new_recipients_a_day: Some(3), ..Params::default() };
        let mut today = Today::default();
        assert_eq!(today.count(Instant(1), 3, &params), None);
        assert_eq!(today.count(Instant(2), 0, &params), None);
        assert_eq!(today.count(Instant(3), 0, &params), Some(StopReason::MessagesADay));
        assert_eq!(today.count(Instant(DAY_NS), 4, &params), Some(StopReason::NewRecipientsADay));
        assert_eq!(today.count(Instant(DAY_NS), 0, &params), None, "no new recipient, no harm");
        today.forgive();
        assert_eq!((today.messages, today.day), (0, 1));
    }
}
