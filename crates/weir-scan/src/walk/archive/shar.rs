//! Shell archives (shar): a script that writes files when somebody runs it. Each file stands between a command and a line that ends it
//! (`sed 's/^X//' << 'END' > name`): as it is behind a letter, uuencoded, or in base64.
//!
//! What else such a script does is not examined: no desktop runs a shell script at a click.

use super::super::kind::Kind;
use super::super::transfer::{self, Padding, base64};
use super::super::{File, Oddity, Walk, bounded_name};
use super::is_of_apple;
use crate::budget::Exceeded;
use crate::file_name;

/// How far one looks for what such a script says of itself; mail may stand before it.
const HEAD: usize = 64 << 10;
/// What it says.
const MARKS: [&[u8]; 3] = [b"shell archive", b"shell archiver", b"shar_eof"];

pub(super) fn open(walk: &mut Walk<'_>, file: &File<'_>, level: u32) -> Result<(), Exceeded> {
    let named = file.names.iter().flat_map(|name| file_name::extensions(name)).any(|own| own == "shar");
    if !matches!(file.kind, Kind::Script | Kind::Unknown) || !(named || is_marked(file.data)) || file.data.is_empty() {
        return Ok(());
    }
    let found = walk.deeper(|walk| {
        let mut found = false;
        for Document { command, text } in documents(file.data) {
            walk.budget.time()?;
            found |= document(walk, &command, text, level)?;
        }
        Ok(found)
    })?;
    if named && !found && !is_of_apple(file.data) {
        walk.odd_here(Oddity::Unreadable("the name of a shell archive, and none that we know".into()));
    }
    Ok(())
}

fn is_marked(data: &[u8]) -> bool {
    let head = data[..data.len().min(HEAD)].to_ascii_lowercase();
    MARKS.iter().any(|mark| memchr::memmem::find(&head, mark).is_some())
}

/// The files that one command writes; whether there are any.
fn document(walk: &mut Walk<'_>, command: &ShellCommand<'_>, text: &[u8], level: u32) -> Result<bool, Exceeded> {
    let names: Vec<String> = command.target().map(bounded_name).into_iter().collect();
    let mut found = false;
    let plain = command.without_prefix(text);
    for (name, decoded) in transfer::uuencoded(&plain) {
        found = true;
        walk.budget.entry()?;
        let names: Vec<String> = std::iter::once(name).chain(names.iter().cloned()).collect();
        walk.holding(&decoded, |walk, decoded| walk.file(&names, "", decoded, level))?;
    }
    if names.is_empty() || found {
        return Ok(found);
    }
    walk.budget.entry()?;
    if memchr::memmem::find(command.0, b"base64").is_some() {
        let decoded = base64(&plain, Padding::EndsGroup);
        walk.holding(&decoded, |walk, decoded| walk.file(&names, "", decoded, level))?;
    } else {
        walk.holding(&plain, |walk, plain| walk.file(&names, "", plain, level))?;
    }
    Ok(true)
}

/// A line that reads the lines behind it.
struct ShellCommand<'t>(&'t [u8]);

struct Document<'t> {
    command: ShellCommand<'t>,
    text: &'t [u8],
}

/// Every command with lines behind it (`<< END`), and these lines.
fn documents(data: &[u8]) -> impl Iterator<Item = Document<'_>> {
    let mut rest = data;
    std::iter::from_fn(move || {
        loop {
            let (line, behind) = first_line(rest)?;
            rest = behind;
            let command = ShellCommand(line);
            let Some(end) = command.end() else { continue };
            let length = length_up_to(behind, end);
            rest = behind[length..].split_at(behind[length..].len().min(end.len())).1;
            return Some(Document { command, text: &behind[..length] });
        }
    })
}

fn first_line(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = memchr::memchr(b'\n', text).map_or(text.len(), |end| end + 1);
    let (line, behind) = text.split_at(end);
    (!text.is_empty()).then(|| (line.trim_ascii_end(), behind))
}

/// How many octets come before a line that is this word; all if none is.
fn length_up_to(text: &[u8], word: &[u8]) -> usize {
    let mut at = 0;
    while let Some((line, behind)) = first_line(&text[at..]) {
        if line.trim_ascii_start() == word {
            return at;
        }
        at = text.len() - behind.len();
    }
    text.len()
}

impl<'t> ShellCommand<'t> {
    /// The word that ends what it reads.
    fn end(&self) -> Option<&'t [u8]> {
        let at = memchr::memmem::find(self.0, b"<<")? + 2;
        let word = self.0[at..].strip_prefix(b"-").unwrap_or(&self.0[at..]).trim_ascii_start();
        let word = unquoted(word.strip_prefix(b"\\").unwrap_or(word));
        (!word.is_empty() && !word.starts_with(b"<")).then_some(word)
    }

    /// The file that it writes.
    fn target(&self) -> Option<&'t [u8]> {
        let at = memchr::memchr_iter(b'>', self.0).find(|at| {
            let (before, behind) = (at.checked_sub(1).map(|at| self.0[at]), self.0.get(at + 1));
            !matches!(before, Some(b'0'..=b'9' | b'&' | b'>')) && behind != Some(&b'&')
        })?;
        let word = self.0[at + 1..].strip_prefix(b">").unwrap_or(&self.0[at + 1..]).trim_ascii_start();
        Some(unquoted(word)).filter(|name| !name.is_empty() && *name != b"/dev/null")
    }

    /// The lines as `sed 's/^X//'` leaves them.
    fn without_prefix(&self, text: &[u8]) -> Vec<u8> {
        let prefix = memchr::memmem::find(self.0, b"s/^").map(|at| &self.0[at + 3..]);
        let prefix = prefix.and_then(|rest| Some(&rest[..memchr::memchr(b'/', rest)?])).unwrap_or_default();
        let mut out = Vec::with_capacity(text.len());
        for line in text.split_inclusive(|byte| *byte == b'\n') {
            out.extend_from_slice(line.strip_prefix(prefix).unwrap_or(line));
        }
        out
    }
}

/// A word of a shell without its quotes.
fn unquoted(text: &[u8]) -> &[u8] {
    match text.first() {
        Some(quote @ (b'\'' | b'"')) => &text[1..=memchr::memchr(*quote, &text[1..]).unwrap_or(text.len() - 1)],
        _ => {
            let ends = |byte: &u8| byte.is_ascii_whitespace() || b"|&;<>()".contains(byte);
            &text[..text.iter().position(ends).unwrap_or(text.len())]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(script: &str) -> Vec<(String, String)> {
        let text = |octets: &[u8]| String::from_utf8_lossy(octets).into_owned();
        let read = |found: Document<'_>| {
            let name = found.command.target().map(text).unwrap_or_default();
            (name, text(&found.command.without_prefix(found.text)))
        };
        documents(script.as_bytes()).map(read).collect()
    }

    #[test]
    fn files_stand_between_a_command_and_its_end() {
        let pair = |name: &str, text: &str| (name.to_owned(), text.to_owned());
        for command in [
            "  sed 's/^X//' << 'SHAR_EOF' > 'a b.txt' &&",
            "sed 's/^X//' >'a b.txt' << 'SHAR_EOF'",
            "sed \"s/^X//\" 2>/dev/null >\"a b.txt\" <<\\SHAR_EOF",
        ] {
            let script = format!("#!/bin/sh\n{command}\nXhello\nXX\nSHAR_EOF\necho done\ncat <<E >b\nc\nE\n");
            assert_eq!(parts(&script), [pair("a b.txt", "hello\nX\n"), pair("b", "c\n")], "{command}");
        }
        assert_eq!(parts("cat << E > a\nnever ends\n"), [pair("a", "never ends\n")]);
        assert_eq!(parts("uudecode << E\nx\nE\n"), [pair("", "x\n")]);
        assert_eq!(parts("a <<< b\nif x << 3\n"), [pair("", "")]);
        for odd in ["<<", "<< '", "> <<'E", "<<\n<<\n", "x >'", "cat <<E >\n"] {
            let _ = parts(odd);
        }
    }
}
