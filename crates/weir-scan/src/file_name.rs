//! File names as an attacker writes them and as a desktop reads them: which extensions one name has.

use crate::plain::is_plain;

/// The ways to read the last part of a path. Windows ends a name at a NUL or a colon, other systems do not, and programs that
/// save attachments cut at either side, some also at other control characters: each piece counts, and the whole.
pub(crate) fn readings(name: &str) -> impl Iterator<Item = &str> {
    let base = base(name);
    // A name is folded at blanks, which may come back as any of these three.
    let cuts = |c: char| c == ':' || (c.is_control() && !matches!(c, '\t' | '\r' | '\n'));
    base.split(cuts).chain([base]).map(trimmed)
}

/// The last part of a path. One of dots alone is the folder itself.
fn base(name: &str) -> &str {
    let is_name = |part: &&str| part.chars().any(|c| c != '.' && !c.is_whitespace());
    name.rsplit(['/', '\\']).find(is_name).unwrap_or(name)
}

/// The same name as Windows writes it for programs that know no Unicode: letters of full width and their like become the usual ones. None if that
/// is the same.
pub(crate) fn best_fit(name: &str) -> Option<String> {
    let fit = |c: char| match c {
        '\u{ff01}'..='\u{ff5e}' => char::from_u32(u32::from(c) - 0xfee0).unwrap_or(c),
        '\u{2024}' => '.',
        '\u{130}' => 'I',
        '\u{131}' => 'i',
        '\u{17f}' => 's',
        '\u{212a}' => 'K',
        other => other,
    };
    (!name.is_ascii()).then(|| name.chars().map(fit).collect::<String>()).filter(|fit| fit != name)
}

/// What nobody sees in a name, besides what [`is_plain`] knows: marks, fillers and blanks of other scripts.
fn is_unseen(c: char) -> bool {
    matches!(
        c,
        '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'
            ..='\u{180f}' | '\u{2800}' | '\u{3164}'
    ) || matches!(c, '\u{fe00}'..='\u{fe0f}' | '\u{ffa0}' | '\u{e0000}'..='\u{e0fff}')
}

/// Without what Windows takes away: dots and spaces at the end, and what nobody sees.
fn trimmed(name: &str) -> &str {
    name.trim_end_matches(|c: char| c == '.' || c.is_whitespace() || !is_plain(c) || is_unseen(c))
}

/// An extension in small letters, without what nobody sees.
pub(crate) fn bare(extension: &str) -> String {
    extension.trim().chars().filter(|c| is_plain(*c) && !is_unseen(*c)).collect::<String>().to_lowercase()
}

/// The extension that a desktop would go by, in small letters.
pub fn extension(name: &str) -> Option<String> {
    extensions(name).next()
}

/// Every extension that some desktop would go by.
pub fn extensions(name: &str) -> impl Iterator<Item = String> {
    readings(name).filter_map(|reading| reading.rsplit_once('.')).map(|(_, extension)| bare(extension))
}

/// Whether an extension promises an archive.
pub(crate) fn is_archive(extension: &str) -> bool {
    const KNOWN: &str = "7z ace alz arj br bz2 cab egg gz jar lha lrz lz lz4 lzh lzma rar sit sitx tar taz tbz tbz2 tgz tlz txz tzst \
        xz z zip zipx zoo zpaq zst";
    KNOWN.split(' ').any(|known| known == extension)
}

/// Whether a name is that of one of several pieces of an archive, whose mark stands in the first: `a.7z.002`, `a.z01`, `a.r00`.
pub(crate) fn is_piece(name: &str) -> bool {
    let digits = |text: &str, least: usize| text.len() >= least && text.bytes().all(|byte| byte.is_ascii_digit());
    readings(name).any(|reading| {
        let Some((rest, last)) = reading.rsplit_once('.') else { return false };
        let last = bare(last);
        let of_archive = || rest.rsplit_once('.').is_some_and(|(_, before)| is_archive(&bare(before)));
        let numbered = |letter: char| last.strip_prefix(letter).is_some_and(|number| digits(number, 2));
        (digits(&last, 2) && last.len() <= 5 && of_archive()) || ['z', 'r'].into_iter().any(numbered)
    })
}

/// Whether a name is that of a piece of a file that was cut into several, whatever it was: `a.001`. Programs that cut begin at one.
pub(crate) fn is_numbered(name: &str) -> bool {
    let number =
        |last: &str| last.len() == 3 && last.starts_with('0') && last.bytes().all(|byte| byte.is_ascii_digit());
    extensions(name).any(|last| number(&last) && last != "000")
}

/// The same from the hundredth piece on, where a number may be anything else as well.
pub(crate) fn is_numbered_high(name: &str) -> bool {
    let number =
        |last: &str| last.len() == 3 && last.bytes().all(|byte| byte.is_ascii_digit()) && !last.starts_with('0');
    extensions(name).any(|last| number(&last))
}

/// Whether an extension promises a message, or several.
pub(crate) fn is_mail(extension: &str) -> bool {
    matches!(extension, "eml" | "emlx" | "mbox" | "mbx" | "mht" | "mhtml" | "mim" | "mime" | "nws" | "tmail")
}
