//! Tests the API against its own description: schemathesis sends requests that the document allows and requests that it does not, and
//! compares the answers with the document.

use super::INBOUND;
use crate::control::gate::Site;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What schemathesis checks: no answer is a server error, and each is as the document says.
const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,response_headers_conformance,response_schema_conformance";

fn schemathesis() -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("a folder");
    let program = target.join("schemathesis/bin/schemathesis");
    assert!(program.exists(), "{} is missing: tools/setup installs it", program.display());
    program
}

/// schemathesis reuses names that it finds in answers, so it would revoke its own token. That operation is tested last, and alone.
const REVOKE: &str = "/console/tokens/{name}/revoke";

#[test]
fn the_api_is_what_its_document_says() {
    let site = Site::new(INBOUND);
    let up = site.up_with(&["--demo"]);
    let made = site.json(&["console", "token", "add", "schemathesis", "--scope", "admin", "--days", "1"]);
    let token = made["token"].as_str().expect("a token");
    // There must be something to find, so that not all answers are empty.
    let sample = site.home().join("sample.sh");
    std::fs::write(&sample, "#!/bin/sh\n").expect("a sample");
    site.weir(&["lab", "submit", sample.to_str().expect("text")]).ok();
    let run = |which: [&str; 2]| {
        let mut command = Command::new(schemathesis());
        command
            .arg("run")
            .arg(format!("http://{}/api/v1/openapi.json", up.listener("console")))
            .args(["--header", &format!("Authorization: Bearer {token}")])
            .args(["--checks", CHECKS])
            .args(["--phases", "examples,coverage,fuzzing", "--max-examples", "15", "--seed", "8"])
            .args(["--request-timeout", "60", "--suppress-health-check", "all", "--continue-on-failure"])
            .args(which)
            .current_dir(site.home());
        let output = command.output().expect("it runs");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
        said
    };
    let said = run(["--exclude-path", REVOKE]);
    // A backup is refused to everybody who is not on the machine. Nothing else is refused.
    assert!(!said.contains("401 Unauthorized") && said.contains("403 Forbidden (1 operation)"), "{said}");
    let tokens = site.json(&["console", "token", "list"]);
    let own = tokens.as_array().is_some_and(|tokens| tokens.iter().any(|token| token["name"] == "schemathesis"));
    assert!(own, "its token is good to the end: {tokens}");
    run(["--include-path", REVOKE]);
}

/// All names in the text that begin like our metrics.
fn figures(text: &str) -> std::collections::BTreeSet<String> {
    let name = |rest: &str| {
        let name: String =
            rest.chars().take_while(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || *c == '_').collect();
        format!("weir_{name}")
    };
    text.split("weir_").skip(1).map(name).collect()
}

#[test]
fn what_dashboard_and_alerts_name_is_there() {
    // The metrics of certificates exist only if certificates are configured. No authority listens at this address.
    let certificates = "[certificates]\nnames = [\"www.demo.test\"]\naccept_terms = true\ndirectory = \"https://127.0.0.1:1/directory\"\n\
                        listen = [\"127.0.0.1:0\"]\n";
    let site = Site::new(&format!("{INBOUND}{certificates}"));
    let up = site.up_with(&["--demo"]);
    let url = format!("http://{}/metrics", up.listener("console"));
    let shown = Command::new("curl").args(["-s", &url]).output().expect("curl runs");
    let there = figures(&String::from_utf8_lossy(&shown.stdout));
    let packaging = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging");
    for file in ["grafana/weir.json", "prometheus/weir.rules.yml"] {
        let text = std::fs::read_to_string(packaging.join(file)).expect("a file");
        let named = figures(&text);
        assert!(named.len() > 10, "{named:?}");
        let missing: Vec<&String> = named.difference(&there).collect();
        assert!(missing.is_empty(), "{file} names {missing:?}");
    }
}
