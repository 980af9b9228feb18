//! One setting as it was found: what it is, what it may be, what it is now and why.

/// A key that some section asked for.
#[derive(Debug, Clone, serde::Serialize)]
pub(crate) struct Setting {
    /// The section, such as `throttle`.
    pub(crate) section: &'static str,
    /// The key inside it, such as `rate`.
    pub(crate) key: &'static str,
    /// What it decides, in one sentence.
    pub(crate) about: &'static str,
    /// What it may be, in words: `1 … 1000`, `fifo or lru`.
    pub(crate) bounds: String,
    /// The default, as TOML.
    pub(crate) default: String,
    /// The value in force, as TOML.
    pub(crate) value: String,
    /// The line of the file that set it; none where the default is in force.
    pub(crate) line: Option<usize>,
}

impl Setting {
    /// Whether the value in force is the default.
    pub(crate) fn is_default(&self) -> bool {
        self.value == self.default
    }
}
