//! Tags and attributes of HTML and XML, read as loosely as browsers and Office read them. Cost: one pass.

/// What stands between `<` and `>`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tag<'t> {
    /// Everything in it, with its name.
    pub(crate) text: &'t [u8],
    /// Where its text begins.
    pub(crate) begin: usize,
}

impl<'t> Tag<'t> {
    /// Where what follows it begins.
    pub(crate) fn end(&self) -> usize {
        self.begin + self.text.len() + 1
    }

    /// Whether this is its name, whatever the prefix.
    pub(crate) fn is(&self, name: &str) -> bool {
        let end =
            self.text.iter().position(|byte| byte.is_ascii_whitespace() || *byte == b'/').unwrap_or(self.text.len());
        local(&self.text[..end]).eq_ignore_ascii_case(name.as_bytes())
    }

    /// Its attributes as they stand.
    pub(crate) fn attributes(&self) -> Attributes<'t> {
        let name = self.text.iter().position(|byte| byte.is_ascii_whitespace() || *byte == b'/');
        Attributes { rest: name.map_or(&[], |end| &self.text[end..]) }
    }

    /// The value of an attribute, whatever the prefix, with its references resolved.
    pub(crate) fn value(&self, name: &str) -> Option<Vec<u8>> {
        let (_, value) = self.attributes().find(|(own, _)| local(own).eq_ignore_ascii_case(name.as_bytes()))?;
        Some(resolved(value))
    }
}

/// A name without its prefix.
pub(crate) fn local(name: &[u8]) -> &[u8] {
    memchr::memrchr(b':', name).map_or(name, |at| &name[at + 1..])
}

/// All tags but those that only end an element.
pub(crate) fn tags(data: &[u8]) -> impl Iterator<Item = Tag<'_>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        loop {
            let begin = at + memchr::memchr(b'<', data.get(at..)?)? + 1;
            at = begin;
            if data.get(begin).is_some_and(|byte| byte.is_ascii_alphabetic() || matches!(byte, b'!' | b'?' | b'_')) {
                let tag = Tag { text: &data[begin..begin + length(&data[begin..])], begin };
                at = tag.end().min(data.len());
                return Some(tag);
            }
        }
    })
}

/// How long a tag is. A `>` in quotes does not end it; quotes count where a value begins, and anywhere in a declaration.
fn length(text: &[u8]) -> usize {
    // The content of comments and sections is read like everything else.
    if let Some(mark) = [b"!--".as_slice(), b"![CDATA["].iter().find(|mark| text.starts_with(mark)) {
        return mark.len();
    }
    let (mut at, mut value) = (0, text.first() == Some(&b'!'));
    let declares = value;
    while let Some(byte) = text.get(at) {
        match byte {
            b'>' => return at,
            b'"' | b'\'' if value => match memchr::memchr(*byte, &text[at + 1..]) {
                Some(length) => at += length + 1,
                None => return memchr::memchr(b'>', &text[at..]).map_or(text.len(), |length| at + length),
            },
            _ => {}
        }
        value = declares || *byte == b'=' || (value && byte.is_ascii_whitespace());
        at += 1;
    }
    text.len()
}

/// Names and values.
pub(crate) struct Attributes<'t> {
    rest: &'t [u8],
}

impl<'t> Iterator for Attributes<'t> {
    type Item = (&'t [u8], &'t [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let blank = |byte: &u8| byte.is_ascii_whitespace() || *byte == b'/';
        let from = self.rest.iter().position(|byte| !blank(byte))?;
        let text = &self.rest[from..];
        // A sign of equality at the start belongs to the name.
        let end = text.iter().skip(1).position(|byte| blank(byte) || *byte == b'=').map_or(text.len(), |end| end + 1);
        let (name, behind) = text.split_at(end);
        let Some(value) = behind.trim_ascii_start().strip_prefix(b"=").map(<[u8]>::trim_ascii_start) else {
            self.rest = behind;
            return Some((name, b""));
        };
        let quoted = value.first().filter(|byte| matches!(byte, b'"' | b'\''));
        let (value, rest) = match quoted.and_then(|quote| Some((1, memchr::memchr(*quote, &value[1..])? + 1))) {
            Some((from, end)) => (&value[from..end], &value[end + 1..]),
            None => value.split_at(value.iter().position(u8::is_ascii_whitespace).unwrap_or(value.len())),
        };
        self.rest = rest;
        Some((name, value))
    }
}

/// Names of references to signs that matter in a script or an address.
const NAMED: [(&str, u8); 27] = [
    ("amp", b'&'),
    ("lt", b'<'),
    ("gt", b'>'),
    ("quot", b'"'),
    ("apos", b'\''),
    ("colon", b':'),
    ("Tab", b'\t'),
    ("NewLine", b'\n'),
    ("lpar", b'('),
    ("rpar", b')'),
    ("period", b'.'),
    ("sol", b'/'),
    ("bsol", b'\\'),
    ("equals", b'='),
    ("semi", b';'),
    ("comma", b','),
    ("lsqb", b'['),
    ("rsqb", b']'),
    ("lbrack", b'['),
    ("rbrack", b']'),
    ("lcub", b'{'),
    ("rcub", b'}'),
    ("lbrace", b'{'),
    ("rbrace", b'}'),
    ("plus", b'+'),
    ("excl", b'!'),
    ("num", b'#'),
];

/// A reference behind its `&`: the sign, and how long it is.
fn reference(text: &[u8]) -> Option<(char, usize)> {
    let Some(number) = text.strip_prefix(b"#") else {
        let (name, sign) = NAMED.iter().find(|(name, _)| {
            text.starts_with(name.as_bytes()) && !text.get(name.len()).is_some_and(u8::is_ascii_alphanumeric)
        })?;
        return Some((char::from(*sign), name.len() + usize::from(text.get(name.len()) == Some(&b';'))));
    };
    let (radix, digits) = match number.strip_prefix(b"x").or_else(|| number.strip_prefix(b"X")) {
        Some(digits) => (16, digits),
        None => (10, number),
    };
    let count = digits.iter().take_while(|byte| char::from(**byte).is_digit(radix)).count();
    let significant = digits[..count].iter().skip_while(|byte| **byte == b'0').count();
    let text =
        std::str::from_utf8(&digits[count - significant..count]).ok().filter(|text| (1..=8).contains(&text.len()))?;
    let sign = char::from_u32(u32::from_str_radix(text, radix).ok()?)?;
    let length = number.len() - digits.len() + 1 + count;
    Some((sign, length + usize::from(digits.get(count) == Some(&b';'))))
}

/// A text with its references resolved.
pub(crate) fn resolved(text: &[u8]) -> Vec<u8> {
    let (mut out, mut rest) = (Vec::with_capacity(text.len()), text);
    while let Some(at) = memchr::memchr(b'&', rest) {
        out.extend_from_slice(&rest[..at]);
        rest = &rest[at + 1..];
        match reference(rest) {
            Some((sign, length)) => {
                out.extend_from_slice(sign.encode_utf8(&mut [0; 4]).as_bytes());
                rest = &rest[length..];
            }
            None => out.push(b'&'),
        }
    }
    out.extend_from_slice(rest);
    out
}

/// Whether a text has references to characters that nobody needs to write in this way: letters, digits, and the punctuation of scripts and
/// addresses.
pub(crate) fn is_veiled(text: &[u8]) -> bool {
    let veiled = |sign: char| sign.is_ascii_alphanumeric() || "<>:()=[]{}./\\!\t\r\n".contains(sign);
    memchr::memchr_iter(b'&', text).any(|at| reference(&text[at + 1..]).is_some_and(|(sign, _)| veiled(sign)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_and_attributes() {
        let text = b"a < b <s:Script x='>' y = \"1\" z=2/><!ENTITY a \"<b>\"></p>";
        let found: Vec<Tag<'_>> = tags(text).collect();
        assert_eq!(found.len(), 2);
        assert!(found[0].is("script"));
        let attributes: Vec<_> = found[0].attributes().collect();
        assert_eq!(attributes, [(&b"x"[..], &b">"[..]), (b"y", b"1"), (b"z", b"2/")]);
        assert_eq!(found[1].text, b"!ENTITY a \"<b>\"");
    }

    #[test]
    fn references() {
        assert_eq!(resolved(b"&#106;&#x61&#00118;a&colon;&amp;x &b&#xffffffff;"), b"java:&x &b&#xffffffff;");
        assert!(is_veiled(b"a&#9;b") && !is_veiled(b"?a=1&b=2&amp;c=3&#8211;&quot;"));
    }

    #[test]
    fn hostile_text_ends() {
        for text in ["<", "<a b=\"", "<!'", "&#", "<a =\"'"] {
            let text = text.repeat((1 << 18) / text.len());
            assert!(tags(text.as_bytes()).map(|tag| tag.attributes().count()).sum::<usize>() < text.len());
            resolved(text.as_bytes());
        }
    }
}
