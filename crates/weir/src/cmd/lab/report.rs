//! `weir lab report` and `download`: what is known of a sample, in several forms, and the sample itself.

use super::{plain, reach};
use crate::answer::{bytes, list, number, print_json, text};
use crate::control::{Asking, encoded, query};
use crate::table::shown;
use anyhow::Context;
use serde_json::{Value, json};
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

#[derive(clap::Args)]
pub(crate) struct ReportArgs {
    /// Its number, or the beginning of its SHA-256 (then the newest)
    sample: String,
    /// Print one page that stands alone, with no script in it
    #[arg(long, conflicts_with_all = ["json", "misp", "stix"])]
    html: bool,
    /// Print a MISP event
    #[arg(long, conflicts_with_all = ["json", "stix"])]
    misp: bool,
    /// Print a STIX 2.1 bundle
    #[arg(long, conflicts_with = "json")]
    stix: bool,
    #[command(flatten)]
    asking: Asking,
}

#[derive(clap::Args)]
pub(crate) struct DownloadArgs {
    /// Its number, or the beginning of its SHA-256 (then the newest)
    sample: String,
    /// The file to write, which must not be there [default: the beginning of its SHA-256 with .zip]
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    asking: Asking,
}

impl ReportArgs {
    pub(super) fn run(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        let control = reach(&self.asking)?;
        let form = match (self.html, self.misp, self.stix) {
            (true, ..) => "html",
            (_, true, _) => "misp",
            (.., true) => "stix",
            _ => "json",
        };
        let path = format!("/lab/samples/{}/report{}", encoded(&self.sample), query(&[("form", form)]));
        let report = control.get(&path)?;
        match (form, report.as_str()) {
            ("html", Some(page)) => Ok(writeln!(out, "{page}")?),
            ("json", _) if !self.asking.json => print_page(out, &report),
            _ => print_json(out, &report),
        }
    }
}

impl DownloadArgs {
    pub(super) fn run(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        let control = reach(&self.asking)?;
        let page = control.get(&format!("/lab/samples/{}", encoded(&self.sample)))?;
        let hash = text(&page, "hash");
        let zip = control.get_bytes(&format!("/lab/samples/{}/content", encoded(&self.sample)))?;
        let default = || PathBuf::from(format!("{}.zip", hash.get(..16).unwrap_or(hash)));
        let to = self.output.clone().unwrap_or_else(default);
        let cannot = || format!("{} cannot be written", to.display());
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&to).with_context(cannot)?;
        file.write_all(&zip).with_context(cannot)?;
        if self.asking.json {
            return print_json(out, &json!({ "sample": page["sample"], "file": to, "bytes": zip.len() }));
        }
        let said = "its password is \"infected\"";
        Ok(writeln!(
            out,
            "Sample {} is in {} ({}); {said}.",
            number(&page, "sample"),
            to.display(),
            bytes(zip.len() as u64)
        )?)
    }
}

/// The verdict, and its reasons.
pub(super) fn print_verdict(out: &mut dyn Write, page: &Value) -> anyhow::Result<()> {
    writeln!(out, "  {:<14} {}", "verdict", text(page, "verdict"))?;
    for reason in list(page, "reasons").iter().filter_map(Value::as_str) {
        writeln!(out, "  {:<14} {}", "", plain(reason))?;
    }
    Ok(())
}

pub(super) fn print_page(out: &mut dyn Write, page: &Value) -> anyhow::Result<()> {
    writeln!(out, "Sample {}: {}.\n", number(page, "sample"), plain(text(page, "now")))?;
    for (label, key) in [("name", "name"), ("type", "file_type"), ("sha256", "hash"), ("handed in by", "submitter")] {
        writeln!(out, "  {label:<14} {}", shown(text(page, key)))?;
    }
    writeln!(out, "  {:<14} {}", "size", bytes(number(page, "size")))?;
    if let Some(parent) = page["parent"].as_u64() {
        writeln!(out, "  {:<14} sample {parent}", "found in")?;
    }
    print_verdict(out, page)?;
    for child in list(page, "children") {
        let (sample, verdict) = (number(child, "sample"), text(child, "verdict"));
        writeln!(out, "  {:<14} sample {sample}, {verdict}: {}", "in it", shown(text(child, "name")))?;
    }
    match number(page, "left_out") {
        0 => {}
        left => writeln!(out, "  {:<14} {left} files that were not taken", "in it")?,
    }
    for attempt in list(page, "attempts") {
        let outcome = match text(attempt, "outcome") {
            "" => "under way",
            outcome => outcome,
        };
        let (node, vm) = (shown(text(attempt, "node")), shown(text(attempt, "vm")));
        writeln!(out, "  {:<14} {}, on {node} in {vm}", "attempt", plain(outcome))?;
    }
    for result in list(page, "results") {
        let [plugin, version, outcome] = ["plugin", "version", "outcome"].map(|key| shown(text(result, key)));
        let of = result["of_sample"].as_u64().map(|sample| format!(", known from sample {sample}")).unwrap_or_default();
        writeln!(out, "\n{plugin} {version} ({outcome}{of})")?;
        for finding in list(&result["report"]["summary"], "taxonomies") {
            let [level, predicate, value] = ["level", "predicate", "value"].map(|key| shown(text(finding, key)));
            writeln!(out, "  {level:<10} {predicate:<14} {value}")?;
        }
        super::acted::print(out, &result["report"])?;
        if let Some(problem) = result["report"]["errorMessage"].as_str() {
            writeln!(out, "  {}", plain(problem))?;
        }
    }
    Ok(())
}
