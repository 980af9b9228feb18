//! TLSH: a hash that is similar for similar content, in its usual form (128 buckets, a checksum of one octet, version T1).
//!
//! A window of five octets slides over the content; six triplets of each window fall into buckets by Pearson's hash. The code says for each
//! bucket in which quartile its count lies. Content that is too short or too uniform has no hash. Cost: linear. Source: J. Oliver, C.
//! Cheng, Y. Chen, *TLSH – A Locality Sensitive Hash* (2013), and the tables of its published reference.

use std::fmt::Write;

/// Buckets that make the code.
const BUCKETS: usize = 128;
/// Shorter content has no hash.
const LENGTH_MIN: u64 = 50;

/// A hash under way.
#[derive(Debug, Clone)]
pub struct Tlsh {
    buckets: [u32; 256],
    /// The last four octets, the latest last.
    window: [u8; 4],
    checksum: u8,
    length: u64,
}

impl Default for Tlsh {
    fn default() -> Tlsh {
        Tlsh { buckets: [0; 256], window: [0; 4], checksum: 0, length: 0 }
    }
}

impl Tlsh {
    /// More content.
    pub fn update(&mut self, bytes: &[u8]) {
        for byte in bytes {
            let (a, [e, d, c, b]) = (*byte, self.window);
            if self.length >= 4 {
                self.checksum = pearson(0, a, b, self.checksum);
                for (salt, x, y) in [(2, b, c), (3, b, d), (5, c, d), (7, c, e), (11, b, e), (13, d, e)] {
                    let bucket = &mut self.buckets[usize::from(pearson(salt, a, x, y))];
                    *bucket = bucket.wrapping_add(1);
                }
            }
            self.window = [d, c, b, a];
            self.length += 1;
        }
    }

    /// The hash; none for content that is too short or too uniform.
    pub fn text(&self) -> Option<String> {
        let buckets = &self.buckets[..BUCKETS];
        let used = buckets.iter().filter(|count| **count > 0).count();
        let mut sorted = buckets.to_vec();
        sorted.sort_unstable();
        let [q1, q2, q3] = [BUCKETS / 4, BUCKETS / 2, BUCKETS * 3 / 4].map(|at| sorted[at - 1]);
        if self.length < LENGTH_MIN || q3 == 0 || used <= BUCKETS / 2 {
            return None;
        }
        // As the reference has it: in 32 bits, divided in single precision.
        let ratio = |q: u32| ((q.wrapping_mul(100) as f32 / q3 as f32) as u32 % 16) as u8;
        let mut text = String::from("T1");
        let head = [swapped(self.checksum), swapped(length_code(self.length)), ratio(q1) << 4 | ratio(q2)];
        let quarter = |count: &u32| u8::from(*count > q1) + u8::from(*count > q2) + u8::from(*count > q3);
        let code = buckets.chunks(4).rev().map(|four| four.iter().rev().fold(0, |code, n| code << 2 | quarter(n)));
        for byte in head.into_iter().chain(code) {
            let _ = write!(text, "{byte:02X}");
        }
        Some(text)
    }
}

fn pearson(salt: u8, a: u8, b: u8, c: u8) -> u8 {
    let step = |state: u8, byte: u8| PEARSON[usize::from(state ^ byte)];
    step(step(step(PEARSON[usize::from(salt)], a), b), c)
}

fn swapped(byte: u8) -> u8 {
    byte.rotate_left(4)
}

/// Lengths in steps that grow: which one this is.
fn length_code(length: u64) -> u8 {
    LENGTHS.partition_point(|top| u64::from(*top) < length).min(LENGTHS.len() - 1) as u8
}

/// Pearson's table.
#[rustfmt::skip]
const PEARSON: [u8; 256] = [
    1, 87, 49, 12, 176, 178, 102, 166, 121, 193, 6, 84, 249, 230, 44, 163, 14, 197, 213, 181, 161, 85, 218, 80, 64,
    239, 24, 226, 236, 142, 38, 200, 110, 177, 104, 103, 141, 253, 255, 50, 77, 101, 81, 18, 45, 96, 31, 222, 25, 107,
    190, 70, 86, 237, 240, 34, 72, 242, 20, 214, 244, 227, 149, 235, 97, 234, 57, 22, 60, 250, 82, 175, 208, 5, 127,
    199, 111, 62, 135, 248, 174, 169, 211, 58, 66, 154, 106, 195, 245, 171, 17, 187, 182, 179, 0, 243, 132, 56, 148,
    75, 128, 133, 158, 100, 130, 126, 91, 13, 153, 246, 216, 219, 119, 68, 223, 78, 83, 88, 201, 99, 122, 11, 92, 32,
    136, 114, 52, 10, 138, 30, 48, 183, 156, 35, 61, 26, 143, 74, 251, 94, 129, 162, 63, 152, 170, 7, 115, 167, 241,
    206, 3, 150, 55, 59, 151, 220, 90, 53, 23, 131, 125, 173, 15, 238, 79, 95, 89, 16, 105, 137, 225, 224, 217, 160,
    37, 123, 118, 73, 2, 157, 46, 116, 9, 145, 134, 228, 207, 212, 202, 215, 69, 229, 27, 188, 67, 124, 168, 252, 42,
    4, 29, 108, 21, 247, 19, 205, 39, 203, 233, 40, 186, 147, 198, 192, 155, 33, 164, 191, 98, 204, 165, 180, 117, 76,
    140, 36, 210, 172, 41, 54, 159, 8, 185, 232, 113, 196, 231, 47, 146, 120, 51, 65, 28, 144, 254, 221, 93, 189, 194,
    139, 112, 43, 71, 109, 184, 209,
];

/// Where each step of length ends.
#[rustfmt::skip]
const LENGTHS: [u32; 170] = [
    1, 2, 3, 5, 7, 11, 17, 25, 38, 57, 86, 129, 194, 291, 437, 656, 854, 1110, 1443, 1876, 2439, 3171, 3475, 3823,
    4205, 4626, 5088, 5597, 6157, 6772, 7450, 8195, 9014, 9916, 10907, 11998, 13198, 14518, 15970, 17567, 19323,
    21256, 23382, 25720, 28292, 31121, 34233, 37656, 41422, 45564, 50121, 55133, 60646, 66711, 73382, 80721, 88793,
    97672, 107439, 118183, 130002, 143002, 157302, 173032, 190335, 209369, 230306, 253337, 278670, 306538, 337191,
    370911, 408002, 448802, 493682, 543050, 597356, 657091, 722800, 795081, 874589, 962048, 1058252, 1164078, 1280486,
    1408534, 1549388, 1704327, 1874759, 2062236, 2268459, 2495305, 2744836, 3019320, 3321252, 3653374, 4018711,
    4420582, 4862641, 5348905, 5883796, 6472176, 7119394, 7831333, 8614467, 9475909, 10423501, 11465851, 12612437,
    13873681, 15261050, 16787154, 18465870, 20312458, 22343706, 24578077, 27035886, 29739474, 32713425, 35984770,
    39583245, 43541573, 47895730, 52685306, 57953837, 63749221, 70124148, 77136564, 84850228, 93335252, 102668779,
    112935659, 124229227, 136652151, 150317384, 165349128, 181884040, 200072456, 220079703, 242087671, 266296456,
    292926096, 322218735, 354440623, 389884688, 428873168, 471760495, 518936559, 570830240, 627913311, 690704607,
    759775136, 835752671, 919327967, 1011260767, 1112386880, 1223623232, 1345985727, 1480584256, 1628642751,
    1791507135, 1970657856, 2167723648, 2384496256, 2622945920, 2885240448, 3173764736, 3491141248, 3840255616,
    4224281216,
];

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(bytes: &[u8]) -> Option<String> {
        let mut tlsh = Tlsh::default();
        tlsh.update(bytes);
        tlsh.text()
    }

    #[test]
    fn published_values() {
        let fox = ["The quick brown fox jumps over the lazy dog"; 6].join(".");
        let lorem = b"Lorem ipsum dolor sit amet, consectetur adipiscing elit, sed do ".repeat(16_384);
        for (bytes, hash) in [
            (fox.as_bytes(), "T1F7D0024A251C5294648A1888438D98B292C8C51161211421643460022908221DCD8551"),
            (
                b"This text is too short for conservative tlsh, but enough for the others",
                "T1CDA00241BFCB83B3E0D60948133F2495D35CD5E545A3E224AE81555945131B6467E3D6",
            ),
            (&lorem, "T1CE25220E008F0BC28F03003F3EEBC0AEE00820A0AB2080220CF2C02C8002208C002802"),
        ] {
            assert_eq!(of(bytes).as_deref(), Some(hash));
        }
        assert_eq!(of(b"This text is too short for tlsh by exactly 1 byte"), None);
        assert_eq!(of(&[0; 10_000]), None);
    }

    proptest! {
        #[test]
        fn the_same_as_the_other_implementation(
            bytes in proptest::collection::vec(0_u8..64, 0..3000),
            cut in 0_usize..3000,
        ) {
            let other = tlsh2::TlshDefaultBuilder::build_from(&bytes).map(|hash| hash.hash().to_vec());
            let mut ours = Tlsh::default();
            let (one, two) = bytes.split_at(cut.min(bytes.len()));
            ours.update(one);
            ours.update(two);
            prop_assert_eq!(ours.text().map(String::into_bytes), other);
        }
    }
}
