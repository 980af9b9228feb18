//! `weir lab report`, `download` and `pcap`: what is known of a sample in several formats, the sample itself, and its network traffic.

use super::{plain, reach};
use crate::answer::{bytes, print_answer};
use crate::control::Asking;
use crate::table::shown;
use anyhow::Context;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use weir_console::api::samples::{self, Form};
use weir_lab::operations::{ResultLine, SamplePage};
use weir_lab::report::Merged;

#[derive(clap::Args)]
pub(crate) struct ReportArgs {
    /// The number of the sample, or the beginning of its SHA-256 (the newest sample that matches)
    sample: String,
    /// Print a self-contained HTML page without scripts
    #[arg(long, conflicts_with_all = ["json", "misp", "stix", "navigator"])]
    html: bool,
    /// Print a MISP event
    #[arg(long, conflicts_with_all = ["json", "stix", "navigator"])]
    misp: bool,
    /// Print a STIX 2.1 bundle
    #[arg(long, conflicts_with_all = ["json", "navigator"])]
    stix: bool,
    /// Print a layer for the ATT&CK Navigator
    #[arg(long, conflicts_with = "json")]
    navigator: bool,
    #[command(flatten)]
    asking: Asking,
}

#[derive(clap::Args)]
pub(crate) struct DownloadArgs {
    /// The number of the sample, or the beginning of its SHA-256 (the newest sample that matches)
    sample: String,
    /// The file to write, which must not exist yet [default: the first 16 digits of the SHA-256, with .zip]
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    asking: Asking,
}

#[derive(clap::Args)]
pub(crate) struct PcapArgs {
    /// The number of the sample, or the beginning of its SHA-256 (the newest sample that matches)
    sample: String,
    /// The file to write, which must not exist yet [default: the first 16 digits of the SHA-256, with .pcap]
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    asking: Asking,
}

impl ReportArgs {
    pub(super) fn run(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        let control = reach(&self.asking)?;
        let form = match () {
            () if self.html => "html",
            () if self.misp => "misp",
            () if self.stix => "stix",
            () if self.navigator => "navigator",
            () if self.asking.json => "json",
            () => return print_page(out, &control.ask_of(&samples::SHOW, &self.sample, &())?),
        };
        let report = control.ask_of(&samples::REPORT, &self.sample, &Form { form: form.to_owned() })?;
        match form {
            "html" => Ok(writeln!(out, "{}", serde_json::from_str::<String>(report.get())?)?),
            _ => print_answer(out, &report),
        }
    }
}

impl DownloadArgs {
    pub(super) fn run(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        let control = reach(&self.asking)?;
        let sample = control.ask_of(&samples::SHOW, &self.sample, &())?.sample;
        let zip = control.ask_of(&samples::CONTENT, &self.sample, &())?.0.bytes;
        let default = || PathBuf::from(format!("{}.zip", sample.hash.get(..16).unwrap_or(&sample.hash)));
        let to = self.output.clone().unwrap_or_else(default);
        write_new(&to, &zip)?;
        if self.asking.json {
            return print_answer(out, &json!({ "sample": sample.sample, "file": to, "bytes": zip.len() }));
        }
        let said = "its password is \"infected\"";
        Ok(writeln!(out, "Sample {} is in {} ({}); {said}.", sample.sample, to.display(), bytes(zip.len()))?)
    }
}

impl PcapArgs {
    pub(super) fn run(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        let control = reach(&self.asking)?;
        let sample = control.ask_of(&samples::SHOW, &self.sample, &())?.sample;
        let pcap = control.ask_of(&samples::PACKETS, &self.sample, &())?.0.bytes;
        let default = || PathBuf::from(format!("{}.pcap", sample.hash.get(..16).unwrap_or(&sample.hash)));
        let to = self.output.clone().unwrap_or_else(default);
        write_new(&to, &pcap)?;
        if self.asking.json {
            return print_answer(out, &json!({ "sample": sample.sample, "file": to, "bytes": pcap.len() }));
        }
        Ok(writeln!(out, "The packets of sample {} are in {} ({}).", sample.sample, to.display(), bytes(pcap.len()))?)
    }
}

/// Writes a new file that only its owner can read. If the file exists already, that is an error.
fn write_new(to: &Path, content: &[u8]) -> anyhow::Result<()> {
    let cannot = || format!("{} cannot be written", to.display());
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(to).with_context(cannot)?;
    file.write_all(content).with_context(cannot)
}

/// Prints the verdict and its reasons.
pub(super) fn print_verdict(out: &mut dyn Write, page: &SamplePage) -> anyhow::Result<()> {
    writeln!(out, "  {:<14} {}", "verdict", page.sample.verdict)?;
    for reason in &page.reasons {
        writeln!(out, "  {:<14} {}", "", plain(reason))?;
    }
    Ok(())
}

/// The plugins that failed, each with its error. They are the reason why an analysis did not succeed.
pub(super) fn failures(page: &SamplePage) -> Vec<String> {
    let failed = page.results.iter().filter(|result| result.outcome == "failed");
    let said = |result: &ResultLine| {
        let report: Value = serde_json::from_str(result.report.get()).unwrap_or_default();
        let problem = report["errorMessage"].as_str().unwrap_or("it does not say why");
        format!("{}: {}", shown(&result.plugin), plain(problem))
    };
    // Several attempts may have failed in the same way; each text is shown only once.
    failed.map(said).collect::<BTreeSet<String>>().into_iter().collect()
}

fn print_page(out: &mut dyn Write, page: &SamplePage) -> anyhow::Result<()> {
    let sample = &page.sample;
    writeln!(out, "Sample {}: {}.\n", sample.sample, plain(&page.now))?;
    let facts = [
        ("name", &sample.name),
        ("type", &sample.file_type),
        ("sha256", &sample.hash),
        ("submitted by", &sample.submitter),
    ];
    for (label, fact) in facts {
        writeln!(out, "  {label:<14} {}", shown(fact))?;
    }
    writeln!(out, "  {:<14} {}", "size", bytes(sample.size))?;
    if let Some(parent) = sample.parent {
        writeln!(out, "  {:<14} sample {parent}", "found in")?;
    }
    for (label, choice) in page.choices.words() {
        writeln!(out, "  {label:<14} {}", shown(&choice))?;
    }
    print_verdict(out, page)?;
    for child in &page.children {
        writeln!(out, "  {:<14} sample {}, {}: {}", "in it", child.sample, child.verdict, shown(&child.name))?;
    }
    match page.left_out {
        0 => {}
        left => writeln!(out, "  {:<14} {left} files that were not taken", "in it")?,
    }
    for attempt in &page.attempts {
        let outcome = if attempt.outcome.is_empty() { "under way" } else { &attempt.outcome };
        let (node, vm) = (shown(&attempt.node), shown(&attempt.vm));
        writeln!(out, "  {:<14} {}, on {node} in {vm}", "attempt", plain(outcome))?;
    }
    page.results.iter().try_for_each(|result| print_result(out, result))?;
    print_techniques(out, page)
}

/// Prints the techniques of MITRE's ATT&CK that were recognised.
fn print_techniques(out: &mut dyn Write, page: &SamplePage) -> anyhow::Result<()> {
    let techniques = Merged::new(page.clone(), Vec::new()).techniques;
    if !techniques.is_empty() {
        writeln!(out, "\nTechniques (MITRE ATT&CK)")?;
    }
    for technique in techniques {
        let findings = plain(&technique.findings.join("; "));
        writeln!(out, "  {:<10} {}: {findings}", technique.id, technique.name)?;
    }
    Ok(())
}

/// Prints the result of a plugin. The report may have any form, because nothing forces plugins to keep to one.
fn print_result(out: &mut dyn Write, result: &ResultLine) -> anyhow::Result<()> {
    let [plugin, version, outcome] = [&result.plugin, &result.version, &result.outcome].map(|text| shown(text));
    let of = result.of_sample.map(|sample| format!(", known from sample {sample}")).unwrap_or_default();
    writeln!(out, "\n{plugin} {version} ({outcome}{of})")?;
    let report: Value = serde_json::from_str(result.report.get())?;
    for finding in report["summary"]["taxonomies"].as_array().into_iter().flatten() {
        let word = |key: &str| shown(finding[key].as_str().unwrap_or_default());
        writeln!(out, "  {:<10} {:<14} {}", word("level"), word("predicate"), word("value"))?;
    }
    super::acted::print(out, &result.report)?;
    if let Some(problem) = report["errorMessage"].as_str() {
        writeln!(out, "  {}", plain(problem))?;
    }
    Ok(())
}
