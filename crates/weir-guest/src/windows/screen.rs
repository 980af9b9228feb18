//! Pictures of the screen: the server of the screen keeps it in a file, in the form of `xwd`, and it becomes a PNG.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::ZlibEncoder;
use std::io::Write;
use weir_guest::behaviour::{SCREEN_BYTES_MAX, SCREENS_MAX, Screen};

const FILE: &str = "/run/screen/Xvfb_screen0";
/// No screen is larger.
const SIDE_MAX: usize = 2048;

/// Those of one sample: only what differs from the one before is kept.
#[derive(Debug, Default)]
pub(crate) struct Screens {
    kept: Vec<Screen>,
    last: u32,
}

impl Screens {
    /// That of before the sample, which is not kept.
    pub(crate) fn start() -> Screens {
        let last = std::fs::read(FILE).ok().map_or(0, |file| crc32fast::hash(&file));
        Screens { kept: Vec::new(), last }
    }

    /// Looks at the screen after so many milliseconds.
    pub(crate) fn look(&mut self, at_ms: u64) {
        if self.kept.len() >= SCREENS_MAX {
            return;
        }
        let Ok(file) = std::fs::read(FILE) else { return };
        let sum = crc32fast::hash(&file);
        if sum == self.last {
            return;
        }
        self.last = sum;
        let Some(png) = png(&file).map(|png| STANDARD.encode(png)).filter(|png| png.len() <= SCREEN_BYTES_MAX) else {
            return;
        };
        self.kept.push(Screen { at_ms, png });
    }

    pub(crate) fn done(self) -> Vec<Screen> {
        self.kept
    }
}

/// A PNG of what is in a file of `xwd` with four bytes a point.
fn png(xwd: &[u8]) -> Option<Vec<u8>> {
    let word = |at: usize| Some(u32::from_be_bytes(xwd.get(at * 4..at * 4 + 4)?.try_into().ok()?) as usize);
    let (header, width, height) = (word(0)?, word(4)?, word(5)?);
    let (bits, line, colours) = (word(11)?, word(12)?, word(19)?);
    if bits != 32 || width > SIDE_MAX || height > SIDE_MAX || line < width * 4 {
        return None;
    }
    let points = xwd.get(header.checked_add(colours.checked_mul(12)?)?..)?;
    let mut packed = ZlibEncoder::new(Vec::new(), Compression::fast());
    let mut row = Vec::with_capacity(1 + width * 3);
    for y in 0..height {
        row.clear();
        row.push(0);
        let points = points.get(y * line..y * line + width * 4)?;
        // Blue comes first there.
        row.extend(points.chunks_exact(4).flat_map(|point| [point[2], point[1], point[0]]));
        packed.write_all(&row).ok()?;
    }
    let mut out = b"\x89PNG\r\n\x1a\n".to_vec();
    let mut head = Vec::new();
    head.extend((width as u32).to_be_bytes());
    head.extend((height as u32).to_be_bytes());
    head.extend([8, 2, 0, 0, 0]);
    for (name, content) in [(b"IHDR", head), (b"IDAT", packed.finish().ok()?), (b"IEND", Vec::new())] {
        out.extend((content.len() as u32).to_be_bytes());
        let start = out.len();
        out.extend(name);
        out.extend(content);
        out.extend(crc32fast::hash(&out[start..]).to_be_bytes());
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_screen_becomes_a_picture() {
        let mut xwd = vec![0; 100];
        for (at, value) in [(0, 100_u32), (4, 3), (5, 2), (11, 32), (12, 12), (19, 1)] {
            xwd[at * 4..at * 4 + 4].copy_from_slice(&value.to_be_bytes());
        }
        xwd.extend([0; 12]);
        xwd.extend([1, 2, 3, 0].repeat(6));
        let made = png(&xwd).unwrap();
        assert!(made.starts_with(b"\x89PNG") && made.ends_with(&[0x49, 0x45, 0x4e, 0x44, 0xae, 0x42, 0x60, 0x82]));
        for cut in 0..xwd.len() {
            assert_eq!(png(&xwd[..cut]), None);
        }
    }
}
