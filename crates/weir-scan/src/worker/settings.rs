//! `[scan.workers]`, `[scan.yara]` and `[scan.attachments]`: what our own workers look for, and what a message may cost them.

use super::pool;
use super::process::WorkerProgram;
use crate::attachments::policy::{Choice, Policy};
use crate::budget::Limits;
use crate::examine::Setup;
use crate::memory_bounds::Bounds;
use crate::suspicion::{Action, SuspicionPolicy};
use crate::yara::RuleFile;
use std::collections::BTreeMap;
use std::path::PathBuf;
use weir_settings::{Reader, Section, kinds, settings};

settings! {
    /// The processes that open mail: how many, and what one message may cost them
    #[section("scan.workers")]
    #[check(WorkersSettings::check)]
    struct WorkersSettings {
        pool: pool::Settings = part(),
        limits: Limits = part(),
        /// Of every scanner's answers.
        memory: Bounds = part(),
    }
}

settings! {
    /// YARA rules, looked for in the message and in every file inside it
    #[section("scan.yara")]
    struct YaraSettings {
        /// Whether the rules that Weir brings are in force
        embedded: bool = flag(true),
        /// A folder of .yar and .yara files, read again when it changes; empty for none
        folder: Option<PathBuf> = path().optional(),
    }
}

/// What workers do.
#[derive(Debug, Clone, Default)]
pub struct Workers {
    /// The processes.
    pub pool: pool::Settings,
    /// Policy, limits, and the rules that are always in force.
    pub setup: Setup,
    /// A folder of more rules, read again when it changes.
    pub folder: Option<PathBuf>,
}

/// Reads all three, and how much every scanner's memory holds.
pub(super) fn read(reader: &mut Reader<'_>) -> (Workers, Bounds) {
    let WorkersSettings { pool, limits, memory } = reader.read();
    let YaraSettings { embedded, folder } = reader.read();
    let about = "Which attachments do not pass, alone or in archives";
    let policy = reader.section("scan.attachments", about, read_attachments);
    let rules = if embedded { vec![RuleFile::embedded()] } else { Vec::new() };
    let setup = Setup { rules, policy, limits, ..Setup::default() };
    let pool = pool::Settings { program: WorkerProgram::itself(pool.memory), ..pool };
    (Workers { pool, setup, folder }, memory)
}

impl WorkersSettings {
    fn check(&self, section: &mut Section<'_, '_>) {
        if self.pool.memory < self.limits.message_bytes + self.limits.held_bytes + (128 << 20) {
            let problem = "less than message_size, unpacked_at_once and 128MiB together".into();
            section.blame("memory", problem, "give more memory, or let messages be smaller");
        }
    }
}

fn read_attachments(s: &mut Section<'_, '_>) -> Policy {
    let mut policy = Policy {
        enabled: s.key("enabled", "Whether names and types of attachments are checked", kinds::flag(true)),
        ..Policy::default()
    };
    let extensions = || kinds::list(Vec::<String>::new(), 1000, "extensions");
    let more = s.key("forbid", "More extensions that do not pass, such as \"zip\"", extensions());
    let fewer = s.key("permit", "Extensions of the built-in list that pass, such as \"iso\"", extensions());
    let plain = |text: &String| text.trim_start_matches('.').to_lowercase();
    policy.forbidden.extend(more.iter().map(plain));
    for text in &fewer {
        policy.forbidden.remove(&plain(text));
    }
    policy.programs = forbidding(s, "programs", "Programs, shortcuts and installers by content, whatever their name");
    policy.mismatch = forbidding(s, "mismatch", "Files that are not what their name says");
    policy.inconsistent = forbidding(s, "inconsistent", "Archives and parts that two readers would read in two ways");
    policy.encrypted = not_scanning(s, "encrypted", "Archives and documents with a password");
    policy.unreadable = not_scanning(
        s,
        "unreadable",
        "Archives that are damaged or packed in an unknown way, and pages with more script than is looked through",
    );
    let suspecting = [("suspicious", Choice::Suspicious), ("forbid", Choice::Forbid), ("allow", Choice::Allow)];
    policy.macros = s.key("macros", "Documents with macros or with files inside", kinds::choice(suspecting));
    let about =
        "RAR and other archives that Weir does not open, whoever else looks at them; auto is the same as not-scanned";
    let closed = [
        ("not-scanned", Choice::NotScanned),
        ("forbid", Choice::Forbid),
        ("allow", Choice::Allow),
        ("auto", Choice::NotScanned),
    ];
    policy.closed = s.key("rar", about, kinds::choice(closed));
    let sealed = [
        ("suspicious", Choice::Suspicious),
        ("not-scanned", Choice::NotScanned),
        ("forbid", Choice::Forbid),
        ("allow", Choice::Allow),
    ];
    policy.sealed =
        s.key("sealed", "Messages that are encrypted for their reader (S/MIME, PGP)", kinds::choice(sealed));
    policy.suspicion = suspicion(s);
    policy
}

fn suspicion(s: &mut Section<'_, '_>) -> SuspicionPolicy {
    let words = [
        ("rules", None),
        ("quarantine", Some(Action::Quarantine)),
        ("header", Some(Action::Header)),
        ("pass", Some(Action::Pass)),
    ];
    let about = "What happens to suspicious mail without a lab: what each rule says, or it is quarantined, delivered with a header, or delivered";
    let all = s.key("suspicious", about, kinds::choice(words));
    let about = "The same for single rules, such as \"pdf-javascript=quarantine\" or \"dde=header\"";
    let single = s.key("suspicious_rules", about, kinds::list(Vec::<String>::new(), 200, "rules with their actions"));
    let mut rules = BTreeMap::new();
    for text in &single {
        let action = text.split_once('=').and_then(|(rule, action)| Some((rule.trim(), Action::named(action.trim())?)));
        match action {
            Some((rule, action)) => _ = rules.insert(rule.to_owned(), action),
            None => s.blame(
                "suspicious_rules",
                format!("{text:?} is no rule with its action"),
                "write rule=quarantine, rule=header or rule=pass",
            ),
        }
    }
    SuspicionPolicy { all, rules }
}

fn forbidding(s: &mut Section<'_, '_>, key: &'static str, about: &'static str) -> Choice {
    let words = [("forbid", Choice::Forbid), ("suspicious", Choice::Suspicious), ("allow", Choice::Allow)];
    s.key(key, about, kinds::choice(words))
}

fn not_scanning(s: &mut Section<'_, '_>, key: &'static str, about: &'static str) -> Choice {
    let words = [("not-scanned", Choice::NotScanned), ("forbid", Choice::Forbid), ("allow", Choice::Allow)];
    s.key(key, about, kinds::choice(words))
}
