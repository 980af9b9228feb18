//! From `lab.vms` to VMs: where the guest is, and what to say where something is missing.

use crate::config::{Lab, RuleBoot, VmRule};
use std::path::{Path, PathBuf};
use weir_lab::plugin::{Plugin, Run};
use weir_lab::tasks::Task;
use weir_lab::vm::{self, Boot, Common, Vm, VmSettings, VmStartError};

/// Where an administrator may put the guest for every user.
const INSTALLED: &str = "/usr/share/weir/guest";

/// The VMs of this machine, the tasks that keep them, and a word about them for whoever starts it.
pub(super) struct Vms {
    pub(super) vms: Vec<Vm>,
    pub(super) tasks: Vec<Task>,
    pub(super) about: String,
}

/// Prepares the VMs. They come up in the background when their tasks run.
pub(super) fn prepare(lab: &Lab, home: &Path) -> Result<Vms, VmStartError> {
    let rules = &lab.vms.rules;
    if rules.is_empty() {
        let about = "no VM (lab.vms; `make guest` builds a guest)".into();
        return Ok(Vms { vms: Vec::new(), tasks: Vec::new(), about });
    }
    let guest = guest(lab);
    let settings: Result<_, _> = rules.iter().map(|rule| settings(rule, guest.as_deref())).collect();
    let (vms, tasks) = vm::start(common(lab, home), settings?)?;
    let names: Vec<&str> = rules.iter().map(|rule| rule.name.as_str()).collect();
    Ok(Vms { vms, tasks, about: format!("VMs {} come up", names.join(", ")) })
}

/// Everything that keeps the configured VMs from working on this machine.
pub(super) fn problems(lab: &Lab) -> Vec<VmStartError> {
    let rules = &lab.vms.rules;
    if rules.is_empty() {
        return Vec::new();
    }
    let guest = guest(lab);
    let guests = rules.iter().filter_map(|rule| settings(rule, guest.as_deref()).err());
    common(lab, Path::new("")).missing_programs().map(VmStartError::NoProgram).chain(guests).collect()
}

/// Two VMs for a demonstration, where a guest and QEMU are.
pub(super) fn demo(lab: &mut Lab) {
    let is_possible = guest(lab).is_some() && common(lab, Path::new("")).missing_programs().next().is_none();
    if lab.vms.rules.is_empty() && is_possible {
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

fn common(lab: &Lab, home: &Path) -> Common {
    Common {
        home: home.join("vms"),
        qemu: PathBuf::from(&lab.vms.qemu),
        accelerator: lab.vms.accelerator,
        watch: lab.vms.watch,
    }
}

fn settings(rule: &VmRule, guest: Option<&Path>) -> Result<VmSettings, VmStartError> {
    let boot = match &rule.boot {
        RuleBoot::Guest => {
            let guest = guest.ok_or_else(|| VmStartError::NoGuest(rule.name.clone()))?;
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
    let candidates = [std::path::absolute("target/guest").ok(), beside, Some(INSTALLED.into())];
    candidates.into_iter().flatten().find(is_guest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Loaded;

    #[test]
    fn what_vms_lack_is_said_before_they_are_started() {
        let mut lab = Loaded::defaults().config.lab;
        assert!(problems(&lab).is_empty(), "no VM needs nothing");
        lab.vms.rules = vec![VmRule::usual("vm1")];
        lab.vms.qemu = "/nowhere/qemu".into();
        lab.vms.guest = "/nowhere/guest".into();
        let said: Vec<String> = problems(&lab).iter().map(ToString::to_string).collect();
        for part in ["/nowhere/qemu is not here", "the VM vm1 has no guest to boot"] {
            assert!(said.iter().any(|problem| problem.contains(part)), "{part}: {said:?}");
        }
        let home = tempfile::tempdir().unwrap();
        assert!(matches!(prepare(&lab, home.path()), Err(VmStartError::NoGuest(vm)) if vm == "vm1"));
        lab.vms.rules[0].boot = RuleBoot::Image("/nowhere/image".into());
        let program = Path::new("/nowhere/qemu");
        assert!(matches!(prepare(&lab, home.path()), Err(VmStartError::NoProgram(path)) if path == program));
    }
}
