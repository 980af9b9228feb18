//! One setting as it was read: its name, which values are allowed, its present value, and where that comes from.

/// A key that some section asked for.
#[derive(Debug, Clone, serde::Serialize)]
pub struct Setting {
    /// The section, such as `throttle`.
    pub section: &'static str,
    /// The key inside it, such as `rate`.
    pub key: &'static str,
    /// What it decides, in one sentence.
    pub about: String,
    /// What it may be, in words: `1 … 1000`, `fifo | lru`.
    pub bounds: String,
    /// The default, as TOML.
    pub default: String,
    /// The value in force, as TOML.
    pub value: String,
    /// The line of the file that set it; none where the default is in force.
    pub line: Option<usize>,
}

impl Setting {
    /// Whether the value in force is the default.
    pub fn is_default(&self) -> bool {
        self.value == self.default
    }
}

/// The lines of a doc comment as one line of text.
pub fn one_line(lines: &[&str]) -> String {
    lines.iter().map(|line| line.trim()).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ")
}
