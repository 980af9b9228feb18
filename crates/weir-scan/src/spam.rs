//! What the spam scanners have in common: one address, a size above which they are not asked, and whether mail goes on without them.

use crate::address::Address;
use crate::deadline::Deadline;
use crate::scanner::{Answer, Harm};
use weir_settings::{Section, kinds};

/// How a spam scanner is used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Where it is.
    pub address: Address,
    /// What is larger is not sent: spam is small.
    pub size: u64,
    /// How long it may take, by size.
    pub deadline: Deadline,
    /// Whether mail goes on without it when it fails.
    pub optional: bool,
}

impl Settings {
    /// The usual ones, at an address.
    pub fn at(address: Address) -> Settings {
        let deadline = Deadline::secs(30, 2);
        Settings { address, size: 5 << 20, deadline, optional: false }
    }

    /// Reads them; none without an address. `about` says where it listens.
    pub(crate) fn read(s: &mut Section<'_, '_>, about: &str) -> Option<Settings> {
        let address = s.key("address", about, kinds::list([], 1, "addresses")).pop();
        let d = Settings::at(Address::Host("localhost".into(), 1));
        let size = kinds::size(d.size, "1KiB"..="1GiB");
        let size = s.key("message_size", "Larger messages are not shown to it", size);
        let deadline = d.deadline.read(s);
        let optional = s.key("optional", "Whether mail goes on without it when it fails", kinds::flag(false));
        address.map(|address| Settings { address, size, deadline, optional })
    }
}

/// What a spam scanner's reply means.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Opinion {
    /// Nothing against it.
    Ham,
    /// Unwanted mail.
    Spam { score: f64, threshold: f64 },
}

impl From<Opinion> for Answer {
    fn from(opinion: Opinion) -> Answer {
        match opinion {
            Opinion::Ham => Answer::Clean,
            Opinion::Spam { score, threshold } => Answer::bad(Harm::Spam { score, threshold }),
        }
    }
}
