//! The section `[lab]`: the lab of this machine, and the timers of the leader election (Branco and Barbosa, section 3).

use crate::dispatcher::DispatcherSettings;
use crate::intake::IntakeSettings;
use crate::node::NodeSettings;
use crate::plugin::Plugin;
use crate::site::SiteSettings;
use crate::vm::VmsSettings;
use crate::wire::ChildLimits;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use weir_core::election::{self, AddressRange, ProcessingIndex, SettingProblem};
use weir_core::runq::{self, PriorityRules};
use weir_foundation::postgres_url;
use weir_settings::{Section, kinds, settings};

settings! {
    /// The malware lab: what this machine does in it, and how machines elect their scheduler
    #[section("lab")]
    pub struct LabSettings {
        /// Whether this machine analyses samples
        pub enabled: bool = flag(false),
        /// The root analysis directory with its numbered directories; without it lab/analysis in the data folder
        pub analysis: Option<PathBuf> = path().optional(),
        /// A file in a numbered directory that nobody is known to have closed is taken when it has not changed for this long
        pub settle: Duration = duration("2s", "100ms"..="1h"),
        /// A folder of plugins, each a folder with plugin.toml; without it only our own run
        pub plugins: Option<PathBuf> = path().optional(),
        /// Plugins of our own that this lab does without, such as strings or yara
        pub plugins_off: Vec<String> = list([], 64, "names of plugins"),
        /// What is tried where an archive has a password
        pub passwords: Vec<String> =
            list(["infected", "malware", "virus", "password", "1234", "12345", "123456"].map(str::to_owned), 64, "passwords"),
        /// How many samples the plugins of this machine work on at once; 0 for one for each processor
        pub slots: u32 = number(0, 0..=128),
        /// THRESHOLD: how long one attempt at a sample may take
        pub threshold: Duration = duration("10m", "1s"..="1d"),
        /// Failed attempts before a sample is set aside
        pub attempts: u8 = count(3, 1..=100),
        /// How much waiting one step of priority is worth; 0 for strict priority
        pub ageing: Option<Duration> = duration("0s", "0s"..="1d").optional(),
        pub priority: PriorityRules = part_by(priority),
        /// The largest sample
        pub sample_bytes_max as "sample_max": u64 = size("256MiB", "1"..="4GiB"),
        /// PostgreSQL of the lab alone, the same on all its machines: its password opens no mail and no accounts. Without it store.records
        pub records: Option<String> = text("", "a postgres:// URL").valid(postgres_url).optional(),
        /// Where samples are kept by hash; may be a folder that all machines share. Without it lab/samples in the data folder
        pub samples: Option<PathBuf> = path().optional(),
        /// Tags of this machine: plugins that want others do not run here
        pub tags: Vec<String> = list([], 64, "words"),
        /// A machine that says it has less free memory than this gets no samples until it has more; 0 never keeps any away
        pub memory_free_min: u64 = size("128MiB", "0"..="1024GiB"),
        /// How deep files in files in files are analysed; 0 for not at all
        pub children_depth: u8 = count(4, 0..=16),
        pub children: ChildLimits = part_by(children),
        /// How long a sample that has ended is kept with its reports; 0 for ever
        pub keep: Option<Duration> = duration("30d", "0s"..="3660d").optional(),
        /// None for a lab of one machine.
        pub network: Option<LabAddress> = part_by(network),
        /// How slow this machine is for the election, higher is weaker; 0 to measure it
        pub processing_index: Option<u16> = count(0, 0..=1_000).optional(),
        /// Whether the leader of a lab of several machines analyses samples too
        pub leader_analyses: bool = flag(false),
        /// How long the certificates of the lab's machines are valid; each machine renews its own after two thirds
        pub certificate_life: Duration = duration("90d", "10s"..="3660d"),
        /// Addresses of machines of the lab: a machine outside asks them who leads
        pub entry: Vec<IpAddr> = list([], 64, "addresses"),
        pub vms: VmsSettings = part(),
        pub election: election::Settings = part_by(election),
    }
}

settings! {
    /// What may be found in one sample.
    fn children() -> ChildLimits {
        /// How many files that are found in one sample, and in those, are analysed
        count as "children_count" = number(100, 0..=100_000),
        /// How much one plugin may find in one sample, all files together
        bytes as "children_bytes" = size("256MiB", "1"..="16GiB"),
    }
}

settings! {
    /// The timers of the election; their defaults are the core's.
    #[check(timers_fit)]
    fn election() -> election::Settings {
        /// T: how long a candidate waits for objections in each phase
        reply_wait = duration(election::Settings::default().reply_wait, "10ms"..="1m"),
        /// T1: how often the leader says that it is alive
        beat = duration(election::Settings::default().beat, "20ms"..="1m"),
        /// T2: how long an aborted candidate waits for the better one; at least 3 T
        abort_wait = duration(election::Settings::default().abort_wait, "30ms"..="10m"),
        /// T3: how often a follower looks for missing beats
        check = duration(election::Settings::default().check, "1ms"..="1m"),
        /// L: how long the leader's lease in the database lasts without renewal; at least 6 T
        lease = duration(election::Settings::default().lease, "100ms"..="10m"),
        /// n: so many missing beats start an election
        missed_beats = number(election::Settings::default().missed_beats, 1..=100),
        /// How many other machines are remembered
        members_max = count(election::Settings::default().members_max as u32, 1..=65_536),
    }
}

/// Where this machine is in the lab's network.
#[derive(Debug, Clone, Copy)]
pub struct LabAddress {
    pub address: IpAddr,
    /// The port of the lab.
    pub port: u16,
    /// The length of the network's prefix.
    pub prefix: u8,
    /// Whether a large network may be searched.
    pub wide: bool,
}

/// The paper's: directories up to this one go first, by the order of the queues alone.
const REAL_TIME_LAST: u8 = 31;

fn priority(section: &mut Section<'_, '_>) -> PriorityRules {
    let idle_from: u8 = section.key(
        "idle_from",
        "Samples of this priority and above run only where nothing else waits; a multiple of 4, 128 for none",
        kinds::count(96, 32..=128),
    );
    let returns: u8 = section.key(
        "return_to_current",
        "Samples up to this priority that need another plugin go on before those that wait; others after them",
        kinds::count(2, 0..=127),
    );
    PriorityRules::new(REAL_TIME_LAST, idle_from, returns).unwrap_or_else(|| {
        let (key, what, hint) = match idle_from.is_multiple_of(4) {
            true => ("return_to_current", "the idle class never goes first".into(), "keep it below idle_from"),
            false => ("idle_from", format!("{idle_from} is in the middle of a run queue"), "say a multiple of 4"),
        };
        section.blame(key, what, hint);
        PriorityRules::default()
    })
}

/// If an address is set, this is a lab of several machines.
fn network(section: &mut Section<'_, '_>) -> Option<LabAddress> {
    let known = |text: &str| if text.is_empty() { Ok(()) } else { in_network(text).map(drop) };
    let address: String = section.key(
        "address",
        "This machine in the lab's network, such as 10.7.0.3/24 or fd07::3/64; without it the lab has one machine",
        kinds::text("", "an address with its prefix").valid(known),
    );
    let about = "TCP and UDP port of the lab, the same on all machines";
    let port = section.key("port", about, kinds::count(7300, 1..=65_535));
    let about = "Whether a network larger than a /22 may be searched for machines";
    let wide = section.key("wide", about, kinds::flag(false));
    let (address, prefix) = in_network(&address).ok()?;
    if let Err(refused) = AddressRange::new(address, prefix, wide) {
        section.blame("address", refused.to_string(), "say `wide = true` for up to a /16");
    }
    Some(LabAddress { address, port, prefix, wide })
}

fn in_network(text: &str) -> Result<(IpAddr, u8), String> {
    let expected = || format!("{text:?} is no address with its prefix, such as 10.7.0.3/24");
    let (address, prefix) = text.split_once('/').ok_or_else(expected)?;
    Ok((address.parse().map_err(|_| expected())?, prefix.parse().map_err(|_| expected())?))
}

fn timers_fit(settings: &election::Settings, section: &mut Section<'_, '_>) {
    for problem in settings.problems() {
        let key = match problem {
            SettingProblem::ReplyWait => "reply_wait",
            SettingProblem::Beat => "beat",
            SettingProblem::MissedBeats => "missed_beats",
            SettingProblem::AbortWait => "abort_wait",
            SettingProblem::Check => "check",
            SettingProblem::Lease => "lease",
            SettingProblem::MembersMax => "members_max",
        };
        section.blame(key, problem.to_string(), "the timers depend on each other");
    }
}

impl LabSettings {
    /// The settings of the dispatcher, in a lab whose files are in the folder `home`.
    pub fn dispatcher(&self, home: &Path, plugins: &[Plugin], index: ProcessingIndex) -> DispatcherSettings {
        let slots = match self.slots {
            0 => std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32),
            slots => slots,
        };
        let (jobs, tags) = (home.join("jobs"), self.tags.clone());
        DispatcherSettings { jobs, plugins: plugins.to_vec(), slots, tags, processing_index: index.0 }
    }

    /// The settings of the node with this name.
    pub fn node(&self, home: &Path, node: String, plugins: Vec<Plugin>) -> NodeSettings {
        NodeSettings {
            node,
            analysis: self.analysis.clone().unwrap_or_else(|| home.join("analysis")),
            intake: IntakeSettings {
                settle: self.settle,
                size_max: self.sample_bytes_max,
                ..IntakeSettings::default()
            },
            scheduling: runq::Settings {
                threshold: self.threshold,
                attempts_max: self.attempts,
                ageing: self.ageing,
                priority: self.priority,
                ..runq::Settings::default()
            },
            plugins: plugins.into(),
            keep: self.keep,
            depth_max: self.children_depth,
            children: self.children,
            memory_free_min: self.memory_free_min,
        }
    }

    /// Where this machine is among several, with its credentials in `folder`; None for a lab of one machine.
    pub fn site(&self, folder: PathBuf) -> Option<SiteSettings> {
        let LabAddress { address, port, prefix, wide } = self.network?;
        Some(SiteSettings {
            folder,
            address,
            port,
            prefix,
            wide,
            election: self.election,
            index: ProcessingIndex::default(),
            leader_analyses: self.leader_analyses,
            life: self.certificate_life,
            entry: self.entry.clone(),
        })
    }
}
