//! From TOML with places to typed values with bounds, collecting every problem on the way.

use super::problem::Problem;
use super::setting::Setting;
use super::value::{Text, Value};
use std::ops::{Range, RangeInclusive};
use std::path::PathBuf;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Reads one document.
pub(super) struct Reader<'t> {
    text: &'t str,
    root: Spanned<DeTable<'t>>,
    sections: Vec<(&'static str, &'static str)>,
    settings: Vec<Setting>,
    problems: Vec<Problem>,
}

impl<'t> Reader<'t> {
    pub(super) fn new(text: &'t str) -> Reader<'t> {
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

    /// Reads one table by what `read` asks of it; what it did not ask for is unknown.
    pub(super) fn section<T>(
        &mut self,
        name: &'static str,
        about: &'static str,
        read: impl FnOnce(&mut Section<'_, 't>) -> T,
    ) -> T {
        self.sections.push((name, about));
        let found = find(self.root.get_ref(), name);
        let (table, line) = match found {
            Some(value) => (value.get_ref().as_table(), line_of(self.text, &value.span())),
            None => (None, 1),
        };
        if table.is_none() && found.is_some() {
            let hint = format!("write [{name}] on a line of its own, and the keys below it");
            self.problems.push(Problem { line: Some(line), key: name.into(), what: "must be a table".into(), hint });
        }
        let (settings, problems, nested) = (Vec::new(), Vec::new(), Vec::new());
        let mut section = Section { text: self.text, name, line, table, nested, settings, problems };
        let value = read(&mut section);
        section.refuse_unknown();
        let Section { settings, problems, .. } = section;
        self.settings.extend(settings);
        self.problems.extend(problems);
        value
    }

    /// The sections, everything that was asked for, and everything that was wrong.
    pub(super) fn finish(mut self) -> (Vec<(&'static str, &'static str)>, Vec<Setting>, Vec<Problem>) {
        let known: Vec<&str> =
            self.sections.iter().filter(|(name, _)| !name.contains('.')).map(|(name, _)| *name).collect();
        for (key, value) in self.root.get_ref() {
            if !known.contains(&key.get_ref().as_ref()) {
                let line = line_of(self.text, &key.span());
                let kind = if value.get_ref().is_table() { "section" } else { "key" };
                self.problems.push(unknown(key.get_ref(), kind, line, key.get_ref(), &known));
            }
        }
        (self.sections, self.settings, self.problems)
    }
}

/// One table of the document.
pub(super) struct Section<'a, 't> {
    text: &'t str,
    name: &'static str,
    line: usize,
    table: Option<&'a DeTable<'t>>,
    nested: Vec<&'static str>,
    settings: Vec<Setting>,
    problems: Vec<Problem>,
}

impl Section<'_, '_> {
    /// A value inside bounds.
    pub(super) fn bounded<T: Value + PartialOrd>(
        &mut self,
        key: &'static str,
        default: T,
        range: RangeInclusive<T>,
        about: &'static str,
    ) -> T {
        let bounds = format!("{} … {}", range.start().to_toml(), range.end().to_toml());
        self.read(key, default, (&bounds, about), |value: &T| {
            if range.contains(value) { Ok(()) } else { Err(format!("{} is outside {bounds}", value.to_toml())) }
        })
    }

    /// A list whose elements lie inside bounds and grow, of at most `most` elements.
    pub(super) fn ascending<T: Value + PartialOrd>(
        &mut self,
        key: &'static str,
        default: Vec<T>,
        (range, most): (RangeInclusive<T>, usize),
        about: &'static str,
    ) -> Vec<T> {
        let bounds = format!("1 to {most} growing values, {} … {}", range.start().to_toml(), range.end().to_toml());
        self.read(key, default, (&bounds, about), |list: &Vec<T>| {
            let fits = (1..=most).contains(&list.len()) && list.iter().all(|value| range.contains(value));
            let grows = list.windows(2).all(|pair| pair[0] < pair[1]);
            if fits && grows { Ok(()) } else { Err(format!("{} is not {bounds}", list.to_toml())) }
        })
    }

    /// Text that `check` accepts.
    pub(super) fn text(
        &mut self,
        key: &'static str,
        default: &str,
        (bounds, about): (&str, &'static str),
        check: impl Fn(&str) -> Result<(), String>,
    ) -> String {
        self.read(key, Text(default.to_owned()), (bounds, about), |Text(text)| check(text)).0
    }

    /// A path; empty if none is given.
    pub(super) fn path(&mut self, key: &'static str, about: &'static str) -> PathBuf {
        self.text(key, "", ("a path", about), |_| Ok(())).into()
    }

    /// A list of at most `most` elements, in any order.
    pub(super) fn list<T: Value>(
        &mut self,
        key: &'static str,
        default: Vec<T>,
        (kind, most): (&str, usize),
        about: &'static str,
    ) -> Vec<T> {
        let bounds = format!("up to {most} {kind}");
        self.read(key, default, (&bounds, about), |list: &Vec<T>| {
            if list.len() <= most { Ok(()) } else { Err(format!("{} values are too many: {bounds}", list.len())) }
        })
    }

    /// A table inside this one that is a section of its own.
    pub(super) fn nested(&mut self, name: &'static str) {
        self.nested.push(name);
    }

    /// One of several words.
    pub(super) fn choice<T: Copy>(&mut self, key: &'static str, words: &[(&'static str, T)], about: &'static str) -> T {
        let names: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        let bounds = names.join(" | ");
        let first = Word(names[0].to_owned());
        let chosen = self.read(key, first, (&bounds, about), |Word(word)| {
            if names.contains(&word.as_str()) { Ok(()) } else { Err(format!("{word:?} is not one of {bounds}")) }
        });
        words.iter().find(|(word, _)| *word == chosen.0).map_or(words[0].1, |(_, value)| *value)
    }

    /// Yes or no.
    pub(super) fn flag(&mut self, key: &'static str, default: bool, about: &'static str) -> bool {
        self.read(key, default, ("true | false", about), |_| Ok(()))
    }

    /// Whether the document has this key, which has been read.
    pub(super) fn is_given(&self, key: &str) -> bool {
        self.settings.iter().any(|setting| setting.key == key && setting.line.is_some())
    }

    /// A rule between several keys does not hold: blames `key`.
    pub(super) fn blame(&mut self, key: &'static str, what: String, hint: &str) {
        let line = self.settings.iter().find(|s| s.key == key).and_then(|s| s.line).unwrap_or(self.line);
        self.problem(line, key, what, hint.into());
    }

    fn read<T: Value>(
        &mut self,
        key: &'static str,
        default: T,
        (bounds, about): (&str, &'static str),
        check: impl Fn(&T) -> Result<(), String>,
    ) -> T {
        let default_toml = default.to_toml();
        let mut line = None;
        let mut chosen = default;
        if let Some((place, value)) = self.find(key) {
            line = Some(place);
            let checked = T::from_toml(value).and_then(|value| check(&value).map(|()| value));
            match checked {
                Ok(value) => chosen = value,
                Err(what) => {
                    self.problem(place, key, what, format!("{about}; default {default_toml}, bounds {bounds}"));
                }
            }
        }
        let (section, value) = (self.name, chosen.to_toml());
        self.settings.push(Setting { section, key, about, bounds: bounds.into(), default: default_toml, value, line });
        chosen
    }

    fn find(&self, key: &str) -> Option<(usize, &DeValue<'_>)> {
        let (name, value) = self.table?.iter().find(|(name, _)| name.get_ref() == key)?;
        Some((line_of(self.text, &name.span()), value.get_ref()))
    }

    fn refuse_unknown(&mut self) {
        let known: Vec<&str> = self.settings.iter().map(|setting| setting.key).collect();
        for (key, _) in self.table.into_iter().flatten() {
            if !known.contains(&key.get_ref().as_ref()) && !self.nested.contains(&key.get_ref().as_ref()) {
                let path = format!("{}.{}", self.name, key.get_ref());
                let line = line_of(self.text, &key.span());
                self.problems.push(unknown(&path, "key", line, key.get_ref(), &known));
            }
        }
    }

    fn problem(&mut self, line: usize, key: &str, what: String, hint: String) {
        self.problems.push(Problem { line: Some(line), key: format!("{}.{key}", self.name), what, hint });
    }
}

/// A bare word; only [`Section::choice`] makes one.
#[derive(Clone)]
struct Word(String);

impl Value for Word {
    fn from_toml(value: &DeValue<'_>) -> Result<Word, String> {
        let text = value.as_str().ok_or_else(|| format!("text in quotes is expected, not {}", value.type_str()))?;
        Ok(Word(text.to_owned()))
    }

    fn to_toml(&self) -> String {
        format!("{:?}", self.0)
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

fn line_of(text: &str, span: &Range<usize>) -> usize {
    let before = text.get(..span.start.min(text.len())).unwrap_or(text);
    before.matches('\n').count() + 1
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
