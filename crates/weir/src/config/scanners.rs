//! `[scan.workers]`, `[scan.yara]`, `[scan.attachments]`, `[scan.clamav]`, `[scan.feeds]`, `[scan.rspamd]`, `[scan.spamassassin]`: who
//! looks at mail, and what it may cost.

use super::reader::{Reader, Section};
use super::value::Text;
use crate::units::{Size, Span};
use std::path::PathBuf;
use std::time::Duration;
use weir_scan::address::Address;
use weir_scan::attachments::policy::{Choice, Policy};
use weir_scan::budget::Limits;
use weir_scan::deadline::Deadline;
use weir_scan::examine::Setup;
use weir_scan::panel::{Bounds, Settings, Workers};
use weir_scan::worker::{Program, pool};
use weir_scan::yara::RuleFile;
use weir_scan::{clamd, rspamd};

/// The tables inside `[scan]`.
pub(super) fn nest(s: &mut Section<'_, '_>) {
    for name in ["workers", "yara", "attachments", "clamav", "feeds", "rspamd", "spamassassin", "lab"] {
        s.nested(name);
    }
}

/// Reads all of them; mail goes to this many feeds.
pub(super) fn read(reader: &mut Reader<'_>, feeds: usize) -> Settings {
    let (pool, limits, memory) = reader.section(
        "scan.workers",
        "The processes that open mail: how many, and what one message may cost them",
        workers,
    );
    let (rules, folder) =
        reader.section("scan.yara", "YARA rules, looked for in the message and in every file inside it", yara);
    let (mut policy, rar) =
        reader.section("scan.attachments", "Which attachments do not pass, at any depth of archives", attachments);
    let clamd = reader.section("scan.clamav", "ClamAV's clamd; off until it has an address", clamav);
    let feeds = reader.section(
        "scan.feeds",
        "Scanners on other machines for single feeds: so scanning grows past one machine",
        |s| of_feeds(s, feeds, clamd.is_some()),
    );
    let rspamd = reader.section("scan.rspamd", "Rspamd over HTTP; off until it has an address", |s| spam(s, true));
    let spamd =
        reader.section("scan.spamassassin", "SpamAssassin's spamd; off until it has an address", |s| spam(s, false));
    // What clamd opens need not be opened here.
    policy.closed = rar.unwrap_or(if clamd.is_some() { Choice::Allow } else { Choice::NotScanned });
    let on = policy.enabled || !rules.is_empty() || folder.is_some();
    let workers = on.then_some(Workers { pool, setup: Setup { rules, policy, limits, ..Setup::default() }, folder });
    Settings { workers, clamd, feeds, rspamd, spamd, memory }
}

fn workers(s: &mut Section<'_, '_>) -> (pool::Settings, Limits, Bounds) {
    let d = pool::Settings::default();
    let workers = s.bounded("workers", 0, 0..=1024, "Processes at once; 0 for as many as there are processors");
    let memory = size(s, "memory", pool::MEMORY, (256 << 20, 64 << 30), "Address space of one process");
    let messages = s.bounded("messages", d.messages, 1..=1_000_000, "A process is replaced after so many messages");
    let deadline = deadline(s, d.deadline);
    let wait = span(s, "wait", d.wait, (1, 3600), "How long a message waits for a free process");
    let limits = limits(s);
    let b = Bounds::default();
    let entries =
        s.bounded("remembered", b.entries as u32, 0..=10_000_000, "Answers that are remembered by content; 0 for none");
    let age = span(s, "remembered_for", b.age, (0, 7 * 86_400), "How long they are");
    if memory < limits.message_bytes + limits.held_bytes + (128 << 20) {
        let problem = "less than message_size, unpacked_at_once and 128MiB together".into();
        s.blame("memory", problem, "give more memory, or let messages be smaller");
    }
    let settings =
        pool::Settings { workers: workers as usize, program: Program::itself(memory), deadline, wait, messages };
    (settings, limits, Bounds { entries: entries as usize, age, ..b })
}

fn limits(s: &mut Section<'_, '_>) -> Limits {
    let d = Limits::default();
    Limits {
        message_bytes: size(s, "message_size", d.message_bytes, (1 << 10, 4 << 30), "A larger message is not scanned"),
        levels: s.bounded("levels", d.levels, 1..=200, "Messages and multiparts inside each other"),
        parts: s.bounded("parts", d.parts, 1..=1_000_000, "Parts of all messages together"),
        header_bytes: size(s, "header", d.header_bytes, (1 << 10, 64 << 20), "The header of one part"),
        depth: s.bounded("depth", d.depth, 0..=32, "Archives inside each other"),
        entries: s.bounded("entries", d.entries, 0..=1_000_000, "Files in all archives together"),
        bytes: size(s, "unpacked", d.bytes, (1 << 20, 64 << 30), "What comes out of all archives together"),
        held_bytes: size(s, "unpacked_at_once", d.held_bytes, (1 << 20, 16 << 30), "What of it is in memory at once"),
        ratio: s.bounded("ratio", d.ratio, 1..=100_000, "What may come out of one packed byte, beyond the first 8 MiB"),
        time: span(s, "processor_time", d.time, (1, 600), "Processor time for one message"),
    }
}

fn yara(s: &mut Section<'_, '_>) -> (Vec<RuleFile>, Option<PathBuf>) {
    let embedded = s.flag("embedded", true, "Whether the rules that Weir brings are in force");
    let folder = s.text(
        "folder",
        "",
        ("a path", "A folder of .yar and .yara files, read again when it changes; empty for none"),
        |_| Ok(()),
    );
    let rules = if embedded { vec![RuleFile::embedded()] } else { Vec::new() };
    (rules, (!folder.is_empty()).then(|| folder.into()))
}

fn attachments(s: &mut Section<'_, '_>) -> (Policy, Option<Choice>) {
    let mut policy =
        Policy { enabled: s.flag("enabled", true, "Whether names and types are looked at"), ..Policy::default() };
    let more: Vec<Text> =
        s.list("forbid", Vec::new(), ("extensions", 1000), "More extensions that do not pass, such as \"zip\"");
    let fewer: Vec<Text> = s.list(
        "permit",
        Vec::new(),
        ("extensions", 1000),
        "Extensions of the built-in list that pass, such as \"iso\"",
    );
    let plain = |Text(text): &Text| text.trim_start_matches('.').to_lowercase();
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
    policy.macros = s.choice("macros", &suspecting, "Documents with macros or with files inside");
    let closed = [
        ("auto", None),
        ("not-scanned", Some(Choice::NotScanned)),
        ("forbid", Some(Choice::Forbid)),
        ("allow", Some(Choice::Allow)),
    ];
    let rar = s.choice(
        "rar",
        &closed,
        "RAR and other archives that Weir does not open; auto leaves them to ClamAV if it is there",
    );
    (policy, rar)
}

fn forbidding(s: &mut Section<'_, '_>, key: &'static str, about: &'static str) -> Choice {
    let words = [("forbid", Choice::Forbid), ("suspicious", Choice::Suspicious), ("allow", Choice::Allow)];
    s.choice(key, &words, about)
}

fn not_scanning(s: &mut Section<'_, '_>, key: &'static str, about: &'static str) -> Choice {
    let words = [("not-scanned", Choice::NotScanned), ("forbid", Choice::Forbid), ("allow", Choice::Allow)];
    s.choice(key, &words, about)
}

fn clamav(s: &mut Section<'_, '_>) -> Option<clamd::Settings> {
    let d = clamd::Settings::default();
    let addresses: Vec<Address> = s.list(
        "addresses",
        Vec::new(),
        ("addresses", 64),
        "Where clamd listens: \"unix:/run/clamav/clamd.ctl\" or \"scan.example:3310\"; the least busy is asked",
    );
    let settings = clamd::Settings {
        size: size(
            s,
            "message_size",
            d.size,
            (1 << 10, 4 << 30),
            "A larger message is not scanned; at most clamd's StreamMaxLength and MaxFileSize",
        ),
        deadline: deadline(s, d.deadline),
        linger: span(
            s,
            "linger",
            d.linger,
            (0, 3600),
            "How long clamd goes on with a scan that was given up: its MaxScanTime",
        ),
        scans: s.bounded("scans", 0, 0..=10_000, "Scans at once at each address; 0 for clamd's MaxThreads") as usize,
        check_every: span(s, "check_every", d.check_every, (1, 3600), "How often clamd is asked how it is"),
        check_deadline: span(s, "check_deadline", d.check_deadline, (1, 600), "How long that may take"),
        self_test: s.flag("self_test", d.self_test, "Whether it must find the EICAR test file before it is believed"),
        signature_age: span(
            s,
            "signature_age",
            d.signature_age,
            (3600, 366 * 86_400),
            "Older signatures are worth an alarm",
        ),
        addresses,
    };
    (!settings.addresses.is_empty()).then_some(settings)
}

fn of_feeds(s: &mut Section<'_, '_>, feeds: usize, common: bool) -> Vec<Vec<Address>> {
    let own: Vec<Vec<Address>> = s.list(
        "clamav",
        Vec::new(),
        ("lists of addresses", 32),
        "Where clamd listens for the first feed, the second, and so on; [] or none for those of scan.clamav, which are asked too where these fail",
    );
    if own.len() > feeds {
        let problem = format!("{} lists for {feeds} feeds", own.len());
        s.blame("clamav", problem, "one list a feed: clamav = [[], [], [], [], [\"scan2.example:3310\"]]");
    }
    if !common && own.iter().any(|addresses| !addresses.is_empty()) {
        let problem = "feeds have scanners of their own, and scan.clamav.addresses is empty".into();
        s.blame("clamav", problem, "name at least one clamd there, for the other feeds and for when these fail");
    }
    own
}

fn spam(s: &mut Section<'_, '_>, http: bool) -> Option<rspamd::Settings> {
    let about = if http {
        "Where rspamd's normal worker listens: \"127.0.0.1:11333\""
    } else {
        "Where spamd listens: \"127.0.0.1:783\""
    };
    let address: Vec<Address> = s.list("address", Vec::new(), ("addresses", 1), about);
    let d = rspamd::Settings::at(Address::Host("localhost".into(), 1));
    let settings = rspamd::Settings {
        size: size(s, "message_size", d.size, (1 << 10, 1 << 30), "Larger messages are not shown to it"),
        deadline: deadline(s, d.deadline),
        optional: s.flag("optional", false, "Whether mail goes on without it when it fails"),
        password: match http {
            true => s.text("password", "", ("text", "Its password, where it wants one"), |_| Ok(())),
            false => String::new(),
        },
        address: address.first().cloned().unwrap_or(d.address),
    };
    (!address.is_empty()).then_some(settings)
}

fn deadline(s: &mut Section<'_, '_>, d: Deadline) -> Deadline {
    Deadline {
        base: span(s, "deadline", d.base, (1, 3600), "How long one message may take, however small"),
        per_mib: span(s, "deadline_per_mib", d.per_mib, (0, 3600), "And how much longer for each mebibyte"),
    }
}

fn size(
    s: &mut Section<'_, '_>,
    key: &'static str,
    default: u64,
    (least, most): (u64, u64),
    about: &'static str,
) -> u64 {
    s.bounded(key, Size(default), Size(least)..=Size(most), about).0
}

fn span(
    s: &mut Section<'_, '_>,
    key: &'static str,
    default: Duration,
    (least, most): (u64, u64),
    about: &'static str,
) -> Duration {
    let bounds = Span(Duration::from_secs(least))..=Span(Duration::from_secs(most));
    s.bounded(key, Span(default), bounds, about).0
}
