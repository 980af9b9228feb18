//! Presentations of PowerPoint 97 to 2003: the objects and the macro project in their main stream, and whether it has a password.
//!
//! Each object is a compound file of its own inside a record, packed with zlib or not. The records are looked for wherever they stand: a table
//! that is not read here says which of them count. Source: Microsoft, *[MS-PPT]*, sections 2.3.2, 2.3.3, 2.3.7 and 2.10.34.

use super::super::Walk;
use super::super::kind::COMPOUND;
use crate::budget::Exceeded;
use crate::little_endian::{u16_at, u32_at};
use flate2::read::ZlibDecoder;

/// The type of the record of an embedded object, a control or the macro project.
const OBJECT: &[u8] = b"\x11\x10";
/// The record that says how the others are encrypted.
const ENCRYPTION: &[u8] = b"\x0f\0\x14\x2f";
/// In the stream about the current user: what says that the presentation is encrypted.
const ENCRYPTED: u32 = 0xf3d1_c4df;

/// Whether the stream about the current user says that it has a password.
pub(super) fn is_locked(current_user: &[u8]) -> bool {
    u32_at(current_user, 12) == Some(ENCRYPTED)
}

/// Whether the main stream has what only one with a password has: the version of its encryption tells it from other octets.
pub(super) fn has_encryption(document: &[u8]) -> bool {
    memchr::memmem::find_iter(document, ENCRYPTION)
        .any(|at| matches!(u16_at(document, at + 8), Some(2..=4)) && u16_at(document, at + 10) == Some(2))
}

/// Opens the objects in the main stream.
pub(super) fn open(walk: &mut Walk<'_>, document: &[u8], level: u32) -> Result<(), Exceeded> {
    let names = ["object".to_owned()];
    for at in memchr::memmem::find_iter(document, OBJECT) {
        let Some(length) = u32_at(document, at + 2).filter(|_| at >= 2) else { continue };
        let content = document.get(at + 6..).unwrap_or_default();
        let content = &content[..content.len().min(length as usize)];
        walk.budget.time()?;
        match (document[at - 2], document[at - 1]) {
            (0x10, 0) if is_packed(content) => {
                walk.member(&names, content.len() as u64, &mut ZlibDecoder::new(&content[4..]), level)?;
            }
            (0, 0) if content.starts_with(COMPOUND) => walk.stored(&names, content, level)?,
            _ => {}
        }
    }
    Ok(())
}

/// The length of what is packed, and how a stream of zlib begins.
fn is_packed(content: &[u8]) -> bool {
    let head = content.get(4..6).map(|head| u16::from_be_bytes([head[0], head[1]]));
    head.is_some_and(|head| head >> 8 & 0x8f == 8 && head % 31 == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_files::compound;
    use crate::walk::Oddity;
    use crate::walk::seen::Seen;
    use std::io::Write;

    fn record(instance: u8, content: &[u8]) -> Vec<u8> {
        [&[instance, 0], OBJECT, &(content.len() as u32).to_le_bytes(), content].concat()
    }

    fn packed(data: &[u8]) -> Vec<u8> {
        let mut packer = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
        packer.write_all(data).unwrap();
        [&(data.len() as u32).to_le_bytes()[..], &packer.finish().unwrap()].concat()
    }

    fn seen(streams: &[(&str, &[u8])]) -> Seen {
        Seen::of("a.ppt", &compound(streams))
    }

    #[test]
    fn objects_and_macros_are_opened() {
        let program = compound(&[("evil", b"MZ\x90\0 and so on")]);
        let macros = compound(&[("_VBA_PROJECT", b"\xcc\x61")]);
        for front in [b"".as_slice(), b"\x0f\0\xe8\x03\x04\0\0\0????", b"?"] {
            for (instance, objects) in
                [(0, [program.clone(), macros.clone()]), (0x10, [packed(&program), packed(&macros)])]
            {
                let document = [front.to_vec(), record(instance, &objects[0]), record(instance, &objects[1])].concat();
                let seen = seen(&[("PowerPoint Document", &document)]);
                assert!(seen.files.iter().any(|file| file.data.starts_with(b"MZ")), "{instance}");
                assert_eq!(seen.odd, [Oddity::Macros], "{instance}");
            }
        }
        // One that breaks off is looked at as far as it goes, and said to be damaged.
        let mut cut = record(0x10, &packed(&program));
        cut.truncate(cut.len() - 6);
        assert!(matches!(seen(&[("PowerPoint Document", &cut)]).odd[..], [Oddity::Unreadable(_), ..]));
        let honest = [record(0, b"no object"), record(0x10, b"\0\0\0\0no object"), OBJECT.to_vec()].concat();
        assert_eq!(seen(&[("PowerPoint Document", &honest), ("Current User", &[0; 40])]).odd, []);
    }

    #[test]
    fn presentations_with_a_password_are_encrypted() {
        let user = [b"\0\0\xf6\x0f\x14\0\0\0\x14\0\0\0".as_slice(), &ENCRYPTED.to_le_bytes(), &[0; 24]].concat();
        let session =
            [b"\x0f\0\xac\x0f\x01\0\0\0?".as_slice(), ENCRYPTION, b"\xa0\0\0\0\x02\0\x02\0\x04\0\0\0"].concat();
        for streams in [
            [("Current User", user.as_slice()), ("PowerPoint Document", b"x".as_slice())],
            [("Current User", b"x"), ("POWERPOINT DOCUMENT", &session)],
            [("EncryptedSummary", b"x"), ("PowerPoint Document", b"x")],
            [("\tDRMContent", b"x"), ("PowerPoint Document", b"x")],
        ] {
            assert_eq!(seen(&streams).odd, [Oddity::Encrypted]);
        }
        assert_eq!(seen(&[("PowerPoint Document", &[ENCRYPTION, &[0; 20]].concat())]).odd, []);
    }
}
