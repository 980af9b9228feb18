//! `[lab]`: the lab of this machine, and the timers of the leader election (Branco and Barbosa, section 3).

use super::calls::Calls;
use super::value::{LabEntry, Text};
use super::vm_rule::VmRule;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;
use weir_core::election::{AddressRange, SettingProblem, Settings};
use weir_core::runq::PriorityRules;
use weir_lab::vm::{Accelerator, Choice};
use weir_settings::Section;
use weir_settings::units::{Size, Span};

/// The paper's: what is below goes first by arithmetic alone.
const REAL_TIME_LAST: u8 = 31;

/// The lab.
#[derive(Debug, Clone)]
pub(crate) struct Lab {
    pub(crate) enabled: bool,
    /// Empty for `lab/analysis` in the data folder.
    pub(crate) analysis: String,
    pub(crate) settle: Duration,
    /// Empty for none but our own.
    pub(crate) plugins: String,
    /// 0 for the machine's processors.
    pub(crate) slots: u32,
    pub(crate) threshold: Duration,
    pub(crate) attempts: u32,
    /// None for strict priority.
    pub(crate) ageing: Option<Duration>,
    pub(crate) priority: PriorityRules,
    pub(crate) sample_bytes_max: u64,
    /// Empty for `lab/samples` in the data folder.
    pub(crate) samples: String,
    pub(crate) tags: Vec<String>,
    pub(crate) children_depth: u32,
    pub(crate) children_count: u32,
    pub(crate) children_bytes: u64,
    /// None for ever.
    pub(crate) keep: Option<Duration>,
    /// None for a lab of one machine.
    pub(crate) network: Option<LabNetwork>,
    /// None to measure it.
    pub(crate) processing_index: Option<u16>,
    pub(crate) leader_analyses: bool,
    pub(crate) certificate_life: Duration,
    /// Machines of the lab that this one asks who leads, if it is outside.
    pub(crate) entry: Vec<Ipv4Addr>,
    pub(crate) vms: LabVms,
    pub(crate) election: Settings,
}

/// The VMs of this machine.
#[derive(Debug, Clone)]
pub(crate) struct LabVms {
    pub(crate) rules: Vec<VmRule>,
    /// Empty for the usual places.
    pub(crate) guest: PathBuf,
    pub(crate) qemu: String,
    pub(crate) accelerator: Choice,
    pub(crate) watch: Duration,
    pub(crate) elsewhere: bool,
}

/// Where the machines of a lab find each other.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LabNetwork {
    pub(crate) address: Ipv4Addr,
    pub(crate) port: u16,
    pub(crate) prefix: u8,
    pub(crate) wide: bool,
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
        settle: s
            .bounded(
                "settle",
                span(2),
                Span(Duration::from_millis(100))..=span(3_600),
                "A file in a numbered directory that nobody is known to have closed is taken when it has not changed for this long",
            )
            .0,
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
        ageing: Some(
            s.bounded(
                "ageing",
                span(0),
                span(0)..=span(86_400),
                "How much waiting one step of priority is worth; 0 for strict priority",
            )
            .0,
        )
        .filter(|ageing| !ageing.is_zero()),
        priority: priority(s),
        sample_bytes_max: s.bounded("sample_max", Size(256 << 20), Size(1)..=Size(4 << 30), "The largest sample").0,
        samples: s.text(
            "samples",
            "",
            (
                "a path",
                "Where samples are kept by hash; may be a folder that all machines share. Without it lab/samples in the data folder",
            ),
            |_| Ok(()),
        ),
        tags: tags(s),
        children_depth: s.bounded(
            "children_depth",
            4,
            0..=16,
            "How deep files in files in files are analysed; 0 for not at all",
        ),
        children_count: s.bounded(
            "children_count",
            100,
            0..=100_000,
            "How many files that are found in one sample, and in those, are analysed",
        ),
        children_bytes: s
            .bounded(
                "children_bytes",
                Size(256 << 20),
                Size(1)..=Size(16 << 30),
                "How much one plugin may find in one sample, all files together",
            )
            .0,
        keep: Some(
            s.bounded(
                "keep",
                span(30 * 86_400),
                span(0)..=span(10 * 366 * 86_400),
                "How long a sample that has ended is kept with its reports; 0 for ever",
            )
            .0,
        )
        .filter(|keep| !keep.is_zero()),
        network: network(s),
        processing_index: Some(s.bounded(
            "processing_index",
            0,
            0..=1_000,
            "How slow this machine is for the election, higher is weaker; 0 to measure it",
        ))
        .filter(|index| *index > 0)
        .map(|index: u32| index as u16),
        leader_analyses: s.flag(
            "leader_analyses",
            false,
            "Whether the leader of a lab of several machines analyses samples too",
        ),
        certificate_life: s
            .bounded(
                "certificate_life",
                span(90 * 86_400),
                span(10)..=span(10 * 366 * 86_400),
                "How long a certificate counts that this machine makes; each machine renews its own after two thirds",
            )
            .0,
        entry: entry(s),
        vms: vms(s),
        election: election(s),
    }
}

fn priority(s: &mut Section<'_, '_>) -> PriorityRules {
    let idle_from: u32 = s.bounded(
        "idle_from",
        96,
        32..=128,
        "Samples of this priority and above run only where nothing else waits; a multiple of 4, 128 for none",
    );
    let returns: u32 = s.bounded(
        "return_to_current",
        2,
        0..=127,
        "Samples up to this priority that need another plugin go on before those that wait; others after them",
    );
    let [idle_from, returns] = [idle_from, returns].map(|number| u8::try_from(number).unwrap_or(u8::MAX));
    PriorityRules::new(REAL_TIME_LAST, idle_from, returns).unwrap_or_else(|| {
        let (key, what, hint) = match idle_from.is_multiple_of(4) {
            true => ("return_to_current", "the idle class never goes first".into(), "keep it below idle_from"),
            false => ("idle_from", format!("{idle_from} is in the middle of a run queue"), "say a multiple of 4"),
        };
        s.blame(key, what, hint);
        PriorityRules::default()
    })
}

fn entry(s: &mut Section<'_, '_>) -> Vec<Ipv4Addr> {
    let about = "IPv4 addresses of machines of the lab: a machine outside asks them who leads";
    let entries: Vec<LabEntry> = s.list("entry", Vec::new(), ("addresses", 64), about);
    entries.into_iter().map(|LabEntry(address)| address).collect()
}

fn vms(s: &mut Section<'_, '_>) -> LabVms {
    let read = LabVms {
        rules: s.list(
            "vms",
            Vec::new(),
            ("VMs", 64),
            "The VMs of this machine: a name, and what differs from a guest of ours with 192 MiB, such as \"vm1 memory=256 tags=linux \
             revert=process\" or \"win image=/srv/win.qcow2 memory=4096 tags=windows plugins=run-windows\"; `weir up --demo` has two if \
             there is a guest",
        ),
        guest: s.path(
            "guest",
            "The folder with the guest that `make guest` builds (vmlinuz and initrd); without it target/guest, guest beside this \
             program or /usr/share/weir/guest",
        ),
        qemu: s.text("qemu", "qemu-system-x86_64", ("a program", "The program that runs VMs"), |text| {
            if text.is_empty() { Err("a program is expected".into()) } else { Ok(()) }
        }),
        accelerator: s.choice(
            "vm_accelerator",
            &[
                ("auto", Choice::Auto),
                ("kvm", Choice::Fixed(Accelerator::Kvm)),
                ("tcg", Choice::Fixed(Accelerator::Tcg)),
            ],
            "With what VMs run; auto is KVM if a guest boots with it",
        ),
        watch: s
            .bounded(
                "vm_watch",
                Span(Duration::from_secs(60)),
                Span(Duration::from_secs(1))..=Span(Duration::from_secs(3_600)),
                "How long a sample in a VM is watched, if it does not end before",
            )
            .0,
        elsewhere: s.flag(
            "vms_elsewhere",
            false,
            "Whether other machines of this lab have VMs: samples that are taken in here want them too",
        ),
    };
    let names: Vec<&str> = read.rules.iter().map(|rule| rule.name.as_str()).collect();
    if let Some(twice) = names.iter().enumerate().find(|(at, name)| names[..*at].contains(name)) {
        s.blame("vms", format!("{:?} is there twice", twice.1), "give every VM its own name");
    }
    read
}

fn tags(s: &mut Section<'_, '_>) -> Vec<String> {
    let about = "Tags of this machine: plugins that want others do not run here";
    let tags: Vec<Text> = s.list("tags", Vec::new(), ("words", 64), about);
    tags.into_iter().map(|Text(tag)| tag).collect()
}

/// An address makes a lab of several machines.
fn network(s: &mut Section<'_, '_>) -> Option<LabNetwork> {
    let address = s.text(
        "address",
        "",
        (
            "an IPv4 address with its prefix",
            "This machine in the lab's network, such as 10.7.0.3/24; without it the lab has one machine",
        ),
        |text| if text.is_empty() { Ok(()) } else { in_network(text).map(drop) },
    );
    let port = s.bounded("port", 7300_u32, 1..=65_535, "TCP and UDP port of the lab, the same on all machines");
    let wide = s.flag("wide", false, "Whether a network larger than a /22 may be searched for machines");
    let (address, prefix) = in_network(&address).ok()?;
    if let Err(refused) = AddressRange::new(address, prefix, wide) {
        s.blame("address", refused.to_string(), "say `wide = true` for up to a /16");
    }
    Some(LabNetwork { address, port: u16::try_from(port).unwrap_or(7300), prefix, wide })
}

fn in_network(text: &str) -> Result<(Ipv4Addr, u8), String> {
    let expected = || format!("{text:?} is no address with its prefix, such as 10.7.0.3/24");
    let (address, prefix) = text.split_once('/').ok_or_else(expected)?;
    Ok((address.parse().map_err(|_| expected())?, prefix.parse().map_err(|_| expected())?))
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
