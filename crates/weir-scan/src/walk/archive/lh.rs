//! What LHA (`-lh4-` to `-lh7-`) and ARJ (methods 1 to 3) pack with: a sliding window and two static Huffman codes per block.
//!
//! Written from the description of the format. Memory: the window, 64 KiB at most. Cost: a few steps for each bit.

use std::io::{self, Read};

/// Codes for octets and lengths, codes for lengths of codes.
const CODES: usize = 510;
const LENGTH_CODES: usize = 19;
/// No code is longer.
const BITS_MAX: usize = 16;

/// Unpacks to a stream.
pub(super) struct Unpacker<'d> {
    bits: Bits<'d>,
    /// Of the code for distances: how many symbols, and how many bits say how many are used.
    distances: (usize, u32),
    /// What still comes out.
    left: u64,
    /// The symbols of this block that are still to come.
    block: u32,
    symbols: Code,
    places: Code,
    window: Vec<u8>,
    at: usize,
    /// A copy that is under way: from where, and how much of it.
    copy: (usize, usize),
}

impl<'d> Unpacker<'d> {
    /// With a window of this many bits. ARJ has one of 26 KiB, and codes as for 64.
    pub(super) fn new(packed: &'d [u8], size: u64, window_bits: u32) -> Unpacker<'d> {
        let distances = if window_bits <= 13 { (window_bits as usize + 1, 4) } else { (window_bits as usize + 1, 5) };
        Unpacker {
            bits: Bits { data: packed, at: 0 },
            distances,
            left: size,
            block: 0,
            symbols: Code::default(),
            places: Code::default(),
            window: vec![b' '; 1 << window_bits],
            at: 0,
            copy: (0, 0),
        }
    }

    fn begin_block(&mut self) -> io::Result<()> {
        self.block = self.bits.take(16)?;
        if self.block == 0 {
            return Err(io::Error::other("an empty block"));
        }
        let lengths = self.bits.short_code(LENGTH_CODES, 5, Some(3))?;
        self.symbols = self.bits.long_code(&lengths)?;
        self.places = self.bits.short_code(self.distances.0, self.distances.1, None)?;
        Ok(())
    }

    fn symbol(&mut self) -> io::Result<usize> {
        if self.block == 0 {
            self.begin_block()?;
        }
        self.block -= 1;
        self.bits.decode(&self.symbols)
    }

    /// The next octet.
    fn octet(&mut self) -> io::Result<u8> {
        if self.copy.1 == 0 {
            let symbol = self.symbol()?;
            if symbol < 256 {
                return Ok(self.put(symbol as u8));
            }
            let place = self.bits.decode(&self.places)? as u32;
            let distance = if place < 2 { place } else { (1 << (place - 1)) + self.bits.take(place - 1)? } as usize;
            let mask = self.window.len() - 1;
            self.copy = (self.at.wrapping_add(mask).wrapping_sub(distance) & mask, symbol - 253);
        }
        let (from, count) = self.copy;
        self.copy = ((from + 1) & (self.window.len() - 1), count - 1);
        let octet = self.window[from];
        Ok(self.put(octet))
    }

    fn put(&mut self, octet: u8) -> u8 {
        self.window[self.at] = octet;
        self.at = (self.at + 1) & (self.window.len() - 1);
        octet
    }
}

impl Read for Unpacker<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let mut done = 0;
        while done < into.len() && self.left > 0 {
            match self.octet() {
                Ok(octet) => into[done] = octet,
                // What came before is worth a look.
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            }
            (done, self.left) = (done + 1, self.left - 1);
        }
        Ok(done)
    }
}

/// A canonical Huffman code: how many symbols have each length, and the symbols in order.
#[derive(Default)]
struct Code {
    counts: [u16; BITS_MAX + 1],
    symbols: Vec<u16>,
    /// All symbols are this one, which then takes no bits.
    only: Option<usize>,
}

impl Code {
    fn of(lengths: &[u8]) -> Code {
        let mut code = Code::default();
        for length in 1..=BITS_MAX as u8 {
            for (symbol, _) in lengths.iter().enumerate().filter(|(_, own)| **own == length) {
                code.counts[usize::from(length)] += 1;
                code.symbols.push(symbol as u16);
            }
        }
        code
    }
}

struct Bits<'d> {
    data: &'d [u8],
    /// In bits.
    at: usize,
}

impl Bits<'_> {
    fn bit(&mut self) -> io::Result<u32> {
        let octet = self.data.get(self.at / 8).ok_or(io::ErrorKind::UnexpectedEof)?;
        let bit = octet >> (7 - self.at % 8) & 1;
        self.at += 1;
        Ok(bit.into())
    }

    fn take(&mut self, count: u32) -> io::Result<u32> {
        (0..count).try_fold(0, |value, _| Ok(value << 1 | self.bit()?))
    }

    fn decode(&mut self, code: &Code) -> io::Result<usize> {
        if let Some(only) = code.only {
            return Ok(only);
        }
        let (mut value, mut first, mut index) = (0u32, 0u32, 0usize);
        for length in 1..=BITS_MAX {
            value |= self.bit()?;
            let count = u32::from(code.counts[length]);
            if value < first + count {
                let symbol = code.symbols.get(index + value.saturating_sub(first) as usize);
                return symbol
                    .map(|symbol| usize::from(*symbol))
                    .ok_or_else(|| io::Error::other("a code that is none"));
            }
            index += count as usize;
            first = (first + count) << 1;
            value <<= 1;
        }
        Err(io::Error::other("a code that is none"))
    }

    /// A code of up to `most` symbols. Behind symbol `gap` two bits say how many have no code.
    fn short_code(&mut self, most: usize, bits: u32, gap: Option<usize>) -> io::Result<Code> {
        let used = self.take(bits)? as usize;
        if used == 0 {
            return Ok(Code { only: Some(self.take(bits)? as usize), ..Code::default() });
        }
        let mut lengths = Vec::new();
        while lengths.len() < used.min(most) {
            let mut length = self.take(3)? as u8;
            while length >= 7 && usize::from(length) < BITS_MAX && self.bit()? == 1 {
                length += 1;
            }
            lengths.push(length);
            if Some(lengths.len()) == gap {
                lengths.resize(lengths.len() + self.take(2)? as usize, 0);
            }
        }
        Ok(Code::of(&lengths))
    }

    /// The code for octets and lengths, itself packed with a short one.
    fn long_code(&mut self, lengths: &Code) -> io::Result<Code> {
        let used = self.take(9)? as usize;
        if used == 0 {
            return Ok(Code { only: Some(self.take(9)? as usize), ..Code::default() });
        }
        let mut own = Vec::new();
        while own.len() < used.min(CODES) {
            let zeros = match self.decode(lengths)? {
                0 => 1,
                1 => self.take(4)? as usize + 3,
                2 => self.take(9)? as usize + 20,
                length => {
                    own.push((length - 2) as u8);
                    continue;
                }
            };
            own.resize(own.len() + zeros, 0);
        }
        Ok(Code::of(&own))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_comes_it_ends() {
        for seed in 0..2000u32 {
            let packed: Vec<u8> = (0..200u32)
                .map(|at| (seed.wrapping_mul(2_654_435_761).wrapping_add(at * at * 40_503) >> 13) as u8)
                .collect();
            let mut out = Vec::new();
            let _ = Unpacker::new(&packed, 10_000, [12, 13, 15, 16][seed as usize % 4]).read_to_end(&mut out);
            assert!(out.len() <= 10_000);
        }
    }

    #[test]
    fn a_block_of_one_octet() {
        // Seven symbols; each code has only one symbol: 0, `A` and 0.
        let packed = [0, 7, 0b0000_0000, 0b0000_0000, 0b0000_0100, 0b0001_0000, 0b0000_0000];
        let mut out = Vec::new();
        Unpacker::new(&packed, 7, 13).read_to_end(&mut out).unwrap();
        assert_eq!(out, b"AAAAAAA");
    }
}
