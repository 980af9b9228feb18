//! Tests of the choices that can be made when a sample is submitted, and of the packets that can be downloaded afterwards: with real VMs,
//! the real binary, and a reader of pcap files that is not ours.

use crate::lab_vm::Lab;
use serde_json::{Value, json};
use std::fs;
use std::process::Command;

const SCRIPT: &[u8] = b"#!/bin/sh\nwget -q -O /dev/null http://evil.example/x\necho over\n";

impl Lab {
    /// Submits a sample with these options, and waits until it has ended.
    fn chosen(&self, name: &str, content: &[u8], words: &[&str]) -> Value {
        let file = self.site.home().join(name);
        fs::write(&file, content).unwrap();
        let mut all = vec!["lab", "submit", file.to_str().unwrap()];
        all.extend(words);
        self.ended(&self.site.json(&all)[0]["sample"].to_string())
    }
}

fn plugins(page: &Value) -> Vec<String> {
    let results = page["results"].as_array().unwrap().iter();
    let mut names: Vec<String> = results
        .map(|result| format!("{} {}", result["plugin"].as_str().unwrap(), result["version"].as_str().unwrap()))
        .collect();
    names.sort();
    names
}

fn report_of<'a>(page: &'a Value, plugin: &str) -> &'a Value {
    let results = page["results"].as_array().unwrap();
    &results.iter().find(|result| result["plugin"] == plugin).unwrap_or_else(|| panic!("{page:#}"))["report"]
}

#[test]
fn packets_are_kept_and_a_sample_is_run_as_it_was_chosen() {
    let lab = Lab::with("[\"vm1\"]", "");
    let _up = lab.site.up();
    let page = lab.chosen("call.sh", SCRIPT, &["--tlp", "red"]);
    let number = page["sample"].to_string();
    let capture = &report_of(&page, "run-linux")["full"]["capture"];
    assert!(capture["packets"].as_u64().is_some_and(|packets| packets > 5) && capture["cut"] == false, "{capture}");
    // The packets, read by a program that is not ours.
    let file = lab.site.home().join("call.pcap");
    let said = lab.site.weir(&["lab", "pcap", &number, "--output", file.to_str().unwrap()]).ok();
    assert!(said.contains("call.pcap"), "{said}");
    lab.site.weir(&["lab", "pcap", &number, "--output", file.to_str().unwrap()]).refused(&["cannot be written"]);
    let read = Command::new("tcpdump").args(["-n", "-A", "-r"]).arg(&file).output().expect("tcpdump is installed");
    let text = String::from_utf8_lossy(&read.stdout);
    assert!(read.status.success(), "{}", String::from_utf8_lossy(&read.stderr));
    for said in ["A? evil.example.", "GET /x HTTP/1.1", "Host: evil.example", "HTTP/1.1 200 OK"] {
        assert!(text.contains(said), "{said:?} is not in\n{text}");
    }
    // Each packet must be there only once.
    let questions = text.matches(" A? evil.example.").count();
    assert!(questions <= 2, "{questions} questions for one name:\n{text}");
    // Every format says who may be told.
    let form = |form: &str| lab.site.weir(&["lab", "report", &number, form]).ok();
    assert!(form("--misp").contains("tlp:red") && form("--html").contains("TLP:RED"));
    let bundle: Value = serde_json::from_str(&form("--stix")).unwrap();
    let marking = &bundle["objects"][0];
    assert_eq!((&marking["type"], &marking["name"]), (&json!("marking-definition"), &json!("TLP:RED")));
    let others = &bundle["objects"].as_array().unwrap()[1..];
    assert!(others.iter().all(|object| object["object_marking_refs"] == json!([marking["id"]])), "{bundle:#}");
    // Without a network, nothing answers and nothing is sent. Such a result must not be used for a run with a network, nor the other way
    // round.
    let alone = lab.chosen("call.sh", SCRIPT, &["--network", "none", "--watch", "30"]);
    let network = report_of(&alone, "run-linux")["full"]["network"].to_string();
    assert!(!network.contains("http"), "{network}");
    assert!(plugins(&alone).contains(&"run-linux 4+30s+offline".to_owned()), "{alone:#}");
    assert_eq!(alone["choices"], json!({ "watch_s": 30, "network": "none" }));
    let printed = lab.site.weir(&["lab", "report", &alone["sample"].to_string()]).stdout;
    assert!(printed.contains("network        none") && printed.contains("watched for    30 s"), "{printed}");
    let why = "there are no packets of sample";
    lab.site.weir(&["lab", "pcap", &alone["sample"].to_string()]).refused(&[why]);
    let usual = lab.chosen("call.sh", SCRIPT, &[]);
    assert_eq!(report_of(&usual, "run-linux")["full"]["network"].as_array().map(Vec::len), Some(3), "{usual:#}");
    let of = usual["results"].as_array().unwrap().iter().find(|result| result["plugin"] == "run-linux").unwrap();
    assert_eq!(of["of_sample"], page["sample"], "it is known from the first");
    // A sample that was examined but not run is never called clean.
    let still = lab.chosen("still.sh", b"#!/bin/sh\necho hello\n", &["--guest", "none"]);
    assert!(!plugins(&still).iter().any(|name| name.starts_with("run-")), "{still:#}");
    assert_eq!(still["verdict"], "unknown", "{still:#}");
    assert!(still["reasons"].to_string().contains("it was not run, as whoever handed it in chose"), "{still:#}");
    let one = lab.chosen("one.sh", b"#!/bin/sh\necho other\n", &["--plugin", "identify"]);
    assert_eq!(one["results"].as_array().map(Vec::len), Some(1), "{one:#}");
}

#[test]
fn choices_that_cannot_be_had_are_refused_in_words() {
    let lab = Lab::with("[\"vm1\"]", "");
    let _up = lab.site.up();
    let file = lab.site.home().join("x.sh");
    fs::write(&file, SCRIPT).unwrap();
    for (words, says) in [
        (["--tlp", "pink"], "\"pink\" is no TLP: clear, green, amber, amber+strict or red"),
        (["--plugin", "yarra"], "this lab has no plugin \"yarra\""),
        (["--guest", "windows"], "this lab has no guest for windows"),
        (["--guest", "dos"], "\"dos\" is no guest: linux, windows or none"),
        (["--network", "internet"], "\"internet\" is no network: simulated or none"),
        (["--watch", "86400"], "86400 s is too long"),
        (["--plugin", "office-pdf"], "none of the chosen plugins takes files of the type text/x-shellscript"),
    ] {
        lab.site.weir(&["lab", "submit", file.to_str().unwrap(), words[0], words[1]]).refused(&[says]);
    }
    assert_eq!(lab.site.json(&["lab", "list"]), json!([]), "none of them was taken in");
}

/// A zip archive with `inner.txt` and the password "geheim".
const LOCKED: &str = "UEsDBAoACQAAANuscV208v66EgAAAAYAAAAJAAAAaW5uZXIudHh0OYro51qtSxOzA/DS3qE2nW8RUEsHCLTy/roSAAAABgAAAFBLAQIeAwoACQAAANuscV208v66EgAAAAYAAAAJAAAAAAAAAAEAAACkgQAAAABpbm5lci50eHRQSwUGAAAAAAEAAQA3AAAASQAAAAAA";

#[test]
fn a_password_that_comes_with_an_archive_opens_it_and_nobody_elses() {
    let lab = Lab::with("[]", "plugins_off = [\"clamav\"]\n");
    let _up = lab.site.up();
    let locked = base64::Engine::decode(&base64::engine::general_purpose::STANDARD, LOCKED).unwrap();
    let closed = lab.chosen("locked.zip", &locked, &[]);
    assert_eq!((closed["verdict"].as_str(), closed["children"].as_array().map(Vec::len)), (Some("unknown"), Some(0)));
    assert!(closed["reasons"].to_string().contains("has a password that is not known"), "{closed:#}");
    // The content is the same, but results without the password must not be used for a run with it.
    let open = lab.chosen("locked.zip", &locked, &["--password", "geheim"]);
    assert_eq!(open["children"][0]["name"], "inner.txt", "{open:#}");
    assert_eq!(open["choices"]["passwords"], json!(["(not shown)"]));
    let again = lab.chosen("locked.zip", &locked, &["--password", "falsch"]);
    assert_eq!(again["children"], json!([]), "{again:#}");
}

/// A jar is an archive whose classes are examined. It cannot be run here, and the reasons say so.
#[test]
fn a_jar_is_opened_and_not_called_clean() {
    let lab = Lab::with("[]", "plugins_off = [\"clamav\"]\n");
    let _up = lab.site.up();
    let home = lab.site.home();
    let script = "import sys, zipfile\nz = zipfile.ZipFile(sys.argv[1], 'w')\n\
                  z.writestr('META-INF/MANIFEST.MF', 'Manifest-Version: 1.0\\r\\nMain-Class: Main\\r\\n')\n\
                  z.writestr('Main.class', bytes([0xca, 0xfe, 0xba, 0xbe, 0, 0, 0, 61]) + b'Main java/lang/Object')\nz.close()";
    let made = Command::new("/usr/bin/python3").args(["-c", script]).arg(home.join("tool.jar")).status().unwrap();
    assert!(made.success());
    let jar = fs::read(home.join("tool.jar")).unwrap();
    let page = lab.chosen("tool.jar", &jar, &[]);
    assert_eq!(page["verdict"], "unknown", "{page:#}");
    assert!(page["reasons"].to_string().contains("no guest runs such files: a program in Java"), "{page:#}");
    let children = page["children"].as_array().unwrap();
    let class = children.iter().find(|child| child["name"] == "Main.class").unwrap_or_else(|| panic!("{page:#}"));
    let class = lab.ended(&class["sample"].to_string());
    assert!(class["reasons"].to_string().contains("a program in Java"), "{class:#}");
    assert!(
        children.iter().any(|child| child["name"].as_str().is_some_and(|name| name.ends_with("MANIFEST.MF"))),
        "{page:#}"
    );
}
