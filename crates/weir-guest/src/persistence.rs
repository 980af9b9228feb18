//! Which files make a program survive a restart, or be started with every other program.

/// The way that changing this file would be; none if it is no way.
pub(crate) fn way(path: &str) -> Option<&'static str> {
    let begins = |folders: &[&str]| folders.iter().any(|folder| path.starts_with(folder));
    let name = path.rsplit('/').next().unwrap_or_default();
    let shell =
        [".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".profile", ".zshrc", ".zprofile", ".kshrc"];
    Some(match () {
        () if begins(&["/etc/cron", "/var/spool/cron", "/etc/anacrontab", "/var/spool/at"]) => "cron",
        () if begins(&["/etc/ld.so."]) => "preload",
        () if begins(&["/etc/systemd/", "/lib/systemd/", "/usr/lib/systemd/", "/run/systemd/"])
            || path.contains("/.config/systemd/") =>
        {
            "systemd"
        }
        () if begins(&["/etc/rc", "/etc/init.d/", "/etc/init/", "/etc/inittab", "/etc/local.d/"]) => "rc",
        () if path.contains("/.ssh/") || begins(&["/etc/ssh/"]) => "ssh",
        () if shell.contains(&name) || begins(&["/etc/profile", "/etc/bash.bashrc", "/etc/environment"]) => "shell",
        () if path.contains("/.config/autostart/") || begins(&["/etc/xdg/autostart/"]) => "autostart",
        () if begins(&["/etc/passwd", "/etc/shadow", "/etc/sudoers", "/etc/group", "/etc/pam.d/"]) => "account",
        () if begins(&["/etc/modules", "/etc/modprobe.d/", "/etc/udev/", "/lib/modules/"]) => "module",
        () => return None,
    })
}

/// The way that running this program with these arguments would be.
pub(crate) fn way_of_program(path: &str, arguments: &[String]) -> Option<&'static str> {
    let name = path.rsplit('/').next().unwrap_or_default();
    let says = |word: &str| arguments.iter().skip(1).any(|argument| argument == word);
    match name {
        "crontab" if !says("-l") => Some("cron"),
        "at" | "batch" => Some("cron"),
        "systemctl" if says("enable") => Some("systemd"),
        "update-rc.d" | "chkconfig" => Some("rc"),
        "useradd" | "adduser" | "usermod" => Some("account"),
        "insmod" | "modprobe" => Some("module"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways() {
        for (path, expected) in [
            ("/etc/cron.d/x", Some("cron")),
            ("/var/spool/cron/crontabs/user", Some("cron")),
            ("/home/user/.bashrc", Some("shell")),
            ("/etc/ld.so.preload", Some("preload")),
            ("/home/user/.ssh/authorized_keys", Some("ssh")),
            ("/etc/systemd/system/x.service", Some("systemd")),
            ("/home/user/.config/systemd/user/x.service", Some("systemd")),
            ("/etc/rc.local", Some("rc")),
            ("/home/user/.config/autostart/x.desktop", Some("autostart")),
            ("/etc/passwd", Some("account")),
            ("/tmp/cron", None),
            ("/home/user/bashrc", None),
        ] {
            assert_eq!(way(path), expected, "{path}");
        }
        assert_eq!(way_of_program("/usr/bin/crontab", &["crontab".into(), "-".into()]), Some("cron"));
        assert_eq!(way_of_program("/usr/bin/crontab", &["crontab".into(), "-l".into()]), None);
    }
}
