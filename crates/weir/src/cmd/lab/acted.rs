//! Prints what a sample did when it ran: processes under the process that started them, files, the network, and the rest.
//!
//! The data comes from a guest that ran malware, so it is printed as plain text, and only as much as a person would read.

use super::plain;
use crate::answer::{bytes, count};
use crate::table::shown;
use serde_json::value::RawValue;
use std::io::Write;
use weir_lab::report::{Act, Acted, FileChange, Network, Persistence, Process, RegistryChange};

/// At most this many lines of each kind are printed; `--json` prints all.
const LINES_MAX: usize = 20;
/// The deepest level at which the tree is still indented.
const DEPTH_MAX: usize = 10;

/// Prints what a plugin saw the sample do; nothing if the plugin did not run the sample.
pub(super) fn print(out: &mut dyn Write, report: &RawValue) -> anyhow::Result<()> {
    let Some(acted) = Acted::of(report) else { return Ok(()) };
    let seen = &acted.seen;
    lines(out, "ran", &acted.tree(), |(depth, process)| {
        format!("{}{}", "  ".repeat((*depth).min(DEPTH_MAX)), ran(process))
    })?;
    lines(out, "files", &seen.files, changed)?;
    lines(out, "network", &seen.network, called)?;
    lines(out, "registry", &seen.registry, registered)?;
    lines(out, "stays", &seen.persistence, stays)?;
    lines(out, "showed", &seen.windows, |text| shown(text))?;
    lines(out, "loaded", &seen.modules, |path| shown(path))?;
    lines(out, "did", &seen.acts, did)?;
    if let Some(capture) = &seen.capture {
        let cut = if capture.cut { ", and there were more" } else { "" };
        let all = count(capture.packets, "packet");
        writeln!(out, "  {:<10} {all}{cut}: `weir lab pcap` gets them", "said")?;
    }
    match seen.left_out {
        0 => Ok(()),
        more => Ok(writeln!(out, "  {:<10} the guest could not report another {more} events", "")?),
    }
}

fn lines<T>(out: &mut dyn Write, label: &str, all: &[T], line: impl Fn(&T) -> String) -> anyhow::Result<()> {
    for (at, one) in all.iter().take(LINES_MAX).enumerate() {
        writeln!(out, "  {:<10} {}", if at == 0 { label } else { "" }, plain(&line(one)))?;
    }
    match all.len().saturating_sub(LINES_MAX) {
        0 => Ok(()),
        more => Ok(writeln!(out, "  {:<10} and {}, which --json shows", "", count(more, "more line"))?),
    }
}

fn ran(process: &Process) -> String {
    let command = match process.arguments.is_empty() {
        true => shown(&process.path),
        false => shown(&process.arguments.join(" ")),
    };
    match process.ended.as_str() {
        "" => format!("{command} (process {})", process.pid),
        ended => format!("{command} (process {}, {})", process.pid, shown(ended)),
    }
}

fn changed(file: &FileChange) -> String {
    let to = file.to.as_ref().map(|to| format!(" to {}", shown(to))).unwrap_or_default();
    let size = file.bytes.map(|size| format!(", {}", bytes(size))).unwrap_or_default();
    format!("{} {}{to}{size}", shown(&file.what), shown(&file.path))
}

fn called(call: &Network) -> String {
    [&call.what, &call.to, &call.detail]
        .into_iter()
        .filter(|word| !word.is_empty())
        .map(|word| shown(word))
        .collect::<Vec<_>>()
        .join(" ")
}

fn registered(change: &RegistryChange) -> String {
    let data = if change.data.is_empty() { String::new() } else { format!(" = {}", shown(&change.data)) };
    format!("{} {}\\{}{data}", shown(&change.what), shown(&change.key), shown(&change.name))
}

fn stays(attempt: &Persistence) -> String {
    format!("{} {}", shown(&attempt.what), shown(&attempt.path))
}

fn did(act: &Act) -> String {
    if act.detail.is_empty() { shown(&act.what) } else { format!("{} {}", shown(&act.what), shown(&act.detail)) }
}
