//! Collects what a plugin finds: findings, observables and files, each bounded and safe to show.

use ring::digest::{SHA256, digest};
use serde_json::Value;
use serde_json::value::to_raw_value;
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use weir_lab::active::way;
use weir_lab::job::{Artifact, Level, Report, Summary, Taxonomy};
use weir_scan::plain::{shown, shown_name};

/// Lines of one report.
const LINES_MAX: usize = 64;
/// Observables of one report.
const OBSERVABLES_MAX: usize = 600;
/// Files of one report, and their bytes together.
pub const CHILDREN_MAX: usize = 200;
const CHILDREN_BYTES_MAX: u64 = 256 << 20;
/// A line, a name and an observable, in characters.
const WORDS_MAX: usize = 300;
const NAME_MAX: usize = 200;
const OBSERVABLE_MAX: usize = 1024;

/// Where files go that were found in a sample.
pub trait Shelf {
    /// Keeps a file, and says under which name it lies there.
    fn keep(&mut self, data: &[u8]) -> io::Result<String>;
}

/// The output folder of a job.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    begin: String,
    kept: usize,
}

impl Folder {
    /// An empty one.
    pub fn new(path: &Path) -> Folder {
        Folder { path: path.to_owned(), begin: "child".into(), kept: 0 }
    }

    /// One that plugins share: each has names of its own in it.
    pub fn named(path: &Path, plugin: &str) -> Folder {
        Folder { begin: format!("child-{plugin}"), ..Folder::new(path) }
    }
}

impl Shelf for Folder {
    fn keep(&mut self, data: &[u8]) -> io::Result<String> {
        // Names of our own: those in archives are somebody's wish.
        let name = format!("{}-{}", self.begin, self.kept);
        std::fs::write(self.path.join(&name), data)?;
        self.kept += 1;
        Ok(name)
    }
}

/// A shelf for tests.
#[derive(Debug, Default)]
pub struct Memory(pub Vec<Vec<u8>>);

impl Shelf for Memory {
    fn keep(&mut self, data: &[u8]) -> io::Result<String> {
        self.0.push(data.to_vec());
        Ok(format!("child-{}", self.0.len() - 1))
    }
}

/// Findings under way.
pub struct Findings<'k> {
    plugin: String,
    taxonomies: Vec<Taxonomy>,
    observables: Vec<Artifact>,
    known: BTreeSet<(&'static str, String)>,
    children: Vec<Artifact>,
    child_bytes: u64,
    child_hashes: BTreeSet<(Vec<u8>, String)>,
    /// Files that found no room: nobody will look at them.
    left: u64,
    shelf: &'k mut dyn Shelf,
}

/// What became of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    /// It will be analysed.
    Yes,
    /// The same content was there before.
    Known,
    /// There are enough of them, or it is empty.
    No,
}

impl<'k> Findings<'k> {
    /// None yet.
    pub fn new(plugin: &str, shelf: &'k mut dyn Shelf) -> Findings<'k> {
        Findings {
            plugin: plugin.into(),
            taxonomies: Vec::new(),
            observables: Vec::new(),
            known: BTreeSet::new(),
            children: Vec::new(),
            child_bytes: 0,
            child_hashes: BTreeSet::new(),
            left: 0,
            shelf,
        }
    }

    /// Something that says nothing for or against the sample.
    pub fn info(&mut self, predicate: &str, value: impl Into<String>) {
        self.say(Level::Info, predicate, &Into::<String>::into(value));
    }

    /// A trick that honest files seldom need.
    pub fn suspicious(&mut self, predicate: &str, value: impl Into<String>) {
        self.say(Level::Suspicious, predicate, &Into::<String>::into(value));
    }

    /// Proof.
    pub fn malicious(&mut self, predicate: &str, value: impl Into<String>) {
        self.say(Level::Malicious, predicate, &Into::<String>::into(value));
    }

    /// A scanner has looked at the whole and found nothing.
    pub fn safe(&mut self, predicate: &str, value: impl Into<String>) {
        self.say(Level::Safe, predicate, &Into::<String>::into(value));
    }

    /// Why nobody can say that it is harmless: something of it was not looked at.
    pub fn unknown(&mut self, predicate: &str, value: impl Into<String>) {
        self.say(Level::Unknown, predicate, &Into::<String>::into(value));
    }

    fn say(&mut self, level: Level, predicate: &str, value: &str) {
        let line = Taxonomy {
            level,
            namespace: self.plugin.clone(),
            predicate: predicate.into(),
            value: shown(value, WORDS_MAX),
        };
        if self.taxonomies.contains(&line) {
            return;
        }
        if self.taxonomies.len() < LINES_MAX {
            self.taxonomies.push(line);
        } else if let Some(lesser) = self.taxonomies.iter_mut().find(|known| known.level < level) {
            // A flood of remarks must not hide what is grave.
            *lesser = line;
        }
    }

    /// An observable, once: whether there was room for it.
    pub fn observable(&mut self, data_type: &'static str, data: &str) -> bool {
        let data = shown(data, OBSERVABLE_MAX);
        if self.observables.len() >= OBSERVABLES_MAX || data.is_empty() {
            return false;
        }
        if self.known.insert((data_type, data.clone())) {
            let artifact = Artifact { data_type: data_type.into(), data: Some(data), ..Artifact::default() };
            self.observables.push(artifact);
        }
        true
    }

    /// A file that was in the sample, once each content; more often where several names have it opened in different ways.
    pub fn child(&mut self, name: &str, data: &[u8]) -> io::Result<Kept> {
        let bytes = self.child_bytes + data.len() as u64;
        if data.is_empty() || self.children.len() >= CHILDREN_MAX || bytes > CHILDREN_BYTES_MAX {
            self.left += u64::from(!data.is_empty());
            return Ok(Kept::No);
        }
        if !self.child_hashes.insert((digest(&SHA256, data).as_ref().to_vec(), way(name))) {
            return Ok(Kept::Known);
        }
        let file = self.shelf.keep(data)?;
        let name = shown_name(name, NAME_MAX);
        let filename = if name.is_empty() { file.clone() } else { name };
        let artifact =
            Artifact { data_type: "file".into(), file: Some(file), filename: Some(filename), ..Artifact::default() };
        self.children.push(artifact);
        self.child_bytes = bytes;
        Ok(Kept::Yes)
    }

    /// How many files there are.
    pub fn children(&self) -> usize {
        self.children.len()
    }

    /// The gravest level so far.
    pub fn gravest(&self) -> Option<Level> {
        self.taxonomies.iter().map(|line| line.level).max()
    }

    /// The report: the gravest first.
    pub fn report(mut self, full: &Value) -> io::Result<Report> {
        if self.left > 0 {
            self.unknown("left", format!("{} more files than go back to the queue, which nobody looks at", self.left));
        }
        self.taxonomies.sort_by_key(|line| std::cmp::Reverse(line.level));
        let mut artifacts = self.children;
        artifacts.append(&mut self.observables);
        Ok(Report {
            success: true,
            error_message: String::new(),
            full: to_raw_value(full)?,
            summary: Summary { taxonomies: self.taxonomies },
            artifacts,
        })
    }
}

/// The report of a plugin that could not look.
pub fn failed(problem: &str) -> io::Result<Report> {
    Ok(Report {
        success: false,
        error_message: shown(problem, WORDS_MAX),
        full: to_raw_value(&Value::Null)?,
        summary: Summary::default(),
        artifacts: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_grave_is_not_lost_in_a_flood() {
        let mut shelf = Memory::default();
        let mut findings = Findings::new("t", &mut shelf);
        (0..1000).for_each(|n| findings.info("n", n.to_string()));
        findings.malicious("name", "evil");
        let report = findings.report(&Value::Null).unwrap();
        assert_eq!(report.summary.taxonomies.len(), LINES_MAX);
        assert_eq!(report.summary.taxonomies[0].level, Level::Malicious);
    }

    #[test]
    fn files_and_observables_are_bounded_and_told_once() {
        let mut shelf = Memory::default();
        let mut findings = Findings::new("t", &mut shelf);
        assert_eq!(findings.child("a", b"x").unwrap(), Kept::Yes);
        assert_eq!(findings.child("b", b"x").unwrap(), Kept::Known);
        assert_eq!(findings.child("c", b"").unwrap(), Kept::No);
        let all = (0..2000_u32).map(|n| findings.child("n", &n.to_le_bytes()).unwrap());
        assert_eq!(all.filter(|kept| *kept == Kept::Yes).count(), CHILDREN_MAX - 1);
        for n in 0..5000 {
            findings.observable("domain", &format!("{n}.example"));
        }
        findings.observable("domain", "1.example");
        let report = findings.report(&Value::Null).unwrap();
        assert_eq!(report.artifacts.len(), CHILDREN_MAX + OBSERVABLES_MAX);
        let text = serde_json::to_vec(&report).unwrap();
        assert!(Report::read(&text).is_ok(), "a report of ours is a valid one");
    }
}
