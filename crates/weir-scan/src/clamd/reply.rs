//! What clamd says, read with suspicion: only the exact word of its protocol is "clean".

use std::time::{Duration, SystemTime};

/// Replies are a line; this is far more than any of them.
pub const REPLY_MAX: usize = 4096;
const NAME_MAX: usize = 200;

/// The answer to a scan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scanned {
    /// Nothing found.
    Clean,
    /// This was found.
    Found(String),
    /// One of clamd's own limits was met: which.
    Limit(String),
    /// It may look inside only with a password.
    Encrypted(String),
    /// clamd itself failed: how.
    Error(String),
}

impl Scanned {
    /// Reads the answer to INSTREAM, without the NUL behind it.
    pub fn read(reply: &[u8]) -> Result<Scanned, NotAReply> {
        if reply.len() > REPLY_MAX {
            return Err(NotAReply::new(reply));
        }
        let text = std::str::from_utf8(reply).map_err(|_| NotAReply::new(reply))?;
        if text == "stream: OK" {
            return Ok(Scanned::Clean);
        }
        if let Some(name) = text.strip_prefix("stream: ").and_then(|text| text.strip_suffix(" FOUND")) {
            return if name.is_empty() { Err(NotAReply::new(reply)) } else { Ok(Scanned::found(shown(name))) };
        }
        let Some(problem) = text.strip_suffix("ERROR").map(|text| text.strip_prefix("stream: ").unwrap_or(text)) else {
            return Err(NotAReply::new(reply));
        };
        let problem = shown(problem.trim_end_matches([' ', '.']));
        Ok(if problem.contains("size limit exceeded") { Scanned::Limit(problem) } else { Scanned::Error(problem) })
    }

    /// Some names are not malware but remarks of clamd's, where it was told to make them.
    fn found(name: String) -> Scanned {
        if name.starts_with("Heuristics.Limits.Exceeded") {
            Scanned::Limit(name)
        } else if name.starts_with("Heuristics.Encrypted") {
            Scanned::Encrypted(name)
        } else {
            Scanned::Found(name)
        }
    }
}

/// `ClamAV 1.4.6/27450/Sat Nov 14 09:25:12 2026`: the signatures' number and date, where there are such.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version {
    /// The whole line.
    pub text: String,
    /// When the signatures were made.
    pub signatures: Option<SystemTime>,
}

impl Version {
    /// Reads the answer to VERSION; a clamd may be told to keep it to itself.
    pub fn read(reply: &[u8]) -> Result<Version, NotAReply> {
        let known = |text: &&str| (text.starts_with("ClamAV ") || *text == UNAVAILABLE) && text.len() < 200;
        let text = std::str::from_utf8(reply).ok().filter(known);
        let text = shown(text.ok_or_else(|| NotAReply::new(reply))?);
        let signatures = text.splitn(3, '/').nth(2).and_then(date);
        Ok(Version { text, signatures })
    }
}

/// What clamd says to a question that its configuration forbids.
const UNAVAILABLE: &str = "COMMAND UNAVAILABLE";

/// The most scans at once, from STATS: `THREADS: live 1  idle 0 max 10 idle-timeout 30`.
pub fn threads(stats: &[u8]) -> Option<usize> {
    let text = std::str::from_utf8(stats).ok()?;
    let line = text.lines().find(|line| line.starts_with("THREADS:"))?;
    let mut words = line.split_whitespace().skip_while(|word| *word != "max");
    words.nth(1)?.parse().ok().filter(|most| (1..=10_000).contains(most))
}

/// `Sat Nov 14 09:25:12 2026`, taken as UTC.
fn date(text: &str) -> Option<SystemTime> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let [_, month, day, time, year] = words[..] else { return None };
    let months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let month = months.iter().position(|name| *name == month)? as i64 + 1;
    let (day, year): (i64, i64) = (day.parse().ok()?, year.parse().ok()?);
    let clock: Vec<i64> = time.split(':').map(str::parse).collect::<Result<_, _>>().ok()?;
    let [hour, minute, second] = clock[..] else { return None };
    if !(1970..=2200).contains(&year)
        || !(1..=31).contains(&day)
        || !(0..24).contains(&hour)
        || !(0..60).contains(&minute)
        || !(0..=60).contains(&second)
    {
        return None;
    }
    // Days since 1970 in the Gregorian calendar, with years that begin in March.
    let (y, m) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = y * 365 + y / 4 - y / 100 + y / 400 + (m * 153 + 2) / 5 + day - 719_469;
    let seconds = days * 86_400 + hour * 3600 + minute * 60 + second;
    Some(SystemTime::UNIX_EPOCH + Duration::from_secs(u64::try_from(seconds).ok()?))
}

fn shown(text: &str) -> String {
    crate::plain::shown(text, NAME_MAX)
}

/// Something that clamd does not say.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("clamd answered {0:?}, which is no answer")]
pub struct NotAReply(pub String);

impl NotAReply {
    fn new(reply: &[u8]) -> NotAReply {
        NotAReply(shown(&String::from_utf8_lossy(&reply[..reply.len().min(80)])))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_to_a_scan() {
        let read = |text: &str| Scanned::read(text.as_bytes());
        assert_eq!(read("stream: OK"), Ok(Scanned::Clean));
        assert_eq!(read("stream: Eicar-Test-Signature FOUND"), Ok(Scanned::Found("Eicar-Test-Signature".into())));
        assert_eq!(
            read("INSTREAM size limit exceeded. ERROR"),
            Ok(Scanned::Limit("INSTREAM size limit exceeded".into()))
        );
        assert_eq!(read("stream: Can't allocate memory ERROR"), Ok(Scanned::Error("Can't allocate memory".into())));
        let limit = "Heuristics.Limits.Exceeded.MaxFileSize";
        assert_eq!(read(&format!("stream: {limit} FOUND")), Ok(Scanned::Limit(limit.into())));
        for nonsense in [
            "",
            "OK",
            "stream: OK ",
            "stream: ok",
            "stream:  FOUND",
            "stream: x found",
            "220 hello",
            "stream: OK\nstream: X FOUND",
        ] {
            assert!(read(nonsense).is_err() || nonsense.ends_with("X FOUND"), "{nonsense:?}");
        }
        assert_ne!(read("stream: OK\nstream: X FOUND"), Ok(Scanned::Clean));
        assert!(Scanned::read(&[0xff; 10]).is_err() && Scanned::read(&[b'a'; REPLY_MAX + 1]).is_err());
    }

    #[test]
    fn versions_and_threads() {
        let version = Version::read(b"ClamAV 1.4.6/27450/Sat Nov 14 09:25:12 2026").unwrap();
        assert_eq!(version.signatures, Some(SystemTime::UNIX_EPOCH + Duration::from_secs(1_794_648_312)));
        assert_eq!(Version::read(b"ClamAV 1.4.6").unwrap().signatures, None);
        assert!(Version::read(b"nginx").is_err());
        assert_eq!(Version::read(b"COMMAND UNAVAILABLE").unwrap().signatures, None);
        assert_eq!(
            threads(
                b"POOLS: 1\n\nSTATE: VALID PRIMARY\nTHREADS: live 1  idle 0 max 10 idle-timeout 30\nQUEUE: 0 items\n"
            ),
            Some(10)
        );
        assert_eq!(threads(b"THREADS: max many"), None);
    }
}
