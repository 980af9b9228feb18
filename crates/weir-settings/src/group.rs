//! What a declaration with `settings!` produces: a group of keys, or a whole section.

use crate::section::Section;

/// Keys of one section that are read together into one value.
pub trait Group: Sized {
    /// What the settings are about, as the lines of the doc comment.
    const ABOUT: &'static [&'static str];

    /// Reads the keys; what is missing or wrong gets its default.
    fn read(section: &mut Section<'_, '_>) -> Self;
}

/// A whole section of the configuration.
pub trait Settings: Group {
    /// Its name, such as `web.exchange`.
    const SECTION: &'static str;
}

/// A group as it is when the configuration says nothing about it.
pub fn defaults<T: Group>() -> T {
    T::read(&mut Section::empty())
}
