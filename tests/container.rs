//! Tests of the container image: one program and no other, no capabilities, a read-only file system.

use crate::control::gate::wait_for;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// The user of the image.
const USER: u32 = 10_001;

/// Runs Weir in bubblewrap as in packaging/compose, with a network of its own. An ordinary user starts it: for root, bubblewrap hides a
/// part of /proc, like containers without the permissions that packaging/compose/lab.yml gives.
struct Container {
    home: tempfile::TempDir,
    process: Child,
}

impl Container {
    fn start(configuration: &Path) -> Container {
        let home = tempfile::tempdir().unwrap();
        fs::set_permissions(home.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let (image, data) = (home.path().join("image"), home.path().join("data"));
        for folder in ["usr/bin", "etc/weir", "var/lib/weir", "tmp", "proc", "dev"] {
            fs::create_dir_all(image.join(folder)).unwrap();
        }
        fs::create_dir(&data).unwrap();
        chown(&data, Some(USER), Some(USER)).unwrap();
        fs::write(image.join("etc/passwd"), "root:x:0:0::/:/\nweir:x:10001:10001::/var/lib/weir:/\n").unwrap();
        let program = env!("CARGO_BIN_EXE_weir");
        let mut stripped = Command::new("strip");
        stripped.args(["--strip-all", "-o"]).arg(image.join("usr/bin/weir")).arg(program);
        assert!(stripped.status().unwrap().success());
        // The released program is static. The one that is tested here needs its libraries.
        let needs = Command::new("ldd").arg(program).output().unwrap();
        for library in String::from_utf8_lossy(&needs.stdout).split_whitespace().filter(|word| word.starts_with('/')) {
            let place = image.join(library.trim_start_matches('/'));
            fs::create_dir_all(place.parent().unwrap()).unwrap();
            fs::copy(library, place).unwrap();
        }
        fs::copy(configuration, image.join("etc/weir/weir.toml")).unwrap();
        let mut command = Command::new("bwrap");
        command
            .args(["--unshare-user", "--unshare-pid", "--unshare-net", "--ro-bind"])
            .arg(&image)
            .args(["/", "--bind"]);
        command.arg(&data).args(["/var/lib/weir", "--tmpfs", "/tmp", "--proc", "/proc", "--dev", "/dev"]);
        command.args(["--die-with-parent", "/usr/bin/weir", "up", "--config", "/etc/weir/weir.toml"]);
        command.args(["--data", "/var/lib/weir"]).uid(USER).gid(USER);
        let process = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        Container { home, process }
    }

    /// The JSON output of a command on the container's data, as soon as it succeeds.
    fn json(&self, arguments: &[&str]) -> Value {
        wait_for(&format!("an answer to {arguments:?}"), || {
            let mut command = Command::new(self.home.path().join("image/usr/bin/weir"));
            command.args(arguments).arg("--json").arg("--data").arg(self.home.path().join("data"));
            let answer = command.uid(USER).gid(USER).output().unwrap();
            answer.status.success().then(|| serde_json::from_slice(&answer.stdout).expect("one JSON document"))
        })
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn a_lab_without_any_other_program_looks_at_samples() {
    let configuration = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/compose/lab.toml");
    let container = Container::start(&configuration);
    let file = container.home.path().join("letter.txt");
    fs::write(&file, "hello, http://evil.example/x\n").unwrap();
    let sample = container.json(&["lab", "submit", file.to_str().unwrap()])[0]["sample"].as_u64().unwrap();
    let report = wait_for("the sample to end", || {
        let report = container.json(&["lab", "report", &sample.to_string()]);
        (!report["ended_at"].is_null()).then_some(report)
    });
    assert_eq!(report["state"], "done", "{report:#}");
    assert!(report["results"].to_string().contains("evil.example"), "{report:#}");
}
