//! What a sample is, by its first bytes: a type such as `application/zip`. Names say nothing.

use std::io::{self, Read, Seek, SeekFrom};

/// How much of the beginning is looked at.
pub const HEAD: usize = 8192;

/// The type of a sample that begins so.
pub fn of(head: &[u8]) -> &'static str {
    if let Some(kind) = infer::get(head) {
        return kind.mime_type();
    }
    let text = std::str::from_utf8(head).or_else(|error| match error.error_len() {
        // Cut in the middle of a character.
        None => std::str::from_utf8(&head[..error.valid_up_to()]),
        Some(_) => Err(error),
    });
    match text {
        Ok(text) if !text.chars().any(|c| c.is_control() && !c.is_whitespace()) => "text/plain",
        _ => "application/octet-stream",
    }
}

/// The type of what a source gives; it is at its beginning before and after.
pub fn of_source(source: &mut (impl Read + Seek)) -> io::Result<&'static str> {
    let mut head = Vec::new();
    source.take(HEAD as u64).read_to_end(&mut head)?;
    source.seek(SeekFrom::Start(0))?;
    Ok(of(&head))
}

#[cfg(test)]
mod tests {
    use super::of;

    #[test]
    fn types() {
        let elf = [b"\x7fELF\x02\x01\x01".as_slice(), &[0; 64]].concat();
        for (head, kind) in [
            (&elf[..], "application/x-executable"),
            (b"PK\x03\x04rest of it", "application/zip"),
            (b"%PDF-1.7", "application/pdf"),
            (b"#!/bin/sh\necho", "text/x-shellscript"),
            (b"hello", "text/plain"),
            ("half a character: \u{20ac}".as_bytes().split_last().unwrap().1, "text/plain"),
            (b"\x00\x01\x02", "application/octet-stream"),
            (b"\xff\xfe\xfa", "application/octet-stream"),
            (b"", "text/plain"),
        ] {
            assert_eq!(of(head), kind, "{head:?}");
        }
    }
}
