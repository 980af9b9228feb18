//! Open streams, counted by session, by subnet and in all.
//!
//! A subnet may have at most as many streams as are left for all others. So however many one subnet opens, the next one still finds room.

use weir_core::fair::{SessionKey, SubnetKey};

use super::settings::Settings;
use crate::shares::{Holder, ShareLimits, Shares};

/// The session and subnet of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Owner {
    pub(super) session: SessionKey,
    pub(super) subnet: SubnetKey,
}

impl Owner {
    fn holder(self) -> Holder<SessionKey> {
        Holder { client: self.session, subnet: self.subnet }
    }
}

/// The streams of one backend.
#[derive(Debug, Default)]
pub(super) struct Streams {
    shares: Shares<SessionKey>,
    open: u32,
}

impl Streams {
    /// Whether this session may have one more.
    pub(super) fn has_room(&self, settings: &Settings, owner: Owner) -> bool {
        self.has_room_of(settings.streams, settings, owner)
    }

    /// The same with another limit for all streams together.
    pub(super) fn has_room_of(&self, most: u32, settings: &Settings, owner: Owner) -> bool {
        let left = most.saturating_sub(self.open);
        let limits =
            ShareLimits { per_client: settings.streams_per_session, per_subnet: settings.streams_per_subnet.min(left) };
        self.shares.has_room(owner.holder(), limits)
    }

    pub(super) fn begin(&mut self, owner: Owner) {
        self.shares.add(owner.holder());
        self.open += 1;
    }

    pub(super) fn end(&mut self, owner: Owner) {
        self.shares.remove(owner.holder());
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
        let owner = |number| Owner { session: SessionKey((subnet << 32) | number), subnet: SubnetKey(subnet) };
        let mut count = 0;
        while streams.has_room(settings, owner(count)) {
            streams.begin(owner(count));
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
        let owner = Owner { session: SessionKey(1 << 32), subnet: SubnetKey(1) };
        streams.end(owner);
        assert!(!streams.has_room(&settings, owner), "the others need it more");
        assert_eq!(streams.open(), 87);
        let few = Settings { streams_per_session: 2, ..Settings::default() };
        let mut streams = Streams::default();
        (0..2).for_each(|_| streams.begin(owner));
        assert!(!streams.has_room(&few, owner));
        (0..2).for_each(|_| streams.end(owner));
        assert!(streams.has_room(&few, owner) && streams.shares.is_empty());
    }
}
