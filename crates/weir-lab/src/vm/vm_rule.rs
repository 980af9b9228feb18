//! A VM as it is written in the configuration: a name, and options that differ from the defaults.

use super::{Boot, Revert, VmSettings, VmStartError};
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use weir_settings::text_value;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VmRule {
    pub name: String,
    /// None for the guest of `lab.guest`.
    pub boot: Option<Boot>,
    pub memory_mib: u32,
    pub tags: Vec<String>,
    pub plugins: Vec<String>,
    pub revert: Revert,
    pub root: bool,
    /// Which guest of ours it boots, if it has no image of its own.
    pub system: System,
}

/// A guest of ours.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum System {
    /// For programs and scripts of Linux.
    #[default]
    Linux,
    /// For programs and scripts of Windows, by Wine.
    Windows,
}

/// The folders of our guests.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Guests {
    /// The folder of that for Linux.
    pub linux: Option<PathBuf>,
    /// The folder of that for Windows.
    pub windows: Option<PathBuf>,
}

impl Guests {
    fn folder(&self, system: System) -> Option<&Path> {
        match system {
            System::Linux => self.linux.as_deref(),
            System::Windows => self.windows.as_deref(),
        }
    }
}

text_value!(VmRule: "\"vm1 memory=256\"");

const MEMORY_MIB: u32 = 256;
/// Wine and a screen need more memory.
const MEMORY_MIB_WINDOWS: u32 = 768;
const MEMORY_MIB_BOUNDS: std::ops::RangeInclusive<u32> = 96..=65_536;
const LIST_MAX: usize = 32;

impl VmRule {
    /// A VM as in `weir up --demo`.
    pub fn usual(name: &str) -> VmRule {
        let (tags, plugins) = (vec!["linux".to_owned()], Vec::new());
        let (name, memory_mib, revert) = (name.to_owned(), MEMORY_MIB, Revert::InPlace);
        VmRule { name, boot: None, memory_mib, tags, plugins, revert, root: false, system: System::Linux }
    }

    /// A VM for Windows programs.
    pub fn windows(name: &str) -> VmRule {
        let (tags, plugins) = (vec!["windows".to_owned()], vec!["run-windows".to_owned()]);
        VmRule { tags, plugins, memory_mib: MEMORY_MIB_WINDOWS, system: System::Windows, ..VmRule::usual(name) }
    }

    /// The VM, if what it boots is known.
    pub fn settings(&self, guests: &Guests) -> Result<VmSettings, VmStartError> {
        let ours = |guest: &Path| Boot::Kernel { kernel: guest.join("vmlinuz"), initrd: guest.join("initrd") };
        let boot = self.boot.clone().or_else(|| guests.folder(self.system).map(ours));
        let missing = || match self.system {
            System::Linux => VmStartError::NoGuest(self.name.clone()),
            System::Windows => VmStartError::NoWindowsGuest(self.name.clone()),
        };
        Ok(VmSettings {
            name: self.name.clone(),
            boot: boot.ok_or_else(missing)?,
            memory_mib: self.memory_mib,
            tags: self.tags.clone(),
            plugins: self.plugins.clone(),
            revert: self.revert,
            root: self.root,
        })
    }
}

impl FromStr for VmRule {
    type Err = String;

    fn from_str(text: &str) -> Result<VmRule, String> {
        let wrong = |what: &str| {
            format!(
                "{text:?} is not a VM: {what}; write \"vm1 memory=256 tags=linux revert=process\" (also system=windows, image=, kernel=, initrd=, plugins=, user=)"
            )
        };
        let mut words = text.split_whitespace();
        let name = words.next().filter(|name| is_label(name) && !name.starts_with(['.', '-']));
        let mut rule = VmRule::usual(name.ok_or_else(|| wrong("it begins with no name"))?);
        rule.tags.clear();
        if rule.name.starts_with("slot_") {
            return Err(wrong("names that begin with slot_ are those of processes"));
        }
        let (mut kernel, mut initrd, mut image) = (None, None, None);
        // The guest decides the defaults of the rest, wherever in the rule it is named.
        if words.clone().any(|word| word == "system=windows") {
            rule = VmRule::windows(&rule.name);
        }
        for word in words {
            let (key, value) = word.split_once('=').ok_or_else(|| wrong(&format!("{word:?} is not known")))?;
            match (key, value) {
                ("memory", mib) => {
                    let mib = mib.parse().ok().filter(|mib| MEMORY_MIB_BOUNDS.contains(mib));
                    rule.memory_mib = mib.ok_or_else(|| wrong("memory is 96 to 65536 MiB"))?;
                }
                ("tags", list) => rule.tags = labels(list).ok_or_else(|| wrong("tags are words between commas"))?,
                ("plugins", list) => {
                    rule.plugins = labels(list).ok_or_else(|| wrong("plugins are names between commas"))?;
                }
                ("revert", "in-place") => rule.revert = Revert::InPlace,
                ("revert", "process") => rule.revert = Revert::Process,
                ("revert", "none") => rule.revert = Revert::None,
                ("revert", _) => return Err(wrong("revert is in-place, process or none")),
                ("system", "linux" | "windows") => {}
                ("system", _) => return Err(wrong("system is linux or windows")),
                ("user", "root") if rule.system == System::Windows => return Err(wrong("Windows has no user root")),
                ("user", "root") => rule.root = true,
                ("user", "user") => rule.root = false,
                ("user", _) => return Err(wrong("user is user or root")),
                ("kernel", path) if path.starts_with('/') => kernel = Some(PathBuf::from(path)),
                ("initrd", path) if path.starts_with('/') => initrd = Some(PathBuf::from(path)),
                ("image", path) if path.starts_with('/') => image = Some(PathBuf::from(path)),
                ("kernel" | "initrd" | "image", _) => return Err(wrong(&format!("{key} is an absolute path"))),
                _ => return Err(wrong(&format!("{word:?} is not known"))),
            }
        }
        rule.boot = match (kernel, initrd, image) {
            (None, None, None) => None,
            (Some(kernel), Some(initrd), None) => Some(Boot::Kernel { kernel, initrd }),
            (None, None, Some(image)) => Some(Boot::Image(image)),
            _ => return Err(wrong("it has kernel and initrd, or image, or none of them")),
        };
        if rule.boot.is_some() && rule.system == System::Windows {
            return Err(wrong("system=windows is a guest of ours, and has no kernel, initrd or image"));
        }
        Ok(rule)
    }
}

fn labels(list: &str) -> Option<Vec<String>> {
    let labels: Vec<String> = list.split(',').map(str::to_owned).collect();
    (labels.len() <= LIST_MAX && labels.iter().all(|label| is_label(label))).then_some(labels)
}

fn is_label(text: &str) -> bool {
    (1..=64).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}

impl fmt::Display for VmRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        match &self.boot {
            None => {}
            Some(Boot::Kernel { kernel, initrd }) => {
                write!(f, " kernel={} initrd={}", kernel.display(), initrd.display())?;
            }
            Some(Boot::Image(image)) => write!(f, " image={}", image.display())?,
        }
        let mut usual = VmRule { tags: Vec::new(), ..VmRule::usual(&self.name) };
        if self.system == System::Windows {
            f.write_str(" system=windows")?;
            usual = VmRule::windows(&self.name);
        }
        if self.memory_mib != usual.memory_mib {
            write!(f, " memory={}", self.memory_mib)?;
        }
        for (key, list, usual) in [("tags", &self.tags, &usual.tags), ("plugins", &self.plugins, &usual.plugins)] {
            if list != usual {
                write!(f, " {key}={}", list.join(","))?;
            }
        }
        match self.revert {
            Revert::InPlace => {}
            Revert::Process => f.write_str(" revert=process")?,
            Revert::None => f.write_str(" revert=none")?,
        }
        if self.root { f.write_str(" user=root") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        for text in [
            "vm1",
            "vm1 memory=512 tags=linux,x plugins=run-linux revert=process user=root",
            "win image=/srv/win.qcow2 memory=4096 tags=windows revert=none",
            "own kernel=/boot/k initrd=/boot/i",
            "win system=windows",
            "win system=windows memory=1024 tags=windows,fast revert=process",
        ] {
            assert_eq!(text.parse::<VmRule>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for text in [
            "",
            "a/b",
            ".x",
            "slot_1",
            "vm1 memory=1",
            "vm1 memory=x",
            "vm1 tags=",
            "vm1 revert=maybe",
            "vm1 user=ann",
            "vm1 kernel=/k",
            "vm1 image=/i kernel=/k initrd=/j",
            "vm1 image=relative",
            "vm1 fast",
            "vm1 system=macos",
            "vm1 system=windows image=/i",
            "vm1 system=windows user=root",
        ] {
            assert!(text.parse::<VmRule>().is_err(), "{text}");
        }
    }
}
