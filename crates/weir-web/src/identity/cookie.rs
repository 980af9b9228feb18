//! The session cookie: an id that the cluster signed for one subnet.
//!
//! 29 bytes in base64url: version, second of issue, id, and the first 128 bits of HMAC-SHA256 over these and the key of the subnet. A cookie
//! from elsewhere, altered, too old, or from the future is no cookie. Two keys may be in use: the previous one only checks, so keys
//! can be changed without losing sessions.
//!
//! At most [`CANDIDATES`] cookies of the name are looked at in one request. Good ones are remembered ([`Seen`]); a bad one costs one HMAC
//! for each key.

use super::secret::{Secret, SecretError, random_bytes};
use super::seen::Seen;
use super::settings::CookieSettings;
use super::siphash;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use http::HeaderValue;
use ring::hmac;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use weir_core::fair::SubnetKey;

/// A valid cookie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cookie {
    /// Names the session within its subnet.
    pub id: u64,
    /// Whether it should be renewed: half its life is over, or the previous key signed it.
    pub stale: bool,
    /// The time since it, or the first cookie that it renews, was issued, as far as this is known.
    pub age: Duration,
}

/// Makes and checks cookies.
#[derive(Debug)]
pub struct Cookies {
    name: Box<str>,
    /// What follows the value: without TLS, and with it.
    attributes: Box<str>,
    attributes_tls: Box<str>,
    lifetime_s: u64,
    /// How old a cookie must be for its owner to be known.
    standing_s: u64,
    key: hmac::Key,
    previous: Option<hmac::Key>,
    seen: Seen,
    ids: siphash::SipKey,
    made: AtomicU64,
}

const VERSION: u8 = 1;
/// Version, issue and id: what is signed, besides the subnet.
const BODY_BYTES: usize = 13;
const COOKIE_BYTES: usize = BODY_BYTES + 16;
const TEXT_BYTES: usize = 39;
/// How many cookies of our name are looked at in one request.
const CANDIDATES: usize = 4;
/// How far front-ends' clocks may differ.
const SKEW_S: u64 = 300;
/// 65 536 places.
const SEEN_BITS: u32 = 16;
/// A little more than a year: browsers shorten longer lifetimes.
const LIFETIME_MAX: Duration = Duration::from_secs(400 * 24 * 3600);

impl Cookies {
    /// Cookies according to these settings; `secret` gives the key if the settings have none.
    pub fn new(settings: &CookieSettings, secret: &Secret) -> Result<Cookies, SecretError> {
        let purpose = "weir web cookie";
        let lifetime_s = settings.lifetime.min(LIFETIME_MAX).as_secs().max(1);
        let standing_after = settings.standing_after.min(settings.standing_after_max());
        let attributes = format!("; Path=/; Max-Age={lifetime_s}; HttpOnly; SameSite=Lax");
        let random = siphash::SipKey::from_bytes;
        Ok(Cookies {
            name: settings.name.as_str().into(),
            attributes_tls: format!("{attributes}; Secure").into(),
            attributes: attributes.into(),
            lifetime_s,
            // Rounded up, because cookies count in seconds, and one that is a part of a second too young makes nobody known.
            standing_s: standing_after.as_millis().div_ceil(1_000).try_into().unwrap_or(lifetime_s),
            key: settings.key.as_ref().unwrap_or(secret).hmac_key(purpose),
            previous: settings.previous_key.as_ref().map(|key| key.hmac_key(purpose)),
            seen: Seen::new(SEEN_BITS, random(random_bytes()?)),
            ids: random(random_bytes()?),
            made: AtomicU64::new(0),
        })
    }

    /// The first valid cookie in these `Cookie` header lines.
    pub fn find<'a>(
        &self,
        lines: impl Iterator<Item = &'a [u8]>,
        subnet: SubnetKey,
        now: SystemTime,
    ) -> Option<Cookie> {
        lines
            .flat_map(|line| line.split(|byte| *byte == b';'))
            .filter_map(|pair| self.value(pair))
            .take(CANDIDATES)
            .find_map(|value| self.check(value, subnet, seconds(now)))
    }

    /// A new cookie as a `Set-Cookie` value.
    pub fn make(&self, subnet: SubnetKey, now: SystemTime, tls: bool) -> HeaderValue {
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        self.issue(siphash::hash(self.ids, &[&number.to_le_bytes()]), subnet, now, tls)
    }

    /// A new cookie whose owner is known at once.
    pub fn make_standing(&self, subnet: SubnetKey, now: SystemTime, tls: bool) -> HeaderValue {
        let age = Duration::from_secs(self.standing_s);
        self.make(subnet, now.checked_sub(age).unwrap_or(now), tls)
    }

    /// The id in a `Set-Cookie` value of ours.
    pub fn id_of(&self, set_cookie: &HeaderValue) -> Option<u64> {
        let (body, _) = decode(self.value(set_cookie.as_bytes().split(|byte| *byte == b';').next()?)?)?;
        Some(u64::from_be_bytes(*body[5..].first_chunk()?))
    }

    /// A cookie with the same id. The age of its predecessor is kept, up to an eighth of a lifetime, or more if it takes more to be known: a known visitor
    /// stays known.
    pub fn renew(&self, cookie: Cookie, subnet: SubnetKey, now: SystemTime, tls: bool) -> HeaderValue {
        let kept = cookie.age.min(Duration::from_secs((self.lifetime_s / 8).max(self.standing_s)));
        self.issue(cookie.id, subnet, now.checked_sub(kept).unwrap_or(now), tls)
    }

    fn issue(&self, id: u64, subnet: SubnetKey, now: SystemTime, tls: bool) -> HeaderValue {
        let mut bytes = [0; COOKIE_BYTES];
        let (body, tag) = bytes.split_at_mut(BODY_BYTES);
        let issued = u32::try_from(seconds(now)).unwrap_or(u32::MAX);
        body[0] = VERSION;
        body[1..5].copy_from_slice(&issued.to_be_bytes());
        body[5..].copy_from_slice(&id.to_be_bytes());
        tag.copy_from_slice(&signature(&self.key, body, subnet).to_be_bytes());
        let attributes = if tls { &self.attributes_tls } else { &self.attributes };
        let mut encoded = [0; TEXT_BYTES];
        // This could fail only for a name that is not a token; the worst result is an empty cookie.
        if URL_SAFE_NO_PAD.encode_slice(bytes, &mut encoded).is_err() {
            return HeaderValue::from_static("");
        }
        let text = [self.name.as_bytes(), b"=", &encoded, attributes.as_bytes()].concat();
        HeaderValue::from_maybe_shared(Bytes::from(text)).unwrap_or(HeaderValue::from_static(""))
    }

    fn value<'a>(&self, pair: &'a [u8]) -> Option<&'a [u8]> {
        pair.trim_ascii().strip_prefix(self.name.as_bytes())?.strip_prefix(b"=")
    }

    fn check(&self, text: &[u8], subnet: SubnetKey, now_s: u64) -> Option<Cookie> {
        let (body, tag) = decode(text)?;
        let issued = u64::from(u32::from_be_bytes(*body[1..].first_chunk()?));
        let id = u64::from_be_bytes(*body[5..].first_chunk()?);
        if body[0] != VERSION || issued > now_s + SKEW_S || now_s.saturating_sub(issued) > self.lifetime_s {
            return None;
        }
        let age = Duration::from_secs(now_s.saturating_sub(issued));
        let aging = age.as_secs() > self.lifetime_s / 2;
        let fingerprint = self.seen.fingerprint(text, subnet.0);
        if self.seen.has(fingerprint) {
            return Some(Cookie { id, stale: aging, age });
        }
        // Comparing 128 bits at once takes the same time wherever they differ.
        if signature(&self.key, &body, subnet) == tag {
            self.seen.add(fingerprint);
            return Some(Cookie { id, stale: aging, age });
        }
        let previous = self.previous.as_ref()?;
        (signature(previous, &body, subnet) == tag).then_some(Cookie { id, stale: true, age })
    }
}

fn decode(text: &[u8]) -> Option<([u8; BODY_BYTES], u128)> {
    if text.len() != TEXT_BYTES {
        return None;
    }
    let mut bytes = [0; COOKIE_BYTES + 1];
    let length = URL_SAFE_NO_PAD.decode_slice(text, &mut bytes).ok()?;
    let (body, rest) = bytes.get(..length)?.split_first_chunk()?;
    Some((*body, u128::from_be_bytes(*rest.first_chunk()?)))
}

fn signature(key: &hmac::Key, body: &[u8], subnet: SubnetKey) -> u128 {
    let mut message = [0; BODY_BYTES + 8];
    let (front, back) = message.split_at_mut(BODY_BYTES);
    front.copy_from_slice(body);
    back.copy_from_slice(&subnet.0.to_be_bytes());
    hmac::sign(key, &message).as_ref().first_chunk().map_or(0, |bytes| u128::from_be_bytes(*bytes))
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const DAY: u64 = 24 * 3600;
    const HOME: SubnetKey = SubnetKey(7);

    fn cookies(settings: &CookieSettings) -> Cookies {
        Cookies::new(settings, &Secret::new(b"a secret of some length").unwrap()).unwrap()
    }

    fn at(day: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs((20_000 + day) * DAY)
    }

    fn pair(set_cookie: &HeaderValue) -> Vec<u8> {
        set_cookie.as_bytes().split(|byte| *byte == b';').next().unwrap().to_vec()
    }

    fn find(cookies: &Cookies, line: &[u8], subnet: SubnetKey, now: SystemTime) -> Option<Cookie> {
        cookies.find(std::iter::once(line), subnet, now)
    }

    #[test]
    fn a_cookie_comes_back_good_to_its_subnet_only_and_grows_old() {
        let cookies = cookies(&CookieSettings::default());
        let line = pair(&cookies.make(HOME, at(0), false));
        let good = find(&cookies, &line, HOME, at(0)).unwrap();
        assert!(!good.stale);
        assert_eq!(find(&cookies, &line, SubnetKey(8), at(0)), None);
        let old = find(&cookies, &line, HOME, at(16)).unwrap();
        assert_eq!(old, Cookie { stale: true, age: Duration::from_secs(16 * DAY), ..good });
        assert_eq!(find(&cookies, &line, HOME, at(31)), None);
        assert_eq!(find(&cookies, &line, HOME, at(0) - Duration::from_secs(301)), None, "from the future");
        let renewed = pair(&cookies.renew(old, HOME, at(16), false));
        let again = find(&cookies, &renewed, HOME, at(20)).unwrap();
        assert!(again.id == good.id && !again.stale, "{again:?}");
        assert!(again.age > Duration::from_secs(7 * DAY), "who was known stays known: {again:?}");
    }

    #[test]
    fn who_is_known_stays_known_whatever_it_takes_to_be_known() {
        let second = Duration::from_secs(1);
        for (lifetime_s, standing_after) in [
            (30 * DAY, 7 * DAY as u32 * second),
            (30 * DAY, 10 * DAY as u32 * second),
            (15 * 60, 5 * 60 * second),
            (60, Duration::from_millis(1_500)),
            (400 * DAY, 30 * DAY as u32 * second),
        ] {
            let lifetime = Duration::from_secs(lifetime_s);
            let cookies = cookies(&CookieSettings { lifetime, standing_after, ..CookieSettings::default() });
            // In the middle of a second as well.
            for now in [at(0), at(0) + Duration::from_millis(999)] {
                let vouched = pair(&cookies.make_standing(HOME, now, false));
                let found = find(&cookies, &vouched, HOME, now).unwrap();
                assert!(found.age >= standing_after && !found.stale, "{standing_after:?} of {lifetime:?}: {found:?}");
            }
            let mut line = pair(&cookies.make(HOME, at(0), false));
            let mut now = at(0);
            for _ in 0..5 {
                now += lifetime / 2 + second;
                let old = find(&cookies, &line, HOME, now).expect("it is good for longer");
                line = pair(&cookies.renew(old, HOME, now, false));
                let new = find(&cookies, &line, HOME, now).unwrap();
                assert!(new.age >= standing_after && !new.stale, "{standing_after:?} of {lifetime:?}: {new:?}");
            }
        }
    }

    #[test]
    fn the_answer_says_what_browsers_must_know() {
        let cookies = cookies(&CookieSettings { name: "s".into(), ..CookieSettings::default() });
        let text = |tls| cookies.make(HOME, at(0), tls).to_str().unwrap().to_owned();
        let (plain, tls) = (text(false), text(true));
        assert!(plain.ends_with("; Path=/; Max-Age=2592000; HttpOnly; SameSite=Lax"), "{plain}");
        assert!(tls.ends_with("; HttpOnly; SameSite=Lax; Secure"), "{tls}");
        assert!(plain.starts_with("s=") && plain[..41] != tls[..41], "every cookie has an id of its own");
    }

    #[test]
    fn the_previous_key_checks_and_a_third_does_not() {
        let secret = |text: &str| Some(Secret::from_text(text).unwrap());
        let with = |key: &str, previous: Option<Secret>| {
            cookies(&CookieSettings { key: secret(key), previous_key: previous, ..CookieSettings::default() })
        };
        let old = with("the first key of them", None);
        let line = pair(&old.make(HOME, at(0), false));
        let turned = with("the second key of them", secret("the first key of them"));
        let found = find(&turned, &line, HOME, at(0)).unwrap();
        assert!(found.stale, "to be signed anew");
        assert_eq!(find(&turned, &line, HOME, at(0)), Some(found), "also the second time");
        let renewed = pair(&turned.renew(found, HOME, at(0), false));
        let third = with("the third key of them", secret("the second key of them"));
        assert_eq!(find(&third, &line, HOME, at(0)), None);
        assert_eq!(find(&third, &renewed, HOME, at(0)).map(|cookie| cookie.id), Some(found.id));
    }

    #[test]
    fn it_is_found_among_others_but_not_behind_many_false_ones() {
        let cookies = cookies(&CookieSettings::default());
        let good = pair(&cookies.make(HOME, at(0), false));
        let with_false = |count| [b"a=b; weir2=x;".repeat(9), b"weir=no; ".repeat(count), good.clone()].concat();
        assert!(find(&cookies, &with_false(CANDIDATES - 1), HOME, at(0)).is_some());
        assert!(find(&cookies, &with_false(CANDIDATES), HOME, at(0)).is_none());
        let lines = [&b"x=y"[..], &good];
        assert!(cookies.find(lines.into_iter(), HOME, at(0)).is_some(), "HTTP/2 splits the header");
    }

    proptest! {
        #[test]
        fn a_changed_cookie_is_none(place in 0usize..39, change in 1u8..64, first: bool) {
            let cookies = cookies(&CookieSettings::default());
            let mut line = pair(&cookies.make(HOME, at(0), false));
            if first {
                prop_assert!(find(&cookies, &line, HOME, at(0)).is_some());
            }
            let alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
            let byte = &mut line[5 + place];
            let old = alphabet.iter().position(|letter| letter == byte).unwrap();
            *byte = alphabet[(old + usize::from(change)) % 64];
            prop_assert_eq!(find(&cookies, &line, HOME, at(0)), None);
        }

        #[test]
        fn no_bytes_are_a_cookie(line: Vec<u8>, value in "[A-Za-z0-9_-]{39}", day in 0u64..100_000) {
            let cookies = cookies(&CookieSettings::default());
            prop_assert_eq!(find(&cookies, &line, HOME, at(day)), None);
            prop_assert_eq!(find(&cookies, format!("weir={value}").as_bytes(), HOME, at(day)), None);
        }
    }
}
