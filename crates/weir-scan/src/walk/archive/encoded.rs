//! Files that are written as text, and that a double click decodes (WinZip): uuencode, xxencode, base64.

use super::super::transfer::{self, Encoding, Padding, base64};
use super::super::{File, Oddity, Walk};
use super::is_of_apple;
use crate::budget::Exceeded;
use crate::file_name;

/// What is opened so.
const ENCODED: [&str; 7] = ["uu", "uue", "xx", "xxe", "b64", "base64", "ntx"];

pub(super) fn open(walk: &mut Walk<'_>, file: &File<'_>, level: u32) -> Result<(), Exceeded> {
    let mut promised = file.names.iter().flat_map(|name| file_name::extensions(name));
    if file.data.trim_ascii().is_empty() || !promised.any(|own| ENCODED.contains(&own.as_str())) {
        return Ok(());
    }
    walk.deeper(|walk| decoded(walk, file, level))
}

fn decoded(walk: &mut Walk<'_>, file: &File<'_>, level: u32) -> Result<(), Exceeded> {
    let outer = file.names.iter().filter_map(|name| name.trim_end().rsplit_once('.')).map(|(stem, _)| stem.to_owned());
    let outer: Vec<String> = outer.collect();
    let mut found = false;
    // The two alphabets cannot be told apart for sure, so that each file is decoded with both.
    let files =
        transfer::uuencoded(file.data).chain(transfer::xxencoded(file.data)).chain(transfer::yencoded(file.data));
    for (name, decoded) in files {
        found = true;
        let names: Vec<String> = std::iter::once(name).chain(outer.iter().cloned()).collect();
        member(walk, &names, &decoded, level)?;
    }
    if !found && Encoding::Base64.is_kept(file.data) {
        found = true;
        member(walk, &outer, &base64(file.data, Padding::EndsGroup), level)?;
    }
    if !found && !is_of_apple(file.data) {
        walk.odd_here(Oddity::Unreadable("the name of an encoded file, and none that we know".into()));
    }
    Ok(())
}

fn member(walk: &mut Walk<'_>, names: &[String], decoded: &[u8], level: u32) -> Result<(), Exceeded> {
    walk.budget.entry()?;
    walk.holding(decoded, |walk, decoded| walk.file(names, "", decoded, level))
}
