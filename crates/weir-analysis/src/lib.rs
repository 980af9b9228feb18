//! What can be said of a sample without running it: the plugins that Weir brings.
//!
//! Each plugin is a pure look at hostile bytes: a [`Sample`] in, a report and files that were found in it
//! out. Bytes, members, findings and processor time are bounded, and the time is in proportion to what is looked at. The lab starts
//! them like any other plugin, each in a process of its own (`weir plugin NAME JOB`); nothing here opens anything but the job
//! folder, a folder of rules and a connection to clamd.
//!
//! Levels: `malicious` is proof (a signature, a rule that says so), `suspicious` a trick that honest files seldom need, `safe` only
//! what a scanner says that has looked at the whole.

pub mod archive;
pub mod clamav;
pub mod elf_pe;
pub mod entropy;
pub mod findings;
#[cfg(any(test, feature = "fixtures"))]
pub mod fixtures;
pub mod fuzz;
pub mod identify;
pub mod office_pdf;
pub mod sample;
pub mod strings;
pub mod tlsh;
pub mod yara;

use findings::{Findings, Folder, Shelf};
use sample::Sample;
use serde_json::Value;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use weir_lab::job::Report;

/// Our plugins: name and manifest. `run-linux` runs in a VM, the others are run by [`run`].
pub const MANIFESTS: &[(&str, &str)] = &[
    ("archive", include_str!("../../../plugins/archive/plugin.toml")),
    ("clamav", include_str!("../../../plugins/clamav/plugin.toml")),
    ("elf-pe", include_str!("../../../plugins/elf-pe/plugin.toml")),
    ("identify", include_str!("../../../plugins/identify/plugin.toml")),
    ("office-pdf", include_str!("../../../plugins/office-pdf/plugin.toml")),
    ("run-linux", include_str!("../../../plugins/run-linux/plugin.toml")),
    ("strings", include_str!("../../../plugins/strings/plugin.toml")),
    ("yara", include_str!("../../../plugins/yara/plugin.toml")),
];

/// A plugin: everything that it has to say, or why it could not look.
type PluginLook = fn(&Sample, &mut Findings<'_>) -> Result<Value, String>;

fn look_of(name: &str) -> Option<PluginLook> {
    Some(match name {
        "archive" => archive::look,
        "clamav" => clamav::look,
        "elf-pe" => elf_pe::look,
        "identify" => identify::look,
        "office-pdf" => office_pdf::look,
        "strings" => strings::look,
        "yara" => yara::look,
        _ => return None,
    })
}

/// Whether [`run`] knows a plugin of this name.
pub fn runs(name: &str) -> bool {
    look_of(name).is_some()
}

/// Runs a plugin on a job folder: reads `input/`, writes `output/output.json` and the files that were found.
pub fn run(name: &str, job: &Path) -> io::Result<()> {
    let look = look_of(name).ok_or_else(|| io::Error::other(format!("there is no plugin named {name}")))?;
    let sample = Sample::of_job(job)?;
    let output = job.join("output");
    let report = report(name, look, &sample, &mut Folder::new(&output))?;
    std::fs::write(output.join("output.json"), serde_json::to_vec(&report)?)
}

/// Runs a plugin on a sample in memory.
pub fn look(name: &str, sample: &Sample, shelf: &mut dyn Shelf) -> io::Result<Report> {
    let look = look_of(name).ok_or_else(|| io::Error::other(format!("there is no plugin named {name}")))?;
    report(name, look, sample, shelf)
}

/// Readers by others may panic on what they did not expect: then the plugin has failed, and says so.
fn report(name: &str, look: PluginLook, sample: &Sample, shelf: &mut dyn Shelf) -> io::Result<Report> {
    let mut findings = Findings::new(name, shelf);
    match catch_unwind(AssertUnwindSafe(|| look(sample, &mut findings))) {
        Ok(Ok(full)) => findings.report(&full),
        Ok(Err(problem)) => findings::failed(&problem),
        Err(_) => findings::failed("a reader of this kind of file gave up on it"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use findings::Memory;

    #[test]
    fn every_manifest_is_one_and_has_its_plugin() {
        for (name, manifest) in MANIFESTS {
            let table: toml::Table = toml::from_str(manifest).unwrap();
            assert_eq!(table["name"].as_str(), Some(*name));
            let vm = table.get("run").and_then(toml::Value::as_str) == Some("vm");
            assert_eq!(look_of(name).is_some(), !vm, "{name}");
            let exec: Option<Vec<&str>> = table
                .get("exec")
                .and_then(toml::Value::as_array)
                .map(|e| e.iter().filter_map(toml::Value::as_str).collect());
            assert_eq!(exec.as_deref(), (!vm).then_some(&["weir", "plugin", *name][..]));
        }
    }

    #[test]
    fn a_job_folder_is_read_and_answered() {
        let home = tempfile::tempdir().unwrap();
        for part in ["input", "output"] {
            std::fs::create_dir(home.path().join(part)).unwrap();
        }
        let zip = fixtures::zip(&[("a.txt", b"hello")]);
        std::fs::write(home.path().join("input/attachment"), &zip).unwrap();
        std::fs::write(home.path().join("input/input.json"), r#"{"filename":"a.zip","contentType":"application/zip"}"#)
            .unwrap();
        run("archive", home.path()).unwrap();
        let report = Report::read(&std::fs::read(home.path().join("output/output.json")).unwrap()).unwrap();
        let child = &report.artifacts[0];
        assert_eq!((child.data_type.as_str(), child.filename.as_deref()), ("file", Some("a.txt")));
        let file = home.path().join("output").join(child.file.as_deref().unwrap());
        assert_eq!(std::fs::read(file).unwrap(), b"hello");
        assert!(run("moon", home.path()).is_err());
    }

    #[test]
    fn a_plugin_that_cannot_look_says_so() {
        let sample = Sample::of_bytes("a", b"x");
        let report = look("clamav", &sample, &mut Memory::default()).unwrap();
        assert!(!report.success && report.error_message.contains("no clamd"), "{}", report.error_message);
    }
}
