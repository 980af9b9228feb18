//! `weir lab`: samples, their verdicts and the reasons for them; and the machines of the lab.

mod acted;
mod machines;
mod report;

use crate::answer::{bytes, print_answer};
use crate::control::{Asking, Control};
use crate::table::{Table, shown};
use anyhow::Context;
use serde_json::json;
use std::io::Write;
use std::path::PathBuf;
use weir_console::api::lab;
use weir_console::api::samples::{self, Filter, Given, Next, Which};
use weir_lab::neutered::{self, Member};
use weir_lab::operations::{LabStatus, Relative};

/// At most this many bytes are unpacked from one archive.
const UNWRAPPED_MAX: u64 = 1 << 30;

#[derive(clap::Subcommand)]
pub(crate) enum LabVerb {
    /// Submit files for analysis
    Submit(SubmitArgs),
    /// Show who leads the lab, which plugins it has, and how many samples are in each state
    Status(Asking),
    /// List samples, newest first
    List(SampleListArgs),
    /// Show everything about one sample: its state, its attempts and its reports
    Report(report::ReportArgs),
    /// Show why a sample is not running, or why its verdict is what it is
    Why(SampleArgs),
    /// List samples that are similar to one, most similar first
    Relatives(SampleArgs),
    /// Cancel the analysis of a sample
    Cancel(SampleArgs),
    /// Analyse a sample again, ignoring what is known about it
    Rerun(SampleArgs),
    /// Show how many samples wait at each priority, and which are next
    Queue(QueueArgs),
    /// Download a sample as a zip archive with the password "infected"
    Download(report::DownloadArgs),
    /// Download the packets that a sample sent and received in its guest, as a pcap file
    Pcap(report::PcapArgs),
    /// List the machines of the lab
    Nodes(Asking),
    /// Give a machine no new samples; those that it is working on are finished
    Drain(machines::DrainArgs),
    /// Remove a machine from the lab; its certificate is no longer accepted
    Remove(machines::RemoveArgs),
    /// Change the priority of a machine in elections; the one with the lowest number leads from then on
    Priority(machines::PriorityArgs),
    /// Set up a lab of several machines, with this machine as the first
    Init(machines::InitArgs),
    /// Make a code and a token with which one machine can join the lab
    Invite(machines::InviteArgs),
    /// Join a lab with a code or a token
    Join(machines::JoinArgs),
}

#[derive(clap::Args)]
pub(crate) struct SubmitArgs {
    /// The files; if one is a zip archive with the password "infected", the files in it are submitted instead
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// The priority: 0 is the most urgent, 32 is normal, 127 is the least urgent
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u8).range(0..=127))]
    priority: u8,
    /// Run the samples only on machines or VMs with this tag; may be given several times
    #[arg(long = "tag", value_name = "TAG")]
    tags: Vec<String>,
    /// Who may be told what is found (traffic light protocol): clear, green, amber, amber+strict or red [default:
    /// amber]
    #[arg(long, default_value = "", hide_default_value = true)]
    tlp: String,
    /// Use only this plugin and those that it requires; may be given several times
    #[arg(long = "plugin", value_name = "PLUGIN")]
    plugins: Vec<String>,
    /// The guest in which the samples run: linux or windows; with none, they are analysed without running them
    #[arg(long, default_value = "", hide_default_value = true)]
    guest: String,
    /// Watch each sample for at most this many seconds [default: lab.vm_watch]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..))]
    watch: Option<u32>,
    /// The network of the guest: simulated (inside the guest, an Internet that answers) or none (nothing answers)
    #[arg(long, default_value = "", hide_default_value = true)]
    network: String,
    /// A password to try, if the files are archives
    #[arg(long, default_value = "", hide_default_value = true)]
    password: String,
    #[command(flatten)]
    asking: Asking,
}

#[derive(clap::Args)]
pub(crate) struct SampleListArgs {
    /// Only samples whose SHA-256 begins like this
    #[arg(long, default_value = "")]
    hash: String,
    /// Only samples in this state: queued, done, quarantined, unserviceable, cancelled
    #[arg(long, default_value = "")]
    state: String,
    /// Only samples with this verdict
    #[arg(long, value_parser = ["malicious", "suspicious", "clean", "unknown"])]
    verdict: Option<String>,
    /// Show at most this many samples
    #[arg(long, short = 'n', value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    most: u32,
    #[command(flatten)]
    asking: Asking,
}

#[derive(clap::Args)]
pub(crate) struct QueueArgs {
    /// Show at most this many of the samples that are next
    #[arg(long, short = 'n', value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(0..=1_000))]
    next: u32,
    #[command(flatten)]
    asking: Asking,
}

#[derive(clap::Args)]
pub(crate) struct SampleArgs {
    /// The number of the sample, or the beginning of its SHA-256 (the newest sample that matches)
    sample: String,
    #[command(flatten)]
    asking: Asking,
}

impl LabVerb {
    pub(crate) fn run(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        match self {
            LabVerb::Submit(args) => args.run(out),
            LabVerb::Status(args) => {
                let status = reach(args)?.ask(&lab::STATUS, &())?;
                args.answer(out, &status, print_status)
            }
            LabVerb::List(args) => args.run(out),
            LabVerb::Report(args) => args.run(out),
            LabVerb::Download(args) => args.run(out),
            LabVerb::Pcap(args) => args.run(out),
            LabVerb::Queue(args) => args.run(out),
            LabVerb::Why(args) => args.why(out),
            LabVerb::Relatives(args) => args.relatives(out),
            LabVerb::Rerun(args) => {
                let again = reach(&args.asking)?.ask(&samples::RERUN, &args.which())?;
                if args.asking.json {
                    return print_answer(out, &again);
                }
                Ok(writeln!(out, "It is analysed again as sample {}.", again.sample)?)
            }
            LabVerb::Nodes(args) => {
                let nodes = reach(args)?.ask(&lab::NODES, &())?;
                args.answer(out, &nodes, |out, nodes| machines::print(out, nodes))
            }
            LabVerb::Drain(args) => args.run(out),
            LabVerb::Remove(args) => args.run(out),
            LabVerb::Priority(args) => args.run(out),
            LabVerb::Init(args) => args.run(out),
            LabVerb::Invite(args) => args.run(out),
            LabVerb::Join(args) => args.run(out),
            LabVerb::Cancel(args) => {
                let taken = reach(&args.asking)?.ask(&samples::CANCEL, &args.which())?;
                if args.asking.json {
                    return print_answer(out, &taken);
                }
                Ok(writeln!(out, "Sample {} was cancelled.", taken.sample)?)
            }
        }
    }
}

fn reach(asking: &Asking) -> anyhow::Result<Control> {
    asking.reach_running("lab")
}

impl SubmitArgs {
    fn given(&self, name: &str) -> Given {
        Given {
            priority: self.priority.into(),
            tags: self.tags.join(","),
            tlp: self.tlp.clone(),
            plugins: self.plugins.join(","),
            guest: self.guest.clone(),
            watch_s: self.watch,
            network: self.network.clone(),
            password: self.password.clone(),
            ..Given::named(name)
        }
    }

    fn run(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        let control = reach(&self.asking)?;
        let mut taken = Vec::new();
        for file in &self.files {
            let content = std::fs::read(file).with_context(|| format!("{} cannot be read", file.display()))?;
            let unwrapped = neutered::unwrapped(&content, UNWRAPPED_MAX);
            let unwrapped = unwrapped.with_context(|| format!("{} cannot be opened", file.display()))?;
            let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let members = unwrapped.unwrap_or_else(|| vec![Member { name, content }]);
            for Member { name, content } in members {
                let given = self.given(&name);
                let answer = control.hand_in(&samples::SUBMIT, &given, content)?;
                if !self.asking.json {
                    let inside = if file.ends_with(&name) { String::new() } else { format!(" in {}", file.display()) };
                    let name = if inside.is_empty() { file.display().to_string() } else { shown(&name) };
                    writeln!(out, "{name}{inside} is sample {}, {}", answer.sample, answer.hash)?;
                }
                taken.push(answer);
            }
        }
        if self.asking.json { print_answer(out, &taken) } else { Ok(()) }
    }
}

impl SampleListArgs {
    fn run(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        let filter = Filter {
            hash: self.hash.clone(),
            state: self.state.clone(),
            verdict: self.verdict.clone().unwrap_or_default(),
            most: Some(self.most.into()),
            ..Filter::default()
        };
        let samples = reach(&self.asking)?.ask(&samples::LIST, &filter)?;
        if self.asking.json {
            return print_answer(out, &samples);
        }
        if samples.is_empty() {
            return Ok(writeln!(out, "There are no samples. `weir lab submit FILE` submits one.")?);
        }
        let mut table = Table::new(&[">sample", "state", "verdict", ">priority", ">size", "type", "name", "sha256"]);
        for sample in samples {
            table.row([
                sample.sample.to_string(),
                sample.state,
                sample.verdict,
                sample.priority.to_string(),
                bytes(sample.size),
                sample.file_type,
                sample.name,
                sample.hash,
            ]);
        }
        Ok(table.write(out)?)
    }
}

impl SampleArgs {
    fn which(&self) -> Which {
        Which { sample: self.sample.clone() }
    }

    fn why(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        let page = reach(&self.asking)?.ask_of(&samples::SHOW, &self.sample, &())?;
        let sample = &page.sample;
        if self.asking.json {
            let (number, state, verdict) = (sample.sample, &sample.state, &sample.verdict);
            let (reasons, failed) = (&page.reasons, report::failures(&page));
            let why = json!({ "sample": number, "state": state, "why": page.now, "verdict": verdict, "reasons": reasons, "failed": failed });
            return print_answer(out, &why);
        }
        writeln!(out, "Sample {}: {}.", sample.sample, plain(&page.now))?;
        report::print_verdict(out, &page)?;
        for failure in report::failures(&page) {
            writeln!(out, "  {:<14} {failure}", "failed")?;
        }
        Ok(())
    }
}

impl SampleArgs {
    fn relatives(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        let relatives = reach(&self.asking)?.ask_of(&samples::RELATIVES, &self.sample, &())?;
        if self.asking.json {
            return print_answer(out, &relatives);
        }
        if relatives.is_empty() {
            return Ok(writeln!(
                out,
                "No similar sample is known, or this one is too short or too uniform to compare."
            )?);
        }
        let mut table = Table::new(&[">distance", ">sample", "verdict", "name", "sha256"]);
        for Relative { distance, sample } in relatives {
            let hash = sample.hash;
            table.row([distance.to_string(), sample.sample.to_string(), sample.verdict, sample.name, hash]);
        }
        Ok(table.write(out)?)
    }
}

impl QueueArgs {
    fn run(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        let queue = reach(&self.asking)?.ask(&samples::QUEUE, &Next { next: Some(self.next.into()) })?;
        if self.asking.json {
            return print_answer(out, &queue);
        }
        if queue.queues.is_empty() {
            return Ok(writeln!(out, "Nothing waits: every sample has ended.")?);
        }
        let mut table = Table::new(&[">priority", ">waiting", ">running", ">oldest s"]);
        for line in queue.queues {
            let [priority, waiting, running] = [line.priority, line.waiting, line.running].map(|n| n.to_string());
            table.row([priority, waiting, running, format!("{:.1}", line.oldest_wait_s)]);
        }
        table.write(out)?;
        if queue.next.is_empty() {
            return Ok(());
        }
        writeln!(out, "\nNext, if a machine can run them (within a priority, submitters take turns):")?;
        let mut table = Table::new(&[">sample", ">priority", "from", "name"]);
        for sample in queue.next {
            table.row([sample.sample.to_string(), sample.priority.to_string(), sample.submitter, sample.name]);
        }
        Ok(table.write(out)?)
    }
}

fn print_status(out: &mut dyn Write, status: &LabStatus) -> anyhow::Result<()> {
    let epoch = status.epoch;
    match &status.leader {
        Some(leader) => writeln!(out, "{leader} leads the lab, in epoch {epoch}.\n")?,
        None => writeln!(out, "Nobody leads the lab at the moment; the last epoch was {epoch}.\n")?,
    }
    writeln!(out, "  {:<14} {}", "samples from", status.analysis)?;
    writeln!(out, "  {:<14} {}", "plugins", status.plugins.join(", "))?;
    for term in status.terms.iter().take(3) {
        writeln!(out, "  {:<14} {} in epoch {}", "led", shown(&term.leader), term.epoch)?;
    }
    for state in &status.states {
        writeln!(out, "  {:<14} {}", state.state, state.samples)?;
    }
    Ok(())
}

/// Makes sentences with words of strangers safe for the terminal, and shortens them.
fn plain(text: &str) -> String {
    weir_scan::plain::shown(text, 500)
}
