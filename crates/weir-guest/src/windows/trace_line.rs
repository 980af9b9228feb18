//! One line of what Wine says of its programs (`WINEDEBUG`), read into what it means.
//!
//! A program writes these lines about itself, so a hostile one can write them too: they are evidence against a sample, never for it. What is
//! believed of files, of the registry and of connections is looked at from outside.

use std::net::SocketAddr;

/// The longest line that is read.
pub(crate) const LINE_MAX: usize = 4096;

/// What a line says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Said {
    /// It wants to start a program: the file, if it is named, and the command.
    Starts { app: String, command: String },
    /// That program has this number.
    Started(u32),
    /// It has loaded a library; whether that is one of Wine's, and where it is in memory.
    Loads { path: String, is_wines: bool, base: u64 },
    /// It opens a file, to change it or not.
    Opens { path: String, writes: bool },
    /// It removes a file.
    Deletes(String),
    /// It gives a file another name.
    Renames(String, String),
    /// It copies a file.
    Copies(String, String),
    /// It shows this to its user.
    Shows(String),
    /// It calls somebody.
    Connects(SocketAddr),
    /// It calls a function of Windows: its name and its arguments, texts as they are and numbers in hexadecimal digits.
    /// From where in memory is known too.
    Calls { name: String, arguments: Vec<String>, from: u64 },
    /// A function that it called has ended, with this result.
    Returns { name: String, value: u64 },
    /// A thread begins, with what is at this place in memory.
    Begins(u64),
}

/// A line with whose it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TraceLine {
    pub(crate) pid: u32,
    pub(crate) thread: u32,
    pub(crate) said: Said,
}

/// Reads one; none if it says nothing that anybody needs.
pub(crate) fn read(line: &str) -> Option<TraceLine> {
    let (pid, rest) = line.split_once(':')?;
    let (thread, rest) = rest.split_once(':')?;
    let number = |text: &str| u32::from_str_radix(text, 16).ok().filter(|_| text.len() == 4);
    Some(TraceLine { pid: number(pid)?, thread: number(thread)?, said: said(rest)? })
}

fn said(text: &str) -> Option<Said> {
    if let Some(call) = text.strip_prefix("Call ") {
        return called(call);
    }
    if let Some(end) = text.strip_prefix("Ret ") {
        return returned(end.trim_start());
    }
    if let Some(thread) = text.strip_prefix("Starting thread proc ") {
        return thread.split(' ').next().and_then(hexadecimal).map(Said::Begins);
    }
    let (channel, rest) = text.strip_prefix("trace:")?.split_once(':')?;
    let (function, rest) = rest.split_once(' ')?;
    let texts = || strings(rest);
    match (channel, function) {
        ("process", "CreateProcessInternalW") => match rest.strip_prefix("started process pid ") {
            Some(number) => u32::from_str_radix(number.get(..4)?, 16).ok().map(Said::Started),
            None => started(rest),
        },
        ("loaddll", _) => {
            let path = texts().into_iter().next()?;
            let base = rest.rsplit_once(" at ").and_then(|(_, place)| place.split(':').next()).and_then(hexadecimal);
            let (is_wines, base) = (rest.ends_with("builtin"), base.unwrap_or(0));
            rest.starts_with("Loaded ").then_some(Said::Loads { path, is_wines, base })
        }
        ("file", "CreateFileW") => {
            // Whatever is not only there to be read may be changed; so may what is made anew or emptied.
            let made = ["creation 1", "creation 2", "creation 5"].iter().any(|way| rest.contains(way));
            let writes = rest.contains("GENERIC_WRITE") || rest.contains("GENERIC_ALL") || made;
            texts().into_iter().next().map(|path| Said::Opens { path, writes })
        }
        ("file", "DeleteFileW") => texts().into_iter().next().map(Said::Deletes),
        ("file", "MoveFileWithProgressW") => pair(texts()).map(|(from, to)| Said::Renames(from, to)),
        ("file", "CopyFileExW") => pair(texts()).map(|(from, to)| Said::Copies(from, to)),
        ("msgbox", _) => texts().into_iter().next().map(Said::Shows),
        ("winsock", "connect" | "WSAConnect" | "sendto" | "WS2_ConnectEx") => address(rest).map(Said::Connects),
        _ => None,
    }
}

fn started(rest: &str) -> Option<Said> {
    let (app, command) = rest.strip_prefix("app ")?.split_once(" cmdline ")?;
    let text = |part: &str| strings(part).into_iter().next().unwrap_or_default();
    Some(Said::Starts { app: text(app), command: text(command) })
}

fn pair(texts: Vec<String>) -> Option<(String, String)> {
    let mut texts = texts.into_iter();
    Some((texts.next()?, texts.next()?))
}

/// `{ family AF_INET, address 198.18.1.2, port 80 }`
fn address(rest: &str) -> Option<SocketAddr> {
    let (_, rest) = rest.split_once(" address ")?;
    let (ip, rest) = rest.split_once(", ")?;
    let port = rest.split_once("port ")?.1.split([' ', ',']).next()?;
    Some(SocketAddr::new(ip.parse().ok()?, port.parse().ok()?))
}

/// `KERNEL32.CreateMutexW(00000000,00000001,00411000 L"name") ret=00401234`
fn called(call: &str) -> Option<Said> {
    let (name, rest) = call.split_once('(')?;
    let name = name.rsplit('.').next()?;
    let mut arguments = Vec::new();
    let mut rest = rest;
    // An argument is a number, with the text behind it where it is the address of one.
    while let Some(number) = rest.get(..rest.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(rest.len())) {
        let after = rest.get(number.len()..)?;
        let (text, after) = match after.strip_prefix(' ').and_then(string) {
            Some((text, after)) => (text, after),
            None => (number.to_owned(), after),
        };
        arguments.push(text);
        match after.strip_prefix(',') {
            Some(next) => rest = next,
            None => break,
        }
    }
    let from = call.rsplit_once(" ret=").and_then(|(_, place)| hexadecimal(place)).unwrap_or(0);
    Some(Said::Calls { name: name.to_owned(), arguments, from })
}

/// `KERNEL32.WaitForSingleObject() retval=00000102 ret=00401234`
fn returned(end: &str) -> Option<Said> {
    let (name, rest) = end.split_once('(')?;
    let value = rest.split_once("retval=")?.1.split(' ').next().and_then(hexadecimal)?;
    Some(Said::Returns { name: name.rsplit('.').next()?.to_owned(), value })
}

fn hexadecimal(text: &str) -> Option<u64> {
    u64::from_str_radix(text.trim(), 16).ok()
}

/// All texts in a line.
fn strings(mut rest: &str) -> Vec<String> {
    let mut found = Vec::new();
    while let Some(at) = rest.find('"') {
        let Some((text, after)) = string(&rest[at..]) else { break };
        found.push(text);
        rest = after;
    }
    found
}

/// A text in quotes with Wine's way of writing what is no letter, and what is behind it.
fn string(text: &str) -> Option<(String, &str)> {
    let body = text.strip_prefix('L').unwrap_or(text).strip_prefix('"')?;
    let (mut out, mut letters) = (String::new(), body.char_indices());
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return Some((out, &body[at + 1..])),
            '\\' => match letters.next()?.1 {
                'n' => out.push('\n'),
                'r' => out.push('\r'),
                't' => out.push('\t'),
                first if first.is_ascii_hexdigit() => {
                    let rest: String = letters.by_ref().take(3).map(|(_, digit)| digit).collect();
                    let number = u32::from_str_radix(&format!("{first}{rest}"), 16).ok();
                    out.push(number.and_then(char::from_u32).unwrap_or('\u{fffd}'));
                }
                other => out.push(other),
            },
            other => out.push(other),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> Option<Said> {
        read(line).map(|line| line.said)
    }

    #[test]
    fn lines_of_wine_are_read() {
        let mutex =
            read("0024:0028:Call KERNEL32.CreateMutexW(00000000,00000001,00411000 L\"Global\\\\abc\") ret=00401234");
        let arguments = ["00000000", "00000001", "Global\\abc"].map(str::to_owned).to_vec();
        let said = Said::Calls { name: "CreateMutexW".into(), arguments, from: 0x0040_1234 };
        assert_eq!(mutex, Some(TraceLine { pid: 0x24, thread: 0x28, said }));
        assert_eq!(
            of("0024:0028:trace:process:CreateProcessInternalW app (null) cmdline L\"\\\"C:\\\\a b.exe\\\" /x\""),
            Some(Said::Starts { app: String::new(), command: "\"C:\\a b.exe\" /x".into() })
        );
        assert_eq!(
            of("0024:0028:trace:process:CreateProcessInternalW started process pid 0030 tid 0034"),
            Some(Said::Started(0x30))
        );
        assert_eq!(
            of(
                "0024:0028:trace:loaddll:build_module Loaded L\"C:\\\\windows\\\\system32\\\\ole32.dll\" at 7B600000: builtin"
            ),
            Some(Said::Loads { path: "C:\\windows\\system32\\ole32.dll".into(), is_wines: true, base: 0x7b60_0000 })
        );
        assert_eq!(
            of(
                "0024:0028:trace:file:CreateFileW L\"C:\\\\x.txt\" GENERIC_READ FILE_SHARE_READ  creation 3 attributes 0x80"
            ),
            Some(Said::Opens { path: "C:\\x.txt".into(), writes: false })
        );
        assert_eq!(
            of("0024:0028:trace:file:MoveFileWithProgressW (L\"a\",L\"b\",(nil),(nil),0x2)"),
            Some(Said::Renames("a".into(), "b".into()))
        );
        assert_eq!(
            of(
                "0024:0028:trace:winsock:connect socket 0x58, addr { family AF_INET, address 198.18.1.2, port 80 }, len 16"
            ),
            Some(Said::Connects("198.18.1.2:80".parse().unwrap()))
        );
        assert_eq!(
            of("0024:0028:Ret  KERNEL32.WaitForSingleObject() retval=00000102 ret=00401234"),
            Some(Said::Returns { name: "WaitForSingleObject".into(), value: 0x102 })
        );
        assert_eq!(of("0024:0030:Starting thread proc 0000000000401550 (arg=0000)"), Some(Said::Begins(0x0040_1550)));
        assert_eq!(
            of("0024:0028:trace:msgbox:MSGBOX_OnInit L\"f\\00fcr dich\\n\""),
            Some(Said::Shows("für dich\n".into()))
        );
    }

    #[test]
    fn whatever_is_written_there_is_only_text() {
        for line in [
            "",
            ":",
            "0024:0028:",
            "zzzz:0028:Call A.B(",
            "0024:0028:Call A.B(00 L\"never ends",
            "0024:0028:trace:file:CreateFileW L\"\\",
            "0024:0028:trace:winsock:connect address x, port y",
            "0024:0028:trace:process:CreateProcessInternalW started process pid zz",
            "0024:0028:Call A.B(\u{20ac}",
            "0024:0028:Ret  A.B() retval=",
            "0024:0028:Starting thread proc ",
        ] {
            let _ = read(line);
        }
    }
}
