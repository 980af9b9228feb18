//! Formats numbers with their nouns: `1 recipient`, `25 recipients`.

/// A number with its noun.
pub(crate) fn count(number: impl TryInto<u64>, noun: &str) -> String {
    let number = number.try_into().unwrap_or(0);
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// Says how many of something wait.
pub(crate) fn wait(number: impl TryInto<u64>, noun: &str) -> String {
    let number = number.try_into().unwrap_or(0);
    format!("{} wait{}", count(number, noun), if number == 1 { "s" } else { "" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_no_plural() {
        assert_eq!(
            (count(1, "mail"), count(0, "mail"), count(25_usize, "mail")),
            ("1 mail".into(), "0 mails".into(), "25 mails".into())
        );
        assert_eq!(
            (wait(1, "recipient"), wait(2_i64, "recipient")),
            ("1 recipient waits".into(), "2 recipients wait".into())
        );
    }
}
