//! Tests of the units in packaging/, as systemd itself reads them.

use std::fs;
use std::path::Path;
use std::process::Command;

/// The units, and how exposed systemd may find each program: 0 is not at all, 10 is completely. A worker makes namespaces for its
/// sandboxes, which costs it more than one point.
const UNITS: [(&str, &str, u32); 3] =
    [("weir.service", "", 25), ("weir.service", "weir-lab.conf", 60), ("weir-worker.service", "", 40)];

/// Writes a unit as it is installed, with the program of this test, and the file that is put beside it.
fn installed(home: &Path, unit: &str, beside: &str) -> String {
    let packaging = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging");
    let text = fs::read_to_string(packaging.join(unit)).unwrap();
    let text = text.replace("/usr/local/bin/weir", env!("CARGO_BIN_EXE_weir"));
    // Our manual page is not installed here.
    let text: String =
        text.lines().filter(|line| !line.starts_with("Documentation=")).map(|line| format!("{line}\n")).collect();
    let path = home.join(unit);
    fs::write(&path, text).unwrap();
    let folder = home.join(format!("{unit}.d"));
    let _ = fs::remove_dir_all(&folder);
    if !beside.is_empty() {
        fs::create_dir(&folder).unwrap();
        fs::copy(packaging.join(beside), folder.join(beside)).unwrap();
    }
    path.display().to_string()
}

#[test]
fn systemd_finds_nothing_wrong_with_our_units_and_little_that_they_leave_open() {
    let home = tempfile::tempdir().unwrap();
    for (unit, beside, exposed) in UNITS {
        let path = installed(home.path(), unit, beside);
        let verified = Command::new("systemd-analyze").args(["verify", &path]).output().expect("systemd is installed");
        let said = String::from_utf8_lossy(&verified.stderr);
        // A systemd older than 254 does not know this setting, and puts the main process into the group itself.
        let said: Vec<&str> =
            said.lines().filter(|line| line.contains(unit) && !line.contains("DelegateSubgroup")).collect();
        assert!(said.is_empty() && verified.status.success(), "{unit} {beside}: {said:#?}");
        let mut security = Command::new("systemd-analyze");
        security.args(["security", "--no-pager", "--offline=true", &format!("--threshold={exposed}"), &path]);
        let looked = security.output().unwrap();
        let said = String::from_utf8_lossy(&looked.stdout);
        assert!(said.contains("Overall exposure level"), "{unit}: {said} {}", String::from_utf8_lossy(&looked.stderr));
        assert!(looked.status.success(), "{unit} {beside} is more exposed than {exposed}: {said}");
    }
}
