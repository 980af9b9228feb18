//! Lists of tags, `a=b; c=d`, in which keys, signatures and policies are written (RFC 6376 section 3.2).

/// Reads a list; none if the text is not a list, or if a tag occurs twice, because nobody could say which one counts.
pub(super) fn tags(text: &str) -> Option<Vec<(&str, &str)>> {
    let mut tags: Vec<(&str, &str)> = Vec::new();
    let text = text.trim_matches(is_blank);
    for tag in text.strip_suffix(';').unwrap_or(text).split(';') {
        let (name, value) = tag.split_once('=')?;
        let (name, value) = (name.trim_matches(is_blank), value.trim_matches(is_blank));
        let plain = name.starts_with(|c: char| c.is_ascii_alphabetic())
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        if !plain || tags.iter().any(|(known, _)| *known == name) {
            return None;
        }
        tags.push((name, value));
    }
    Some(tags)
}

pub(super) fn value<'a>(tags: &[(&str, &'a str)], name: &str) -> Option<&'a str> {
    tags.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
}

/// Whether a list with colons names one of these.
pub(super) fn names_one_of(list: &str, wanted: &[&str]) -> bool {
    list.split(':').any(|one| wanted.iter().any(|wanted| one.trim_matches(is_blank).eq_ignore_ascii_case(wanted)))
}

fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r' | '\n')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_read_and_what_is_none_is_refused() {
        assert_eq!(tags(" v=1; a = b c ;\r\n\td=e=f;"), Some(vec![("v", "1"), ("a", "b c"), ("d", "e=f")]));
        assert_eq!(value(&tags("p=; v=x").unwrap(), "p"), Some(""));
        for bad in ["", ";", "v", "v=1; v=2", "v=1;; a=b", "=1", "1a=b"] {
            assert_eq!(tags(bad), None, "{bad:?}");
        }
        assert!(names_one_of("sha1 : SHA256", &["sha256"]) && !names_one_of("sha1", &["sha256"]));
    }
}
