//! Files and keys of Windows whose reading tells something about who reads them.

use crate::secret::Secret;

/// Parts of the names of files that keep passwords, keys, sessions or money, in small letters.
const KEYS: [&str; 18] = [
    "\\user data\\default\\login data",
    "\\user data\\default\\web data",
    "\\user data\\local state",
    "\\default\\network\\cookies",
    "\\firefox\\profiles\\",
    "\\thunderbird\\profiles\\",
    "\\filezilla\\",
    "\\bitcoin\\",
    "\\electrum\\",
    "\\exodus\\",
    "\\ethereum\\",
    "\\discord\\local storage\\",
    "\\telegram desktop\\tdata",
    "\\.ssh\\id_",
    "\\.aws\\credentials",
    "\\winscp.ini",
    "\\microsoft\\credentials\\",
    "\\microsoft\\protect\\",
];
/// The same for files that only a machine that is made up has.
const MACHINE: [&str; 7] = ["\\vmware", "\\vbox", "\\vmmouse", "\\vmhgfs", "\\qemu-ga", "\\sandboxie", "\\wireshark"];

/// What a file of Windows keeps; none if reading it tells nothing.
pub fn secret(path: &str) -> Option<Secret> {
    let path = path.to_ascii_lowercase();
    let has = |parts: &[&str]| parts.iter().any(|part| path.contains(part));
    match () {
        () if has(&KEYS) => Some(Secret::Keys),
        () if path.contains("\\config\\sam") || path.ends_with("\\ntds.dit") => Some(Secret::Passwords),
        () if has(&MACHINE) => Some(Secret::Machine),
        () => None,
    }
}

/// Whether a key of the registry, without its root, is opened only by whoever wants to know what machine this is.
pub fn tells_the_machine(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    let begins = ["software\\wine", "hardware\\description\\system", "hardware\\devicemap\\scsi", "hardware\\acpi"];
    let parts = ["vmware", "virtualbox", "vboxguest", "vboxservice", "\\sandboxie", "\\qemu"];
    begins.iter().any(|begin| key.starts_with(begin)) || parts.iter().any(|part| key.contains(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_thieves_read_and_what_the_wary_look_at() {
        let chrome = "C:\\users\\anna\\AppData\\Local\\Google\\Chrome\\User Data\\Default\\Login Data";
        assert_eq!(secret(chrome), Some(Secret::Keys));
        assert_eq!(secret("C:\\windows\\system32\\drivers\\VBoxMouse.sys"), Some(Secret::Machine));
        assert_eq!(secret("C:\\users\\anna\\Documents\\notes.txt"), None);
        assert!(tells_the_machine("Software\\Wine") && tells_the_machine("SOFTWARE\\VMware, Inc.\\VMware Tools"));
        assert!(!tells_the_machine("Software\\Winery") || tells_the_machine("software\\wine"));
        assert!(!tells_the_machine("Software\\Microsoft\\Windows"));
    }
}
