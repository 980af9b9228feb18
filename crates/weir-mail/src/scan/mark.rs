//! The marks in the spool about a scan, which a person can read in a sidecar.
//!
//! `scan tried 3` after an attempt that failed, `scan interrupted 2` after a kill, `scan pending` with what a letter waits for in
//! the laboratory, `scan passed` with the header lines to add. None is waited for: a scan that is repeated after a kill is harmless. What a kill interrupts is noticed elsewhere
//! ([`super::under_way`]).

/// How far a letter came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ScanMark {
    /// The number of attempts that have failed.
    Tried(u32),
    /// The number of attempts that were interrupted because the process ended.
    Interrupted(u32),
    /// It waits for the laboratory; why and until when, as JSON.
    Pending(String),
    /// It goes out, with these header lines on top.
    Passed(String),
}

const TRIED: &str = "scan tried ";
const INTERRUPTED: &str = "scan interrupted ";
const PENDING: &str = "scan pending ";
const PASSED: &str = "scan passed\n";

impl ScanMark {
    pub(super) fn write(&self) -> Vec<u8> {
        match self {
            ScanMark::Tried(attempts) => format!("{TRIED}{attempts}"),
            ScanMark::Interrupted(times) => format!("{INTERRUPTED}{times}"),
            ScanMark::Pending(detention) => format!("{PENDING}{detention}"),
            ScanMark::Passed(added) => format!("{PASSED}{added}"),
        }
        .into_bytes()
    }

    /// Reads a mark; nothing if it is another one.
    pub(super) fn read(mark: &[u8]) -> Option<ScanMark> {
        let text = std::str::from_utf8(mark).ok()?;
        if let Some(added) = text.strip_prefix(PASSED) {
            return Some(ScanMark::Passed(added.to_owned()));
        }
        if let Some(detention) = text.strip_prefix(PENDING) {
            return Some(ScanMark::Pending(detention.to_owned()));
        }
        if let Some(times) = text.strip_prefix(INTERRUPTED) {
            return times.parse().ok().map(ScanMark::Interrupted);
        }
        text.strip_prefix(TRIED)?.parse().ok().map(ScanMark::Tried)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_and_other_marks_are_passed_over() {
        for mark in [
            ScanMark::Tried(7),
            ScanMark::Interrupted(2),
            ScanMark::Pending("{}".into()),
            ScanMark::Passed(String::new()),
            ScanMark::Passed("X-A: b\r\n".into()),
        ] {
            assert_eq!(ScanMark::read(&mark.write()), Some(mark));
        }
        for mark in [&b""[..], b"decided 0", b"scan tried x", b"scan passed", b"dD\0\0", &[0xff; 9]] {
            assert_eq!(ScanMark::read(mark), None);
        }
    }
}
