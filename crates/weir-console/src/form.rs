//! The fields of a form or a query: names with values. A name may occur more than once.

/// The fields in their order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Form(Vec<(String, String)>);

/// More fields than any page of ours has.
const FIELDS_MAX: usize = 2_000;

impl Form {
    /// Reads `a=1&b=2`, percent-encoded; a broken escape is kept as it is.
    pub fn read(text: &[u8]) -> Form {
        let pair = |field: &[u8]| {
            let at = field.iter().position(|byte| *byte == b'=').unwrap_or(field.len());
            let (name, value) = field.split_at(at);
            (decoded(name), decoded(value.get(1..).unwrap_or_default()))
        };
        let fields = text.split(|byte| *byte == b'&').filter(|field| !field.is_empty());
        Form(fields.take(FIELDS_MAX).map(pair).collect())
    }

    /// The first value of a name; empty if there is none. Blanks around it do not count.
    pub fn value(&self, name: &str) -> &str {
        self.0.iter().find(|(key, _)| key == name).map_or("", |(_, value)| value.trim())
    }

    /// The first value of a name exactly as it was typed.
    pub fn exact(&self, name: &str) -> &str {
        self.0.iter().find(|(key, _)| key == name).map_or("", |(_, value)| value)
    }

    /// All values of a name.
    pub fn values(&self, name: &str) -> Vec<String> {
        self.0.iter().filter(|(key, _)| key == name).map(|(_, value)| value.clone()).collect()
    }

    /// Whether a box was ticked.
    pub fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(key, _)| key == name)
    }
}

fn decoded(text: &[u8]) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&first, behind)) = rest.split_first() {
        let escaped = (first == b'%').then(|| behind.split_at_checked(2)).flatten();
        let byte = escaped.and_then(|(digits, _)| {
            let digits = std::str::from_utf8(digits).ok().filter(|digits| !digits.starts_with('+'))?;
            u8::from_str_radix(digits, 16).ok()
        });
        match (byte, escaped) {
            (Some(byte), Some((_, after))) => {
                bytes.push(byte);
                rest = after;
            }
            _ => {
                bytes.push(if first == b'+' { b' ' } else { first });
                rest = behind;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_decoded_and_may_repeat() {
        let form = Form::read(b"m=a&m=b%20c&reason=it+is+%C3%A9&empty=&flag&broken=%zz%4");
        assert_eq!(form.values("m"), ["a", "b c"]);
        assert_eq!((form.value("reason"), form.value("empty"), form.value("nothing")), ("it is é", "", ""));
        assert!(form.has("flag") && !form.has("other"));
        assert_eq!(form.value("broken"), "%zz%4");
        assert_eq!(Form::read(b"p=+x+").exact("p"), " x ");
    }
}
