//! What machines say to each other about who leads, one line each (paper, section 3).
//!
//! `BOOT PRIORITY INDEX stands|aside WORDS…`: first what the sender says about itself, then the message. Who the sender is follows from the
//! connection.

use super::words::{Malformed, Words};
use weir_core::election::{Aborter, Boot, Claim, Epoch, Message, NodeId, Phase, Priority, ProcessingIndex, Round};

/// One message of the election, and what its sender claims about itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Said {
    /// The sender's life.
    pub boot: Boot,
    /// What it claims.
    pub claim: Claim,
    pub message: Message,
}

impl Said {
    /// Parses a line without its end.
    pub fn parse(line: &str) -> Result<Said, Malformed> {
        let mut words = Words::of(line);
        let boot = Boot(words.next("the life")?);
        let (priority, index) = (Priority(words.next("the priority")?), ProcessingIndex(words.next("the index")?));
        let stands = words.take("stands");
        if !stands && !words.take("aside") {
            return Err(Malformed::Argument("whether it stands"));
        }
        let message = message(&mut words)?;
        words.end()?;
        Ok(Said { boot, claim: Claim { priority, index, stands }, message })
    }
}

impl std::fmt::Display for Said {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Claim { priority, index, stands } = self.claim;
        write!(f, "{} {} {} {} ", self.boot.0, priority.0, index.0, if stands { "stands" } else { "aside" })?;
        match self.message {
            Message::LeaderRequest { round } => write!(f, "leader request {}", RoundText(round)),
            Message::LeaderRequestConfirm { round } => write!(f, "leader request confirm {}", RoundText(round)),
            Message::Victory { round, epoch } => {
                write!(f, "victory {} {}", RoundText(round), maybe(epoch.map(|e| e.0)))
            }
            Message::Abort { phase, round, by } => {
                let phase = PHASES.iter().find(|(_, known)| *known == phase).map_or("", |(name, _)| *name);
                write!(f, "abort {phase} {} ", RoundText(round))?;
                match by {
                    Aborter::Better => write!(f, "better"),
                    Aborter::Leader(epoch) => write!(f, "leader {}", maybe(epoch.map(|e| e.0))),
                }
            }
            Message::Ack { round } => write!(f, "ack {}", RoundText(round)),
            Message::LeaderAlive { round, epoch } => {
                write!(f, "leader alive {} {}", RoundText(round), maybe(epoch.map(|e| e.0)))
            }
            Message::Present { following, epoch } => {
                write!(f, "present {} {}", if following { "following" } else { "stray" }, maybe(epoch.map(|e| e.0)))
            }
            Message::Resigned { epoch, successor } => {
                write!(f, "resigned {} {}", maybe(epoch.map(|e| e.0)), maybe(successor.map(|id| id.0)))
            }
        }
    }
}

const PHASES: [(&str, Phase); 3] =
    [("request", Phase::Request), ("confirm", Phase::Confirm), ("victory", Phase::Victory)];

fn message(words: &mut Words<'_>) -> Result<Message, Malformed> {
    if words.take("leader request confirm") {
        return Ok(Message::LeaderRequestConfirm { round: round(words)? });
    }
    if words.take("leader request") {
        return Ok(Message::LeaderRequest { round: round(words)? });
    }
    if words.take("leader alive") {
        return Ok(Message::LeaderAlive { round: round(words)?, epoch: epoch(words)? });
    }
    if words.take("victory") {
        return Ok(Message::Victory { round: round(words)?, epoch: epoch(words)? });
    }
    if words.take("abort") {
        return abort(words);
    }
    if words.take("ack") {
        return Ok(Message::Ack { round: round(words)? });
    }
    if words.take("present") {
        let following = words.take("following");
        if !following && !words.take("stray") {
            return Err(Malformed::Argument("whether it follows"));
        }
        return Ok(Message::Present { following, epoch: epoch(words)? });
    }
    if words.take("resigned") {
        let (epoch, successor) = (epoch(words)?, perhaps(words, "the successor")?);
        return Ok(Message::Resigned { epoch, successor: successor.map(NodeId) });
    }
    Err(words.unknown())
}

fn abort(words: &mut Words<'_>) -> Result<Message, Malformed> {
    let phase = PHASES.into_iter().find(|(name, _)| words.take(name)).ok_or(Malformed::Argument("the phase"))?.1;
    let round = round(words)?;
    let by = if words.take("better") {
        Aborter::Better
    } else if words.take("leader") {
        Aborter::Leader(epoch(words)?)
    } else {
        return Err(Malformed::Argument("who aborts"));
    };
    Ok(Message::Abort { phase, round, by })
}

fn round(words: &mut Words<'_>) -> Result<Round, Malformed> {
    let text: String = words.next("the round")?;
    let parts = text.split_once('.').and_then(|(boot, number)| Some((boot.parse().ok()?, number.parse().ok()?)));
    let (boot, number) = parts.ok_or(Malformed::Argument("the round"))?;
    Ok(Round { boot: Boot(boot), number })
}

fn epoch(words: &mut Words<'_>) -> Result<Option<Epoch>, Malformed> {
    Ok(perhaps(words, "the epoch")?.map(Epoch))
}

fn perhaps(words: &mut Words<'_>, what: &'static str) -> Result<Option<u64>, Malformed> {
    if words.take("-") { Ok(None) } else { words.next(what).map(Some) }
}

fn maybe(number: Option<u64>) -> String {
    number.map_or_else(|| "-".to_owned(), |number| number.to_string())
}

struct RoundText(Round);

impl std::fmt::Display for RoundText {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.0.boot.0, self.0.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn messages() -> Vec<Message> {
        let round = Round { boot: Boot(u64::MAX), number: 7 };
        let mut all = vec![
            Message::LeaderRequest { round },
            Message::LeaderRequestConfirm { round },
            Message::Ack { round },
            Message::Resigned { epoch: None, successor: Some(NodeId(u64::MAX)) },
            Message::Resigned { epoch: Some(Epoch(3)), successor: None },
        ];
        for epoch in [None, Some(Epoch(u64::MAX))] {
            all.push(Message::Victory { round, epoch });
            all.push(Message::LeaderAlive { round, epoch });
            all.push(Message::Present { following: epoch.is_some(), epoch });
            for (_, phase) in PHASES {
                all.push(Message::Abort { phase, round, by: Aborter::Leader(epoch) });
                all.push(Message::Abort { phase, round, by: Aborter::Better });
            }
        }
        all
    }

    fn said(message: Message) -> Said {
        let claim = Claim { priority: Priority(255), index: ProcessingIndex(u16::MAX), stands: true };
        Said { boot: Boot(1), claim, message }
    }

    #[test]
    fn every_message_is_read_as_it_was_written() {
        for message in messages() {
            let line = said(message).to_string();
            assert_eq!(Said::parse(&line), Ok(said(message)), "{line}");
            for end in 0..line.len() {
                assert_ne!(Said::parse(&line[..end]).ok(), Some(said(message)), "cut at {end}: {line}");
            }
            assert!(Said::parse(&format!("{line} x")).is_err());
        }
        assert_eq!(said(messages()[0]).to_string(), "1 255 65535 stands leader request 18446744073709551615.7");
    }

    proptest! {
        #[test]
        fn no_line_breaks_the_reader(line in "([0-9]{1,4} ){3}(stands|aside) [a-z .0-9-]{0,40}", any in ".{0,60}") {
            let _ = (Said::parse(&line), Said::parse(&any));
        }
    }
}
