//! Tests of the program itself: the command line, the configuration, and generated pages.

use crate::control::gate::Site;
use crate::harness::weir;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};
use weir_peers::free_port;

#[test]
fn whoever_stops_reading_early_sees_no_panic() {
    for what in [&["completions", "bash"][..], &["man"], &["config", "show", "--markdown"]] {
        let mut weir = Command::new(env!("CARGO_BIN_EXE_weir"));
        let mut child = weir.args(what).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
        drop(child.stdout.take());
        let said = child.wait_with_output().expect("it ends").stderr;
        assert!(!String::from_utf8_lossy(&said).contains("panicked"), "{what:?}: {}", String::from_utf8_lossy(&said));
    }
}

#[test]
fn help_names_every_verb_and_nothing_panics_without_arguments() {
    let help = weir(&["--help"]).ok();
    for verb in [
        "up",
        "status",
        "user",
        "held",
        "queue",
        "backup",
        "check",
        "config",
        "sim",
        "replay",
        "scan",
        "feeds",
        "completions",
        "man",
    ] {
        assert!(help.contains(&format!("\n  {verb}")), "{verb} is missing in:\n{help}");
    }
    weir::<&str>(&[]).refused(&["Usage: weir"]);
    weir(&["sim", "throtle"]).refused(&["'throttle'"]);
    weir(&["sim", "election", "--nodes", "many"]).refused(&["many", "--nodes"]);
}

#[test]
fn check_accepts_an_empty_file_and_counts_what_differs() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("weir.toml");
    std::fs::write(&file, "").unwrap();
    assert!(weir(&["check", "--config", file.to_str().unwrap()]).ok().contains("is valid: 0 of "));
    std::fs::write(&file, "[throttle]\nrate = \"2/min\"\n").unwrap();
    assert!(weir(&["check", "-c", file.to_str().unwrap()]).ok().contains("is valid: 1 of "));
    let shown = weir(&["config", "show", "-c", file.to_str().unwrap()]).ok();
    assert_eq!(shown, "[throttle]\nrate = \"2/min\"\n");
}

#[test]
fn check_tries_ports_and_fails_for_none() {
    let (first, second, taken) = (free_port(), free_port(), free_port());
    let listeners = format!(
        "[submission]\nlisten = [\"127.0.0.1:{first}\"]\nlisten_tls = [\"127.0.0.1:{second}\"]\n\
         [console]\nlisten = [\"127.0.0.1:0\"]\n"
    );
    let (site, other) = (Site::only(&listeners), Site::only(&listeners));
    let free = site.weir(&["check"]).ok();
    assert!(free.contains(&format!("submission.listen: 127.0.0.1:{first} is free")), "{free}");
    assert!(free.contains(&format!("submission.listen_tls: 127.0.0.1:{second} is free")), "{free}");
    assert!(!free.contains("127.0.0.1:0") && !free.contains("cannot be opened"), "{free}");
    let up = site.up_alone();
    let ours = site.weir(&["check"]).ok();
    for port in [first, second] {
        assert!(ours.contains(&format!("127.0.0.1:{port} is open: the running Weir listens there")), "{ours}");
    }
    let others = other.json(&["check"]);
    assert_eq!(others["valid"], true);
    for (at, port) in [first, second].into_iter().enumerate() {
        let listener = &others["listeners"][at];
        let holder = format!("another Weir listens at 127.0.0.1:{port}");
        assert_eq!((&listener["port"], &listener["problem"]), (&"taken".into(), &holder.clone().into()), "{others}");
        assert!(others["warnings"].to_string().contains(&holder), "{others}");
    }
    drop(up);
    // Doors and LMTP listen as well.
    let _somebody = TcpListener::bind(("127.0.0.1", taken)).expect("a free port");
    let lmtp = format!(
        "{listeners}[inbound]\nlisten_lmtp = [\"127.0.0.1:{taken}\"]\ndomains = [\"a.example\"]\nrecipients = \"any\"\n"
    );
    let said = Site::only(&lmtp).weir(&["check"]).ok();
    let warning = format!("warning: on this machine inbound.listen_lmtp: 127.0.0.1:{taken} cannot be opened: ");
    assert!(said.contains(&warning) && said.contains(&format!("listens at 127.0.0.1:{taken}")), "{said}");
}

#[test]
fn check_tries_the_keys_that_sign() {
    let site = Site::new("");
    let up = site.up_alone();
    site.weir(&["dkim", "add", "example.org", "--kind", "ed25519", "--selector", "s1"]).ok();
    drop(up);
    let said = site.weir(&["check"]).ok();
    assert!(said.contains("DKIM key s1 of example.org: ed25519-sha256, can be used"), "{said}");
    let file = site.data().join("keys/dkim/example.org/s1.pem");
    std::fs::write(&file, "-----BEGIN PRIVATE KEY-----\n").expect("a file");
    let said = site.weir(&["check"]).ok();
    assert!(said.contains("warning: a DKIM key cannot be used") && said.contains("s1.pem"), "{said}");
    let report = site.json(&["check"]);
    assert_eq!((&report["dkim_keys"][0]["selector"], &report["valid"]), (&"s1".into(), &true.into()), "{report}");
    assert!(report["dkim_keys"][0]["problem"].as_str().is_some_and(|problem| problem.contains("s1.pem")), "{report}");
}

#[test]
fn check_reports_every_problem_with_its_place() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("weir.toml");
    std::fs::write(&file, "[throttle]\nrate = 5\nstop_at = -1\n\n[lap]\nbeat = \"1s\"\n").unwrap();
    let path = file.to_str().unwrap();
    weir(&["check", "-c", path]).refused(&[
        "3 problems",
        "weir.toml:2: throttle.rate:",
        "weir.toml:3: throttle.stop_at:",
        "weir.toml:5: lap: unknown section",
        "did you mean \"lab\"?",
    ]);
    let run = weir(&["check", "--json", "-c", path]);
    let report: serde_json::Value = serde_json::from_str(&run.stdout).expect("JSON even when refused");
    assert_eq!(run.code, Some(1));
    assert_eq!(report["problems"][0]["line"], 2);
    assert_eq!(report["problems"].as_array().map(Vec::len), Some(3));
}

#[test]
fn what_is_not_a_configuration_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    std::fs::write(path("latin1.toml"), b"# \n# caf\xe9\n").unwrap();
    weir(&[Path::new("check"), Path::new("-c"), &path("latin1.toml")]).refused(&["line 2 is not UTF-8"]);
    std::fs::write(path("large.toml"), vec![b'#'; (1 << 20) + 1]).unwrap();
    weir(&[Path::new("check"), Path::new("-c"), &path("large.toml")]).refused(&["at most 1 MiB"]);
    weir(&[Path::new("check"), Path::new("-c"), dir.path()]).refused(&["is not a configuration file"]);
    weir(&[Path::new("check"), Path::new("-c"), &path("none.toml")]).refused(&["cannot be read", "hint"]);
}

#[test]
fn the_reference_page_is_what_the_code_says() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/config.md");
    let written = std::fs::read_to_string(page).expect("docs/config.md");
    assert_eq!(weir(&["config", "show", "--markdown"]).ok(), written, "run `make docs`");
}

#[test]
fn completions_and_man_pages_cover_the_verbs() {
    for shell in ["bash", "zsh", "fish"] {
        assert!(weir(&["completions", shell]).ok().contains("election"), "{shell}");
    }
    let dir = tempfile::tempdir().unwrap();
    weir(&["man", "--dir", dir.path().to_str().unwrap()]).ok();
    let page = std::fs::read_to_string(dir.path().join("weir-sim-fair.1")).expect("a page for weir sim fair");
    assert!(page.contains("scenario"));
}

#[test]
fn a_reader_that_leaves_early_is_no_error() {
    use std::process::{Command, Stdio};
    let mut child = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["config", "show", "--all"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
}
