//! The plugins that Weir brings. They examine a sample without running it.
//!
//! A plugin takes a [`Sample`] and returns a report, and the files that it found in the sample. Bytes, members, findings and processor
//! time are bounded, and the time is proportional to the length of what is read. The lab starts them like any other plugin, each in a
//! process of its own (`weir plugin NAME JOB`). They open nothing but the job folder, a folder of rules and a connection to clamd.
//!
//! Levels: `malicious` needs proof (a signature, or a rule that says so), `suspicious` is a trick that honest files rarely need, and
//! `safe` is said only by a scanner that has examined the whole file.

pub mod archive;
pub mod clamav;
pub mod elf_pe;
pub mod entropy;
pub mod findings;
mod first_line;
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
use serde::Deserialize;
use serde_json::Value;
use std::io::{self, BufRead, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use weir_lab::job::Report;

/// A plugin that Weir brings.
#[derive(Debug, Clone, Copy)]
pub struct OwnPlugin {
    /// Its name, which is also that of its folder in `plugins/`.
    pub name: &'static str,
    /// The text of its `plugin.toml`.
    pub manifest: &'static str,
    /// What [`run`] does; none if the plugin runs in a VM.
    look: Option<PluginLook>,
}

impl OwnPlugin {
    /// Whether [`run`] can run it.
    pub fn is_process(&self) -> bool {
        self.look.is_some()
    }
}

/// What a plugin does: it adds its findings and returns the full report, or says why it could not examine the sample.
type PluginLook = fn(&Sample, &mut Findings<'_>) -> Result<Value, String>;

/// Names each plugin once: its manifest is read from the folder of that name.
macro_rules! own_plugins {
    ($($name:literal => $look:expr,)*) => {
        &[$(OwnPlugin {
            name: $name,
            manifest: include_str!(concat!("../../../plugins/", $name, "/plugin.toml")),
            look: $look,
        }),*]
    };
}

/// All plugins that Weir brings. A new one is a line here, its module and its folder in `plugins/`.
pub const PLUGINS: &[OwnPlugin] = own_plugins! {
    "archive" => Some(archive::look),
    "clamav" => Some(clamav::look),
    "elf-pe" => Some(elf_pe::look),
    "identify" => Some(identify::look),
    "office-pdf" => Some(office_pdf::look),
    "run-linux" => None,
    "run-windows" => None,
    "strings" => Some(strings::look),
    "yara" => Some(yara::look),
};

fn look_of(name: &str) -> io::Result<PluginLook> {
    let look = PLUGINS.iter().find(|plugin| plugin.name == name).and_then(|plugin| plugin.look);
    look.ok_or_else(|| io::Error::other(format!("there is no plugin named {name}")))
}

/// Runs a plugin on a job folder: reads `input/`, writes `output/output.json` and the files that were found.
pub fn run(name: &str, job: &Path) -> io::Result<()> {
    let look = look_of(name)?;
    let sample = Sample::of_job(job)?;
    let output = job.join("output");
    let report = report(name, look, &sample, &mut Folder::new(&output))?;
    std::fs::write(output.join("output.json"), serde_json::to_vec(&report)?)
}

/// What a plugin that stays is asked: a look with its settings.
#[derive(Debug, Deserialize)]
struct Wanted {
    name: String,
    config: Value,
}

/// Looks at one sample after another: each line asks for looks at what is in `input/` then, and each look that is done is told by its name, when
/// its report is in `output/NAME.json`. Ends when nobody asks any more.
pub fn stay(job: &Path, asked: impl BufRead, mut told: impl Write) -> io::Result<()> {
    let output = job.join("output");
    for line in asked.lines() {
        let mut sample = Sample::of_job(job)?;
        for Wanted { name, config } in serde_json::from_str::<Vec<Wanted>>(&line?)? {
            sample.config = config;
            let report = look(&name, &sample, &mut Folder::named(&output, &name))?;
            std::fs::write(output.join(format!("{name}.json")), serde_json::to_vec(&report)?)?;
            writeln!(told, "{name}")?;
            told.flush()?;
        }
    }
    Ok(())
}

/// Runs a plugin on a sample in memory.
pub fn look(name: &str, sample: &Sample, shelf: &mut dyn Shelf) -> io::Result<Report> {
    let look = look_of(name)?;
    report(name, look, sample, shelf)
}

/// A parser from another crate may panic on bytes that it did not expect. Then the report says that the plugin failed.
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
        let page = include_str!("../../../docs/plugins.md");
        for plugin in PLUGINS {
            let (name, table): (_, toml::Table) = (plugin.name, toml::from_str(plugin.manifest).unwrap());
            assert_eq!(table["name"].as_str(), Some(name));
            let vm = table.get("run").and_then(toml::Value::as_str) == Some("vm");
            assert_eq!(plugin.is_process(), !vm, "{name}");
            let exec: Option<Vec<&str>> = table
                .get("exec")
                .and_then(toml::Value::as_array)
                .map(|e| e.iter().filter_map(toml::Value::as_str).collect());
            assert_eq!(exec.as_deref(), (!vm).then_some(&["weir", "plugin", name][..]));
            assert!(page.contains(&format!("| `{name}` |")), "docs/plugins.md does not tell of {name}");
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
    fn one_that_stays_looks_at_one_sample_after_another() {
        let home = tempfile::tempdir().unwrap();
        for part in ["input", "output"] {
            std::fs::create_dir(home.path().join(part)).unwrap();
        }
        std::fs::write(home.path().join("input/attachment"), fixtures::zip(&[("a.txt", b"hello")])).unwrap();
        std::fs::write(home.path().join("input/input.json"), r#"{"filename":"a.zip"}"#).unwrap();
        let wanted = r#"[{"name":"archive","config":{}},{"name":"identify","config":{}},{"name":"yara","config":{}}]"#;
        let mut told = Vec::new();
        stay(home.path(), format!("{wanted}\n{wanted}\n").as_bytes(), &mut told).unwrap();
        assert_eq!(told, b"archive\nidentify\nyara\narchive\nidentify\nyara\n");
        let report = Report::read(&std::fs::read(home.path().join("output/archive.json")).unwrap()).unwrap();
        let child = home.path().join("output").join(report.artifacts[0].file.as_deref().unwrap());
        assert_eq!(std::fs::read(child).unwrap(), b"hello");
        assert!(stay(home.path(), &b"[{\"name\":\"moon\",\"config\":{}}]\n"[..], &mut told).is_err());
    }

    #[test]
    fn a_plugin_that_cannot_look_says_so() {
        let sample = Sample::of_bytes("a", b"x");
        let report = look("clamav", &sample, &mut Memory::default()).unwrap();
        assert!(!report.success && report.error_message.contains("no clamd"), "{}", report.error_message);
    }
}
