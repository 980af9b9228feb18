//! What in a message is worth an analysis, and how it is got out.
//!
//! A [`SamplePolicy`] says which files. The worker that walks a message names them ([`Candidate`]: hash, size, name); only when
//! somebody asks for one does a worker walk once more and hand over its bytes (`extract`). So the gate itself opens no part of
//! hostile mail. A file in an archive is a candidate itself. It costs one SHA-256 for each candidate, and for each file that may turn out
//! to be one while it is opened, such as a document with macros.

use crate::budget::{Budget, Exceeded, Limits};
use crate::file_name;
use crate::plain::{shown, shown_name};
use crate::walk::kind::Kind;
use crate::walk::{self, File, NestedPath, Oddity, Visit, header};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use std::io::{self, Write};

/// Candidates of one message that are named; more are counted.
pub const CANDIDATES_MAX: usize = 16;
/// Attachments that are named where all are asked for.
const ATTACHMENTS_MAX: usize = 64;
const NAME_MAX: usize = 100;
const WHY_MAX: usize = 120;

/// Which files are worth an analysis.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sort {
    /// Scripts by their first line, or by their name.
    Scripts,
    /// Programs, shortcuts and installers.
    Programs,
    /// Documents with macros or with files inside.
    Macros,
    /// Whatever a rule or the policy for attachments calls suspicious.
    Suspicious,
    /// PDF, RTF, OneNote and the old Office formats.
    Documents,
    /// Archives that are not opened here, or have a password.
    Archives,
    /// Every attachment.
    Everything,
}

impl Sort {
    /// All of them, by name.
    pub const ALL: [(&'static str, Sort); 7] = [
        ("scripts", Sort::Scripts),
        ("programs", Sort::Programs),
        ("macros", Sort::Macros),
        ("suspicious", Sort::Suspicious),
        ("documents", Sort::Documents),
        ("archives", Sort::Archives),
        ("everything", Sort::Everything),
    ];
}

/// What is worth an analysis; by default nothing is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SamplePolicy {
    /// These sorts of files.
    pub sorts: BTreeSet<Sort>,
    /// And files in which one of these rules finds something; with the file's name before it unless the rule is one of ours.
    pub rules: BTreeSet<String>,
}

/// A file that is worth an analysis.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Candidate {
    /// SHA-256 of its content, in hexadecimal.
    pub sha256: String,
    /// Its size in bytes.
    pub size: u64,
    /// Its name, fit to show.
    pub name: String,
    /// Why it is one.
    pub why: String,
    /// Words of the message that may open it, if it is an archive.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub passwords: Vec<String>,
}

impl Candidate {
    /// How many bytes its words take.
    pub(crate) fn weight(&self) -> usize {
        let words: usize = self.passwords.iter().map(|word| size_of::<String>() + word.len()).sum();
        size_of::<Candidate>() + self.sha256.len() + self.name.len() + self.why.len() + words
    }

    fn of(file: &File<'_>, why: &str) -> Candidate {
        let name = file.names.iter().find(|name| is_script_by_name(name));
        let name = name.or_else(|| file.names.iter().find(|name| !name.is_empty()));
        Candidate::named(name.map_or("attachment", String::as_str), file, why)
    }

    /// A file by each of its names that has something else run it: mail programs differ in which of them they go by.
    fn all_of(file: &File<'_>, why: &str) -> Vec<Candidate> {
        let mut all = vec![Candidate::of(file, why)];
        for name in file.names.iter().filter(|name| is_script_by_name(name)) {
            if all.iter().all(|known| file_name::extension(&known.name) != file_name::extension(name)) {
                all.push(Candidate::named(name, file, why));
            }
        }
        all
    }

    fn named(name: &str, file: &File<'_>, why: &str) -> Candidate {
        Candidate {
            sha256: sha256(file.data),
            size: file.data.len() as u64,
            name: shown_name(name, NAME_MAX),
            why: shown(why, WHY_MAX),
            passwords: Vec::new(),
        }
    }

    /// Whether both are one for whoever analyses them: the same content, by names that have it opened in the same way.
    fn is_like(&self, other: &Candidate) -> bool {
        self.sha256 == other.sha256 && file_name::extension(&self.name) == file_name::extension(&other.name)
    }

    /// The same, with what may open it if it is an archive.
    fn with_passwords(self, file: &File<'_>, words: &[String]) -> Candidate {
        if file.kind.is_archive() { Candidate { passwords: words.to_vec(), ..self } } else { self }
    }
}

/// Scripts that say so only in their names.
pub const SCRIPTS: [&str; 24] = [
    "bash", "bat", "cmd", "csh", "hta", "js", "jse", "ksh", "lua", "php", "pl", "ps1", "psm1", "py", "rb", "sct", "sh",
    "vb", "vbe", "vbs", "wsc", "wsf", "wsh", "zsh",
];

impl SamplePolicy {
    /// Whether anything is worth an analysis.
    pub fn is_on(&self) -> bool {
        !self.sorts.is_empty() || !self.rules.is_empty()
    }

    fn has(&self, sort: Sort) -> bool {
        self.sorts.contains(&sort)
    }

    fn wants(&self, file: &File<'_>) -> Option<&'static str> {
        if !is_attachment(file) {
            return None;
        }
        let kind = file.kind;
        if self.has(Sort::Scripts) && is_script(file) {
            return Some("a script");
        }
        if self.has(Sort::Programs) && kind.is_program() {
            return Some(kind.words());
        }
        let document = matches!(kind, Kind::Pdf | Kind::Rtf | Kind::OneNote | Kind::Ole);
        if self.has(Sort::Documents) && document {
            return Some(kind.words());
        }
        (self.has(Sort::Everything) && !header::is_message(file.declared)).then(|| kind.words())
    }

    fn wants_oddity(&self, oddity: &Oddity) -> Option<&'static str> {
        match oddity {
            Oddity::Macros if self.has(Sort::Macros) => Some("a document with macros"),
            Oddity::EmbeddedObject if self.has(Sort::Macros) => Some("a document with a file inside"),
            Oddity::Installer if self.has(Sort::Programs) => Some("a Windows installer"),
            Oddity::Closed(kind) if self.has(Sort::Archives) => Some(kind.words()),
            Oddity::Encrypted if self.has(Sort::Archives) => Some("a file with a password"),
            Oddity::PasswordInMail if self.has(Sort::Suspicious) => {
                Some("an archive whose password stands in the message")
            }
            _ => None,
        }
    }
}

/// Not the text of the message itself.
fn is_attachment(file: &File<'_>) -> bool {
    let named = file.names.iter().any(|name| !name.is_empty());
    !file.data.is_empty()
        && (named || file.in_archive || !(file.declared.is_empty() || file.declared.starts_with("text/")))
}

fn is_script(file: &File<'_>) -> bool {
    let text = matches!(file.kind, Kind::Unknown | Kind::Html | Kind::Xml);
    file.kind == Kind::Script || (text && file.names.iter().any(|name| is_script_by_name(name)))
}

fn is_script_by_name(name: &str) -> bool {
    file_name::extension(name).is_some_and(|found| SCRIPTS.contains(&found.as_str()))
}

/// Names the candidates of one message while it is walked.
#[derive(Debug, Default)]
pub(crate) struct Picker {
    found: Vec<Candidate>,
    left_out: usize,
    /// Files that are open, each in the one before: they may turn out to be candidates.
    open: Vec<(NestedPath, Candidate)>,
    /// What may open archives.
    passwords: Vec<String>,
}

impl Picker {
    /// Words of the message that may open archives in it.
    pub(crate) fn passwords(&mut self, words: &[String]) {
        self.passwords = words.to_vec();
    }

    /// Every file that was found.
    pub(crate) fn file(&mut self, policy: &SamplePolicy, place: &NestedPath, file: &File<'_>) {
        if !policy.is_on() || file.data.is_empty() {
            return;
        }
        if let Some(why) = policy.wants(file) {
            self.pick_all(file, why);
        }
        self.open.retain(|(holder, _)| place.is_inside(holder));
        if file.kind.is_archive() || file.kind == Kind::Ole {
            let candidate = Candidate::of(file, "").with_passwords(file, &self.passwords);
            self.open.push((place.clone(), candidate));
        }
    }

    /// A rule, or the policy for attachments, calls a file suspicious. `why` may be the name of the rule.
    pub(crate) fn suspicious(&mut self, policy: &SamplePolicy, file: &File<'_>, why: &str) {
        if (policy.has(Sort::Suspicious) || policy.rules.contains(why)) && is_attachment(file) {
            self.pick_all(file, why);
        }
    }

    /// Something odd about a file that is open.
    pub(crate) fn odd(&mut self, policy: &SamplePolicy, place: &NestedPath, oddity: &Oddity, suspicious: bool) {
        let called = suspicious && policy.has(Sort::Suspicious);
        let Some(why) = policy.wants_oddity(oddity).or(called.then_some("suspicious by the policy for attachments"))
        else {
            return;
        };
        // The project of macros is a file in the document, and the document is what people open.
        let holder = self.open.iter().rev().find(|(at, _)| place.is_at_or_inside(at) && !at.is_piece_of_document());
        if let Some((_, candidate)) = holder {
            self.pick(Candidate { why: why.to_owned(), ..candidate.clone() });
        }
    }

    fn pick_all(&mut self, file: &File<'_>, why: &str) {
        for candidate in Candidate::all_of(file, why) {
            self.pick(candidate.with_passwords(file, &self.passwords));
        }
    }

    fn pick(&mut self, candidate: Candidate) {
        if self.found.iter().any(|known| known.is_like(&candidate)) {
            return;
        }
        match self.found.len() < CANDIDATES_MAX {
            true => self.found.push(candidate),
            false => self.left_out += 1,
        }
    }

    /// The candidates, and how many more there are.
    pub(crate) fn ended(self) -> (Vec<Candidate>, usize) {
        (self.found, self.left_out)
    }
}

/// Every attachment of a message, and how many more there are. Archives are named and not opened: who analyses them does that.
pub(crate) fn attachments(message: &[u8], limits: &Limits) -> (Vec<Candidate>, usize) {
    let mut list = List::default();
    // What comes before a bound is met is named.
    let _ = walk::walk(message, &mut Budget::new(limits), &mut list);
    (list.found, list.left_out)
}

#[derive(Default)]
struct List {
    found: Vec<Candidate>,
    left_out: usize,
    passwords: Vec<String>,
}

impl Visit for List {
    fn file(&mut self, _: &NestedPath, file: &File<'_>, _: &Budget) -> Result<(), Exceeded> {
        if is_attachment(file) && !header::is_message(file.declared) {
            for candidate in Candidate::all_of(file, file.kind.words()) {
                let candidate = candidate.with_passwords(file, &self.passwords);
                if self.found.iter().any(|known| known.is_like(&candidate)) {
                    continue;
                }
                match self.found.len() < ATTACHMENTS_MAX {
                    true => self.found.push(candidate),
                    false => self.left_out += 1,
                }
            }
        }
        Ok(())
    }

    fn odd(&mut self, _: &NestedPath, _: Oddity) {}

    fn passwords(&mut self, words: &[String]) {
        self.passwords = words.to_vec();
    }

    fn enters(&mut self, _: &NestedPath, file: &File<'_>) -> bool {
        header::is_message(file.declared)
    }
}

/// Writes the file with this hash and size, if it is in the message. Whether it is.
pub(crate) fn extract(
    message: &[u8],
    limits: &Limits,
    (hash, size): (&str, u64),
    out: &mut dyn Write,
) -> io::Result<bool> {
    let mut find = Find { hash, size, out, found: None };
    let _ = walk::walk(message, &mut Budget::new(limits), &mut find);
    find.found.unwrap_or(Ok(false))
}

struct Find<'a> {
    hash: &'a str,
    size: u64,
    out: &'a mut dyn Write,
    found: Option<io::Result<bool>>,
}

impl Visit for Find<'_> {
    fn file(&mut self, _: &NestedPath, file: &File<'_>, budget: &Budget) -> Result<(), Exceeded> {
        if file.data.len() as u64 != self.size || sha256(file.data) != self.hash {
            return Ok(());
        }
        self.found = Some(self.out.write_all(file.data).map(|()| true));
        // There is nothing more to look for: this ends the walk.
        Err(Exceeded::Time(budget.limits().time))
    }

    fn odd(&mut self, _: &NestedPath, _: Oddity) {}
}

/// SHA-256 in hexadecimal.
pub fn sha256(data: &[u8]) -> String {
    Sha256::digest(data).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCRIPT: &[u8] = b"#!/bin/sh\necho hello\n";

    fn file<'a>(names: &'a [String], declared: &'a str, data: &'a [u8]) -> File<'a> {
        File { names, declared, kind: Kind::of(data), data, in_archive: false }
    }

    fn policy(sorts: &[Sort]) -> SamplePolicy {
        SamplePolicy { sorts: sorts.iter().copied().collect(), rules: BTreeSet::new() }
    }

    fn picked(policy: &SamplePolicy, name: &str, declared: &str, data: &[u8]) -> Option<String> {
        let names: Vec<String> = [name].iter().filter(|name| !name.is_empty()).map(|&name| name.to_owned()).collect();
        let mut picker = Picker::default();
        picker.file(policy, &NestedPath::default(), &file(&names, declared, data));
        picker.ended().0.pop().map(|candidate| candidate.why)
    }

    #[test]
    fn an_archive_comes_with_the_words_of_its_message_that_may_open_it() {
        let message = b"Content-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\n\r\nThe password is Inv-2026!\r\n\
            --b\r\nContent-Type: application/zip; name=a.zip\r\n\r\nPK\x03\x04 and so on\r\n\
            --b\r\nContent-Type: image/png; name=b.png\r\n\r\n\x89PNG\r\n--b--\r\n";
        let (files, _) = attachments(message, &Limits::default());
        let words = |name: &str| files.iter().find(|file| file.name == name).map(|file| file.passwords.clone());
        assert!(words("a.zip").is_some_and(|words| words.contains(&"Inv-2026!".to_owned())), "{files:?}");
        assert_eq!(words("b.png"), Some(Vec::new()));
    }

    #[test]
    fn files_are_picked_by_what_they_are() {
        let usual = policy(&[Sort::Scripts, Sort::Programs, Sort::Macros]);
        let why = |name: &str, declared: &str, data: &[u8]| picked(&usual, name, declared, data);
        assert_eq!(why("run.sh", "text/plain", SCRIPT).as_deref(), Some("a script"));
        assert_eq!(why("note.txt", "text/plain", SCRIPT).as_deref(), Some("a script"), "by its first line");
        assert_eq!(why("a.py", "", b"import os\n").as_deref(), Some("a script"), "by its name");
        assert_eq!(why("a", "", b"\x7fELF\x02\x01").as_deref(), Some("a Linux program"));
        assert_eq!(why("", "text/plain", SCRIPT), None, "the text of a mail is no attachment");
        assert_eq!(why("a.txt", "text/plain", b"hello"), None);
        assert_eq!(why("a.pdf", "application/pdf", b"%PDF-1.4"), None);
        assert_eq!(picked(&policy(&[Sort::Documents]), "a.pdf", "", b"%PDF-1.4").as_deref(), Some("a PDF"));
        assert_eq!(picked(&policy(&[Sort::Everything]), "a.txt", "", b"hello").as_deref(), Some("a file"));
        assert_eq!(picked(&SamplePolicy::default(), "run.sh", "", SCRIPT), None, "off");
    }

    #[test]
    fn candidates_are_bounded_and_none_is_named_twice() {
        let policy = policy(&[Sort::Scripts]);
        let mut picker = Picker::default();
        for number in 0..2 * CANDIDATES_MAX {
            let data = format!("#!/bin/sh\necho {}\n", number.max(1));
            picker.file(&policy, &NestedPath::default(), &file(&["a.sh".to_owned()], "", data.as_bytes()));
        }
        let (found, left_out) = picker.ended();
        assert_eq!((found.len(), left_out), (CANDIDATES_MAX, CANDIDATES_MAX - 1));
    }

    /// As a text it does nothing, and as a script it may: the name belongs to it.
    #[test]
    fn the_same_content_is_named_for_each_way_to_open_it() {
        let policy = policy(&[Sort::Everything]);
        let mut picker = Picker::default();
        let long = format!("{}.bat", "a".repeat(300));
        for names in [&["notes.txt"][..], &["copy.txt"], &["run.txt", "run.sh"], &["a.SH"], &[&long]] {
            let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
            picker.file(&policy, &NestedPath::default(), &file(&names, "", b"echo hello"));
        }
        let names: Vec<String> = picker.ended().0.into_iter().map(|candidate| candidate.name).collect();
        assert_eq!(names.get(..2), Some(&["notes.txt".to_owned(), "run.sh".to_owned()][..]));
        assert!(
            names.len() == 3 && names.iter().any(|name| name.ends_with("aaa.bat") && name.len() < 200),
            "{names:?}"
        );
    }

    #[test]
    fn a_file_is_named_by_each_name_that_has_something_else_run_it() {
        let names = ["a.txt", "a.py", "b.py", "a.sh"].map(str::to_owned);
        let mut picker = Picker::default();
        picker.file(&policy(&[Sort::Scripts]), &NestedPath::default(), &file(&names, "", b"import os"));
        let mut mistrusted = Picker::default();
        let rules = SamplePolicy { sorts: BTreeSet::new(), rules: ["odd".to_owned()].into() };
        mistrusted.suspicious(&rules, &file(&names, "", b"import os"), "odd");
        let mut list = List::default();
        list.file(&NestedPath::default(), &file(&names, "", b"import os"), &Budget::new(&Limits::default())).unwrap();
        for found in [picker.ended().0, mistrusted.ended().0, list.found] {
            assert_eq!(found.iter().map(|one| one.name.as_str()).collect::<Vec<_>>(), ["a.py", "a.sh"]);
        }
    }

    #[test]
    fn what_a_rule_suspects_is_picked_by_its_name() {
        let (names, mut picker) = (["a.bin".to_owned()], Picker::default());
        let policy = SamplePolicy { sorts: BTreeSet::new(), rules: ["mine/odd".to_owned()].into() };
        picker.suspicious(&policy, &file(&names, "", b"x"), "other");
        picker.suspicious(&policy, &file(&names, "", b"x"), "mine/odd");
        assert_eq!(picker.ended().0.first().map(|candidate| candidate.why.clone()).as_deref(), Some("mine/odd"));
    }

    const MAIL: &str = "From: a@b\r\nMIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary=x\r\n\r\n--x\r\n\r\nhello\r\n\
        --x\r\nContent-Type: application/octet-stream; name=\"run.sh\"\r\nContent-Transfer-Encoding: base64\r\n\r\n\
        IyEvYmluL3NoCmVjaG8gaGVsbG8K\r\n--x--\r\n";

    #[test]
    fn one_file_comes_out_as_it_is() {
        let limits = Limits::default();
        let (found, left_out) = attachments(MAIL.as_bytes(), &limits);
        let names: Vec<&str> = found.iter().map(|candidate| candidate.name.as_str()).collect();
        assert_eq!((names, left_out), (vec!["run.sh"], 0));
        let mut out = Vec::new();
        let wanted = (found[0].sha256.as_str(), found[0].size);
        assert!(extract(MAIL.as_bytes(), &limits, wanted, &mut out).unwrap());
        assert_eq!(out, SCRIPT);
        let other = sha256(b"other");
        assert!(!extract(MAIL.as_bytes(), &limits, (&other, SCRIPT.len() as u64), &mut out).unwrap());
    }
}
