//! `weir lab`: samples, what became of them, and why; and the machines of the lab.

mod machines;

use crate::answer::{bytes, list, number, print_json, text};
use crate::control::{Control, Place, encoded, query};
use crate::table::{Table, shown};
use anyhow::Context;
use serde_json::{Value, json};
use std::io::Write;
use std::path::PathBuf;

#[derive(clap::Subcommand)]
pub(crate) enum Lab {
    /// Hand in files to be analysed
    Submit(SubmitArgs),
    /// How the lab is doing
    Status(PlainArgs),
    /// Samples, the newest first
    List(ListArgs),
    /// Everything about one sample: its state, its attempts, its reports
    Report(SampleArgs),
    /// Why a sample is not running
    Why(SampleArgs),
    /// Take a sample back
    Cancel(SampleArgs),
    /// The machines of the lab
    Nodes(PlainArgs),
    /// Give a machine no new samples; what it runs ends in order
    Drain(machines::DrainArgs),
    /// Take a machine out of the lab: its certificate counts no more
    Remove(machines::RemoveArgs),
    /// Make a lab of several machines, and this machine its first
    Init(machines::InitArgs),
    /// Make a token that admits one machine
    Invite(machines::InviteArgs),
    /// Enter a lab with a token
    Join(machines::JoinArgs),
}

#[derive(clap::Args)]
pub(crate) struct SubmitArgs {
    /// The files
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// 0 is the most urgent, 32 normal, 127 the least
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u8).range(0..=127))]
    priority: u8,
    #[command(flatten)]
    place: Place,
    /// Print what was taken as JSON
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
pub(crate) struct PlainArgs {
    #[command(flatten)]
    place: Place,
    /// Print it as JSON
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
pub(crate) struct ListArgs {
    /// Only samples whose SHA-256 begins so
    #[arg(long, default_value = "")]
    hash: String,
    /// Only samples in this state: queued, done, quarantined, unserviceable, cancelled
    #[arg(long, default_value = "")]
    state: String,
    /// How many
    #[arg(long, short = 'n', value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    most: u32,
    #[command(flatten)]
    plain: PlainArgs,
}

#[derive(clap::Args)]
pub(crate) struct SampleArgs {
    /// Its number, or the beginning of its SHA-256 (then the newest)
    sample: String,
    #[command(flatten)]
    plain: PlainArgs,
}

impl Lab {
    pub(crate) fn run(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        match self {
            Lab::Submit(args) => args.run(out),
            Lab::Status(args) => {
                let status = reach(&args.place)?.get("/lab")?;
                if args.json { print_json(out, &status) } else { print_status(out, &status) }
            }
            Lab::List(args) => args.run(out),
            Lab::Report(args) => {
                let page = args.page()?;
                if args.plain.json { print_json(out, &page) } else { print_page(out, &page) }
            }
            Lab::Why(args) => {
                let page = args.page()?;
                let why = json!({ "sample": page["sample"], "state": page["state"], "why": page["now"] });
                if args.plain.json {
                    return print_json(out, &why);
                }
                Ok(writeln!(out, "Sample {}: {}.", number(&page, "sample"), plain(text(&page, "now")))?)
            }
            Lab::Nodes(args) => {
                let nodes = reach(&args.place)?.get("/lab/nodes")?;
                if args.json { print_json(out, &nodes) } else { machines::print(out, &nodes) }
            }
            Lab::Drain(args) => args.run(out),
            Lab::Remove(args) => args.run(out),
            Lab::Init(args) => args.run(out),
            Lab::Invite(args) => args.run(out),
            Lab::Join(args) => args.run(out),
            Lab::Cancel(args) => {
                let taken = reach(&args.plain.place)?.post("/lab/cancel", &json!({ "sample": args.sample }))?;
                if args.plain.json {
                    return print_json(out, &taken);
                }
                Ok(writeln!(out, "Sample {} was taken back.", number(&taken, "sample"))?)
            }
        }
    }
}

fn reach(place: &Place) -> anyhow::Result<Control> {
    let control = Control::reach(place)?;
    if !control.is_running() {
        anyhow::bail!("nothing runs on this data folder, so there is no lab to ask\n  hint: start it with `weir up`");
    }
    Ok(control)
}

impl SubmitArgs {
    fn run(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        let control = reach(&self.place)?;
        let mut taken = Vec::new();
        for file in &self.files {
            let content = std::fs::read(file).with_context(|| format!("{} cannot be read", file.display()))?;
            let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let path = query(&[("name", &name), ("priority", &self.priority.to_string())]);
            let answer = control.post_bytes(&format!("/lab/samples{path}"), content)?;
            if !self.json {
                writeln!(out, "{} is sample {}, {}", file.display(), number(&answer, "sample"), text(&answer, "hash"))?;
            }
            taken.push(answer);
        }
        if self.json { print_json(out, &Value::Array(taken)) } else { Ok(()) }
    }
}

impl ListArgs {
    fn run(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        let path = query(&[("hash", &self.hash), ("state", &self.state), ("most", &self.most.to_string())]);
        let samples = reach(&self.plain.place)?.get(&format!("/lab/samples{path}"))?;
        if self.plain.json {
            return print_json(out, &samples);
        }
        let samples = samples.as_array().cloned().unwrap_or_default();
        if samples.is_empty() {
            return Ok(writeln!(out, "No samples. `weir lab submit FILE` hands one in.")?);
        }
        let mut table = Table::new(&[">sample", "state", ">priority", ">size", "type", "name", "sha256"]);
        for sample in &samples {
            let hash: String = text(sample, "hash").chars().take(16).collect();
            table.row([
                number(sample, "sample").to_string(),
                text(sample, "state").to_owned(),
                number(sample, "priority").to_string(),
                bytes(number(sample, "size")),
                text(sample, "file_type").to_owned(),
                text(sample, "name").to_owned(),
                hash,
            ]);
        }
        Ok(table.write(out)?)
    }
}

impl SampleArgs {
    fn page(&self) -> anyhow::Result<Value> {
        reach(&self.plain.place)?.get(&format!("/lab/samples/{}", encoded(&self.sample)))
    }
}

fn print_status(out: &mut dyn Write, status: &Value) -> anyhow::Result<()> {
    match status["leader"].as_str() {
        Some(leader) => writeln!(out, "{leader} leads the lab, in epoch {}.\n", number(status, "epoch"))?,
        None => writeln!(out, "Nobody leads the lab at the moment; the last epoch was {}.\n", number(status, "epoch"))?,
    }
    writeln!(out, "  {:<14} {}", "samples from", text(status, "analysis"))?;
    let plugins: Vec<&str> = list(status, "plugins").iter().filter_map(Value::as_str).collect();
    writeln!(out, "  {:<14} {}", "plugins", plugins.join(", "))?;
    for term in list(status, "terms").iter().take(3) {
        writeln!(out, "  {:<14} {} in epoch {}", "led", shown(text(term, "leader")), number(term, "epoch"))?;
    }
    for state in list(status, "states") {
        writeln!(out, "  {:<14} {}", text(state, "state"), number(state, "samples"))?;
    }
    Ok(())
}

/// Sentences that hold words of strangers: nothing in them is obeyed, and they may be long.
fn plain(text: &str) -> String {
    text.chars().take(500).map(|c| if c.is_control() { '·' } else { c }).collect()
}

fn print_page(out: &mut dyn Write, page: &Value) -> anyhow::Result<()> {
    writeln!(out, "Sample {}: {}.\n", number(page, "sample"), plain(text(page, "now")))?;
    for (label, key) in [("name", "name"), ("type", "file_type"), ("sha256", "hash"), ("handed in by", "submitter")] {
        writeln!(out, "  {label:<14} {}", shown(text(page, key)))?;
    }
    writeln!(out, "  {:<14} {}", "size", bytes(number(page, "size")))?;
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
        if let Some(problem) = result["report"]["errorMessage"].as_str() {
            writeln!(out, "  {}", plain(problem))?;
        }
    }
    Ok(())
}
