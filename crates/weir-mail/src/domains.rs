//! Lists of domains: those that we accept mail for, and those that are the site's own.
//!
//! `example.org` is the domain itself, `.example.org` everything below it. A domain is compared in the same form in which
//! delivery finds its route (lower case, ASCII, no last dot): what is taken for ours here is ours there.

use crate::delivery::route::canonical;
use std::collections::BTreeSet;

/// The domains that we take mail for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Domains {
    known: BTreeSet<String>,
    /// The first of them that is no wildcard.
    first: Option<String>,
}

impl Domains {
    /// These domains.
    pub fn new<S: AsRef<str>>(domains: impl IntoIterator<Item = S>) -> Domains {
        let mut all = Domains::default();
        for domain in domains {
            let domain = canonical(domain.as_ref());
            if !domain.starts_with('.') && all.first.is_none() {
                all.first = Some(domain.clone());
            }
            all.known.insert(domain);
        }
        all
    }

    /// Whether mail for this domain is ours. An address literal never is.
    pub fn contain(&self, domain: &str) -> bool {
        if self.known.is_empty() || domain.is_empty() || domain.starts_with(['[', '.']) {
            return false;
        }
        let domain = canonical(domain);
        let below = || domain.match_indices('.').filter_map(|(at, _)| domain.get(at..));
        self.known.contains(&domain) || below().any(|suffix| self.known.contains(suffix))
    }

    /// Where mail for `<postmaster>` without a domain goes.
    pub fn first(&self) -> Option<&str> {
        self.first.as_deref()
    }

    /// Each of them, as it was written but in its canonical form.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.known.iter().map(String::as_str)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.known.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// For people: the first, and how many more.
    pub fn summary(&self) -> String {
        let first = self.first.as_deref().or(self.known.first().map(String::as_str)).unwrap_or("no domain");
        match self.known.len() {
            0 | 1 => first.to_owned(),
            more => format!("{first} and {} more", more - 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_domain_is_ours_in_every_spelling_and_no_other_is() {
        let domains = Domains::new(["Example.org", ".sub.example.net", "bücher.example"]);
        for ours in [
            "example.org",
            "EXAMPLE.ORG",
            "example.org.",
            "a.sub.example.net",
            "a.b.SUB.example.net",
            "bücher.example",
            "BÜCHER.example",
            "xn--bcher-kva.example",
            "XN--BCHER-KVA.EXAMPLE",
        ] {
            assert!(domains.contain(ours), "{ours}");
        }
        for other in [
            "",
            ".",
            ".example.org",
            "evil.example.org",
            "example.org.evil.example",
            "notexample.org",
            "sub.example.net",
            ".sub.example.net",
            "[127.0.0.1]",
            "[IPv6:::1]",
            "127.0.0.1",
            "example.org\0",
            "example.org ",
            "bucher.example",
        ] {
            assert!(!domains.contain(other), "{other}");
        }
        assert_eq!((domains.first(), domains.summary().as_str()), (Some("example.org"), "example.org and 2 more"));
    }
}
