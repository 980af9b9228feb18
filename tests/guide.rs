//! The guide: every page is in its table of contents, every link leads somewhere, and the configurations in it are valid.

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

/// What stands in round brackets behind square ones, outside of code.
fn links(text: &str) -> Vec<String> {
    let prose = text.split("```").step_by(2).collect::<String>();
    let targets = prose.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    targets.map(|target| target.split('#').next().unwrap_or_default().to_owned()).collect()
}

#[test]
fn every_link_between_pages_leads_somewhere() {
    let mut dead = Vec::new();
    for page in pages() {
        let text = fs::read_to_string(&page).unwrap();
        for link in links(&text).iter().filter(|link| !link.is_empty() && !link.contains("://")) {
            if !page.parent().unwrap().join(link).exists() {
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
fn configurations_for_certificates_and_containers_are_valid() {
    let folder = tempfile::tempdir().unwrap();
    let check = |text: &str, whence: &str| {
        let file = folder.path().join("weir.toml");
        fs::write(&file, text).unwrap();
        let said = weir(&["check", "--config", file.to_str().unwrap()]);
        assert_eq!(said.code, Some(0), "{whence}:\n{text}\n{}", said.stderr);
    };
    let page = fs::read_to_string(root().join("docs/certificates.md")).unwrap();
    let blocks: Vec<&str> = page.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert!(blocks.len() >= 3, "{blocks:?}");
    blocks.iter().for_each(|block| check(block, "docs/certificates.md"));
    for kind in ["web", "relay", "mx", "lab"] {
        let file = root().join(format!("packaging/compose/{kind}.toml"));
        check(&fs::read_to_string(&file).unwrap(), kind);
    }
}
