//! Finds the fields of a message's header.

/// Where the first field ends: at a line end that is not followed by a space or tab.
pub fn end(text: &[u8]) -> usize {
    let mut from = 0;
    while let Some(at) = text.get(from..).and_then(|rest| memchr::memchr(b'\n', rest)) {
        from += at + 1;
        if !matches!(text.get(from), Some(b' ' | b'\t')) {
            return from;
        }
    }
    text.len()
}
