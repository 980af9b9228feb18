//! The text protocol of NATS, as much as is needed, without I/O (docs.nats.io, "NATS client protocol").

use crate::exchange::carrier::{CarrierError, Codec, Incoming};
use crate::exchange::frame::FRAME_BYTES_MAX;
use bytes::{Buf, BytesMut};
use serde::{Deserialize, Serialize};

/// What a client proves itself with.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Login {
    None,
    Token(String),
    Password { user: String, password: String },
}

/// What the server says about itself.
#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(super) struct Info {
    pub(super) tls_required: bool,
}

impl Info {
    pub(super) fn parse(line: &[u8]) -> Result<Info, CarrierError> {
        let text = line.split_at_checked(5).filter(|(word, _)| word.eq_ignore_ascii_case(b"INFO "));
        let info = text.and_then(|(_, json)| serde_json::from_slice(json.trim_ascii()).ok());
        info.ok_or(CarrierError::Protocol("no INFO of a NATS server"))
    }
}

#[derive(Serialize)]
struct Hello<'a> {
    verbose: bool,
    pedantic: bool,
    /// Our own frames should not come back.
    echo: bool,
    protocol: u8,
    lang: &'a str,
    version: &'a str,
    name: &'a str,
    tls_required: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pass: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    auth_token: Option<&'a str>,
}

/// CONNECT, SUB and a first PING: its PONG shows that the server accepts us.
pub(super) fn hello(login: &Login, subject: &str, tls_required: bool) -> String {
    let (user, pass, auth_token) = match login {
        Login::None => (None, None, None),
        Login::Token(token) => (None, None, Some(token.as_str())),
        Login::Password { user, password } => (Some(user.as_str()), Some(password.as_str()), None),
    };
    let hello = Hello {
        verbose: false,
        pedantic: false,
        echo: false,
        protocol: 1,
        lang: "rust",
        version: env!("CARGO_PKG_VERSION"),
        name: "weir",
        tls_required,
        user,
        pass,
        auth_token,
    };
    let json = serde_json::to_string(&hello).unwrap_or_default();
    format!("CONNECT {json}\r\nSUB {subject} 1\r\nPING\r\n")
}

/// Reads and writes messages of one subject.
#[derive(Debug)]
pub(super) struct Text {
    subject: Box<str>,
    /// How many bytes of a message that is not for us are still to be skipped.
    skip: usize,
    /// Length of the message whose line has been read.
    message: Option<usize>,
}

const LINE_BYTES_MAX: usize = 64 * 1024;

impl Text {
    pub(super) fn new(subject: &str) -> Text {
        Text { subject: subject.into(), skip: 0, message: None }
    }

    /// Whether the first PONG has come; what comes with it stays for later.
    pub(super) fn first_pong(&mut self, from: &mut BytesMut) -> Result<bool, CarrierError> {
        loop {
            let pong = from.starts_with(b"PONG");
            match self.decode(from)? {
                Some(Incoming::Nothing) if pong => return Ok(true),
                Some(_) => {}
                None => return Ok(false),
            }
        }
    }

    fn line(from: &mut BytesMut) -> Result<Option<BytesMut>, CarrierError> {
        let end = from.iter().take(LINE_BYTES_MAX).position(|byte| *byte == b'\n');
        match end {
            Some(end) => Ok(Some(from.split_to(end + 1))),
            None if from.len() >= LINE_BYTES_MAX => Err(CarrierError::Protocol("an endless line")),
            None => Ok(None),
        }
    }

    /// MSG subject sid [reply-to] length
    fn begin_message(&mut self, line: &str) -> Result<(), CarrierError> {
        let words = line.split_ascii_whitespace().skip(3).take(3);
        let length = words.last().and_then(|word| word.parse::<usize>().ok());
        let length = length.filter(|length| *length < 1 << 30).ok_or(CarrierError::Protocol("a MSG without length"))?;
        if length > FRAME_BYTES_MAX {
            self.skip = length + 2;
        } else {
            self.message = Some(length);
        }
        Ok(())
    }

    fn take_message(&mut self, length: usize, from: &mut BytesMut) -> Option<Incoming> {
        if from.len() < length + 2 {
            from.reserve(length + 2 - from.len());
            return None;
        }
        self.message = None;
        let message = from.split_to(length).freeze();
        from.advance(2);
        Some(Incoming::Frame(message))
    }
}

impl Codec for Text {
    fn encode(&mut self, frame: &[u8], out: &mut BytesMut) {
        out.extend_from_slice(format!("PUB {} {}\r\n", self.subject, frame.len()).as_bytes());
        out.extend_from_slice(frame);
        out.extend_from_slice(b"\r\n");
    }

    fn decode(&mut self, from: &mut BytesMut) -> Result<Option<Incoming>, CarrierError> {
        if self.skip > 0 {
            let passed = self.skip.min(from.len());
            from.advance(passed);
            self.skip -= passed;
            return Ok((passed > 0).then_some(Incoming::Nothing));
        }
        if let Some(length) = self.message {
            return Ok(self.take_message(length, from));
        }
        let Some(line) = Text::line(from)? else { return Ok(None) };
        let line = str::from_utf8(line.trim_ascii()).map_err(|_| CarrierError::Protocol("a line that is no text"))?;
        let word = line.split([' ', '\t']).next().unwrap_or_default().to_ascii_uppercase();
        match word.as_str() {
            "MSG" => self.begin_message(line).map(|()| Some(Incoming::Nothing)),
            "PING" => Ok(Some(Incoming::Answer(b"PONG\r\n"))),
            "PONG" | "+OK" | "INFO" => Ok(Some(Incoming::Nothing)),
            "-ERR" => Err(CarrierError::Refused(line.chars().skip(5).take(120).collect())),
            _ => Err(CarrierError::Protocol("no operation of NATS")),
        }
    }

    fn probe(&self) -> Option<&'static [u8]> {
        Some(b"PING\r\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(stream: &[u8], cut: usize) -> Result<Vec<Incoming>, CarrierError> {
        let (mut codec, mut buffer, mut out) = (Text::new("s"), BytesMut::new(), Vec::new());
        for piece in stream.chunks(cut.max(1)) {
            buffer.extend_from_slice(piece);
            while let Some(incoming) = codec.decode(&mut buffer)? {
                if incoming != Incoming::Nothing {
                    out.push(incoming);
                }
            }
        }
        Ok(out)
    }

    #[test]
    fn a_conversation() {
        let long = [b"MSG s 1 40000\r\n", &vec![b'x'; 40_000][..], b"\r\n"].concat();
        let stream =
            [b"+OK\r\nMSG s 1 5\r\nhe\r\no\r\nPING\r\n", &long[..], b"INFO {}\r\nmsg s 1 reply.to 2\r\nhi\r\nPONG\r\n"]
                .concat();
        let wanted = || {
            let frame = |text: &'static [u8]| Incoming::Frame(text.into());
            vec![frame(b"he\r\no"), Incoming::Answer(b"PONG\r\n"), frame(b"hi")]
        };
        for cut in [1, 2, 3, 7, 1000, 100_000] {
            assert_eq!(read(&stream, cut).unwrap(), wanted(), "pieces of {cut}");
        }
        assert!(matches!(read(b"-ERR 'Authorization Violation'\r\n", 9), Err(CarrierError::Refused(_))));
        for wrong in ["GET / HTTP/1.1\r\n", "MSG s 1\r\n", "MSG s 1 -5\r\n", "MSG s 1 99999999999\r\n", "\r\n"] {
            assert!(read(wrong.as_bytes(), 99).is_err(), "{wrong}");
        }
        assert!(read(&vec![b'P'; LINE_BYTES_MAX + 1], 5000).is_err());
    }

    #[test]
    fn what_we_say() {
        let mut out = BytesMut::new();
        Text::new("weir.x").encode(b"frame", &mut out);
        assert_eq!(&out[..], b"PUB weir.x 5\r\nframe\r\n");
        let hello = hello(&Login::Password { user: "u\"".into(), password: "p\r\n".into() }, "s", false);
        assert_eq!(hello.lines().count(), 3, "nothing breaks out of the JSON: {hello}");
        assert!(Info::parse(b"INFO {\"tls_required\":true,\"x\":1}\r\n").unwrap().tls_required);
        assert!(Info::parse(b"HTTP/1.1 400\r\n").is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(stream: Vec<u8>, cut in 1usize..20, start in 0usize..4) {
            let start = [&b""[..], b"MSG s 1 ", b"MSG s 1 3\r\nabc", b"-ERR "][start];
            let _ = read(&[start, &stream].concat(), cut);
        }
    }
}
