//! Which backend a request goes to: by host, then by the longest path.
//!
//! An exact host beats a wildcard (`*.example.org`), a longer wildcard a shorter one, and any of them the empty host, which
//! stands for all. Among the rules of a host the longest path prefix wins; a prefix ends at a `/` of the path. Built once;
//! matching costs O(labels of the host + rules of that host), does not lock, and allocates only if a path has to be normalised.
//!
//! Rules are compared with what a path *means*: `%61` is `a`, `%2f` and `//` are `/`, and `..` is the folder above. Otherwise
//! `/public/../admin` would follow the rule for `/public`, and the server would take it for `/admin`. The server is sent the path as it
//! came.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use weir_settings::text_value;
use weir_settings::units::Span;

use crate::label::is_label;
use crate::units::Units;

/// One rule, as configured.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rule {
    /// `example.org`, `*.example.org`, or empty for every host.
    pub host: String,
    /// A path prefix; `/` is everything.
    pub path: String,
    pub backend: String,
    /// Whether bodies are passed on as they come, both ways.
    pub unbuffered: bool,
    /// The assumed cost of a request until one has been measured.
    pub cost: Option<Duration>,
    /// Where responses say what they have cost.
    pub units: Option<Arc<Units>>,
}

impl Rule {
    /// Every request goes to this backend.
    pub fn all_to(backend: &str) -> Rule {
        let (host, path) = (String::new(), "/".to_owned());
        Rule { host, path, backend: backend.to_owned(), unbuffered: false, cost: None, units: None }
    }

    /// Parses a word behind the backend.
    fn take(&mut self, word: &str) -> Option<()> {
        match word.split_once('=') {
            None if word == UNBUFFERED => self.unbuffered = true,
            Some(("cost", cost)) => self.cost = Some(cost.parse::<Span>().ok()?.0),
            Some((key, value)) => self.units = Some(Arc::new(Units::from_word(key, value)?)),
            None => return None,
        }
        Some(())
    }
}

text_value!(Rule: "\"example.org/api app\"");

impl FromStr for Rule {
    type Err = String;

    fn from_str(text: &str) -> Result<Rule, String> {
        let wrong = || {
            format!(
                "{text:?} is not a route: write a host or *, a path if any, a backend, and what is special: \"example.org/api app \
                 unbuffered cost=200ms units=usage.total_tokens:50/s\""
            )
        };
        let mut words = text.split_whitespace();
        let (place, backend) = (words.next().ok_or_else(wrong)?, words.next().ok_or_else(wrong)?);
        let (host, path) = place.find('/').map_or((place, "/"), |slash| place.split_at(slash));
        let name = host.strip_prefix("*.").unwrap_or(host);
        let is_host = host == "*" || (name.len() <= 253 && name.split('.').all(is_label));
        if !is_host || !is_label(backend) || path.bytes().any(|byte| byte <= b' ' || byte == b'?' || byte == b'#') {
            return Err(wrong());
        }
        let host = if host == "*" { String::new() } else { host.to_ascii_lowercase() };
        let mut rule = Rule { host, path: path.to_owned(), ..Rule::all_to(backend) };
        words.try_for_each(|word| rule.take(word)).ok_or_else(wrong)?;
        Ok(rule)
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let host = if self.host.is_empty() { "*" } else { &self.host };
        let path = if self.path == "/" { "" } else { &self.path };
        write!(f, "{host}{path} {}", self.backend)?;
        if self.unbuffered {
            write!(f, " {UNBUFFERED}")?;
        }
        if let Some(cost) = self.cost {
            write!(f, " cost={}", Span(cost))?;
        }
        self.units.iter().try_for_each(|units| write!(f, " {units}"))
    }
}

/// Where a request goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Route {
    pub backend: usize,
    /// The route's number among those of its backend.
    pub number: u16,
    pub unbuffered: bool,
    /// Where responses say what they have cost, as an index into the list of all such places.
    units: Option<usize>,
}

/// The word of a rule for bodies that are passed on as they come.
const UNBUFFERED: &str = "unbuffered";

#[derive(Debug, Default)]
pub struct Routes {
    exact: HashMap<String, Vec<(String, Route)>>,
    wildcard: HashMap<String, Vec<(String, Route)>>,
    every: Vec<(String, Route)>,
    per_backend: Vec<u16>,
    units: Vec<Arc<Units>>,
}

/// The longest host name (RFC 1035).
const HOST_MAX: usize = 255;

impl Routes {
    /// The rules, with backends as indices into `backends`.
    pub fn new(rules: &[Rule], backends: &[&str]) -> Result<Routes, RouteError> {
        let mut routes = Routes { per_backend: vec![0; backends.len()], ..Routes::default() };
        for rule in rules {
            let place = backends.iter().position(|name| *name == rule.backend);
            let backend = place.ok_or_else(|| RouteError::Backend(rule.backend.clone()))?;
            let number = routes.per_backend[backend];
            routes.per_backend[backend] = number.checked_add(1).ok_or(RouteError::TooMany)?;
            let units = rule.units.as_ref().map(|_| routes.units.len());
            routes.units.extend(rule.units.clone());
            routes.add(rule, Route { backend, number, unbuffered: rule.unbuffered, units });
        }
        Ok(routes)
    }

    fn add(&mut self, rule: &Rule, route: Route) {
        let host = rule.host.to_ascii_lowercase();
        let list = match host.strip_prefix("*.") {
            Some(suffix) => self.wildcard.entry(suffix.to_owned()).or_default(),
            None if host.is_empty() => &mut self.every,
            None => self.exact.entry(host).or_default(),
        };
        list.push((meant(&rule.path).trim_end_matches('/').to_owned(), route));
        list.sort_by_key(|(path, _)| std::cmp::Reverse(path.len()));
    }

    /// Where responses of a route say what they have cost.
    pub fn units(&self, route: Route) -> Option<Arc<Units>> {
        route.units.and_then(|at| self.units.get(at)).cloned()
    }

    /// How many rules lead to each backend.
    pub fn counts(&self) -> &[u16] {
        &self.per_backend
    }

    /// Where a request for `path` of `host` (with or without a port) goes.
    pub fn find(&self, host: &str, path: &str) -> Option<Route> {
        if self.exact.is_empty() && self.wildcard.is_empty() {
            return longest(&self.every, path);
        }
        let mut lower = [0; HOST_MAX];
        let host = lowercase(without_port(host), &mut lower)?;
        let exact = self.exact.get(host).and_then(|list| longest(list, path));
        exact.or_else(|| self.find_wildcard(host, path)).or_else(|| longest(&self.every, path))
    }

    fn find_wildcard(&self, host: &str, path: &str) -> Option<Route> {
        let suffixes = host.match_indices('.').map(|(dot, _)| &host[dot + 1..]);
        suffixes.filter_map(|suffix| self.wildcard.get(suffix)).find_map(|list| longest(list, path))
    }
}

fn longest(list: &[(String, Route)], path: &str) -> Option<Route> {
    // If there is only one possibility, the path is not looked at.
    if let [(prefix, route)] = list
        && prefix.is_empty()
        && path.starts_with('/')
    {
        return Some(*route);
    }
    let path = meant(path);
    list.iter().find(|(prefix, _)| is_under(&path, prefix)).map(|(_, route)| *route)
}

/// The path in a form in which equal paths are written in the same way.
pub(crate) fn meant(path: &str) -> Cow<'_, str> {
    let roundabout = path.contains('%') || path.contains("//") || path.contains("/.");
    if !roundabout {
        return Cow::Borrowed(path);
    }
    let decoded = decoded(path);
    let mut segments = Vec::new();
    for segment in decoded.split('/') {
        match segment {
            "" | "." => {}
            ".." => drop(segments.pop()),
            _ => segments.push(segment),
        }
    }
    Cow::Owned(format!("/{}", segments.join("/")))
}

/// Replaces `%` and two digits by the letter for which they stand, if it is ASCII.
fn decoded(path: &str) -> String {
    let mut text = String::with_capacity(path.len());
    let mut rest = path;
    while let Some((before, after)) = rest.split_once('%') {
        text.push_str(before);
        let octet = after.get(..2).filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
        match octet.and_then(|digits| u8::from_str_radix(digits, 16).ok()).filter(u8::is_ascii) {
            Some(octet) => {
                text.push(char::from(octet));
                rest = &after[2..];
            }
            None => {
                text.push('%');
                rest = after;
            }
        }
    }
    text + rest
}

fn is_under(path: &str, prefix: &str) -> bool {
    path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// The host without the port; an IPv6 address keeps its brackets.
pub fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) && !name.ends_with(':') => name,
        _ => host,
    }
}

/// In lower case and without the final dot.
fn lowercase<'a>(host: &str, buffer: &'a mut [u8; HOST_MAX]) -> Option<&'a str> {
    let host = host.strip_suffix('.').unwrap_or(host).as_bytes();
    let room = buffer.get_mut(..host.len())?;
    room.copy_from_slice(host);
    room.make_ascii_lowercase();
    std::str::from_utf8(room).ok()
}

/// Why rules cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RouteError {
    /// A rule names a backend that does not exist.
    #[error("a route leads to the backend {0:?}, which does not exist")]
    Backend(String),
    #[error("more than 65 535 routes lead to one backend")]
    TooMany,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn routes() -> Routes {
        let rule = |host: &str, path: &str, backend: &str| Rule {
            host: host.into(),
            path: path.into(),
            ..Rule::all_to(backend)
        };
        let rules = [
            rule("", "/", "rest"),
            rule("Example.org", "/", "site"),
            rule("example.org", "/api/", "api"),
            rule("*.example.org", "/", "sub"),
            rule("*.deep.example.org", "/x", "deep"),
        ];
        Routes::new(&rules, &["rest", "site", "api", "sub", "deep"]).unwrap()
    }

    #[test]
    fn what_a_rule_prints_parses_to_the_same() {
        for text in [
            "* app",
            "example.org app",
            "*.example.org/api app",
            "*/static files",
            "*/live app unbuffered",
            "*/v1 llm unbuffered cost=1m30s units=usage.total_tokens:50/s",
            "* llm units_header=x-cost:9/s",
        ] {
            assert_eq!(text.parse::<Rule>().unwrap().to_string(), text);
        }
        for text in [
            "",
            "example.org",
            "a..b app",
            "* a b",
            "*/x?y app",
            "a*b app",
            "* a cost=x",
            "* a units=n",
            "* a =",
            "* a x=1:1/s",
        ] {
            assert!(text.parse::<Rule>().is_err(), "{text}");
        }
    }

    #[test]
    fn the_nearest_host_and_the_longest_path_win() {
        let routes = routes();
        let name = |host: &str, path: &str| {
            let names = ["rest", "site", "api", "sub", "deep"];
            routes.find(host, path).map(|route| names[route.backend])
        };
        assert_eq!(name("example.org", "/"), Some("site"));
        assert_eq!(name("EXAMPLE.ORG.:8080", "/api/v1"), Some("api"));
        assert_eq!(name("example.org", "/api"), Some("api"));
        assert_eq!(name("example.org", "/apix"), Some("site"));
        assert_eq!(name("a.example.org", "/"), Some("sub"));
        assert_eq!(name("a.deep.example.org", "/x/1"), Some("deep"));
        assert_eq!(name("a.deep.example.org", "/y"), Some("sub"));
        assert_eq!(name("other.net", "/"), Some("rest"));
        assert_eq!(name("[::1]:80", "/"), Some("rest"));
    }

    #[test]
    fn a_path_goes_where_it_means() {
        let routes = routes();
        let is_api = |path: &str| routes.find("example.org", path).map(|route| route.backend) == Some(2);
        for path in [
            "/%61pi",
            "/%61%70%69/x",
            "/x/../api",
            "/x/..%2fapi",
            "/x/%2e%2e/api/y",
            "/./api",
            "//api",
            "/../../api",
            "/x/.%2E//api/",
            "/api/%ff%",
        ] {
            assert!(is_api(path), "{path}");
        }
        for path in
            ["/api/../x", "/api/%2e%2E", "/%2561pi", "/x/api", "/api%2", "/api%3fx", "/apix", "/.api", "/%", "/%é/"]
        {
            assert!(!is_api(path), "{path}");
        }
    }

    #[test]
    fn strange_hosts_find_nothing_but_the_rest() {
        let routes = routes();
        for host in ["", ".", "..", &"x".repeat(300), "é.example.org"] {
            let _ = routes.find(host, "/");
        }
        assert_eq!(without_port("[2001:db8::1]:443"), "[2001:db8::1]");
        assert_eq!(without_port("[2001:db8::1]"), "[2001:db8::1]");
        assert_eq!(without_port("h:80"), "h");
    }

    #[test]
    fn a_rule_to_nowhere_is_refused() {
        let rule = Rule::all_to("gone");
        assert!(matches!(Routes::new(&[rule], &["here"]), Err(RouteError::Backend(name)) if name == "gone"));
    }
}
