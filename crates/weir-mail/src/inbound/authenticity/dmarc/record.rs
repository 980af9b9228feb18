//! A DMARC record (RFC 9989 section 4.7; `pct` is of RFC 7489, and many records still have it).

use super::super::tags::value;

/// What a domain wants done with mail that fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wish {
    /// Nothing.
    None,
    /// It is suspicious.
    Quarantine,
    /// It is to be refused.
    Reject,
}

/// Whether a domain is one under which others register theirs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Suffix {
    Yes,
    No,
    Unsaid,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DmarcRecord {
    /// For mail of the domain itself; none if the record does not say anything usable.
    pub(super) wish: Option<Wish>,
    /// For mail of the domains below it.
    pub(super) below: Option<Wish>,
    /// For mail of those domains below it that do not exist.
    pub(super) absent: Option<Wish>,
    pub(super) strict_dkim: bool,
    pub(super) strict_spf: bool,
    pub(super) suffix: Suffix,
    /// The owner is only testing.
    pub(super) testing: bool,
    /// Of how many failing messages in a hundred the wish is meant.
    pub(super) percent: u8,
}

impl DmarcRecord {
    /// Reads a TXT record; nothing if it is no DMARC record.
    pub(super) fn parse(text: &[u8]) -> Option<DmarcRecord> {
        let text = std::str::from_utf8(text).ok()?;
        let (version, rest) = text.split_once(';').unwrap_or((text, ""));
        let (name, version) = version.split_once('=')?;
        if name.trim() != "v" || version.trim() != "DMARC1" {
            return None;
        }
        // What cannot be read is as if it were not there.
        let tags: Vec<(&str, &str)> = rest.split(';').filter_map(|tag| tag.split_once('=')).collect();
        let tags: Vec<(&str, &str)> = tags.iter().map(|(name, value)| (name.trim(), value.trim())).collect();
        let wish = value(&tags, "p").and_then(wish).or_else(|| wants_reports(&tags).then_some(Wish::None));
        let below = value(&tags, "sp").and_then(self::wish).or(wish);
        let is = |name: &str, wanted: &str| value(&tags, name).is_some_and(|value| value.eq_ignore_ascii_case(wanted));
        Some(DmarcRecord {
            wish,
            below,
            absent: value(&tags, "np").and_then(self::wish).or(below),
            strict_dkim: is("adkim", "s"),
            strict_spf: is("aspf", "s"),
            suffix: match (is("psd", "y"), is("psd", "n")) {
                (true, _) => Suffix::Yes,
                (_, true) => Suffix::No,
                _ => Suffix::Unsaid,
            },
            testing: is("t", "y"),
            percent: value(&tags, "pct")
                .and_then(|text| text.parse().ok())
                .filter(|percent| *percent <= 100)
                .unwrap_or(100),
        })
    }
}

fn wish(text: &str) -> Option<Wish> {
    let known = [("none", Wish::None), ("quarantine", Wish::Quarantine), ("reject", Wish::Reject)];
    known.into_iter().find(|(word, _)| text.eq_ignore_ascii_case(word)).map(|(_, wish)| wish)
}

/// A record without a policy still means something if it says where reports go.
fn wants_reports(tags: &[(&str, &str)]) -> bool {
    let is_mail =
        |uri: &str| uri.trim().get(..7).is_some_and(|start| start.eq_ignore_ascii_case("mailto:")) && uri.contains('@');
    value(tags, "rua").is_some_and(|uris| uris.split(',').any(is_mail))
}

impl Wish {
    /// As records have it.
    pub fn as_str(self) -> &'static str {
        match self {
            Wish::None => "none",
            Wish::Quarantine => "quarantine",
            Wish::Reject => "reject",
        }
    }

    /// What is done while the owner tests, or outside the percentage: a level less.
    pub(super) fn softened(self) -> Wish {
        match self {
            Wish::Reject => Wish::Quarantine,
            Wish::Quarantine | Wish::None => Wish::None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_as_far_as_they_can_be() {
        let read = |text: &str| DmarcRecord::parse(text.as_bytes());
        let plain = read("v=DMARC1; p=reject; pct=20; adkim=s; sp=none; t=y; psd=n").unwrap();
        assert_eq!((plain.wish, plain.below, plain.absent), (Some(Wish::Reject), Some(Wish::None), Some(Wish::None)));
        assert_eq!((plain.percent, plain.strict_dkim, plain.strict_spf), (20, true, false));
        assert!(plain.testing && plain.suffix == Suffix::No);
        let odd = read("v=DMARC1;p=Quarantine;pct=900;sp=nonsense;x;aspf = S").unwrap();
        assert_eq!((odd.wish, odd.below, odd.percent, odd.strict_spf), (Some(Wish::Quarantine), odd.wish, 100, true));
        assert_eq!(read("v=DMARC1; p=nonsense").unwrap().wish, None);
        assert_eq!(read("v=DMARC1; rua=mailto:a@b.example").unwrap().wish, Some(Wish::None));
        for other in ["v=DMARC2; p=none", "p=reject; v=DMARC1", "v=spf1 -all", "", "v=dmarc1; p=reject", "V=DMARC1"] {
            assert_eq!(read(other), None, "{other}");
        }
    }
}
