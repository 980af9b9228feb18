//! Reads TOML into typed values within their bounds. All problems are collected on the way, each with its line.

use crate::group::Settings;
use crate::problem::{Problem, line_of};
use crate::section::Section;
use crate::setting::{Setting, one_line};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Reads one document, section by section.
pub struct Reader<'t> {
    text: &'t str,
    root: Spanned<DeTable<'t>>,
    sections: Vec<Read>,
    settings: Vec<Setting>,
    problems: Vec<Problem>,
}

/// A section that has been read.
struct Read {
    name: &'static str,
    about: String,
    line: usize,
}

/// What a document was found to say.
#[derive(Debug, Clone)]
pub struct ReadDocument {
    /// The sections and what each is about.
    pub sections: Vec<(&'static str, String)>,
    /// Every key that was asked for.
    pub settings: Vec<Setting>,
    /// Everything that is wrong.
    pub problems: Vec<Problem>,
}

impl<'t> Reader<'t> {
    /// Parses the document.
    pub fn new(text: &'t str) -> Reader<'t> {
        let (root, errors) = DeTable::parse_recoverable(text);
        let broken = |error: toml::de::Error| Problem {
            line: error.span().map(|span| line_of(text, &span)),
            key: String::new(),
            what: error.message().to_owned(),
            hint: "keys are written as name = value under a [section]".into(),
        };
        let problems = errors.into_iter().map(broken).collect();
        Reader { text, root, sections: Vec::new(), settings: Vec::new(), problems }
    }

    /// Reads a declared section.
    pub fn read<T: Settings>(&mut self) -> T {
        self.section(T::SECTION, &one_line(T::ABOUT), T::read)
    }

    /// Reads one table by what `read` asks of it; what nobody asks for is unknown.
    pub fn section<T>(&mut self, name: &'static str, about: &str, read: impl FnOnce(&mut Section<'_, 't>) -> T) -> T {
        let found = find(self.root.get_ref(), name);
        let (table, line) = match found {
            Some(value) => (value.get_ref().as_table(), line_of(self.text, &value.span())),
            None => (None, 1),
        };
        self.sections.push(Read { name, about: about.to_owned(), line });
        if table.is_none() && found.is_some() {
            let hint = format!("write [{name}] on a line of its own, and the keys below it");
            self.problems.push(Problem { line: Some(line), key: name.into(), what: "must be a table".into(), hint });
        }
        let mut section = Section { text: self.text, name, line, table, settings: Vec::new(), problems: Vec::new() };
        let value = read(&mut section);
        let Section { settings, problems, .. } = section;
        self.settings.extend(settings);
        self.problems.extend(problems);
        value
    }

    /// A rule between two sections does not hold: blames a key that has been read.
    pub fn blame(&mut self, section: &'static str, key: &'static str, what: String, hint: &str) {
        let given = self.settings.iter().find(|setting| (setting.section, setting.key) == (section, key));
        let line = given.and_then(|setting| setting.line);
        let line = line.or_else(|| self.sections.iter().find(|read| read.name == section).map(|read| read.line));
        self.problems.push(Problem { line, key: format!("{section}.{key}"), what, hint: hint.into() });
    }

    /// Everything that was asked for, and everything that was wrong.
    pub fn finish(mut self) -> ReadDocument {
        let mut known: Vec<&str> = Vec::new();
        for read in &self.sections {
            self.problems.extend(self.unknown_keys(read.name));
            // The one above may have no keys of its own, as `sign_in` of `sign_in.ldap`.
            let first = read.name.split('.').next().unwrap_or(read.name);
            if !known.contains(&first) {
                known.push(first);
            }
        }
        for above in known.iter().filter(|above| self.sections.iter().all(|read| read.name != **above)) {
            self.problems.extend(self.unknown_keys(above));
        }
        for (key, value) in self.root.get_ref() {
            if !known.contains(&key.get_ref().as_ref()) {
                let line = line_of(self.text, &key.span());
                let kind = if value.get_ref().is_table() { "section" } else { "key" };
                self.problems.push(unknown(key.get_ref(), kind, line, key.get_ref(), &known));
            }
        }
        let sections = self.sections.into_iter().map(|read| (read.name, read.about)).collect();
        ReadDocument { sections, settings: self.settings, problems: self.problems }
    }

    /// Keys that nobody asked for; a table may be a section of its own.
    fn unknown_keys(&self, section: &str) -> Vec<Problem> {
        let keys = self.settings.iter().filter(|setting| setting.section == section).map(|setting| setting.key);
        let below = self.sections.iter().filter_map(|read| read.name.strip_prefix(section)?.strip_prefix('.'));
        let known: Vec<&str> = keys.chain(below.filter(|name| !name.contains('.'))).collect();
        let table = find(self.root.get_ref(), section).and_then(|value| value.get_ref().as_table());
        let mut problems = Vec::new();
        for (key, _) in table.into_iter().flatten() {
            let (name, path) = (key.get_ref(), format!("{section}.{}", key.get_ref()));
            if !known.contains(&name.as_ref()) && !self.sections.iter().any(|read| read.name == path) {
                problems.push(unknown(&path, "key", line_of(self.text, &key.span()), name, &known));
            }
        }
        problems
    }
}

/// The value at a path such as `throttle.list`; a path through something else than tables leads nowhere.
fn find<'a, 't>(root: &'a DeTable<'t>, path: &str) -> Option<&'a Spanned<DeValue<'t>>> {
    let (first, rest) = path.split_once('.').map_or((path, None), |(first, rest)| (first, Some(rest)));
    let (_, value) = root.iter().find(|(key, _)| key.get_ref() == first)?;
    match rest {
        None => Some(value),
        Some(rest) => find(value.get_ref().as_table()?, rest),
    }
}

fn unknown(path: &str, kind: &str, line: usize, name: &str, known: &[&str]) -> Problem {
    let nearest = known.iter().map(|k| (distance(name, k), k)).min().filter(|(d, _)| *d <= 3);
    let hint = match nearest {
        Some((_, nearest)) => format!("did you mean {nearest:?}?"),
        None => format!("known here: {}", known.join(", ")),
    };
    Problem { line: Some(line), key: path.into(), what: format!("unknown {kind}"), hint }
}

/// Levenshtein's distance, on at most the first 40 characters.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().take(40).collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().take(40).enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distance_counts_edits() {
        assert_eq!(distance("workingset", "working_set"), 1);
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("kitten", "sitting"), 3);
    }
}
