//! Checks of `weir doctor` on what the running process reports about itself.

use super::{Finding, Grade};
use crate::control::Control;
use crate::folder_args::FolderArgs;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use weir_console::api::users::{self, After};
use weir_console::api::whole::{CertificateView, STATUS, WholeStatus};
use weir_foundation::supervision::GateName;
use weir_mail::operations::OWN_CONTACT;
use weir_tls::time_left;

/// If a certificate is valid for less than this, somebody should look, even though it may still be renewed in time.
const SHORT_S: u64 = 10 * 86_400;
/// At most this many pages of the list of users are read, with up to a thousand users each.
const USER_LISTS_MAX: usize = 100;

pub(super) fn look(folder: &Path) -> Vec<Finding> {
    let asked = Control::reach(&FolderArgs::of_folder(folder.to_owned()))
        .and_then(|control| control.ask(&STATUS, &()).map(|status| (control, status)));
    match asked {
        Ok((control, status)) => {
            let mut findings = of_status(&status);
            if status.gates.iter().any(|gate| gate.gate == GateName::Mail && gate.is_up()) {
                findings.extend(of_contacts(&control));
            }
            findings
        }
        Err(error) => {
            let what = format!("Weir is running, but its state cannot be read: {error:#}");
            vec![Finding::new(Grade::Broken, what, "look at its log: journalctl -u weir -n 50")]
        }
    }
}

fn of_status(status: &WholeStatus) -> Vec<Finding> {
    let mut findings = Vec::new();
    for gate in status.gates.iter().filter(|gate| !gate.is_up()) {
        let why = gate.last_failure.as_deref().unwrap_or("it does not say why");
        let what = format!("the {} gate is {}: {why}", gate.gate, gate.state);
        findings.push(Finding::new(Grade::Broken, what, "fix the cause; Weir then starts the gate by itself"));
    }
    if status.status.version != env!("CARGO_PKG_VERSION") {
        let (running, installed) = (&status.status.version, env!("CARGO_PKG_VERSION"));
        let what = format!("version {running} is running, but {installed} is installed");
        findings.push(Finding::new(
            Grade::Soon,
            what,
            "`weir restart` starts the installed program without refusing any client",
        ));
    }
    for damage in &status.status.spool.damage {
        let next = "docs/durability.md says what can be saved; keep a copy of the folder first";
        findings.push(Finding::new(Grade::Broken, format!("the spool is damaged: {damage}"), next));
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    findings.extend(status.certificates.iter().filter_map(|certificate| of_certificate(certificate, now)));
    findings
}

/// Users whose contact address is a mailbox of the account itself. Such contacts are refused now, but older ones may still exist.
fn of_contacts(control: &Control) -> Option<Finding> {
    let (mut names, mut after) = (Vec::new(), String::new());
    for _ in 0..USER_LISTS_MAX {
        let list = match control.ask(&users::LIST, &After { after }) {
            Ok(list) => list,
            Err(error) => {
                let what = format!("the contact addresses of users cannot be checked: {error:#}");
                return Some(Finding::new(Grade::Note, what, "look at its log: journalctl -u weir -n 50"));
            }
        };
        names.extend(list.users.into_iter().filter(|user| user.contact_is_own).map(|user| user.name));
        match list.next {
            Some(next) => after = next,
            None => break,
        }
    }
    let first = names.first()?;
    let whose = match names.len() - 1 {
        0 => first.clone(),
        1 => format!("{first} and of 1 other user"),
        more => format!("{first} and of {more} other users"),
    };
    let next = "weir user set NAME --contact ADDRESS gives another; weir user show NAME warns of it";
    Some(Finding::new(Grade::Soon, format!("the contact of {whose} {OWN_CONTACT}"), next))
}

fn of_certificate(certificate: &CertificateView, now: u64) -> Option<Finding> {
    let (name, problem) = (&certificate.name, certificate.problem.as_ref()?);
    let (grade, state) = match certificate.until {
        None => (Grade::Broken, "there is none".to_owned()),
        Some(until) if until <= now => (Grade::Broken, "the old one has expired".to_owned()),
        Some(until) => {
            let grade = if until - now < SHORT_S { Grade::Soon } else { Grade::Note };
            (grade, format!("the old one is valid for another {}", time_left(Duration::from_secs(until - now))))
        }
    };
    let next = "the name must resolve to this machine, and the Internet must reach its port 80 (or 443 for \
                tls-alpn-01); see docs/certificates.md";
    Some(Finding::new(grade, format!("Weir cannot get a new certificate for {name} ({state}): {problem}"), next))
}
