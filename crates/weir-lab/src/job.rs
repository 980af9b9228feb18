//! The job folder: what a plugin gets and what it leaves, in Cortex's form.
//!
//! ```text
//! input/input.json   what to do
//! input/attachment   the sample, not executable
//! output/            the plugin writes output.json here, and files that it found in the sample
//! ```
//!
//! What comes back is hostile: its length, its depth and its fields are bounded, and files are opened without following
//! links. A report that breaks a rule is a failed one, not an error of ours.

use crate::json_text::readable;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The most findings of one report.
const TAXONOMIES_MAX: usize = 256;
/// The most files and observables of one report.
const ARTIFACTS_MAX: usize = 1024;
/// How deeply lists and objects may be nested.
const DEPTH_MAX: usize = 100;

/// A job folder.
#[derive(Debug, Clone)]
pub struct Job {
    folder: PathBuf,
}

/// The input of a plugin, `input.json`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Input<'a> {
    /// Always `file`.
    #[serde(rename = "dataType")]
    pub data_type: &'static str,
    /// The name of the sample in `input/`.
    pub file: &'static str,
    /// The name that the sample came with.
    pub filename: &'a str,
    /// Its type by content.
    #[serde(rename = "contentType")]
    pub content_type: &'a str,
    /// How far it may be shared: 2, within the organisation.
    pub tlp: u8,
    /// What may be done with it: 2.
    pub pap: u8,
    /// Settings of the plugin.
    pub config: serde_json::Value,
}

impl<'a> Input<'a> {
    /// For a sample of this name and type.
    pub fn new(filename: &'a str, content_type: &'a str) -> Input<'a> {
        let config = serde_json::Value::Object(serde_json::Map::new());
        Input { data_type: "file", file: "attachment", filename, content_type, tlp: 2, pap: 2, config }
    }
}

/// The output of a plugin, `output.json`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Report {
    /// Whether it could do its work.
    pub success: bool,
    /// Why not.
    #[serde(default, rename = "errorMessage", skip_serializing_if = "String::is_empty")]
    pub error_message: String,
    /// The complete report, in a form of the plugin's own. It is kept as text, because a megabyte of brackets would be a gigabyte of values.
    #[serde(default)]
    pub full: Box<RawValue>,
    /// The findings.
    #[serde(default)]
    pub summary: Summary,
    /// What was found in the sample.
    #[serde(default)]
    pub artifacts: Vec<Artifact>,
}

/// The findings of a report.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// One line each.
    #[serde(default)]
    pub taxonomies: Vec<Taxonomy>,
}

/// One finding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Taxonomy {
    /// How serious it is.
    pub level: Level,
    /// Who says so.
    pub namespace: String,
    /// What it is about.
    pub predicate: String,
    /// What was found.
    #[serde(deserialize_with = "text_or_number")]
    pub value: String,
}

/// How serious a finding is: the words of Cortex, and one more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// It says nothing for or against the sample.
    Info,
    /// It speaks for the sample.
    Safe,
    /// It says why the sample cannot be called clean: not everything that it does was seen. Cortex has no word for this.
    Unknown,
    /// It speaks against the sample.
    Suspicious,
    /// It proves that the sample is malware.
    Malicious,
}

/// Something that was found in the sample: a file in `output/`, or an observable.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Artifact {
    /// `file`, `url`, `ip`, `domain`, `hash`, …
    #[serde(rename = "dataType")]
    pub data_type: String,
    /// The observable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<String>,
    /// The name of a file in `output/`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// The name that the file should have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filename: Option<String>,
    /// The hash under which the dispatcher has stored the file; the value of a plugin is ignored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// Its size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Its type by content.
    #[serde(default, rename = "contentType", skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    /// Why the dispatcher has not stored it.
    #[serde(default, rename = "leftOut", skip_serializing_if = "Option::is_none")]
    pub left_out: Option<String>,
}

/// Why a report is not accepted.
#[derive(Debug, thiserror::Error)]
pub enum BadReport {
    /// There is no report.
    #[error("the plugin left no output/output.json: {0}")]
    Missing(io::Error),
    /// It is too long.
    #[error("the report is longer than {0} bytes")]
    TooLong(u64),
    /// It does not have the form of a report.
    #[error("the report is not valid: {0}")]
    Malformed(serde_json::Error),
    /// It is nested too deeply.
    #[error("the report is nested deeper than {DEPTH_MAX}")]
    TooDeep,
    /// It has more of something than is allowed.
    #[error("the report has {0} {1}; {2} are allowed")]
    TooMany(usize, &'static str, usize),
    /// The plugin itself says that it failed.
    #[error("the plugin failed: {0}")]
    Failed(String),
}

impl Job {
    /// Creates the folder, which must not exist, and writes the input. The sample is copied, so a plugin that changes its
    /// copy changes nothing else.
    pub fn prepare(folder: &Path, input: &Input<'_>, sample: &mut impl Read) -> io::Result<Job> {
        // The plugin may run as another user, so the folders are open to all. Nobody else can reach them, because the folders above are closed.
        for (part, mode) in [("", 0o755), ("input", 0o755), ("output", 0o777)] {
            fs::create_dir(folder.join(part))?;
            fs::set_permissions(folder.join(part), fs::Permissions::from_mode(mode))?;
        }
        let job = Job { folder: folder.to_owned() };
        job.fill(input, sample)?;
        Ok(job)
    }

    /// Puts another sample into the folder of a plugin that keeps running, and removes what it left of the last one.
    pub fn refill(&self, input: &Input<'_>, sample: &mut impl Read) -> io::Result<()> {
        let (told, attachment) = (self.folder.join("input/input.json"), self.folder.join("input/attachment"));
        for old in [&told, &attachment] {
            match fs::remove_file(old) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        for left in fs::read_dir(self.folder.join("output"))? {
            let left = left?;
            match left.file_type()?.is_dir() {
                true => fs::remove_dir_all(left.path())?,
                false => fs::remove_file(left.path())?,
            }
        }
        self.fill(input, sample)
    }

    fn fill(&self, input: &Input<'_>, sample: &mut impl Read) -> io::Result<()> {
        let told = self.folder.join("input/input.json");
        fs::write(&told, serde_json::to_vec_pretty(input)?)?;
        fs::set_permissions(&told, fs::Permissions::from_mode(0o444))?;
        let mut options = fs::OpenOptions::new();
        let path = self.folder.join("input/attachment");
        let mut attachment = options.write(true).create_new(true).mode(0o444).open(path)?;
        io::copy(sample, &mut attachment)?;
        // Set explicitly, whatever the umask of the process is.
        attachment.set_permissions(fs::Permissions::from_mode(0o444))
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Reads the report of the plugin.
    pub fn report(&self, output_max: u64) -> Result<Report, BadReport> {
        self.report_in("output.json", output_max)
    }

    /// The same from a file of this name.
    pub fn report_in(&self, name: &str, output_max: u64) -> Result<Report, BadReport> {
        let file = self.open_output(name).map_err(BadReport::Missing)?;
        let mut text = Vec::new();
        file.take(output_max + 1).read_to_end(&mut text).map_err(BadReport::Missing)?;
        if text.len() as u64 > output_max {
            return Err(BadReport::TooLong(output_max));
        }
        Report::read(&text)
    }

    /// Opens a file that the plugin left; only a regular file directly in `output/`.
    pub fn open_output(&self, name: &str) -> io::Result<File> {
        if name.is_empty() || name.contains(['/', '\0']) || name == "." || name == ".." {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not the name of a file in output/"));
        }
        let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
        let mut options = fs::OpenOptions::new();
        let file =
            options.read(true).custom_flags(flags.bits().cast_signed()).open(self.folder.join("output").join(name))?;
        if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other("not a regular file")) }
    }
}

impl Report {
    /// Parses a report, whether the plugin succeeded or not.
    pub fn parse(text: &[u8]) -> Result<Report, BadReport> {
        if depth(text) > DEPTH_MAX {
            return Err(BadReport::TooDeep);
        }
        serde_json::from_str(&readable(text)).map_err(BadReport::Malformed)
    }

    /// Reads a report and checks its bounds.
    pub fn read(text: &[u8]) -> Result<Report, BadReport> {
        let report = Report::parse(text)?;
        if !report.success {
            return Err(BadReport::Failed(report.error_message.chars().take(500).collect()));
        }
        let within =
            |count: usize, what, most| if count > most { Err(BadReport::TooMany(count, what, most)) } else { Ok(()) };
        within(report.summary.taxonomies.len(), "findings", TAXONOMIES_MAX)?;
        within(report.artifacts.len(), "artifacts", ARTIFACTS_MAX)?;
        Ok(report)
    }
}

/// How deeply brackets are nested, in text that need not be JSON.
fn depth(text: &[u8]) -> usize {
    let (mut deepest, mut depth, mut in_string, mut escaped) = (0, 0_usize, false, false);
    for byte in text {
        match (in_string, byte) {
            (true, _) if escaped => escaped = false,
            (true, b'\\') => escaped = true,
            (_, b'"') => in_string = !in_string,
            (false, b'[' | b'{') => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            (false, b']' | b'}') => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

/// Some analyzers write numbers as values.
fn text_or_number<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    match serde_json::Value::deserialize(deserializer)? {
        serde_json::Value::String(text) => Ok(text),
        serde_json::Value::Number(number) => Ok(number.to_string()),
        serde_json::Value::Bool(yes) => Ok(yes.to_string()),
        _ => Err(serde::de::Error::custom("the value of a finding is text or a number")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(home: &tempfile::TempDir) -> Job {
        Job::prepare(&home.path().join("job"), &Input::new("a.sh", "text/x-shellscript"), &mut &b"echo"[..]).unwrap()
    }

    #[test]
    fn the_sample_and_the_input_are_there_and_not_executable() {
        let home = tempfile::tempdir().unwrap();
        let job = job(&home);
        let attachment = job.folder().join("input/attachment");
        assert_eq!(fs::read(&attachment).unwrap(), b"echo");
        assert_eq!(fs::metadata(&attachment).unwrap().permissions().mode() & 0o111, 0);
        let input: serde_json::Value =
            serde_json::from_slice(&fs::read(job.folder().join("input/input.json")).unwrap()).unwrap();
        assert_eq!((&input["dataType"], &input["filename"]), (&"file".into(), &"a.sh".into()));
    }

    #[test]
    fn a_report_of_a_cortex_analyzer_is_read() {
        let home = tempfile::tempdir().unwrap();
        let job = job(&home);
        let text = r#"{"success":true,"full":{"n":1},"operations":[],
            "summary":{"taxonomies":[{"level":"malicious","namespace":"Yara","predicate":"Match","value":3}]},
            "artifacts":[{"dataType":"file","file":"dropped","filename":"b.exe","tlp":2}]}"#;
        fs::write(job.folder().join("output/output.json"), text).unwrap();
        let report = job.report(1000).unwrap();
        assert_eq!(report.summary.taxonomies[0].value, "3");
        assert_eq!(report.artifacts[0].filename.as_deref(), Some("b.exe"));
        assert!(matches!(job.report(100), Err(BadReport::TooLong(100))));
    }

    #[test]
    fn what_breaks_a_rule_does_not_count() {
        let deep = format!("{{\"success\":true,\"full\":{}{}}}", "[".repeat(100_000), "]".repeat(100_000));
        assert!(matches!(Report::read(deep.as_bytes()), Err(BadReport::TooDeep)));
        let said = format!("{{\"success\":true,\"full\":\"{}\\\"{}\"}}", "[".repeat(200), "[".repeat(200));
        assert!(Report::read(said.as_bytes()).is_ok(), "brackets in text are none");
        let many = format!("{{\"success\":true,\"artifacts\":[{}]}}", ["{\"dataType\":\"ip\"}"; 1025].join(","));
        assert!(matches!(Report::read(many.as_bytes()), Err(BadReport::TooMany(1025, "artifacts", 1024))));
        let failed = Report::read(br#"{"success":false,"errorMessage":"no network"}"#);
        assert!(matches!(failed, Err(BadReport::Failed(why)) if why == "no network"));
        assert!(Report::read(br#"{"success":true,"summary":{"taxonomies":[{"level":"deadly","namespace":"a","predicate":"b","value":"c"}]}}"#).is_err());
    }

    #[test]
    fn hostile_text_is_data() {
        let text = b"{\"success\":true,\"full\":{\"a\":\"\\u0000\\udc80\"},\"summary\":{\"taxonomies\":[
            {\"level\":\"info\",\"namespace\":\"n\",\"predicate\":\"p\",\"value\":\"x\0\x1b\\ud800\xff\"}]}}";
        let report = Report::read(text).unwrap();
        assert_eq!(report.summary.taxonomies[0].value, "x\0\x1b\u{fffd}\u{fffd}");
        let again = Report::read(serde_json::to_string(&report).unwrap().as_bytes()).unwrap();
        assert_eq!(again.summary, report.summary);
        let full: serde_json::Value = serde_json::from_str(again.full.get()).unwrap();
        assert_eq!(full["a"], "\0\u{fffd}");
        let long = format!("{{\"success\":true,\"full\":\"{}\"}}", "\u{e9}".repeat(1 << 20));
        assert_eq!(Report::read(long.as_bytes()).unwrap().full.get().len(), (2 << 20) + 2);
    }

    #[test]
    fn links_pipes_and_paths_are_not_followed() {
        let home = tempfile::tempdir().unwrap();
        let job = job(&home);
        let output = job.folder().join("output");
        std::os::unix::fs::symlink("/etc/passwd", output.join("output.json")).unwrap();
        fs::create_dir(output.join("folder")).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, output.join("pipe"), rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        assert!(matches!(job.report(1000), Err(BadReport::Missing(_))));
        for name in ["folder", "pipe", "../input/attachment", "..", "", "a\0b"] {
            assert!(job.open_output(name).is_err(), "{name}");
        }
    }
}
