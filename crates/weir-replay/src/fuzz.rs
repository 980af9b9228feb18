//! Entry for fuzzers: arbitrary bytes as past mail. The first octet says as what they are read.

use super::{Reader, SourceKind, Wall, Wanted};
use std::path::Path;

/// Reads arbitrary bytes; panics if what comes out is not what is promised.
pub fn read(data: &[u8]) {
    let Some((choice, input)) = data.split_first() else { return };
    let kind = match choice % 4 {
        0 => Some(SourceKind::Mbox),
        1 => Some(SourceKind::Postfix),
        _ => None,
    };
    let year = (choice & 8 != 0).then_some(2026);
    let wanted = Wanted { authenticated_only: choice & 16 != 0, ..Wanted::default() };
    let mut reader = Reader::new(kind, year, wanted);
    let written = Wall::from_unix_seconds(1_794_798_240).unwrap_or(Wall(0));
    if reader.stream(Path::new("fuzz"), input, written).is_err() {
        return;
    }
    let Ok(past) = reader.finish() else { return };
    assert!(past.mails.is_sorted_by_key(|mail| mail.at), "in order of time");
    assert!(past.mails.iter().all(|mail| !mail.to.is_empty()), "a mail has recipients");
}
