//! Reads little-endian numbers at a place in hostile bytes; none if the bytes end before.

/// A number of two bytes.
pub fn u16_at(data: &[u8], at: usize) -> Option<u16> {
    data.get(at..at.checked_add(2)?)?.try_into().ok().map(u16::from_le_bytes)
}

/// A number of four bytes.
pub fn u32_at(data: &[u8], at: usize) -> Option<u32> {
    data.get(at..at.checked_add(4)?)?.try_into().ok().map(u32::from_le_bytes)
}

/// A number of eight bytes.
pub fn u64_at(data: &[u8], at: usize) -> Option<u64> {
    data.get(at..at.checked_add(8)?)?.try_into().ok().map(u64::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_no_number_beyond_the_end() {
        let data = [1, 2, 0, 0, 3];
        assert_eq!((u16_at(&data, 0), u32_at(&data, 1), u64_at(&data, 0)), (Some(0x201), Some(0x300_0002), None));
        assert_eq!((u16_at(&data, 4), u16_at(&data, usize::MAX)), (None, None));
    }
}
