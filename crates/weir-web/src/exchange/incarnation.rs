//! The incarnation number of a front-end: it rises with every start.
//!
//! It is the time of the start in µs since 1970. If the clock was set back, a new incarnation would look like an earlier one, to which
//! nobody listens; so the last number is kept in a file, and the next is above it.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::Path;

/// Larger numbers were not written by us.
const MOST: u64 = 1 << 62;

/// Begins a life. If the file cannot be read or written, this is only logged, because the calendar is usually right.
pub(super) fn begin(file: Option<&Path>, wall_us: u64) -> u64 {
    let Some(file) = file else { return wall_us };
    let complain = |error: io::Error| {
        tracing::warn!(%error, file = %file.display(), "exchange: if the clock goes back, others will ignore this front-end after a restart");
    };
    let last = read(file).unwrap_or_else(|error| {
        complain(error);
        None
    });
    let life = wall_us.max(last.map_or(0, |last| last + 1));
    if let Err(error) = write(file, life) {
        complain(error);
    }
    life
}

fn read(file: &Path) -> io::Result<Option<u64>> {
    let file = match File::open(file) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut text = String::new();
    file.take(32).read_to_string(&mut text)?;
    let life = text.trim().parse::<u64>().ok().filter(|life| *life < MOST);
    life.map(Some).ok_or_else(|| io::Error::other("not a number of a life"))
}

/// Written so that a reader never sees half a number, and that it would survive a power cut: that is when clocks are lost too.
fn write(file: &Path, life: u64) -> io::Result<()> {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::create_dir_all(folder)?;
    let beside = file.with_extension("new");
    let mut new = File::create(&beside)?;
    writeln!(new, "{life}")?;
    new.sync_all()?;
    fs::rename(beside, file)?;
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_life_is_above_the_last_whatever_the_calendar_says() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("web").join("life");
        let begin = |wall_us| begin(Some(&file), wall_us);
        assert_eq!((begin(7_000), begin(5_000), begin(5_000)), (7_000, 7_001, 7_002));
        assert_eq!((begin(9_000), begin(9_000)), (9_000, 9_001));
        for garbage in ["", "life", "-1", "18446744073709551615", "9".repeat(99).as_str()] {
            fs::write(&file, garbage).unwrap();
            assert_eq!((begin(3_000), begin(3_000)), (3_000, 3_001), "{garbage}");
        }
        assert_eq!(super::begin(Some(&folder.path().join("web")), 4_000), 4_000, "a folder is no file");
        assert_eq!(super::begin(None, 4_000), 4_000);
    }
}
