//! `weir demo`: attacks on a running Weir, to be watched. Loopback only.
//!
//! Without a subcommand it runs all four parts, then runs them again against a second Weir of its own whose gates only observe, and prints
//! both results side by side.

mod botnet;
mod flood;
mod mail_client;
mod outbreak;
mod samples;
mod stage;
mod unguarded;
mod worm;

use crate::answer::print_json;
use crate::folder_args::FolderArgs;
use crate::table::Table;
use serde::Serialize;
use stage::Stage;
use std::io::Write;

#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Demo {
    #[command(subcommand)]
    act: Option<Act>,
    #[command(flatten)]
    place: FolderArgs,
    /// Leave out the second run, in which the gates only observe
    #[arg(long)]
    only_guarded: bool,
    /// Print the results as JSON
    #[arg(long)]
    json: bool,
}

#[derive(clap::Subcommand)]
pub(crate) enum Act {
    /// Let a stolen account mail strangers until the throttle stops it
    Outbreak(outbreak::Args),
}

impl Demo {
    pub(crate) fn run(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        match &self.act {
            Some(Act::Outbreak(args)) => args.run(out),
            None => self.play(out),
        }
    }

    fn play(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        let quiet = self.json;
        let mut told = |line: &str| if quiet { Ok(()) } else { writeln!(out, "{line}").and_then(|()| out.flush()) };
        let stage = Stage::of(&self.place)?;
        told("Four attacks on the Weir that runs here. Watch its console, or `weir top`.\n")?;
        let guarded = Played::all(&stage, &mut told)?;
        let observed = match self.only_guarded {
            true => None,
            false => {
                told("\nThe same attacks on a second Weir whose gates only observe.\n")?;
                let second = unguarded::Weir::start()?;
                Some(Played::all(&second.stage()?, &mut told)?)
            }
        };
        if self.json {
            return print_json(out, &Both { guarded, observed });
        }
        writeln!(out)?;
        compared(&guarded, observed.as_ref()).write(out)?;
        writeln!(out, "\nWhat happened, told as stories: `weir incidents`, or the page Incidents of the console.")?;
        writeln!(out, "What waits for a decision: `weir held list`, `weir quarantine list`, `weir lab list`.")?;
        Ok(())
    }
}

#[derive(Serialize)]
struct Both {
    guarded: Played,
    observed: Option<Played>,
}

/// The results of all parts. A part whose gate is off has none.
#[derive(Serialize)]
struct Played {
    worm: Option<worm::WormOutcome>,
    flood: Option<flood::FloodOutcome>,
    botnet: Option<botnet::BotnetOutcome>,
    samples: Option<samples::SamplesOutcome>,
}

impl Played {
    fn all(stage: &Stage, told: &mut dyn FnMut(&str) -> std::io::Result<()>) -> anyhow::Result<Played> {
        told("  a worm in one account among fifty users …")?;
        let worm = worm::play(stage)?;
        told("  a flood of large mail with viruses in it …")?;
        let flood = flood::play(stage)?;
        told("  a botnet at the web gate, among polite clients …")?;
        let botnet = botnet::play(stage)?;
        told("  samples for the lab …")?;
        let samples = samples::play(stage)?;
        Ok(Played { worm, flood, botnet, samples })
    }
}

/// The table with the results of both runs side by side.
fn compared(guarded: &Played, observed: Option<&Played>) -> Table {
    let mut table = Table::new(&["what was measured", ">guarded", ">only observed"]);
    let mut row = |what: &str, value: &dyn Fn(&Played) -> Option<String>| {
        let cell = |played: Option<&Played>| played.and_then(value).unwrap_or_else(|| "-".to_owned());
        table.row([what.to_owned(), cell(Some(guarded)), cell(observed)]);
    };
    row("worm: strangers whom it reached", &|p| p.worm.as_ref().map(|worm| worm.reached.to_string()));
    row("worm: stopped after", &|p| p.worm.as_ref().map(worm::WormOutcome::stopped));
    row("fifty users: mails sent, held", &|p| p.worm.as_ref().map(|w| format!("{}, {}", w.normal_sent, w.normal_held)));
    row("flood: small mail arrives after, mean", &|p| p.flood.as_ref().map(|flood| ms(flood.small_mean_s)));
    row("flood: small mail arrives after, p95", &|p| p.flood.as_ref().map(|flood| ms(flood.small_p95_s)));
    row("flood: viruses sent, in quarantine", &|p| {
        p.flood.as_ref().map(|flood| format!("{}, {}", flood.viruses, flood.quarantined))
    });
    row("botnet: polite clients keep of their goodput", &|p| {
        p.botnet.as_ref().map(|botnet| format!("{:.0} %", 100.0 * botnet.kept()))
    });
    row("botnet: polite answer, p95", &|p| p.botnet.as_ref().map(|botnet| ms(botnet.attacked_p95_s)));
    row("lab: samples, analysed, in", &|p| p.samples.as_ref().map(samples::SamplesOutcome::said));
    table
}

fn ms(seconds: f64) -> String {
    format!("{:.0} ms", seconds * 1e3)
}

/// The value that this percentage of all values does not exceed.
fn percentile(values: &mut [f64], of_a_hundred: usize) -> f64 {
    values.sort_by(f64::total_cmp);
    let at = (values.len() * of_a_hundred).div_ceil(100).saturating_sub(1);
    values.get(at).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles() {
        assert_eq!(percentile(&mut [3.0, 1.0, 2.0], 95), 3.0);
        assert_eq!(percentile(&mut (1..=100).map(f64::from).collect::<Vec<_>>(), 95), 95.0);
        assert!(percentile(&mut [], 95).is_nan());
    }
}
