//! Which names backends, groups and the parts of host names may have.

/// Whether it can be the name of a backend or group, or a part of a host name.
pub(crate) fn is_label(text: &str) -> bool {
    (1..=64).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}
