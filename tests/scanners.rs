//! `weir scan`: verdicts on files, by the real binary with its own workers.

use crate::harness::weir;
use std::path::{Path, PathBuf};

/// In two pieces, so that no scanner takes this file for the test file.
const EICAR: [&str; 2] = [r"X5O!P%@AP[4\PZX54(P^)7CC)7}$EICAR", "-STANDARD-ANTIVIRUS-TEST-FILE!$H+H*"];

fn file(folder: &Path, name: &str, content: &[u8]) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, content).unwrap();
    path
}

#[test]
fn files_and_messages_get_a_verdict_with_reasons() {
    let folder = tempfile::tempdir().unwrap();
    let clean = file(folder.path(), "clean.eml", b"Subject: hi\r\n\r\nhello\r\n");
    let scan = |path: &Path| weir(&[Path::new("scan"), path]);
    let said = scan(&clean).ok();
    assert!(said.contains("clean.eml: would pass\n  yara          clean\n  attachments   clean\n"), "{said}");

    let eicar = file(folder.path(), "eicar.txt", EICAR.concat().as_bytes());
    let run = scan(&eicar);
    assert!(run.stdout.contains("infected: EICAR_test_file  in eicar.txt"), "{run:?}");
    run.refused(&["1 of 1 would not pass"]);

    let named = file(folder.path(), "invoice.pdf.exe", b"hello");
    let run = scan(&named);
    assert!(run.stdout.contains("forbidden: a second extension .exe: invoice.pdf.exe  in invoice.pdf.exe"), "{run:?}");
}

#[test]
fn verdicts_as_json_and_refusals() {
    let folder = tempfile::tempdir().unwrap();
    let clean = file(folder.path(), "clean.eml", b"Subject: hi\r\n\r\nhello\r\n");
    let eicar = file(folder.path(), "eicar.txt", EICAR.concat().as_bytes());
    let run = weir(&[Path::new("scan"), Path::new("--json"), &clean, &eicar]);
    let report: serde_json::Value = serde_json::from_str(&run.stdout).expect("JSON");
    assert_eq!(report["files"][0]["passes"], true);
    assert_eq!(report["files"][1]["verdict"]["findings"][0]["outcome"]["infected"]["name"], "EICAR_test_file");
    weir(&[Path::new("scan"), &folder.path().join("none")]).refused(&["none cannot be scanned"]);
    weir(&["scan"]).refused(&["<FILE>"]);
    weir(&["scan-worker"]).refused(&["this verb is for Weir itself"]);
    let rules = folder.path().join("rules");
    std::fs::create_dir(&rules).unwrap();
    file(&rules, "bad.yar", b"rule");
    let config = file(folder.path(), "weir.toml", format!("[scan.yara]\nfolder = {rules:?}\n").as_bytes());
    weir(&[Path::new("scan"), Path::new("-c"), &config, &clean]).refused(&["rules in bad.yar do not compile"]);
}
