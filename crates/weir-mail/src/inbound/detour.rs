//! Local parts that name another destination: `user%other.example@ours`, `other.example!user@ours`, `"user@other"@ours`.
//!
//! The next server may be an old one that follows such a route, and it trusts us: then we would be an open relay. So they are refused, and
//! so are names that would mean a file or a program to such a server (what Exim's example configuration refuses for domains that it relays
//! to).

/// Whether a local part, with or without quotes, leads elsewhere.
pub(super) fn leads_elsewhere(local: &str) -> bool {
    let bare = local.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(local);
    bare.contains(['@', '%', '!']) || bare.starts_with(['.', '/', '|']) || bare.contains("/../")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_in_disguise_are_seen() {
        for local in [
            "user%evil.example",
            "evil.example!user",
            "\"user@evil.example\"",
            "\"user%evil.example\"",
            "a!b!c",
            "/etc/passwd",
            "|rm",
            "\"|rm -rf\"",
            "a/../../b",
            "\".a\"",
        ] {
            assert!(leads_elsewhere(local), "{local}");
        }
        for local in ["ann", "ann+tag", "\"ann b\"", "a.b", "a/b", "o'neil", "ann=x", "jürgen", "a#b", "SRS0=x=y=z"] {
            assert!(!leads_elsewhere(local), "{local}");
        }
    }
}
