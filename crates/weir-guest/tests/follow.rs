//! What the agent says of small scripts, by a real trace of them: real links, real files, the kernel's own answers.
//!
//! Where processes may not be traced, nothing is tested, and each test says so. Whether they may is tried without the agent: an agent that
//! fails is a failed test.

use nix::sys::ptrace;
use nix::sys::wait::waitpid;
use nix::unistd::Pid;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use weir_guest::behaviour::Behaviour;

/// Why no process can be traced here, if that is so: some containers forbid it, and no process has two tracers.
fn untraceable() -> Option<&'static str> {
    static WHY: OnceLock<Option<String>> = OnceLock::new();
    let why = WHY.get_or_init(|| {
        // It ends when its input does, should the test fail before.
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let pid = Pid::from_raw(child.id().cast_signed());
        let why = ptrace::attach(pid).err().map(|errno| errno.to_string());
        if why.is_none() {
            waitpid(pid, None).unwrap();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        why
    });
    why.as_deref()
}

/// A sample that was followed.
struct Followed {
    home: PathBuf,
    seen: Behaviour,
}

impl Followed {
    /// Runs a shell script in a folder of its own.
    fn script(script: &str) -> Option<Followed> {
        if let Some(why) = untraceable() {
            eprintln!("skipped: nothing can be traced here: {why}");
            return None;
        }
        let home = tempfile::tempdir().unwrap();
        let path = home.path().canonicalize().unwrap();
        let sample = path.join("sample.sh");
        std::fs::write(path.join(".bashrc"), "# what was there before\n").unwrap();
        std::fs::write(&sample, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&sample, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let agent = Path::new(env!("CARGO_BIN_EXE_weir-guest"));
        let output = Command::new(agent).arg("follow").arg(&sample).current_dir(&path).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {said}", output.status);
        let seen: Behaviour = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {said}"));
        assert!(seen.processes.first().is_some_and(|first| !first.path.is_empty()), "the script did not run: {said}");
        Some(Followed { home: path, seen })
    }

    /// A path as the script would write it.
    fn here<'a>(&self, path: &'a str) -> &'a str {
        self.home.to_str().and_then(|home| path.strip_prefix(home)).map_or(path, |rest| rest.trim_start_matches('/'))
    }

    fn acts(&self, what: &str) -> Vec<&str> {
        self.seen.acts.iter().filter(|act| act.what == what).map(|act| self.here(&act.detail)).collect()
    }

    fn ways(&self) -> Vec<(&str, &str)> {
        self.seen.persistence.iter().map(|way| (&*way.what, self.here(&way.path))).collect()
    }
}

#[test]
fn secrets_behind_links_are_told_by_their_real_names() {
    let script = "mkdir -p .ssh more; echo k > .ssh/id_rsa; echo l > .ssh/id_ed25519; echo m > .ssh/id_ecdsa
        ln -s .ssh/id_rsa a; cat a
        ln -s ../.ssh more/b; cat more/b/id_ed25519
        ln .ssh/id_ecdsa c; cat c
        ln -s .ssh/id_dsa d; cat d
        cat /proc/self/root/etc/gshadow
        ln -s /proc/self/status e; cat e
        cat /proc/self/maps; cat /proc/$$/stat; ls -l .ssh";
    let Some(followed) = Followed::script(script) else { return };
    let expected =
        [".ssh/id_rsa", ".ssh/id_ed25519", ".ssh/id_ecdsa", ".ssh/id_dsa", "/etc/gshadow", "/proc/self/status"];
    assert_eq!(followed.acts("reads"), expected, "{:#?}", followed.seen);
}

#[test]
fn whoever_moves_the_folder_of_all_settings_reads_the_keys_in_it() {
    let made = "mkdir -p .config/chromium/Default x; echo k > .config/chromium/Default/Cookies";
    let swap = |one: &str, other: &str| {
        format!("python3 -c \"import ctypes; ctypes.CDLL(None).renameat2(-100, b'{one}', -100, b'{other}', 2)\"")
    };
    for moved in ["mv -T .config x".to_owned(), swap(".config", "x"), swap("x", ".config")] {
        let script = format!("{made}; {moved}; cat x/chromium/Default/Cookies");
        let Some(followed) = Followed::script(&script) else { return };
        if followed.acts("missing").contains(&"python3") {
            return eprintln!("skipped: there is no Python");
        }
        assert_eq!(followed.acts("reads"), [".config"], "{moved}: {:#?}", followed.seen);
    }
    // What the kernel's build has under this name is a file, and it is also renamed where it is not there.
    let Some(followed) = Followed::script(
        "perl -e 'rename(\".config\", \".config.old\")'; echo x > .config; ln .config a; mv .config b",
    ) else {
        return;
    };
    assert_eq!(followed.acts("reads"), [] as [&str; 0], "{:#?}", followed.seen);
}

#[test]
fn a_secret_that_is_opened_for_writing_as_well_is_read() {
    let script = "mkdir .aws; echo k > .aws/credentials; exec 3<> .aws/credentials; read x <&3; exec 4<> .netrc";
    let Some(followed) = Followed::script(script) else { return };
    assert_eq!(followed.acts("reads"), [".aws/credentials"], "{:#?}", followed.seen);
}

#[test]
fn files_of_the_kernel_that_are_opened_for_writing_as_well_are_read() {
    // These have no length, and some of them are not on every machine. Its own memory is nobody else's.
    let script = "(: <> /proc/kcore); ln -s /proc/cpuinfo a; (: <> a); : <> /proc/self/mem; : <> /proc/self/comm
        mkdir .aws; : <> .aws/credentials; (: <> /proc/$$/mem)";
    let Some(followed) = Followed::script(script) else { return };
    let first = followed.seen.processes.first().map(|first| format!("/proc/{}/mem", first.pid)).unwrap_or_default();
    assert_eq!(followed.acts("reads"), ["/proc/kcore", "/proc/cpuinfo", &first], "{:#?}", followed.seen);
}

#[test]
fn whoever_reads_only_what_is_its_own_reads_no_secret() {
    let script = "echo x > notes; ln -s notes a; cat a; mkdir sub; ln -s ../notes sub/b; cat sub/../a sub/b; cat < /dev/null; read x < /proc/$$/status";
    let Some(followed) = Followed::script(script) else { return };
    assert_eq!(followed.acts("reads"), [] as [&str; 0], "{:#?}", followed.seen);
}

#[test]
fn what_stays_by_way_of_a_link_is_told_by_its_real_name() {
    let script = "mkdir -p .config/autostart
        ln -s .config/autostart a; echo x > a/b.desktop
        ln -s /etc/cron.d/no-such-folder c; echo x > c/d
        ln .bashrc e; echo x >> e
        ln -s nowhere/.ssh f; echo x > f/authorized_keys
        mkdir -p units .config/systemd; ln -s ../../units .config/systemd/user; mkdir g; ln -s ../g .config/plasma-workspace";
    let Some(followed) = Followed::script(script) else { return };
    let expected = [
        ("autostart", ".config/autostart/b.desktop"),
        ("cron", "/etc/cron.d/no-such-folder/d"),
        ("shell", ".bashrc"),
        ("ssh", "nowhere/.ssh/authorized_keys"),
        ("systemd", ".config/systemd/user"),
        ("autostart", ".config/plasma-workspace"),
    ];
    assert_eq!(followed.ways(), expected, "{:#?}", followed.seen);
}

#[test]
fn what_stays_in_a_folder_that_is_put_in_place_is_told() {
    for script in [
        "mkdir -p c/autostart; echo x > c/autostart/b.desktop; mv -T c .config",
        "mkdir -p .config c/d/autostart; echo x > c/d/autostart/b.desktop; mv -T c/d .config",
        "mkdir c; ln -s c .config; mkdir .config/autostart; echo x > .config/autostart/b.desktop",
        "mkdir c; ln -s c d; mv d .config; mkdir c/autostart; echo x > c/autostart/b.desktop",
    ] {
        let Some(followed) = Followed::script(script) else { return };
        let ways: Vec<&str> = followed.ways().into_iter().map(|(_, path)| path).collect();
        assert_eq!(ways, [".config"], "{script}: {:#?}", followed.seen);
    }
    let script = "mkdir -p c/git; echo x > c/git/config; mv c .config; mv .config d
        echo x > tmp; mv tmp .config; mkdir e; ln -s ../.config e/.config; mkdir -p f/share; mv f .local";
    let Some(followed) = Followed::script(script) else { return };
    assert_eq!(followed.ways(), [], "{:#?}", followed.seen);
}

#[test]
fn a_file_that_changes_places_with_another_is_changed() {
    let swap = "ctypes.CDLL(None).renameat2(-100, b'.bashrc', -100, b'x', 2)";
    let Some(followed) = Followed::script(&format!("echo evil > x; python3 -c \"import ctypes; {swap}\"")) else {
        return;
    };
    if followed.acts("missing").contains(&"python3") {
        return eprintln!("skipped: there is no Python");
    }
    assert_eq!(followed.ways(), [("shell", ".bashrc")], "{:#?}", followed.seen);
}

#[test]
fn a_second_name_is_told_wherever_it_goes() {
    for script in ["mkdir d; ln .bashrc d/e; mv d f; echo x >> f/e", "ln .bashrc e; ln e f; mv f g; echo x >> g"] {
        let Some(followed) = Followed::script(script) else { return };
        assert_eq!(followed.ways(), [("shell", ".bashrc")], "{script}: {:#?}", followed.seen);
    }
    let swap = "python3 -c \"import ctypes; ctypes.CDLL(None).renameat2(-100, b'e', -100, b'x', 2)\"";
    let Some(followed) = Followed::script(&format!("ln .bashrc e; echo > x; {swap}; echo x >> x")) else { return };
    if followed.acts("missing").contains(&"python3") {
        return eprintln!("skipped: there is no Python");
    }
    assert_eq!(followed.ways(), [("shell", ".bashrc")], "{:#?}", followed.seen);
}

#[test]
fn a_second_name_by_way_of_an_open_file_is_told() {
    let link = "libc = ctypes.CDLL(None); libc.linkat(os.open('.bashrc', 0), b'', -100, b'e', 0x1000)";
    let script = format!("python3 -c \"import ctypes, os; {link}\"; echo x >> e");
    let Some(followed) = Followed::script(&script) else { return };
    if followed.acts("missing").contains(&"python3") {
        return eprintln!("skipped: there is no Python");
    }
    assert_eq!(followed.ways(), [("shell", ".bashrc")], "{:#?}", followed.seen);
}

#[test]
fn a_log_that_is_emptied_by_way_of_a_link_was_there_before() {
    let Some(followed) = Followed::script("echo x > log; ln -s log a; ln -s . b; : > a; rm b/log") else { return };
    let deleted = followed.seen.files.iter().find(|file| file.what == "deleted");
    assert_eq!(deleted.map(|file| followed.here(&file.path)), Some("log"), "{:#?}", followed.seen);
}

#[test]
fn what_should_have_come_along_is_missing() {
    let script = ". /dev/null; cat ./config.json; cat state; echo 1 > state; ./helper; cat .settings; cat lib/common.sh
        cat /etc/no-such-file; sh payload.sh; mkdir out; cat out/old; cat sample.sh; exit 0";
    let Some(followed) = Followed::script(script) else { return };
    let expected = ["config.json", "helper", "lib/common.sh", "payload.sh"];
    assert_eq!(followed.acts("missing"), expected, "{:#?}", followed.seen);
}

#[test]
fn a_change_of_what_names_mean_is_told() {
    let Some(followed) =
        Followed::script("unshare -r true; mount -t tmpfs none ./no-such-folder; chroot ./no-such-folder true")
    else {
        return;
    };
    assert_eq!(followed.acts("remounts"), ["unshare", "mount", "chroot"], "{:#?}", followed.seen);
}

#[test]
fn what_tells_is_told_behind_a_flood_of_files() {
    let script = "i=0; while [ $i -lt 1000 ]; do : > f$i; read x < f$i; i=$((i+1)); done
        mkdir -p .ssh; echo k > .ssh/id_rsa; cat .ssh/id_rsa; echo x >> .bashrc; printf '#!/bin/sh\\necho hi\\n' > late; chmod +x late; ./late";
    let Some(followed) = Followed::script(script) else { return };
    assert_eq!(followed.acts("reads"), [".ssh/id_rsa"]);
    assert!(followed.ways().contains(&("shell", ".bashrc")));
    assert!(followed.seen.files.iter().any(|file| followed.here(&file.path) == "late"), "it runs");
    assert!(followed.seen.left_out > 0);
}
