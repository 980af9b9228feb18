//! Files that other programs ask about: they wait in the same feeds as mail, and their answer goes to who asked.
//!
//! Nothing of them is kept. Who asks waits for the answer; if Weir ends before there is one, the connection breaks and the other
//! program asks again.

use super::asked_file::{FileAnswer, WaitingFile};
use super::decision::{self, Decision};
use super::laboratory::{KnownContent, LabVerdict};
use super::settings::OnLab;
use super::state::Begun;
use super::worker::Ended;
use super::{ScanShared, Scanning};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use weir_scan::content::Content;
use weir_scan::inspect::About;
use weir_scan::verdict::{Outcome, Verdict};

/// The laboratory is asked what it knows already; an answer that takes longer is none.
const MEMORY_MAX: Duration = Duration::from_secs(2);
/// Names of what was found are told up to this length.
const NAME_MAX: usize = 160;

impl Scanning {
    /// Has a file looked at, in its turn.
    pub async fn look_at(&self, content: Content, client: &str) -> FileAnswer {
        let shared = &self.shared;
        if !shared.settings.enabled {
            return FileAnswer::Failed("the scan is off".to_owned());
        }
        let (answer, answered) = oneshot::channel();
        {
            let now = shared.now();
            let mut state = shared.state();
            if state.stopping {
                return FileAnswer::Failed("Weir is stopping".to_owned());
            }
            state.figures.arrived(content.length(), now);
            let number = state.number();
            state.streams.insert(number, WaitingFile { content, client: client.into(), answer });
            shared.arrive(&mut state, number, now);
        }
        answered.await.unwrap_or_else(|_| FileAnswer::Failed("Weir is stopping".to_owned()))
    }
}

impl ScanShared {
    pub(super) async fn look_at_stream(self: &Arc<Self>, begun: &Begun, stream: WaitingFile) -> Ended {
        let WaitingFile { content, client, answer } = stream;
        let (size, started) = (content.length(), tokio::time::Instant::now());
        let about = About { id: format!("a file of {client}"), is_file: true, ..About::default() };
        let told = match self.inspect(begun, &content, &Arc::new(about)).await {
            Err(problem) => FileAnswer::Failed(problem.words()),
            Ok((feed, verdict)) => {
                self.measure(size, feed, &verdict);
                match self.told(&verdict) {
                    FileAnswer::Clean => self.remembered_by_the_lab(&verdict).await,
                    told => told,
                }
            }
        };
        tracing::debug!(%client, size, ?told, "a file was looked at");
        let _ = answer.send(told);
        Ended::Answered { size, took: started.elapsed() }
    }

    fn told(&self, verdict: &Verdict) -> FileAnswer {
        match decision::decide(verdict, self.settings.on_spam, self.settings.on_limit) {
            Decision::Pass(_) => FileAnswer::Clean,
            Decision::Retry(problem) | Decision::Later(problem) => FileAnswer::Failed(problem),
            Decision::Quarantine(_, reason) => {
                FileAnswer::Found(match verdict.gravest().map(|finding| &finding.outcome) {
                    Some(Outcome::Infected { name }) => plain(name),
                    Some(Outcome::Forbidden { reason }) => plain(&format!("Weir.Forbidden.{reason}")),
                    Some(Outcome::NotScanned { limit }) => plain(&format!("Weir.NotOpened.{limit}")),
                    _ => plain(&format!("Weir.{reason}")),
                })
            }
        }
    }

    /// What the lab already knows of the files inside. Nobody waits here for an analysis.
    async fn remembered_by_the_lab(&self, verdict: &Verdict) -> FileAnswer {
        let Some(lab) = self.lab.as_ref().filter(|_| !verdict.samples.is_empty()) else { return FileAnswer::Clean };
        let hashes: Vec<String> = verdict.samples.iter().map(|file| file.sha256.clone()).collect();
        let known = tokio::time::timeout(MEMORY_MAX, lab.laboratory.known(&hashes)).await;
        let opinions = known.ok().and_then(Result::ok).unwrap_or_default();
        let bad = opinions.iter().find_map(|known| match known {
            KnownContent::Ended(opinion) if opinion.verdict == LabVerdict::Malicious => Some("Weir.Lab.Malicious"),
            KnownContent::Ended(opinion)
                if opinion.verdict == LabVerdict::Suspicious && lab.settings.on_suspicious == OnLab::Quarantine =>
            {
                Some("Weir.Lab.Suspicious")
            }
            _ => None,
        });
        bad.map_or(FileAnswer::Clean, |name| FileAnswer::Found(name.to_owned()))
    }
}

/// A name as clients of clamd expect it: one word.
fn plain(name: &str) -> String {
    let letter = |c: char| if c.is_ascii_alphanumeric() || ".-_/()+".contains(c) { c } else { '_' };
    let mut word: String = name.chars().map(letter).take(NAME_MAX).collect();
    while word.contains("__") {
        word = word.replace("__", "_");
    }
    word.trim_matches('_').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_one_word() {
        assert_eq!(plain("Win.Test.EICAR_HDB-1"), "Win.Test.EICAR_HDB-1");
        assert_eq!(plain("Weir.Forbidden.a program: \"x\r\n FOUND\".exe"), "Weir.Forbidden.a_program_x_FOUND_.exe");
        assert_eq!(plain(&"é".repeat(500)), "");
    }
}
