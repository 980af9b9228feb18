//! The plan of `weir quickstart`: the configuration that it will write, and the steps that a person has to take.

use super::neighbour::Edit;
use std::net::SocketAddr;

/// The result of all questions.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// What was found on this machine; one line for each thing.
    pub(super) found: Vec<String>,
    /// The configuration, with comments.
    pub(super) config: String,
    /// DNS records that must exist.
    pub(super) dns: Vec<String>,
    /// What must be changed in other programs, or is in the way.
    pub(super) neighbours: Vec<Neighbour>,
    /// The changes that quickstart can make itself, or why it cannot make them.
    pub(super) edits: Vec<anyhow::Result<Edit>>,
    /// What the user does from now on.
    pub(super) next: Vec<String>,
    /// What to try once Weir runs.
    pub(super) trial: Trial,
}

/// Another program of this machine, and what has to be changed there.
#[derive(Debug)]
pub(super) struct Neighbour {
    pub(super) why: String,
    /// What to write, and where.
    pub(super) lines: Vec<String>,
    /// Whether Weir cannot start before this is done.
    pub(super) blocks: bool,
}

/// What can be tried from this machine.
#[derive(Debug, Default)]
pub(super) enum Trial {
    #[default]
    Nothing,
    /// Fetch a page of this host over HTTP and HTTPS. With `authority`, wait for its certificate first.
    Web { host: String, plain: SocketAddr, secure: SocketAddr, authority: bool },
    /// Hold a session at these ports. Mail for strangers must be refused.
    Smtp { at: SocketAddr, own: Option<String>, next_hop: Option<String> },
    /// Analyse a sample.
    Lab,
}

/// A list of texts as TOML writes it.
pub(super) fn list(values: impl IntoIterator<Item = impl AsRef<str>>) -> String {
    let quoted: Vec<String> = values.into_iter().map(|value| format!("{:?}", value.as_ref())).collect();
    format!("[{}]", quoted.join(", "))
}

/// All addresses of this machine with this port; also those of IPv6 if the machine has it.
pub(super) fn everywhere(port: u16, ipv6: bool) -> String {
    let mut at = vec![format!("0.0.0.0:{port}")];
    if ipv6 {
        at.push(format!("[::]:{port}"));
    }
    list(at)
}
