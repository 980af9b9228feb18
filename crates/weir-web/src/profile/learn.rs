//! Makes a history document from access logs (`weir web learn`).
//!
//! What counts are visits, as in live traffic ([`weir_core::fair::visits`]): an address counts once an hour, and a subnet adds in a day at most what it had before it, or a
//! day of one visitor. Logs should be given from the oldest to the newest.
//!
//! Memory is bounded whatever the logs hold: past `COUNTED_MAX` subnets the smaller half is only counted together. A line that is
//! longer than `LINE_BYTES_MAX` or says nothing is counted as bad, and the first few are kept with their place. Answers that
//! told the client to go away (429 and 503) are not counted: they were not served.

use super::document::{Document, Remainder, SUBNETS_MAX};
use super::log::{BadLine, LoggedVisit};
use crate::identity::Network;
use std::collections::HashMap;
use std::io::{self, BufRead};
use std::net::IpAddr;
use weir_core::fair::visits::SubnetHistory;

/// Reads logs and counts.
#[derive(Debug)]
pub struct Learner {
    ipv4_prefix: u8,
    ipv6_prefix: u8,
    counts: HashMap<Network, SubnetHistory>,
    left_out: Remainder,
    lesson: Lesson,
}

/// Tells the addresses of a small subnet apart.
fn key(client: IpAddr) -> u64 {
    match client {
        IpAddr::V4(address) => u64::from(address.to_bits()),
        IpAddr::V6(address) => address.to_bits() as u64 ^ (address.to_bits() >> 64) as u64,
    }
}

#[derive(Clone, Debug, Default)]
pub struct Lesson {
    /// Lines, without blank ones.
    pub lines: u64,
    /// Requests counted.
    pub requests: u64,
    /// Requests that were refused, and therefore not counted.
    pub turned_away: u64,
    /// Lines that could not be used.
    pub bad_lines: u64,
    /// The first of them: log, line number, reason.
    pub first_bad: Vec<(String, u64, BadLine)>,
    /// The first and the last time, in seconds since 1970.
    pub span_unix_s: Option<(i64, i64)>,
}

const COUNTED_MAX: usize = 4 * SUBNETS_MAX;
const LINE_BYTES_MAX: usize = 64 * 1024;
const FIRST_BAD_MAX: usize = 10;

impl Learner {
    /// Subnets are prefixes of these lengths.
    pub fn new(ipv4_prefix: u8, ipv6_prefix: u8) -> Learner {
        Learner {
            ipv4_prefix,
            ipv6_prefix,
            counts: HashMap::new(),
            left_out: Remainder::default(),
            lesson: Lesson::default(),
        }
    }

    /// Reads a log to its end.
    pub fn read(&mut self, name: &str, mut log: impl BufRead) -> io::Result<()> {
        let (mut line, mut number) = (Vec::new(), 0u64);
        loop {
            line.clear();
            let fits = read_line(&mut log, &mut line)?;
            if line.is_empty() && fits {
                return Ok(());
            }
            number += 1;
            let text = if fits { str::from_utf8(&line).map_err(|_| BadLine::Text) } else { Err(BadLine::Text) };
            if text.is_ok_and(|text| text.trim().is_empty()) {
                continue;
            }
            self.lesson.lines += 1;
            match text.and_then(LoggedVisit::parse) {
                Ok(entry) => self.count(entry),
                Err(reason) => self.note_bad(name, number, reason),
            }
        }
    }

    /// What has been counted so far.
    pub fn lesson(&self) -> &Lesson {
        &self.lesson
    }

    /// The document; `previous` is the one before it.
    pub fn document(self, previous: Option<&Document>, made_unix_s: u64) -> Document {
        let version = previous.map_or(1, |previous| previous.version.saturating_add(1));
        let counts = self.counts.into_iter().map(|(network, known)| (network, known.visits())).collect();
        Document::new(version, made_unix_s, counts, self.left_out)
    }

    fn count(&mut self, entry: LoggedVisit) {
        if let Some(at) = entry.at_unix_s {
            let (first, last) = self.lesson.span_unix_s.unwrap_or((at, at));
            self.lesson.span_unix_s = Some((first.min(at), last.max(at)));
        }
        if matches!(entry.status, Some(429 | 503)) {
            self.lesson.turned_away += 1;
            return;
        }
        self.lesson.requests += 1;
        let prefix = if matches!(entry.client, IpAddr::V4(_)) { self.ipv4_prefix } else { self.ipv6_prefix };
        let known = self.counts.entry(Network::new(entry.client, prefix)).or_default();
        known.note(key(entry.client), entry.at_unix_s.unwrap_or(0));
        if self.counts.len() > COUNTED_MAX {
            self.leave_out_smaller_half();
        }
    }

    fn leave_out_smaller_half(&mut self) {
        let mut counts: Vec<f64> = self.counts.values().map(SubnetHistory::visits).collect();
        let middle = counts.len() / 2;
        let (_, median, _) = counts.select_nth_unstable_by(middle, f64::total_cmp);
        // Of many equal ones some must be left out too.
        let (least, mut room) = (*median, middle);
        let left_out = &mut self.left_out;
        self.counts.retain(|_, known| {
            let visits = known.visits();
            let stays = visits > least || visits == least && room > 0;
            if stays {
                room = room.saturating_sub(usize::from(visits == least));
            } else {
                left_out.subnets += 1;
                left_out.requests += visits;
            }
            stays
        });
    }

    fn note_bad(&mut self, name: &str, number: u64, reason: BadLine) {
        self.lesson.bad_lines += 1;
        if self.lesson.first_bad.len() < FIRST_BAD_MAX {
            self.lesson.first_bad.push((name.to_owned(), number, reason));
        }
    }
}

/// Reads up to the end of a line; returns whether it was short enough. Nothing of a longer one is kept.
fn read_line(log: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<bool> {
    let mut fits = true;
    loop {
        let buffer = match log.fill_buf() {
            Ok(buffer) => buffer,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        let end = buffer.iter().position(|byte| *byte == b'\n');
        let taken = end.map_or(buffer.len(), |end| end + 1);
        fits &= line.len() + taken <= LINE_BYTES_MAX;
        if fits {
            line.extend_from_slice(&buffer[..taken]);
        } else {
            line.clear();
        }
        log.consume(taken);
        if end.is_some() || taken == 0 {
            return Ok(fits);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(address: &str, status: u16) -> String {
        format!("{address} - - [10/Oct/2026:13:55:36 +0000] \"GET / HTTP/1.1\" {status} 5 \"-\" \"-\"\n")
    }

    #[test]
    fn logs_of_several_kinds_become_one_document() {
        let mut learner = Learner::new(24, 56);
        let text = [
            line("192.0.2.1", 200),
            line("192.0.2.200", 404),
            "\n".into(),
            "nonsense\n".into(),
            line("192.0.2.3", 503),
            "{\"remote_addr\":\"2001:db8::1\"}\n".into(),
        ];
        learner.read("a.log", text.concat().as_bytes()).unwrap();
        let long = ["x".repeat(LINE_BYTES_MAX * 3), "\n".into(), line("198.51.100.1", 200).trim_end().into()];
        learner.read("b.log", long.concat().as_bytes()).unwrap();
        learner.read("c.log", &b"\xff\xfe\n"[..]).unwrap();
        let lesson = learner.lesson().clone();
        assert_eq!((lesson.lines, lesson.requests, lesson.turned_away, lesson.bad_lines), (8, 4, 1, 3));
        let bad: Vec<String> = lesson.first_bad.iter().map(|(log, line, _)| format!("{log}:{line}")).collect();
        assert_eq!(bad, ["a.log:4", "b.log:1", "c.log:1"]);
        let document = learner.document(None, 77);
        let shown: Vec<String> = document.subnets.iter().map(|(network, count)| format!("{network} {count}")).collect();
        assert_eq!((document.version, document.made_unix_s, document.average), (1, 77, 1.0));
        assert_eq!(shown.len(), 3);
        assert!(shown.contains(&"192.0.2.0/24 1".to_owned()), "{shown:?}");
        let next = Learner::new(24, 56).document(Some(&document), 78);
        assert_eq!((next.version, next.average), (2, 1.0));
    }

    #[test]
    fn requests_of_one_minute_are_one_visit() {
        let mut learner = Learner::new(24, 56);
        let text = [line("192.0.2.1", 200).repeat(11_400), line("198.51.100.1", 200)];
        learner.read("a.log", text.concat().as_bytes()).unwrap();
        assert_eq!(learner.lesson().requests, 11_401);
        // All addresses of a subnet within an hour count no more than a visitor who never leaves.
        let whole: String = (0..=255).map(|host| line(&format!("203.0.113.{host}"), 200)).collect();
        learner.read("b.log", whole.as_bytes()).unwrap();
        let document = learner.document(None, 77);
        let visits: Vec<f64> = document.subnets.values().copied().collect();
        assert_eq!(visits, [1.0, 1.0, 1.0]);
    }

    #[test]
    fn a_log_of_a_flood_is_counted_in_bounded_memory() {
        let mut learner = Learner::new(24, 56);
        let heavy: IpAddr = "192.0.2.1".parse().unwrap();
        for i in 0..COUNTED_MAX as u32 * 3 {
            let client = std::net::Ipv4Addr::from_bits(i << 8 | 1);
            for client in [IpAddr::V4(client), heavy] {
                learner.count(LoggedVisit { client, at_unix_s: Some(i64::from(i) * 3_600), status: None });
            }
            assert!(learner.counts.len() <= COUNTED_MAX + 1);
        }
        let (requests, seen) = (COUNTED_MAX as f64 * 6.0, learner.left_out.subnets + learner.counts.len() as u64);
        let document = learner.document(None, 0);
        assert!((document.average * document.seen as f64 - requests).abs() < 1.0);
        assert_eq!(document.seen, seen);
        assert!(document.subnets[&Network::new(heavy, 24)] > COUNTED_MAX as f64 * 2.9);
    }
}
