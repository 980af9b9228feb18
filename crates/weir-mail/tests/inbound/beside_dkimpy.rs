//! Signatures and keys, good and bad, beside what dkimpy says of them (tools/setup installs it); and DMARC over what passes.

use super::authenticity::{Signer, gate, results, says, text};
use serde_json::{Value, json};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use weir_peers::NameServer;
use weir_smtp::dkim::Algorithm;

const CLIENT: &str = "203.0.113.7";

/// A message and the key that its signature names.
struct Case {
    what: &'static str,
    message: String,
    key: String,
    /// What RFC 6376 says where dkimpy does not follow it: lists of services (section 3.6.1) and hashes of a key are not read by it.
    ruled: Option<bool>,
}

/// A key of its own for each case, under the selector that the case has.
fn cases(signer: &Signer, key: &str, plain: &str, simply: bool) -> Vec<Case> {
    let signed = if simply { signer.signed_simply(plain) } else { signer.signed(plain) };
    let case = |what, message: String, key: String| Case { what, message, key, ruled: None };
    let with = |what, tags: &str| case(what, signed.clone(), key.replacen("v=DKIM1;", &format!("v=DKIM1; {tags};"), 1));
    let altered = |what, from: &str, to: &str| {
        assert!(signed.contains(from), "{what}: {from:?} is not in {signed}");
        case(what, signed.replacen(from, to, 1), key.to_owned())
    };
    let mut cases = vec![
        with("as it was signed", "n=x"),
        with("a key for chat", "s=chat"),
        with("a key for mail", "s=email"),
        with("a key for everything", "s=*"),
        Case { ruled: Some(true), ..with("a key for chat and mail", "s=chat:email") },
        Case { ruled: Some(false), ..with("a key for another hash", "h=sha1") },
        with("a key for both hashes", "h=sha1:sha256"),
        with("a key that is being tested", "t=y"),
        with("a key with an unknown tag", "zz=y"),
        altered("another body", "hello", "hullo"),
        altered("another subject", "Subject: x", "Subject: y"),
        altered("another author", "From: who@", "From: boss@"),
        altered("a field before it that is not signed", "DKIM-Signature:", "X-New: y\r\nDKIM-Signature:"),
        altered("no version", "v=1;", ""),
        altered("another version", "v=1;", "v=2;"),
        altered("a domain twice", "d=", "d=x.example; d="),
        altered("a signature of something else", "b=", "b=QUJD"),
        altered("an identity of another domain", "v=1;", "v=1; i=@other.example;"),
        altered("a time that is over", "v=1;", "v=1; x=1;"),
        case("no such key", signed.clone(), String::new()),
        case("a key that was taken back", signed.clone(), "v=DKIM1; p=".to_owned()),
        case("a key of another version", signed.clone(), key.replacen("v=DKIM1", "v=DKIM2", 1)),
        case("text that is no key", signed.clone(), "hello".to_owned()),
    ];
    let without_from = signed.replacen("h=From:", "h=", 1).replacen("h=from:", "h=", 1);
    if without_from != signed {
        cases.push(case("From is not signed", without_from, key.to_owned()));
    }
    cases
}

#[tokio::test]
async fn signatures_beside_dkimpy() {
    let names = NameServer::start();
    let (edward, names) = Signer::new(names, "ed.example", Algorithm::Ed25519);
    let (rivest, _) = Signer::new(names, "rsa.example", Algorithm::Rsa);
    let (mut all, mut dns) = (Vec::new(), NameServer::start());
    for (signer, simply) in [(&edward, false), (&rivest, false), (&rivest, true)] {
        let plain = text(&format!("who@{}", signer.domain));
        all.extend(cases(signer, &signer.record, &plain, simply).into_iter().map(|case| (signer.domain.clone(), case)));
    }
    let theirs = ask_dkimpy(&all);
    let (mut agreed, mut passed, mut differ) = (0, 0, Vec::new());
    for (number, ((domain, case), theirs)) in all.iter().zip(&theirs).enumerate() {
        // A name server remembers; each case has a selector's worth of its own by asking a new one.
        dns = NameServer::start();
        if !case.key.is_empty() {
            dns = dns.txt(&format!("sel._domainkey.{domain}"), &case.key);
        }
        let found = results(&gate(&dns).await, CLIENT, "who@pass.example", &case.message).await;
        let ours = found.contains("dkim=pass");
        passed += usize::from(ours);
        match ours == case.ruled.unwrap_or(*theirs) {
            true => agreed += 1,
            false => differ.push(format!("{number} {domain}, {}: we say {found}, dkimpy says {theirs}", case.what)),
        }
    }
    drop(dns);
    println!("DKIM: {agreed} of {} cases as dkimpy has them, {passed} pass", all.len());
    assert!(differ.is_empty(), "{}", differ.join("\n"));
    assert!(passed >= 15 && agreed - passed >= 30, "{passed} of {agreed} pass");
}

fn ask_dkimpy(cases: &[(String, Case)]) -> Vec<bool> {
    let question: Vec<Value> = cases
        .iter()
        .map(|(domain, case)| {
            let mut records = serde_json::Map::new();
            if !case.key.is_empty() {
                records.insert(format!("sel._domainkey.{domain}"), json!(case.key));
            }
            json!({ "message": case.message, "records": records })
        })
        .collect();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut python = Command::new(root.join("../../target/mail-authenticity/bin/python"))
        .arg(root.join("tests/inbound/dkimpy.py"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("dkimpy is there once tools/setup has run");
    let mut input = python.stdin.take().expect("a pipe");
    input.write_all(Value::from(question).to_string().as_bytes()).expect("it reads");
    drop(input);
    let output = python.wait_with_output().expect("it ends");
    serde_json::from_slice(&output.stdout).expect("a list of answers")
}

/// Results of DMARC by the rules of RFC 9989, over SPF and signatures that pass.
#[tokio::test]
async fn alignment_case_by_case() {
    let (signer, dns) = Signer::new(NameServer::start(), "org.example", Algorithm::Rsa);
    let dns = dns
        .txt("spf.example", "v=spf1 +all")
        .txt("a.org.example", "v=spf1 +all")
        .txt("_dmarc.org.example", "v=DMARC1; p=reject; sp=quarantine; np=none")
        .txt("exists.org.example", "hello")
        .txt("_dmarc.strict.org.example", "v=DMARC1; p=reject; adkim=s; aspf=s")
        .txt("_dmarc.two.example", "v=DMARC1; p=reject")
        .txt("_dmarc.two.example", "v=DMARC1; p=none")
        .txt("_dmarc.late.example", "p=reject; v=DMARC1")
        .txt("_dmarc.mute.example", "v=DMARC1; p=nonsense")
        .txt("_dmarc.reports.example", "v=DMARC1; p=nonsense; rua=mailto:a@reports.example")
        .txt("_dmarc.psd.example", "v=DMARC1; p=reject; psd=y")
        .txt("b.shop.psd.example", "v=spf1 +all")
        .txt("other.psd.example", "v=spf1 +all")
        .txt("_dmarc.own.shop.psd.example", "v=DMARC1; p=quarantine; psd=n")
        .txt("_dmarc.spaces.example", " v = DMARC1 ;p = reject ")
        .txt("_dmarc.xn--bcher-kva.example", "v=DMARC1; p=reject");
    let gate = gate(&dns).await;
    // Envelope sender, From, whether org.example signs, what is expected.
    let rows = [
        ("x@a.org.example", "who@org.example", false, "dmarc=pass header.from=org.example policy.dmarc=reject"),
        ("x@spf.example", "who@org.example", false, "dmarc=fail header.from=org.example policy.dmarc=reject"),
        ("x@spf.example", "who@org.example", true, "dmarc=pass"),
        (
            "x@spf.example",
            "who@exists.org.example",
            true,
            "dmarc=pass header.from=exists.org.example policy.dmarc=quarantine",
        ),
        (
            "x@spf.example",
            "who@exists.org.example",
            false,
            "dmarc=fail header.from=exists.org.example policy.dmarc=quarantine",
        ),
        ("x@spf.example", "who@gone.org.example", false, "dmarc=fail header.from=gone.org.example policy.dmarc=none"),
        ("x@a.org.example", "who@strict.org.example", true, "dmarc=fail header.from=strict.org.example"),
        ("x@spf.example", "who@two.example", false, "dmarc=none"),
        ("x@spf.example", "who@late.example", false, "dmarc=none"),
        ("x@spf.example", "who@mute.example", false, "dmarc=none"),
        ("x@spf.example", "who@reports.example", false, "dmarc=fail header.from=reports.example policy.dmarc=none"),
        ("x@spf.example", "who@spf.example", false, "dmarc=none"),
        (
            "x@b.shop.psd.example",
            "who@shop.psd.example",
            false,
            "dmarc=pass header.from=shop.psd.example policy.dmarc=reject",
        ),
        ("x@other.psd.example", "who@shop.psd.example", false, "dmarc=fail"),
        (
            "x@b.shop.psd.example",
            "who@own.shop.psd.example",
            false,
            "dmarc=fail header.from=own.shop.psd.example policy.dmarc=quarantine",
        ),
        ("x@spf.example", "who@spaces.example", false, "dmarc=fail header.from=spaces.example policy.dmarc=reject"),
        ("x@spf.example", "who@xn--bcher-kva.example", false, "dmarc=fail"),
        ("x@spf.example", "WHO@ORG.EXAMPLE", false, "dmarc=fail header.from=org.example"),
        ("x@spf.example", "who@notorg.example", true, "dmarc=none"),
        ("x@spf.example", "\"who@org.example\" <me@spf.example>", false, "dmarc=none header.from=spf.example"),
    ];
    for (sender, from, signed, expected) in rows {
        let plain = text(from);
        let message = if signed { signer.signed_simply(&plain) } else { plain };
        let found = results(&gate, CLIENT, sender, &message).await;
        says(&found, &[expected]);
    }
    println!("DMARC: {} cases right", rows.len());
}
