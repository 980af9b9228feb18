//! Reading single keys by calls, for sections that are not declared as a struct.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use weir_settings::{Section, Value, kinds};

/// Reads single keys.
pub(super) trait Calls {
    /// A value inside bounds.
    fn bounded<T: Value + PartialOrd + 'static>(
        &mut self,
        key: &'static str,
        default: T,
        range: RangeInclusive<T>,
        about: &str,
    ) -> T;

    /// A list whose elements lie inside bounds and grow, of at most `most` elements.
    fn ascending<T: Value + PartialOrd + 'static>(
        &mut self,
        key: &'static str,
        default: Vec<T>,
        bounds: (RangeInclusive<T>, usize),
        about: &str,
    ) -> Vec<T>;

    /// Text that `check` accepts.
    fn text(
        &mut self,
        key: &'static str,
        default: &str,
        words: (&str, &str),
        check: impl Fn(&str) -> Result<(), String> + 'static,
    ) -> String;

    /// A path; empty if none is given.
    fn path(&mut self, key: &'static str, about: &str) -> PathBuf;

    /// A list of at most `most` elements, in any order.
    fn list<T: Value + 'static>(
        &mut self,
        key: &'static str,
        default: Vec<T>,
        bounds: (&str, usize),
        about: &str,
    ) -> Vec<T>;

    /// One of several words.
    fn choice<T: Copy + 'static, const N: usize>(
        &mut self,
        key: &'static str,
        words: &[(&'static str, T); N],
        about: &str,
    ) -> T;

    /// Yes or no.
    fn flag(&mut self, key: &'static str, default: bool, about: &str) -> bool;
}

impl Calls for Section<'_, '_> {
    fn bounded<T: Value + PartialOrd + 'static>(
        &mut self,
        key: &'static str,
        default: T,
        range: RangeInclusive<T>,
        about: &str,
    ) -> T {
        self.key(key, about, kinds::number(default, range))
    }

    fn ascending<T: Value + PartialOrd + 'static>(
        &mut self,
        key: &'static str,
        default: Vec<T>,
        (range, most): (RangeInclusive<T>, usize),
        about: &str,
    ) -> Vec<T> {
        self.key(key, about, kinds::ascending(default, range, most))
    }

    fn text(
        &mut self,
        key: &'static str,
        default: &str,
        (bounds, about): (&str, &str),
        check: impl Fn(&str) -> Result<(), String> + 'static,
    ) -> String {
        self.key(key, about, kinds::text(default, bounds).valid(check))
    }

    fn path(&mut self, key: &'static str, about: &str) -> PathBuf {
        self.key(key, about, kinds::path())
    }

    fn list<T: Value + 'static>(
        &mut self,
        key: &'static str,
        default: Vec<T>,
        (kind, most): (&str, usize),
        about: &str,
    ) -> Vec<T> {
        self.key(key, about, kinds::list(default, most, kind))
    }

    fn choice<T: Copy + 'static, const N: usize>(
        &mut self,
        key: &'static str,
        words: &[(&'static str, T); N],
        about: &str,
    ) -> T {
        self.key(key, about, kinds::choice(*words))
    }

    fn flag(&mut self, key: &'static str, default: bool, about: &str) -> bool {
        self.key(key, about, kinds::flag(default))
    }
}
