//! Files whose reading says something about the program that reads them.

/// What a file keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Secret {
    /// Passwords of the machine's users.
    Passwords,
    /// Keys and passwords for other machines, of browsers and of purses.
    Keys,
    /// Whether somebody traces the reader.
    Tracer,
    /// What machine this is: a real one, or one that somebody made up.
    Machine,
    /// How large and how old the machine is: honest programs ask that too, but who asks may do something else elsewhere.
    Hardware,
    /// The memory of the kernel, or of another process.
    Memory,
}

/// Names of files in a home that hold keys and passwords.
const KEYS: [&str; 16] = [
    "/.ssh/id_",
    "/.aws/credentials",
    "/.config/gcloud/",
    "/.azure/",
    "/.kube/config",
    "/.docker/config.json",
    "/.netrc",
    "/.git-credentials",
    "/.pgpass",
    "/.my.cnf",
    "/.gnupg/",
    "/.mozilla/firefox/",
    "/.config/google-chrome/",
    "/.config/chromium/",
    "/.bitcoin/",
    "/.electrum/",
];

/// What a file keeps, by its path; none if reading it tells nothing.
pub fn of(path: &str) -> Option<Secret> {
    let begins = |all: &[&str]| all.iter().any(|begin| path.starts_with(begin));
    // A process's memory, unless it is the reader's own.
    let others = path.strip_prefix("/proc/").is_some_and(|rest| {
        rest.strip_suffix("/mem").is_some_and(|pid| !pid.is_empty() && pid.bytes().all(|byte| byte.is_ascii_digit()))
    });
    Some(match () {
        () if begins(&["/etc/shadow", "/etc/gshadow", "/etc/sudoers"]) => Secret::Passwords,
        () if KEYS.iter().any(|part| path.contains(part)) && !path.ends_with(".pub") => Secret::Keys,
        () if matches!(path, "/proc/self/status" | "/proc/thread-self/status") => Secret::Tracer,
        () if begins(&["/sys/class/dmi/", "/sys/devices/virtual/dmi/", "/sys/hypervisor/", "/proc/scsi/"]) => {
            Secret::Machine
        }
        () if begins(&[
            "/proc/cpuinfo",
            "/proc/meminfo",
            "/proc/uptime",
            "/proc/modules",
            "/proc/bus/",
            "/sys/class/thermal/",
        ]) || begins(&[
            "/sys/class/power_supply",
            "/sys/firmware/",
            "/proc/device-tree",
            "/sys/bus/pci/",
            "/proc/ioports",
        ]) =>
        {
            Secret::Hardware
        }
        () if others || matches!(path, "/dev/mem" | "/dev/kmem" | "/proc/kcore") => Secret::Memory,
        () => return None,
    })
}

/// The same for what is moved or linked elsewhere and can be read there: only what others may not see, and folders of it as well.
pub fn moved(path: &str) -> Option<Secret> {
    let name = path.rsplit('/').next().map(|name| format!("/{name}/")).unwrap_or_default();
    let whole = format!("{path}/");
    let is_folder = |part: &&&str| part.starts_with(&name) || part.ends_with('/') && whole.contains(**part);
    let own = of(path).filter(|kept| matches!(kept, Secret::Passwords | Secret::Keys));
    own.or_else(|| KEYS.iter().find(is_folder).map(|_| Secret::Keys))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_tell() {
        for (path, expected) in [
            ("/etc/shadow", Some(Secret::Passwords)),
            ("/etc/shadow-", Some(Secret::Passwords)),
            ("/etc/passwd", None),
            ("/home/user/.ssh/id_rsa", Some(Secret::Keys)),
            ("/home/user/.ssh/id_rsa.pub", None),
            ("/home/user/.ssh/known_hosts", None),
            ("/root/.aws/credentials", Some(Secret::Keys)),
            ("/proc/self/status", Some(Secret::Tracer)),
            ("/proc/7/status", None),
            ("/proc/7/mem", Some(Secret::Memory)),
            ("/proc/self/mem", None),
            ("/proc/mem", None),
            ("/sys/class/dmi/id/product_name", Some(Secret::Machine)),
            ("/proc/cpuinfo", Some(Secret::Hardware)),
            ("/proc/uptime", Some(Secret::Hardware)),
            ("/proc/stat", None),
            ("/tmp/shadow", None),
        ] {
            assert_eq!(of(path), expected, "{path}");
        }
    }

    #[test]
    fn folders_of_secrets() {
        for path in [
            "/etc/shadow",
            "/home/user/.ssh",
            "/home/user/.gnupg",
            "/home/user/.config/google-chrome",
            "/home/user/.config",
        ] {
            assert!(moved(path).is_some(), "{path}");
        }
        for path in
            ["/home/user", "/home/user/.config/git", "/etc/passwd", "/proc/cpuinfo", "/", "/home/user/.ssh/id_rsa.pub"]
        {
            assert!(moved(path).is_none(), "{path}");
        }
    }
}
