//! The kinds of incidents, with their texts: a title, what Weir does about it by itself, and what a person can do.

use serde::{Deserialize, Serialize};
use weir_foundation::audit::AuditView;
use weir_scan::plain::shown;

/// How much of the detail of a change is examined.
const DETAIL_MAX: usize = 2_000;

/// Which rule opened an incident.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(super) enum IncidentKind {
    /// The throttle stopped an account.
    Stopped,
    /// Far more requests arrive for a web backend than it can serve.
    Flood,
    /// A scanner does not answer.
    Scanner,
    /// Many mails with the same virus.
    Virus,
    /// More malware in the lab than usual.
    Malware,
    /// Another machine leads the lab, or none does.
    Leader,
    /// The disk is filling up.
    Disk,
    /// A gate does not run.
    Gate,
    /// A certificate is about to expire.
    Certificate,
    /// Somebody guesses at an account's password from many networks.
    Guessing,
}

/// The texts and limits of a kind.
pub(super) struct KindWords {
    pub(super) kind: IncidentKind,
    /// Its name in the API and the records.
    pub(super) name: &'static str,
    /// The title if there is one subject.
    pub(super) title: &'static str,
    /// The title if there are several subjects, or if the subject needs no name.
    pub(super) title_of_several: &'static str,
    /// What Weir does by itself.
    pub(super) weir_did: &'static str,
    /// What a person can do, and the page of the console where that is done.
    pub(super) to_do: &'static str,
    pub(super) page: &'static str,
    /// Changes in the audit trail whose names begin like this are related to it.
    pub(super) acts: &'static [&'static str],
    /// Whether only changes to its own subject are related to it.
    pub(super) acts_on_subject: bool,
    /// Whether all relays that share their records see the same one.
    pub(super) of_site: bool,
    /// How long its sign must have been there before it counts.
    pub(super) patience_s: i64,
    /// How long its sign must have been gone before it is over.
    pub(super) quiet_s: i64,
    /// If the sign comes back within this time after the end, it is the same incident.
    pub(super) again_s: i64,
}

const HALF_AN_HOUR_S: i64 = 1_800;

const KINDS: [KindWords; 10] = [
    KindWords {
        kind: IncidentKind::Stopped,
        name: "stopped",
        title: "Account stopped",
        title_of_several: "Many accounts stopped",
        weir_did: "Weir stopped the account: it takes no more mail from it, and keeps the mail that waits until somebody decides. \
                   Mail that the throttle had let go before that is on its way.",
        to_do: "Look at the mail that waits. If the account was taken over, lock it, delete the mail and set a new password; \
                otherwise release the mail.",
        page: "/throttle",
        acts: &["user.", "held."],
        acts_on_subject: true,
        of_site: true,
        patience_s: 0,
        quiet_s: 60,
        again_s: HALF_AN_HOUR_S,
    },
    KindWords {
        kind: IncidentKind::Flood,
        name: "flood",
        title: "Flood on a web backend",
        title_of_several: "Floods on several web backends",
        weir_did: "Weir gave every client its fair share of the servers. Whoever asked for more waited in a line of their own, and \
                   visitors who were known from before were served before strangers.",
        to_do: "Nothing needs to be done. Networks that only attack can be blocked on the web page.",
        page: "/web",
        acts: &["web."],
        acts_on_subject: false,
        of_site: false,
        patience_s: 0,
        quiet_s: 120,
        again_s: HALF_AN_HOUR_S,
    },
    KindWords {
        kind: IncidentKind::Scanner,
        name: "scanner",
        title: "Scanner down",
        title_of_several: "Scanner down",
        weir_did: "Weir asked the scanner again and again. Mail that needs it waits on the disk; nothing goes out unscanned, and \
                   nothing is lost.",
        to_do: "See why the scanner does not answer, and start it again. Mail that waits is scanned by itself then.",
        page: "/feeds",
        acts: &["feeds.", "scan.", "rule."],
        acts_on_subject: false,
        of_site: false,
        patience_s: 5,
        quiet_s: 60,
        again_s: HALF_AN_HOUR_S,
    },
    KindWords {
        kind: IncidentKind::Virus,
        name: "virus",
        title: "Burst of one virus",
        title_of_several: "Bursts of several viruses",
        weir_did: "Weir put every one of these mails into quarantine. None was delivered.",
        to_do: "Nothing needs to be done. The mails can be looked at and deleted in the quarantine; a sender of your own among \
                them should change their password.",
        page: "/quarantine?queue=virus",
        acts: &["quarantine.release", "quarantine.delete", "rule."],
        acts_on_subject: false,
        of_site: true,
        patience_s: 0,
        quiet_s: 60,
        again_s: 2 * HALF_AN_HOUR_S,
    },
    KindWords {
        kind: IncidentKind::Malware,
        name: "malware",
        title: "Malware in the lab",
        title_of_several: "Malware in the lab",
        weir_did: "The lab analysed the samples and wrote a report on each. Mail that waited for a verdict like this is in quarantine.",
        to_do: "Read the reports. A rule made from one keeps the same file out of all mail.",
        page: "/lab",
        acts: &["lab.", "rule."],
        acts_on_subject: false,
        of_site: true,
        patience_s: 0,
        quiet_s: 60,
        again_s: 2 * HALF_AN_HOUR_S,
    },
    KindWords {
        kind: IncidentKind::Leader,
        name: "leader",
        title: "The lab changed its leader",
        title_of_several: "The lab changed its leader",
        weir_did: "The machines of the lab elected a new leader. It took over the queue from the database; samples that ran \
                   meanwhile are run again if their results did not arrive.",
        to_do: "See why the former leader went away: its machine, its network, or somebody who stopped it.",
        page: "/lab",
        acts: &["lab."],
        acts_on_subject: false,
        of_site: true,
        patience_s: 15,
        quiet_s: 60,
        again_s: HALF_AN_HOUR_S,
    },
    KindWords {
        kind: IncidentKind::Disk,
        name: "disk",
        title: "The disk fills",
        title_of_several: "The disk fills",
        weir_did: "While less is free than store.free_space wants, Weir takes no new mail and asks senders to come back later. \
                   Everything that was taken is safe.",
        to_do: "Free some space on the disk of the data folder, or make it larger.",
        page: "",
        acts: &["backup", "quarantine.delete", "held.delete"],
        acts_on_subject: false,
        of_site: false,
        patience_s: 0,
        quiet_s: 300,
        again_s: 2 * HALF_AN_HOUR_S,
    },
    KindWords {
        kind: IncidentKind::Gate,
        name: "gate",
        title: "A gate does not run",
        title_of_several: "Several gates do not run",
        weir_did: "Weir starts the gate again after a pause that grows up to a minute. The other gates go on serving.",
        to_do: "The reason says what is missing; `weir doctor` looks for the cause.",
        page: "/",
        acts: &[],
        acts_on_subject: false,
        of_site: false,
        patience_s: 0,
        quiet_s: 60,
        again_s: HALF_AN_HOUR_S,
    },
    KindWords {
        kind: IncidentKind::Certificate,
        name: "certificate",
        title: "A certificate is about to end",
        title_of_several: "Certificates are about to end",
        weir_did: "Weir goes on with the certificate that it has. It takes up a new file by itself, without a restart.",
        to_do: "Renew the certificate. When it has ended, clients refuse to connect.",
        page: "/settings",
        acts: &[],
        acts_on_subject: false,
        of_site: false,
        patience_s: 0,
        quiet_s: 60,
        again_s: 2 * HALF_AN_HOUR_S,
    },
    KindWords {
        kind: IncidentKind::Guessing,
        name: "guessing",
        title: "A password is being guessed",
        title_of_several: "Passwords of many accounts are being guessed",
        weir_did: "Weir checks logins of the account from networks that it does not use one after the other, each after a pause that grows to half a \
                   minute. People who log in from networks where the account was used before notice nothing. Addresses that fail often are banned.",
        to_do: "If its password is weak, give the account a new one. Otherwise nothing needs to be done.",
        page: "/throttle",
        acts: &["user.", "ban."],
        acts_on_subject: true,
        of_site: false,
        patience_s: 0,
        quiet_s: 600,
        again_s: 6 * HALF_AN_HOUR_S,
    },
];

impl IncidentKind {
    pub(super) fn words(self) -> &'static KindWords {
        // The kind is always found, as a test checks.
        KINDS.iter().find(|words| words.kind == self).unwrap_or(&KINDS[0])
    }

    pub(super) fn named(name: &str) -> Option<IncidentKind> {
        KINDS.iter().find(|words| words.name == name).map(|words| words.kind)
    }

    /// The title of an incident about this subject.
    pub(super) fn title(self, subject: &str) -> &'static str {
        if subject.is_empty() { self.words().title_of_several } else { self.words().title }
    }

    /// Whether a change in the audit trail is related to an incident about this subject. Changes to mail name the message, and have
    /// in their detail what was found in it.
    pub(super) fn concerns(self, subject: &str, line: &AuditView) -> bool {
        let words = self.words();
        let its_own = match self {
            _ if subject.is_empty() => true,
            // The end of a long name is cut off.
            IncidentKind::Virus => shown(&line.detail, DETAIL_MAX).contains(subject.trim_end_matches('…')),
            _ => !words.acts_on_subject || subject == line.subject,
        };
        its_own && words.acts.iter().any(|beginning| line.action.starts_with(beginning))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_its_words_once() {
        for words in &KINDS {
            assert_eq!((words.kind.words().name, IncidentKind::named(words.name)), (words.name, Some(words.kind)));
            assert!(words.quiet_s > 0, "{}: what ends at once can begin again at once", words.name);
        }
        assert_eq!(IncidentKind::named("x"), None);
    }

    #[test]
    fn changes_belong_to_the_incident_that_they_are_about() {
        let line = |action: &str, subject: &str, detail: &str| AuditView {
            at: String::new(),
            actor: "ann".into(),
            action: action.into(),
            subject: subject.into(),
            detail: detail.into(),
        };
        assert!(IncidentKind::Stopped.concerns("ann", &line("user.unlock", "ann", "")));
        let of_bob = line("user.unlock", "bob", "");
        assert!(!IncidentKind::Stopped.concerns("ann", &of_bob) && IncidentKind::Stopped.concerns("", &of_bob));
        let about = |action: &str, found: &str| {
            line(action, "m1", &format!("virus from <x@y> for 1 recipient: infected: {found}"))
        };
        assert!(IncidentKind::Virus.concerns("Worm", &about("quarantine.delete", "Worm in a.zip")));
        assert!(!IncidentKind::Virus.concerns("Worm", &about("quarantine.release", "Other in a.zip")), "another mail");
        assert!(!IncidentKind::Virus.concerns("Worm", &line("quarantine.release", "m1", "spam from <x@y>: score 9")));
        assert!(
            !IncidentKind::Virus.concerns("Worm", &about("user.add", "Worm"))
                && IncidentKind::Virus.concerns("", &about("quarantine.delete", "x"))
        );
    }
}
