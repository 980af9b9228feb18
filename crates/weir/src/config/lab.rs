//! `[lab]`: the lab of this machine, and the timers of the leader election (Branco and Barbosa, section 3).

use super::reader::Section;
use crate::units::{Size, Span};
use std::time::Duration;
use weir_core::election::{SettingProblem, Settings};

/// The lab.
#[derive(Debug, Clone)]
pub(crate) struct Lab {
    pub(crate) enabled: bool,
    /// Empty for `lab/analysis` in the data folder.
    pub(crate) analysis: String,
    /// Empty for none but our own.
    pub(crate) plugins: String,
    /// 0 for the machine's processors.
    pub(crate) slots: u32,
    pub(crate) threshold: Duration,
    pub(crate) attempts: u32,
    pub(crate) sample_bytes_max: u64,
    pub(crate) election: Settings,
}

pub(super) fn read(s: &mut Section<'_, '_>) -> Lab {
    let span = |secs: u64| Span(Duration::from_secs(secs));
    Lab {
        enabled: s.flag("enabled", false, "Whether this machine analyses samples"),
        analysis: s.text(
            "analysis",
            "",
            (
                "a path",
                "The root analysis directory with its numbered directories; without it lab/analysis in the data folder",
            ),
            |_| Ok(()),
        ),
        plugins: s.text(
            "plugins",
            "",
            ("a path", "A folder of plugins, each a folder with plugin.toml; without it only our own run"),
            |_| Ok(()),
        ),
        slots: s.bounded(
            "slots",
            0,
            0..=128,
            "Samples that plugins of this machine look at at once; 0 for one a processor",
        ),
        threshold: s
            .bounded(
                "threshold",
                span(600),
                span(1)..=span(86_400),
                "THRESHOLD: how long one attempt at a sample may take",
            )
            .0,
        attempts: s.bounded("attempts", 3, 1..=100, "Attempts that may bring nothing before a sample is set aside"),
        sample_bytes_max: s.bounded("sample_max", Size(256 << 20), Size(1)..=Size(4 << 30), "The largest sample").0,
        election: election(s),
    }
}

fn election(s: &mut Section<'_, '_>) -> Settings {
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
