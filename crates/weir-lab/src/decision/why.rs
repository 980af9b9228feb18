//! Answers "Why is this sample not running?" in words that name what is missing.

use super::{Decision, Now};
use std::time::Duration;
use weir_core::runq::{Plugins, SampleEnd, Tags, Unmet, VmId, Why};
use weir_core::time::Instant;

impl Decision {
    /// Why a sample is not running, for people.
    pub fn why_in_words(&self, now: Now, sample: i64) -> String {
        match self.why(sample) {
            Why::Unknown => "the leader has not read it from the database yet".into(),
            Why::Ended(end) => format!("it has ended as {}", ended(end)),
            Why::PutOff => {
                "its content is out of reach, a machine could not run it, or its last attempt was abandoned with the leader of \
                 then: its attempts say more"
                    .into()
            }
            Why::Running { vm, since, until } => {
                let (ran, left) = (now.clock.since(since), until.since(now.clock));
                format!("it runs{} since {} ago, for another {} at most", self.at(vm), span(ran), span(left))
            }
            Why::NoMachine { unmet, gives_up_at } => {
                let left = span(gives_up_at.since(now.clock));
                format!("{}; it is given up in {left} if that stays so", self.unmet(unmet))
            }
            Why::Busy { vms, on_revert, until_about, behind, missing } => {
                let until = until_words(now.clock, until_about);
                let (first, missing) = (go_first(behind), self.missing(missing) + &self.out_of_memory());
                format!(
                    "all {vms} VMs that could run it are in use ({on_revert} on revert) until {until}; {first}{missing}"
                )
            }
            Why::HeldBack { behind, missing } => {
                let (first, missing) = (go_first(behind), self.missing(missing));
                format!("it is of the idle class, and its machines have other work; {first}{missing}")
            }
        }
    }

    fn unmet(&self, unmet: Unmet) -> String {
        match unmet {
            Unmet::AnyMachine => "no machine is plugged in".into(),
            Unmet::Plugins(plugins) => format!("no machine has the plugin {}", self.listed(plugins)),
            Unmet::Tags(tags) => format!("no VM with its plugins has the tag {}", self.tags_listed(tags)),
        }
    }

    fn missing(&self, plugins: Plugins) -> String {
        match plugins.is_empty() {
            true => String::new(),
            false => format!("; no machine has the plugin {}", self.listed(plugins)),
        }
    }

    fn out_of_memory(&self) -> String {
        match &self.full()[..] {
            [] => String::new(),
            full => format!("; {} gets no samples because its memory is used up", full.join(" and ")),
        }
    }

    fn listed(&self, plugins: Plugins) -> String {
        let names = self.plugin_names(plugins).into_iter().map(|(name, version)| format!("{name} {version}"));
        names.collect::<Vec<_>>().join(" or ")
    }

    fn tags_listed(&self, tags: Tags) -> String {
        let numbers = (0..64).filter(|number| tags.0 >> number & 1 != 0);
        let names = numbers.filter_map(|number| self.tags.name(number)).cloned();
        names.collect::<Vec<_>>().join(" and ")
    }

    fn at(&self, vm: VmId) -> String {
        self.place(vm).map(|(_, node, vm)| format!(" on {node} {vm}")).unwrap_or_default()
    }
}

fn ended(end: SampleEnd) -> &'static str {
    match end {
        SampleEnd::Done => "done",
        SampleEnd::Quarantined => "quarantined",
        SampleEnd::Unserviceable => "unserviceable",
        SampleEnd::Cancelled => "cancelled",
    }
}

fn go_first(behind: usize) -> String {
    match behind {
        0 => "it is next".into(),
        1 => "1 sample goes first".into(),
        behind => format!("{behind} samples go first"),
    }
}

fn until_words(now: Instant, until: Instant) -> String {
    match until.since(now) {
        Duration::ZERO => "any moment".into(),
        left => format!("about {} from now", span(left)),
    }
}

/// A time as people say it.
fn span(time: Duration) -> String {
    match time.as_secs() {
        0..120 => format!("{:.1} s", time.as_secs_f64()),
        seconds @ 120..7_200 => format!("{} min", seconds / 60),
        seconds => format!("{} h", seconds / 3_600),
    }
}
