//! Octets as lines of hexadecimal digits with their addresses, as programs for chips are written (Intel's format). 7-Zip opens them by content: what
//! stands at addresses that follow each other is one file.

use super::super::transfer::nibble;
use super::super::{File, Walk};
use crate::budget::Exceeded;

/// How many blocks become files of their own; what follows is added to the last one.
const BLOCKS_MAX: usize = 64;

pub(super) fn open(walk: &mut Walk<'_>, file: &File<'_>, level: u32) -> Result<(), Exceeded> {
    if !file.data.starts_with(b":") {
        return Ok(());
    }
    walk.budget.room(file.data.len())?;
    let blocks = blocks(file.data);
    if blocks.is_empty() {
        return Ok(());
    }
    walk.deeper(|walk| {
        for block in blocks {
            walk.budget.entry()?;
            walk.holding(&block, |walk, block| walk.file(&["block".into()], "", block, level))?;
        }
        Ok(())
    })
}

/// A line without its colon: its type, its address, and what it holds; none if its length or sum is false.
fn record(line: &[u8]) -> Option<(u8, usize, Vec<u8>)> {
    let digits = line.trim_ascii();
    if !digits.len().is_multiple_of(2) || !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    let octets: Vec<u8> = digits.chunks_exact(2).map(|pair| nibble(pair[0]) << 4 | nibble(pair[1])).collect();
    let [length, high, low, kind, data @ .., _] = octets.as_slice() else { return None };
    let sum = octets.iter().fold(0u8, |sum, octet| sum.wrapping_add(*octet));
    let whole = usize::from(*length) == data.len() && sum == 0;
    whole.then(|| (*kind, usize::from(*high) << 8 | usize::from(*low), data.to_vec()))
}

/// What stands at addresses that follow each other, up to the first line that is none.
fn blocks(text: &[u8]) -> Vec<Vec<u8>> {
    let (mut blocks, mut base, mut next) = (Vec::<Vec<u8>>::new(), 0usize, None);
    // 7-Zip wants no line ends.
    let lines = text.split(|byte| b"\r\n:".contains(byte)).filter(|line| !line.trim_ascii().is_empty());
    for (kind, address, data) in lines.map_while(record) {
        let number = || data.iter().take(2).fold(0usize, |sum, octet| sum << 8 | usize::from(*octet));
        match kind {
            0 => {
                let begins = next != Some(base + address) && blocks.len() < BLOCKS_MAX;
                next = Some(base + address + data.len());
                match blocks.last_mut().filter(|_| !begins) {
                    Some(block) => block.extend(data),
                    None => blocks.push(data),
                }
            }
            1 => break,
            2 => base = number() << 4,
            4 => base = number() << 16,
            _ => {}
        }
    }
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_follow_each_other_are_one_block() {
        let text = b":020000004D5A57\r\n:0200020090006C\r\n:020000040001F9\r\n:0200000041427B\r\n:00000001FF\r\n:02000000434477\r\n";
        let expected = [b"MZ\x90\0".to_vec(), b"AB".to_vec()];
        assert_eq!(blocks(text), expected);
        let dense: Vec<u8> = text.iter().filter(|byte| !byte.is_ascii_whitespace()).copied().collect();
        assert_eq!(blocks(&dense), expected);
        assert!(blocks(b":02000000FFFF57\r\n").is_empty() && blocks(b": a line of text\r\n").is_empty());
    }
}
