//! Cabinets, through `cab`: stored, MSZIP and LZX.

use super::super::{Oddity, Walk};
use crate::budget::Exceeded;
use cab::Cabinet;
use std::collections::BTreeSet;
use std::io::Cursor;

const BLOCK: u64 = 32 << 10;

pub(super) fn open(walk: &mut Walk<'_>, data: &[u8], level: u32) -> Result<(), Exceeded> {
    let mut cabinet = match Cabinet::new(Cursor::new(data)) {
        Ok(cabinet) => cabinet,
        Err(error) => {
            walk.odd_here(Oddity::Unreadable(format!("a cabinet: {error}")));
            return Ok(());
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
    Ok(())
}
