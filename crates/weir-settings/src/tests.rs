//! Tests with a section as a gate would declare it, read from files with and without faults.

use crate::{Reader, Section, settings};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Here,
    There,
}

settings! {
    /// What is tried here,
    /// in two lines
    #[section("trial.inner")]
    #[check(Trial::check)]
    #[derive(PartialEq)]
    struct Trial {
        /// Whether it runs
        enabled: bool = flag(true),
        /// How often
        attempts: u32 = number(5, 1..=100),
        /// How long
        wait: Option<Duration> = duration("0s", "0s"..="1d").optional(),
        /// How much
        bytes as "size": u32 = size("4KiB", "1KiB"..="1MiB"),
        /// Which way
        way: Way = choice([("here", Way::Here), ("there", Way::There)]),
        /// Where
        listen: Vec<SocketAddr> = list([], 2, "addresses with ports"),
        /// A folder
        folder: PathBuf = path(),
        waits: Waits = part(),
        name: String = fixed("found out later".to_owned()),
    }
}

settings! {
    /// More keys of the same section
    #[derive(PartialEq)]
    struct Waits {
        /// Waits that grow
        retry: Vec<Duration> = durations(["1m", "5m"], "1s"..="1h", 3),
        /// How deep
        depth: u8 = count(4, 0..=16),
    }
}

impl Trial {
    fn check(&self, section: &mut Section<'_, '_>) {
        if self.attempts == 7 {
            section.blame("attempts", "seven is not allowed".into(), "take another");
        }
    }
}

fn read(text: &str) -> (Trial, crate::ReadDocument) {
    let mut reader = Reader::new(text);
    reader.section("trial", "The outer table", |_| ());
    let trial = reader.read();
    (trial, reader.finish())
}

#[test]
fn an_empty_document_gives_the_defaults() {
    let (trial, found) = read("");
    assert!(found.problems.is_empty());
    assert_eq!(trial, Trial::default());
    assert_eq!((trial.bytes, trial.wait, trial.way), (4096, None, Way::Here));
    assert_eq!(trial.waits.retry, [Duration::from_secs(60), Duration::from_secs(300)]);
    assert_eq!(found.sections[1], ("trial.inner", "What is tried here, in two lines".to_owned()));
    let keys: Vec<&str> = found.settings.iter().map(|setting| setting.key).collect();
    assert_eq!(keys, ["enabled", "attempts", "wait", "size", "way", "listen", "folder", "retry", "depth"]);
    let size = &found.settings[3];
    assert_eq!(
        (size.about.as_str(), size.default.as_str(), size.bounds.as_str()),
        ("How much", "\"4KiB\"", "\"1KiB\" … \"1MiB\"")
    );
}

#[test]
fn what_is_written_is_taken() {
    let (trial, found) = read(
        "[trial.inner]\nwait = \"3s\"\nsize = \"8KiB\"\nway = \"there\"\nlisten = [\"[::1]:25\"]\nfolder = \"/x\"\nretry = [\"1s\"]\n",
    );
    assert!(found.problems.is_empty(), "{:?}", found.problems);
    assert_eq!((trial.wait, trial.bytes, trial.way), (Some(Duration::from_secs(3)), 8192, Way::There));
    assert_eq!((trial.listen.len(), trial.folder), (1, PathBuf::from("/x")));
}

#[test]
fn all_problems_are_found_with_their_lines() {
    let text = "[trial]\nother = 1\n[trial.inner]\nattempts = 7\nsize = \"2MiB\"\nway = \"up\"\nretry = [\"5s\", \"1s\"]\nenabeld = true\n";
    let (_, found) = read(text);
    let mut said: Vec<(usize, &str)> =
        found.problems.iter().map(|problem| (problem.line.unwrap(), problem.key.as_str())).collect();
    said.sort_unstable();
    let inner = ["attempts", "size", "way", "retry", "enabeld"].map(|key| format!("trial.inner.{key}"));
    let mut expected = vec![(2, "trial.other")];
    expected.extend(inner.iter().enumerate().map(|(at, key)| (4 + at, key.as_str())));
    assert_eq!(said, expected);
    assert!(found.problems.iter().any(|problem| problem.hint == "did you mean \"enabled\"?"));
}

#[test]
fn a_count_that_the_field_cannot_hold_is_outside_its_bounds() {
    let (trial, found) = read("[trial.inner]\ndepth = 300\n");
    assert_eq!((trial.waits.depth, found.problems[0].what.as_str()), (4, "300 is outside 0 … 16"));
}

#[test]
fn a_rule_between_sections_blames_a_line() {
    let mut reader = Reader::new("\n[trial.inner]\nattempts = 2\n");
    let _: Trial = reader.read();
    reader.blame("trial.inner", "attempts", "too few".into(), "");
    reader.blame("trial.inner", "size", "too small".into(), "");
    let lines: Vec<_> = reader.finish().problems.iter().filter_map(|problem| problem.line).collect();
    assert_eq!(lines[..2], [3, 2]);
}

#[test]
fn a_section_without_one_above_it_is_known_and_others_beside_it_are_not() {
    let read = |text: &str| {
        let mut reader = Reader::new(text);
        let _: Trial = reader.read();
        reader.finish().problems
    };
    assert!(read("[trial.inner]\nattempts = 3\n").is_empty());
    for (text, key) in [("[trial.iner]\n", "trial.iner"), ("[trial]\nx = 1\n", "trial.x"), ("[trail.inner]\n", "trail")]
    {
        let problems = read(text);
        assert!(problems.len() == 1 && problems[0].key == key, "{text}: {problems:?}");
    }
    assert_eq!(read("[trial.iner]\n")[0].hint, "did you mean \"inner\"?");
}
