//! `weir quickstart lab`: a lab of this machine alone.

use super::plan::{Neighbour, Plan, Trial};
use super::service;
use crate::machine::Machine;
use std::path::Path;

#[derive(clap::Args)]
pub(crate) struct LabArgs {
    /// How many virtual machines run samples; 0 for none [default: 2 if the guest is installed, else 0]
    #[arg(long, value_name = "N")]
    vms: Option<u8>,
}

/// The folder of the guest, if the package with the guest is installed.
const GUEST: &str = "/usr/share/weir/guest";

/// The file that allows the service to make sandboxes: where the package puts it, and where systemd looks for it.
const DROP_IN_EXAMPLE: &str = "/usr/share/doc/weir/examples/weir-lab.conf";
const DROP_IN: &str = "/etc/systemd/system/weir.service.d/lab.conf";

impl LabArgs {
    pub(super) fn plan(&self, machine: &Machine) -> Plan {
        let guest = Path::new(GUEST).join("vmlinuz").exists();
        let vms = self.vms.unwrap_or(if guest { 2 } else { 0 });
        let mut config = "[lab]\n# Samples come from numbered directories below the data folder, from `weir lab submit`, and from the console.\n\
                          enabled = true\n"
            .to_owned();
        if vms > 0 {
            let names: Vec<String> = (1..=vms).map(|number| format!("vm{number}")).collect();
            config.push_str(&format!(
                "# Programs and scripts run in these virtual machines, which have no way out.\nvms = {}\nguest = \"{GUEST}\"\n",
                super::plan::list(names)
            ));
        }
        let mut found = vec![format!(
            "/dev/kvm is {}",
            if Path::new("/dev/kvm").exists() { "here: VMs are fast" } else { "missing: VMs are slow" }
        )];
        if let Some(path) = &machine.clamd {
            found.push(format!("clamd answers at {}", path.display()));
        }
        Plan {
            found,
            config,
            next: vec![
                "weir lab submit FILE         submits a sample".to_owned(),
                "weir lab report HASH         its report".to_owned(),
                "weir lab status              how the lab is doing".to_owned(),
                "weir doctor                  what is wrong on this machine".to_owned(),
                "docs: /usr/share/doc/weir/lab.md".to_owned(),
            ],
            neighbours: drop_in().into_iter().collect(),
            trial: Trial::Lab,
            ..Plan::default()
        }
    }
}

/// Without this file, the unit forbids the namespaces that plugins and VMs are locked in.
fn drop_in() -> Option<Neighbour> {
    let missing = service::has_unit() && !Path::new(DROP_IN).exists();
    missing.then(|| Neighbour {
        why: "The systemd unit of Weir forbids the sandboxes of a lab, so no sample could be analysed. To allow them, \
              run as root:"
            .to_owned(),
        lines: vec![
            format!("install -D -m 0644 {DROP_IN_EXAMPLE} {DROP_IN}"),
            "systemctl daemon-reload && systemctl restart weir".to_owned(),
        ],
        blocks: false,
    })
}
