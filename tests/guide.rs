//! Tests of the guide: every page is in the table of contents, every link leads somewhere, and the configurations in it are valid.

use crate::harness::weir;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn pages() -> Vec<PathBuf> {
    let folders = [root(), root().join("docs"), root().join("docs/algorithms")];
    let files = folders.iter().flat_map(|folder| fs::read_dir(folder).unwrap().flatten().map(|entry| entry.path()));
    files.filter(|path| path.extension().is_some_and(|kind| kind == "md")).collect()
}

/// The targets of links: what is in round brackets after square ones, outside of code.
fn links(text: &str) -> Vec<String> {
    let prose = text.split("```").step_by(2).collect::<String>();
    prose.split("](").skip(1).filter_map(|rest| rest.split(')').next()).map(str::to_owned).collect()
}

/// The anchors of a page, as a browser of the repository makes them from the headings.
fn places(text: &str) -> Vec<String> {
    let prose = text.split("```").step_by(2).collect::<String>();
    let headings = prose.lines().filter(|line| line.starts_with('#')).map(|line| line.trim_start_matches('#').trim());
    let kept = |letter: &char| letter.is_alphanumeric() || matches!(letter, ' ' | '-' | '_');
    let name = |words: &str| words.to_lowercase().chars().filter(kept).collect::<String>().replace(' ', "-");
    headings.map(name).collect()
}

#[test]
fn every_link_between_pages_leads_somewhere() {
    let mut dead = Vec::new();
    for page in pages() {
        let text = fs::read_to_string(&page).unwrap();
        for link in links(&text).iter().filter(|link| !link.contains("://")) {
            let (file, place) = link.split_once('#').unwrap_or((link, ""));
            let to = if file.is_empty() { page.clone() } else { page.parent().unwrap().join(file) };
            let there = match (to.exists(), place) {
                (there, "") => there,
                (false, _) => false,
                (true, place) => places(&fs::read_to_string(&to).unwrap()).contains(&place.to_owned()),
            };
            if !there {
                dead.push(format!("{}: {link}", page.display()));
            }
        }
    }
    assert!(dead.is_empty(), "{dead:#?}");
}

#[test]
fn every_page_is_in_the_table_of_contents() {
    let summary = links(&fs::read_to_string(root().join("docs/SUMMARY.md")).unwrap());
    for page in fs::read_dir(root().join("docs")).unwrap().flatten() {
        let name = page.file_name().into_string().unwrap();
        if name.ends_with(".md") && name != "SUMMARY.md" {
            assert!(summary.contains(&name), "{name} is not in docs/SUMMARY.md");
        }
    }
}

#[test]
fn every_configuration_in_the_guide_and_of_the_containers_is_valid() {
    let folder = tempfile::tempdir().unwrap();
    let check = |text: &str, whence: &str| {
        let file = folder.path().join("weir.toml");
        fs::write(&file, text).unwrap();
        let said = weir(&["check", "--config", file.to_str().unwrap()]);
        assert_eq!(said.code, Some(0), "{whence}:\n{text}\n{}", said.stderr);
    };
    let mut checked = 0;
    // A plugin has a manifest of its own kind, so that page is left out.
    for page in pages().into_iter().filter(|page| !page.ends_with("plugins.md")) {
        let text = fs::read_to_string(&page).unwrap();
        for block in text.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next()) {
            check(block, &page.display().to_string());
            checked += 1;
        }
    }
    assert!(checked >= 10, "{checked} configurations");
    for kind in ["web", "relay", "mx", "lab"] {
        let file = root().join(format!("packaging/compose/{kind}.toml"));
        check(&fs::read_to_string(&file).unwrap(), kind);
        let composed = composed(kind);
        let weir = &composed["services"]["weir"];
        assert_eq!(weir["read_only"], true, "{kind}: {weir}");
        assert_eq!(weir["cap_drop"], serde_json::json!(["ALL"]), "{kind}");
        let mounted: Vec<&str> = weir["volumes"].as_array().unwrap().iter().filter_map(|one| one.as_str()).collect();
        assert!(mounted.contains(&format!("./{kind}.toml:/etc/weir/weir.toml:ro").as_str()), "{kind}: {mounted:?}");
        // Every service that another one waits for exists.
        let services = composed["services"].as_object().unwrap();
        let waits = weir["depends_on"].as_array().cloned().unwrap_or_default();
        assert!(waits.iter().all(|name| services.contains_key(name.as_str().unwrap())), "{kind}: {waits:?}");
    }
}

/// A compose file, parsed as YAML.
fn composed(kind: &str) -> serde_json::Value {
    let read = "import json, sys, yaml; print(json.dumps(yaml.safe_load(open(sys.argv[1]))))";
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("a folder");
    let python = target.join("schemathesis/bin/python");
    let file = root().join(format!("packaging/compose/{kind}.yml"));
    let output =
        std::process::Command::new(python).args(["-c", read]).arg(file).output().expect("tools/setup installs it");
    assert!(output.status.success(), "{kind}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}
