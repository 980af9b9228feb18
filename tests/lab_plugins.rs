//! Tests of the lab's plugins in their sandbox, what they find in samples, and all the reports.

use crate::control::gate::{Site, wait_for};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A lab with plugins of these names and programs (shell, or Python if it begins with `import`), and further lines for their manifests.
struct Lab {
    site: Site,
    _plugins: tempfile::TempDir,
}

impl Lab {
    fn new(plugins: &[(&str, &str, &str)], settings: &str) -> Lab {
        let folder = tempfile::tempdir().unwrap();
        for (name, program, more) in plugins {
            let home = folder.path().join(name);
            fs::create_dir(&home).unwrap();
            let shell = if program.starts_with("import") { "/usr/bin/python3" } else { "/bin/sh" };
            fs::write(home.join("run"), format!("#!{shell}\n{program}\n")).unwrap();
            fs::set_permissions(home.join("run"), fs::Permissions::from_mode(0o755)).unwrap();
            let manifest = format!("name = \"{name}\"\nversion = \"1\"\nexec = [\"./run\"]\n{more}\n");
            fs::write(home.join("plugin.toml"), manifest).unwrap();
        }
        let site = Site::new(&format!("[lab]\nenabled = true\nslots = 2\nplugins = {:?}\n{settings}", folder.path()));
        Lab { site, _plugins: folder }
    }

    fn hand_in(&self, name: &str, content: &[u8]) -> u64 {
        let file = self.site.home().join(name);
        fs::write(&file, content).unwrap();
        self.site.json(&["lab", "submit", file.to_str().unwrap()])[0]["sample"].as_u64().unwrap()
    }

    /// The report of a sample, when it and everything in it have ended.
    fn ended(&self, sample: u64) -> Value {
        wait_for("the sample and its children to end", || {
            let report = self.site.json(&["lab", "report", &sample.to_string()]);
            let parts = report["parts"].as_array()?;
            let open = |of: &Value| of["ended_at"].is_null();
            (!open(&report) && !parts.iter().any(open)).then_some(report)
        })
    }

    /// What the last result of a plugin says.
    fn said(report: &Value, plugin: &str) -> String {
        let results = report["results"].as_array().unwrap();
        let result = results.iter().rfind(|result| result["plugin"] == plugin).unwrap_or(&Value::Null);
        result["report"]["errorMessage"].as_str().unwrap_or_default().to_owned()
    }
}

const FINE: &str = r#"echo '{"success":true}' > output/output.json"#;

#[test]
fn hostile_plugins_are_stopped_and_told_and_the_next_sample_is_analysed() {
    let site_marker = "attempts = 1";
    let lab = Lab::new(
        &[
            (
                "forks",
                "import os, time\nwhile True:\n  try:\n    if os.fork() == 0: time.sleep(98771)\n  except OSError: pass",
                "timeout_s = 2\nprocesses = 32",
            ),
            (
                "eats",
                "import os, time\nfor i in range(8):\n  if os.fork() == 0:\n    x = bytearray(os.urandom(1 << 20) * 40); time.sleep(20)\ntime.sleep(20)",
                "memory_mib = 128\ntimeout_s = 20",
            ),
            ("floods", "yes", "timeout_s = 2"),
            (
                "fills",
                "i=0; while :; do i=$((i+1)); head -c 1000000 /dev/zero > output/$i; done",
                "disk_mib = 20\ntimeout_s = 20",
            ),
            ("calls", "import socket\nsocket.create_connection(('127.0.0.1', 22), 2)", ""),
            (
                "asks",
                "import socket\nsocket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.53', 53))",
                "",
            ),
            ("stays", &format!("(setsid sh -c '(setsid sleep 98772 &) &' &); {FINE}"), ""),
            ("traces", "import ctypes, os\nctypes.CDLL(None).ptrace(16, os.getppid(), 0, 0)", ""),
            ("kills", &format!("kill -9 -1; {FINE}"), "timeout_s = 5"),
        ],
        site_marker,
    );
    let _up = lab.site.up();
    let sample = lab.hand_in("sample", b"x");
    let report = lab.ended(sample);
    assert_eq!((&report["state"], &report["verdict"]), (&json!("quarantined"), &json!("unknown")));
    let forbidden = "a system call that no plugin may make";
    for (plugin, why) in [
        ("forks", "the plugin took longer than 2 s"),
        ("eats", "the plugin and what it started used more than 128 MiB of memory"),
        ("floods", "the plugin took longer than 2 s"),
        ("fills", "the plugin wrote more than 20 MiB into output/"),
        ("calls", forbidden),
        ("asks", forbidden),
        ("traces", forbidden),
    ] {
        let said = Lab::said(&report, plugin);
        assert!(said.contains(why), "{plugin}: {said}");
    }
    let why = lab.site.weir(&["lab", "why", &sample.to_string()]).ok();
    assert!(why.contains("failed         fills: ") && why.contains("wrote more than 20 MiB into output/"), "{why}");
    let accepted = |plugin: &str| {
        report["results"]
            .as_array()
            .unwrap()
            .iter()
            .any(|result| result["plugin"] == plugin && result["accepted"] == json!(true))
    };
    assert!(accepted("stays") && accepted("identify"), "{report}");
    for number in ["98771", "98772"] {
        wait_for("all processes of a plugin to be gone", || (!is_running(number)).then_some(()));
    }
}

/// Whether any process has this argument.
fn is_running(argument: &str) -> bool {
    let all = fs::read_dir("/proc").unwrap().flatten();
    let lines = all.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    lines.into_iter().any(|line| line.split(|byte| *byte == 0).any(|word| word == argument.as_bytes()))
}

#[test]
fn a_plugin_cannot_read_the_store_the_keys_or_other_samples() {
    // It reports what it could open: everything that it can think of, and everything that it finds.
    let script = r#"import json, os, sys
found = []
for top in ['/root', '/home', '/var', '/srv', '/etc/weir', '/run', '/data', sys.argv[1] + '/../..', sys.argv[1] + '/../../..'] + ['/proc/%d/root' % n for n in range(1, 9)]:
    for folder, _, files in os.walk(top):
        if folder.startswith(sys.argv[1]) or '/proc/' in folder and not folder.endswith('/root'): continue
        for name in files:
            path = os.path.join(folder, name)
            if os.path.realpath(path).startswith(('/usr', '/proc', '/dev', '/etc', '/sys', os.path.realpath(sys.argv[1]))): continue
            try:
                with open(path, 'rb') as file: found.append([path, len(file.read(10))])
            except OSError: pass
paths = [line.split()[1] for line in open('/proc/mounts')]
json.dump({'success': True, 'full': {'read': found[:50], 'mounts': paths, 'user': os.getuid(), 'groups': os.getgroups()}}, open('output/output.json', 'w'))
"#;
    let lab = Lab::new(&[("thief", script, "")], "");
    let _up = lab.site.up();
    let first = lab.hand_in("first", b"a secret sample");
    lab.ended(first);
    let report = lab.ended(lab.hand_in("second", b"another"));
    let thief = report["results"].as_array().unwrap().iter().find(|result| result["plugin"] == "thief").unwrap();
    let full = &thief["report"]["full"];
    let own = ["plugin.toml", "/run"];
    let read: Vec<&str> = full["read"].as_array().unwrap().iter().filter_map(|line| line[0].as_str()).collect();
    let foreign: Vec<&&str> =
        read.iter().filter(|path| !own.iter().any(|name| path.ends_with(name)) && !path.ends_with("/weir")).collect();
    assert!(foreign.is_empty(), "{full}");
    let data = lab.site.data().canonicalize().unwrap();
    let mounts = full["mounts"].as_array().unwrap().iter().filter_map(Value::as_str);
    assert!(mounts.into_iter().all(|path| !Path::new(path).starts_with(&data) || path.contains("/jobs/")), "{full}");
    assert!(full["user"].as_u64() != Some(0) && full["groups"] == json!([]), "{full}");
}

/// A plugin that unpacks zip archives in Python, one that knows bad words, and one that waits for the first.
fn unpacking() -> Lab {
    let unpack = r#"import json, sys, zipfile
children = []
with zipfile.ZipFile('input/attachment') as archive:
    for n, name in enumerate(archive.namelist()):
        open('output/%d' % n, 'wb').write(archive.read(name))
        children.append({'dataType': 'file', 'file': '%d' % n, 'filename': name, 'sha256': 'ff' * 32})
json.dump({'success': True, 'artifacts': children}, open('output/output.json', 'w'))
"#;
    let words = r#"import json
text = open('input/attachment', 'rb').read()
level = 'malicious' if b'EVIL' in text else 'suspicious' if b'ODD' in text else 'safe' if b'GOOD' in text else 'info'
json.dump({'success': True, 'summary': {'taxonomies': [{'level': level, 'namespace': 'words', 'predicate': 'word', 'value': level}]},
    'artifacts': [{'dataType': 'url', 'data': "http://evil.example/it's"}, {'dataType': 'ip', 'data': '192.0.2.66'}, {'dataType': 'domain', 'data': 'c2.example'}] if level == 'malicious' else []}, open('output/output.json', 'w'))
"#;
    let run = r#"import json
json.dump({'success': True, 'full': {'machine': 'm1', 'accelerator': 'tcg', 'ended': 'exit 0', 'processes': [
    {'pid': 7, 'parent': 1, 'path': '/bin/sh', 'arguments': ['sh', '<script>alert(1)</script>'], 'user': 1000, 'ended': 'exit 0'},
    {'pid': 8, 'parent': 7, 'path': '/bin/cat', 'arguments': ['cat'], 'user': 1000, 'ended': 'exit 0'}],
    'files': [], 'network': [{'pid': 8, 'what': 'connect', 'to': '198.51.100.9:80', 'detail': ''}], 'persistence': []}}, open('output/output.json', 'w'))
"#;
    Lab::new(
        &[
            ("unpack", unpack, "accepts = [\"application/zip\"]"),
            ("words", words, ""),
            ("late", run, "accepts = [\"text/*\"]\nrequires = [\"words\"]\nstage = 3"),
        ],
        "children_depth = 2\nchildren_count = 5\n",
    )
}

/// A zip archive, made by Python.
fn zipped(home: &Path, name: &str, members: &[(&str, &[u8])]) -> Vec<u8> {
    let at = home.join(format!("{name}.members"));
    fs::create_dir_all(&at).unwrap();
    for (member, content) in members {
        fs::write(at.join(member), content).unwrap();
    }
    let to = home.join(name);
    let script = "import sys, zipfile, os\nz = zipfile.ZipFile(sys.argv[1], 'w', zipfile.ZIP_DEFLATED)\nfor n in sorted(os.listdir(sys.argv[2])): z.write(os.path.join(sys.argv[2], n), n)\nz.close()";
    assert!(Command::new("/usr/bin/python3").args(["-c", script]).arg(&to).arg(&at).status().unwrap().success());
    fs::read(to).unwrap()
}

#[test]
fn what_is_in_a_sample_is_analysed_and_decides_about_it() {
    let lab = unpacking();
    let up = lab.site.up();
    let home = lab.site.home();
    let inner = zipped(home, "inner.zip", &[("evil.txt", b"EVIL"), ("good.txt", b"GOOD")]);
    let outer = zipped(home, "outer.zip", &[("inner.zip", &inner), ("odd.txt", b"ODD")]);
    let report = lab.ended(lab.hand_in("outer.zip", &outer));
    let line = |of: &Value| [of["name"].clone(), of["verdict"].clone(), of["depth"].clone()];
    assert_eq!(line(&report), [json!("outer.zip"), json!("malicious"), json!(0)]);
    let mut parts: Vec<_> = report["parts"].as_array().unwrap().iter().map(line).collect();
    parts.sort_by_key(|part| part[0].to_string());
    let expected = [
        ("evil.txt", "malicious", 2),
        ("good.txt", "clean", 2),
        ("inner.zip", "malicious", 1),
        ("odd.txt", "suspicious", 1),
    ];
    assert_eq!(parts, expected.map(|(name, verdict, depth)| [json!(name), json!(verdict), json!(depth)]));
    let reasons = report["reasons"].to_string();
    assert!(
        reasons.contains("inner.zip") && reasons.contains("is malicious") && reasons.contains("odd.txt"),
        "{reasons}"
    );
    let why = lab.site.weir(&["lab", "why", &report["sample"].to_string()]).ok();
    assert!(why.contains("malicious") && why.contains("inner.zip"), "{why}");
    let bad = lab.site.json(&["lab", "list", "--verdict", "malicious"]);
    assert_eq!(bad.as_array().unwrap().len(), 3, "{bad}");
    // What `late` requires ended well before it began, because it is in an attempt of its own, after the other.
    let odd = report["parts"].as_array().unwrap().iter().find(|part| part["name"] == "odd.txt").unwrap();
    let attempts: Vec<i64> =
        odd["attempts"].as_array().unwrap().iter().map(|attempt| attempt["attempt"].as_i64().unwrap()).collect();
    assert_eq!(attempts.len(), 2, "{odd}");
    // The same content is known, including everything in it.
    let twin = lab.ended(lab.hand_in("twin.zip", &outer));
    assert_eq!((twin["attempts"].as_array().map(Vec::len), twin["parts"].as_array().map(Vec::len)), (Some(0), Some(4)));
    assert_eq!(twin["verdict"], "malicious");
    // Members that are nested more than two levels deep, or after the first five, are left out; the report says so.
    let deep = zipped(home, "deep.zip", &[("outer.zip", &outer)]);
    let deep = lab.ended(lab.hand_in("deep.zip", &deep));
    assert_eq!(
        deep["parts"].as_array().unwrap().iter().map(|part| part["depth"].as_i64().unwrap()).max(),
        Some(2),
        "{deep}"
    );
    assert_eq!(deep["verdict"], "suspicious", "the evil one is too deep to be seen");
    let many: Vec<(String, Vec<u8>)> =
        (0..9).map(|n| (format!("{n}.bin"), format!("content {n}").into_bytes())).collect();
    let many: Vec<(&str, &[u8])> = many.iter().map(|(name, content)| (name.as_str(), content.as_slice())).collect();
    let many = lab.ended(lab.hand_in("many.zip", &zipped(home, "many.zip", &many)));
    // Our own plugin `archive` unpacks it too, and leaves out as many.
    assert_eq!((many["parts"].as_array().map(Vec::len), &many["left_out"]), (Some(5), &json!(8)), "{many}");
    // A kill in the middle must not lose any child.
    let late = lab.hand_in("late.zip", &zipped(home, "late.zip", &[("a.txt", b"EVIL twice"), ("b.txt", b"ODD twice")]));
    up.kill();
    let _up = lab.site.up();
    assert_eq!(lab.ended(late)["parts"].as_array().map(Vec::len), Some(2));
}

#[test]
fn a_zip_of_bad_files_gives_each_its_own_verdict() {
    use weir_analysis::fixtures;
    let lab = Lab::new(&[], "");
    let _up = lab.site.up();
    let dropper = "Sub AutoOpen()\r\n  CreateObject(\"WScript.Shell\").Run \"calc\"\r\nEnd Sub\r\n";
    let zip = fixtures::zip(&[
        ("eicar.com", &fixtures::eicar()),
        ("invoice.doc", &fixtures::macro_doc(dropper)),
        ("packed", &fixtures::packed_elf()),
        ("letter.txt", b"Dear Ann,\nsee you on Friday.\nBob\n"),
    ]);
    let report = lab.ended(lab.hand_in("all.zip", &zip));
    let mut parts: Vec<(&str, &str)> = report["parts"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|part| Some((part["name"].as_str()?, part["verdict"].as_str()?)))
        .filter(|(name, _)| ["eicar.com", "invoice.doc", "packed", "letter.txt"].contains(name))
        .collect();
    parts.sort_unstable();
    let expected = [
        ("eicar.com", "malicious"),
        ("invoice.doc", "suspicious"),
        ("letter.txt", "unknown"),
        ("packed", "suspicious"),
    ];
    assert_eq!(parts, expected, "{report:#}");
    assert_eq!(report["verdict"], "malicious");
    assert!(report["reasons"].to_string().contains("eicar.com"), "{report:#}");
}

#[test]
fn a_sample_is_analysed_again_on_request_and_the_queue_is_told() {
    let lab = unpacking();
    let _up = lab.site.up();
    let first = lab.hand_in("a.txt", b"GOOD");
    assert_eq!(lab.ended(first)["verdict"], "clean");
    let again = lab.site.json(&["lab", "rerun", &first.to_string()])["sample"].as_u64().unwrap();
    let report = lab.ended(again);
    assert!(again != first && !report["attempts"].as_array().unwrap().is_empty(), "it really ran: {report}");
    assert!(report["results"].as_array().unwrap().iter().all(|result| result["of_sample"].is_null()));
    lab.site.weir(&["lab", "rerun", "4711"]).refused(&["there is no sample 4711"]);
    let queue = lab.site.json(&["lab", "queue"]);
    assert_eq!(queue, json!({ "queues": [], "next": [] }));
    assert!(lab.site.weir(&["lab", "queue"]).ok().contains("Nothing waits"));
}

#[test]
fn what_waits_is_shown_by_priority() {
    let lab = Lab::new(&[("slow", &format!("sleep 30; {FINE}"), "")], "");
    let _up = lab.site.up();
    for n in 0..4 {
        let file = lab.site.home().join(format!("file{n}"));
        fs::write(&file, format!("content {n}")).unwrap();
        let priority = if n < 3 { "32" } else { "3" };
        lab.site.json(&["lab", "submit", "--priority", priority, file.to_str().unwrap()]);
    }
    let queue = wait_for("both places to be taken", || {
        let queue = lab.site.json(&["lab", "queue"]);
        let running: u64 = queue["queues"].as_array()?.iter().filter_map(|line| line["running"].as_u64()).sum();
        (running == 2).then_some(queue)
    });
    let total: u64 = queue["queues"]
        .as_array()
        .unwrap()
        .iter()
        .map(|line| line["running"].as_u64().unwrap() + line["waiting"].as_u64().unwrap())
        .sum();
    assert_eq!((total, queue["next"].as_array().map(Vec::len)), (4, Some(2)), "{queue}");
    assert!(queue["queues"][0]["oldest_wait_s"].as_f64().unwrap() > 0.0);
    let shown = lab.site.weir(&["lab", "queue"]).ok();
    assert!(shown.contains("oldest s") && shown.contains("Next"), "{shown}");
}

#[test]
fn samples_go_out_and_come_back_in_an_archive_that_does_no_harm() {
    let lab = unpacking();
    let _up = lab.site.up();
    let sample = lab.hand_in("evil.txt", b"EVIL EVIL EVIL");
    let hash = lab.ended(sample)["hash"].as_str().unwrap().to_owned();
    let at_rest = lab.site.data().join("lab/samples").join(&hash[..2]).join(&hash);
    assert_eq!(fs::metadata(&at_rest).unwrap().permissions().mode() & 0o111, 0, "nothing at rest can be started");
    let zip = lab.site.home().join("out.zip");
    let said = lab.site.weir(&["lab", "download", &sample.to_string(), "--output", zip.to_str().unwrap()]).ok();
    assert!(said.contains("infected"), "{said}");
    lab.site
        .weir(&["lab", "download", &sample.to_string(), "--output", zip.to_str().unwrap()])
        .refused(&["cannot be written"]);
    assert!(!String::from_utf8_lossy(&fs::read(&zip).unwrap()).contains("EVIL"));
    // A program that is not ours can open the archive.
    let script = "import sys, zipfile\nz = zipfile.ZipFile(sys.argv[1]); z.setpassword(b'infected'); n = z.namelist(); print(n[0], z.read(n[0]).decode())";
    let opened = Command::new("/usr/bin/python3").args(["-c", script]).arg(&zip).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&opened.stdout).trim(), "evil.txt EVIL EVIL EVIL", "{opened:?}");
    let back = lab.site.json(&["lab", "submit", zip.to_str().unwrap()]);
    assert_eq!((back.as_array().map(Vec::len), back[0]["hash"].as_str()), (Some(1), Some(hash.as_str())));
    lab.site.weir(&["lab", "download", "4711"]).refused(&["there is no sample 4711"]);
}

#[test]
fn a_report_is_one_page_that_obeys_nobody() {
    let lab = unpacking();
    let _up = lab.site.up();
    let sample = lab.hand_in("<b>evil.txt", b"EVIL");
    lab.ended(sample);
    let page = lab.site.weir(&["lab", "report", &sample.to_string(), "--html"]).ok();
    assert!(
        page.starts_with("<!doctype html>") && page.contains("malicious") && page.contains("198.51.100.9"),
        "{page}"
    );
    assert!(
        page.contains("&lt;script&gt;alert(1)") && !page.contains("<script") && !page.contains("<b>evil"),
        "{page}"
    );
    assert!(
        page.contains("<ul class=\"tree\" tabindex=\"0\">") && !page.contains("href=") && !page.contains("src="),
        "{page}"
    );
    lab.site.weir(&["lab", "report", "1", "--html", "--stix"]).refused(&["cannot be used with"]);
}

/// Python with public readers of both formats; none if they are not available.
fn readers() -> Option<PathBuf> {
    let home = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/lab-readers");
    let python = home.join("bin/python");
    if home.join("ready").exists() {
        return Some(python);
    }
    let made =
        Command::new("/usr/bin/python3").args(["-m", "venv"]).arg(&home).status().is_ok_and(|status| status.success());
    let mut pip = Command::new(home.join("bin/pip"));
    pip.args(["install", "--quiet", "--disable-pip-version-check", "pymisp", "stix2", "jsonschema"]);
    if made && pip.status().is_ok_and(|status| status.success()) {
        fs::write(home.join("ready"), "").unwrap();
        return Some(python);
    }
    eprintln!(
        "skipped: pymisp and stix2 are not here, and no package registry can be reached (tools/setup installs them)"
    );
    None
}

#[test]
fn exports_are_read_by_the_libraries_of_misp_and_stix() {
    let Some(python) = readers() else { return };
    let lab = unpacking();
    let _up = lab.site.up();
    let home = lab.site.home();
    let zip = zipped(home, "it's.zip", &[("evil.txt", b"EVIL"), ("good \\ '\u{e9}'.txt", b"GOOD")]);
    let sample = lab.hand_in("it's.zip", &zip);
    lab.ended(sample);
    let form = |form: &str| lab.site.weir(&["lab", "report", &sample.to_string(), form]).ok();
    let files = [("--misp", home.join("event.json")), ("--stix", home.join("bundle.json"))];
    for (flag, file) in &files {
        let text = form(flag);
        assert_eq!(text, form(flag), "the same each time");
        fs::write(file, text).unwrap();
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/read_exports.py");
    let read = Command::new(python).arg(script).args(files.iter().map(|(_, file)| file)).output().unwrap();
    assert!(read.status.success(), "{}", String::from_utf8_lossy(&read.stderr));
    let found: Value = serde_json::from_slice(&read.stdout).unwrap();
    assert_eq!(found["threat"], 1);
    let attributes = found["attributes"].to_string();
    for value in ["http://evil.example/it's", "192.0.2.66", "198.51.100.9", "c2.example", "evil.txt", "it's.zip"] {
        assert!(attributes.contains(value), "{value}: {attributes}");
    }
    let objects: Vec<&str> = found["objects"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    for kind in
        ["file", "identity", "indicator", "malware", "malware-analysis", "report", "url", "ipv4-addr", "domain-name"]
    {
        assert!(objects.contains(&kind), "{kind}: {objects:?}");
    }
    assert!(found["patterns"].to_string().contains("url:value"), "{found}");
}

/// The processes of this lab that stay alive for our own plugins, each after its ancestors.
fn staying(lab: &Lab) -> Vec<u32> {
    let home = lab.site.data().join("lab").display().to_string();
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let is_one = |pid: &u32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        line.contains("plugin all") && line.contains(&home)
    };
    pids.filter(is_one).collect()
}

#[test]
fn our_own_plugins_look_in_one_visit_of_a_process_that_stays_and_is_replaced() {
    let lab = Lab::new(&[], "plugins_off = [\"clamav\", \"elf-pe\"]\n");
    let up = lab.site.up();
    let brought = |report: &Value| -> Vec<String> {
        let results = report["results"].as_array().unwrap().iter().filter(|result| result["accepted"] == true);
        let mut names: Vec<String> = results.map(|result| result["plugin"].as_str().unwrap().to_owned()).collect();
        names.sort();
        names
    };
    let first = lab.ended(lab.hand_in("a.txt", b"hello, http://evil.example/x\n"));
    assert_eq!(
        (&first["state"], brought(&first)),
        (&json!("done"), vec!["identify".into(), "strings".into(), "yara".into()])
    );
    let workers = staying(&lab);
    assert!(!workers.is_empty(), "it stays");
    let second = lab.ended(lab.hand_in("b.txt", b"good bye\n"));
    assert_eq!(brought(&second), brought(&first));
    assert!(second["results"].to_string().contains("good") || second["state"] == "done", "{second:#}");
    assert_eq!(staying(&lab), workers, "the same looks again");
    assert!(!lab.site.weir(&["lab", "report", &second["sample"].to_string()]).ok().contains("evil.example"));
    // A process that is killed is replaced, and nothing is lost.
    for pid in &workers {
        let _ = Command::new("kill").args(["-9", &pid.to_string()]).status();
    }
    let third = lab.ended(lab.hand_in("c.txt", b"once more\n"));
    assert_eq!((&third["state"], brought(&third)), (&json!("done"), brought(&first)));
    up.signal("TERM");
    up.ended();
    wait_for("all of them to be gone", || staying(&lab).is_empty().then_some(()));
}

#[test]
fn text_that_would_break_its_carrier_goes_through_every_report() {
    use weir_analysis::fixtures;
    let hostile = "import json\nopen('output/output.json','w').write('{\"success\":true,\"full\":{\"a\":\"\\\\u0000\\\\udc80\\x1b[2J'+'x'*1048576+'\"},\"summary\":{\"taxonomies\":[{\"level\":\"suspicious\",\"namespace\":\"n\",\"predicate\":\"p\",\"value\":\"\\\\u0000 \\\\ud800 <b> \\\\u202e\"}]},\"artifacts\":[{\"dataType\":\"file\",\"file\":\"f\",\"filename\":\"x\\\\u0000\\\\udfff.sh\"}]}')\nopen('output/f','w').write('#!/bin/sh')";
    let lab = Lab::new(&[("hostile", hostile, "")], "attempts = 1\n");
    let _up = lab.site.up();
    let zip = fixtures::zip(&[("\\u0000.txt", b"\\u0000 hidden"), ("a\0b.txt", b"EVIL")]);
    let report = lab.ended(lab.hand_in("a\\u0000.zip", &zip));
    assert_eq!((&report["state"], &report["verdict"]), (&json!("done"), &json!("suspicious")), "{}", report["results"]);
    let names: Vec<&str> =
        report["parts"].as_array().unwrap().iter().filter_map(|part| part["name"].as_str()).collect();
    assert!(names.contains(&"\\u0000.txt") && names.iter().any(|name| name.starts_with("x\u{fffd}")), "{names:?}");
    let sample = report["sample"].to_string();
    for form in ["--json", "--html", "--misp", "--stix", "--navigator"] {
        let text = lab.site.weir(&["lab", "report", &sample, form]).ok();
        assert!(!text.contains('\0') && !text.contains('\x1b') && !text.is_empty(), "{form}");
    }
    let text = lab.site.weir(&["lab", "report", &sample]).ok();
    assert!(text.contains("p ") && !text.contains('\0') && !text.contains('\x1b'), "{text:.400}");
}
