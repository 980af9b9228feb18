//! The visitor of unit tests: it keeps every file and everything odd, for a test to look at afterwards.

use super::kind::Kind;
use super::{File, NestedPath, Oddity, Visit, walk_sample};
use crate::budget::{Budget, Exceeded, Limits};

/// A file as the walk showed it.
pub(crate) struct SeenFile {
    pub(crate) place: String,
    pub(crate) names: Vec<String>,
    pub(crate) kind: Kind,
    pub(crate) in_archive: bool,
    pub(crate) data: Vec<u8>,
}

/// All that a walk showed, in its order.
#[derive(Default)]
pub(crate) struct Seen {
    pub(crate) files: Vec<SeenFile>,
    pub(crate) odd: Vec<Oddity>,
}

impl Seen {
    /// In a file of this name.
    pub(crate) fn of(name: &str, data: &[u8]) -> Seen {
        Seen::with_passwords(name, data, &[])
    }

    /// The same, where the message has these words that may be passwords.
    pub(crate) fn with_passwords(name: &str, data: &[u8], passwords: &[&str]) -> Seen {
        let mut seen = Seen::default();
        walk_sample(&[name.to_owned()], data, passwords, &mut Budget::new(&Limits::default()), &mut seen).unwrap();
        seen
    }

    /// Whether one of the files is exactly this.
    pub(crate) fn holds(&self, data: &[u8]) -> bool {
        self.files.iter().any(|file| file.data == data)
    }
}

impl Visit for Seen {
    fn file(&mut self, place: &NestedPath, file: &File<'_>, _: &Budget) -> Result<(), Exceeded> {
        self.files.push(SeenFile {
            place: place.to_string(),
            names: file.names.to_vec(),
            kind: file.kind,
            in_archive: file.in_archive,
            data: file.data.to_vec(),
        });
        Ok(())
    }

    fn odd(&mut self, _: &NestedPath, oddity: Oddity) {
        self.odd.push(oddity);
    }
}
