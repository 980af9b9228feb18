//! Makes file names that strangers chose safe to show to people.

/// The longest name, and how much of the end of a longer one stays: it says what opens the file.
const NAME_MAX: usize = 255;
const END: usize = 64;

/// The name that a sample came with, in a form that can be shown: no control characters, none that change the direction of text, not too long.
pub(crate) fn display_name(name: &str) -> String {
    let turns = |c: char| matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let tame = |c: char| if c.is_control() || turns(c) { '\u{fffd}' } else { c };
    let length = name.chars().count();
    if length <= NAME_MAX {
        return name.chars().map(tame).collect();
    }
    let begin = name.chars().take(NAME_MAX - END - 1);
    begin.chain(['…']).chain(name.chars().skip(length - END)).map(tame).collect()
}

#[cfg(test)]
mod tests {
    use super::display_name;

    #[test]
    fn a_long_name_keeps_its_ending() {
        let long = display_name(&format!("{}.bat", "é".repeat(300)));
        assert_eq!((long.chars().count(), long.ends_with("éé.bat"), long.contains('…')), (255, true, true));
        assert_eq!(display_name("a\n\u{202e}.sh"), "a\u{fffd}\u{fffd}.sh");
    }
}
