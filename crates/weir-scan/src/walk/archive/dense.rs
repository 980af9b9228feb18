//! Finds packed or encrypted data under a name that promises something else, such as `.txt` or `.jpg`. The later pieces of a split archive
//! can be sent like this: they have no signature of their own, and a recipient who gets all pieces can give them their real names back.
//!
//! Packed data looks random, like no text and no known format. Names that promise nothing (`.dat`, `.bin`) are not checked, because people
//! send files in a thousand formats.

/// Extensions of texts, pictures and documents. A real one is text, or begins with a signature that we know.
const PROMISES: &str = "txt csv tsv log md json ini conf ics vcf srt htm html xml svg eml jpg jpeg png gif bmp tif tiff webp heic pdf doc docx \
     xls xlsx ppt pptx rtf odt ods odp";

/// Octets that stand at this place of a file.
type Mark = (usize, &'static [u8]);

/// Extensions of sound and film, with what such files may begin with besides the signatures that we know.
const MEDIA: [(&str, &[Mark]); 4] = [
    ("wav avi ogg flac mp4 m4a", &[]),
    ("mov", &[(4, b"moov"), (4, b"mdat"), (4, b"wide"), (4, b"free"), (4, b"skip"), (4, b"pnot")]),
    ("mpg mpeg", &[(0, b"\0\0\x01"), (0, b"\x47")]),
    ("mp3", &[(0, b"\xff\xfb"), (0, b"\xff\xfa"), (0, b"\xff\xf3"), (0, b"\xff\xf2"), (0, b"\xff\xe3"), (0, b"\0\0")]),
];

/// Fewer octets than this do not show whether data is random.
const LEAST: usize = 512;
const HEAD: usize = 8 << 10;

/// Whether data of no format that we know is dense, though one of these extensions promises something that is not.
pub(super) fn is_in_disguise(extensions: &[String], data: &[u8]) -> bool {
    extensions.iter().any(|own| promises(own, data)) && is_dense(data)
}

fn promises(extension: &str, data: &[u8]) -> bool {
    let has = |list: &str| list.split_whitespace().any(|known| known == extension);
    let begins = |(at, mark): &(usize, &[u8])| data.get(*at..).is_some_and(|rest| rest.starts_with(mark));
    has(PROMISES) || MEDIA.iter().any(|(names, marks)| has(names) && !marks.iter().any(begins))
}

/// Whether data looks random: many different octets, a usual share of control characters, and few zeros.
pub(super) fn is_dense(data: &[u8]) -> bool {
    let head = &data[..data.len().min(HEAD)];
    if head.len() < LEAST || [b"\xff\xfe".as_slice(), b"\xfe\xff"].iter().any(|mark| head.starts_with(mark)) {
        return false;
    }
    let mut counts = [0usize; 256];
    head.iter().for_each(|byte| counts[usize::from(*byte)] += 1);
    let different = counts.iter().filter(|count| **count > 0).count();
    let is_text = |byte: &usize| matches!(byte, 0 | 8..=13 | 26 | 27);
    let controls: usize = (0..32).filter(|byte| !is_text(byte)).map(|byte| counts[byte]).sum();
    // Of random octets nine in a hundred are such control characters; UTF-16 without its mark has half as many, and texts have none.
    different >= 180 && controls * 100 >= head.len() * 6 && counts[0] * 20 < head.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn random(length: u32) -> Vec<u8> {
        (0..length).map(|n| (n.wrapping_mul(2_654_435_761).rotate_left(n % 13) >> 11) as u8).collect()
    }

    fn named(extension: &str, data: &[u8]) -> bool {
        is_in_disguise(&[extension.to_owned()], data)
    }

    #[test]
    fn packed_data_is_no_text_and_no_picture() {
        for length in [600, 4_000, 40_000] {
            assert!(
                ["txt", "jpg", "pdf", "docx", "mp3", "mov"].iter().all(|own| named(own, &random(length))),
                "{length}"
            );
        }
        assert!(!named("dat", &random(4_000)) && !named("", &random(4_000)) && !named("txt", &random(200)));
        let song = [b"\xff\xfb".as_slice(), &random(4_000)].concat();
        assert!(!named("mp3", &song) && named("txt", &song));
    }

    #[test]
    fn texts_in_any_charset_are_texts() {
        let wide = |text: &str| text.repeat(400).encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<u8>>();
        let russian = "Съешь же ещё этих мягких французских булок. ".repeat(100);
        let single: Vec<u8> = russian.chars().map(|c| (u32::from(c) % 256) as u8 | 0x80).collect();
        let chinese: String = (0..4_000u32).filter_map(|n| char::from_u32(0x4e00 + n * 37 % 20_000)).collect();
        for data in [
            wide("hello there\r\n"),
            wide("你好，世界"),
            russian.clone().into_bytes(),
            single,
            chinese.clone().into_bytes(),
            wide(&chinese),
        ] {
            assert!(!named("txt", &data), "{:x?}", &data[..16]);
        }
    }
}
