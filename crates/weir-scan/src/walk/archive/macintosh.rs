//! A file and what a Macintosh keeps about it in one: AppleSingle (RFC 1740, appendix A) and MacBinary. AppleDouble is AppleSingle without
//! the file, which comes beside it.

use super::super::{File, Oddity, Walk, bounded_name};
use crate::budget::Exceeded;

const SINGLE: &[u8] = b"\0\x05\x16\0";
const DOUBLE: &[u8] = b"\0\x05\x16\x07";
/// Entries of AppleSingle.
const DATA: u32 = 1;
const NAME: u32 = 3;
/// A file has about ten.
const ENTRIES_MAX: usize = 256;
/// The header of MacBinary.
const HEADER: usize = 128;

pub(super) fn open(walk: &mut Walk<'_>, file: &File<'_>, level: u32) -> Result<(), Exceeded> {
    if file.data.starts_with(SINGLE) || file.data.starts_with(DOUBLE) {
        return apple(walk, file, level);
    }
    match mac_binary(file.data) {
        Some((name, content)) => shown(walk, file, &[name], content, level),
        None => {
            if file.declared.contains("macbinary") && !file.data.is_empty() {
                walk.odd_here(Oddity::Unreadable("it is called MacBinary, and is not".into()));
            }
            Ok(())
        }
    }
}

fn apple(walk: &mut Walk<'_>, file: &File<'_>, level: u32) -> Result<(), Exceeded> {
    let entries = entries(file.data);
    let content = |wanted: u32| entries.iter().filter(move |(id, _)| *id == wanted).map(|(_, content)| *content);
    let names: Vec<&[u8]> = content(NAME).collect();
    for data in content(DATA) {
        shown(walk, file, &names, data, level)?;
    }
    // AppleDouble: the file comes beside this one, and gets the name that stands here.
    if content(DATA).next().is_none() && !names.is_empty() {
        shown(walk, file, &names, &[], level)?;
    }
    Ok(())
}

/// The number and the octets of each entry; what reaches behind the end ends there.
fn entries(data: &[u8]) -> Vec<(u32, &[u8])> {
    let number = |at: usize| data.get(at..at + 4)?.try_into().ok().map(u32::from_be_bytes);
    let count = data.get(24..26).map_or(0, |count| usize::from(u16::from_be_bytes([count[0], count[1]])));
    let entry = |index: usize| {
        let at = 26 + 12 * index;
        let (from, length) = (number(at + 4)? as usize, number(at + 8)? as usize);
        let rest = data.get(from..)?;
        Some((number(at)?, &rest[..length.min(rest.len())]))
    };
    (0..count.min(ENTRIES_MAX)).filter_map(entry).collect()
}

/// The name and the data of a file in MacBinary.
fn mac_binary(data: &[u8]) -> Option<(&[u8], &[u8])> {
    let header = data.get(..HEADER)?;
    let length = usize::from(header[1]);
    let name = header.get(2..2 + length)?;
    let zeros = [0, 74, 82].iter().all(|at| header[*at] == 0);
    let plain = !name.iter().any(|byte| *byte < 32) && (1..=63).contains(&length);
    let number = |at: usize| Some(u32::from_be_bytes(header.get(at..at + 4)?.try_into().ok()?) as usize);
    let (data_length, resources) = (number(83)?, number(87)?);
    let secondary = usize::from(u16::from_be_bytes([header[120], header[121]])).next_multiple_of(HEADER);
    let content = data.get(HEADER + secondary..)?;
    let fits = data_length.checked_add(resources)? <= content.len() && data_length > 0;
    (zeros && plain && fits).then(|| (name, &content[..data_length]))
}

/// The file under its own names and those outside.
fn shown(walk: &mut Walk<'_>, file: &File<'_>, names: &[&[u8]], data: &[u8], level: u32) -> Result<(), Exceeded> {
    let names: Vec<String> = names.iter().map(|name| bounded_name(name)).chain(file.names.iter().cloned()).collect();
    walk.deeper(|walk| walk.stored(&names, data, level))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_end_with_the_file() {
        let mut data = [SINGLE, &[0; 20], &[0, 9]].concat();
        for entry in [[NAME, 50, 4], [DATA, 54, 100]] {
            data.extend(entry.iter().flat_map(|number| number.to_be_bytes()));
        }
        data.extend(b"a.jshello");
        assert_eq!(entries(&data), [(NAME, &b"a.js"[..]), (DATA, b"hello")], "the others are not there");
        assert!(entries(b"").is_empty());
    }

    #[test]
    fn what_only_begins_with_a_zero_is_not_mac_binary() {
        for data in [vec![0; 1000], vec![1; 1000], b"\0\x01a".to_vec()] {
            assert_eq!(mac_binary(&data), None);
        }
    }
}
