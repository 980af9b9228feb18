//! Mail from an mbox file: headers read, bodies skipped.
//!
//! A mail begins at a line `From SENDER DATE` at the beginning of the file, after a blank line, or inside a header.
//! Writers quote such lines in bodies as `>From ` (mboxo, mboxrd); where one did not (mboxcl2), the line must still
//! carry a date to count. Streaming: memory for one header, whatever the size of the file.

use super::collected::{CollectError, Collected, Hint};
use super::header::{HEADER_MAX, WantedFields};
use super::lines::{Lines, RawLine};
use super::skipped::Reason;
use super::wall::{Wall, parse_from_line_date};
use std::io::BufRead;

/// Reads a whole mbox.
pub(crate) fn read(input: impl BufRead, collected: &mut Collected) -> Result<(), CollectError> {
    let mut lines = Lines::new(input, HEADER_MAX);
    let mut mbox = Mbox { state: State::Before, after_blank: false };
    while let Some(line) = lines.next()? {
        mbox.line(line, collected)?;
    }
    mbox.end_of_header(collected)
}

struct Mbox {
    state: State,
    after_blank: bool,
}

/// Before → Header ⇄ Body.
enum State {
    /// No mail has begun.
    Before,
    Header(Start, WantedFields),
    Body,
}

struct Start {
    line: u64,
    date: Option<Wall>,
}

impl Mbox {
    fn line(&mut self, line: RawLine<'_>, collected: &mut Collected) -> Result<(), CollectError> {
        let may_begin = self.after_blank || !matches!(self.state, State::Body);
        self.after_blank = line.is_blank();
        if let Some(date) = separator(line).filter(|date| may_begin && (date.is_some() || line.number == 1)) {
            self.end_of_header(collected)?;
            self.state = State::Header(Start { line: line.number, date }, WantedFields::default());
            return Ok(());
        }
        match &mut self.state {
            State::Header(..) if line.is_blank() => self.end_of_header(collected)?,
            State::Header(_, header) => header.push(line.bytes, line.cut),
            State::Before if !line.is_blank() => {
                collected.skip(Reason::StrayText, || format!("line {}: {}", line.number, line.text()));
            }
            State::Before | State::Body => {}
        }
        Ok(())
    }

    fn end_of_header(&mut self, collected: &mut Collected) -> Result<(), CollectError> {
        match std::mem::replace(&mut self.state, State::Body) {
            State::Header(start, header) => start.mail(header, collected),
            State::Before | State::Body => Ok(()),
        }
    }
}

impl Start {
    fn mail(self, header: WantedFields, collected: &mut Collected) -> Result<(), CollectError> {
        let name = format!("line {}", self.line);
        let envelope = header.read(&name, collected);
        collected.add_filed(envelope, Hint { at: self.date, user: None }, name.into())
    }
}

/// Whether a line can begin a mail, and the date it has.
fn separator(line: RawLine<'_>) -> Option<Option<Wall>> {
    let rest = line.bytes.strip_prefix(b"From ")?;
    let rest = String::from_utf8_lossy(rest.get(..1024).unwrap_or(rest));
    // The sender may hold blanks if it is quoted, so the date is sought from every word on.
    let starts = rest.char_indices().filter(|(_, c)| *c == ' ').map(|(i, _)| i + 1);
    Some(std::iter::once(0).chain(starts).find_map(|start| parse_from_line_date(&rest[start..])))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collected::{ReplayableMail, Wanted};

    fn read_all(text: &[u8]) -> Collected {
        let mut collected = Collected::new(Wanted::default());
        read(text, &mut collected).unwrap();
        collected
    }

    fn brief(mail: &ReplayableMail) -> String {
        format!("{} {} {}", mail.at, mail.user, mail.to.join(" "))
    }

    #[test]
    fn mails_are_told_apart() {
        let collected = read_all(
            b"From ann@x.org Fri Mar  1 12:30:05 2024\nFrom: ann@x.org\nTo: bob@y.org\nDate: Fri, 1 Mar 2024 12:30:00 +0000\n\n\
              >From the beginning\n\nFrom the middle of a body that nobody quoted\nTo: no@y.org\n\n\
              From - Sat Mar 02 12:30:05 2024\r\nFrom: ann@x.org\r\nTo: bob@y.org\r\nCc: c@y.org\r\nDate: unknown\r\n\r\nhi\r\n\r\n\
              From 17931@xxx Sun Mar 03 12:30:05 +0000 2024\nFrom: ann@x.org\nBcc: d@y.org\n",
        );
        let found: Vec<String> = collected.mails.iter().map(brief).collect();
        assert_eq!(
            found,
            [
                "2024-03-01 12:30:00 ann@x.org bob@y.org",
                "2024-03-02 12:30:05 ann@x.org bob@y.org c@y.org",
                "2024-03-03 12:30:05 ann@x.org d@y.org",
            ]
        );
        assert_eq!(&*collected.mails[1].name, "line 11");
        assert_eq!(collected.skipped.total(), 0);
    }

    #[test]
    fn what_is_missing_is_counted() {
        let collected = read_all(
            b"stray\nFrom a Fri Mar  1 12:30:05 2024\nTo: b@y.org\n\nFrom a Fri Mar  1 12:30:05 2024\nFrom: a@x.org\n\n\
              body\n\nFrom a Fri Mar  1 12:30:05 2024\n\nFrom a Fri Mar  1 12:30:05 2024",
        );
        assert!(collected.mails.is_empty());
        let of = |reason| collected.skipped.count_of(reason);
        assert_eq!((of(Reason::StrayText), of(Reason::NoSender), of(Reason::NoRecipients)), (1, 3, 1));
    }

    #[test]
    fn a_first_line_without_a_date_still_begins_a_mail() {
        let collected = read_all(b"From ann\nFrom: ann@x.org\nTo: bob@y.org\n\nFrom now on\n");
        assert_eq!(collected.skipped.count_of(Reason::NoDate), 1);
        assert_eq!(collected.skipped.total(), 1);
    }
}
