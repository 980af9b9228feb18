//! `[lab]`: the timers of the leader election (Branco and Barbosa, section 3).

use super::reader::Section;
use crate::units::Span;
use std::time::Duration;
use weir_core::election::{SettingProblem, Settings};

pub(super) fn read(s: &mut Section<'_, '_>) -> Settings {
    let default = Settings::default();
    let (ms, minute) = (Duration::from_millis, Duration::from_secs(60));
    let mut span = |key, default, range: (Duration, Duration), about| {
        s.bounded(key, Span(default), Span(range.0)..=Span(range.1), about).0
    };
    let reply_wait = span(
        "reply_wait",
        default.reply_wait,
        (ms(10), minute),
        "T: how long a candidate waits for objections in each phase",
    );
    let beat = span("beat", default.beat, (ms(20), minute), "T1: how often the leader says that it is alive");
    let abort_wait = span(
        "abort_wait",
        default.abort_wait,
        (ms(30), minute * 10),
        "T2: how long an aborted candidate waits for the better one; at least 3 T",
    );
    let check = span("check", default.check, (ms(1), minute), "T3: how often a follower looks for missing beats");
    let lease = span(
        "lease",
        default.lease,
        (ms(100), minute * 10),
        "L: how long the leader's lease in the database lasts without renewal; at least 6 T",
    );
    let missed_beats =
        s.bounded("missed_beats", default.missed_beats, 1..=100, "n: so many missing beats start an election");
    let members_max =
        s.bounded("members_max", default.members_max as u32, 1..=65_536, "How many other machines are remembered")
            as usize;
    let settings = Settings { reply_wait, beat, missed_beats, abort_wait, check, lease, members_max };
    for problem in settings.problems() {
        s.blame(key_of(problem), problem.to_string(), "the timers depend on each other");
    }
    settings
}

fn key_of(problem: SettingProblem) -> &'static str {
    match problem {
        SettingProblem::ReplyWait => "reply_wait",
        SettingProblem::Beat => "beat",
        SettingProblem::MissedBeats => "missed_beats",
        SettingProblem::AbortWait => "abort_wait",
        SettingProblem::Check => "check",
        SettingProblem::Lease => "lease",
        SettingProblem::MembersMax => "members_max",
    }
}
