//! `weir web learn`: makes the history document from access logs.

use crate::answer::print_json;
use crate::assembly::{read_history, write_history};
use crate::table::{Table, shown};
use anyhow::{Context, bail};
use std::fs::File;
use std::io::{self, BufReader, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};
use weir_web::profile::Document;
use weir_web::profile::learn::{Learner, Lesson};

/// Make the web gate's visit history from access logs
///
/// It counts the visits from each subnet and writes a history document. Logs may be in the Common or Combined format
/// (Apache, nginx), HAProxy's HTTP log format, or JSON; the format is recognised for each line. Use logs of quiet days,
/// so that requests of attackers do not become their history. A subnet with more visits than average counts as several
/// sessions, in proportion to its visits; all other subnets count as average.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Access logs; '-' is standard input
    #[arg(required = true, value_name = "ACCESS.LOG")]
    logs: Vec<PathBuf>,
    /// Write the document to this file; if the file already has one, the new one gets the next version number
    #[arg(long, short, value_name = "FILE.json")]
    output: Option<PathBuf>,
    /// How many leading bits of an IPv4 address make a subnet
    #[arg(long, value_name = "BITS", default_value_t = 24, value_parser = clap::value_parser!(u8).range(0..=32))]
    ipv4_prefix: u8,
    /// How many leading bits of an IPv6 address make a subnet
    #[arg(long, value_name = "BITS", default_value_t = 56, value_parser = clap::value_parser!(u8).range(0..=64))]
    ipv6_prefix: u8,
    /// Show at most this many subnets
    #[arg(long, default_value_t = 10, value_name = "N")]
    top: usize,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

impl Args {
    pub(crate) fn run(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        let previous = self.output.as_deref().map(previous).transpose()?.flatten();
        let mut learner = Learner::new(self.ipv4_prefix, self.ipv6_prefix);
        for log in &self.logs {
            read(&mut learner, log)?;
        }
        let lesson = learner.lesson().clone();
        if lesson.requests == 0 {
            bail!("{}", nothing(&lesson));
        }
        let made = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let document = learner.document(previous.as_ref(), made);
        if let Some(output) = &self.output {
            write_history(output, &document).with_context(|| format!("--output {}", output.display()))?;
        }
        if self.json {
            return print_json(out, &self.report(&lesson, &document));
        }
        self.print(out, &lesson, &document)
    }

    fn print(&self, out: &mut dyn Write, lesson: &Lesson, document: &Document) -> anyhow::Result<()> {
        let span = lesson.span_unix_s.map(|(first, last)| (last - first) as f64 / 86_400.0);
        let span = span.map_or(String::new(), |days| format!(" of {days:.1} days"));
        writeln!(
            out,
            "{} requests{span}, from {} subnets; {:.1} visits on average (an address counts once an hour).",
            lesson.requests, document.seen, document.average
        )?;
        if lesson.turned_away > 0 {
            writeln!(out, "{} more were refused (429, 503) and do not count.", lesson.turned_away)?;
        }
        let above = document.above_average();
        writeln!(out, "{above} subnets are above the average; all others have the weight of one average subnet.\n")?;
        let mut table = Table::new(&["subnet", ">visits", ">times the average"]);
        for (network, count) in largest(document).into_iter().take(self.top) {
            table.row([network, format!("{count:.0}"), format!("{:.2}", count / document.average)]);
        }
        table.write(out)?;
        print_bad(out, lesson)?;
        match &self.output {
            Some(output) => writeln!(out, "\nWritten to {} as version {}.", output.display(), document.version)?,
            None => writeln!(out, "\nNothing was written; to write the document, give --output FILE.json.")?,
        }
        Ok(())
    }

    fn report(&self, lesson: &Lesson, document: &Document) -> serde_json::Value {
        let bad = lesson
            .first_bad
            .iter()
            .map(|(log, line, reason)| serde_json::json!({ "log": log, "line": line, "problem": reason.to_string() }));
        let top = largest(document).into_iter().take(self.top).map(|(subnet, count)| {
            serde_json::json!({ "subnet": subnet, "visits": count, "ratio": count / document.average })
        });
        serde_json::json!({
            "version": document.version,
            "lines": lesson.lines,
            "requests": lesson.requests,
            "turned_away": lesson.turned_away,
            "bad_lines": lesson.bad_lines,
            "first_bad": bad.collect::<Vec<_>>(),
            "subnets": document.seen,
            "average": document.average,
            "above_average": document.above_average(),
            "from_unix_s": lesson.span_unix_s.map(|(first, _)| first),
            "to_unix_s": lesson.span_unix_s.map(|(_, last)| last),
            "top": top.collect::<Vec<_>>(),
            "output": self.output,
        })
    }
}

fn read(learner: &mut Learner, log: &Path) -> anyhow::Result<()> {
    if log == Path::new("-") {
        return learner.read("standard input", BufReader::new(io::stdin().lock())).context("standard input");
    }
    let name = log.display().to_string();
    let place = || format!("access log {name}");
    let file = File::open(log).with_context(place)?;
    if file.metadata().with_context(place)?.is_dir() {
        bail!("access log {name}: is a folder\n  hint: name the files in it");
    }
    learner.read(&name, BufReader::with_capacity(1 << 16, file)).with_context(place)
}

fn nothing(lesson: &Lesson) -> String {
    let first = lesson.first_bad.first().map(|(log, line, reason)| format!("\n  {}:{line}: {reason}", shown(log)));
    let hint =
        "\n  hint: Common, Combined, HAProxy's HTTP log and JSON are read; compressed logs must be unpacked first";
    format!("no request was found in {} lines{}{hint}", lesson.lines, first.unwrap_or_default())
}

fn print_bad(out: &mut dyn Write, lesson: &Lesson) -> anyhow::Result<()> {
    if lesson.bad_lines == 0 {
        return Ok(());
    }
    writeln!(out, "\n{} of {} lines could not be read, the first of them:", lesson.bad_lines, lesson.lines)?;
    for (log, line, reason) in &lesson.first_bad {
        writeln!(out, "  {}:{line}: {reason}", shown(log))?;
    }
    Ok(())
}

fn largest(document: &Document) -> Vec<(String, f64)> {
    let mut subnets: Vec<_> = document.subnets.iter().collect();
    subnets.sort_by(|a, b| b.1.total_cmp(a.1).then(a.0.cmp(b.0)));
    subnets.into_iter().map(|(network, count)| (network.to_string(), *count)).collect()
}

/// The history document that exists already, if there is one.
fn previous(path: &Path) -> anyhow::Result<Option<Document>> {
    let place = || format!("--output {}", path.display());
    let Some(text) = read_history(path).with_context(place)? else { return Ok(None) };
    let hint = "this file exists and is not a history document; choose another name";
    Document::parse(&text).with_context(|| hint).with_context(place).map(Some)
}
