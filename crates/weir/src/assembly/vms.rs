//! Builds the VMs of the lab from `lab.vms`: finds the guest, and says what to do if something is missing.

use std::path::{Path, PathBuf};
use weir_lab::plugin::{Plugin, Run};
use weir_lab::tasks::Task;
use weir_lab::vm::{self, Common, Guests, Vm, VmRule, VmStartError, VmsSettings};

/// The folder with the guests that all users of this machine share.
const INSTALLED: &str = "/usr/share/weir";

/// The VMs of this machine, the tasks that run them, and a short description, printed at the start.
pub(super) struct Vms {
    pub(super) vms: Vec<Vm>,
    pub(super) tasks: Vec<Task>,
    pub(super) about: String,
}

/// Prepares the VMs. They are started in the background when their tasks run.
pub(super) fn prepare(vms: &VmsSettings, home: &Path) -> Result<Vms, VmStartError> {
    let rules = &vms.rules;
    if rules.is_empty() {
        let about = "no VM (lab.vms; `make guest` builds a guest)".into();
        return Ok(Vms { vms: Vec::new(), tasks: Vec::new(), about });
    }
    let guests = guests(vms);
    let settings: Result<_, _> = rules.iter().map(|rule| rule.settings(&guests)).collect();
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
    let guests = guests(vms);
    let without = rules.iter().filter_map(|rule| rule.settings(&guests).err());
    common(vms, Path::new("")).missing_programs().map(VmStartError::NoProgram).chain(without).collect()
}

/// Adds two VMs for a demonstration, if this machine has a guest and QEMU.
pub(super) fn demo(vms: &mut VmsSettings) {
    let is_possible = guests(vms).linux.is_some() && common(vms, Path::new("")).missing_programs().next().is_none();
    if vms.rules.is_empty() && is_possible {
        vms.rules = vec![VmRule::usual("vm1"), VmRule::usual("vm2")];
    }
}

/// Removes plugins that run in VMs if this lab has no VM that can run them. Otherwise samples would wait for a plugin that no machine can
/// run.
pub(super) fn if_any(mut plugins: Vec<Plugin>, vms: &VmsSettings) -> Vec<Plugin> {
    plugins.retain(|plugin| plugin.run != Run::Vm || is_offered(plugin, vms));
    plugins
}

/// Whether a VM offers this plugin. About the VMs of other machines we know only what the settings say.
fn is_offered(plugin: &Plugin, vms: &VmsSettings) -> bool {
    let has_tags = |rule: &VmRule| plugin.tags.iter().all(|tag| rule.tags.contains(tag));
    let is_named = |rule: &VmRule| rule.plugins.is_empty() || rule.plugins.contains(&plugin.name);
    let elsewhere = match plugin.name.as_str() {
        "run-windows" => vms.windows_elsewhere,
        _ => vms.elsewhere,
    };
    elsewhere || vms.rules.iter().any(|rule| has_tags(rule) && is_named(rule))
}

fn common(vms: &VmsSettings, home: &Path) -> Common {
    Common { home: home.join("vms"), ..vms.common.clone() }
}

/// The absolute paths of our guests, as far as they exist.
fn guests(vms: &VmsSettings) -> Guests {
    Guests {
        linux: guest(vms.guest.as_deref(), "guest"),
        windows: guest(vms.guest_windows.as_deref(), "guest-windows"),
    }
}

fn guest(given: Option<&Path>, name: &str) -> Option<PathBuf> {
    let is_guest = |folder: &PathBuf| folder.join("vmlinuz").exists() && folder.join("initrd").exists();
    if let Some(given) = given {
        return std::path::absolute(given).ok().filter(is_guest);
    }
    let beside = std::env::current_exe().ok().and_then(|program| Some(program.parent()?.join(name)));
    let candidates =
        [std::path::absolute(Path::new("target").join(name)).ok(), beside, Some(Path::new(INSTALLED).join(name))];
    candidates.into_iter().flatten().find(is_guest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_lab::vm::Boot;

    #[test]
    fn a_plugin_that_no_vm_offers_is_not_of_this_lab() {
        let own = |name: &str| weir_analysis::PLUGINS.iter().find(|plugin| plugin.name == name).unwrap().manifest;
        let plugins =
            || ["run-linux", "run-windows", "identify"].map(|name| Plugin::parse(own(name), Path::new("")).unwrap());
        let names = |vms: &VmsSettings| -> Vec<String> {
            if_any(plugins().to_vec(), vms).into_iter().map(|plugin| plugin.name).collect()
        };
        let mut vms = VmsSettings::default();
        assert_eq!(names(&vms), ["identify"]);
        vms.rules = vec!["vm1".parse().unwrap()];
        assert_eq!(names(&vms), ["run-linux", "identify"], "a VM without tags runs no Windows programs");
        vms.rules = vec!["win system=windows".parse().unwrap()];
        assert_eq!(names(&vms), ["run-windows", "identify"]);
        vms.rules.clear();
        (vms.elsewhere, vms.windows_elsewhere) = (true, true);
        assert_eq!(names(&vms), ["run-linux", "run-windows", "identify"]);
    }

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
