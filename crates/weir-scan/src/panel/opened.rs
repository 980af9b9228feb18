//! Scanners that want attachments instead of messages: a worker opens the message, and each attachment is asked about by itself.

use super::Panel;
use super::member::Member;
use crate::content::Content;
use crate::examine::Report;
use crate::inspect::About;
use crate::samples::Candidate;
use crate::scanner::Answer;
use crate::verdict::Outcome;
use std::sync::Arc;
use std::time::Duration;

impl Panel {
    /// What the scanner says of each attachment, in one report. A message without attachments is clean to it.
    pub(super) async fn ask_about_attachments(
        &self,
        member: &Member,
        content: &Content,
        about: &Arc<About>,
    ) -> Option<Report> {
        let names = member.scanner.reports_as();
        let told = |answer: Answer| answer.report(&names, Duration::ZERO);
        let (attachments, left_out) = match self.listed(content).await {
            Ok(listed) => listed,
            Err(problem) => return Some(told(Answer::Failed { problem })),
        };
        let mut whole = Report::default();
        for attachment in &attachments {
            let report = match self.opened(content, attachment).await {
                Ok(opened) => member.ask(&opened, about).await.unwrap_or_default(),
                Err(problem) => told(Answer::Failed { problem }),
            };
            add(&mut whole, report, &attachment.name);
        }
        if left_out > 0 {
            let reason = format!("{left_out} more attachments than are shown to it");
            whole.findings.extend(told(Answer::NotOpened { reason }).findings);
        }
        Some(if whole.findings.is_empty() { told(Answer::Clean) } else { whole })
    }

    async fn listed(&self, content: &Content) -> Result<(Vec<Candidate>, usize), String> {
        self.opener()?.attachments(content).await
    }

    async fn opened(&self, content: &Content, attachment: &Candidate) -> Result<Content, String> {
        let bytes = self.opener()?.extract(content, attachment).await?;
        let bytes = bytes.ok_or_else(|| format!("{} cannot be taken out of the message", attachment.name))?;
        Content::of(&bytes).map_err(|error| error.to_string())
    }
}

/// Adds what was said of one attachment. Clean is said once.
fn add(whole: &mut Report, report: Report, name: &str) {
    for mut finding in report.findings {
        let known = whole.findings.iter().any(|f| f.scanner == finding.scanner && f.outcome == Outcome::Clean);
        if finding.outcome == Outcome::Clean && known {
            continue;
        }
        if finding.outcome != Outcome::Clean {
            finding.place = match finding.place.is_empty() {
                true => name.to_owned(),
                false => format!("{name} > {}", finding.place),
            };
        }
        whole.findings.push(finding);
    }
    whole.suspicious.extend(report.suspicious);
    whole.samples.extend(report.samples);
    whole.samples_left_out += report.samples_left_out;
}
