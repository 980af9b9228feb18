//! Compares the data reader with a naive model that sees the whole message at once.

use proptest::prelude::*;
use weir_smtp::body::{BodyReader, Fault, Scan};

const LINE_MAX: usize = 12;
const BYTES_MAX: u64 = 60;

/// The result when the reader stops.
#[derive(Debug, PartialEq, Eq)]
struct Reading {
    /// The text, if the message has no fault.
    text: Option<Vec<u8>>,
    fault: Option<Fault>,
    /// How many octets were used, if the end was found.
    end: Option<usize>,
}

/// The rules, one octet at a time over the whole input, as RFC 5321 states them.
fn model(input: &[u8]) -> Reading {
    let dotted = [b"\r\n", input].concat();
    let end = dotted.windows(5).position(|window| window == b"\r\n.\r\n");
    let body = match end {
        Some(at) => &dotted[2..at + 2],
        None => &dotted[2..],
    };
    let mut faults = vec![];
    for (at, &byte) in body.iter().enumerate() {
        let (before, after) = (at.checked_sub(1).map(|i| body[i]), body.get(at + 1));
        match byte {
            // At the end of an unfinished input, it is not known yet what follows a CR.
            b'\r' if after.is_some_and(|&next| next != b'\n') => faults.push(Fault::BareCr),
            b'\n' if before != Some(b'\r') => faults.push(Fault::BareLf),
            0 => faults.push(Fault::Nul),
            _ => {}
        }
    }
    let mut text = Vec::new();
    let mut rest = body;
    while !rest.is_empty() {
        let next = rest.windows(2).position(|pair| pair == b"\r\n").map_or(rest.len(), |at| at + 2);
        let (line, behind) = rest.split_at(next);
        text.extend_from_slice(line.strip_prefix(b".").unwrap_or(line));
        rest = behind;
    }
    let held = if end.is_none() && text.last() == Some(&b'\r') { 1 } else { 0 };
    text.truncate(text.len() - held);
    if text.len() as u64 > BYTES_MAX {
        faults.push(Fault::TooBig);
    }
    if line_lengths(&text).into_iter().any(|length| length > LINE_MAX) {
        faults.push(Fault::LongLine);
    }
    let fault = faults.into_iter().max();
    Reading { text: fault.is_none().then_some(text), fault, end: end.map(|at| at + 3) }
}

/// The lengths of the lines. A bare CR, a bare LF and a NUL are not counted, and do not end a line.
fn line_lengths(text: &[u8]) -> Vec<usize> {
    let joined: Vec<u8> = text.to_vec();
    let mut lengths = Vec::new();
    let mut rest = &joined[..];
    loop {
        let at = rest.windows(2).position(|pair| pair == b"\r\n");
        let line = &rest[..at.unwrap_or(rest.len())];
        lengths.push(line.iter().filter(|byte| !matches!(byte, b'\r' | b'\n' | 0)).count());
        match at {
            Some(at) => rest = &rest[at + 2..],
            None => return lengths,
        }
    }
}

fn real(input: &[u8], cuts: &[usize]) -> Reading {
    let mut reader = BodyReader::data(LINE_MAX as u32, BYTES_MAX);
    let (mut text, mut used, mut cuts) = (Vec::new(), 0, cuts.iter().cycle());
    while used < input.len() {
        let size = (*cuts.next().unwrap()).clamp(1, input.len() - used);
        let mut piece = &input[used..used + size];
        loop {
            match reader.scan(&mut piece) {
                Scan::Piece(bytes) => text.extend_from_slice(bytes),
                Scan::More => break,
                Scan::End => {
                    let fault = reader.fault();
                    let end = Some(used + size - piece.len());
                    return Reading { text: fault.is_none().then_some(text), fault, end };
                }
            }
        }
        used += size;
    }
    let fault = reader.fault();
    Reading { text: fault.is_none().then_some(text), fault, end: None }
}

/// Random octets from those that matter: dots, CR, LF, NUL, and plain ones.
fn wild() -> impl Strategy<Value = Vec<u8>> {
    let octet = prop_oneof![4 => Just(b'.'), 4 => Just(b'\r'), 4 => Just(b'\n'), 1 => Just(0), 6 => Just(b'a'), 1 => any::<u8>()];
    prop::collection::vec(octet, 0..80)
}

/// Mostly correct lines, with a wrong octet here and there.
fn lines() -> impl Strategy<Value = Vec<u8>> {
    let line = prop_oneof![
        8 => "[.a-c]{0,10}".prop_map(|line| format!("{line}\r\n")),
        2 => Just(".\r\n".to_owned()),
        1 => "[.\r\n\0a]{0,6}",
    ];
    prop::collection::vec(line, 0..12).prop_map(|lines| lines.concat().into_bytes())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 6_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_reader_agrees_with_the_model(input in prop_oneof![wild(), lines()], cuts in prop::collection::vec(1usize..20, 1..6)) {
        prop_assert_eq!(real(&input, &[usize::MAX]), model(&input));
        prop_assert_eq!(real(&input, &cuts), model(&input));
        prop_assert_eq!(real(&input, &[1]), model(&input));
    }
}

#[test]
fn the_model_knows_the_rules() {
    let reading = |text: &[u8]| model(text);
    assert_eq!(reading(b"a\r\n..b\r\n.\r\nx").text.unwrap(), b"a\r\n.b\r\n");
    assert_eq!(reading(b"a\r\n.\r\nx").end, Some(6));
    assert_eq!(reading(b"a\n.\r\nx").end, None);
    assert_eq!(reading(b"a\n.\n\r\n.\r\n").fault, Some(Fault::BareLf));
}
