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

/// The same for the name of a file: of one that is too long the middle is left out, because its end says what opens it.
pub fn shown_name(name: &str, most: usize) -> String {
    let length = name.chars().count();
    if length <= most {
        return shown(name, most);
    }
    let end = most / 3;
    let tail: String = name.chars().skip(length - end).collect();
    format!("{}…{}", shown(name, most - end - 1), shown(&tail, end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_obeyed_and_nothing_is_endless() {
        assert_eq!(shown("a\u{1b}[2J\u{202e}b\r\n", 100), "a·[2J·b··");
        assert_eq!(shown(&"é".repeat(1000), 3), "ééé");
    }

    #[test]
    fn a_long_name_keeps_its_ending() {
        let long = shown_name(&format!("{}.pdf.bat", "é".repeat(1000)), 30);
        assert_eq!((long.chars().count(), long.ends_with("éé.pdf.bat"), long.contains('…')), (30, true, true));
        assert_eq!(shown_name("run\u{202e}.sh", 30), "run·.sh");
        assert_eq!(shown_name("", 30), "");
    }
}
