//! Another form of a text: for rules, which read octets, it is converted to UTF-8 and references in tags are resolved, once for all rules.
//!
//! Windows writes scripts in UTF-16, browsers and Office read it, and attackers use it to hide from scanners that look for words. The
//! converted text is examined in addition to the original, never instead of it.

use super::File;
use super::charset::{CharsetReading, text_of, without_escapes};
use super::kind::Kind;
use super::transfer::is_base64;
use crate::markup::{LOOKED_THROUGH, Tag};
use crate::{file_name, markup};

/// What is longer is turned as far as this.
const TEXT_MAX: usize = 2 * LOOKED_THROUGH;
/// A longer page is turned as far as this, and of what follows the tags that are veiled, up to as much again.
const MARKUP_MAX: usize = LOOKED_THROUGH;
/// How much of a text is looked at to see whether it is wide.
const HEAD: usize = 4096;

/// A text of two or four octets a letter, or in UTF-7, as UTF-8.
pub(super) fn narrow(file: &File<'_>) -> Option<Vec<u8>> {
    if !matches!(file.kind, Kind::Unknown | Kind::Html | Kind::Xml | Kind::Script) || file.data.len() < 4 {
        return None;
    }
    let data = &file.data[..file.data.len().min(TEXT_MAX)];
    let Some(charset) = charset(data) else {
        // To a browser a page may be Japanese, in which escape sequences stand between letters.
        return is_markup(file).then(|| without_escapes(data)).flatten();
    };
    Some(
        text_of(charset.as_bytes(), data, CharsetReading::Named).trim_start_matches('\u{feff}').to_owned().into_bytes(),
    )
}

/// Whether a text that [`narrow`] turns goes on behind what is turned.
pub(super) fn is_cut(file: &File<'_>) -> bool {
    file.data.len() > TEXT_MAX
}

/// Whether a page has escape sequences only behind what [`narrow`] turns.
pub(super) fn has_late_escapes(file: &File<'_>) -> bool {
    is_cut(file) && is_markup(file) && without_escapes(&file.data[TEXT_MAX..]).is_some()
}

/// By its mark, by where its NULs stand, or because it says so.
fn charset(data: &[u8]) -> Option<&'static str> {
    const MARKS: [(&[u8], &str); 4] = [
        (b"\xff\xfe\0\0", "utf-32le"),
        (b"\0\0\xfe\xff", "utf-32be"),
        (b"\xff\xfe", "utf-16le"),
        (b"\xfe\xff", "utf-16be"),
    ];
    MARKS.iter().find(|(mark, _)| data.starts_with(mark)).map(|(_, name)| *name).or_else(|| by_zeros(data)).or_else(
        || {
            let head = data[..data.len().min(1024)].to_ascii_lowercase();
            let says = memchr::memmem::find(&head, b"utf-7").is_some();
            (says || opens_a_tag(data)).then_some("utf-7")
        },
    )
}

/// Whether something stands in a text that is the beginning of a tag in UTF-7. In base64 `+ADw` comes by chance in every other file of 10 MB;
/// there other letters of base64 follow, which make what stands behind the `<` a letter that is none of ASCII, and so no tag.
fn opens_a_tag(data: &[u8]) -> bool {
    let follows = |at: usize| data.get(at + 4).is_none_or(|next| *next == b'A' || !is_base64(*next));
    memchr::memmem::find_iter(data, b"+ADw").any(follows)
}

fn by_zeros(data: &[u8]) -> Option<&'static str> {
    let head = &data[..data.len().min(HEAD)];
    memchr::memchr(0, head)?;
    let mut zeros = [0; 4];
    head.iter().enumerate().filter(|(_, byte)| **byte == 0).for_each(|(at, _)| zeros[at % 4] += 1);
    let (most, few) = (head.len() * 2 / 5, head.len() / 40);
    match zeros {
        [a, b, c, d] if a <= few && b + c + d > most * 3 / 2 => Some("utf-32le"),
        [a, b, c, d] if d <= few && a + b + c > most * 3 / 2 => Some("utf-32be"),
        [a, b, c, d] if a + c <= few && b + d > most / 2 => Some("utf-16le"),
        [a, b, c, d] if b + d <= few && a + c > most / 2 => Some("utf-16be"),
        _ => None,
    }
}

/// Pages, pictures and documents whose tags have letters as references: with these resolved, and with what their events and links run apart.
pub(super) fn unveiled(file: &File<'_>) -> Option<Unveiled> {
    let data = &file.data[..file.data.len().min(MARKUP_MAX)];
    // Nothing acts in the parts of documents.
    let all = if file.in_archive && file.kind == Kind::Xml { data } else { file.data };
    if !is_markup(file) || memchr::memchr(b'&', all).is_none() {
        return None;
    }
    let (mut out, mut last, mut apart, mut behind) = (Vec::new(), 0, Vec::new(), Vec::new());
    let (mut is_whole, mut tags) = (true, markup::tags(all));
    for tag in tags.by_ref().filter(|tag| markup::is_veiled(tag.text)) {
        let (end, text) = (tag.begin + tag.text.len(), &tag.text[..tag.text.len().min(MARKUP_MAX)]);
        is_whole &= text.len() == tag.text.len();
        let tag = Tag { text, ..tag };
        if end <= data.len() {
            // One that is in another has been resolved with that, as far as both go.
            let own = tag.begin.max(last);
            if own < end {
                out.extend_from_slice(&data[last..own]);
                out.extend_from_slice(&markup::resolved(&data[own..end]));
                last = end;
            }
        } else {
            behind.extend([b"\n<", markup::resolved(tag.text).as_slice(), b">"].concat());
        }
        tag.attributes().for_each(|(name, value)| run(name, &markup::resolved(value), &mut apart));
        if apart.len() + behind.len() > 2 * MARKUP_MAX {
            is_whole = false;
            break;
        }
    }
    is_whole &= tags.is_whole();
    let is_veiled = last > 0 || !behind.is_empty();
    is_veiled.then(|| Unveiled { text: [out.as_slice(), &data[last..], &behind, &apart].concat(), is_whole })
}

/// A text whose tags are without references.
#[derive(Debug, PartialEq)]
pub(super) struct Unveiled {
    pub(super) text: Vec<u8>,
    /// Whether nothing was left out.
    pub(super) is_whole: bool,
}

/// XML as its readers have it: without comments, in which something else may seem to stand, and with sections (`<![CDATA[`) as the text that they are.
pub(super) fn bare(file: &File<'_>) -> Option<Vec<u8>> {
    let has = |mark: &str| memchr::memmem::find(file.data, mark.as_bytes()).is_some();
    if file.kind == Kind::Html || !is_markup(file) || !(has("<!--") || has("<![CDATA[")) {
        return None;
    }
    let (mut out, mut rest, mut is_other) = (Vec::new(), file.data, false);
    let mut marks = vec![("<!--", "-->"), ("<![CDATA[", "]]>"), ("<?", "?>")];
    while let Some(at) = memchr::memchr(b'<', rest) {
        let (before, text) = rest.split_at(at);
        out.extend_from_slice(before);
        let mark = marks.iter().position(|(begin, _)| text.starts_with(begin.as_bytes()));
        let Some((number, (begin, end))) = mark.map(|number| (number, marks[number])) else {
            out.push(b'<');
            rest = &text[1..];
            continue;
        };
        let Some(length) = memchr::memmem::find(&text[begin.len()..], end.as_bytes()) else {
            // None ends from here on.
            marks.remove(number);
            rest = text;
            continue;
        };
        let (whole, behind) = text.split_at(begin.len() + length + end.len());
        let content = &whole[begin.len()..begin.len() + length];
        is_other |= begin != "<?";
        match begin {
            "<!--" => {}
            "<?" => out.extend_from_slice(whole),
            _ => out.extend(content.iter().flat_map(written)),
        }
        rest = behind;
    }
    out.extend_from_slice(rest);
    is_other.then_some(out)
}

/// An octet of a text as XML writes it.
fn written(octet: &u8) -> &[u8] {
    match octet {
        b'<' => b"&lt;",
        b'>' => b"&gt;",
        b'&' => b"&amp;",
        octet => std::slice::from_ref(octet),
    }
}

/// What an attribute runs: an event, a link, a page inside the page.
fn run(name: &[u8], value: &[u8], out: &mut Vec<u8>) {
    let script = name.get(..2).is_some_and(|two| two.eq_ignore_ascii_case(b"on"))
        || value.get(..11).is_some_and(|start| start.eq_ignore_ascii_case(b"javascript:"));
    if script {
        out.extend([b"\n<script>\n".as_slice(), value, b"\n</script>\n"].concat());
    } else if name.eq_ignore_ascii_case(b"srcdoc") {
        out.extend([b"\n".as_slice(), value, b"\n"].concat());
    }
}

fn is_markup(file: &File<'_>) -> bool {
    const NAMES: [&str; 13] =
        ["htm", "html", "shtml", "svg", "xht", "xhtml", "xml", "rels", "hta", "xsl", "xslt", "fodt", "fods"];
    let by_name =
        || file.names.iter().flat_map(|name| file_name::extensions(name)).any(|own| NAMES.contains(&own.as_str()));
    matches!(file.kind, Kind::Html | Kind::Xml)
        || file.declared == "text/html"
        || file.declared.ends_with("xml")
        || (matches!(file.kind, Kind::Unknown | Kind::Script) && by_name())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file<'a>(names: &'a [String], data: &'a [u8]) -> File<'a> {
        File { names, declared: "", kind: Kind::of(data), data, in_archive: false }
    }

    #[test]
    fn wide_texts_are_read_with_a_mark_and_without() {
        let text = "<html><script>eval(x)</script></html>";
        let little: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
        let big: Vec<u8> = text.encode_utf16().flat_map(u16::to_be_bytes).collect();
        let wider: Vec<u8> = text.chars().flat_map(|c| u32::from(c).to_le_bytes()).collect();
        let widest: Vec<u8> = text.chars().flat_map(|c| u32::from(c).to_be_bytes()).collect();
        let seven = b"+ADw-html+AD4APA-script+AD4-eval(x)+ADw-/script+AD4APA-/html+AD4-".to_vec();
        for (mark, data) in [
            (&b"\xff\xfe"[..], &little),
            (b"", &little),
            (b"\xfe\xff", &big),
            (b"", &big),
            (b"\xff\xfe\0\0", &wider),
            (b"", &wider),
            (b"\0\0\xfe\xff", &widest),
            (b"", &widest),
            (b"", &seven),
        ] {
            let data = [mark, data].concat();
            let read = narrow(&file(&[], &data)).map(|text| String::from_utf8_lossy(&text).into_owned());
            assert_eq!(read.as_deref(), Some(text), "{data:x?}");
        }
        assert_eq!(narrow(&file(&[], text.as_bytes())), None);
        let whole = b"x +ADwAcwBjAHIAaQBwAHQAPg- y".to_vec();
        assert_eq!(narrow(&file(&[], &whole)).as_deref(), Some(&b"x <script> y"[..]));
        assert_eq!(narrow(&file(&[], b"y +ADw")).as_deref(), Some(&b"y <"[..]));
        // By chance, in base64.
        assert_eq!(narrow(&file(&[], b"bG9uZw+ADwsc2NyaXB0PmV2YWwo")), None);
        let escaped = b"<html><scr\x1b(Bipt>eval(x)</script></html>";
        assert_eq!(narrow(&file(&[], escaped)).as_deref(), Some(text.as_bytes()));
        assert_eq!(narrow(&file(&[], &[1, 2, 3, 0, 0, 5, 6, 7])), None);
    }

    #[test]
    fn references_in_tags_are_resolved_and_in_text_are_not() {
        let names = ["a.html".to_owned()];
        let page = b"<p>&lt;script&gt;</p><a href='&#106;avascript:x()'>";
        let read = unveiled(&file(&names, page)).unwrap().text;
        assert_eq!(read, b"<p>&lt;script&gt;</p><a href='javascript:x()'>\n<script>\njavascript:x()\n</script>\n");
        assert_eq!(unveiled(&file(&names, b"<a href='?a=1&amp;b=2'>&#106;")), None);
    }
}
