//! Files that a page or script puts together ([`super::super::unfold`]), and those that it holds as addresses (`data:`, RFC 2397).

use super::super::encoded_word::percent_decoded;
use super::super::kind::Kind;
use super::super::transfer::{Padding, base64};
use super::super::unfold::{self, unfold, unfold_long};
use super::super::{File, Oddity, Walk};
use crate::budget::Exceeded;
use crate::file_name;
use crate::markup::{self, LOOKED_THROUGH, Tags};
use std::borrow::Cow;

/// What stands for the name of a file that has none.
pub(crate) const PUT_TOGETHER: &str = "put together by a script";
pub(crate) const WRITTEN: &str = "written into a page";
/// Why a page is not clean in which nothing was found.
pub(crate) const TOO_MUCH: &str = "more script than is looked through";

const SCRIPTS: [&str; 17] = [
    "bat", "cmd", "hta", "htm", "html", "js", "jse", "mht", "ps1", "shtml", "svg", "vbe", "vbs", "wsf", "wsh", "xht",
    "xhtml",
];

pub(super) fn open(walk: &mut Walk<'_>, file: &File<'_>, level: u32) -> Result<(), Exceeded> {
    if !is_page(file) {
        return Ok(());
    }
    walk.budget.time()?;
    walk.deeper(|walk| {
        for found in put_together(walk, file) {
            walk.budget.entry()?;
            walk.holding(&found, |walk, found| walk.file(&[PUT_TOGETHER.into()], "", found, level))?;
        }
        let mut tags = markup::tags(file.data);
        for InlineFile { names, declared, data } in written(file.data, &mut tags) {
            walk.budget.entry()?;
            walk.holding(&data, |walk, data| walk.file(&names, &declared, data, level))?;
        }
        if !tags.is_whole() {
            walk.odd_here(Oddity::Unreadable(TOO_MUCH.into()));
        }
        Ok(())
    })
}

/// What the scripts of a page put together. What acts in a long one is looked through once more, wherever it stands; where that is too much,
/// it is told.
fn put_together(walk: &mut Walk<'_>, file: &File<'_>) -> Vec<Vec<u8>> {
    let mut found = unfold(file.data);
    if file.data.len() > unfold::TEXT_MAX
        && let Some(acting) = acting(file)
    {
        let more = unfold_long(&acting[..acting.len().min(LOOKED_THROUGH)]);
        if acting.len() > LOOKED_THROUGH || !more.is_whole {
            walk.odd_here(Oddity::Unreadable(TOO_MUCH.into()));
        }
        let new: Vec<Vec<u8>> = more.found.into_iter().filter(|file| !found.contains(file)).collect();
        found.extend(new);
    }
    found
}

/// What acts in a file: all of a script, and some of a page. Nothing of a file for a shell that has no name of a script or page: what follows the
/// commands is often an archive, and no text.
fn acting<'f>(file: &File<'f>) -> Option<Cow<'f, [u8]>> {
    const PLAIN: [&str; 9] = ["bat", "cmd", "js", "jse", "mjs", "ps1", "vbe", "vbs", "wsh"];
    let is_plain = |name: &String| file_name::extensions(name).any(|own| PLAIN.contains(&own.as_str()));
    if file.declared.ends_with("javascript") || file.names.iter().any(is_plain) {
        return Some(Cow::Borrowed(file.data));
    }
    (file.kind != Kind::Script || is_called_page(file)).then(|| Cow::Owned(markup::acting(file.data)))
}

/// Whether some program runs it as a script, or shows it as a page.
pub(crate) fn is_page(file: &File<'_>) -> bool {
    matches!(file.kind, Kind::Html | Kind::Xml | Kind::Script) && !file.in_archive || is_called_page(file)
}

/// Whether its name or type says so, whatever is in it.
fn is_called_page(file: &File<'_>) -> bool {
    let by_name =
        || file.names.iter().flat_map(|name| file_name::extensions(name)).any(|own| SCRIPTS.contains(&own.as_str()));
    file.declared == "text/html"
        || file.declared.ends_with("javascript")
        || file.declared.starts_with("image/svg")
        || by_name()
}

/// A file that an address holds.
struct InlineFile {
    names: Vec<String>,
    declared: String,
    data: Vec<u8>,
}

/// What people save or a browser opens: in links and frames, and in scripts that give it a name. Pictures, fonts and style sheets stand in many pages.
fn written<'p>(page: &'p [u8], tags: &'p mut Tags<'_>) -> impl Iterator<Item = InlineFile> + 'p {
    let in_tags = tags.filter_map(|tag| {
        let (_, attribute) = PLACES.iter().find(|(name, _)| tag.is(name))?;
        let value = tag.value(attribute)?;
        let address = match *attribute {
            // What a page goes on to: `0;url=data:...`.
            "content" => &value[memchr::memchr(b'=', &value)? + 1..],
            _ => &value,
        };
        let name = tag.value("download").map(|name| String::from_utf8_lossy(&name).into_owned());
        of_address(address, name.into_iter().collect())
    });
    let names = saved_as(page);
    let script = (!names.is_empty()).then(|| memchr::memmem::find_iter(page, b"data:")).into_iter().flatten();
    let in_scripts = script.filter_map(move |at| {
        let quote = *page.get(at.checked_sub(1)?)?;
        let end = memchr::memchr(quote, &page[at..]).filter(|_| b"\"'`".contains(&quote))?;
        of_address(&page[at..at + end], names.clone())
    });
    in_tags.chain(in_scripts)
}

const PLACES: [(&str, &str); 7] = [
    ("a", "href"),
    ("area", "href"),
    ("embed", "src"),
    ("frame", "src"),
    ("iframe", "src"),
    ("meta", "content"),
    ("object", "data"),
];

/// The names under which scripts save something: `a.download = "x.js"`, `a["download"] = "x.js"`, `a.setAttribute("download", "x.js")`.
fn saved_as(page: &[u8]) -> Vec<String> {
    const MOST: usize = 8;
    const WORD: &[u8] = b"download";
    const BETWEEN: usize = 64;
    let name = |at: usize| {
        page.get(at.checked_sub(1)?).filter(|before| b".\"'`".contains(before))?;
        let behind = &page[at + WORD.len()..];
        let sign = behind.iter().take(BETWEEN).position(|byte| matches!(byte, b'=' | b','))?;
        let is_whole = behind[..sign].iter().all(|byte| byte.is_ascii_whitespace() || b"\"'`]".contains(byte));
        let value = behind[sign + 1..].trim_ascii_start();
        let (quote, text) = value.split_first().filter(|(quote, _)| is_whole && b"\"'`".contains(quote))?;
        let end = memchr::memchr(*quote, &text[..text.len().min(1024)])?;
        // In a list of words there are other words.
        let is_name = behind[sign] == b'=' || text[..end].contains(&b'.');
        is_name.then(|| String::from_utf8_lossy(&text[..end]).into_owned())
    };
    memchr::memmem::find_iter(page, WORD).filter_map(name).take(MOST).collect()
}

/// The file of an address that holds one; none if it is a picture or its like.
fn of_address(address: &[u8], mut names: Vec<String>) -> Option<InlineFile> {
    // Browsers leave these out.
    let plain: Vec<u8> = address.iter().filter(|byte| !matches!(byte, b'\t' | b'\r' | b'\n')).copied().collect();
    let start = plain.iter().position(|byte| *byte > b' ' && !b"'\"".contains(byte))?;
    let (scheme, rest) = plain[start..].split_at_checked(5)?;
    let comma = memchr::memchr(b',', rest).filter(|_| scheme.eq_ignore_ascii_case(b"data:"))?;
    let head = String::from_utf8_lossy(&rest[..comma]).to_ascii_lowercase();
    let declared = head.split(';').next().unwrap_or_default().trim().to_owned();
    let usual = ["image/", "font/", "audio/", "video/", "text/css"].iter().any(|kind| declared.starts_with(kind));
    if usual && !declared.starts_with("image/svg") && names.is_empty() {
        return None;
    }
    let octets = percent_decoded(&rest[comma + 1..]);
    let data = if head.trim_end().ends_with("base64") { base64(&octets, Padding::EndsGroup) } else { octets };
    names.retain(|name| !name.is_empty());
    if names.is_empty() {
        names.push(WRITTEN.into());
    }
    Some(InlineFile { names, declared, data })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(page: &str) -> Vec<(String, Vec<u8>)> {
        let mut tags = markup::tags(page.as_bytes());
        written(page.as_bytes(), &mut tags).map(|written| (written.names.join(" "), written.data)).collect()
    }

    #[test]
    fn addresses_that_hold_files() {
        let one = |name: &str, data: &[u8]| vec![(name.to_owned(), data.to_vec())];
        assert_eq!(found("<a href='DATA:text/plain;base64,YWJj' download='a.js'>"), one("a.js", b"abc"));
        assert_eq!(found("<a href=\"data:,a%20b\" download=a.url>"), one("a.url", b"a b"));
        assert_eq!(found("<iframe src=' da&Tab;ta:text/html,x'>"), one(WRITTEN, b"x"));
        assert_eq!(found("<meta http-equiv=refresh content=\"0; url='data:text/html,x\">"), one(WRITTEN, b"x"));
        assert_eq!(found("<script>a.href=\"data:,x\";a.download = 'a.vbs'</script>"), one("a.vbs", b"x"));
        assert_eq!(found("<script>a['download']=`a.vbs`;a['href']='data:,x'</script>"), one("a.vbs", b"x"));
        let set = "<script>a.setAttribute('href', 'data:,x'); a.setAttribute( 'download' , \"a.vbs\")</script>";
        assert_eq!(found(set), one("a.vbs", b"x"));
        assert!(found("<script>var button = 'download', kind = 'a.vbs', icon = 'data:,x'</script>").is_empty());
        assert!(found("<img src='data:text/html,x'><a href='data:image/png;base64,AAAA'>").is_empty());
        assert!(found("<a href='https://a.example/data:,x' download='a.js'>").is_empty());
    }
}
