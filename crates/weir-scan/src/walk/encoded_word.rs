//! Text in a header that is not ASCII: encoded words (RFC 2047) and escapes (RFC 2231). Cost: linear.

use super::charset::{CharsetReading, is_rare, text_of};
use super::transfer::{Padding, base64, nibble, quoted_printable};

/// A value after RFC 2231, without its escapes.
pub(super) fn percent_decoded(text: &[u8]) -> Vec<u8> {
    let (mut out, mut rest) = (Vec::with_capacity(text.len()), text);
    while let [first, behind @ ..] = rest {
        rest = behind;
        match behind {
            [high, low, behind @ ..] if *first == b'%' && high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                out.push(nibble(*high) << 4 | nibble(*low));
                rest = behind;
            }
            _ => out.push(*first),
        }
    }
    out
}

/// What programs do with encoded words that follow each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Words {
    /// Each is read by itself, as it should be.
    Apart,
    /// Octets of one charset are joined before they are read: a letter may be broken over two words.
    Octets,
    /// So are the letters of base64, and a word without an end goes on to the end of the text.
    Letters,
}

/// Text with encoded words (RFC 2047), also inside quotes, where they do not belong and are found.
pub(super) fn decoded_words(value: &[u8], padding: Padding, reading: CharsetReading) -> String {
    words_decoded(value, padding, reading, Words::Apart)
}

/// The same, with one of the ways to join words.
pub(super) fn words_decoded(value: &[u8], padding: Padding, reading: CharsetReading, words: Words) -> String {
    let (mut out, mut rest, mut run) = (String::new(), value, Vec::<Word<'_>>::new());
    // Behind the last end of a word there is none, and looking for it again and again would take long.
    let last = memchr::memmem::rfind(value, b"?=");
    while let Some(at) = memchr::memmem::find(rest, b"=?") {
        if last.is_none_or(|last| value.len() - rest.len() + at > last) {
            break;
        }
        let Some((word, behind)) = Word::read(&rest[at + 2..]) else {
            flush(&mut run, padding, reading, words, &mut out);
            out.push_str(&text_of(b"", &rest[..at + 2], reading));
            rest = &rest[at + 2..];
            continue;
        };
        // White space between two encoded words is not shown.
        if run.is_empty() || !rest[..at].iter().all(u8::is_ascii_whitespace) {
            flush(&mut run, padding, reading, words, &mut out);
            out.push_str(&text_of(b"", &rest[..at], reading));
        }
        run.push(word);
        rest = behind;
    }
    flush(&mut run, padding, reading, words, &mut out);
    match Word::unended(rest).filter(|_| words == Words::Letters) {
        Some((before, word)) => {
            out.push_str(&text_of(b"", before, reading));
            flush(&mut vec![word], padding, reading, words, &mut out);
        }
        None => out.push_str(&text_of(b"", rest, reading)),
    }
    out
}

/// An encoded word: charset, `?`, encoding, `?`, text, `?=`.
struct Word<'t> {
    charset: &'t [u8],
    is_printable: bool,
    body: &'t [u8],
}

impl<'t> Word<'t> {
    /// What follows `=?`, and what is behind it.
    fn read(text: &'t [u8]) -> Option<(Word<'t>, &'t [u8])> {
        let (charset, is_printable, text) = Word::head(text)?;
        let end = memchr::memmem::find(text, b"?=")?;
        Some((Word { charset, is_printable, body: &text[..end] }, &text[end + 2..]))
    }

    /// A word without an end, which some read to the end of the text, and what is before it.
    fn unended(text: &'t [u8]) -> Option<(&'t [u8], Word<'t>)> {
        let at = memchr::memmem::rfind(text, b"=?")?;
        let (charset, is_printable, body) = Word::head(&text[at + 2..])?;
        Some((&text[..at], Word { charset, is_printable, body: body.strip_suffix(b"?").unwrap_or(body) }))
    }

    fn head(text: &'t [u8]) -> Option<(&'t [u8], bool, &'t [u8])> {
        let (charset, text) = split_once(text, b'?')?;
        let (encoding, text) = split_once(text, b'?')?;
        match encoding {
            b"B" | b"b" => Some((charset, false, text)),
            b"Q" | b"q" => Some((charset, true, text)),
            _ => None,
        }
    }

    fn octets(&self, padding: Padding) -> Vec<u8> {
        if self.is_printable {
            let spaced: Vec<u8> = self.body.iter().map(|byte| if *byte == b'_' { b' ' } else { *byte }).collect();
            quoted_printable(&spaced)
        } else {
            base64(self.body, padding)
        }
    }
}

/// Words that stand side by side.
fn flush(run: &mut Vec<Word<'_>>, padding: Padding, reading: CharsetReading, words: Words, out: &mut String) {
    let alike = |one: &Word<'_>, next: &Word<'_>| match words {
        Words::Apart => false,
        Words::Octets => one.charset.eq_ignore_ascii_case(next.charset),
        Words::Letters => one.charset.eq_ignore_ascii_case(next.charset) && !one.is_printable && !next.is_printable,
    };
    for group in run.chunk_by(alike) {
        let octets = match words {
            Words::Letters if !group[0].is_printable => {
                base64(&group.iter().map(|word| word.body).collect::<Vec<_>>().concat(), padding)
            }
            _ => group.iter().flat_map(|word| word.octets(padding)).collect(),
        };
        out.push_str(&text_of(group[0].charset, &octets, reading));
    }
    run.clear();
}

/// Whether an encoded word names a charset in which an extension may look like anything.
pub(super) fn has_rare_charset(value: &[u8]) -> bool {
    let charset = |at: usize| split_once(&value[at + 2..], b'?').map_or(&b""[..], |(charset, _)| charset);
    memchr::memmem::find_iter(value, b"=?").any(|at| is_rare(charset(at)))
}

fn split_once(text: &[u8], at: u8) -> Option<(&[u8], &[u8])> {
    // A sign is never far: the next word has one.
    let place = memchr::memchr(at, text)?;
    Some((&text[..place], &text[place + 1..]))
}
