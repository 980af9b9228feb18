//! What a setting may be: its default, its bounds, and what becomes of it.

use crate::group::Group;
use crate::section::Section;
use crate::value::Value;

/// Something that reads a field of type `T`, from one key, from several or from none.
pub trait Declare<T> {
    /// Reads it; `about` are the lines of its doc comment.
    fn read(self, section: &mut Section<'_, '_>, key: &'static str, about: &[&str]) -> T;
}

impl Section<'_, '_> {
    /// Reads one key that is not a field of a declared struct.
    pub fn key<T>(&mut self, key: &'static str, about: &str, declared: impl Declare<T>) -> T {
        declared.read(self, key, &[about])
    }
}

type Check<V> = Box<dyn Fn(&V) -> Result<(), String>>;

/// A key with a value that is written as `V` and kept as `T`.
pub struct Declared<V, T> {
    pub(crate) default: V,
    pub(crate) bounds: String,
    check: Check<V>,
    keep: Box<dyn FnOnce(V) -> T>,
}

impl<V: Value> Declared<V, V> {
    /// Anything of the type; `bounds` say in words what that is.
    pub fn new(default: V, bounds: impl Into<String>) -> Declared<V, V> {
        Declared { default, bounds: bounds.into(), check: Box::new(|_| Ok(())), keep: Box::new(|value| value) }
    }
}

impl<V: Value + 'static, T: 'static> Declared<V, T> {
    /// Only what `check` accepts, besides what was refused before.
    #[must_use]
    pub fn check(self, check: impl Fn(&V) -> Result<(), String> + 'static) -> Declared<V, T> {
        let before = self.check;
        Declared { check: Box::new(move |value| before(value).and_then(|()| check(value))), ..self }
    }

    /// Keeps something else than what is written.
    pub fn map<U>(self, map: impl FnOnce(T) -> U + 'static) -> Declared<V, U> {
        let Declared { default, bounds, check, keep } = self;
        Declared { default, bounds, check, keep: Box::new(move |value| map(keep(value))) }
    }

    /// Zero, or an empty text, list or path, stands for none.
    pub fn optional(self) -> Declared<V, Option<T>>
    where
        T: Default + PartialEq,
    {
        self.map(|value| (value != T::default()).then_some(value))
    }
}

impl<T: 'static> Declared<String, T> {
    /// Only text that `check` accepts.
    #[must_use]
    pub fn valid(self, check: impl Fn(&str) -> Result<(), String> + 'static) -> Declared<String, T> {
        self.check(move |text| check(text))
    }
}

impl<V: Value, T> Declare<T> for Declared<V, T> {
    fn read(self, section: &mut Section<'_, '_>, key: &'static str, about: &[&str]) -> T {
        let value = section.value(key, about, self.default, &self.bounds, self.check.as_ref());
        (self.keep)(value)
    }
}

/// A field that no key sets.
pub struct Fixed<T>(T);

impl<T> Declare<T> for Fixed<T> {
    fn read(self, _: &mut Section<'_, '_>, _: &'static str, _: &[&str]) -> T {
        self.0
    }
}

/// Several keys of the same section.
pub struct SectionPart<F>(F);

impl<T, F: FnOnce(&mut Section<'_, '_>) -> T> Declare<T> for SectionPart<F> {
    fn read(self, section: &mut Section<'_, '_>, _: &'static str, _: &[&str]) -> T {
        (self.0)(section)
    }
}

/// The kinds of settings. Inside [`settings!`](crate::settings) all of them are in scope.
pub mod kinds {
    use super::{Declared, Fixed, Group, Section, SectionPart, Value};
    use crate::units::{Rate, Size, Span, WrittenValue};
    use crate::value::{Net, Word};
    use std::fmt::Display;
    use std::ops::RangeInclusive;
    use std::path::PathBuf;
    use std::str::FromStr;
    use std::time::Duration;

    /// Yes or no.
    pub fn flag(default: bool) -> Declared<bool, bool> {
        Declared::new(default, "true | false")
    }

    /// A number inside bounds.
    pub fn number<V: Value + PartialOrd + 'static>(default: V, bounds: RangeInclusive<V>) -> Declared<V, V> {
        let words = format!("{} … {}", bounds.start().to_toml(), bounds.end().to_toml());
        Declared::new(default, words.clone()).check(move |value| {
            if bounds.contains(value) { Ok(()) } else { Err(format!("{} is outside {words}", value.to_toml())) }
        })
    }

    /// A number inside bounds, kept in whatever integer the field is.
    pub fn count<T: TryFrom<u32> + 'static>(default: u32, bounds: RangeInclusive<u32>) -> Declared<u32, T> {
        let fits = |count| T::try_from(count).unwrap_or_else(|_| unreachable!("{count} is inside the bounds"));
        number(default, bounds).map(fits)
    }

    /// A duration inside bounds, such as `duration("10s", "1s"..="1h")`.
    pub fn duration<D, B>(default: D, bounds: RangeInclusive<B>) -> Declared<Span, Duration>
    where
        D: WrittenValue<Span>,
        B: WrittenValue<Span>,
    {
        number(default.value(), both(bounds)).map(|Span(duration)| duration)
    }

    /// A number of bytes inside bounds, such as `size("25MiB", "1KiB"..="4GiB")`, in whatever integer the field is.
    pub fn size<T, D, B>(default: D, bounds: RangeInclusive<B>) -> Declared<Size, T>
    where
        T: TryFrom<u64> + 'static,
        D: WrittenValue<Size>,
        B: WrittenValue<Size>,
    {
        let fits = |bytes| T::try_from(bytes).unwrap_or_else(|_| unreachable!("{bytes} is inside the bounds"));
        number(default.value(), both(bounds)).map(move |Size(bytes)| fits(bytes))
    }

    /// How often, inside bounds, such as `rate("1/min", "1/day"..="1000/s")`.
    pub fn rate<D, B>(default: D, bounds: RangeInclusive<B>) -> Declared<Rate, Rate>
    where
        D: WrittenValue<Rate>,
        B: WrittenValue<Rate>,
    {
        number(default.value(), both(bounds))
    }

    /// One of several words, the first of which is the default.
    pub fn choice<T: Copy + 'static, const N: usize>(words: [(&'static str, T); N]) -> Declared<Word, T> {
        let names = words.map(|(word, _)| word);
        let bounds = names.join(" | ");
        let chosen = move |Word(word): Word| words.iter().find(|(name, _)| *name == word).unwrap_or(&words[0]).1;
        let known = Declared::new(Word(names[0].to_owned()), bounds.clone()).check(move |Word(word)| {
            if names.contains(&word.as_str()) { Ok(()) } else { Err(format!("{word:?} is not one of {bounds}")) }
        });
        known.map(chosen)
    }

    /// Text; `bounds` say in words what is expected. What else it must be is said by [`Declared::valid`].
    pub fn text(default: &str, bounds: &str) -> Declared<String, String> {
        Declared::new(default.to_owned(), bounds)
    }

    /// A path; empty if none is given.
    pub fn path() -> Declared<String, PathBuf> {
        text("", "a path").map(PathBuf::from)
    }

    /// A list of at most so many elements, in any order; `kind` says what they are, in the plural.
    pub fn list<V: Value + 'static>(
        default: impl IntoIterator<Item = V>,
        most: usize,
        kind: &str,
    ) -> Declared<Vec<V>, Vec<V>> {
        let bounds = format!("up to {most} {kind}");
        Declared::new(default.into_iter().collect::<Vec<V>>(), bounds.clone()).check(move |list| {
            if list.len() <= most { Ok(()) } else { Err(format!("{} values are too many: {bounds}", list.len())) }
        })
    }

    /// A list of networks, none by default.
    pub fn networks<N: FromStr<Err: Display> + Clone + 'static>(most: usize) -> Declared<Vec<Net<N>>, Vec<N>> {
        list([], most, "networks").map(|list| list.into_iter().map(|net: Net<N>| net.network).collect())
    }

    /// One to so many values inside bounds, each larger than the one before.
    pub fn ascending<V: Value + PartialOrd + 'static>(
        default: Vec<V>,
        bounds: RangeInclusive<V>,
        most: usize,
    ) -> Declared<Vec<V>, Vec<V>> {
        let (least, greatest) = (bounds.start().to_toml(), bounds.end().to_toml());
        let words = format!("1 to {most} growing values, {least} … {greatest}");
        Declared::new(default, words.clone()).check(move |list| {
            let fits = (1..=most).contains(&list.len()) && list.iter().all(|value| bounds.contains(value));
            let grows = list.windows(2).all(|pair| pair[0] < pair[1]);
            if fits && grows { Ok(()) } else { Err(format!("{} is not {words}", list.to_toml())) }
        })
    }

    /// Growing durations, such as `durations(["1m", "5m"], "100ms"..="1d", 64)`.
    pub fn durations<D: WrittenValue<Span>, B: WrittenValue<Span>>(
        default: impl IntoIterator<Item = D>,
        bounds: RangeInclusive<B>,
        most: usize,
    ) -> Declared<Vec<Span>, Vec<Duration>> {
        let default = default.into_iter().map(WrittenValue::value).collect();
        ascending(default, both(bounds), most).map(|list| list.into_iter().map(|Span(duration)| duration).collect())
    }

    /// A field that no key sets: what is found out while Weir runs.
    pub fn fixed<T>(value: T) -> Fixed<T> {
        Fixed(value)
    }

    /// More keys of this section.
    pub fn part<T: Group>() -> SectionPart<fn(&mut Section<'_, '_>) -> T> {
        SectionPart(T::read)
    }

    /// The same, read by a function.
    pub fn part_by<T, F: FnOnce(&mut Section<'_, '_>) -> T>(read: F) -> SectionPart<F> {
        SectionPart(read)
    }

    fn both<U, B: WrittenValue<U>>(bounds: RangeInclusive<B>) -> RangeInclusive<U> {
        let (least, greatest) = bounds.into_inner();
        least.value()..=greatest.value()
    }
}
