//! The header of a tar member, which old archives have instead of a mark.

/// Members and headers are made of blocks.
pub(super) const BLOCK: usize = 512;

/// Whether this block is the header of a member: its sum is right. Old systems added signed octets.
pub(super) fn is_header(block: &[u8]) -> bool {
    let Some(block) = block.get(..BLOCK).filter(|block| block[0] != 0) else { return false };
    let Some(told) = number(&block[148..156]) else { return false };
    let blanked = || block.iter().enumerate().map(|(at, byte)| if (148..156).contains(&at) { b' ' } else { *byte });
    let unsigned: usize = blanked().map(usize::from).sum();
    let signed: i64 = blanked().map(|byte| i64::from(byte as i8)).sum();
    told == unsigned || i64::try_from(told) == Ok(signed)
}

/// Octal digits, or GNU's base 256 if the first bit is set.
pub(super) fn number(field: &[u8]) -> Option<usize> {
    if field.first()? & 0x80 != 0 {
        let (high, low) = field.split_at(field.len() - 8);
        let fits = high.iter().skip(1).all(|byte| *byte == 0) && high.first() == Some(&0x80);
        return usize::try_from(u64::from_be_bytes(low.try_into().ok()?)).ok().filter(|_| fits);
    }
    let digits = field.iter().map(|byte| if *byte == 0 { b' ' } else { *byte }).collect::<Vec<u8>>();
    let digits = std::str::from_utf8(digits.trim_ascii()).ok()?;
    // Some write "123 \0 1" and mean the first of them.
    match digits.split(' ').next() {
        None | Some("") => Some(0),
        Some(digits) => usize::from_str_radix(digits, 8).ok(),
    }
}
