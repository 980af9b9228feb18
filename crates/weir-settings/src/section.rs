//! One table of the document: which keys it may have, their values, and what is wrong with them.

use crate::problem::{Problem, line_of};
use crate::setting::{Setting, one_line};
use crate::value::Value;
use toml::de::{DeTable, DeValue};

/// One table of the document.
pub struct Section<'a, 't> {
    pub(crate) text: &'t str,
    pub(crate) name: &'static str,
    pub(crate) line: usize,
    pub(crate) table: Option<&'a DeTable<'t>>,
    pub(crate) settings: Vec<Setting>,
    pub(crate) problems: Vec<Problem>,
}

impl Section<'_, '_> {
    /// A table without keys.
    pub(crate) fn empty() -> Section<'static, 'static> {
        Section { text: "", name: "", line: 1, table: None, settings: Vec::new(), problems: Vec::new() }
    }

    /// Whether the document has this key. The key must have been read before.
    pub fn is_given(&self, key: &str) -> bool {
        self.settings.iter().any(|setting| setting.key == key && setting.line.is_some())
    }

    /// A rule between several keys does not hold: blames `key`.
    pub fn blame(&mut self, key: &'static str, what: String, hint: &str) {
        let line = self.settings.iter().find(|s| s.key == key).and_then(|s| s.line).unwrap_or(self.line);
        self.problem(line, key, what, hint.into());
    }

    /// The value of a key: the document's if it has a sound one, else the default.
    pub(crate) fn value<V: Value>(
        &mut self,
        key: &'static str,
        about: &[&str],
        default: V,
        bounds: &str,
        check: &dyn Fn(&V) -> Result<(), String>,
    ) -> V {
        let (about, default_toml) = (one_line(about), default.to_toml());
        let mut line = None;
        let mut chosen = default;
        if let Some((place, value)) = self.find(key) {
            line = Some(place);
            let checked = V::from_toml(value).and_then(|value| check(&value).map(|()| value));
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

    fn problem(&mut self, line: usize, key: &str, what: String, hint: String) {
        self.problems.push(Problem { line: Some(line), key: format!("{}.{key}", self.name), what, hint });
    }
}
