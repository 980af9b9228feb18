//! From `lab.vms` to VMs: where the guest is, and what to say where something is missing.

use std::path::{Path, PathBuf};
use weir_lab::plugin::{Plugin, Run};
use weir_lab::tasks::Task;
use weir_lab::vm::{self, Common, Vm, VmRule, VmStartError, VmsSettings};

/// Where an administrator may put the guest for every user.
const INSTALLED: &str = "/usr/share/weir/guest";

/// The VMs of this machine, the tasks that keep them, and a word about them for whoever starts it.
pub(super) struct Vms {
    pub(super) vms: Vec<Vm>,
    pub(super) tasks: Vec<Task>,
    pub(super) about: String,
}

/// Prepares the VMs. They come up in the background when their tasks run.
pub(super) fn prepare(vms: &VmsSettings, home: &Path) -> Result<Vms, VmStartError> {
    let rules = &vms.rules;
    if rules.is_empty() {
        let about = "no VM (lab.vms; `make guest` builds a guest)".into();
        return Ok(Vms { vms: Vec::new(), tasks: Vec::new(), about });
    }
    let guest = guest(vms);
    let settings: Result<_, _> = rules.iter().map(|rule| rule.settings(guest.as_deref())).collect();
    let (vms, tasks) = vm::start(common(vms, home), settings?)?;
    let names: Vec<&str> = rules.iter().map(|rule| rule.name.as_str()).collect();
    Ok(Vms { vms, tasks, about: format!("VMs {} come up", names.join(", ")) })
}

/// Everything that keeps the configured VMs from working on this machine.
pub(super) fn problems(vms: &VmsSettings) -> Vec<VmStartError> {
    let rules = &vms.rules;
    if rules.is_empty() {
        return Vec::new();
    }
    let guest = guest(vms);
    let guests = rules.iter().filter_map(|rule| rule.settings(guest.as_deref()).err());
    common(vms, Path::new("")).missing_programs().map(VmStartError::NoProgram).chain(guests).collect()
}

/// Two VMs for a demonstration, where a guest and QEMU are.
pub(super) fn demo(vms: &mut VmsSettings) {
    let is_possible = guest(vms).is_some() && common(vms, Path::new("")).missing_programs().next().is_none();
    if vms.rules.is_empty() && is_possible {
        vms.rules = vec![VmRule::usual("vm1"), VmRule::usual("vm2")];
    }
}

/// Plugins that run in VMs belong to this lab only if it has some: a sample waits for every plugin that takes it, also for one
/// that no machine can run.
pub(super) fn if_any(mut plugins: Vec<Plugin>, vms: &VmsSettings) -> Vec<Plugin> {
    if vms.rules.is_empty() && !vms.elsewhere {
        plugins.retain(|plugin| plugin.run != Run::Vm);
    }
    plugins
}

fn common(vms: &VmsSettings, home: &Path) -> Common {
    Common { home: home.join("vms"), ..vms.common.clone() }
}

/// The guest's folder, absolute, if there is one.
fn guest(vms: &VmsSettings) -> Option<PathBuf> {
    let is_guest = |folder: &PathBuf| folder.join("vmlinuz").exists() && folder.join("initrd").exists();
    if let Some(given) = &vms.guest {
        return std::path::absolute(given).ok().filter(is_guest);
    }
    let beside = std::env::current_exe().ok().and_then(|program| Some(program.parent()?.join("guest")));
    let candidates = [std::path::absolute("target/guest").ok(), beside, Some(INSTALLED.into())];
    candidates.into_iter().flatten().find(is_guest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_lab::vm::Boot;

    #[test]
    fn what_vms_lack_is_said_before_they_are_started() {
        let mut vms = VmsSettings::default();
        assert!(problems(&vms).is_empty(), "no VM needs nothing");
        vms.rules = vec![VmRule::usual("vm1")];
        vms.common.qemu = "/nowhere/qemu".into();
        vms.guest = Some("/nowhere/guest".into());
        let said: Vec<String> = problems(&vms).iter().map(ToString::to_string).collect();
        for part in ["/nowhere/qemu is not here", "the VM vm1 has no guest to boot"] {
            assert!(said.iter().any(|problem| problem.contains(part)), "{part}: {said:?}");
        }
        let home = tempfile::tempdir().unwrap();
        assert!(matches!(prepare(&vms, home.path()), Err(VmStartError::NoGuest(vm)) if vm == "vm1"));
        vms.rules[0].boot = Some(Boot::Image("/nowhere/image".into()));
        let program = Path::new("/nowhere/qemu");
        assert!(matches!(prepare(&vms, home.path()), Err(VmStartError::NoProgram(path)) if path == program));
    }
}
