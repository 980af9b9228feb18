//! Text that strangers wrote, made fit to show: bounded, and nothing in it that a terminal or a page would obey.

/// Whether a terminal or a page just shows it.
pub fn is_plain(c: char) -> bool {
    !c.is_control()
        && !matches!(c, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// The first `most` characters, with a dot for each that is not plain.
pub fn shown(text: &str, most: usize) -> String {
    text.chars().map(|c| if is_plain(c) { c } else { '·' }).take(most).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_obeyed_and_nothing_is_endless() {
        assert_eq!(shown("a\u{1b}[2J\u{202e}b\r\n", 100), "a·[2J·b··");
        assert_eq!(shown(&"é".repeat(1000), 3), "ééé");
    }
}
