//! Remembers which network each session of the application (its own sign-in cookie) belongs to.
//!
//! When a visitor signs in, the application vouches for them by its cookie. Many applications set their cookie anew with every answer, so a
//! sold or stolen cookie would vouch for every network in which it is shown: one sign-in would be worth hundreds of known visitors. So a
//! session belongs to the network in which it was first seen, together with all cookie values that replace each other. It vouches for
//! nobody elsewhere until it has not been used at home for [`HOLD_S`].
//!
//! Only fingerprints are kept, in a table of fixed size in which newer ones replace older ones, behind one lock that is taken when the
//! application sets its cookie. Front-ends do not share it.

use super::secret::{SecretError, random_bytes};
use super::siphash;
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};
use weir_core::fair::SubnetKey;

/// The sessions that were seen lately.
#[derive(Debug)]
pub struct AppSessions {
    key: siphash::SipKey,
    /// Made when the first session is seen.
    table: Mutex<Vec<AppSession>>,
}

#[derive(Clone, Copy, Debug)]
struct AppSession {
    print: u64,
    home: SubnetKey,
    /// When it was last used in its network, in seconds.
    used_s: u64,
}

/// The sessions of the application that a request has brought.
#[derive(Clone, Debug, Default)]
pub struct BroughtSessions {
    prints: Vec<u64>,
    /// It is not clear which one the application will read.
    unclear: bool,
}

/// Places in the table; 24 octets each.
const PLACES: usize = 1 << 16;
/// How many cookies of the name are looked at in one request.
const CANDIDATES: usize = 4;
/// A session that has not been used in its network for an hour may move to another.
const HOLD_S: u64 = 3_600;

impl AppSessions {
    pub fn new() -> Result<AppSessions, SecretError> {
        Ok(AppSessions::with_key(siphash::SipKey::from_bytes(random_bytes()?)))
    }

    fn with_key(key: siphash::SipKey) -> AppSessions {
        AppSessions { key, table: Mutex::default() }
    }

    /// The sessions in these `Cookie` header lines, by the name of the application's cookie.
    pub fn brought<'a>(&self, lines: impl Iterator<Item = &'a [u8]>, name: &str) -> BroughtSessions {
        let mut brought = BroughtSessions::default();
        let pairs = lines.flat_map(|line| line.split(|octet| *octet == b';'));
        let named = pairs.filter_map(|pair| {
            let (own, value) = pair.split_at(pair.iter().position(|octet| *octet == b'=')?);
            (own.trim_ascii() == name.as_bytes()).then(|| &value[1..])
        });
        for value in named {
            if brought.prints.len() == CANDIDATES || value.contains(&b'\\') {
                brought.unclear = true;
                break;
            }
            brought.prints.push(self.print(value));
        }
        brought
    }

    /// Whether the application vouches for a client of this network: the request brought these sessions, and the answer sets this one.
    pub fn vouches(&self, brought: &BroughtSessions, set: &[u8], subnet: SubnetKey, now: SystemTime) -> bool {
        let now_s = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        if table.is_empty() {
            *table = vec![AppSession { print: 0, home: SubnetKey(0), used_s: 0 }; PLACES];
        }
        let prints = || brought.prints.iter().copied().chain([self.print(set)]);
        let known = |print: u64| {
            let entry = table[print as usize % PLACES];
            (entry.print == print && now_s.saturating_sub(entry.used_s) < HOLD_S).then_some(entry)
        };
        // If several are brought, one that belongs to another network decides.
        let elsewhere = prints().filter_map(known).find(|entry| entry.home != subnet);
        let (home, used_s) = elsewhere.map_or((subnet, now_s), |entry| (entry.home, entry.used_s));
        prints().for_each(|print| table[print as usize % PLACES] = AppSession { print, home, used_s });
        elsewhere.is_none() && !brought.unclear
    }

    /// The same number for all ways to write a value: in quotes, or with octets as `%61`.
    fn print(&self, value: &[u8]) -> u64 {
        let value = value.trim_ascii();
        let inner = value.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\"")).unwrap_or(value);
        let (mut plain, mut rest) = (Vec::with_capacity(inner.len()), inner);
        while let Some((first, behind)) = rest.split_first() {
            let coded = behind.split_at_checked(2).filter(|_| *first == b'%');
            let octet = coded.and_then(|(digits, _)| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok());
            plain.push(octet.unwrap_or(*first));
            rest = if octet.is_some() { &behind[2..] } else { behind };
        }
        siphash::hash(self.key, &[&plain])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const HOME: SubnetKey = SubnetKey(1);
    const NAME: &str = "sid";

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(1_000_000 + seconds)
    }

    fn ask(sessions: &AppSessions, cookie: &str, set: &str, subnet: u64, seconds: u64) -> bool {
        let brought = sessions.brought(std::iter::once(cookie.as_bytes()), NAME);
        sessions.vouches(&brought, set.as_bytes(), SubnetKey(subnet), at(seconds))
    }

    #[test]
    fn a_session_vouches_at_home_only() {
        let sessions = AppSessions::with_key(siphash::SipKey(1, 2));
        assert!(ask(&sessions, "", "first", HOME.0, 0), "a sign-in");
        assert!(ask(&sessions, "a=b; sid=first", "first", HOME.0, 1));
        for network in 2..200 {
            assert!(!ask(&sessions, "sid=first", "first", network, 2), "renewed where it is shown");
            assert!(!ask(&sessions, "sid=first", &format!("next{network}"), network, 2), "with a new value");
            assert!(!ask(&sessions, &format!("sid=next{network}"), "last", network, 3), "which is shown again");
        }
        assert!(ask(&sessions, "sid=mine", "other", 7, 3), "another sign-in, with a cookie from before it");
        assert!(ask(&sessions, "sid=first", "first", HOME.0, 4));
    }

    #[test]
    fn other_ways_to_write_it_are_the_same_session() {
        let sessions = AppSessions::with_key(siphash::SipKey(1, 2));
        assert!(ask(&sessions, "", "ab%2Fc", HOME.0, 0));
        for cookie in [
            "sid=ab/c",
            "sid=\"ab/c\"",
            "sid=%61b%2fc",
            " sid = ab/c",
            "sid=made-up; sid=ab/c",
            "sid=ab/c; sid=made-up",
            "sid=\"\\141b/c\"",
            "sid=1; sid=2; sid=3; sid=4; sid=ab/c",
        ] {
            assert!(!ask(&sessions, cookie, "new", 2, 1), "{cookie}");
        }
    }

    #[test]
    fn who_moves_is_vouched_for_after_a_while() {
        let sessions = AppSessions::with_key(siphash::SipKey(1, 2));
        assert!(ask(&sessions, "", "v", HOME.0, 0));
        assert!(!ask(&sessions, "sid=v", "v", 2, HOLD_S - 1));
        assert!(ask(&sessions, "sid=v", "v", 2, HOLD_S), "asking from elsewhere has not kept it at home");
        assert!(!ask(&sessions, "sid=v", "v", 3, HOLD_S + 1));
    }
}
