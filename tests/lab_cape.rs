//! Tests of the bridge to CAPE, with the plugin as it is shipped and the real binary.
//!
//! A real CAPE needs machines with Windows and cannot run here. Instead, a small server speaks the part of CAPE's documented REST API
//! (apiv2) that the bridge uses. The bridge was never tried with a real CAPE.

use crate::control::gate::{Site, wait_for};
use serde_json::{Value, json};
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

/// A program that is not known from anywhere.
const SAMPLE: &[u8] = b"MZ a program for the bridge";

/// A lab with the bridge, and a CAPE that ends with this status and this report.
fn lab(status: &'static str, report: Value) -> (Site, tempfile::TempDir) {
    let home = tempfile::tempdir().unwrap();
    let socket = home.path().join("api.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    fs::set_permissions(home.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(&socket, fs::Permissions::from_mode(0o666)).unwrap();
    std::thread::spawn(move || serve(&listener, status, &report));
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../plugins/cape");
    let to = home.path().join("plugins/cape");
    fs::create_dir_all(&to).unwrap();
    let manifest = fs::read_to_string(from.join("plugin.toml")).unwrap();
    let manifest = manifest.replace("/run/cape/api.sock", socket.to_str().unwrap());
    // Here, every file counts as a program.
    let manifest =
        manifest.replace("accepts = [", "accepts = [\n  \"*/*\",").replace("token = \"\"", "token = \"secret\"");
    fs::write(to.join("plugin.toml"), manifest).unwrap();
    fs::copy(from.join("run.py"), to.join("run.py")).unwrap();
    let plugins = home.path().join("plugins");
    (Site::new(&format!("[lab]\nenabled = true\nslots = 1\nattempts = 1\nplugins = {plugins:?}\n")), home)
}

/// Answers like CAPE: a task is first pending, then running, then in its final state.
fn serve(listener: &UnixListener, status: &str, report: &Value) {
    let looks = AtomicU32::new(0);
    for mut stream in listener.incoming().flatten() {
        let (head, body) = request(&mut stream);
        let path = head.split(' ').nth(1).unwrap_or_default();
        let is_known = head.contains("Authorization: Token secret");
        let answer = match path {
            _ if !is_known => json!({ "detail": "Authentication credentials were not provided." }),
            "/apiv2/tasks/create/file/" if head.starts_with("POST") && holds(&body, SAMPLE) => {
                json!({ "error": false, "data": { "message": "Task ID 7 has been submitted", "task_ids": [7] }, "errors": [] })
            }
            "/apiv2/tasks/create/file/" => json!({ "error": true, "error_value": "No file was submitted" }),
            "/apiv2/tasks/status/7/" => {
                let now = ["pending", "running"].get(looks.fetch_add(1, Ordering::Relaxed) as usize);
                json!({ "error": false, "data": now.copied().unwrap_or(status) })
            }
            "/apiv2/tasks/get/report/7/json/" => report.clone(),
            _ => json!({ "error": true, "error_value": "no such path" }),
        };
        let (code, text) = (if is_known { "200 OK" } else { "401 Unauthorized" }, answer.to_string());
        let _ = write!(
            stream,
            "HTTP/1.1 {code}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{text}",
            text.len()
        );
    }
}

fn holds(body: &[u8], part: &[u8]) -> bool {
    body.windows(part.len()).any(|window| window == part)
}

/// Reads the head and the body of a request.
fn request(stream: &mut UnixStream) -> (String, Vec<u8>) {
    let (mut heard, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        let head = String::from_utf8_lossy(&heard).split("\r\n\r\n").next().unwrap_or_default().to_owned();
        let field = head.lines().find_map(|line| line.strip_prefix("Content-Length: ")).and_then(|n| n.parse().ok());
        let wanted = head.len() + 4 + field.unwrap_or(0_usize);
        let length =
            if holds(&heard, b"\r\n\r\n") && heard.len() >= wanted { 0 } else { stream.read(&mut piece).unwrap_or(0) };
        if length == 0 {
            return (head.clone(), heard.split_off((head.len() + 4).min(heard.len())));
        }
        heard.extend(&piece[..length]);
    }
}

/// What the bridge reported about the sample, and the whole page of the sample.
fn judged(site: &Site) -> (Value, Value) {
    let file = site.home().join("bill.exe");
    fs::write(&file, SAMPLE).unwrap();
    let sample = site.json(&["lab", "submit", file.to_str().unwrap()])[0]["sample"].to_string();
    let page = wait_for("the sample to end", || {
        Some(site.json(&["lab", "report", &sample])).filter(|page| page["state"] != "queued")
    });
    let results = page["results"].as_array().unwrap();
    let ours = results.iter().rfind(|result| result["plugin"] == "cape").unwrap_or_else(|| panic!("{page:#}"));
    (ours["report"].clone(), page.clone())
}

fn report() -> Value {
    json!({
        "malscore": 8.2,
        "detections": [{ "family": "Emotet", "details": [] }],
        "signatures": [
            { "name": "persistence_autorun", "description": "Installs itself for autorun at Windows startup", "severity": 3 },
            { "name": "antidebug_guardpages", "description": "Guard pages use detected", "severity": 1 }
        ],
        "behavior": { "processes": [{ "process_id": 2400, "parent_id": 600, "process_name": "bill.exe",
            "module_path": "C:\\Users\\ann\\bill.exe", "environ": { "CommandLine": "\"C:\\Users\\ann\\bill.exe\" /s" } }] },
        "network": { "domains": [{ "domain": "c2.evil.example", "ip": "203.0.113.9" }],
            "http": [{ "host": "c2.evil.example", "method": "POST", "path": "/gate.php" }],
            "tcp": [{ "dst": "203.0.113.9", "dport": 80 }] },
        "dropped": [{ "name": ["u.exe"], "guest_paths": ["C:\\Users\\ann\\AppData\\u.exe"], "sha256": "ab".repeat(32) }]
    })
}

#[test]
fn what_cape_found_is_in_the_report() {
    let (site, _home) = lab("reported", report());
    let _up = site.up();
    let (said, page) = judged(&site);
    assert_eq!((&page["verdict"], &said["success"]), (&json!("malicious"), &json!(true)), "{page:#}");
    let full = &said["full"];
    assert_eq!(full["processes"][0]["path"], "C:\\Users\\ann\\bill.exe", "{full:#}");
    assert_eq!(full["files"][0]["path"], "C:\\Users\\ann\\AppData\\u.exe", "{full:#}");
    let found = said["artifacts"].to_string();
    for part in ["c2.evil.example", "203.0.113.9", "http://c2.evil.example/gate.php"] {
        assert!(found.contains(part), "{part} is missing in {found}");
    }
    let reasons = page["reasons"].to_string();
    assert!(reasons.contains("cape: family: Emotet") && reasons.contains("autorun"), "{reasons}");
}

#[test]
fn silence_of_cape_is_not_clean_and_its_failure_is_told() {
    let (site, _home) = lab("reported", json!({ "malscore": 0.0, "signatures": [], "detections": 7, "behavior": [] }));
    let up = site.up();
    let (said, page) = judged(&site);
    assert_eq!((&page["verdict"], &said["success"]), (&json!("unknown"), &json!(true)), "{page:#}");
    drop(up);
    let (site, _home) = lab("failed_analysis", json!({}));
    let _up = site.up();
    let (said, page) = judged(&site);
    assert_eq!(said["errorMessage"], "the plugin failed: CAPE could not analyse it: failed_analysis", "{page:#}");
    assert_ne!(page["verdict"], "clean", "{page:#}");
}
