//! The path tables of ISO 9660. Each lists all folders of a disc, so that one is found quickly. Windows opens a folder at the place that the table
//! names, whatever the folder's own record says.

use crate::little_endian::u32_at;

/// Where each folder begins: with its extended attributes, and behind them.
pub(super) fn places<'d>(data: &'d [u8], descriptor: &[u8], block: usize) -> impl Iterator<Item = usize> + 'd {
    let length = u32_at(descriptor, 132).max(u32_at(descriptor, 136).map(u32::swap_bytes)).unwrap_or(0) as usize;
    // Two tables, each perhaps twice: numbers in one order of octets, and in the other.
    let little = [140, 144].map(|at| (u32_at(descriptor, at), false));
    let big = [148, 152].map(|at| (u32_at(descriptor, at).map(u32::swap_bytes), true));
    let tables =
        little.into_iter().chain(big).filter_map(|(place, is_big)| Some((place.filter(|place| *place > 0)?, is_big)));
    let tables: Vec<(&[u8], bool)> = tables
        .filter_map(|(place, is_big)| {
            let rest = data.get((place as usize).checked_mul(block)?..)?;
            Some((&rest[..rest.len().min(length)], is_big))
        })
        .collect();
    tables.into_iter().flat_map(move |(table, is_big)| Folders { rest: table, is_big }).flat_map(
        move |(place, kept)| {
            let place = (place as usize).saturating_mul(block);
            let behind = place.saturating_add(usize::from(kept).saturating_mul(block));
            [Some(place), Some(behind).filter(|behind| *behind != place)].into_iter().flatten()
        },
    )
}

/// The entries of one table: the place of each folder, and how many blocks of extended attributes it has.
struct Folders<'d> {
    rest: &'d [u8],
    is_big: bool,
}

impl Iterator for Folders<'_> {
    type Item = (u32, u8);

    fn next(&mut self) -> Option<(u32, u8)> {
        let (name, kept) = (usize::from(*self.rest.first()?), *self.rest.get(1)?);
        let place = u32_at(self.rest, 2).filter(|_| name > 0)?;
        self.rest = self.rest.get((8 + name).next_multiple_of(2)..).unwrap_or_default();
        Some((if self.is_big { place.swap_bytes() } else { place }, kept))
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::seen::Seen;
    use crate::test_files;

    const SECTOR: usize = 2048;

    /// An image with a file in a folder that stands in its path tables, and in no other folder.
    fn image(kept: u8) -> Vec<u8> {
        let mut image = test_files::iso("RUN.JS", b"hello");
        let root = image[20 * SECTOR..21 * SECTOR].to_vec();
        let (own, above) = (usize::from(root[0]), usize::from(root[usize::from(root[0])]));
        image[20 * SECTOR + own + above..21 * SECTOR].fill(0);
        let place = (image.len() / SECTOR) as u32;
        image.extend(vec![0; SECTOR * usize::from(kept)]);
        image.extend(root);
        for (at, numbers) in [(18, u32::to_le_bytes as fn(u32) -> [u8; 4]), (19, u32::to_be_bytes)] {
            let entry = [&[1, kept][..], &numbers(place), &[0, 1, b'A', 0]].concat();
            image[at * SECTOR + 10..at * SECTOR + 20].copy_from_slice(&entry);
        }
        image[16 * SECTOR + 132..16 * SECTOR + 136].copy_from_slice(&20u32.to_le_bytes());
        image
    }

    #[test]
    fn a_folder_that_only_the_path_table_has_is_walked() {
        for kept in [0, 1] {
            let seen = Seen::of("a.dat", &image(kept));
            assert!(seen.holds(b"hello") && seen.odd.is_empty(), "{kept}: {:?}", seen.odd);
        }
        // One table is enough: readers go by one of them.
        for at in [18, 19] {
            let mut image = image(0);
            image[at * SECTOR..][..20].fill(0);
            assert!(Seen::of("a.dat", &image).holds(b"hello"), "{at}");
        }
    }

    #[test]
    fn what_a_system_keeps_about_the_root_hides_no_file() {
        let mut image = test_files::iso("RUN.JS", b"hello");
        let root = image[20 * SECTOR..21 * SECTOR].to_vec();
        image[20 * SECTOR..21 * SECTOR].fill(0);
        let place = (image.len() / SECTOR) as u32;
        image.extend(root);
        image[16 * SECTOR + 157] = 1;
        image[16 * SECTOR + 158..16 * SECTOR + 162].copy_from_slice(&(place - 1).to_le_bytes());
        image[18 * SECTOR..20 * SECTOR].fill(0);
        assert!(Seen::of("a.dat", &image).holds(b"hello"));
    }
}
