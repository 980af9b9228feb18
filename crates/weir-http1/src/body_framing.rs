//! Finds where the body of a server's response ends, and splits it into pieces (RFC 9112 sections 6 and 7).
//!
//! By length, in chunks, or until the connection ends. Chunks are read strictly: any error in them ends the response.
//! Constant time a piece; nothing is copied. The lines of chunks and the trailers are bounded.

use bytes::{Buf, Bytes, BytesMut};
use http::HeaderMap;

use super::fields::{head_end, put_shared};
use super::refused::Refused;

/// What is still to come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BodyFraming {
    /// This many octets.
    Length(u64),
    /// In chunks.
    Chunks(Chunks),
    /// Until the connection ends.
    UntilClose,
    /// What came is no body, or broke off. It has no end.
    Broken,
}

/// Size → Data → Line → Size → … → Trailers → End.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Chunks {
    /// The size of the next chunk comes.
    Size,
    /// This many octets of a chunk come.
    Data(u64),
    /// The end of the line behind the data comes.
    Line,
    /// Trailers, or the empty line in their place.
    Trailers,
    /// Everything has come.
    End,
}

/// A piece of a body.
#[derive(PartialEq, Eq, Debug)]
pub enum Piece {
    /// Octets of the body.
    Data(Bytes),
    /// The trailers; nothing comes after them.
    Trailers(HeaderMap),
    /// More octets are needed.
    More,
    /// The body is over.
    End,
}

/// A chunk's size and what it says of itself.
const LINE_BYTES: usize = 1_024;
const TRAILER_BYTES: usize = 16 << 10;
const TRAILERS: usize = 64;

impl BodyFraming {
    /// Whether everything has come.
    #[inline]
    pub fn is_over(&self) -> bool {
        matches!(self, BodyFraming::Length(0) | BodyFraming::Chunks(Chunks::End))
    }

    /// Takes the next piece off what has come in.
    #[inline]
    pub fn take(&mut self, input: &mut BytesMut) -> Result<Piece, Refused> {
        let piece = self.piece(input);
        if piece.is_err() {
            *self = BodyFraming::Broken;
        }
        piece
    }

    #[inline]
    fn piece(&mut self, input: &mut BytesMut) -> Result<Piece, Refused> {
        match self {
            BodyFraming::Broken => Err(Refused::Broken),
            BodyFraming::Length(0) => Ok(Piece::End),
            BodyFraming::Length(left) => Ok(data(left, input)),
            BodyFraming::UntilClose if input.is_empty() => Ok(Piece::More),
            BodyFraming::UntilClose => Ok(Piece::Data(input.split().freeze())),
            BodyFraming::Chunks(chunks) => chunks.take(input),
        }
    }

    /// The connection has ended: whether that is the body's end as well.
    pub fn ends_with_connection(&mut self) -> bool {
        let ends = *self == BodyFraming::UntilClose;
        if ends {
            *self = BodyFraming::Length(0);
        }
        ends || self.is_over()
    }
}

fn data(left: &mut u64, input: &mut BytesMut) -> Piece {
    let here = usize::try_from(*left).unwrap_or(usize::MAX).min(input.len());
    if here == 0 {
        return Piece::More;
    }
    *left -= here as u64;
    Piece::Data(input.split_to(here).freeze())
}

impl Chunks {
    fn take(&mut self, input: &mut BytesMut) -> Result<Piece, Refused> {
        loop {
            match self {
                Chunks::Size => {
                    let Some(size) = size(input)? else { return Ok(Piece::More) };
                    *self = if size == 0 { Chunks::Trailers } else { Chunks::Data(size) };
                }
                Chunks::Data(0) => *self = Chunks::Line,
                Chunks::Data(left) => return Ok(data(left, input)),
                Chunks::Line => match &input[..] {
                    [b'\r', b'\n', ..] => {
                        input.advance(2);
                        *self = Chunks::Size;
                    }
                    [] | [b'\r'] => return Ok(Piece::More),
                    _ => return Err(Refused::Chunk),
                },
                Chunks::Trailers => {
                    let Some(trailers) = trailers(input)? else { return Ok(Piece::More) };
                    *self = Chunks::End;
                    return Ok(if trailers.is_empty() { Piece::End } else { Piece::Trailers(trailers) });
                }
                Chunks::End => return Ok(Piece::End),
            }
        }
    }
}

fn size(input: &mut BytesMut) -> Result<Option<u64>, Refused> {
    let Some(end) = memchr::memchr(b'\n', &input[..input.len().min(LINE_BYTES)]) else {
        return if input.len() < LINE_BYTES { Ok(None) } else { Err(Refused::Chunk) };
    };
    let line = input.split_to(end + 1);
    let line = line.strip_suffix(b"\r\n").ok_or(Refused::Chunk)?;
    let digits = line.split(|octet| *octet == b';').next().unwrap_or_default().trim_ascii_end();
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_hexdigit) || line.contains(&b'\r') {
        return Err(Refused::Chunk);
    }
    let size = std::str::from_utf8(digits).ok().and_then(|digits| u64::from_str_radix(digits, 16).ok());
    size.map(Some).ok_or(Refused::Chunk)
}

fn trailers(input: &mut BytesMut) -> Result<Option<HeaderMap>, Refused> {
    let mut headers = HeaderMap::new();
    if input.starts_with(b"\r\n") {
        input.advance(2);
        return Ok(Some(headers));
    }
    let Some(end) = head_end(input) else {
        return if input.len() < TRAILER_BYTES { Ok(None) } else { Err(Refused::Chunk) };
    };
    let octets = input.split_to(end).freeze();
    let mut fields = [httparse::EMPTY_HEADER; TRAILERS];
    match httparse::parse_headers(&octets, &mut fields) {
        Ok(httparse::Status::Complete((length, fields))) if length == end => {
            put_shared(&octets, fields, &mut headers)?;
            Ok(Some(headers))
        }
        _ => Err(Refused::Chunk),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CHUNKED: BodyFraming = BodyFraming::Chunks(Chunks::Size);

    /// Gives the octets in pieces of `step`; the data, the trailers, and what is left.
    fn read(mut framing: BodyFraming, octets: &[u8], step: usize) -> Result<(Vec<u8>, HeaderMap, Vec<u8>), Refused> {
        let (mut input, mut data, mut trailers) = (BytesMut::new(), Vec::new(), HeaderMap::new());
        let mut parts = octets.chunks(step);
        loop {
            match framing.take(&mut input)? {
                Piece::Data(piece) => data.extend_from_slice(&piece),
                Piece::Trailers(some) => trailers = some,
                Piece::End => break,
                Piece::More => match parts.next() {
                    Some(part) => input.extend_from_slice(part),
                    None if framing.ends_with_connection() => break,
                    None => return Err(Refused::ResponseLength),
                },
            }
        }
        Ok((data, trailers, input.to_vec()))
    }

    #[test]
    fn a_body_by_length_ends_there_and_one_without_when_the_connection_does() {
        for step in 1..8 {
            assert_eq!(read(BodyFraming::Length(4), b"abcdef", step).unwrap().0, b"abcd");
            assert_eq!(read(BodyFraming::UntilClose, b"abcdef", step).unwrap().0, b"abcdef");
            assert!(read(BodyFraming::Length(7), b"abcdef", step).is_err(), "broken off");
        }
    }

    #[test]
    fn chunks_are_joined_and_trailers_kept() {
        let text = b"3;a=b\r\nabc\r\n0a \r\n0123456789\r\n0\r\nSum: 1\r\n\r\nHTTP";
        for step in 1..text.len() {
            let (data, trailers, left) = read(CHUNKED, text, step).unwrap();
            assert_eq!(data, b"abc0123456789");
            assert_eq!(trailers["sum"], "1");
            assert!(b"HTTP".starts_with(&left[..]));
        }
        assert!(read(CHUNKED, b"3\r\nabc\r\n0\r\n\r\n", 5).unwrap().1.is_empty());
    }

    #[test]
    fn bad_chunks_are_refused() {
        for bad in [
            "\r\n",
            "x\r\n",
            "-1\r\n",
            "+1\r\n",
            "0x1\r\n",
            "3\nabc",
            "3\r\nabcX",
            "11111111111111111\r\n",
            " 3\r\nabc",
            "3\r;\r\nabc",
            "0\r\nno colon\r\n\r\n",
        ] {
            assert!(read(CHUNKED, bad.as_bytes(), 64).is_err(), "{bad:?}");
            let mut input = BytesMut::from(format!("{bad}\r\n0\r\n\r\n").as_bytes());
            let mut framing = CHUNKED;
            while matches!(framing.take(&mut input), Ok(Piece::Data(_))) {}
            assert!(framing.take(&mut input).is_err() && !framing.is_over(), "what follows {bad:?} is no body");
        }
        assert!(read(CHUNKED, &[b'1'; LINE_BYTES], 100).is_err());
        let endless = format!("0\r\n{}", "A: b\r\n".repeat(TRAILER_BYTES));
        assert!(read(CHUNKED, endless.as_bytes(), 4_096).is_err());
    }

    proptest! {
        #[test]
        fn what_was_cut_into_chunks_comes_out_whole(
            data in proptest::collection::vec(any::<u8>(), 0..300),
            size in 1usize..50,
            step in 1usize..60,
        ) {
            let mut text = Vec::new();
            for chunk in data.chunks(size) {
                text.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
                text.extend_from_slice(chunk);
                text.extend_from_slice(b"\r\n");
            }
            text.extend_from_slice(b"0\r\n\r\n");
            prop_assert_eq!(read(CHUNKED, &text, step).unwrap().0, data);
        }

        #[test]
        fn no_octets_do_harm(octets in proptest::collection::vec(any::<u8>(), 0..100), step in 1usize..20) {
            let _ = read(CHUNKED, &octets, step);
        }
    }
}
