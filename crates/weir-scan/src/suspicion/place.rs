//! Where something that a document refers to is: on its author's own disk, on a server of the author's site, or anywhere.

/// How far away something is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Distance {
    /// In the document, or on a drive of the computer.
    Here,
    /// On a computer with a short name, which only the same network knows.
    House,
    /// Anywhere else.
    Far,
}

/// How far away a target is, and whether a file server gives it, who learns the reader's login.
pub(super) fn distance(target: &[u8]) -> (Distance, bool) {
    let text = String::from_utf8_lossy(target).trim().to_lowercase().replace('\\', "/").replace("%5c", "/");
    let text = text.strip_prefix("url:").unwrap_or(&text);
    if let Some(path) = text.strip_prefix("file:") {
        return file(path);
    }
    if text.starts_with("//") {
        return server(text.trim_start_matches('/'));
    }
    match text.split_once(':') {
        Some((drive, _)) if drive.len() == 1 => (Distance::Here, false),
        Some((scheme, _)) if is_scheme(scheme) => (Distance::Far, false),
        _ => (Distance::Here, false),
    }
}

/// A file server of somebody else: to ask it is to tell it one's login.
pub(super) fn is_foreign_server(target: &[u8]) -> bool {
    distance(target) == (Distance::Far, true)
}

fn is_scheme(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_lowercase())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
}

fn file(path: &str) -> (Distance, bool) {
    let rest = path.trim_start_matches('/');
    let slashes = path.len() - rest.len();
    let drive = rest.as_bytes().get(1).is_some_and(|byte| matches!(byte, b':' | b'|'));
    let host = rest.split('/').next().unwrap_or_default();
    // Three slashes begin a path of this computer, unless it looks like a server.
    if drive || slashes < 2 || (slashes == 3 && !is_far(host)) {
        return (Distance::Here, false);
    }
    server(rest)
}

fn server(rest: &str) -> (Distance, bool) {
    let mut pieces = rest.split('/').filter(|piece| !piece.is_empty());
    match pieces.next().unwrap_or_default() {
        "?" | "." => match pieces.next() {
            Some("unc") => by_host(pieces.next().unwrap_or_default()),
            _ => (Distance::Here, false),
        },
        host => by_host(host),
    }
}

fn by_host(host: &str) -> (Distance, bool) {
    (if is_far(host) { Distance::Far } else { Distance::House }, true)
}

/// A name with a dot, an address in any form, or with a port as WebDAV takes it.
fn is_far(host: &str) -> bool {
    let number =
        host.starts_with(|c: char| c.is_ascii_digit()) && host.chars().all(|c| c.is_ascii_hexdigit() || c == 'x');
    number || host.contains(['.', '@', ':', '%', '[']) || host.starts_with("xn--")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drive_is_here_a_short_name_is_in_the_house_and_all_else_is_far() {
        for here in [
            "file:///C:\\Users\\ann\\Report.dotx",
            "C:\\a.dotx",
            "settings.xml",
            "file:///home/ann/a.dotx",
            "\\\\?\\C:\\a",
            "",
            "a b",
        ] {
            assert_eq!(distance(here.as_bytes()), (Distance::Here, false), "{here}");
        }
        for house in [
            "file:///\\\\fileserver\\Vorlagen\\a.dotx",
            "\\\\fs1\\a",
            "file://fs1/a",
            "file:////fs1/a",
            "\\\\?\\UNC\\fs1\\a",
        ] {
            assert_eq!(distance(house.as_bytes()), (Distance::House, true), "{house}");
        }
        for far in [
            "\\\\evil.example\\s",
            "file://evil.example/s",
            "file:///\\\\192.0.2.1\\s",
            "//evil@80/s",
            "\\\\evil@SSL\\s",
            "file:///evil.example/s",
            "\\\\3232235777\\s",
            "\\/evil.example/s",
            "\\\\?\\UNC\\evil.example\\s",
        ] {
            assert_eq!(distance(far.as_bytes()), (Distance::Far, true), "{far}");
        }
        for far in ["https://evil.example/a", "HTTP://evil/a", "mhtml:http://evil.example", "ms-word:ofe|u|http://x"] {
            assert_eq!(distance(far.as_bytes()), (Distance::Far, false), "{far}");
        }
    }
}
