//! `[scan.workers]`, `[scan.yara]` and `[scan.attachments]`: what our own workers look for, and what a message may cost them.

use super::pool;
use super::process::Program;
use super::scanner::Workers;
use crate::attachments::policy::{Choice, Policy};
use crate::budget::Limits;
use crate::examine::Setup;
use crate::panel::Bounds;
use crate::yara::RuleFile;
use std::path::PathBuf;
use weir_settings::{Reader, Section, kinds};

/// Reads all three, and how much every scanner's memory holds.
pub(super) fn read(reader: &mut Reader<'_>) -> (Workers, Bounds) {
    let about = "The processes that open mail: how many, and what one message may cost them";
    let (pool, limits, memory) = reader.section("scan.workers", about, read_workers);
    let about = "YARA rules, looked for in the message and in every file inside it";
    let (rules, folder) = reader.section("scan.yara", about, read_yara);
    let about = "Which attachments do not pass, at any depth of archives";
    let (policy, leave_closed_archives) = reader.section("scan.attachments", about, read_attachments);
    let setup = Setup { rules, policy, limits, ..Setup::default() };
    (Workers { pool, setup, folder, leave_closed_archives }, memory)
}

fn read_workers(s: &mut Section<'_, '_>) -> (pool::Settings, Limits, Bounds) {
    let d = pool::Settings::default();
    let workers =
        s.key("workers", "Processes at once; 0 for as many as there are processors", kinds::number(0_usize, 0..=1024));
    let memory = s.key("memory", "Address space of one process", kinds::size(pool::MEMORY, "256MiB"..="64GiB"));
    let messages =
        s.key("messages", "A process is replaced after so many messages", kinds::number(d.messages, 1..=1_000_000));
    let deadline = d.deadline.read(s);
    let wait = s.key("wait", "How long a message waits for a free process", kinds::duration(d.wait, "1s"..="1h"));
    let limits = read_limits(s);
    let b = Bounds::default();
    let entries = s.key(
        "remembered",
        "Answers that are remembered by content; 0 for none",
        kinds::number(b.entries, 0..=10_000_000),
    );
    let age = s.key("remembered_for", "How long they are", kinds::duration(b.age, "0s"..="7d"));
    if memory < limits.message_bytes + limits.held_bytes + (128 << 20) {
        let problem = "less than message_size, unpacked_at_once and 128MiB together".into();
        s.blame("memory", problem, "give more memory, or let messages be smaller");
    }
    let settings = pool::Settings { workers, program: Program::itself(memory), deadline, wait, messages };
    (settings, limits, Bounds { entries, age, ..b })
}

fn read_limits(s: &mut Section<'_, '_>) -> Limits {
    let d = Limits::default();
    Limits {
        message_bytes: s.key(
            "message_size",
            "A larger message is not scanned",
            kinds::size(d.message_bytes, "1KiB"..="4GiB"),
        ),
        levels: s.key("levels", "Messages and multiparts inside each other", kinds::number(d.levels, 1..=200)),
        parts: s.key("parts", "Parts of all messages together", kinds::number(d.parts, 1..=1_000_000)),
        header_bytes: s.key("header", "The header of one part", kinds::size(d.header_bytes, "1KiB"..="64MiB")),
        depth: s.key("depth", "Archives inside each other", kinds::number(d.depth, 0..=32)),
        entries: s.key("entries", "Files in all archives together", kinds::number(d.entries, 0..=1_000_000)),
        bytes: s.key("unpacked", "What comes out of all archives together", kinds::size(d.bytes, "1MiB"..="64GiB")),
        held_bytes: s.key(
            "unpacked_at_once",
            "What of it is in memory at once",
            kinds::size(d.held_bytes, "1MiB"..="16GiB"),
        ),
        ratio: s.key(
            "ratio",
            "What may come out of one packed byte, beyond the first 8 MiB",
            kinds::number(d.ratio, 1..=100_000),
        ),
        time: s.key("processor_time", "Processor time for one message", kinds::duration(d.time, "1s"..="10m")),
    }
}

fn read_yara(s: &mut Section<'_, '_>) -> (Vec<RuleFile>, Option<PathBuf>) {
    let embedded = s.key("embedded", "Whether the rules that Weir brings are in force", kinds::flag(true));
    let folder = s.key(
        "folder",
        "A folder of .yar and .yara files, read again when it changes; empty for none",
        kinds::text("", "a path"),
    );
    let rules = if embedded { vec![RuleFile::embedded()] } else { Vec::new() };
    (rules, (!folder.is_empty()).then(|| folder.into()))
}

/// The policy, and whether archives that are not opened here are left to who opens them.
fn read_attachments(s: &mut Section<'_, '_>) -> (Policy, bool) {
    let mut policy = Policy {
        enabled: s.key("enabled", "Whether names and types are looked at", kinds::flag(true)),
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
    policy.mismatch = forbidding(s, "mismatch", "Files whose name promises something else than they are");
    policy.inconsistent = forbidding(s, "inconsistent", "Archives and parts that two readers would read in two ways");
    policy.encrypted = not_scanning(s, "encrypted", "Archives and documents with a password");
    policy.unreadable = not_scanning(s, "unreadable", "Archives that are damaged or packed in an unknown way");
    let suspecting = [("suspicious", Choice::Suspicious), ("forbid", Choice::Forbid), ("allow", Choice::Allow)];
    policy.macros = s.key("macros", "Documents with macros or with files inside", kinds::choice(suspecting));
    let closed = [
        ("auto", None),
        ("not-scanned", Some(Choice::NotScanned)),
        ("forbid", Some(Choice::Forbid)),
        ("allow", Some(Choice::Allow)),
    ];
    let about = "RAR and other archives that Weir does not open; auto leaves them to ClamAV if it is there";
    let closed = s.key("rar", about, kinds::choice(closed));
    policy.closed = closed.unwrap_or(Choice::NotScanned);
    (policy, closed.is_none())
}

fn forbidding(s: &mut Section<'_, '_>, key: &'static str, about: &'static str) -> Choice {
    let words = [("forbid", Choice::Forbid), ("suspicious", Choice::Suspicious), ("allow", Choice::Allow)];
    s.key(key, about, kinds::choice(words))
}

fn not_scanning(s: &mut Section<'_, '_>, key: &'static str, about: &'static str) -> Choice {
    let words = [("not-scanned", Choice::NotScanned), ("forbid", Choice::Forbid), ("allow", Choice::Allow)];
    s.key(key, about, kinds::choice(words))
}
