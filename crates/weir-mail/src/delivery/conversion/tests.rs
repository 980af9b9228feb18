//! Tests that a converted message decodes to the original, read by mail-parser.

use super::*;
use mail_parser::{MessageParser, MimeHeaders};
use proptest::prelude::*;

/// A body in pieces of a given size.
struct Pieces(Vec<Vec<u8>>);

impl BodySource for Pieces {
    type Piece = Vec<u8>;
    type Error = DeliveryOutcome;

    async fn next(&mut self) -> Result<Option<Vec<u8>>, DeliveryOutcome> {
        Ok((!self.0.is_empty()).then(|| self.0.remove(0)))
    }
}

fn pieces(text: &[u8], size: usize) -> Pieces {
    Pieces(text.chunks(size).map(<[u8]>::to_vec).collect())
}

const BOTH: Needs = Needs { seven_bit: true, short_lines: true };

/// The message as it goes out; none if it fits as it is.
fn converted_in(text: &[u8], needs: Needs, size: usize) -> Result<Option<Vec<u8>>, DeliveryOutcome> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let Some(survey) = survey("", pieces(text, size), needs).await? else { return Ok(None) };
        let (survey, mut out) = (Arc::new(survey), Vec::new());
        let mut converted = Converted::new(&"".into(), pieces(text, size), &survey);
        while let Some(piece) = converted.next().await? {
            out.extend_from_slice(&piece);
        }
        Ok(Some(out))
    })
}

#[track_caller]
fn converted(text: &[u8]) -> String {
    let out = converted_in(text, BOTH, text.len().max(1)).unwrap().expect("it does not fit");
    for size in [1, 7, 4_096] {
        let again = converted_in(text, BOTH, size).unwrap().expect("it does not fit");
        assert_eq!(String::from_utf8_lossy(&again), String::from_utf8_lossy(&out), "in pieces of {size}");
    }
    let out = String::from_utf8(out).expect("ASCII");
    assert!(out.is_ascii() && out.split("\r\n").all(|line| line.len() <= 998), "{out}");
    out
}

/// The decoded contents of all parts that hold no others.
fn contents(message: &[u8]) -> Vec<Vec<u8>> {
    let parsed = MessageParser::new().parse(message).expect("a message");
    let leaf = |part: &&mail_parser::MessagePart<'_>| part.sub_parts().is_none() && part.message().is_none();
    parsed.parts.iter().filter(leaf).map(|part| part.contents().to_vec()).collect()
}

#[test]
fn a_text_without_mime_becomes_quoted_printable_and_says_so() {
    let out = converted(
        "Subject: Gr\u{fc}\u{df}e aus K\u{f6}ln\r\nTo: a@b\r\n\r\n.sch\u{f6}n = gut \r\n\r\nEnde\r\n".as_bytes(),
    );
    assert_eq!(
        out,
        "Subject: =?utf-8?q?Gr=C3=BC=C3=9Fe?=\r\n aus\r\n =?utf-8?q?K=C3=B6ln?=\r\nTo: a@b\r\nMIME-Version: 1.0\r\n\
         Content-Type: text/plain; charset=utf-8\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\n\
         =2Esch=C3=B6n =3D gut=20\r\n\r\nEnde\r\n"
    );
    let latin = converted(b"To: a@b\r\n\r\nsch\xf6n\r\n");
    assert!(latin.contains("charset=unknown-8bit\r\n") && latin.ends_with("sch=F6n\r\n"), "{latin}");
}

#[test]
fn each_part_is_converted_for_itself() {
    let text = "MIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary=\"out\"\r\nContent-Transfer-Encoding: 8bit\r\n\r\n\
        before \u{fc}\r\n--out\r\nContent-Type: multipart/alternative; boundary=in\r\n\r\n\
        --in\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Transfer-Encoding: 8bit\r\n\r\ngr\u{fc}n\r\n\
        --in\r\nContent-Type: text/html\r\n\r\n<p>plain</p>\r\n--in--\r\n\
        --out\r\nContent-Type: application/octet-stream; name=\"Gr\u{fc}n a.bin\"\r\nContent-Transfer-Encoding: binary\r\n\r\n\
        \u{e4}\u{f6}\r\n\u{fc}\r\n\
        --out\r\nContent-Type: message/rfc822\r\nContent-Transfer-Encoding: 8bit\r\n\r\nSubject: inner\r\n\r\n\u{e4}\r\n\
        --out\r\nContent-Type: image/png\r\nContent-Transfer-Encoding: base64\r\n\r\naGVsbG8=\r\n--out--\r\nafter\r\n";
    let out = converted(text.as_bytes());
    assert!(!out.contains("8bit") && !out.contains("binary\r\n"), "{out}");
    assert!(out.contains("before ??\r\n") && out.contains("<p>plain</p>"), "{out}");
    assert!(out.contains("Content-Transfer-Encoding: base64\r\n\r\nw6TDtg0Kw7w=\r\n--out"), "{out}");
    assert!(out.contains("name=\"=?utf-8?q?Gr=C3=BCn_a=2Ebin?=\""), "{out}");
    assert_eq!(contents(out.as_bytes()), contents(text.as_bytes()));
    let parsed = MessageParser::new().parse(out.as_bytes()).unwrap();
    let inner = parsed.parts.iter().find_map(|part| part.message()).expect("a message inside");
    assert_eq!(inner.body_text(0).unwrap().trim_end(), "\u{e4}");
    assert!(parsed.parts.iter().any(|part| part.attachment_name() == Some("Gr\u{fc}n a.bin")), "{out}");
}

#[test]
fn long_lines_are_broken_without_a_change_to_what_is_read() {
    let line = "a long line with blanks and = signs ".repeat(400);
    let out = converted(format!("Subject: x\r\nContent-Type: text/html\r\n\r\n{line}\r\nshort\r\n").as_bytes());
    assert!(out.contains("Content-Transfer-Encoding: quoted-printable\r\n"), "{out}");
    let parsed = MessageParser::new().parse(out.as_bytes()).unwrap();
    assert_eq!(parsed.parts[0].contents(), format!("{line}\r\nshort\r\n").as_bytes());
}

#[test]
fn what_fits_stays_as_it_is() {
    for text in [&b"Subject: x\r\n\r\nplain\r\n"[..], b"", b"\r\n", b"Subject: no body"] {
        assert_eq!(converted_in(text, BOTH, 100), Ok(None), "{text:?}");
    }
    let eight = "Subject: x\r\n\r\n\u{fc}\r\n".as_bytes();
    assert_eq!(converted_in(eight, Needs { seven_bit: false, short_lines: true }, 100), Ok(None));
}

#[test]
fn what_is_signed_is_never_changed() {
    let signed = |text: &str| {
        format!(
            "Content-Type: multipart/mixed; boundary=o\r\n\r\n--o\r\n\r\n\u{fc}\r\n--o\r\n\
             Content-Type: multipart/signed; boundary=s\r\n\r\n--s\r\n\r\n{text}\r\n--s\r\n\r\nseal\r\n--s--\r\n--o--\r\n"
        )
    };
    let status = |text: &str| converted_in(signed(text).as_bytes(), BOTH, 99).unwrap_err().status;
    assert_eq!(status("gr\u{fc}n"), Status(5, 6, 3));
    let long = "x".repeat(1_200);
    let out = converted_in(signed(&long).as_bytes(), BOTH, 99).unwrap().expect("the part before it is converted");
    assert!(String::from_utf8(out).unwrap().contains(&long), "a server may take long lines; a broken seal is broken");
}

#[test]
fn nothing_is_endless() {
    let many = format!("Content-Type: multipart/mixed; boundary=b\r\n\r\n{}", "--b\r\n\r\n\u{fc}\r\n".repeat(11_000));
    let deep: String =
        (0..80).map(|n| format!("Content-Type: multipart/mixed; boundary=b{n}\r\n\r\n--b{n}\r\n")).collect();
    for text in [many, format!("{deep}\r\n\u{fc}\r\n"), format!("X: {}\r\n\r\n\u{fc}", "y".repeat(600 << 10))] {
        let refused = converted_in(text.as_bytes(), BOTH, 60_000).unwrap_err();
        assert_eq!(refused.status, Status(5, 6, 3));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    /// Random octets in a part decode to themselves.
    #[test]
    fn every_text_decodes_to_itself(
        lines in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..120), 1..12),
        text: bool,
        size in 1usize..5_000,
    ) {
        let lines: Vec<Vec<u8>> = lines
            .into_iter()
            .map(|line| line.into_iter().filter(|byte| !b"\r\n\0".contains(byte)).collect())
            .collect();
        let body = lines.join(&b"\r\n"[..]);
        let kind = if text { "text/plain; charset=x" } else { "application/x" };
        let head = format!("MIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary=\"-=b\"\r\n\r\n---=b\r\nContent-Type: {kind}\r\n\r\n");
        let message = [head.as_bytes(), &body, b"\r\n---=b--\r\n"].concat();
        let out = converted_in(&message, BOTH, size).unwrap();
        prop_assert_eq!(out.is_none(), message.is_ascii());
        if let Some(out) = out {
            prop_assert!(out.is_ascii());
            let parsed = MessageParser::new().parse(&out).unwrap();
            let raw = parsed.parts.last().unwrap();
            let encoded = &out[raw.offset_body as usize..raw.offset_end as usize];
            let decoded = match text {
                true => mail_parser::decoders::quoted_printable::quoted_printable_decode(encoded),
                false => mail_parser::decoders::base64::base64_decode(encoded),
            };
            prop_assert_eq!(decoded.unwrap(), body);
        }
    }
}
