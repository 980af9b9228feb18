//! The users of the benchmark, and whom each of them has written to.

pub(crate) const USERS: u32 = 10_000;
/// Of each user.
pub(crate) const CORRESPONDENTS: u32 = 2_000;

/// Of all of them.
pub(crate) const PASSWORD: &str = "correct horse battery";
/// Of that password, with as little work as argon2id can do: 8 KiB, once.
pub(crate) const PASSWORD_HASH: &str =
    "$argon2id$v=19$m=8,t=1,p=1$qVgyWxWFp/+gykBjk4U1Fw$w9jvFkxpZHKmkOFs8pqqhlZg9K5+3dufoYGC7vkdOHo";

/// The login of a user.
pub(crate) fn user(number: u32) -> String {
    format!("user{number:05}")
}

/// Somebody whom a user has written to before.
pub(crate) fn correspondent(user: u32, number: u32) -> String {
    format!("c{}.of{user}@people{}.example.net", number % CORRESPONDENTS, number % 50)
}
