//! Where the demonstration plays: the addresses of a running Weir, and its data folder.

use crate::answer::{list, text};
use crate::control::{Control, Place};
use anyhow::{Context, ensure};
use serde_json::Value;
use std::net::SocketAddr;
use std::path::PathBuf;

/// A Weir that runs on this machine.
pub(super) struct Stage {
    pub(super) control: Control,
    /// Maildirs are below it.
    pub(super) data: PathBuf,
    pub(super) submission: SocketAddr,
    /// For mail from outside, and the domain that it takes.
    pub(super) inbound: Option<(SocketAddr, String)>,
    pub(super) web: Option<SocketAddr>,
    pub(super) lab: bool,
}

impl Stage {
    /// The Weir of this data folder.
    pub(super) fn of(place: &Place) -> anyhow::Result<Stage> {
        Stage::new(Control::reach(place)?, place.folder()?)
    }

    pub(super) fn new(control: Control, data: PathBuf) -> anyhow::Result<Stage> {
        ensure!(
            control.is_running(),
            "nothing runs on this data folder\n  hint: start `make run` or `weir up --demo` first"
        );
        let status = control.get("/status")?;
        let listeners = list(&status["gate"], "listeners");
        let named = |name: &str| listeners.iter().find(|listener| text(listener, "name") == name);
        let submission = named("submission").context("it takes no mail from users")?;
        let inbound = named("inbound").map(|listener| {
            let domain = text(listener, "about").split([',', ' ']).next().unwrap_or_default();
            Ok::<_, anyhow::Error>((address(listener)?, domain.to_owned()))
        });
        let web = control.get("/web").unwrap_or(Value::Null);
        let plain = list(&web, "listeners").iter().find(|listener| !text(listener, "about").starts_with("HTTPS"));
        Ok(Stage {
            submission: address(submission)?,
            inbound: inbound.transpose()?,
            web: plain.map(address).transpose()?,
            lab: control.get("/lab").is_ok(),
            control,
            data,
        })
    }
}

/// Attacks go to this machine and to no other.
fn address(listener: &Value) -> anyhow::Result<SocketAddr> {
    let said = text(listener, "address");
    let mut address: SocketAddr = said.parse().with_context(|| format!("{said} is no address"))?;
    if address.ip().is_unspecified() {
        address.set_ip([127, 0, 0, 1].into());
    }
    ensure!(address.ip().is_loopback(), "{said} is not on loopback: the demonstration attacks only this machine");
    Ok(address)
}
