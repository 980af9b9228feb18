//! Cabinets, through `cab`: stored, MSZIP and LZX.

use super::super::{Oddity, Walk};
use crate::budget::{CpuDeadline, Exceeded};
use cab::Cabinet;
use std::collections::BTreeSet;
use std::io::{self, Cursor, Read, Seek, SeekFrom};

const BLOCK: u64 = 32 << 10;

pub(super) fn open(walk: &mut Walk<'_>, data: &[u8], level: u32) -> Result<(), Exceeded> {
    let mut cabinet = match Cabinet::new(Timed::new(data, walk.budget.clock())) {
        Ok(cabinet) => cabinet,
        Err(error) => {
            walk.odd_here(Oddity::Unreadable(format!("a cabinet: {error}")));
            return walk.budget.time();
        }
    };
    // Each file is reached through everything before it in its folder: that is work too.
    let folders = cabinet.folder_entries();
    let work: u64 = folders.map(|f| f.file_entries().len() as u64 * u64::from(f.num_data_blocks()) * BLOCK).sum();
    if work / 4 > walk.budget.limits().bytes {
        return Err(Exceeded::Bytes(walk.budget.limits().bytes));
    }
    if cabinet.folder_entries().any(|folder| folder.num_data_blocks() == 0 && folder.file_entries().len() > 0) {
        walk.odd_here(Oddity::Unreadable("a cabinet with files and nothing in them".into()));
        return Ok(());
    }
    let names: Vec<String> =
        cabinet.folder_entries().flat_map(|folder| folder.file_entries()).map(|file| file.name().to_owned()).collect();
    if names.iter().collect::<BTreeSet<_>>().len() < names.len() {
        walk.odd_here(Oddity::Inconsistent("a cabinet with one name for two files".into()));
    }
    for name in names {
        let shown = [name];
        match cabinet.read_file(&shown[0]) {
            Ok(mut reader) => drop(walk.member(&shown, data.len() as u64, &mut reader, level)?),
            Err(error) => walk.locked(&shown, Oddity::Unreadable(format!("a cabinet: {error}")), level)?,
        }
    }
    walk.budget.time()
}

/// A cabinet that can be read as long as there is time: the way to a file leads through all that is packed before it, block by block, and its reader
/// goes that way without asking.
struct Timed<'d> {
    data: Cursor<&'d [u8]>,
    clock: CpuDeadline,
}

impl<'d> Timed<'d> {
    fn new(data: &'d [u8], clock: CpuDeadline) -> Timed<'d> {
        Timed { data: Cursor::new(data), clock }
    }
}

impl Read for Timed<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.data.read(into)
    }
}

impl Seek for Timed<'_> {
    /// Once a block.
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        if self.clock.is_over() { Err(io::Error::other("no time is left")) } else { self.data.seek(to) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::{Budget, Limits};
    use std::io::Write;
    use std::time::Duration;

    #[test]
    fn a_cabinet_is_read_as_long_as_there_is_time() {
        let mut builder = cab::CabinetBuilder::new();
        let folder = builder.add_folder(cab::CompressionType::MsZip);
        ["a.txt", "b.txt"].iter().for_each(|name| _ = folder.add_file(*name));
        let mut writer = builder.build(Cursor::new(Vec::new())).unwrap();
        while let Some(mut file) = writer.next_file().unwrap() {
            file.write_all(&[7; 100_000]).unwrap();
        }
        let data = writer.finish().unwrap().into_inner();
        let read = |time| -> io::Result<usize> {
            let budget = Budget::new(&Limits { time, ..Limits::default() });
            let mut cabinet = Cabinet::new(Timed::new(&data, budget.clock()))?;
            let mut content = Vec::new();
            cabinet.read_file("b.txt")?.read_to_end(&mut content)
        };
        assert_eq!(read(Duration::from_secs(20)).unwrap(), 100_000);
        assert_eq!(read(Duration::ZERO).unwrap_err().to_string(), "no time is left");
    }
}
