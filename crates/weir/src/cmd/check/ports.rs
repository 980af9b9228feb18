//! Checks whether each address that the configuration listens on is free on this machine, or already used by the running Weir.
//!
//! Every user can see that a port is taken. Which process has it can be seen only by root and by the user to whom the process belongs.

use crate::assembly::needs::{Listener, listeners};
use crate::config::Loaded;
use crate::machine::{Listening, Machine};
use serde::Serialize;
use std::io;
use std::net::SocketAddr;
use weir_foundation::sockets::could_listen;

/// A listener of the configuration, and the state of its port.
#[derive(Debug, Serialize)]
pub(super) struct ListenerView {
    setting: &'static str,
    address: SocketAddr,
    #[serde(flatten)]
    port: Port,
}

/// The state of a port.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "port", content = "problem", rename_all = "lowercase")]
enum Port {
    /// No program uses it.
    Free,
    /// The Weir that runs on this data folder uses it.
    Ours,
    /// systemd has it, and passes it to the service that it starts.
    Systemd,
    /// Another program uses it; the text says which.
    Taken(String),
    /// Nothing can listen there; the text says why.
    Refused(String),
}

/// The state of all listeners. `runs` says whether a Weir runs on this data folder.
pub(super) fn look(loaded: &Loaded, runs: bool) -> Vec<ListenerView> {
    let tried: Vec<_> = listeners(loaded).into_iter().map(|one| (one, could_listen(one.address))).collect();
    // Looking through all processes takes a while, so it is done only if an address is taken.
    let machine = tried.iter().any(|(_, tried)| tried.is_err()).then(Machine::look).unwrap_or_default();
    let view = |(Listener { setting, address }, tried)| ListenerView {
        setting,
        address,
        port: port(tried, holder(&machine.listening, address), runs),
    };
    tried.into_iter().map(view).collect()
}

fn port(tried: io::Result<()>, holder: Option<&Listening>, runs: bool) -> Port {
    let Err(error) = tried else { return Port::Free };
    match error.kind() {
        io::ErrorKind::AddrInUse => {}
        io::ErrorKind::PermissionDenied => {
            let why = "only root and services with CAP_NET_BIND_SERVICE may open this port";
            return Port::Refused(why.to_owned());
        }
        _ => return Port::Refused(error.to_string()),
    }
    match holder.map(|holder| (holder, holder.program.as_deref())) {
        Some((_, Some("systemd"))) => Port::Systemd,
        Some((_, Some("weir"))) | Some((_, None)) | None if runs => Port::Ours,
        Some((holder, Some("weir"))) => Port::Taken(format!("another Weir listens at {}", holder.address)),
        Some((holder, _)) => Port::Taken(format!("{} listens at {}", holder.who(), holder.address)),
        None => Port::Taken("another program has it".to_owned()),
    }
}

/// The listener that is in the way of an address: it has the same address, or one of the two stands for all addresses.
fn holder(listening: &[Listening], address: SocketAddr) -> Option<&Listening> {
    let same_port = || listening.iter().filter(|one| one.address.port() == address.port());
    let exact = same_port().find(|one| one.address == address);
    let everywhere = |one: &&Listening| one.address.ip().is_unspecified() || address.ip().is_unspecified();
    exact.or_else(|| same_port().find(everywhere))
}

impl ListenerView {
    /// A line for people, if the port can be used.
    pub(super) fn line(&self) -> Option<String> {
        let says = match &self.port {
            Port::Free => "is free",
            Port::Ours => "is open: the running Weir listens there",
            Port::Systemd => "is open: systemd holds it for the service",
            Port::Taken(_) | Port::Refused(_) => return None,
        };
        Some(format!("{}: {} {says}", self.setting, self.address))
    }

    /// The warning, if it cannot.
    pub(super) fn warning(&self) -> Option<String> {
        let (Port::Taken(why) | Port::Refused(why)) = &self.port else { return None };
        Some(format!("on this machine {}: {} cannot be opened: {why}", self.setting, self.address))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken() -> io::Result<()> {
        Err(io::ErrorKind::AddrInUse.into())
    }

    fn held_by(program: Option<&str>, address: &str) -> Listening {
        Listening { address: address.parse().unwrap(), program: program.map(str::to_owned) }
    }

    #[test]
    fn a_port_is_ours_only_if_a_weir_runs_on_this_folder() {
        let (weir, nginx) = (held_by(Some("weir"), "0.0.0.0:80"), held_by(Some("nginx"), "0.0.0.0:80"));
        let unseen = held_by(None, "127.0.0.1:80");
        assert_eq!(port(Ok(()), None, true), Port::Free);
        assert_eq!(port(taken(), Some(&weir), true), Port::Ours);
        assert_eq!(port(taken(), Some(&unseen), true), Port::Ours);
        assert_eq!(port(taken(), None, true), Port::Ours);
        assert_eq!(port(taken(), Some(&held_by(Some("systemd"), "0.0.0.0:80")), false), Port::Systemd);
        let who = |holder: Option<&Listening>, runs| match port(taken(), holder, runs) {
            Port::Taken(who) => who,
            other => panic!("{other:?}"),
        };
        assert_eq!(who(Some(&weir), false), "another Weir listens at 0.0.0.0:80");
        assert_eq!(who(Some(&nginx), true), "nginx listens at 0.0.0.0:80");
        assert_eq!(who(Some(&unseen), false), "another program listens at 127.0.0.1:80");
        assert_eq!(who(None, false), "another program has it");
        let refused = port(Err(io::ErrorKind::PermissionDenied.into()), Some(&weir), true);
        assert!(matches!(refused, Port::Refused(_)), "{refused:?}");
    }

    #[test]
    fn whoever_listens_at_another_address_is_not_in_the_way() {
        let listening = [held_by(Some("a"), "127.0.0.1:80"), held_by(Some("b"), "127.0.0.2:80")];
        let who = |address: &str| holder(&listening, address.parse().unwrap()).and_then(|one| one.program.as_deref());
        assert_eq!(who("127.0.0.2:80"), Some("b"));
        assert_eq!(who("127.0.0.3:80"), None);
        assert_eq!(who("127.0.0.2:81"), None);
        assert_eq!(who("0.0.0.0:80"), Some("a"));
    }
}
