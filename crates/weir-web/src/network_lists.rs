//! Lists of networks from the configuration: those that are always served as known visitors, such as the crawlers of search engines, and
//! those that are refused.
//!
//! They are in the configuration, or in files: one network per line, or the JSON in which operators of crawlers publish theirs
//! (`{"prefixes": [{"ipv4Prefix": "192.0.2.0/24"}]}`). The longest prefix decides; where the same network is in both lists, it is refused.
//! Files are read at start and at a reload.

use std::fs::File;
use std::io::{self, Read};
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use crate::identity::{Network, NetworkMap, holds_all_ipv4, names_everybody};

/// What the lists say about an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Listed {
    /// It is served as a known visitor.
    Known,
    /// It is refused.
    Denied,
}

/// Both lists.
#[derive(Debug)]
pub struct NetworkLists {
    map: NetworkMap<Listed>,
    empty: bool,
}

/// Why a list cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ListError {
    #[error("cannot read the list of networks {}: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{}: {what}", path.display())]
    Content { path: PathBuf, what: String },
    #[error(
        "the known networks hold the whole world, so nobody would be a stranger (strangers = 0.0 says that, if it is meant)"
    )]
    AllKnown,
    #[error("every IPv4 address is denied and no network is known, so everybody would be refused")]
    AllDenied,
}

/// The largest file that is read.
const FILE_BYTES_MAX: u64 = 16 << 20;

impl NetworkLists {
    /// Both lists, each made of networks that were named and of files.
    pub fn read(known: (&[Network], &[String]), denied: (&[Network], &[String])) -> Result<NetworkLists, ListError> {
        let (known, denied) = (gathered(known)?, gathered(denied)?);
        if names_everybody(&known) {
            return Err(ListError::AllKnown);
        }
        if known.is_empty() && holds_all_ipv4(&denied) {
            return Err(ListError::AllDenied);
        }
        let listed = |networks: Vec<Network>, listed| networks.into_iter().map(move |network| (network, listed));
        // Of two equal networks the first one counts.
        let all: Vec<(Network, Listed)> = listed(denied, Listed::Denied).chain(listed(known, Listed::Known)).collect();
        Ok(NetworkLists { empty: all.is_empty(), map: all.into_iter().collect() })
    }

    /// What they say about this address.
    pub fn find(&self, client: IpAddr) -> Option<Listed> {
        if self.empty { None } else { self.map.find(client).copied() }
    }
}

/// The networks that were named, and those of the files.
fn gathered((named, files): (&[Network], &[String])) -> Result<Vec<Network>, ListError> {
    let mut all = named.to_vec();
    for file in files {
        all.extend(read_file(Path::new(file))?);
    }
    Ok(all)
}

fn read_file(path: &Path) -> Result<Vec<Network>, ListError> {
    let fail = |source| ListError::Read { path: path.to_owned(), source };
    let mut text = String::new();
    File::open(path).map_err(fail)?.take(FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(fail)?;
    let wrong = |what| ListError::Content { path: path.to_owned(), what };
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(wrong("larger than 16 MiB".to_owned()));
    }
    let parsed = if text.trim_start().starts_with('{') { from_json(&text) } else { from_lines(&text) };
    parsed.map_err(wrong)
}

fn from_lines(text: &str) -> Result<Vec<Network>, String> {
    let mut networks = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if !line.is_empty() {
            networks.push(line.parse().map_err(|error| format!("line {}: {line:?}: {error}", at + 1))?);
        }
    }
    Ok(networks)
}

fn from_json(text: &str) -> Result<Vec<Network>, String> {
    let document: serde_json::Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let prefixes =
        document.get("prefixes").and_then(serde_json::Value::as_array).ok_or("there is no list `prefixes`")?;
    let network = |prefix: &serde_json::Value| {
        let text = ["ipv4Prefix", "ipv6Prefix"].iter().find_map(|key| prefix.get(key)?.as_str());
        let text = text.ok_or_else(|| format!("{prefix} has no ipv4Prefix or ipv6Prefix"))?;
        text.parse().map_err(|error| format!("{text:?}: {error}"))
    };
    prefixes.iter().map(network).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(lists: &NetworkLists, address: &str) -> Option<Listed> {
        lists.find(address.parse().unwrap())
    }

    #[test]
    fn the_longest_prefix_decides_and_refusal_wins() {
        let net = |text: &str| text.parse::<Network>().unwrap();
        let known = [net("192.0.2.0/24"), net("198.51.100.0/24")];
        let denied = [net("192.0.2.128/25"), net("198.51.100.0/24")];
        let lists = NetworkLists::read((&known, &[]), (&denied, &[])).unwrap();
        assert_eq!(find(&lists, "192.0.2.1"), Some(Listed::Known));
        assert_eq!(find(&lists, "::ffff:192.0.2.200"), Some(Listed::Denied));
        assert_eq!(find(&lists, "198.51.100.1"), Some(Listed::Denied));
        assert_eq!(find(&lists, "203.0.113.1"), None);
    }

    #[test]
    fn lists_of_everybody_are_refused() {
        let nets = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<Network>>();
        let read = |known: &[&str], denied: &[&str]| NetworkLists::read((&nets(known), &[]), (&nets(denied), &[]));
        assert!(matches!(read(&["::/0"], &[]), Err(ListError::AllKnown)));
        assert!(matches!(read(&["0.0.0.0/1", "128.0.0.0/1"], &[]), Err(ListError::AllKnown)));
        assert!(matches!(read(&[], &["0.0.0.0/1", "128.0.0.0/1"]), Err(ListError::AllDenied)));
        let only = read(&["192.0.2.0/24"], &["0.0.0.0/0", "::/0"]).expect("a site for one network");
        assert_eq!(find(&only, "192.0.2.1"), Some(Listed::Known));
        assert_eq!(find(&only, "198.51.100.1"), Some(Listed::Denied));
        assert!(read(&[], &["0.0.0.0/2", "2000::/3"]).is_ok(), "large parts of the world may be denied");
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("bot.json");
        std::fs::write(&file, r#"{"prefixes": [{"ipv4Prefix": "0.0.0.0/0"}]}"#).unwrap();
        let files = [file.display().to_string()];
        assert!(matches!(NetworkLists::read((&[], &files), (&[], &[])), Err(ListError::AllKnown)), "in a file, too");
    }

    #[test]
    fn files_are_lines_or_the_json_of_crawlers() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path.display().to_string()
        };
        let lines = file("bad.txt", "# known to misbehave\n203.0.113.0/24\n\n2001:db8::/32 # all of it\n");
        let json = file(
            "bot.json",
            r#"{"creationTime": "x", "prefixes": [{"ipv6Prefix": "2001:db8:1::/48"}, {"ipv4Prefix": "192.0.2.0/27"}]}"#,
        );
        let lists = NetworkLists::read((&[], &[json]), (&[], &[lines])).unwrap();
        assert_eq!(find(&lists, "203.0.113.9"), Some(Listed::Denied));
        assert_eq!(find(&lists, "2001:db8:1::9"), Some(Listed::Known));
        for (name, text, said) in [
            ("a", "nonsense\n", "line 1"),
            ("b", "{\"prefixes\": [{}]}", "ipv4Prefix"),
            ("c", "{\"x\": 1}", "prefixes"),
        ] {
            let error = NetworkLists::read((&[], &[]), (&[], &[file(name, text)])).unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
        assert!(NetworkLists::read((&[], &["/nowhere".into()]), (&[], &[])).is_err());
    }
}
