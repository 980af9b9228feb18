//! `[lab]`: election and run queues of Branco and Barbosa.

use super::reader::Section;
use crate::units::Span;
use std::time::Duration;

#[derive(Debug, Clone)]
pub(crate) struct Lab {
    pub(crate) priority: u32,
    pub(crate) reply_wait: Span,
    pub(crate) beat: Span,
    pub(crate) missed_beats: u32,
    pub(crate) abort_wait: Span,
    pub(crate) follower_check: Span,
    pub(crate) lease: Span,
    pub(crate) threshold: Span,
    pub(crate) attempts_max: u32,
    pub(crate) real_time_last: u32,
    pub(crate) back_to_current_last: u32,
    pub(crate) current_per_vm: u32,
    pub(crate) ageing: Span,
}

impl Lab {
    pub(super) fn read(s: &mut Section<'_, '_>) -> Lab {
        let ms = |ms: u64| Span(Duration::from_millis(ms));
        let secs = |secs: u64| Span(Duration::from_secs(secs));
        let short = || ms(10)..=secs(60);
        let lab = Lab {
            priority: s.bounded("priority", 32, 0..=255, "This machine's rank in an election: the lowest number leads"),
            reply_wait: s.bounded(
                "reply_wait",
                ms(200),
                short(),
                "T: how long a candidate waits for objections in each phase",
            ),
            beat: s.bounded("beat", ms(500), short(), "T1: how often the leader says that it is alive"),
            missed_beats: s.bounded("missed_beats", 3, 1..=100, "n: so many missing beats start an election"),
            abort_wait: s.bounded(
                "abort_wait",
                ms(500),
                short(),
                "T2: how long an aborted candidate waits for the better one",
            ),
            follower_check: s.bounded(
                "follower_check",
                ms(100),
                short(),
                "T3: how often a follower looks at the leader's beats",
            ),
            lease: s.bounded(
                "lease",
                secs(3),
                ms(500)..=secs(600),
                "L: how long the leader's lease in the database lasts without renewal",
            ),
            threshold: s.bounded(
                "threshold",
                secs(300),
                secs(1)..=secs(86_400),
                "THRESHOLD: an attempt that runs longer is cancelled and its sample queued again",
            ),
            attempts_max: s.bounded("attempts_max", 3, 1..=100, "A sample that failed so often is set aside"),
            real_time_last: s.bounded(
                "real_time_last",
                31,
                0..=95,
                "The last priority directory of the real-time class",
            ),
            back_to_current_last: s.bounded(
                "back_to_current_last",
                2,
                0..=95,
                "Samples up to this priority return to a machine's current queue, all others to its next",
            ),
            current_per_vm: s.bounded(
                "current_per_vm",
                2,
                1..=100,
                "How many samples a machine's current queue holds for each of its VMs",
            ),
            ageing: s.bounded(
                "ageing",
                secs(0),
                secs(0)..=secs(86_400),
                "A sample that has waited so long moves one queue up; 0s is never",
            ),
        };
        let worst = lab.reply_wait.0 * 3 + lab.abort_wait.0;
        s.demand(
            lab.lease.0 > lab.beat.0 * 2,
            "lease",
            "must be longer than two beats",
            "a lease that ends between two beats changes leaders for no reason",
        );
        s.demand(
            lab.lease.0 / 3 > lab.reply_wait.0,
            "reply_wait",
            format!("{} is not below a third of the lease ({})", lab.reply_wait, lab.lease),
            "the lease is renewed three times in its life",
        );
        s.demand(
            worst < Duration::from_secs(120),
            "abort_wait",
            "an election could take more than two minutes",
            "shorten reply_wait or abort_wait",
        );
        s.demand(
            lab.back_to_current_last <= lab.real_time_last,
            "back_to_current_last",
            "is beyond the real-time class",
            "set it to real_time_last or below",
        );
        lab
    }
}
