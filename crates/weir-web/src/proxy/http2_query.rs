//! Raw `"`, `<` and `>` in the queries of HTTP/2 requests.
//!
//! Strictly they must be written with `%`, but programs send them as they are, and nginx passes them on. h2 resets such a request before we see it. So its octets are looked at
//! on their way to h2: where a HEADERS frame holds a `:path` whose query has such characters, they are written as h2 wants them (`%22`, `%3C`, `%3E`), which means the
//! same to every server. Everything else passes as it came.
//!
//! Only literals that are not put into the compression's table are changed, which is how nghttp2 (curl, node) and browsers send paths: a changed entry would have another
//! size than its sender believes (RFC 7541, section 4.1), and the two tables would no longer agree. Memory: one frame. What cannot be followed is left to h2, which refuses it.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A connection of HTTP/2 whose queries are changed to what h2 accepts.
#[derive(Debug)]
pub(super) struct QueryStream<S> {
    stream: S,
    frames: Frames,
    /// What was changed and is to be passed on, and how much of it has been.
    changed: Vec<u8>,
    given: usize,
}

impl<S> QueryStream<S> {
    pub(super) fn new(stream: S) -> QueryStream<S> {
        QueryStream { stream, frames: Frames { skip: PREFACE, held: Vec::new() }, changed: Vec::new(), given: 0 }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for QueryStream<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let stream = &mut *self;
        loop {
            if stream.given < stream.changed.len() {
                let here = (stream.changed.len() - stream.given).min(buffer.remaining());
                buffer.put_slice(&stream.changed[stream.given..stream.given + here]);
                stream.given += here;
                return Poll::Ready(Ok(()));
            }
            (stream.changed, stream.given) = (Vec::new(), 0);
            let before = buffer.filled().len();
            ready!(Pin::new(&mut stream.stream).poll_read(cx, buffer))?;
            let fresh = &buffer.filled()[before..];
            if fresh.is_empty() || stream.frames.pass(fresh) {
                return Poll::Ready(Ok(()));
            }
            let mut changed = Vec::with_capacity(fresh.len() + FRAME_HEAD);
            stream.frames.change(fresh, &mut changed);
            stream.changed = changed;
            buffer.set_filled(before);
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for QueryStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, octets: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, octets)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// The lengths of the preface and of a frame's head.
const PREFACE: usize = 24;
const FRAME_HEAD: usize = 9;
/// The longest frame that a client may send, because we have told it nothing else.
const FRAME_MOST: usize = 16_384;
const HEADERS: u8 = 1;
const END_HEADERS: u8 = 4;
const PADDED: u8 = 8;
const PRIORITY: u8 = 32;
const PRIORITY_BYTES: usize = 5;

/// The position in the frames of a connection.
#[derive(Debug)]
struct Frames {
    /// Octets to pass on before the next frame.
    skip: usize,
    /// The beginning of a frame whose rest is not here yet.
    held: Vec<u8>,
}

impl Frames {
    /// Whether all of these octets can be passed on unchanged; if not, nothing has happened.
    fn pass(&mut self, octets: &[u8]) -> bool {
        if !self.held.is_empty() {
            return false;
        }
        let (mut rest, mut skip) = (octets, self.skip);
        loop {
            if rest.len() <= skip {
                self.skip = skip - rest.len();
                return true;
            }
            rest = &rest[skip..];
            let Some((length, is_headers)) = frame(rest) else { return false };
            if is_headers && rest.get(..length).is_none_or(|frame| rewritten(frame).is_some()) {
                return false;
            }
            skip = length;
        }
    }

    /// Passes octets on, with the necessary changes.
    fn change(&mut self, octets: &[u8], out: &mut Vec<u8>) {
        let skipped = self.skip.min(octets.len());
        out.extend_from_slice(&octets[..skipped]);
        self.skip -= skipped;
        self.held.extend_from_slice(&octets[skipped..]);
        let held = std::mem::take(&mut self.held);
        let mut rest = &held[..];
        while let Some((length, is_headers)) = frame(rest) {
            match rest.split_at_checked(length) {
                Some((frame, behind)) => {
                    let changed = if is_headers { rewritten(frame) } else { None };
                    out.extend_from_slice(changed.as_deref().unwrap_or(frame));
                    rest = behind;
                }
                None if is_headers => break,
                None => {
                    out.extend_from_slice(rest);
                    self.skip = length - rest.len();
                    rest = &[];
                }
            }
        }
        self.held = rest.to_vec();
    }
}

/// How long the frame is that begins here, and whether it holds a whole block of fields; None if its head is not here yet.
fn frame(octets: &[u8]) -> Option<(usize, bool)> {
    let [a, b, c, kind, flags, ..] = *octets.get(..FRAME_HEAD)? else { return None };
    let length = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
    Some((FRAME_HEAD + length, kind == HEADERS && flags & END_HEADERS != 0 && length <= FRAME_MOST))
}

/// The frame with another path; None if it need not, or cannot, be changed.
fn rewritten(frame: &[u8]) -> Option<Vec<u8>> {
    let (head, payload) = frame.split_at_checked(FRAME_HEAD)?;
    let flags = *head.get(4)?;
    let (padding, payload) = match flags & PADDED {
        0 => (0, payload),
        _ => payload.split_first().map(|(padding, rest)| (usize::from(*padding), rest))?,
    };
    let payload = &payload[..payload.len().checked_sub(padding)?];
    let (priority, block) = payload.split_at_checked(if flags & PRIORITY == 0 { 0 } else { PRIORITY_BYTES })?;
    let literal = path_literal(block)?;
    let mut out = head.to_vec();
    out.extend_from_slice(priority);
    out.extend_from_slice(&block[..literal.value.start]);
    write_string(&mut out, &literal.written);
    out.extend_from_slice(&block[literal.value.end..]);
    let length = out.len() - FRAME_HEAD;
    let [_, a, b, c] = u32::try_from(length).ok()?.to_be_bytes();
    out[..3].copy_from_slice(&[a, b, c]);
    out[4] = flags & !PADDED;
    (length <= FRAME_MOST).then_some(out)
}

/// A path that has to be written differently.
struct Literal {
    /// Where its value is in the block.
    value: std::ops::Range<usize>,
    written: Vec<u8>,
}

/// Searches the fields of a block (RFC 7541, section 6) for a path in a literal that is not indexed.
fn path_literal(block: &[u8]) -> Option<Literal> {
    let mut at = 0;
    while let Some(first) = block.get(at).copied() {
        let (prefix_bits, is_literal, is_indexed) = match first {
            0x80.. => (7, false, false),
            0x40.. => (6, true, true),
            0x20.. => (5, false, false),
            _ => (4, true, false),
        };
        let (index, behind) = integer(block, at, prefix_bits)?;
        at = behind;
        if !is_literal {
            continue;
        }
        let mut is_path = PATHS.contains(&index);
        if index == 0 {
            let (name, behind) = string(block, at)?;
            is_path = name.octets() == b":path";
            at = behind;
        }
        let (value, behind) = string(block, at)?;
        if is_path && !is_indexed {
            let written = value.decoded().and_then(|path| escaped(&path))?;
            return Some(Literal { value: at..behind, written });
        }
        at = behind;
    }
    None
}

/// The entries of the static table that are paths.
const PATHS: [usize; 2] = [4, 5];

/// A path with its query written correctly; None if it is already.
fn escaped(path: &[u8]) -> Option<Vec<u8>> {
    let query = path.iter().position(|octet| *octet == b'?')?;
    let raw = |octet: &u8| matches!(octet, b'"' | b'<' | b'>');
    if !path[query..].iter().any(raw) {
        return None;
    }
    let mut written = path[..query].to_vec();
    for octet in &path[query..] {
        match octet {
            b'"' => written.extend_from_slice(b"%22"),
            b'<' => written.extend_from_slice(b"%3C"),
            b'>' => written.extend_from_slice(b"%3E"),
            other => written.push(*other),
        }
    }
    Some(written)
}

/// An integer with this many bits in its first octet, and where it ends (RFC 7541, section 5.1).
fn integer(block: &[u8], at: usize, prefix_bits: u32) -> Option<(usize, usize)> {
    let most = (1 << prefix_bits) - 1;
    let mut number = usize::from(*block.get(at)?) & most;
    let mut at = at + 1;
    if number < most {
        return Some((number, at));
    }
    for shift in [0, 7, 14] {
        let octet = usize::from(*block.get(at)?);
        at += 1;
        number += (octet & 0x7f) << shift;
        if octet & 0x80 == 0 {
            return Some((number, at));
        }
    }
    None
}

/// A string as it is in a block.
enum Text<'a> {
    Plain(&'a [u8]),
    Huffman(&'a [u8]),
}

impl Text<'_> {
    /// Its octets as they were sent.
    fn octets(&self) -> &[u8] {
        match self {
            Text::Plain(octets) | Text::Huffman(octets) => octets,
        }
    }

    fn decoded(&self) -> Option<Vec<u8>> {
        match self {
            Text::Plain(octets) => Some(octets.to_vec()),
            Text::Huffman(octets) => huffman(octets),
        }
    }
}

/// A string, and where it ends (RFC 7541, section 5.2).
fn string(block: &[u8], at: usize) -> Option<(Text<'_>, usize)> {
    let is_huffman = block.get(at)? & 0x80 != 0;
    let (length, at) = integer(block, at, 7)?;
    let octets = block.get(at..at.checked_add(length)?)?;
    Some((if is_huffman { Text::Huffman(octets) } else { Text::Plain(octets) }, at + length))
}

fn write_string(out: &mut Vec<u8>, text: &[u8]) {
    let mut rest = text.len();
    if rest < 0x7f {
        out.push(rest as u8);
    } else {
        out.push(0x7f);
        rest -= 0x7f;
        while rest >= 0x80 {
            out.push(rest as u8 & 0x7f | 0x80);
            rest >>= 7;
        }
        out.push(rest as u8);
    }
    out.extend_from_slice(text);
}

/// How many bits each octet has in HPACK's code (RFC 7541, appendix B), and its end. The code is canonical: the lengths say everything.
#[rustfmt::skip]
const LENGTHS: [u8; 257] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28,
    6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10,
    13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6,
    15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28,
    20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27,
    20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
    30,
];
const LENGTH_MOST: usize = 30;

/// The code by length: the first code of each, and the octets in the order of their codes.
struct Code {
    first: [u32; LENGTH_MOST + 2],
    /// Where the octets of a length begin in `octets`.
    begin: [u16; LENGTH_MOST + 2],
    octets: [u16; LENGTHS.len()],
}

static CODE: Code = code();

const fn code() -> Code {
    let (mut first, mut begin, mut octets) = ([0; LENGTH_MOST + 2], [0; LENGTH_MOST + 2], [0; LENGTHS.len()]);
    let (mut length, mut code, mut next) = (1, 0_u32, 0);
    while length <= LENGTH_MOST {
        code <<= 1;
        first[length] = code;
        begin[length] = next as u16;
        let mut octet = 0;
        while octet < LENGTHS.len() {
            if LENGTHS[octet] as usize == length {
                octets[next] = octet as u16;
                next += 1;
                code += 1;
            }
            octet += 1;
        }
        length += 1;
    }
    begin[LENGTH_MOST + 1] = next as u16;
    Code { first, begin, octets }
}

/// The decoded string; None if the code is invalid, which h2 refuses as well.
fn huffman(octets: &[u8]) -> Option<Vec<u8>> {
    let mut text = Vec::with_capacity(octets.len() * 2);
    let (mut code, mut length) = (0_u32, 0_usize);
    for bit in octets.iter().flat_map(|octet| (0..8).rev().map(move |at| octet >> at & 1)) {
        code = code << 1 | u32::from(bit);
        length += 1;
        if length > LENGTH_MOST {
            return None;
        }
        let offset = code.wrapping_sub(CODE.first[length]);
        let count = u32::from(CODE.begin[length + 1] - CODE.begin[length]);
        if offset < count {
            text.push(u8::try_from(CODE.octets[usize::from(CODE.begin[length]) + offset as usize]).ok()?);
            (code, length) = (0, 0);
        }
    }
    // The end is filled with ones, with fewer than eight of them.
    (length < 8 && code == (1 << length) - 1).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn headers(flags: u8, payload: &[u8]) -> Vec<u8> {
        let [_, a, b, c] = (payload.len() as u32).to_be_bytes();
        [&[a, b, c, HEADERS, flags, 0, 0, 0, 1][..], payload].concat()
    }

    fn literal(kind: u8, path: &[u8]) -> Vec<u8> {
        let mut block = vec![0x82, kind];
        write_string(&mut block, path);
        block.extend([0x86, 0x41, 1, b'a']);
        block
    }

    fn encoded(text: &[u8]) -> Vec<u8> {
        let mut bits: Vec<bool> = Vec::new();
        for octet in text {
            let length = usize::from(LENGTHS[usize::from(*octet)]);
            let place = CODE.octets.iter().position(|known| *known == u16::from(*octet)).unwrap();
            let code = CODE.first[length] + (place - usize::from(CODE.begin[length])) as u32;
            bits.extend((0..length).rev().map(|at| code >> at & 1 == 1));
        }
        bits.resize(bits.len().next_multiple_of(8), true);
        bits.chunks(8).map(|octet| octet.iter().fold(0, |all, bit| all << 1 | u8::from(*bit))).collect()
    }

    #[test]
    fn huffman_code_of_the_rfc() {
        // RFC 7541, appendix C.4.
        let example = [0xf1, 0xe3, 0xc2, 0xe5, 0xf2, 0x3a, 0x6b, 0xa0, 0xab, 0x90, 0xf4, 0xff];
        assert_eq!(huffman(&example).as_deref(), Some(&b"www.example.com"[..]));
        assert_eq!(huffman(&[0xa8, 0xeb, 0x10, 0x64, 0x9c, 0xbf]).as_deref(), Some(&b"no-cache"[..]));
        for bad in [&[0x00][..], &[0xff, 0xff, 0xff, 0xff], &[0xff]] {
            assert_eq!(huffman(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn raw_characters_of_queries_are_written_as_they_should_be() {
        let good = literal(0x04, b"/a?q=%3Cb%3E%22%7E");
        for kind in [0x04, 0x05, 0x14] {
            let changed = rewritten(&headers(5, &literal(kind, b"/a?q=<b>\"%7E"))).unwrap();
            let expected = headers(5, &[&[0x82, kind][..], &good[2..]].concat());
            assert_eq!(changed, expected, "{kind}");
        }
        // With padding, with a priority, and in HPACK's code.
        let raw = literal(0x04, b"/a?q=<b>\"%7E");
        let padded = [&[3_u8][..], &[9; PRIORITY_BYTES][..], &raw[..], &[0; 3][..]].concat();
        let changed = rewritten(&headers(5 | PADDED | PRIORITY, &padded)).unwrap();
        assert_eq!(changed, headers(5 | PRIORITY, &[&[9; PRIORITY_BYTES][..], &good[..]].concat()));
        let text = encoded(b"/a?q=<b>\"%7E");
        let coded = [&[0x82, 0x04, 0x80 | text.len() as u8][..], &text[..], &good[good.len() - 4..]].concat();
        assert_eq!(rewritten(&headers(5, &coded)), Some(headers(5, &good)));
        // By its name in full.
        let named = b"\x00\x05:path\x04/?<>";
        let expected = b"\x00\x05:path\x08/?%3C%3E";
        assert_eq!(rewritten(&headers(5, named)), Some(headers(5, expected)));
    }

    #[test]
    fn everything_else_stays() {
        for path in [&b"/a?q=b"[..], b"/<a>", b"/", b"", b"/a?q=%3C"] {
            assert_eq!(rewritten(&headers(5, &literal(0x04, path))), None);
        }
        assert_eq!(rewritten(&headers(5, &literal(0x44, b"/a?<"))), None, "one that goes into the table");
        assert_eq!(rewritten(&headers(5, &[0x04, 0x7f, 0xff, 0xff, 0xff])), None);
        let long = vec![b'<'; 9_000];
        assert_eq!(rewritten(&headers(5, &literal(0x04, &[b"/?", &long[..]].concat()))), None, "too long afterwards");
    }

    proptest! {
        #[test]
        fn what_is_coded_is_read(text in prop::collection::vec(any::<u8>(), 0..60)) {
            prop_assert_eq!(huffman(&encoded(&text)), Some(text));
        }

        #[test]
        fn any_octets_pass_in_any_pieces(
            frames in prop::collection::vec((0_u8..10, any::<u8>(), prop::collection::vec(any::<u8>(), 0..60), any::<bool>()), 0..8),
            pieces in prop::collection::vec(1_usize..40, 1..60),
        ) {
            let mut all = vec![7; PREFACE];
            let mut expected = all.clone();
            for (kind, flags, payload, is_path) in frames {
                let mut frame = headers(flags, &payload);
                frame[3] = kind;
                if is_path {
                    frame = headers(5, &literal(0x04, b"/?<x"));
                }
                expected.extend_from_slice(&rewritten(&frame).filter(|_| super::frame(&frame).unwrap().1).unwrap_or(frame.clone()));
                all.extend_from_slice(&frame);
            }
            let mut stream = Frames { skip: PREFACE, held: Vec::new() };
            let (mut rest, mut out, mut turn) = (&all[..], Vec::new(), 0);
            while !rest.is_empty() {
                let (piece, behind) = rest.split_at(pieces[turn % pieces.len()].min(rest.len()));
                if stream.pass(piece) {
                    out.extend_from_slice(piece);
                } else {
                    stream.change(piece, &mut out);
                }
                (rest, turn) = (behind, turn + 1);
            }
            prop_assert_eq!(&out[..], &expected[..out.len()]);
            prop_assert_eq!(out.len() + stream.held.len() >= all.len().min(expected.len()), true);
        }
    }
}
