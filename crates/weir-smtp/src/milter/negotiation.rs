//! The options that mail server and filter agree on at the beginning of a milter connection.

use super::Garbled;

/// The server hands over a header field's value with the blank after the colon, if there is one.
const LEADING_SPACE: u32 = 0x10_0000;
/// The bits by which servers agree not to wait for an answer, with the letters of the commands.
const UNANSWERED: [(u8, u32); 7] = [
    (b'L', 0x80),
    (b'C', 0x1000),
    (b'H', 0x2000),
    (b'T', 0x1_0000),
    (b'U', 0x2_0000),
    (b'N', 0x4_0000),
    (b'B', 0x8_0000),
];

/// What a filter may do to a message, as bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Actions(pub u32);

impl Actions {
    /// Adds fields to the header.
    pub const ADD_HEADER: Actions = Actions(0x01);
    /// Removes recipients.
    pub const DELETE_RECIPIENT: Actions = Actions(0x08);
    /// Changes and deletes fields of the header.
    pub const CHANGE_HEADER: Actions = Actions(0x10);
    /// Has the server keep the message in its quarantine.
    pub const QUARANTINE: Actions = Actions(0x20);

    /// The actions of both.
    #[must_use]
    pub const fn and(self, other: Actions) -> Actions {
        Actions(self.0 | other.0)
    }

    fn contain(self, others: Actions) -> bool {
        self.0 & others.0 == others.0
    }
}

/// What a server offers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offer {
    /// The newest version of the protocol that it speaks.
    pub version: u32,
    /// What it allows a filter to do.
    pub actions: Actions,
    /// Which steps of the protocol it can leave out.
    pub steps: u32,
}

impl Offer {
    /// Parses an offer. Newer versions may add to these three numbers.
    pub(super) fn read(data: &[u8]) -> Option<Offer> {
        let number = |at: usize| Some(u32::from_be_bytes(data.get(at..at + 4)?.try_into().ok()?));
        Some(Offer { version: number(0)?, actions: Actions(number(4)?), steps: number(8)? })
    }

    /// What both sides do from now on, if these actions are needed.
    pub fn agree(&self, needed: Actions) -> Result<Agreed, Garbled> {
        if self.version < 2 {
            return Err(Garbled::Version(self.version));
        }
        if !self.actions.contain(needed) {
            return Err(Garbled::Actions { offered: self.actions.0, needed: needed.0 });
        }
        let version = self.version.min(6);
        // Older versions do not have these bits, so their value means nothing.
        let known = if version == 6 { self.steps } else { 0 };
        let wanted = UNANSWERED.iter().fold(LEADING_SPACE, |all, (_, bit)| all | bit);
        Ok(Agreed { version, actions: needed, steps: known & wanted })
    }
}

/// What mail server and filter have agreed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Agreed {
    /// The version that is spoken.
    pub version: u32,
    actions: Actions,
    steps: u32,
}

impl Agreed {
    /// Whether the server waits for an answer to the command with this letter.
    pub fn is_answered(&self, letter: u8) -> bool {
        match letter {
            b'D' | b'A' | b'Q' | b'K' => false,
            _ => !UNANSWERED.iter().any(|(of, bit)| *of == letter && self.steps & bit != 0),
        }
    }

    /// Whether header values begin directly after the colon. Otherwise the server has removed a blank.
    pub fn leaves_space(&self) -> bool {
        self.steps & LEADING_SPACE != 0
    }

    /// Appends the packet that confirms this.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&13u32.to_be_bytes());
        out.push(b'O');
        for number in [self.version, self.actions.0, self.steps] {
            out.extend_from_slice(&number.to_be_bytes());
        }
    }
}
