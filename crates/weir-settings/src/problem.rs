//! A problem in a configuration: where it is, what is wrong, and what would be right.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// One problem.
#[derive(Debug, Clone)]
pub struct Problem {
    /// The line it stands on, from 1; none if it is about the whole file.
    pub line: Option<usize>,
    /// The key path, such as `throttle.rate`; empty for broken syntax.
    pub key: String,
    /// What is wrong.
    pub what: String,
    /// What to do about it.
    pub hint: String,
}

impl Problem {
    /// A problem with the file as a whole.
    pub fn of_file(what: String, hint: &str) -> Problem {
        Problem { line: None, key: String::new(), what, hint: hint.into() }
    }
}

/// The line on which a stretch of the text begins, from 1.
pub(crate) fn line_of(text: &str, span: &Range<usize>) -> usize {
    let before = text.get(..span.start.min(text.len())).unwrap_or(text);
    before.matches('\n').count() + 1
}

/// Everything that is wrong with a configuration.
#[derive(Debug)]
pub struct Problems {
    file: Option<PathBuf>,
    list: Vec<Problem>,
}

impl Problems {
    /// All of one file.
    pub fn new(file: Option<&Path>, mut list: Vec<Problem>) -> Problems {
        list.sort_by_key(|problem| problem.line);
        Problems { file: file.map(Path::to_owned), list }
    }

    /// Only one.
    pub fn one(file: Option<&Path>, problem: Problem) -> Problems {
        Problems::new(file, vec![problem])
    }

    /// The problems, in order of line.
    pub fn list(&self) -> &[Problem] {
        &self.list
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = self.file.as_deref().unwrap_or(Path::new("configuration")).display();
        match self.list.len() {
            1 => writeln!(f, "{file} has a problem")?,
            n => writeln!(f, "{file} has {n} problems")?,
        }
        for Problem { line, key, what, hint } in &self.list {
            write!(f, "  {file}:")?;
            if let Some(line) = line {
                write!(f, "{line}:")?;
            }
            if !key.is_empty() {
                write!(f, " {key}:")?;
            }
            writeln!(f, " {what}")?;
            if !hint.is_empty() {
                writeln!(f, "    hint: {hint}")?;
            }
        }
        write!(f, "nothing was changed; `weir config show --all` lists every key with its bounds")
    }
}

impl std::error::Error for Problems {}
