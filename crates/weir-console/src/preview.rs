//! The safe preview of a hostile mail, as text only.
//!
//! The scanner's own reader takes the beginning of the message apart ([`weir_scan::sight`]); texts are decoded, HTML loses its markup, and
//! everything else is only named. What comes out is plain text that the page escapes: nothing of it can run, load or link. Reading is
//! off the async threads, and of each text [`TEXT_MAX`] characters are shown.

use crate::html;
use crate::html::Html;
use crate::words::size;
use std::path::PathBuf;
use weir_scan::budget::Exceeded;
use weir_scan::sight::{BYTES_MAX, Sight};
use weir_scan::walk::part::Part;

const TEXT_MAX: usize = 20_000;
const PARTS_MAX: usize = 40;

/// What can be shown of a message.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Preview {
    parts: Vec<ShownPart>,
    /// Why not everything is shown.
    short: Option<String>,
}

#[derive(Debug, PartialEq, Eq)]
struct ShownPart {
    name: String,
    media_type: String,
    bytes: u64,
    text: Option<String>,
    /// Markup was removed.
    stripped: bool,
}

/// Reads the file of a message.
pub(crate) async fn of(file: Option<PathBuf>) -> Preview {
    let Some(file) = file else {
        return Preview { short: Some("Another relay keeps this message.".into()), ..Preview::default() };
    };
    let read = tokio::task::spawn_blocking(move || Sight::of_file(&file).map(Preview::new));
    match read.await {
        Ok(Ok(preview)) => preview,
        Ok(Err(error)) => Preview { short: Some(format!("The file cannot be read: {error}.")), ..Preview::default() },
        Err(_) => Preview { short: Some("This message cannot be taken apart.".into()), ..Preview::default() },
    }
}

impl Preview {
    fn new(sight: Result<Sight, Exceeded>) -> Preview {
        let sight = match sight {
            Ok(sight) => sight,
            Err(exceeded) => {
                return Preview { short: Some(format!("It cannot be shown: {exceeded}.")), ..Preview::default() };
            }
        };
        let leaves: Vec<&Part> =
            sight.parts().iter().filter(|part| !part.header.media_type.starts_with("multipart/")).collect();
        let short = match (sight.is_cut(), leaves.len() > PARTS_MAX) {
            (true, _) => Some(format!("Only the first {} of the message are shown.", size(BYTES_MAX as u64))),
            (false, true) => Some(format!("It has {} parts; the first {PARTS_MAX} are shown.", leaves.len())),
            (false, false) => None,
        };
        let shown = leaves.into_iter().take(PARTS_MAX).map(|part| shown(part, &sight)).collect();
        Preview { parts: shown, short }
    }

    /// The preview as a section of a page.
    pub(crate) fn html(&self) -> Html {
        let part = |part: &ShownPart| {
            let name = if part.name.is_empty() { "unnamed" } else { &part.name };
            let stripped = if part.stripped { ", without its markup" } else { "" };
            let text = match &part.text {
                Some(text) if text.trim().is_empty() => html!("<p class=\"faint\">It has no text.</p>"),
                Some(text) => html!("<pre class=\"mail\">{}</pre>", text),
                None => Html::none(),
            };
            html!(
                "<li><p class=\"part-head\"><b>{}</b> <span class=\"faint\">{}, {}{}</span></p>{}</li>",
                name,
                part.media_type,
                size(part.bytes),
                stripped,
                text
            )
        };
        let short = self.short.as_ref().map(|short| html!("<p class=\"faint\">{}</p>", short));
        html!(
            "<section class=\"preview\"><h2>What is in it</h2><p class=\"faint\">Text only. Pictures, links and scripts are left out; files are named, not opened.</p>\
             {}<ul class=\"parts\">{}</ul></section>",
            short,
            self.parts.iter().map(part).collect::<Html>()
        )
    }
}

fn shown(part: &Part, sight: &Sight) -> ShownPart {
    let header = &part.header;
    let content = sight.content(part);
    let media_type = match header.media_type.as_str() {
        "" => "text/plain",
        named => named,
    };
    let (is_html, is_text) = (media_type == "text/html", media_type.starts_with("text/"));
    let name = header.names.first().cloned().unwrap_or_default();
    // A text that was attached as a file counts as a file.
    let text = (is_text && name.is_empty()).then(|| {
        let text = text_of(&content);
        cut(if is_html { without_markup(&text) } else { text })
    });
    ShownPart {
        name: name.chars().take(200).collect(),
        media_type: media_type.chars().take(100).collect(),
        bytes: content.len() as u64,
        stripped: is_html && text.is_some(),
        text,
    }
}

/// As UTF-8 if it is valid, otherwise every byte as a letter of Latin-1.
fn text_of(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.replace('\r', ""),
        Err(_) => bytes.iter().filter(|byte| **byte != b'\r').map(|byte| char::from(*byte)).collect(),
    }
}

fn cut(text: String) -> String {
    match text.char_indices().nth(TEXT_MAX) {
        Some((end, _)) => format!("{}\n… and more", &text[..end]),
        None => text,
    }
}

/// The words of HTML: tags, scripts and styles are removed, and blocks become lines. What is left is text, and is escaped as text.
fn without_markup(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('<') {
        out.push_str(&rest[..at]);
        let tag = &rest[at..];
        let name: String =
            tag[1..].chars().take_while(char::is_ascii_alphanumeric).collect::<String>().to_ascii_lowercase();
        let end = match name.as_str() {
            // An element that is never closed hides the rest, as in a browser; its end is searched for only once.
            "script" | "style" | "head" | "title" => end_of(tag, &format!("</{name}")),
            _ if tag.starts_with("<!--") => tag.find("-->").map(|end| end + 3),
            _ => tag.find('>').map(|end| end + 1),
        };
        if matches!(name.as_str(), "br" | "p" | "div" | "tr" | "li" | "h1" | "h2" | "h3" | "table") {
            out.push('\n');
        }
        rest = end.and_then(|end| tag.get(end..)).unwrap_or("");
    }
    out.push_str(rest);
    let words = out
        .replace("&nbsp;", " ")
        .replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&quot;", "\"")
        .replace("&amp;", "&");
    let lines = words.lines().map(str::trim);
    let mut kept: Vec<&str> = Vec::new();
    for line in lines {
        if !line.is_empty() || kept.last().is_some_and(|last| !last.is_empty()) {
            kept.push(line);
        }
    }
    kept.join("\n")
}

/// Behind the end tag that begins with `end`, in either case.
fn end_of(tag: &str, end: &str) -> Option<usize> {
    let at = tag.as_bytes().windows(end.len()).position(|here| here.eq_ignore_ascii_case(end.as_bytes()))?;
    tag.get(at..)?.find('>').map(|more| at + more + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAIL: &[u8] = b"Subject: x\r\nMIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\n\
        Content-Type: text/plain; charset=utf-8\r\nContent-Transfer-Encoding: base64\r\n\r\nPHNjcmlwdD5hbGVydCgxKTwvc2NyaXB0Pg==\r\n--b\r\n\
        Content-Type: text/html\r\n\r\n<p onclick=alert(1)>Hello <b>you</b><script>alert(2)</script><img src=http://evil.example/x><p>bye\r\n--b\r\n\
        Content-Type: application/octet-stream; name=\"a<b>.exe\"\r\n\r\nMZ\r\n--b--\r\n";

    #[test]
    fn texts_are_decoded_files_are_named_and_nothing_is_markup() {
        let preview = Preview::new(Sight::of(MAIL.to_vec()));
        assert_eq!(preview.parts.len(), 3, "{preview:?}");
        assert_eq!(preview.parts[0].text.as_deref(), Some("<script>alert(1)</script>"));
        let text = preview.parts[1].text.as_deref().unwrap();
        assert!(
            text.contains("Hello you") && text.contains("bye") && !text.contains(['<', '>']) && !text.contains("alert"),
            "{text}"
        );
        assert_eq!((preview.parts[2].name.as_str(), &preview.parts[2].text), ("a<b>.exe", &None));
        let page = preview.html().into_string();
        assert!(!page.contains("<script") && !page.contains("<img") && !page.contains("<b>.exe"), "{page}");
        assert!(page.contains("&lt;script&gt;"));
    }

    #[test]
    fn markup_that_never_ends_and_letters_of_any_kind_do_no_harm() {
        for text in ["<", "<script", "<!--", "a<é>b", "<script>x</SCRIPT", "<style>é", "&lt;&amp;lt;", "<p"] {
            without_markup(text);
        }
        assert_eq!(without_markup("a<SCRIPT>x</ScRiPt >b"), "ab");
        assert_eq!(text_of(&[b'a', 0xe9]), "aé");
        Preview::new(Sight::of(vec![b'a'; 3 << 20]));
        Preview::new(Sight::of(Vec::new()));
    }

    #[test]
    fn a_large_message_full_of_tags_is_read_once() {
        // If the rest were read again at every tag, this would take hours.
        let many = "<script>x</script>".repeat(BYTES_MAX / 18);
        assert_eq!(without_markup(&many), "");
        let open = "<style></style><p>".repeat(BYTES_MAX / 18);
        assert_eq!(without_markup(&open), "");
        let mixed = format!("{}<TITLE>y</title>end", "<b>".repeat(500_000));
        assert_eq!(without_markup(&mixed), "end");
    }

    #[test]
    fn long_texts_are_cut() {
        let long = format!("Subject: x\r\n\r\n{}", "é".repeat(TEXT_MAX + 5));
        let preview = Preview::new(Sight::of(long.into_bytes()));
        assert!(preview.parts[0].text.as_deref().unwrap().ends_with("… and more"));
    }
}
