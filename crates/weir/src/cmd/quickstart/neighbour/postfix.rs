//! What Postfix must change: it gives up a port, which Weir takes over.

use super::marked::Change;
use super::{Edit, FileChange, NeighbourProgram};
use anyhow::{Context, bail};
use std::fs;
use std::ops::Range;
use std::path::PathBuf;
use std::process::Command;

/// The edit that removes the services on these ports or, if `to` is given, moves them there.
pub(super) fn leaves(ports: &[u16], to: Option<&str>) -> anyhow::Result<Edit> {
    let output =
        Command::new("postconf").args(["-h", "config_directory"]).output().context("postconf cannot be asked")?;
    let path = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim()).join("master.cf");
    let path = fs::canonicalize(&path).unwrap_or(path);
    let text = fs::read_to_string(&path).with_context(|| format!("{} cannot be read", path.display()))?;
    let changes = changes(&text, ports, to);
    if changes.is_empty() {
        bail!("{} has no service at these ports", path.display());
    }
    Ok(Edit {
        program: NeighbourProgram::Postfix,
        files: vec![FileChange::of(path, &text, &changes)],
        ports: ports.to_vec(),
    })
}

fn changes(text: &str, ports: &[u16], to: Option<&str>) -> Vec<Change> {
    let mut changes = Vec::new();
    for entry in entries(text) {
        let line = &text[entry.clone()];
        let mut words = line.split_whitespace();
        let (Some(service), Some("inet")) = (words.next(), words.next()) else { continue };
        if !port(service).is_some_and(|port| ports.contains(&port)) {
            continue;
        }
        // If there are several addresses, the first one moves, and the others are not needed.
        let first = changes.is_empty();
        changes.push(match to.filter(|_| first) {
            Some(to) => Change { span: entry.start..entry.start + service.len(), by: to.to_owned() },
            None => Change { span: entry, by: String::new() },
        });
    }
    changes
}

/// The entries of master.cf: each is a line and the lines after it that begin with white space. Comments in between do not belong to an
/// entry.
fn entries(text: &str) -> Vec<Range<usize>> {
    let (mut found, mut at) = (Vec::<Range<usize>>::new(), 0);
    for line in text.split_inclusive('\n') {
        let next = at + line.len();
        let comment = line.trim_start().starts_with('#') || line.trim().is_empty();
        match (comment, line.starts_with([' ', '\t']), found.last_mut()) {
            (true, ..) => {}
            (false, true, Some(entry)) => entry.end = next,
            (false, ..) => found.push(at..next),
        }
        at = next;
    }
    found
}

fn port(service: &str) -> Option<u16> {
    let name = service.rsplit(':').next().unwrap_or(service);
    match name {
        "smtp" => Some(25),
        "submission" => Some(587),
        "smtps" | "submissions" => Some(465),
        number => number.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::marked::{put_in, taken_out};
    use super::*;

    const MASTER: &str = "# Postfix master\nsmtp      inet  n       -       y       -       -       smtpd\n#smtpd pass\nsubmission inet n - y - - smtpd\n  -o a=b\n  # between\n  -o c=d\nsubmissions     inet  n - y - - smtpd\n  -o e=f\npickup    unix  n       -       y       60      1       pickup\nsmtp      unix  -       -       y       -       -       smtp\n";

    #[test]
    fn submission_leaves_with_all_its_options() {
        let now = put_in(MASTER, &changes(MASTER, &[587, 465], None));
        let left: Vec<&str> = now.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(left.len(), 3, "{now}");
        assert!(!left.iter().any(|line| line.contains("-o") || line.contains("submission")), "{now}");
        assert_eq!(taken_out(&now).as_deref(), Some(MASTER));
    }

    #[test]
    fn smtp_moves_to_another_port_and_its_client_stays() {
        let now = put_in(MASTER, &changes(MASTER, &[25], Some("127.0.0.1:2525")));
        assert!(now.contains("\n127.0.0.1:2525      inet  n"), "{now}");
        assert!(now.contains("\nsmtp      unix"), "{now}");
        assert_eq!(taken_out(&now).as_deref(), Some(MASTER));
    }

    #[test]
    fn services_are_known_by_name_and_number() {
        assert_eq!(["smtp", "0.0.0.0:25", "[::1]:smtp", "587", "smtps"].map(port), [25, 25, 25, 587, 465].map(Some));
        assert_eq!(port("postlog"), None);
    }
}
