//! `weir scan rules`: what people have blocked in mail, beside what the scanners know.

use crate::answer::{print_answer, time};
use crate::control::Asking;
use crate::table::{Table, shown};
use anyhow::Context;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use weir_console::api::{rules, samples};
use weir_mail::operations::{NewRule, RuleSeverity, RuleView};

/// A longer text cannot be a rule.
const RULE_BYTES_MAX: u64 = 1 << 20;

#[derive(clap::Subcommand)]
pub(crate) enum Rules {
    /// List the rules that people have made
    List(RuleListArgs),
    /// Block a file in mail: by its hash, as a sample of the lab, or by a YARA rule
    Add(RuleAddArgs),
    /// Remove a rule, so that it no longer blocks anything
    Remove(RemoveArgs),
}

impl Rules {
    pub(crate) fn run(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        match self {
            Rules::List(args) => args.run(out),
            Rules::Add(args) => args.run(out),
            Rules::Remove(args) => args.run(out),
        }
    }
}

#[derive(clap::Args)]
pub(crate) struct RuleListArgs {
    #[command(flatten)]
    asking: Asking,
}

impl RuleListArgs {
    fn run(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        let rules = self.asking.reach()?.ask(&rules::LIST, &())?;
        self.asking.answer(out, &rules, |out, rules| print_list(out, rules))
    }
}

fn print_list(out: &mut dyn Write, rules: &[RuleView]) -> anyhow::Result<()> {
    if rules.is_empty() {
        writeln!(
            out,
            "Nobody has made a rule. To make one, use `weir scan rules add`, or the page of a sample in the console."
        )?;
        return Ok(());
    }
    let mut table = Table::new(&[">RULE", "STOPS", "AS", "SAMPLE", "BY", "SINCE (UTC)", "WHY"]);
    for rule in rules {
        let yara = rule.is_yara();
        let stops = if yara { "a YARA rule".to_owned() } else { rule.content.clone() };
        let sample = rule.sample.map_or_else(|| "-".to_owned(), |sample| sample.to_string());
        table.row([
            rule.rule.to_string(),
            stops,
            if yara { "its text says".to_owned() } else { rule.severity.clone() },
            sample,
            rule.by.clone(),
            time(&rule.since),
            shown(&rule.about),
        ]);
    }
    table.write(out)?;
    writeln!(out, "\n`weir scan rules remove RULE` removes one.")?;
    Ok(())
}

#[derive(clap::Args)]
#[group(required = true, multiple = false, id = "what")]
struct What {
    /// Block the file with this SHA-256 (64 hexadecimal digits)
    #[arg(long, value_name = "HASH")]
    sha256: Option<String>,
    /// Block the content of this sample of the lab, given by its number or the beginning of its SHA-256
    #[arg(long, value_name = "SAMPLE")]
    sample: Option<String>,
    /// Block whatever the YARA rule in this file matches
    #[arg(long, value_name = "FILE")]
    yara: Option<PathBuf>,
}

#[derive(clap::Args)]
pub(crate) struct RuleAddArgs {
    #[command(flatten)]
    what: What,
    /// The reason, for whoever comes across the rule
    #[arg(long, value_name = "WORDS", default_value = "")]
    about: String,
    /// Treat the file as malware, which only administrators can release; otherwise it is treated as a forbidden
    /// attachment
    #[arg(long)]
    infected: bool,
    #[command(flatten)]
    asking: Asking,
}

impl RuleAddArgs {
    fn run(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        let control = self.asking.reach()?;
        let severity = if self.infected { RuleSeverity::Infected } else { RuleSeverity::Forbidden };
        let new = NewRule { about: self.about.clone(), severity, ..NewRule::default() };
        let new = match &self.what {
            What { sha256: Some(hash), .. } => NewRule { sha256: hash.trim().to_owned(), ..new },
            What { yara: Some(file), .. } => NewRule { yara: read(file)?, ..new },
            What { sample, .. } => {
                let sample = sample.as_deref().unwrap_or_default();
                let proposed = control.ask_of(&samples::RULE, sample, &())?.hash;
                if self.about.is_empty() { proposed } else { NewRule { about: new.about, ..proposed } }
            }
        };
        let made = control.ask(&rules::ADD, &new)?;
        if self.asking.json {
            return print_answer(out, &made);
        }
        let when = if control.is_running() { "is in force" } else { "is in force when Weir runs" };
        writeln!(out, "Rule {} {when}: {}.", made.rule, shown(&made.about))?;
        Ok(())
    }
}

fn read(path: &Path) -> anyhow::Result<String> {
    let mut text = String::new();
    let place = || format!("the rule {} cannot be read", path.display());
    let file = std::fs::File::open(path).with_context(place)?;
    file.take(RULE_BYTES_MAX).read_to_string(&mut text).with_context(place)?;
    Ok(text)
}

#[derive(clap::Args)]
pub(crate) struct RemoveArgs {
    /// The number of the rule, as shown by `weir scan rules list`
    rule: u64,
    #[command(flatten)]
    asking: Asking,
}

impl RemoveArgs {
    fn run(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        let left = self.asking.reach()?.ask_of(&rules::REMOVE, &self.rule.to_string(), &())?;
        if self.asking.json {
            return print_answer(out, &left);
        }
        writeln!(out, "Rule {} was removed and is no longer in force.", self.rule)?;
        Ok(())
    }
}
