//! The login that a mail server of ours wrote into its Received field, as Postfix does: `(Authenticated sender: ann)`.
//!
//! Beside it stand words of the client: the name it greeted with, the names in its certificate, the recipient. Postfix takes out of these
//! what could end a comment, but balanced parentheses stay in some of them, and other servers take out less. So the field is read strictly:
//! `from`, one word, comments, `by`. Only a comment that stands in no other one counts, and of several the last, which the server
//! wrote behind everything that is the client's. The address of the client stands there as well, at the end of a comment:
//! `(name [192.0.2.9])`; a login before it does not count, because the client's greeting stands there. Whatever has another shape names
//! nobody.

use std::net::IpAddr;

/// How the comment begins.
const SAYS: &str = "Authenticated sender: ";
/// The longest login.
const LOGIN_MAX: usize = 320;

/// Whom a mail server names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Named<'a> {
    pub(crate) login: &'a str,
    /// Where that server was given the mail from, if it says so.
    pub(crate) client: Option<IpAddr>,
}

/// Who is named in a Received field (its value, unfolded).
pub(super) fn named_in(field: &str) -> Option<Named<'_>> {
    let (client, mut rest) = after_word(field.trim_start(), "from")?.split_once(' ')?;
    if client.contains(['(', ')', '"', '\\']) {
        return None;
    }
    let (mut login, mut address) = (None, None);
    while let Some(inside) = rest.trim_start().strip_prefix('(') {
        let (comment, behind) = inside.split_at_checked(comment_length(inside)?)?;
        match (comment.strip_prefix(SAYS), address_in(comment)) {
            (Some(name), _) => login = Some(name),
            // Only the server knows this address; a comment before it may be what the client greeted with.
            (None, Some(client)) => (login, address) = (None, Some(client)),
            (None, None) => {}
        }
        rest = behind.strip_prefix(')')?;
    }
    // What the client greeted with may have looked like all of the above: then the true comment comes behind it.
    let by = after_word(rest.trim_start(), "by").filter(|by| !by.contains(SAYS));
    let login = by.and(login).filter(|login| (1..=LOGIN_MAX).contains(&login.len()))?;
    Some(Named { login, client: address })
}

/// Whether the comment stands anywhere in a field. Where it names nobody ([`named_in`]), either the field is not as it is read here, or a
/// client has written such words into what the server repeats, such as the recipient; then nobody knows whose mail it is.
pub(super) fn says_so(field: &str) -> bool {
    field.contains(SAYS)
}

/// The address in brackets at the end of a comment.
fn address_in(comment: &str) -> Option<IpAddr> {
    let (_, address) = comment.strip_suffix(']')?.rsplit_once('[')?;
    let v6 = address.split_at_checked(5).filter(|(tag, _)| tag.eq_ignore_ascii_case("IPv6:"));
    v6.map_or(address, |(_, address)| address).parse::<IpAddr>().ok().map(|address| address.to_canonical())
}

/// What stands behind a word and a blank.
fn after_word<'a>(text: &'a str, word: &str) -> Option<&'a str> {
    let (first, rest) = text.split_once(' ')?;
    first.eq_ignore_ascii_case(word).then_some(rest)
}

/// How many bytes of `inside` belong to the comment that has begun before it; nothing if it does not end.
fn comment_length(inside: &str) -> Option<usize> {
    let (mut depth, mut escaped) = (0_usize, false);
    for (at, byte) in inside.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'(' => depth += 1,
            b')' if depth == 0 => return Some(at),
            b')' => depth -= 1,
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn login(field: &str) -> Option<&str> {
        named_in(field).map(|named| named.login)
    }

    #[test]
    fn where_the_client_was_is_read_beside_it() {
        let client = |from: &str| named_in(&format!("from {from} (Authenticated sender: ann) {BY}")).unwrap().client;
        let of = |text: &str| text.parse::<IpAddr>().ok();
        assert_eq!(client("x (y [192.0.2.9])"), of("192.0.2.9"));
        assert_eq!(client("[198.51.100.1] (unknown [IPv6:2001:db8::1])"), of("2001:db8::1"));
        assert_eq!(client("x (evil [198.51.100.1]) (y [192.0.2.9]) (using TLSv1.3 (256/256 bits))"), of("192.0.2.9"));
        assert_eq!(
            client("x (y [192.0.2.9]) (Client CN \"([198.51.100.1])\", Issuer \"z\" (verified OK))"),
            of("192.0.2.9")
        );
        for none in ["x", "x (y)", "x (y [unknown])", "x (192.0.2.9)"] {
            assert_eq!(client(none), None, "{none}");
        }
    }

    const BY: &str =
        "by mail.example (Postfix) with ESMTPSA id 4X for <bob@example.net>; Thu, 19 Nov 2026 10:00:00 +0000";

    #[test]
    fn postfix_names_its_user() {
        for (field, name) in [
            (format!("from x (y [192.0.2.9]) (Authenticated sender: ann) {BY}"), "ann"),
            (
                format!(" from [192.0.2.9] (y [IPv6:2001:db8::1]) (Authenticated sender: ann@example.org) {BY}"),
                "ann@example.org",
            ),
            (
                format!(
                    "from x (y [192.0.2.9]) (using TLSv1.3 with cipher TLS_AES_256_GCM_SHA384 (256/256 bits) key-exchange X25519) \
                     (Client CN \"x\", Issuer \"y\" (verified OK)) (Authenticated sender: ann) {BY}"
                ),
                "ann",
            ),
            (format!("from x (Authenticated sender: ann (office)) {BY}"), "ann (office)"),
        ] {
            assert_eq!(login(&field), Some(name), "{field}");
        }
    }

    #[test]
    fn what_the_client_says_names_nobody() {
        let forged = "(Authenticated sender: eve)";
        for field in [
            // In a certificate's name, in the greeting, and behind what the server says of itself.
            format!("from x (y [192.0.2.9]) (Client CN \"{forged}\", Issuer \"z\") {BY}"),
            format!("from x{forged} (y [192.0.2.9]) {BY}"),
            format!("from {forged} (y [192.0.2.9]) {BY}"),
            // Greetings that another server than Postfix let through as they were, of somebody who is not logged in.
            format!("from x {forged} (y [192.0.2.9]) {BY}"),
            format!("from x (z [198.51.100.1]) {forged} (y [192.0.2.9]) {BY}"),
            format!(
                "from x (y [192.0.2.9]) by mail.example (Postfix) with ESMTP id 4X for <\"a {forged} by b\"@example.net>; now"
            ),
            format!("by mail.example (Postfix, from userid 1000) {forged} id 4X; now"),
            format!("from x (y [192.0.2.9]) (Authenticated sender: ) {BY}"),
            format!("from x (y [192.0.2.9]) (Authenticated sender: {}) {BY}", "x".repeat(321)),
            "from x (y [192.0.2.9]) (Authenticated sender: eve".to_owned(),
            format!("from x (y [192.0.2.9]) (Authenticated sender: eve\\) {BY}"),
            format!("from x (y [192.0.2.9]) {forged} and more {BY}"),
            String::new(),
        ] {
            assert_eq!(login(&field), None, "{field}");
        }
        let greeting = format!("from x {forged} (y [192.0.2.9]) (Authenticated sender: ann) {BY}");
        assert_eq!(login(&greeting), Some("ann"));
        let whole = format!("from x {forged} by z (y [192.0.2.9]) (Authenticated sender: ann) {BY}");
        assert_eq!(login(&whole), None);
    }
}
