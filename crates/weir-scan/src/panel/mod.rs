//! The panel: every configured scanner, side by side, and one verdict.
//!
//! It knows scanners only as [`Scanner`]s. Each is asked within its deadline and through a `memo` if its answers may be remembered: one scan in
//! flight per content, answers kept by the version of rules and signatures. A scanner that fails is a finding, and then nothing passes. A panel
//! for one feed may have scanners of its own; it asks the common ones if its own fail, and shares everything else.

mod member;
mod opened;
mod settings;

pub use crate::health::Health;
pub use crate::memory_bounds::Bounds;
pub use crate::start_error::StartError;
pub use settings::Settings;

use crate::content::Content;
use crate::examine::Report;
use crate::inspect::{About, Inspect};
use crate::made::Made;
use crate::samples::Candidate;
use crate::scanner::{Opener, Scanner, Wants};
use crate::verdict::{Finding, Outcome, Verdict};
use member::{Member, problem};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

/// All scanners. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Panel {
    seats: Arc<[Seat]>,
    memory: Bounds,
    /// Whether mail beyond a limit is kept, whatever scanners say.
    limits_decide: bool,
}

/// A scanner, and those of the same kind that are asked where it fails.
#[derive(Debug, Clone)]
struct Seat {
    wants: Wants,
    /// The next is asked where the first fails. Never empty.
    members: Vec<Arc<Member>>,
}

impl Panel {
    /// Starts all of it. Must be called inside a runtime. Rules that do not compile are an error here; later, when the folder
    /// changes, the old ones stay in force.
    pub async fn start(settings: Settings) -> Result<Panel, StartError> {
        let Settings { memory, limits_decide, .. } = settings;
        let mut seats = Vec::new();
        for configured in settings.scanners() {
            let scanner = configured.start().await?;
            seats.push(Seat { wants: configured.wants(), members: vec![Member::new(scanner, memory)] });
        }
        Ok(Panel { seats: seats.into(), memory, limits_decide })
    }

    /// The same panel for one feed, counted from 0: with scanners of its own if it is bound to some.
    pub fn for_feed(&self, feed: usize) -> Panel {
        let seats = self.seats.iter().map(|seat| seat.for_feed(feed, self.memory)).collect();
        Panel { seats, ..self.clone() }
    }

    /// Which rules, policy and signatures are in force.
    pub fn version(&self) -> String {
        self.seats.iter().filter_map(|seat| seat.scanners().next()?.version()).collect::<Vec<_>>().join("; ")
    }

    /// Takes these rules that people made into force, instead of those before: from the next message on, and no answer of before
    /// counts any more. All feeds share them. Rules that do not compile change nothing.
    pub async fn adopt(&self, made: &Made) -> Result<(), StartError> {
        match self.find_opener() {
            Some(opener) => opener.adopt(made).await,
            None if made.is_empty() => Ok(()),
            None => Err(StartError::NoWorkers),
        }
    }

    async fn verdict(&self, content: &Content, about: &Arc<About>) -> Verdict {
        let mut verdict = Verdict { version: self.version(), ..Verdict::default() };
        // Our own walk first: what it condemns needs nobody else, and a bomb never comes to a scanner that would be busy with it for minutes.
        let (own, others): (Vec<&Seat>, Vec<&Seat>) =
            self.seats.iter().filter(|seat| !about.is_file || !seat.judges_senders()).partition(|seat| seat.opens());
        for seats in [own, others] {
            if self.is_condemned(&verdict) {
                break;
            }
            let asked = seats.into_iter().map(|seat| Box::pin(self.ask(seat, content, about)) as Asking<'_>);
            for report in all(asked.collect()).await.into_iter().flatten() {
                verdict.findings.extend(report.findings);
                verdict.suspicious.extend(report.suspicious);
                verdict.samples.extend(report.samples);
                verdict.samples_left_out += report.samples_left_out;
                verdict.wishes = report.wishes.or(verdict.wishes);
            }
        }
        if verdict.findings.is_empty() {
            let outcome = Outcome::NotScanned { limit: "no scanner looks at a message of this size".into() };
            let (scanner, place) = ("panel".into(), String::new());
            verdict.findings.push(Finding { scanner, outcome, place, took: Duration::ZERO });
        }
        verdict
    }

    /// Whether nothing that others find would change what becomes of the message.
    fn is_condemned(&self, verdict: &Verdict) -> bool {
        verdict.findings.iter().any(|finding| match &finding.outcome {
            Outcome::Infected { .. } | Outcome::Forbidden { .. } => true,
            // A bound of the whole message was met.
            Outcome::NotScanned { .. } => self.limits_decide && finding.place.is_empty(),
            _ => false,
        })
    }

    /// The feed's own scanner, and the common one where this fails: a feed whose machine is gone goes on slowly.
    async fn ask(&self, seat: &Seat, content: &Content, about: &Arc<About>) -> Option<Report> {
        let mut last = None;
        for member in &seat.members {
            let report = match seat.wants {
                Wants::Message | Wants::MessageWithTrace => member.ask(content, about).await,
                Wants::Attachments => self.ask_about_attachments(member, content, about).await,
            };
            let failed = report.as_ref().is_some_and(|report| report.findings.iter().any(|f| problem(f).is_some()));
            if !failed {
                return report;
            }
            last = report;
        }
        last
    }

    fn find_opener(&self) -> Option<&dyn Opener> {
        self.seats.iter().flat_map(Seat::scanners).find_map(|scanner| scanner.opener())
    }

    /// Who opens mail here.
    fn opener(&self) -> Result<&dyn Opener, String> {
        self.find_opener().ok_or_else(|| "YARA and the attachment policy are off".to_owned())
    }
}

impl Inspect for Panel {
    async fn inspect(&self, content: &Content, about: &Arc<About>) -> Verdict {
        self.verdict(content, about).await
    }

    fn health(&self) -> Vec<Health> {
        self.seats.iter().flat_map(Seat::scanners).flat_map(|scanner| scanner.health()).collect()
    }

    async fn extract(&self, content: &Content, wanted: &Candidate) -> Result<Option<Vec<u8>>, String> {
        self.opener()?.extract(content, wanted).await
    }

    async fn attachments(&self, content: &Content) -> Result<(Vec<Candidate>, usize), String> {
        self.opener()?.attachments(content).await
    }

    async fn adopt(&self, made: &Made) -> Result<(), StartError> {
        Panel::adopt(self, made).await
    }
}

impl Seat {
    /// Whether it is our own, which walks through the message.
    fn opens(&self) -> bool {
        self.scanners().any(|scanner| scanner.opener().is_some())
    }

    /// Whether it weighs who sent the message.
    fn judges_senders(&self) -> bool {
        self.scanners().any(|scanner| scanner.judges_senders())
    }

    fn scanners(&self) -> impl Iterator<Item = &dyn Scanner> {
        self.members.iter().map(|member| &*member.scanner)
    }

    fn for_feed(&self, feed: usize, memory: Bounds) -> Seat {
        let own = self.scanners().find_map(|scanner| scanner.for_feed(feed));
        let own = own.map(|scanner| Member::new(scanner, memory));
        Seat { wants: self.wants, members: own.into_iter().chain(self.members.iter().cloned()).collect() }
    }
}

type Asking<'a> = Pin<Box<dyn Future<Output = Option<Report>> + Send + 'a>>;

/// Waits for all of them at once; answers in their order.
async fn all(mut asking: Vec<Asking<'_>>) -> Vec<Option<Report>> {
    let mut answers: Vec<Option<Option<Report>>> = asking.iter().map(|_| None).collect();
    std::future::poll_fn(move |context| {
        for (future, answer) in asking.iter_mut().zip(&mut answers) {
            if answer.is_none()
                && let Poll::Ready(report) = future.as_mut().poll(context)
            {
                *answer = Some(report);
            }
        }
        if answers.iter().any(Option::is_none) {
            return Poll::Pending;
        }
        Poll::Ready(std::mem::take(&mut answers).into_iter().flatten().collect())
    })
    .await
}
