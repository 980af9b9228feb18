//! Follows the octets of an HTTP/1 connection from message to message, and finds heads with two lengths.
//!
//! A request with both `Content-Length` and `Transfer-Encoding` is the usual way to smuggle a request past a proxy (RFC 9112 section 6.3).
//! hyper follows the latter and hides the former, so only the raw octets show it. The watch follows the framing: head, body by length or by
//! chunks, next head. It checks nothing else. What it cannot follow hyper refuses as well; where hyper might not (a length of very many
//! digits), it says so, and the gate refuses it.
//!
//! It also knows whether a head has begun, which tells an idle client from a slow one, and whether one was longer than it may be: hyper
//! looks at the size of its buffer, which may hold nearly twice as much. And it finds the characters in queries that hyper takes for a
//! fault and other servers do not, so that they can be written with `%` before hyper sees them. Linear in the octets of heads; bodies are
//! skipped. 112 octets per connection.

/// Follows one connection.
#[derive(Debug)]
pub struct FramingWatch {
    state: State,
    /// The beginning of a line that is not complete yet.
    line: [u8; LINE_KEPT],
    kept: u8,
    chunked: bool,
    length: Option<u64>,
    both: bool,
    /// A length has come by that cannot be followed.
    unclear: bool,
    /// Octets of the head so far, and how many there may be.
    head: u32,
    head_most: u32,
    long: bool,
    /// Where in a request line the last octet was.
    request_line: RequestLine,
    /// Whether it is certain where requests begin. It is not behind an upgrade, or where a length can be read in two ways.
    certain: bool,
}

/// The first line of a head, up to its query, within it, or over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum RequestLine {
    BeforeQuery,
    Query,
    Over,
}

/// Between → Head → (Body | ChunkSize → Chunk → … → Trailers) → Between. Lost is final.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// Between requests.
    Between,
    Head,
    Body(u64),
    ChunkSize,
    Chunk(u64),
    Trailers,
    Lost,
}

/// As much of a line as matters: a name of 17 octets and a number. Of blanks in a row only the first is kept, since there may be any number of them
/// before a number.
const LINE_KEPT: usize = 64;
/// No length is written with more digits than this, and so many are kept of each line.
const DIGITS: usize = 32;

impl Default for FramingWatch {
    fn default() -> FramingWatch {
        FramingWatch::new(u32::MAX)
    }
}

impl FramingWatch {
    /// Of a connection whose heads have no more than `head_most` octets.
    pub fn new(head_most: u32) -> FramingWatch {
        FramingWatch {
            state: State::Between,
            line: [0; LINE_KEPT],
            kept: 0,
            chunked: false,
            length: None,
            both: false,
            unclear: false,
            head: 0,
            head_most,
            long: false,
            request_line: RequestLine::Over,
            certain: true,
        }
    }

    /// Whether a head that is too long has come by.
    #[inline]
    pub fn saw_long(&self) -> bool {
        self.long
    }

    /// Octets that came in. Tells where in them a query has a `"`, `<` or `>` as it is; usually nowhere.
    pub fn see(&mut self, octets: &[u8]) -> Vec<usize> {
        let (mut rest, mut raw) = (octets, Vec::new());
        while !rest.is_empty() && self.state != State::Lost {
            rest = match self.state {
                State::Body(left) => self.skip(rest, left, State::Body, State::Between),
                State::Chunk(left) => self.skip(rest, left, State::Chunk, State::ChunkSize),
                _ => self.line(rest, octets.len() - rest.len(), &mut raw),
            };
        }
        raw
    }

    /// Whether a head with two lengths has come by.
    #[inline]
    pub fn saw_both(&self) -> bool {
        self.both
    }

    /// Whether a length has come by that cannot be followed. From there on it is not known where requests begin.
    #[inline]
    pub fn saw_unclear(&self) -> bool {
        self.unclear
    }

    /// Whether a head has begun and is not complete.
    #[inline]
    pub fn in_head(&self) -> bool {
        self.state == State::Head
    }

    fn skip<'a>(&mut self, octets: &'a [u8], left: u64, stay: fn(u64) -> State, then: State) -> &'a [u8] {
        let here = usize::try_from(left).unwrap_or(usize::MAX).min(octets.len());
        let left = left - here as u64;
        self.state = if left == 0 { then } else { stay(left) };
        &octets[here..]
    }

    /// Up to the end of the line; `at` is where the octets begin in what came in.
    fn line<'a>(&mut self, octets: &'a [u8], at: usize, raw: &mut Vec<usize>) -> &'a [u8] {
        if self.state == State::Between {
            self.state = State::Head;
            (self.chunked, self.length, self.head) = (false, None, 0);
            self.request_line = RequestLine::BeforeQuery;
        }
        let end = memchr::memchr(b'\n', octets);
        if self.request_line != RequestLine::Over {
            self.query(&octets[..end.unwrap_or(octets.len())], at, raw);
        }
        let Some(end) = end else {
            self.count(octets.len());
            self.keep(octets);
            return &[];
        };
        self.request_line = RequestLine::Over;
        self.count(end + 1);
        if self.kept == 0 {
            self.end_line(&octets[..end]);
        } else {
            self.keep(&octets[..end]);
            let (line, kept) = (self.line, std::mem::take(&mut self.kept));
            self.end_line(&line[..usize::from(kept)]);
        }
        &octets[end + 1..]
    }

    /// Looks at a piece of a request line.
    fn query(&mut self, piece: &[u8], at: usize, raw: &mut Vec<usize>) {
        let mut from = 0;
        if self.request_line == RequestLine::BeforeQuery {
            let Some(mark) = memchr::memchr(b'?', piece) else { return };
            (self.request_line, from) = (RequestLine::Query, mark);
        }
        if self.certain {
            raw.extend(memchr::memchr3_iter(b'"', b'<', b'>', &piece[from..]).map(|found| at + from + found));
        }
    }

    fn count(&mut self, octets: usize) {
        if self.state == State::Head {
            self.head = self.head.saturating_add(u32::try_from(octets).unwrap_or(u32::MAX));
            self.long |= self.head > self.head_most;
        }
    }

    /// Keeps the beginning of a line that comes in pieces.
    fn keep(&mut self, octets: &[u8]) {
        for octet in octets {
            let kept = usize::from(self.kept);
            if kept == LINE_KEPT {
                return;
            }
            let behind_blank = kept > 0 && is_blank(self.line[kept - 1]);
            if !(behind_blank && is_blank(*octet)) {
                self.line[kept] = *octet;
                self.kept += 1;
            }
        }
    }

    fn end_line(&mut self, line: &[u8]) {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        match self.state {
            State::ChunkSize => self.chunk(line),
            State::Trailers if line.is_empty() => self.state = State::Between,
            State::Head if line.is_empty() => self.end_head(),
            State::Head => self.header(line),
            _ => {}
        }
    }

    #[inline]
    fn header(&mut self, line: &[u8]) {
        match line.first().map(u8::to_ascii_lowercase) {
            Some(b't') if is_named(line, b"transfer-encoding") => self.chunked = true,
            Some(b'c') if is_named(line, b"content-length") => {
                // A length that is no number is refused by hyper, or is a list of the same number.
                let digits = &line[b"content-length:".len()..];
                self.unclear |= is_long(digits);
                let length = number(digits, 10).filter(|_| !is_long(digits));
                self.certain &= length.is_some();
                self.length = Some(length.unwrap_or(0));
            }
            // What follows may be no HTTP.
            Some(b'u') if is_named(line, b"upgrade") => self.certain = false,
            Some(b'c') if line.get(..8).is_some_and(|word| word.eq_ignore_ascii_case(b"connect ")) => {
                self.certain = false;
            }
            _ => {}
        }
    }

    fn end_head(&mut self) {
        self.both |= self.chunked && self.length.is_some();
        self.state = match self.length {
            _ if self.unclear => State::Lost,
            _ if self.chunked => State::ChunkSize,
            None | Some(0) => State::Between,
            Some(length) => State::Body(length),
        };
    }

    fn chunk(&mut self, line: &[u8]) {
        let digits = line.split(|octet| *octet == b';').next().unwrap_or_default();
        self.state = match number(digits, 16).filter(|_| !is_long(digits)) {
            Some(0) => State::Trailers,
            // And the line end behind it.
            Some(size) if size < 1 << 60 => State::Chunk(size + 2),
            _ => State::Lost,
        };
        self.unclear |= self.state == State::Lost;
    }
}

fn is_named(line: &[u8], name: &[u8]) -> bool {
    line.len() > name.len() && line[name.len()] == b':' && line[..name.len()].eq_ignore_ascii_case(name)
}

fn is_blank(octet: u8) -> bool {
    matches!(octet, b' ' | b'\t')
}

/// Whether these are more digits than are kept of every line, however it comes.
fn is_long(digits: &[u8]) -> bool {
    digits.trim_ascii().len() > DIGITS
}

fn number(text: &[u8], radix: u32) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?.trim();
    if text.starts_with('+') { None } else { u64::from_str_radix(text, radix).ok() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn saw(text: &str) -> FramingWatch {
        let mut watch = FramingWatch::default();
        watch.see(text.as_bytes());
        watch
    }

    const POST: &str = "POST / HTTP/1.1\r\nHost: a\r\n";

    #[test]
    fn two_lengths_are_seen_in_either_order_and_any_case() {
        for both in [
            "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
            "transfer-encoding:chunked\r\nCONTENT-LENGTH:5\r\n",
            "Transfer-Encoding: chunked\nContent-Length: x\n",
        ] {
            assert!(saw(&format!("{POST}{both}\r\n")).saw_both(), "{both}");
            let split: Vec<u8> = format!("{POST}{both}\r\n").into_bytes();
            let mut watch = FramingWatch::default();
            split.iter().for_each(|octet| drop(watch.see(&[*octet])));
            assert!(watch.saw_both(), "{both} one by one");
        }
    }

    #[test]
    fn bodies_are_not_heads() {
        let lure = "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n";
        let by_length = format!("{POST}Content-Length: {}\r\n\r\n{lure}", lure.len());
        let by_chunk =
            format!("{POST}Transfer-Encoding: chunked\r\n\r\n{:x};x=y\r\n{lure}\r\n0\r\nA: b\r\n\r\n", lure.len());
        for (text, next) in [(by_length, "GET "), (by_chunk, "GET ")] {
            let mut watch = saw(&text);
            assert!(!watch.saw_both() && !watch.in_head(), "{text}");
            watch.see(next.as_bytes());
            assert!(watch.in_head());
            watch.see(format!("/ HTTP/1.1\r\n{lure}").as_bytes());
            assert!(watch.saw_both());
        }
    }

    #[test]
    fn a_long_line_is_followed_however_it_comes() {
        let lure = "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n";
        let (blank, size) = (" ".repeat(100), lure.len());
        for text in [
            format!("{POST}Content-Length:{blank}{size}\r\n\r\n{lure}"),
            format!("{POST}Content-Length:{blank}{size}{blank}\r\n\r\n{lure}"),
            format!("{POST}Transfer-Encoding:{blank}chunked\r\n\r\n{size:x}{blank}\r\n{lure}\r\n0\r\n\r\n"),
            format!("{POST}Transfer-Encoding: chunked\r\n\r\n{size:x};{}\r\n{lure}\r\n0\r\n\r\n", "x".repeat(100)),
        ] {
            for cut in 0..text.len() {
                let mut watch = saw(&text[..cut]);
                watch.see(&text.as_bytes()[cut..]);
                let end = (watch.state, watch.saw_both(), watch.saw_unclear());
                assert_eq!(end, (State::Between, false, false), "{text} in two at {cut}");
            }
        }
    }

    #[test]
    fn lengths_of_very_many_digits_are_not_clear() {
        let (few, many) = ("0".repeat(DIGITS - 1), "0".repeat(DIGITS));
        let by_length = |zeros: &str| format!("{POST}Content-Length: {zeros}5\r\n\r\nabcde");
        let by_chunk = |zeros: &str| format!("{POST}Transfer-Encoding: chunked\r\n\r\n{zeros}5\r\nabcde\r\n0\r\n\r\n");
        for (text, unclear) in
            [(by_length(&few), false), (by_chunk(&few), false), (by_length(&many), true), (by_chunk(&many), true)]
        {
            let mut pieces = FramingWatch::default();
            text.bytes().for_each(|octet| drop(pieces.see(&[octet])));
            assert_eq!((saw(&text).saw_unclear(), pieces.saw_unclear()), (unclear, unclear), "{text}");
        }
    }

    #[test]
    fn raw_characters_are_found_in_queries_and_nowhere_else() {
        let text =
            "POST /<a>?q=<b>\"&r=? HTTP/1.1\r\nReferer: /?<c>\r\nContent-Length: 4\r\n\r\n?<d>GET /?> HTTP/1.1\r\n\r\n";
        let raw = |octet: usize| text.as_bytes()[octet];
        let found = FramingWatch::default().see(text.as_bytes());
        assert_eq!(found.iter().map(|at| raw(*at)).collect::<Vec<_>>(), b"<>\">");
        let mut watch = FramingWatch::default();
        let one_by_one: Vec<usize> =
            (0..text.len()).filter(|at| watch.see(&text.as_bytes()[*at..=*at]) == [0]).collect();
        assert_eq!(one_by_one, found);
    }

    #[test]
    fn behind_what_may_be_no_http_nothing_is_found() {
        for head in [
            "GET /chat HTTP/1.1\r\nUpgrade: websocket\r\n\r\n",
            "CONNECT a:1 HTTP/1.1\r\n\r\n",
            "POST / HTTP/1.1\r\nContent-Length: 4, 4\r\n\r\n",
            "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n",
        ] {
            assert_eq!(saw(head).see(b"GET /?<> HTTP/1.1\r\n"), [], "{head}");
        }
        assert_eq!(saw("GET /chat HTTP/1.1\r\n\r\n").see(b"GET /?<> HTTP/1.1\r\n"), [6, 7]);
    }

    #[test]
    fn heads_are_measured_and_bodies_are_not() {
        let head = format!("{POST}Content-Length: 100\r\n\r\n");
        let text = format!("{head}{}{head}", "x".repeat(100));
        for (most, long) in [(head.len(), false), (head.len() - 1, true)] {
            let (mut whole, mut pieces) = (FramingWatch::new(most as u32), FramingWatch::new(most as u32));
            whole.see(text.as_bytes());
            text.as_bytes().iter().for_each(|octet| drop(pieces.see(&[*octet])));
            assert_eq!((whole.saw_long(), pieces.saw_long()), (long, long), "{most}");
        }
    }

    #[test]
    fn heads_in_a_row_are_followed() {
        let get = "GET / HTTP/1.1\r\nHost: a\r\nX-Content-Length: 3\r\n\r\n";
        let watch = saw(&format!("{get}{get}{get}"));
        assert_eq!((watch.state, watch.saw_both()), (State::Between, false));
    }

    proptest! {
        #[test]
        fn pieces_make_no_difference(
            lines in prop::collection::vec(prop_oneof![
                "GET / HTTP/1.1\r\n",
                "Content-Length:[ \t]{0,80}0{0,40}[0-9]{1,21}[ \t]{0,80}\r\n",
                "Transfer-Encoding:[ \t]{0,80}chunked\r\n",
                "0{0,40}[0-9a-f]{0,3}[ \t]{0,80}(;x{0,90})?\r\n",
                "\r\n|\n|x{1,90}|\u{e9}",
            ], 0..12),
            cuts in prop::collection::vec(1_usize..100, 0..20),
        ) {
            let text = lines.concat();
            let whole = saw(&text);
            let (mut pieces, mut rest) = (FramingWatch::default(), text.as_bytes());
            for cut in cuts {
                let (piece, left) = rest.split_at(cut.min(rest.len()));
                pieces.see(piece);
                rest = left;
            }
            pieces.see(rest);
            prop_assert_eq!(whole.state, pieces.state);
            prop_assert_eq!(whole.both, pieces.both);
            prop_assert_eq!(whole.unclear, pieces.unclear);
        }
    }
}
