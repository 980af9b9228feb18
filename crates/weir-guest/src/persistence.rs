//! Which files make a program survive a restart, or be started with every other program.

/// Beginnings of paths, by the way that they are.
const BEGINS: [(&str, &[&str]); 9] = [
    ("cron", &["/etc/cron", "/var/spool/cron", "/etc/anacrontab", "/var/spool/anacron", "/var/spool/at"]),
    ("preload", &["/etc/ld.so."]),
    (
        "systemd",
        &[
            "/etc/systemd/",
            "/lib/systemd/",
            "/usr/lib/systemd/",
            "/usr/local/lib/systemd/",
            "/usr/share/systemd/",
            "/run/systemd/",
            "/etc/environment.d/",
            "/usr/lib/environment.d/",
        ],
    ),
    (
        "rc",
        &[
            "/etc/rc",
            "/etc/init.d/",
            "/etc/init/",
            "/etc/inittab",
            "/etc/local.d/",
            "/etc/runit/",
            "/etc/sv/",
            "/etc/service/",
            "/etc/inetd.conf",
            "/etc/xinetd.",
            // What the network, the power, a login or the next update starts.
            "/etc/network/if-",
            "/etc/NetworkManager/dispatcher.d/",
            "/etc/dhcp/",
            "/etc/ppp/",
            "/etc/acpi/",
            "/etc/pm/",
            "/etc/update-motd.d/",
            "/etc/apt/apt.conf.d/",
            "/etc/dpkg/dpkg.cfg.d/",
            "/etc/logrotate.",
            "/etc/initramfs-tools/",
            "/boot/",
        ],
    ),
    ("ssh", &["/etc/ssh/"]),
    (
        "shell",
        &[
            "/etc/profile",
            "/etc/bash.bashrc",
            "/etc/bashrc",
            "/etc/bash_completion.d/",
            "/etc/environment",
            "/etc/zsh",
            "/etc/csh",
            "/etc/fish/",
            "/etc/skel/",
        ],
    ),
    (
        "autostart",
        &[
            "/etc/xdg/autostart/",
            "/usr/share/autostart/",
            "/usr/share/gnome/autostart/",
            "/etc/X11/",
            "/usr/share/dbus-1/",
            "/etc/dbus-1/",
        ],
    ),
    (
        "account",
        &[
            "/etc/passwd",
            "/etc/shadow",
            "/etc/gshadow",
            "/etc/sudoers",
            "/etc/doas.conf",
            "/etc/group",
            "/etc/pam.",
            "/etc/security/",
            "/lib/security/",
            "/usr/lib/security/",
            "/lib/x86_64-linux-gnu/security/",
            "/usr/lib/x86_64-linux-gnu/security/",
            "/etc/polkit-1/",
            "/usr/share/polkit-1/",
        ],
    ),
    (
        "module",
        &[
            "/etc/modules",
            "/etc/modprobe.d/",
            "/usr/lib/modules-load.d/",
            "/usr/lib/modprobe.d/",
            "/lib/modprobe.d/",
            "/lib/modules/",
            "/usr/lib/modules/",
            "/etc/dkms/",
            "/etc/udev/",
            "/lib/udev/",
            "/usr/lib/udev/",
            "/run/udev/",
            "/etc/binfmt.d/",
        ],
    ),
];

/// Folders of somebody's home.
const FOLDERS: [(&str, &[&str]); 4] = [
    ("systemd", &["/.config/systemd/", "/.local/share/systemd/", "/.config/environment.d/"]),
    ("ssh", &["/.ssh/"]),
    ("shell", &["/.config/fish/", "/.bashrc.d/"]),
    (
        "autostart",
        &[
            "/.config/autostart/",
            "/.config/autostart-scripts/",
            "/.config/plasma-workspace/",
            "/.kde/Autostart/",
            "/.config/lxsession/",
            "/.config/openbox/",
            "/.local/share/dbus-1/services/",
        ],
    ),
];

/// Files of somebody's home.
const NAMES: [(&str, &[&str]); 2] = [
    (
        "shell",
        &[
            ".bashrc",
            ".bash_profile",
            ".bash_login",
            ".bash_logout",
            ".bash_aliases",
            ".bash_completion",
            ".profile",
            ".zshrc",
            ".zshenv",
            ".zprofile",
            ".zlogin",
            ".zlogout",
            ".kshrc",
            ".mkshrc",
            ".cshrc",
            ".tcshrc",
            ".login",
            ".pam_environment",
        ],
    ),
    ("autostart", &[".xinitrc", ".xsession", ".xsessionrc", ".xprofile", ".Xclients"]),
];

/// The way that changing this file would be; none if it is no way.
pub(crate) fn way(path: &str) -> Option<&'static str> {
    let name = path.rsplit('/').next().unwrap_or_default();
    let of = |table: &[(&'static str, &[&str])], fits: &dyn Fn(&str) -> bool| {
        table.iter().find(|(_, all)| all.iter().any(|one| fits(one))).map(|(what, _)| *what)
    };
    of(&BEGINS, &|begin| path.starts_with(begin))
        .or_else(|| of(&FOLDERS, &|folder| path.contains(folder)))
        .or_else(|| of(&NAMES, &|known| name == known))
        .or_else(|| starts_with_python(path, name).then_some("python"))
}

/// The folders below this path in which files would be a way, if there is a folder at this path.
pub(crate) fn below(path: &str) -> impl Iterator<Item = (&'static str, String)> {
    let of_home = FOLDERS.iter().flat_map(|(what, all)| all.iter().map(|folder| (*what, *folder)));
    // In a home `/.config/systemd/` is below everything that ends with `/.config`.
    let of_home = of_home.filter_map(move |(what, folder)| {
        let ends = folder.match_indices('/').map(|(at, _)| folder.split_at(at)).filter(|(begin, _)| !begin.is_empty());
        let (_, rest) = ends.filter(|(_, rest)| rest.len() > 1).find(|(begin, _)| path.ends_with(begin))?;
        Some((what, format!("{path}{}", rest.trim_end_matches('/'))))
    });
    let of_machine = BEGINS.iter().flat_map(|(what, all)| all.iter().map(|begin| (*what, *begin)));
    let is_below =
        move |begin: &str| begin.strip_prefix(path).is_some_and(|rest| rest.len() > 1 && rest.starts_with('/'));
    of_home.chain(of_machine.filter(move |(_, begin)| is_below(begin)).map(|(what, begin)| (what, begin.to_owned())))
}

/// What every Python of a user or of the machine carries out first.
fn starts_with_python(path: &str, name: &str) -> bool {
    let is_of_all = path.contains("/.local/lib/python") || path.starts_with("/usr/");
    let is_module = ["usercustomize", "sitecustomize"].iter().any(|module| name.starts_with(module));
    let is_looked_at = path.contains("/site-packages/") || path.contains("/dist-packages/");
    is_of_all && (is_looked_at && (is_module || name.ends_with(".pth")) || is_module && path.contains("/python3"))
}

/// The way that running this program with these arguments would be.
pub(crate) fn way_of_program(path: &str, arguments: &[String]) -> Option<&'static str> {
    let name = path.rsplit('/').next().unwrap_or_default();
    let says = |word: &str| arguments.iter().skip(1).any(|argument| argument == word);
    let begins = |begin: &str| arguments.iter().skip(1).any(|argument| argument.starts_with(begin));
    match name {
        "crontab" | "at" if !says("-l") => Some("cron"),
        "batch" => Some("cron"),
        "systemctl" if ["enable", "reenable", "link", "add-wants", "add-requires"].into_iter().any(says) => {
            Some("systemd")
        }
        "systemd-run" if begins("--on-") => Some("systemd"),
        "loginctl" if says("enable-linger") => Some("systemd"),
        "update-rc.d" | "chkconfig" | "rc-update" | "insserv" => Some("rc"),
        "useradd" | "adduser" | "usermod" | "groupadd" | "gpasswd" | "chpasswd" | "chsh" => Some("account"),
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
            ("/home/user/.bash_aliases", Some("shell")),
            ("/home/user/.zshenv", Some("shell")),
            ("/home/user/.config/fish/conf.d/x.fish", Some("shell")),
            ("/etc/profile.d/x.sh", Some("shell")),
            ("/home/user/.xprofile", Some("autostart")),
            ("/home/user/.config/plasma-workspace/env/x.sh", Some("autostart")),
            ("/home/user/.local/share/dbus-1/services/x.service", Some("autostart")),
            ("/etc/X11/Xsession.d/99x", Some("autostart")),
            ("/home/user/.local/share/systemd/user/x.service", Some("systemd")),
            ("/usr/local/lib/systemd/system/x.timer", Some("systemd")),
            ("/var/spool/cron/atjobs/a0001", Some("cron")),
            ("/etc/udev/rules.d/99-x.rules", Some("module")),
            ("/usr/lib/udev/rules.d/99-x.rules", Some("module")),
            ("/etc/update-motd.d/00-x", Some("rc")),
            ("/etc/network/if-up.d/x", Some("rc")),
            ("/etc/apt/apt.conf.d/99x", Some("rc")),
            ("/etc/pam.conf", Some("account")),
            ("/lib/x86_64-linux-gnu/security/pam_x.so", Some("account")),
            ("/home/user/.local/lib/python3.11/site-packages/x.pth", Some("python")),
            ("/usr/lib/python3/dist-packages/sitecustomize.py", Some("python")),
            ("/home/user/venv/lib/python3.11/site-packages/distutils-precedence.pth", None),
            ("/home/user/.local/lib/python3.11/site-packages/requests/api.py", None),
            ("/home/user/.config/git/config", None),
            ("/home/user/.vim/vimrc", None),
            ("/home/user/.bash_history", None),
            ("/home/user/.local/share/bash-completion/completions/tool", None),
            ("/tmp/cron", None),
            ("/home/user/bashrc", None),
        ] {
            assert_eq!(way(path), expected, "{path}");
        }
        let first = |path: &str| below(path).next();
        assert_eq!(first("/home/user/.kde"), Some(("autostart", "/home/user/.kde/Autostart".into())));
        assert_eq!(first("/home/user/.local/share"), Some(("systemd", "/home/user/.local/share/systemd".into())));
        assert_eq!(first("/var/spool"), Some(("cron", "/var/spool/cron".into())));
        for path in
            ["/home/user", "/home/user/.config/systemd", "/home/user/x.config", "/etc/systemd", "/tmp", "/var/spo"]
        {
            assert_eq!(first(path), None, "{path}");
        }
        let run = |line: &str| {
            let arguments: Vec<String> = line.split(' ').map(str::to_owned).collect();
            way_of_program(&format!("/usr/bin/{}", arguments[0]), &arguments)
        };
        for (line, expected) in [
            ("crontab -", Some("cron")),
            ("crontab -l", None),
            ("at now + 1 hour", Some("cron")),
            ("at -l", None),
            ("systemctl --user enable --now x", Some("systemd")),
            ("systemctl status x", None),
            ("systemd-run --user --on-calendar=hourly /tmp/x", Some("systemd")),
            ("systemd-run --user /tmp/x", None),
            ("loginctl enable-linger user", Some("systemd")),
            ("rc-update add x", Some("rc")),
            ("chsh -s /tmp/x", Some("account")),
        ] {
            assert_eq!(run(line), expected, "{line}");
        }
    }
}
