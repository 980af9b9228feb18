//! The plan of `weir quickstart`: the configuration that it will write, and the steps that a person has to take.

use super::neighbour::Edit;
use std::net::SocketAddr;

/// The outcome of all questions.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// What was found on this machine, a line each.
    pub(super) found: Vec<String>,
    /// The configuration, with comments.
    pub(super) config: String,
    /// DNS records that must be there.
    pub(super) dns: Vec<String>,
    /// What is in the way or must be changed next door, each with its lines.
    pub(super) neighbours: Vec<Neighbour>,
    /// What quickstart can change next door itself, or why it cannot.
    pub(super) edits: Vec<anyhow::Result<Edit>>,
    /// What one does from now on.
    pub(super) next: Vec<String>,
    /// What is tried once it runs.
    pub(super) trial: Trial,
}

/// Another program of this machine, and what it needs.
#[derive(Debug)]
pub(super) struct Neighbour {
    pub(super) why: String,
    /// What to write where.
    pub(super) lines: Vec<String>,
    /// Whether Weir cannot start before this is done.
    pub(super) blocks: bool,
}

/// What can be tried from here.
#[derive(Debug, Default)]
pub(super) enum Trial {
    #[default]
    Nothing,
    /// A page of this host, over HTTP and HTTPS; with a certificate of an authority if one is to be waited for.
    Web { host: String, plain: SocketAddr, secure: SocketAddr, authority: bool },
    /// A session at these ports; mail for strangers must be refused.
    Smtp { at: SocketAddr, own: Option<String>, next_hop: Option<String> },
    /// A sample.
    Lab,
}

/// A setting with its values in the way TOML has them.
pub(super) fn list(values: impl IntoIterator<Item = impl AsRef<str>>) -> String {
    let quoted: Vec<String> = values.into_iter().map(|value| format!("{:?}", value.as_ref())).collect();
    format!("[{}]", quoted.join(", "))
}

/// Everywhere on this port, for both versions of IP if the machine has both.
pub(super) fn everywhere(port: u16, ipv6: bool) -> String {
    let mut at = vec![format!("0.0.0.0:{port}")];
    if ipv6 {
        at.push(format!("[::]:{port}"));
    }
    list(at)
}
