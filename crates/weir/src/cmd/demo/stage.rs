//! Finds the Weir that the demonstration attacks: its addresses and its data folder. It must have been started with `--demo`.

use crate::control::Control;
use crate::folder_args::FolderArgs;
use anyhow::{Context, ensure};
use std::net::SocketAddr;
use std::path::PathBuf;
use weir_console::api::{lab, web, whole};

/// The Weir that is attacked. It runs on this machine.
pub(super) struct Stage {
    pub(super) control: Control,
    /// The data folder, which contains the Maildirs.
    pub(super) data: PathBuf,
    pub(super) submission: SocketAddr,
    /// The address for mail from outside, and the domain whose mail it takes.
    pub(super) inbound: Option<(SocketAddr, String)>,
    pub(super) web: Option<SocketAddr>,
    pub(super) lab: bool,
}

impl Stage {
    /// Finds the Weir that runs on this data folder.
    pub(super) fn of(place: &FolderArgs) -> anyhow::Result<Stage> {
        Stage::new(Control::reach(place)?, place.existing_folder()?)
    }

    pub(super) fn new(control: Control, data: PathBuf) -> anyhow::Result<Stage> {
        ensure!(
            control.is_running(),
            "Weir is not running on this data folder\n  hint: first start one with `make run` or `weir up --demo`"
        );
        let whole = control.ask(&whole::STATUS, &())?;
        ensure!(
            whole.demo,
            "this Weir was not started with --demo, and the demonstration would attack it for real\n  hint: start \
             another one with `weir up --demo` and a data folder of its own"
        );
        let gate = whole.status.gate;
        let listeners = gate.map(|gate| gate.listeners).unwrap_or_default();
        let named = |name: &str| listeners.iter().find(|listener| listener.name == name);
        let submission = named("submission").context("it does not accept mail from users")?;
        let inbound = named("inbound").map(|listener| {
            let domain = listener.about.split([',', ' ']).next().unwrap_or_default();
            Ok::<_, anyhow::Error>((address(&listener.address)?, domain.to_owned()))
        });
        let web = control.ask(&web::STATUS, &()).map(|web| web.listeners).unwrap_or_default();
        let plain = web.iter().find(|listener| !listener.about.starts_with("HTTPS"));
        Ok(Stage {
            submission: address(&submission.address)?,
            inbound: inbound.transpose()?,
            web: plain.map(|listener| address(&listener.address)).transpose()?,
            lab: control.ask(&lab::STATUS, &()).is_ok(),
            control,
            data,
        })
    }
}

/// Parses an address, and refuses all that are not on this machine: attacks must never reach another one.
fn address(said: &str) -> anyhow::Result<SocketAddr> {
    let mut address: SocketAddr = said.parse().with_context(|| format!("{said} is not an address"))?;
    if address.ip().is_unspecified() {
        address.set_ip([127, 0, 0, 1].into());
    }
    ensure!(address.ip().is_loopback(), "{said} is not on loopback: the demonstration attacks only this machine");
    Ok(address)
}
