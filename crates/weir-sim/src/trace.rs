//! A trace of outgoing mail: who wrote to whom, and when.
//!
//! As a file: JSON lines such as `{"t":12.5,"user":"ann","to":["bob@x.org"]}`, times in seconds from any
//! beginning, in any order. Reading is strict: a field too many, an address that is none or a time that is no
//! time is refused with its line. Memory is bounded: lines, mails and recipients have limits.

use crate::input::InputError;
use serde::Deserialize;
use std::collections::HashSet;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use weir_core::address::canonical;
use weir_core::time::Instant;

/// The longest line, in bytes.
const LINE_MAX: u64 = 1 << 20;
/// The most recipients in a file, all mails together.
const RECIPIENTS_MAX: usize = 10_000_000;
/// The latest time, in seconds (317 years).
const TIME_MAX_S: f64 = 1e10;
/// The longest name of a user, in bytes.
const USER_MAX: usize = 320;
const EXAMPLE: &str = r#"write one mail a line, such as {"t":12.5,"user":"ann","to":["bob@x.org"]}"#;

/// One mail as its sender handed it in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mail {
    /// When it was handed in.
    pub at: Instant,
    /// Who sent it.
    pub user: String,
    /// All recipients (To, Cc and Bcc together), in order, each once, in canonical form.
    pub to: Vec<String>,
}

/// Reads a file of JSON lines, in order of time.
pub fn read_file(path: &Path) -> Result<Vec<Mail>, InputError> {
    let file = File::open(path).map_err(|e| InputError::unreadable(path, &e))?;
    read(BufReader::new(file), &path.display().to_string())
}

/// Reads JSON lines; `name` says in errors what was read.
pub fn read(mut lines: impl BufRead, name: &str) -> Result<Vec<Mail>, InputError> {
    let (mut mails, mut recipients) = (Vec::<Mail>::new(), 0);
    for number in 1u64.. {
        let place = || format!("{name}, line {number}");
        let Some(line) = next_line(&mut lines, place)? else { break };
        if line.trim().is_empty() {
            continue;
        }
        let mail = parse(&line).map_err(|(problem, hint)| InputError::new(place(), problem, hint))?;
        recipients += mail.to.len();
        if recipients > RECIPIENTS_MAX {
            let problem = format!("more than {RECIPIENTS_MAX} recipients up to here");
            return Err(InputError::new(place(), problem, "split the file by user"));
        }
        mails.push(mail);
    }
    if mails.is_empty() {
        return Err(InputError::new(name, "there is no mail in it", EXAMPLE));
    }
    mails.sort_by_key(|mail| mail.at);
    Ok(mails)
}

fn next_line(lines: &mut impl BufRead, place: impl Fn() -> String) -> Result<Option<String>, InputError> {
    let mut bytes = Vec::new();
    let read = lines.by_ref().take(LINE_MAX + 1).read_until(b'\n', &mut bytes);
    let length = read.map_err(|e| InputError::new(place(), format!("cannot be read: {e}"), "is it a plain file?"))?;
    if length as u64 > LINE_MAX {
        return Err(InputError::new(place(), format!("longer than {LINE_MAX} bytes"), EXAMPLE));
    }
    let text = String::from_utf8(bytes).map_err(|_| InputError::new(place(), "not UTF-8 text", EXAMPLE))?;
    Ok((length > 0).then_some(text))
}

/// The mail in a line, or what is wrong with it and what would be right.
fn parse(line: &str) -> Result<Mail, (String, String)> {
    let line: TraceLine = serde_json::from_str(line).map_err(|e| (without_line(&e), EXAMPLE.into()))?;
    if !(0.0..=TIME_MAX_S).contains(&line.t) {
        let hint = format!("give seconds between 0 and {TIME_MAX_S:.0}, counted from any beginning");
        return Err((format!("\"t\" is {}, which is no time", line.t), hint));
    }
    let user = line.user.trim();
    if user.is_empty() || user.len() > USER_MAX || user.chars().any(char::is_control) {
        let problem = format!("\"user\" is {:?}", shortened(user));
        return Err((problem, format!("give a name of 1 to {USER_MAX} bytes without control characters")));
    }
    let to = recipients(&line.to).map_err(|problem| (problem, "such as \"bob@x.org\"".into()))?;
    Ok(Mail { at: Instant::from_secs_f64(line.t), user: user.to_string(), to })
}

/// Canonical, each once, in order.
fn recipients(addresses: &[String]) -> Result<Vec<String>, String> {
    if addresses.is_empty() {
        return Err("\"to\" is empty: a mail has at least one recipient".into());
    }
    let mut seen = HashSet::new();
    let mut to = Vec::with_capacity(addresses.len());
    for address in addresses {
        let canonical =
            canonical(address).map_err(|why| format!("\"to\" has {:?}, which {why}", shortened(address)))?;
        if seen.insert(canonical.clone()) {
            to.push(canonical);
        }
    }
    Ok(to)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TraceLine {
    t: f64,
    user: String,
    to: Vec<String>,
}

/// serde_json counts lines within one line: only the column means something.
fn without_line(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.split_once(" at line ") {
        Some((problem, _)) => format!("{problem} (column {})", error.column()),
        None => text,
    }
}

fn shortened(text: &str) -> String {
    if text.chars().count() <= 60 { text.into() } else { text.chars().take(57).chain("...".chars()).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(text: &str) -> Result<Vec<Mail>, InputError> {
        read(text.as_bytes(), "t.jsonl")
    }

    #[test]
    fn mails_come_in_order_of_time_with_canonical_recipients() {
        let text = "{\"t\":12.5,\"user\":\"ann\",\"to\":[\"bob+a@X.org\",\"bob+b@x.ORG\"]}\n\n\
                    {\"t\":0,\"user\":\" bea \",\"to\":[\"carl@y.org\"]}";
        let mails = read_text(text).unwrap();
        assert_eq!(mails[0], Mail { at: Instant::ZERO, user: "bea".into(), to: vec!["carl@y.org".into()] });
        assert_eq!((mails[1].at, mails[1].to.as_slice()), (Instant(12_500_000_000), &["bob@x.org".to_string()][..]));
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        let good = "{\"t\":1,\"user\":\"a\",\"to\":[\"b@x.org\"]}";
        for (bad, says) in [
            ("{", "EOF"),
            ("[]", "line 2"),
            ("{\"t\":1,\"user\":\"a\"}", "missing field `to`"),
            ("{\"t\":1,\"user\":\"a\",\"to\":[\"b@x.org\"],\"cc\":[]}", "unknown field `cc`"),
            ("{\"t\":\"noon\",\"user\":\"a\",\"to\":[\"b@x.org\"]}", "noon"),
            ("{\"t\":-1,\"user\":\"a\",\"to\":[\"b@x.org\"]}", "\"t\" is -1"),
            ("{\"t\":1e300,\"user\":\"a\",\"to\":[\"b@x.org\"]}", "no time"),
            ("{\"t\":NaN,\"user\":\"a\",\"to\":[\"b@x.org\"]}", "column"),
            ("{\"t\":1,\"user\":\" \",\"to\":[\"b@x.org\"]}", "\"user\" is \"\""),
            ("{\"t\":1,\"user\":\"a\",\"to\":[]}", "at least one recipient"),
            ("{\"t\":1,\"user\":\"a\",\"to\":[\"bob\"]}", "\"bob\""),
            ("\u{0}\u{1}", "line 2"),
        ] {
            let error = read_text(&format!("{good}\n{bad}\n{good}\n")).unwrap_err();
            assert_eq!(error.place, "t.jsonl, line 2", "{bad}");
            assert!(error.to_string().contains(says), "{bad}: {error}");
            assert!(!error.hint.is_empty());
        }
        assert!(read_text("").unwrap_err().problem.contains("no mail"));
        let endless = format!("{{\"t\":1,\"user\":\"{}\"", "a".repeat(2 << 20));
        assert!(read_text(&endless).unwrap_err().problem.contains("longer"));
        assert!(read(&b"\xff\xfe"[..], "t").unwrap_err().problem.contains("UTF-8"));
    }
}
