//! Messages and archives, made by hand.

use weir_scan::examine::{Examiner, Report, Setup};
use weir_scan::verdict::Outcome;

/// The test file that every scanner must find.
pub(crate) fn eicar() -> Vec<u8> {
    weir_scan::eicar::eicar().into_bytes()
}

/// A message with one attached file.
pub(crate) fn attached(name: &str, data: &[u8]) -> Vec<u8> {
    let mut message = format!(
        "From: ann@example.org\r\nTo: bob@example.org\r\nSubject: a file\r\nMIME-Version: 1.0\r\n\
         Content-Type: multipart/mixed; boundary=\"=_b\"\r\n\r\n--=_b\r\nContent-Type: text/plain\r\n\r\nHere it is.\r\n--=_b\r\n\
         Content-Type: application/octet-stream; name=\"{name}\"\r\nContent-Disposition: attachment; filename=\"{name}\"\r\n\
         Content-Transfer-Encoding: base64\r\n\r\n"
    )
    .into_bytes();
    message.extend(base64(data));
    message.extend_from_slice(b"\r\n--=_b--\r\n");
    message
}

/// In lines.
pub(crate) fn base64(data: &[u8]) -> Vec<u8> {
    const ALPHABET: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = Vec::with_capacity(data.len() * 3 / 2);
    for line in data.chunks(57) {
        for group in line.chunks(3) {
            let bits = group.iter().fold(0u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - group.len()));
            for place in 0..4 {
                let sextet = ALPHABET[(bits >> (18 - 6 * place) & 63) as usize];
                out.push(if place <= group.len() { sextet } else { b'=' });
            }
        }
        out.extend_from_slice(b"\r\n");
    }
    out
}

/// A member of a zip archive.
pub(crate) struct Member {
    pub(crate) name: &'static str,
    pub(crate) data: Vec<u8>,
    pub(crate) flags: u16,
    /// The name in its own header, if it is another.
    pub(crate) local_name: Option<&'static str>,
    /// The size that is told, if it is another.
    pub(crate) size: Option<u32>,
    /// Whether the directory names it.
    pub(crate) listed: bool,
}

pub(crate) fn member(name: &'static str, data: &[u8]) -> Member {
    Member { name, data: data.to_vec(), flags: 0, local_name: None, size: None, listed: true }
}

/// A zip archive, packed.
pub(crate) fn zip(members: &[Member]) -> Vec<u8> {
    let (mut out, mut directory) = (Vec::new(), Vec::new());
    for member in members {
        let packed = deflated(&member.data);
        let size = member.size.unwrap_or(member.data.len() as u32);
        let offset = out.len() as u32;
        let local = member.local_name.unwrap_or(member.name);
        let fixed = |flags: u16| [flags.to_le_bytes(), 8u16.to_le_bytes(), [0; 2], [0; 2]].concat();
        let sizes = [[0; 4], (packed.len() as u32).to_le_bytes(), size.to_le_bytes()].concat();
        let head = [b"PK\x03\x04\x14\0".as_slice(), &fixed(member.flags), &sizes].concat();
        out.extend(head);
        out.extend([(local.len() as u16).to_le_bytes(), [0; 2]].concat());
        out.extend(local.bytes());
        out.extend(&packed);
        if member.listed {
            directory.extend([b"PK\x01\x02\x14\0\x14\0".as_slice(), &fixed(member.flags), &sizes].concat());
            directory.extend([(member.name.len() as u16).to_le_bytes(), [0; 2], [0; 2], [0; 2], [0; 2]].concat());
            directory.extend([0; 4]);
            directory.extend(offset.to_le_bytes());
            directory.extend(member.name.bytes());
        }
    }
    let count = members.iter().filter(|member| member.listed).count() as u16;
    let (at, length) = (out.len() as u32, directory.len() as u32);
    out.extend(directory);
    out.extend(b"PK\x05\x06\0\0\0\0");
    out.extend([count.to_le_bytes(), count.to_le_bytes()].concat());
    out.extend([length.to_le_bytes(), at.to_le_bytes()].concat());
    out.extend([0; 2]);
    out
}

pub(crate) fn deflated(data: &[u8]) -> Vec<u8> {
    use std::io::Write;
    let mut encoder = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(data).unwrap();
    encoder.finish().unwrap()
}

pub(crate) fn gzipped(data: &[u8]) -> Vec<u8> {
    use std::io::Write;
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(data).unwrap();
    encoder.finish().unwrap()
}

/// Looks at a message in this process, with the usual setup.
pub(crate) fn examined(message: &[u8]) -> Report {
    Examiner::new(Setup::default()).unwrap().examine(message)
}

/// What was found that is not clean: outcome and place in short.
pub(crate) fn found(report: &Report) -> Vec<String> {
    let short = |outcome: &Outcome| match outcome {
        Outcome::Clean => None,
        Outcome::Infected { name } => Some(format!("infected {name}")),
        Outcome::Forbidden { reason } => Some(format!("forbidden {reason}")),
        Outcome::NotScanned { limit } => Some(format!("not scanned {limit}")),
        Outcome::Failed { problem } => Some(format!("failed {problem}")),
        Outcome::Spam { .. } => Some("spam".into()),
    };
    report
        .findings
        .iter()
        .filter_map(|finding| Some(format!("{} @ {}", short(&finding.outcome)?, finding.place)))
        .collect()
}
