//! Makes file names that strangers chose safe to show to people.

/// The name that a sample came with, in a form that can be shown: no control characters, none that change the direction of text, not too long.
pub(crate) fn display_name(name: &str) -> String {
    let turns = |c: char| matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    name.chars().take(255).map(|c| if c.is_control() || turns(c) { '\u{fffd}' } else { c }).collect()
}
