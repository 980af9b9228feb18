//! The questions of `weir quickstart`. If a flag gives the answer, the question is not asked. Without a terminal, no question is asked.

use anyhow::bail;
use std::io::{self, BufRead, IsTerminal, Write};

/// Asks on the terminal.
pub(super) struct Questions {
    asks: bool,
}

impl Questions {
    /// With `--yes`, or without a terminal, nothing is asked and the proposals are taken.
    pub(super) fn new(yes: bool) -> Questions {
        Questions { asks: !yes && io::stdin().is_terminal() && io::stderr().is_terminal() }
    }

    /// The given answer, else what the user types, else the proposal. `flag` says how to give the answer without a terminal.
    pub(super) fn ask(
        &self,
        given: Option<&str>,
        question: &str,
        proposal: Option<&str>,
        flag: &str,
    ) -> anyhow::Result<String> {
        if let Some(given) = given {
            return Ok(given.to_owned());
        }
        let typed = if self.asks { typed(question, proposal)? } else { String::new() };
        match (typed.as_str(), proposal) {
            ("", Some(proposal)) => Ok(proposal.to_owned()),
            ("", None) => bail!("{question}\n  hint: answer with {flag}"),
            (typed, _) => Ok(typed.to_owned()),
        }
    }

    /// Whether the user agrees; without a terminal, the same as `given`.
    pub(super) fn agreed(&self, given: bool, question: &str) -> anyhow::Result<bool> {
        if given || !self.asks {
            return Ok(given);
        }
        Ok(matches!(typed(question, Some("no"))?.to_lowercase().as_str(), "y" | "yes"))
    }
}

fn typed(question: &str, proposal: Option<&str>) -> anyhow::Result<String> {
    let mut terminal = io::stderr();
    match proposal {
        Some(proposal) => write!(terminal, "{question} [{proposal}] ")?,
        None => write!(terminal, "{question} ")?,
    }
    terminal.flush()?;
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line)?;
    Ok(line.trim().to_owned())
}

/// Checks a mail address that is to be written into a configuration.
pub(super) fn mail_address(text: &str) -> anyhow::Result<String> {
    let plain = text.bytes().all(|octet| octet.is_ascii_graphic() && !b"\"\\,<>".contains(&octet));
    match text.split_once('@') {
        Some((name, domain)) if plain && !name.is_empty() && !domain.is_empty() => Ok(text.to_owned()),
        _ => bail!("{text:?} is not a mail address"),
    }
}

/// Checks a host name that is to be written into a configuration.
pub(super) fn host_name(text: &str) -> anyhow::Result<String> {
    let label = |label: &str| {
        (1..=63).contains(&label.len()) && label.bytes().all(|octet| octet.is_ascii_alphanumeric() || octet == b'-')
    };
    match text.len() <= 253 && text.split('.').all(label) {
        true => Ok(text.to_ascii_lowercase()),
        false => bail!("{text:?} is not a host name: write letters, digits, hyphens and dots"),
    }
}

/// Checks a server that is to be written into a configuration: host and port, `unix:` and a path, or `https://` and a host.
pub(super) fn server(text: &str) -> anyhow::Result<String> {
    let plain = !text.is_empty() && text.bytes().all(|octet| octet.is_ascii_graphic() && !b"\"\\".contains(&octet));
    match plain {
        true => Ok(text.to_owned()),
        false => bail!("{text:?} is not a server: write host:port"),
    }
}
