//! From `lab.vms` to running VMs: where the guest is, and what to say where none is.

use crate::config::{Lab, RuleBoot, VmRule};
use anyhow::Context;
use std::path::{Path, PathBuf};
use weir_lab::plugin::{Plugin, Run};
use weir_lab::vm::{self, Boot, Common, Vm, VmSettings};

/// Where an administrator may put the guest for every user.
const INSTALLED: &str = "/usr/share/weir/guest";

/// The VMs of this machine, and a word about them for whoever starts it.
pub(super) struct Vms {
    pub(super) vms: Vec<Vm>,
    pub(super) about: String,
}

/// Starts the VMs. They come up in the background.
pub(super) fn start(lab: &Lab, home: &Path) -> anyhow::Result<Vms> {
    let rules = &lab.vms.rules;
    if rules.is_empty() {
        return Ok(Vms { vms: Vec::new(), about: "no VM (lab.vms; `make guest` builds a guest)".into() });
    }
    let guest = guest(lab);
    let settings: anyhow::Result<Vec<VmSettings>> = rules.iter().map(|rule| settings(rule, guest.as_deref())).collect();
    let common = Common {
        home: home.join("vms"),
        qemu: PathBuf::from(&lab.vms.qemu),
        accelerator: lab.vms.accelerator,
        watch: lab.vms.watch,
    };
    for program in [lab.vms.qemu.as_str(), "qemu-img", "setpriv"] {
        anyhow::ensure!(
            is_program(program),
            "the lab has VMs (lab.vms) and {program} is not here\n  hint: install qemu-system-x86, qemu-utils and util-linux, \
             or take the VMs out"
        );
    }
    let vms = vm::start(common, settings?).context("the lab's VMs cannot be prepared")?;
    let names: Vec<&str> = rules.iter().map(|rule| rule.name.as_str()).collect();
    Ok(Vms { vms, about: format!("VMs {} come up", names.join(", ")) })
}

/// Two VMs for a demonstration, where a guest and QEMU are.
pub(super) fn demo(lab: &mut Lab) {
    if lab.vms.rules.is_empty() && guest(lab).is_some() && is_program(&lab.vms.qemu) && is_program("qemu-img") {
        lab.vms.rules = vec![VmRule::usual("vm1"), VmRule::usual("vm2")];
    }
}

/// Plugins that run in VMs belong to this lab only if it has some: a sample waits for every plugin that takes it, also for one
/// that no machine can run.
pub(super) fn if_any(mut plugins: Vec<Plugin>, lab: &Lab) -> Vec<Plugin> {
    if lab.vms.rules.is_empty() && !lab.vms.elsewhere {
        plugins.retain(|plugin| plugin.run != Run::Vm);
    }
    plugins
}

fn settings(rule: &VmRule, guest: Option<&Path>) -> anyhow::Result<VmSettings> {
    let boot = match &rule.boot {
        RuleBoot::Guest => {
            let guest = guest.with_context(|| {
                format!(
                    "the VM {} has no guest to boot\n  hint: `make guest` builds one; lab.guest says where it is",
                    rule.name
                )
            })?;
            Boot::Kernel { kernel: guest.join("vmlinuz"), initrd: guest.join("initrd") }
        }
        RuleBoot::Kernel { kernel, initrd } => Boot::Kernel { kernel: kernel.clone(), initrd: initrd.clone() },
        RuleBoot::Image(image) => Boot::Image(image.clone()),
    };
    Ok(VmSettings {
        name: rule.name.clone(),
        boot,
        memory_mib: rule.memory_mib,
        tags: rule.tags.clone(),
        plugins: rule.plugins.clone(),
        revert: rule.revert,
        root: rule.root,
    })
}

/// The guest's folder, absolute, if there is one.
fn guest(lab: &Lab) -> Option<PathBuf> {
    let is_guest = |folder: &PathBuf| folder.join("vmlinuz").exists() && folder.join("initrd").exists();
    let given = &lab.vms.guest;
    if !given.as_os_str().is_empty() {
        return std::path::absolute(given).ok().filter(is_guest);
    }
    let beside = std::env::current_exe().ok().and_then(|program| Some(program.parent()?.join("guest")));
    let places = [std::path::absolute("target/guest").ok(), beside, Some(INSTALLED.into())];
    places.into_iter().flatten().find(is_guest)
}

fn is_program(name: &str) -> bool {
    if name.contains('/') {
        return Path::new(name).exists();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(name).exists())
}
