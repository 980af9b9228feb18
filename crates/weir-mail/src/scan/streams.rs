//! Files and messages that other programs ask about: they wait in the same feeds as mail, and the answer goes to the program that asked.
//!
//! Nothing of them is kept. The other program waits for the answer; if Weir ends before there is one, the connection breaks and the other
//! program asks again.

use super::asked_file::{FileAnswer, MailAnswer, WaitingFile};
use super::decision::{self, Decision};
use super::laboratory::{AskedFile, KnownContent, LabVerdict};
use super::settings::OnLab;
use super::state::RunningScan;
use super::worker::ScanEnd;
use super::{ScanShared, Scanning};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use weir_scan::content::Content;
use weir_scan::inspect::About;
use weir_scan::verdict::{Outcome, Verdict};

/// The laboratory is asked what it already knows, and given so long to answer.
const MEMORY_MAX: Duration = Duration::from_secs(2);
/// Names of what was found are told up to this length.
const NAME_MAX: usize = 160;

impl Scanning {
    /// Has a file looked at, in its turn.
    pub async fn look_at(&self, content: Content, client: &str) -> FileAnswer {
        let about = About { id: format!("a file of {client}"), is_file: true, ..About::default() };
        match self.verdict_on(content, client, about).await {
            Err(problem) => FileAnswer::Failed(problem),
            Ok(verdict) => match self.shared.told(&verdict) {
                FileAnswer::Clean => self.shared.remembered_by_the_lab(&verdict).await,
                told => told,
            },
        }
    }

    /// Has a message looked at that another server keeps. Nothing of it is kept here, and nobody waits for an analysis.
    pub async fn look_at_mail(&self, content: Content, client: &str, about: About) -> MailAnswer {
        let shared = &self.shared;
        let verdict = match self.verdict_on(content, client, about).await {
            Err(problem) => return MailAnswer::Failed(problem),
            Ok(verdict) => verdict,
        };
        match decision::decide(&verdict, shared.settings.on_spam, shared.settings.on_limit) {
            Decision::Retry(problem) => MailAnswer::Failed(problem),
            Decision::Later(problem) => MailAnswer::Later(problem),
            Decision::Quarantine(_, reason) => MailAnswer::Found(reason),
            Decision::Pass(result) => match shared.remembered_by_the_lab(&verdict).await {
                FileAnswer::Found(name) => MailAnswer::Found(format!("the lab knows an attachment: {name}")),
                FileAnswer::Failed(problem) => MailAnswer::Failed(problem),
                FileAnswer::Clean => MailAnswer::Pass(shared.lines_for(&result)),
            },
        }
    }

    async fn verdict_on(&self, content: Content, client: &str, about: About) -> Result<Verdict, String> {
        let shared = &self.shared;
        if !shared.settings.enabled {
            return Err("the scan is off".to_owned());
        }
        let (answer, answered) = oneshot::channel();
        {
            let now = shared.now();
            let mut state = shared.state();
            if state.stopping {
                return Err("Weir is stopping".to_owned());
            }
            state.figures.arrived(content.length(), now);
            let number = state.number();
            let waiting = WaitingFile { content, client: client.into(), about: Arc::new(about), answer };
            state.streams.insert(number, waiting);
            shared.arrive(&mut state, number, now);
        }
        answered.await.unwrap_or_else(|_| Err("Weir is stopping".to_owned()))
    }
}

impl ScanShared {
    pub(super) async fn look_at_stream(self: &Arc<Self>, begun: &RunningScan, stream: WaitingFile) -> ScanEnd {
        let WaitingFile { content, client, about, answer } = stream;
        let (size, started) = (content.length(), tokio::time::Instant::now());
        let told = match self.inspect(begun, &content, &about).await {
            Err(problem) => Err(problem.words()),
            Ok((feed, verdict)) => {
                self.measure(size, feed, &verdict);
                Ok(verdict)
            }
        };
        tracing::debug!(%client, size, verdict = told.as_ref().map(decision::in_a_word).ok(), "somebody asked, and it was looked at");
        let _ = answer.send(told);
        ScanEnd::Answered { size, took: started.elapsed() }
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

    /// What the lab already knows of the files inside, and what [scan.lab] says of that. Nobody waits here for an analysis.
    async fn remembered_by_the_lab(&self, verdict: &Verdict) -> FileAnswer {
        let Some(lab) = self.lab.as_ref().filter(|_| !verdict.samples.is_empty()) else { return FileAnswer::Clean };
        let asked: Vec<AskedFile> = verdict.samples.iter().map(AskedFile::from).collect();
        let known = match tokio::time::timeout(MEMORY_MAX, lab.laboratory.known(&asked)).await {
            Ok(Ok(known)) => known,
            // Not to be able to ask is not to have heard that it is harmless.
            _ if lab.settings.on_late == OnLab::Pass => return FileAnswer::Clean,
            Ok(Err(problem)) => return FileAnswer::Failed(format!("the lab cannot be asked what it knows: {problem}")),
            Err(_) => return FileAnswer::Failed("the lab has not said what it knows".to_owned()),
        };
        // However old it is: nobody hands the file in here, so that there is no younger opinion to wait for.
        let is = |wanted: LabVerdict| {
            known.iter().any(|known| matches!(known, KnownContent::Ended(opinion) if opinion.verdict == wanted))
        };
        let told = if is(LabVerdict::Malicious) {
            "Weir.Lab.Malicious"
        } else if is(LabVerdict::Suspicious) && lab.settings.on_suspicious == OnLab::Quarantine {
            "Weir.Lab.Suspicious"
        } else if is(LabVerdict::Unknown) && lab.settings.on_unknown == OnLab::Quarantine {
            "Weir.Lab.Unknown"
        } else {
            return FileAnswer::Clean;
        };
        FileAnswer::Found(told.to_owned())
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
