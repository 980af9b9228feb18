//! Formats metrics as Prometheus reads them (text format 0.0.4).

use std::fmt::{Display, Write as _};

/// A page of metrics.
#[derive(Debug, Default)]
pub(crate) struct Page(String);

impl Page {
    /// A number that grows, without labels.
    pub(crate) fn counter(&mut self, name: &str, help: &str, value: impl Display) {
        self.head(name, "counter", help);
        self.sample(name, "", value);
    }

    /// A number that goes up and down, without labels.
    pub(crate) fn gauge(&mut self, name: &str, help: &str, value: impl Display) {
        self.head(name, "gauge", help);
        self.sample(name, "", value);
    }

    /// Describes the samples that follow.
    pub(crate) fn head(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    /// A number; `labels` in braces, or nothing.
    pub(crate) fn sample(&mut self, name: &str, labels: &str, value: impl Display) {
        let _ = writeln!(self.0, "{name}{labels} {value}");
    }

    pub(crate) fn into_text(self) -> String {
        self.0
    }
}

/// A label's value as it is written between quotes.
pub(crate) fn quoted(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
