//! Attachment policy: names, types by content, what is locked or damaged, at any depth.

pub mod name;
pub mod policy;

use crate::verdict::Outcome;
use crate::walk::kind::Kind;
use crate::walk::{File, Oddity, page};
use policy::{Choice, Policy};

/// What the policy says about one thing.
#[derive(Debug, Clone, PartialEq)]
pub enum Judgement {
    /// A finding.
    Finding(Outcome),
    /// It passes, and is worth an analysis: why.
    Suspicious(String),
}

impl Policy {
    /// What it says about a file: the first thing that does not pass.
    pub fn judge(&self, file: &File<'_>) -> Option<Judgement> {
        let fault = file.names.iter().find_map(|name| name::fault(name, self));
        if let Some(reason) = fault {
            return Some(Judgement::Finding(Outcome::Forbidden { reason }));
        }
        if file.kind.is_program() {
            return chosen(self.programs, named(file.kind, file.names));
        }
        let disguised = file.names.iter().find(|name| name::is_disguise(name, file.kind));
        disguised.and_then(|_| chosen(self.mismatch, named(file.kind, file.names)))
    }

    /// What it says about something odd.
    pub fn judge_oddity(&self, oddity: &Oddity) -> Option<Judgement> {
        match oddity {
            Oddity::Encrypted => chosen(self.encrypted, "it has a password".into()),
            Oddity::Unreadable(why) => chosen(self.unreadable, format!("it cannot be read: {why}")),
            Oddity::Inconsistent(why) => chosen(self.inconsistent, why.clone()),
            Oddity::Closed(kind) => chosen(self.closed, format!("{} is not opened here", kind.words())),
            Oddity::Sealed => chosen(self.sealed, "a message that only its reader can open".into()),
            Oddity::PasswordInMail => {
                Some(Judgement::Suspicious("an archive whose password stands in the message".into()))
            }
            Oddity::Macros => chosen(self.macros, "a document with macros".into()),
            Oddity::EmbeddedObject => chosen(self.macros, "a document with a file inside".into()),
            Oddity::Installer => chosen(self.programs, "a Windows installer".into()),
        }
    }
}

fn named(kind: Kind, names: &[String]) -> String {
    match names.first() {
        Some(name) if name == page::PUT_TOGETHER || name == page::WRITTEN => format!("{} {name}", kind.words()),
        Some(name) if !name.is_empty() => format!("{} named {}", kind.words(), crate::plain::shown(name, 120)),
        _ => format!("{} without a name", kind.words()),
    }
}

fn chosen(choice: Choice, why: String) -> Option<Judgement> {
    match choice {
        Choice::Allow => None,
        Choice::Forbid => Some(Judgement::Finding(Outcome::Forbidden { reason: why })),
        Choice::NotScanned => Some(Judgement::Finding(Outcome::NotScanned { limit: why })),
        Choice::Suspicious => Some(Judgement::Suspicious(why)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(name: &str, data: &[u8]) -> Option<Judgement> {
        let names = [name.to_owned()];
        let file = File { names: &names, declared: "", kind: Kind::of(data), data, in_archive: false };
        Policy::default().judge(&file)
    }

    fn forbidden(reason: &str) -> Option<Judgement> {
        Some(Judgement::Finding(Outcome::Forbidden { reason: reason.into() }))
    }

    #[test]
    fn names_and_contents() {
        assert_eq!(judged("a.pdf", b"%PDF-1.4"), None);
        assert_eq!(judged("a.pdf.exe", b"hello"), forbidden("a second extension .exe: a.pdf.exe"));
        assert_eq!(judged("a.txt", b"MZ\x90\0"), forbidden("a Windows program named a.txt"));
        assert_eq!(judged("a.jpg", b"PK\x03\x04"), forbidden("a zip archive named a.jpg"));
    }

    #[test]
    fn what_opens_a_place_or_a_terminal_is_forbidden_by_its_name() {
        for name in ["share.afploc", "share.ftploc", "share.vncloc", "find.osdx", "run.term", "editor.vsix"] {
            let (_, ending) = name.split_once('.').unwrap();
            assert_eq!(judged(name, b"<plist/>"), forbidden(&format!("the extension .{ending}: {name}")));
        }
    }

    #[test]
    fn oddities_follow_the_choices() {
        let policy = Policy { encrypted: Choice::Allow, ..Policy::default() };
        assert_eq!(policy.judge_oddity(&Oddity::Encrypted), None);
        assert_eq!(policy.judge_oddity(&Oddity::Macros), Some(Judgement::Suspicious("a document with macros".into())));
        let closed = policy.judge_oddity(&Oddity::Closed(Kind::Rar));
        assert_eq!(
            closed,
            Some(Judgement::Finding(Outcome::NotScanned { limit: "a RAR archive is not opened here".into() }))
        );
    }
}
