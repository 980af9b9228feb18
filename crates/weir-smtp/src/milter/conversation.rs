//! Checks that the commands of a mail server come in an order that makes sense.

use super::Garbled;
use super::command::{MilterCommand, Stage};
use super::negotiation::{Actions, Agreed, Offer};
use super::packet::Packets;

/// The commands on one connection. A command that makes no sense at its place ends the connection.
#[derive(Debug)]
pub struct Conversation {
    packets: Packets,
    needed: Actions,
    agreed: Option<Agreed>,
    stage: Stage,
}

impl Conversation {
    /// A conversation with a server that must allow these actions.
    pub fn new(needed: Actions) -> Conversation {
        Conversation { packets: Packets::default(), needed, agreed: None, stage: Stage::Start }
    }

    /// Adds octets from the server. Afterwards, call [`Conversation::next_command`] until it returns none.
    pub fn feed(&mut self, octets: &[u8]) {
        self.packets.feed(octets);
    }

    /// What was agreed on at the beginning.
    pub fn agreed(&self) -> Option<&Agreed> {
        self.agreed.as_ref()
    }

    /// The next command; none until more octets arrive.
    pub fn next_command(&mut self) -> Result<Option<MilterCommand>, Garbled> {
        let Some((letter, data)) = self.packets.next_packet()? else { return Ok(None) };
        let command = MilterCommand::read(letter, data)?;
        self.stage = self.stage_after(&command).ok_or(Garbled::Order(char::from(letter)))?;
        if let MilterCommand::Negotiate(offer) = &command {
            self.agreed = Some(self.agree(offer)?);
        }
        Ok(Some(command))
    }

    /// Whether the server waits for an answer to a command.
    pub fn is_answered(&self, command: &MilterCommand) -> bool {
        self.agreed.is_none_or(|agreed| agreed.is_answered(command.letter()))
    }

    /// Notes that the decision about the message or its envelope was sent. What follows is another message, or the end.
    pub fn message_is_over(&mut self) {
        if self.stage != Stage::Start {
            self.stage = Stage::Session;
        }
    }

    /// How many octets are not parsed yet.
    pub fn waiting(&self) -> usize {
        self.packets.waiting()
    }

    fn agree(&self, offer: &Offer) -> Result<Agreed, Garbled> {
        offer.agree(self.needed)
    }

    /// The stage after this command; none if the command cannot come now.
    fn stage_after(&self, command: &MilterCommand) -> Option<Stage> {
        let allowed = |stages: &[Stage], next| stages.contains(&self.stage).then_some(next);
        match command {
            MilterCommand::Negotiate(_) => allowed(&[Stage::Start], Stage::Session),
            MilterCommand::Quit => Some(Stage::Start),
            _ if self.stage == Stage::Start => None,
            MilterCommand::Macros { .. } | MilterCommand::Unknown(_) => Some(self.stage),
            MilterCommand::Abort | MilterCommand::QuitNewConnection => Some(Stage::Session),
            // A new session may begin here; the server gave the last envelope up without saying so.
            MilterCommand::Connect { .. } | MilterCommand::Helo(_) => {
                allowed(&[Stage::Session, Stage::Envelope], Stage::Session)
            }
            MilterCommand::Mail(_) => allowed(&[Stage::Session, Stage::Envelope], Stage::Envelope),
            MilterCommand::Recipient(_) | MilterCommand::Data => allowed(&[Stage::Envelope], Stage::Envelope),
            MilterCommand::Header { .. } | MilterCommand::EndOfHeader | MilterCommand::Body(_) => {
                allowed(&[Stage::Envelope, Stage::Content], Stage::Content)
            }
            MilterCommand::EndOfMessage(_) => allowed(&[Stage::Envelope, Stage::Content], Stage::Session),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Answer;
    use super::*;
    use crate::reply::{Reply, Status};

    fn packet(letter: u8, data: &[u8]) -> Vec<u8> {
        [&(data.len() as u32 + 1).to_be_bytes()[..], &[letter], data].concat()
    }

    fn offer(version: u32, actions: u32, steps: u32) -> Vec<u8> {
        let numbers = [version, actions, steps].map(u32::to_be_bytes).concat();
        packet(b'O', &numbers)
    }

    /// All commands, if the octets come in pieces of this length.
    fn all(octets: &[u8], piece: usize) -> Result<Vec<MilterCommand>, Garbled> {
        let (mut conversation, mut found) = (Conversation::new(Actions::DELETE_RECIPIENT), Vec::new());
        for octets in octets.chunks(piece) {
            conversation.feed(octets);
            while let Some(command) = conversation.next_command()? {
                found.push(command);
            }
        }
        Ok(found)
    }

    /// A session of Postfix.
    fn session() -> Vec<u8> {
        [
            offer(6, 0x1ff, 0x1f_ffff),
            packet(b'D', b"Cj\0mx.example\0{daemon_name}\0mx\0"),
            packet(b'C', b"client.example\x004\x9c\x40192.0.2.7\0"),
            packet(b'H', b"client.example\0"),
            packet(b'D', b"M{auth_authen}\0ann\0"),
            packet(b'M', b"<ann@x.example>\0SIZE=100\0"),
            packet(b'R', b"<bob@y.example>\0"),
            packet(b'T', b""),
            packet(b'L', b"Subject\0 hello\0"),
            packet(b'N', b""),
            packet(b'B', b"text\r\n"),
            packet(b'E', b""),
            packet(b'A', b""),
            packet(b'Q', b""),
        ]
        .concat()
    }

    #[test]
    fn a_session_is_understood_however_it_is_cut() {
        for piece in [1, 3, 50, 10_000] {
            let found = all(&session(), piece).unwrap();
            assert_eq!(found.len(), 14, "{found:?}");
            let address = Some("192.0.2.7".parse().unwrap());
            assert_eq!(found[2], MilterCommand::Connect { name: "client.example".into(), address });
            let login = vec![("{auth_authen}".to_owned(), "ann".to_owned())];
            assert_eq!(found[4], MilterCommand::Macros { of: b'M', values: login });
            assert_eq!(found[5], MilterCommand::Mail(vec!["<ann@x.example>".into(), "SIZE=100".into()]));
            assert_eq!(found[8], MilterCommand::Header { name: b"Subject".to_vec(), value: b" hello".to_vec() });
        }
    }

    #[test]
    fn what_makes_no_sense_ends_the_conversation() {
        let after = |more: Vec<u8>| all(&[offer(6, 0x1ff, 0), more].concat(), 100);
        assert_eq!(all(&packet(b'M', b"<a@b>\0"), 100), Err(Garbled::Order('M')));
        assert_eq!(after(packet(b'R', b"<a@b>\0")), Err(Garbled::Order('R')));
        assert_eq!(after(packet(b'E', b"")), Err(Garbled::Order('E')));
        assert_eq!(after(offer(6, 0x1ff, 0)), Err(Garbled::Order('O')));
        assert_eq!(after(packet(b'Z', b"")), Err(Garbled::Unknown('Z')));
        assert_eq!(after(packet(b'H', b"no end")), Err(Garbled::Data('H')));
        assert_eq!(after(packet(b'D', b"Mi\0")), Err(Garbled::Data('D')));
        assert_eq!(after(packet(b'C', b"x\x004\0\x19nowhere\0")), Err(Garbled::Data('C')));
        assert_eq!(after(vec![0, 0, 0, 0, b'A']), Err(Garbled::Empty));
        assert_eq!(after(vec![0xff; 8]), Err(Garbled::Long(u32::MAX)));
        assert_eq!(after(packet(b'D', &[&b"M"[..], &b"a\0b\0".repeat(201)].concat())), Err(Garbled::Many("macros")));
        assert_eq!(all(&offer(1, 0x1ff, 0), 100), Err(Garbled::Version(1)));
        assert_eq!(all(&offer(6, 0x11, 0), 100), Err(Garbled::Actions { offered: 0x11, needed: 8 }));
    }

    #[test]
    fn old_servers_have_everything_answered() {
        for (version, answered) in [(2, true), (5, true), (6, false), (9, false)] {
            let mut conversation = Conversation::new(Actions::default());
            conversation.feed(&offer(version, 0x1f, 0x1f_ffff));
            conversation.next_command().unwrap();
            let agreed = conversation.agreed().unwrap();
            assert_eq!((agreed.version, agreed.leaves_space()), (version.min(6), !answered));
            for command in [MilterCommand::Body(Vec::new()), MilterCommand::Data, MilterCommand::EndOfHeader] {
                assert_eq!(conversation.is_answered(&command), answered, "version {version}: {command:?}");
            }
            assert!(conversation.is_answered(&MilterCommand::EndOfMessage(Vec::new())));
            assert!(!conversation.is_answered(&MilterCommand::Abort));
        }
    }

    #[test]
    fn answers_are_packets_of_one_line() {
        let written = |answer: Answer| {
            let mut out = Vec::new();
            answer.write(&mut out);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(written(Answer::Continue), "\0\0\0\x01c");
        let reply = Reply::new(550, Status(5, 7, 1), "100 % no\r\nX: \u{e9}");
        assert_eq!(written(Answer::Reply(reply)), "\0\0\0\x1by550 5.7.1 100 %% no??X: ?\0");
        let taken = Reply::new(250, Status(2, 0, 0), "fine");
        assert_eq!(written(Answer::Reply(taken)), "\0\0\0\x01t", "only a refusal has words of its own");
        let field = Answer::ChangeHeader { index: 2, name: "X-Weir-Scan".into(), value: String::new() };
        assert_eq!(written(field), "\0\0\0\x12m\0\0\0\x02X-Weir-Scan\0\0");
        assert_eq!(written(Answer::DeleteRecipient("<a@b>\0".into())), "\0\0\0\x07-<a@b>\0");
    }
}
