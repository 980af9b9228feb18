//! The decision of the throttle about a letter, as a mark in the spool: the positions of the recipients that may go.
//!
//! It is written as `decided 0-14,17`, which a person can read too. Places are written as ranges, so that even the longest list fits into a
//! mark: a user trusts a bounded number of recipients, and the others are let go from the front of the list.

/// The recipients that go, as written down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decided {
    /// Their places, rising.
    pub places: Vec<usize>,
}

const TAG: &str = "decided ";
/// No message has more recipients; a damaged mark must not ask for more memory.
const PLACES_MAX: usize = 1_000_000;

impl Decided {
    /// The mark for these places, which must rise.
    pub fn mark(places: &[usize]) -> Vec<u8> {
        let ranges = places.chunk_by(|a, b| a + 1 == *b);
        let words = ranges.filter_map(|range| match range {
            [] => None,
            [one] => Some(one.to_string()),
            [first, .., last] => Some(format!("{first}-{last}")),
        });
        format!("{TAG}{}", words.collect::<Vec<_>>().join(",")).into_bytes()
    }

    /// Reads a mark; none if it is a mark of another kind.
    pub fn read(mark: &[u8]) -> Option<Decided> {
        let ranges = std::str::from_utf8(mark).ok()?.strip_prefix(TAG)?;
        let mut places = Vec::new();
        for range in ranges.split(',').filter(|range| !range.is_empty()) {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
            if first > last || last >= PLACES_MAX {
                return None;
            }
            places.extend(first..=last);
        }
        (places.len() <= PLACES_MAX).then_some(Decided { places })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read() {
        for places in [vec![], vec![0], vec![3], (0..15).collect(), vec![0, 1, 2, 5, 7, 8]] {
            assert_eq!(Decided::read(&Decided::mark(&places)), Some(Decided { places }));
        }
        assert_eq!(Decided::mark(&[0, 1, 2, 5, 7, 8]), b"decided 0-2,5,7-8");
    }

    #[test]
    fn other_marks_are_passed_over() {
        for mark in
            [&b""[..], b"dD\0\0", b"decided x", b"decided 5-3", b"decided 0-99999999999999", b"decided -1", &[0xff; 9]]
        {
            assert_eq!(Decided::read(mark), None);
        }
    }
}
