//! Prints a table: columns as wide as their content, numbers aligned to the right, and the last column without padding.

use std::io::{self, Write};

/// Rows below their heads.
pub(crate) struct Table {
    heads: Vec<(&'static str, Side)>,
    rows: Vec<Vec<String>>,
}

/// How the text of a column is aligned.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Left,
    Right,
}

/// Longer cells are cut off, so that one hostile subject does not push everything out of sight. A SHA-256 fits.
const CELL_MAX: usize = 64;

impl Table {
    /// A table with these heads. If a head begins with `>`, its column is aligned to the right.
    pub(crate) fn new(heads: &[&'static str]) -> Table {
        let side = |head: &&'static str| match head.strip_prefix('>') {
            Some(name) => (name, Side::Right),
            None => (*head, Side::Left),
        };
        Table { heads: heads.iter().map(side).collect(), rows: Vec::new() }
    }

    /// Adds a row.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().map(|cell| shown(&cell)).collect());
    }

    /// Writes everything.
    pub(crate) fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
            cells.chain([self.heads[column].0.chars().count()]).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.heads.len()).map(width).collect();
        let heads: Vec<String> = self.heads.iter().map(|(name, _)| (*name).to_owned()).collect();
        for row in [&heads].into_iter().chain(&self.rows) {
            let cells = row.iter().zip(&self.heads).zip(&widths).map(|((cell, (_, side)), width)| match side {
                Side::Left => format!("{cell:<width$}"),
                Side::Right => format!("{cell:>width$}"),
            });
            writeln!(out, "{}", cells.collect::<Vec<_>>().join("  ").trim_end())?;
        }
        Ok(())
    }
}

/// Makes text of strangers safe for the terminal, which could otherwise obey control characters in it, and shortens it.
pub(crate) fn shown(text: &str) -> String {
    let mut plain = weir_scan::plain::shown(text, CELL_MAX + 1);
    if plain.chars().count() > CELL_MAX {
        plain = plain.chars().take(CELL_MAX - 1).chain(['…']).collect();
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_strangers_are_tamed() {
        let mut table = Table::new(&["user", ">held", "subject"]);
        table.row(["ann", "3", "hello\u{1b}[2\u{202e}"].map(str::to_owned));
        table.row(["catherine", "1200", &"x".repeat(100)].map(str::to_owned));
        let mut out = Vec::new();
        table.write(&mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "user       held  subject");
        assert_eq!(lines[1], "ann           3  hello·[2·");
        assert!(lines[2].starts_with("catherine  1200  xxx") && lines[2].ends_with("x…"));
    }

    #[test]
    fn a_hash_can_be_copied_from_a_table() {
        let (hash, mut out) = ("0123456789abcdef".repeat(4), Vec::new());
        let mut table = Table::new(&["sha256"]);
        table.row([hash.clone()]);
        table.write(&mut out).unwrap();
        assert!(String::from_utf8(out).unwrap().contains(&hash));
    }
}
