//! Fuzzing of the protocols in which other mail servers ask Weir. The first octet of the input decides how the rest is split.

use crate::milter::{Actions, Answer, Conversation, Garbled, MilterCommand, PACKET_MAX};
use crate::policy::{self, Requests};

/// Reads the commands of a mail server to a milter. The result must not depend on how they are cut, and nothing may pile up.
pub fn milter(data: &[u8]) {
    let Some((cut, data)) = data.split_first() else { return };
    let whole = commands(data, usize::MAX);
    assert_eq!(whole, commands(data, usize::from(*cut) + 1), "the cuts changed what was understood");
    assert!(
        !matches!(whole.0.first(), Some(command) if !matches!(command, MilterCommand::Negotiate(_) | MilterCommand::Quit))
    );
    for text in String::from_utf8_lossy(data).split('\0').take(4) {
        let mut out = Vec::new();
        Answer::DeleteRecipient(text.to_owned()).write(&mut out);
        Answer::AddHeader { name: text.to_owned(), value: text.to_owned() }.write(&mut out);
        assert_eq!(packets(&out), 2, "an answer is one packet");
    }
}

fn packets(mut octets: &[u8]) -> usize {
    let mut count = 0;
    while let Some((length, rest)) = octets.split_first_chunk::<4>() {
        octets = rest.get(u32::from_be_bytes(*length) as usize..).unwrap_or_default();
        count += 1;
    }
    count
}

fn commands(data: &[u8], size: usize) -> (Vec<MilterCommand>, Option<Garbled>) {
    let (mut conversation, mut found) = (Conversation::new(Actions::default()), Vec::new());
    for piece in data.chunks(size) {
        conversation.feed(piece);
        loop {
            match conversation.next_command() {
                Ok(Some(command)) => found.push(command),
                Ok(None) => break,
                Err(garbled) => return (found, Some(garbled)),
            }
        }
        assert!(conversation.waiting() <= PACKET_MAX + 4, "{} octets wait", conversation.waiting());
    }
    (found, None)
}

/// The same for Postfix's requests to a policy service. An answer must always be a single one.
pub fn policy(data: &[u8]) {
    let Some((cut, data)) = data.split_first() else { return };
    let whole = requests(data, usize::MAX);
    assert_eq!(whole, requests(data, usize::from(*cut) + 1), "the cuts changed what was understood");
    let answer = policy::write(&String::from_utf8_lossy(data));
    assert!(answer.iter().filter(|byte| **byte == b'\n').count() == 2 && answer.ends_with(b"\n\n"));
}

fn requests(data: &[u8], size: usize) -> (Vec<policy::Request>, Option<policy::Garbled>) {
    let (mut requests, mut found) = (Requests::default(), Vec::new());
    for piece in data.chunks(size) {
        requests.feed(piece);
        loop {
            match requests.next_request() {
                Ok(Some(request)) => found.push(request),
                Ok(None) => break,
                Err(garbled) => return (found, Some(garbled)),
            }
        }
    }
    (found, None)
}
