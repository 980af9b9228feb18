//! Tags and attributes of HTML and XML, read as loosely as browsers and Office read them, and what acts in a page. Cost: one pass.

/// So much of a page or a script is looked through. Of a longer page it is what acts in it, wherever that stands: whoever wants to hide a script
/// behind megabytes would write blanks, comments and text, which do nothing.
pub(crate) const LOOKED_THROUGH: usize = 8 << 20;

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
///
/// Text in a comment, a title or a script may look like a tag with a quote that is closed far behind. A browser sees no such tag, but it sees the tags
/// between the quotes. So if a tag has a `>` in it, the tags in it behind that `>` come next.
pub(crate) fn tags(data: &[u8]) -> Tags<'_> {
    let quotes = [b'"', b'\''].map(|quote| memchr::memrchr(quote, data));
    Tags {
        data,
        at: 0,
        quotes,
        left: AGAIN_TIMES.saturating_mul(data.len()).saturating_add(AGAIN_LEAST),
        is_whole: true,
    }
}

/// How much of a text may be read again because it was in a tag: so many octets, and so many times its length. Honest texts need a small part of that.
const AGAIN_LEAST: usize = 64 << 10;
const AGAIN_TIMES: usize = 4;

/// See [`tags`].
#[derive(Debug)]
pub(crate) struct Tags<'t> {
    data: &'t [u8],
    at: usize,
    /// Where the last quote of each kind stands. Behind it, no closing quote is looked for.
    quotes: [Option<usize>; 2],
    /// How much may still be read again.
    left: usize,
    is_whole: bool,
}

impl<'t> Iterator for Tags<'t> {
    type Item = Tag<'t>;

    fn next(&mut self) -> Option<Tag<'t>> {
        loop {
            let begin = self.at + memchr::memchr(b'<', self.data.get(self.at..)?)? + 1;
            self.at = begin;
            let first = self.data.get(begin);
            if first.is_some_and(|byte| byte.is_ascii_alphabetic() || matches!(byte, b'!' | b'?' | b'_')) {
                let tag = Tag { text: &self.data[begin..begin + self.length(begin)], begin };
                self.at = self.behind(&tag);
                return Some(tag);
            }
        }
    }
}

impl Tags<'_> {
    /// Whether all tags have come so far that a browser may see.
    pub(crate) fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// From where on the next tag is looked for.
    fn behind(&mut self, tag: &Tag<'_>) -> usize {
        let end = tag.end().min(self.data.len());
        let own = match tag.text {
            // Only XML has tags that begin so: to a browser, all of it is text.
            [b'_', ..] => 0,
            text if tag.is("!DOCTYPE") => memchr::memchr(b'[', text).unwrap_or(text.len()),
            text => memchr::memchr(b'>', text).unwrap_or(text.len()),
        };
        let own = own.min(memchr::memchr(b'>', tag.text).unwrap_or(own));
        let Some(next) = memchr::memchr(b'<', &tag.text[own..]) else { return end };
        let next = tag.begin + own + next;
        match self.left.checked_sub(end - next) {
            Some(left) => {
                self.left = left;
                next
            }
            None => {
                self.is_whole = false;
                end
            }
        }
    }

    /// How long a tag is. A `>` in quotes does not end it; quotes count where a value begins, and anywhere in a declaration.
    fn length(&self, begin: usize) -> usize {
        let text = &self.data[begin..];
        // The content of comments and sections is read like everything else.
        if let Some(mark) = [b"!--".as_slice(), b"![CDATA["].iter().find(|mark| text.starts_with(mark)) {
            return mark.len();
        }
        let (mut at, mut place) = (0, if text.first() == Some(&b'!') { Place::Declaration } else { Place::Name });
        while let Some(byte) = text.get(at) {
            let is_quote = matches!(byte, b'"' | b'\'') && matches!(place, Place::Declaration | Place::Equals);
            if is_quote {
                let last = self.quotes[usize::from(*byte == b'\'')];
                let closed =
                    last.filter(|last| *last > begin + at).and_then(|_| memchr::memchr(*byte, &text[at + 1..]));
                let Some(length) = closed else {
                    return memchr::memchr(b'>', &text[at..]).map_or(text.len(), |length| at + length);
                };
                at += length + 1;
            } else if *byte == b'>' {
                return at;
            }
            place = place.behind(*byte, is_quote);
            at += 1;
        }
        text.len()
    }
}

/// Where in a tag an octet stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// In a declaration (`<!ENTITY`).
    Declaration,
    /// In the name of the tag.
    Name,
    /// Behind it or a value.
    Between,
    /// In the name of an attribute.
    Attribute,
    /// Behind that, where the sign of equality may still come.
    Named,
    /// Behind the sign of equality.
    Equals,
    /// In a value without quotes.
    Value,
}

impl Place {
    /// The place behind an octet, or behind a value in quotes (HTML Standard, sections 13.2.5.8 and 13.2.5.32 to 39).
    fn behind(self, byte: u8, was_quoted: bool) -> Place {
        let (is_blank, is_slash) = (byte.is_ascii_whitespace(), byte == b'/');
        match self {
            Place::Equals if was_quoted => Place::Between,
            Place::Equals if !is_blank => Place::Value,
            Place::Attribute | Place::Named if byte == b'=' => Place::Equals,
            Place::Name | Place::Between | Place::Attribute | Place::Named if is_slash => Place::Between,
            Place::Name | Place::Value if is_blank => Place::Between,
            Place::Attribute | Place::Named if is_blank => Place::Named,
            Place::Between | Place::Named if !is_blank => Place::Attribute,
            _ => self,
        }
    }
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

/// The scripts of a page, each from its name on to where it ends.
pub(crate) fn scripts(page: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = 0;
    std::iter::from_fn(move || {
        let begin = memchr::memchr2_iter(b'<', b':', page.get(rest..)?).find(|at| is_script(page, rest + at + 1))?;
        let from = rest + begin + 1;
        let end = script_end(page, from);
        // Behind the name of the tag that ends it.
        rest = end + 2;
        Some(&page[from..end])
    })
}

const SCRIPT: &[u8] = b"script";

fn is_script(page: &[u8], at: usize) -> bool {
    page.get(at..at + SCRIPT.len()).is_some_and(|name| name.eq_ignore_ascii_case(SCRIPT))
}

/// Where a script ends that begins at `from`. Behind `<!--` and the beginning of another script, an end tag ends only that other one (HTML Standard,
/// section 13.2.6.1). In XML, an end tag in a section ends nothing.
fn script_end(page: &[u8], from: usize) -> usize {
    let is_whole = |at: usize| {
        is_script(page, at)
            && page.get(at + SCRIPT.len()).is_none_or(|next| next.is_ascii_whitespace() || b"/>".contains(next))
    };
    let (mut in_comment, mut in_other, mut at) = (false, false, from);
    while let Some(found) = memchr::memchr2(b'<', b'-', &page[at..]) {
        at += found;
        let text = &page[at..];
        if text.starts_with(b"-->") {
            (in_comment, in_other) = (false, false);
        } else if text.starts_with(b"<!--") {
            in_comment = true;
        } else if text.starts_with(b"<![CDATA[") {
            at += memchr::memmem::find(text, b"]]>").unwrap_or(text.len() - 1);
        } else if text.starts_with(b"</") && is_whole(at + 2) {
            if !in_other {
                return at;
            }
            in_other = false;
        } else if in_comment && text[0] == b'<' && is_whole(at + 1) {
            in_other = true;
        }
        at += 1;
    }
    page.len()
}

/// Where addresses lead that are none of the web's: scripts, pages and files in an address, other computers, commands of Windows.
const STRANGE: [&str; 9] = ["javascript:", "vbscript:", "data:", "file:", "search", "ms-", "\\", "//", "url="];
/// And what may stand in a page as often as it likes.
const HARMLESS: [&str; 6] =
    ["data:image/", "data:font/", "data:audio/", "data:video/", "data:text/css", "data:application/font"];

/// What acts in a page, or may make something act: its scripts, what events run, pages in the page, strange addresses in attributes and at the
/// beginning of a text, and what XML declares. The rest is left out: text, comments, pictures, links to the web. If it is longer than
/// [`LOOKED_THROUGH`], there is more.
pub(crate) fn acting(page: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for script in scripts(page) {
        put(&mut out, &[b"<", script, b"</script>\n"]);
    }
    let mut all = tags(page);
    for tag in all.by_ref() {
        if out.len() > LOOKED_THROUGH {
            break;
        }
        let text = page.get(tag.begin + tag.text.len()..).unwrap_or_default();
        let text = text.strip_prefix(b">").unwrap_or(text);
        let text = &text[..memchr::memchr(b'<', text).unwrap_or(text.len())];
        let leads = is_strange(text);
        if tag.is("?xml-stylesheet") || tag.is("!ENTITY") {
            put(&mut out, &[b"<", tag.text, b">\n"]);
        } else {
            tag.acting(leads, &mut out);
        }
        if leads {
            put(&mut out, &[&text[..text.len().min(STRANGE_MAX)]]);
        }
    }
    if !all.is_whole() {
        out.resize(LOOKED_THROUGH + 1, b' ');
    }
    out
}

/// Adds pieces as long as there is room, and one octet more, by which it is seen that there was none.
fn put(out: &mut Vec<u8>, pieces: &[&[u8]]) {
    for piece in pieces {
        let room = (LOOKED_THROUGH + 1).saturating_sub(out.len());
        out.extend_from_slice(&piece[..piece.len().min(room)]);
    }
}

/// Of an address so much is looked at, and of a text that begins with one so much is kept.
const STRANGE_MAX: usize = 4096;

/// Whether a value or a text begins with an address of those that matter. Browsers pass over white space and control characters in it.
fn is_strange(text: &[u8]) -> bool {
    let text = &text[text.iter().position(|byte| *byte > b' ').unwrap_or(text.len())..];
    // Most begin with other letters, and nothing has to be made of them.
    if !text.first().is_some_and(|first| b"jvdfsmu\\/&".contains(&first.to_ascii_lowercase())) {
        return false;
    }
    let head: Vec<u8> = beginning(text)
        .iter()
        .filter(|byte| !byte.is_ascii_whitespace() && !byte.is_ascii_control())
        .map(u8::to_ascii_lowercase)
        .collect();
    let begins = |words: &[&str]| words.iter().any(|word| head.starts_with(word.as_bytes()));
    begins(&STRANGE) && (head.starts_with(b"data:image/svg") || !begins(&HARMLESS))
}

impl Tag<'_> {
    /// Writes the tag with those of its attributes that act; nothing if there are none, and it does not act by itself.
    fn acting(&self, always: bool, out: &mut Vec<u8>) {
        let is_meta = self.is("meta");
        let acts = |name: &[u8], value: &[u8]| {
            let own = local(name);
            is_meta
                || name.get(..5).is_some_and(|start| start.eq_ignore_ascii_case(b"xmlns"))
                || own.get(..2).is_some_and(|start| start.eq_ignore_ascii_case(b"on"))
                || own.eq_ignore_ascii_case(b"srcdoc")
                || own.eq_ignore_ascii_case(b"download")
                || is_strange(value)
        };
        let begun = out.len();
        let end = self.text.iter().position(|byte| byte.is_ascii_whitespace() || *byte == b'/');
        put(out, &[b"<", &self.text[..end.unwrap_or(self.text.len())]]);
        let bare = out.len();
        for (name, value) in self.attributes().filter(|(name, value)| acts(name, value)) {
            let quote: &[u8] = if value.contains(&b'"') { b"'" } else { b"\"" };
            put(out, &[b" ", name, b"=", quote, value, quote]);
        }
        if out.len() == bare && !always && !self.is("foreignObject") {
            out.truncate(begun);
        } else {
            put(out, &[b">\n"]);
        }
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

/// The beginning of an address or a text, with its references resolved. In a long one white space and control characters do not count, because browsers
/// pass over them in an address.
pub(crate) fn beginning(text: &[u8]) -> Vec<u8> {
    if text.len() <= STRANGE_MAX {
        return resolved(text);
    }
    let mut dense = resolved(text);
    dense.retain(|byte| !byte.is_ascii_whitespace() && !byte.is_ascii_control());
    dense.truncate(STRANGE_MAX);
    dense
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
    fn what_acts_in_a_page_is_told_from_the_rest() {
        let told = |page: &str| String::from_utf8(acting(page.as_bytes())).unwrap();
        for page in [
            "<html><!-- a comment --><p class=a title='x'>text</p><a href='https://a.example/'>b</a></html>",
            "<img src=\"data:image/png;base64,AAAA\"><td style='width: 5px'>just a text</td>",
        ] {
            assert_eq!(told(page), "", "{page}");
        }
        for (page, acts) in [
            (
                "<p>a</p><SCRIPT src=a>x()</Script><p>b</p><h:script>y()</script>",
                "<SCRIPT src=a>x()</script>\n<script>y()</script>\n",
            ),
            ("<img src=a onerror=\"x('1')\" alt=b>", "<img onerror=\"x('1')\">\n"),
            ("<a href='java\nscript:x(\"1\")' title=a>", "<a href='java\nscript:x(\"1\")'>\n"),
            ("<a href=&#106;avascript:x()>b", "<a href=\"&#106;avascript:x()\">\n"),
            ("<a href='search-ms:query=x'>b</a>", "<a href=\"search-ms:query=x\">\n"),
            ("<p id=a> ms-msdt:/id x</p>", "<p>\n ms-msdt:/id x"),
            ("<s:foreignObject width=1>", "<s:foreignObject>\n"),
            ("<!ENTITY s \"&#60;script\">", "<!ENTITY s \"&#60;script\">\n"),
            ("<meta http-equiv=refresh content='0;url=a'>", "<meta http-equiv=\"refresh\" content=\"0;url=a\">\n"),
        ] {
            assert_eq!(told(page), acts, "{page}");
        }
        assert_eq!(scripts(b"<script>a</script><script>b").count(), 2);
    }

    #[test]
    fn a_tag_ends_where_it_does_for_browsers() {
        let texts = |page: &'static str| tags(page.as_bytes()).map(|tag| tag.text).collect::<Vec<_>>();
        for (page, text) in [
            ("<a =\"> b=\">", "a =\""),
            ("<a b=\"x\" =\"> b=\">", "a b=\"x\" =\""),
            ("<a b==\"> b=\">", "a b==\""),
            ("<a b=c\"> b=\">", "a b=c\""),
            ("<a/b=/\"> b=\">", "a/b=/\""),
            ("<a b = '>' c>", "a b = '>' c"),
            ("<a b='x'c='>'>", "a b='x'c='>'"),
            ("<a b/='>'>", "a b/='"),
        ] {
            assert_eq!(texts(page), [text.as_bytes()], "{page}");
        }
        // What is in the quotes of something that is no tag to a browser.
        assert_eq!(texts("<!-- <p a=\" --><b c><!-- \" -->").get(2), Some(&&b"b c"[..]));
        assert_eq!(texts("<_ a='<b c>'>"), [&b"_ a='<b c>'"[..], b"b c"]);
        assert_eq!(texts("<!DOCTYPE a [<!ENTITY b \"c\">]>").get(1), Some(&&b"!ENTITY b \"c\""[..]));
        // A bounded part is read once more.
        let tangled = b"<a b='> ".repeat(1 << 15);
        let mut all = tags(&tangled);
        assert!(all.by_ref().count() < tangled.len() && all.is_whole());
        let tangled = b"<a b='>' ".repeat(1 << 15);
        let mut all = tags(&tangled);
        assert!(all.by_ref().map(|tag| tag.text.len()).sum::<usize>() < 8 * tangled.len() && !all.is_whole());
        assert!(acting(&tangled).len() > LOOKED_THROUGH, "not all of it was looked through");
    }

    #[test]
    fn a_script_ends_where_it_does_for_browsers() {
        for inside in [
            ">a",
            ">'</scripts>'",
            "><!-- <script></script> a",
            "><!--a--><script>",
            "><!--> <script>",
            "><![CDATA[</script>]]>",
        ] {
            let page = format!("<script{inside}</script>b");
            assert_eq!(scripts(page.as_bytes()).next(), Some(format!("script{inside}").as_bytes()), "{page}");
        }
    }

    #[test]
    fn hostile_text_ends() {
        for text in ["<", "<a b=\"", "<!'", "&#", "<a =\"'", "<script", "<script>", "<a>s", "<:script</script"] {
            let text = text.repeat((1 << 18) / text.len());
            assert!(acting(text.as_bytes()).len() <= 16 * text.len());
            assert!(tags(text.as_bytes()).map(|tag| tag.attributes().count()).sum::<usize>() < text.len());
            resolved(text.as_bytes());
        }
    }
}
