//! The source of a macro, which Office keeps packed inside a stream (MS-OVBA, section 2.4.1).

/// A macro is shorter, and what is longer is cut.
const SOURCE_MAX: usize = 4 << 20;
/// How each module begins once it is unpacked, as its packed form has it: a signature byte, a chunk header, a flag byte.
const BEGINNING: &[u8] = b"\0Attribut";

/// The source in a stream of a macro project; none in other streams.
pub fn source(stream: &[u8]) -> Option<Vec<u8>> {
    let at = memchr::memmem::find(stream, BEGINNING)?.checked_sub(3)?;
    let source = unpacked(stream.get(at..)?);
    (!source.is_empty()).then_some(source)
}

/// Unpacks a container as far as it goes.
pub fn unpacked(container: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let Some((1, mut rest)) = container.split_first().map(|(first, rest)| (*first, rest)) else { return out };
    while let [low, high, behind @ ..] = rest {
        let header = u16::from_le_bytes([*low, *high]);
        let length = usize::from(header & 0xfff) + 1;
        if header >> 12 & 7 != 3 || out.len() > SOURCE_MAX {
            break;
        }
        let chunk = &behind[..length.min(behind.len())];
        if header & 0x8000 == 0 {
            out.extend_from_slice(chunk);
        } else if unpack_chunk(chunk, &mut out).is_none() {
            break;
        }
        rest = &behind[chunk.len()..];
    }
    out
}

/// Eight tokens a flag byte: a literal, or a copy of what came before in this chunk.
fn unpack_chunk(mut chunk: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let start = out.len();
    while let Some((flags, behind)) = chunk.split_first() {
        chunk = behind;
        for bit in 0..8 {
            if chunk.is_empty() {
                return Some(());
            }
            if flags >> bit & 1 == 0 {
                out.push(chunk[0]);
                chunk = &chunk[1..];
                continue;
            }
            let token = u16::from_le_bytes([chunk[0], *chunk.get(1)?]);
            chunk = &chunk[2..];
            let done = out.len() - start;
            // How the sixteen bits are shared between offset and length depends on how far the chunk is.
            let bits = (usize::BITS - done.saturating_sub(1).leading_zeros()).clamp(4, 12);
            let length = usize::from(token & (0xffff >> bits)) + 3;
            let offset = usize::from(token >> (16 - bits)) + 1;
            if offset > done || done + length > 4096 {
                return None;
            }
            for _ in 0..length {
                out.push(out[out.len() - offset]);
            }
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_examples_of_the_specification() {
        // MS-OVBA 3.2.1 and 3.2.3: nothing to pack, and everything.
        let plain = b"\x01\x19\xb0\x00abcdefgh\x00ijklmnop\x00qrstuv.";
        assert_eq!(unpacked(plain), b"abcdefghijklmnopqrstuv.");
        let full = b"\x01\x03\xb0\x02\x61\x45\x00";
        assert_eq!(unpacked(full), b"a".repeat(73));
    }

    #[test]
    fn damaged_containers_end() {
        for bytes in [&b""[..], b"\x01", b"\x01\x03", b"\x01\x03\xb0\x01\xff\xff", b"\x02\x03\xb0"] {
            let _ = unpacked(bytes);
        }
        assert_eq!(source(b"xx\0Attribut"), None);
    }
}
