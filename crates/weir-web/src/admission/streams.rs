//! Open streams, counted by session, by subnet and in all.
//!
//! Sessions are free, so a bound for each says nothing of all of them. No subnet has more streams than are left for others: however many one
//! subnet opens, the next still finds room.

use std::collections::HashMap;

use weir_core::fair::{SessionKey, SubnetKey};

use super::settings::Settings;
use crate::tally::one_less;

/// Whose request it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Who {
    pub(super) session: SessionKey,
    pub(super) subnet: SubnetKey,
}

/// The streams of one backend.
#[derive(Debug, Default)]
pub(super) struct Streams {
    sessions: HashMap<SessionKey, u32>,
    subnets: HashMap<SubnetKey, u32>,
    open: u32,
}

impl Streams {
    /// Whether this one may have one more.
    pub(super) fn has_room(&self, settings: &Settings, who: Who) -> bool {
        let left = settings.streams.saturating_sub(self.open);
        let of_session = self.sessions.get(&who.session).copied().unwrap_or(0);
        let of_subnet = self.subnets.get(&who.subnet).copied().unwrap_or(0);
        of_session < settings.streams_per_session && of_subnet < settings.streams_per_subnet.min(left)
    }

    pub(super) fn begin(&mut self, who: Who) {
        *self.sessions.entry(who.session).or_default() += 1;
        *self.subnets.entry(who.subnet).or_default() += 1;
        self.open += 1;
    }

    pub(super) fn end(&mut self, who: Who) {
        one_less(&mut self.sessions, who.session);
        one_less(&mut self.subnets, who.subnet);
        self.open -= 1;
    }

    /// How many there are.
    pub(super) fn open(&self) -> u32 {
        self.open
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As many as one subnet can have, with a session for each.
    fn open_all(streams: &mut Streams, settings: &Settings, subnet: u64) -> u64 {
        let who = |number| Who { session: SessionKey((subnet << 32) | number), subnet: SubnetKey(subnet) };
        let mut count = 0;
        while streams.has_room(settings, who(count)) {
            streams.begin(who(count));
            count += 1;
        }
        count
    }

    #[test]
    fn many_sessions_of_a_subnet_leave_room_for_others() {
        let settings = Settings { streams: 100, streams_per_subnet: 60, ..Settings::default() };
        let mut streams = Streams::default();
        assert_eq!(open_all(&mut streams, &settings, 1), 50, "half of all");
        assert_eq!(open_all(&mut streams, &settings, 2), 25);
        assert_eq!(open_all(&mut streams, &settings, 3), 13);
        let who = Who { session: SessionKey(1 << 32), subnet: SubnetKey(1) };
        streams.end(who);
        assert!(!streams.has_room(&settings, who), "the others need it more");
        assert_eq!(streams.open(), 87);
        let few = Settings { streams_per_session: 2, ..Settings::default() };
        let mut streams = Streams::default();
        (0..2).for_each(|_| streams.begin(who));
        assert!(!streams.has_room(&few, who));
        (0..2).for_each(|_| streams.end(who));
        assert!(streams.has_room(&few, who) && streams.sessions.is_empty() && streams.subnets.is_empty());
    }
}
