//! Compares what was promised to clients with what arrived.
//!
//! An extra copy is charged to the kill that ended the life in which the copy before it was accepted. A copy within one life has no excuse.

use super::sink::Taken;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Mutex;

/// The answer that a client got.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Answer {
    /// `250`.
    Taken,
    /// Anything else.
    Refused(String),
    /// Nothing: the connection broke.
    Silence,
}

impl Answer {
    pub(super) fn is_taken(&self) -> bool {
        *self == Answer::Taken
    }

    pub(super) fn is_refused(&self) -> bool {
        matches!(self, Answer::Refused(_))
    }

    /// Whether it is a refusal that begins with this code.
    pub(super) fn is(&self, code: &str) -> bool {
        matches!(self, Answer::Refused(text) if text.starts_with(code))
    }
}

/// One message of the load.
#[derive(Debug, Clone)]
pub(super) struct Sent {
    pub(super) token: u64,
    pub(super) user: &'static str,
    pub(super) to: Vec<String>,
    pub(super) digest: u64,
    pub(super) answer: Answer,
    /// Whether it is infected, so that it must be quarantined and not delivered.
    pub(super) infected: bool,
}

/// Everything that was sent.
#[derive(Debug, Default)]
pub(super) struct Books {
    sent: Mutex<Vec<Sent>>,
}

/// One recipient of a message.
type Copy<'a> = (u64, &'a str);

/// The result of comparing.
#[derive(Debug, Default)]
pub(super) struct Verdict {
    pub(super) acknowledged: usize,
    pub(super) refused: usize,
    pub(super) silent: usize,
    /// Recipients of acknowledged messages for whom nothing has arrived.
    pub(super) missing: Vec<(u64, String)>,
    /// Messages whose body is not what was sent.
    pub(super) broken: Vec<u64>,
    /// How many mails arrived that nobody had sent to that recipient.
    pub(super) unknown: usize,
    /// Messages that were refused and arrived.
    pub(super) refused_but_arrived: usize,
    /// How many extra transactions there were, by the life whose end excuses them.
    pub(super) extra: BTreeMap<u32, usize>,
    /// How many extra transactions there were within one life.
    pub(super) inexcusable: usize,
    /// Infected messages that arrived.
    pub(super) infected_arrived: usize,
}

impl Books {
    pub(super) fn enter(&self, sent: Sent) {
        self.sent.lock().expect("no panic while held").push(sent);
    }

    pub(super) fn count(&self, answer: impl Fn(&Answer) -> bool) -> usize {
        self.sent.lock().expect("no panic while held").iter().filter(|sent| answer(&sent.answer)).count()
    }

    /// The different refusals that these users got, up to the enhanced status code.
    pub(super) fn refusals(&self, users: &[&str]) -> BTreeSet<String> {
        let sent = self.sent.lock().expect("no panic while held");
        let code = |text: &str| text.split(' ').take(2).collect::<Vec<_>>().join(" ");
        let refused = |sent: &Sent| match &sent.answer {
            Answer::Refused(text) if users.contains(&sent.user) => Some(code(text)),
            _ => None,
        };
        sent.iter().filter_map(refused).collect()
    }

    /// How many recipients of a user's mail something has arrived for.
    pub(super) fn reached(&self, user: &str, taken: &[Taken]) -> usize {
        let sent = self.sent.lock().expect("no panic while held");
        let tokens: BTreeSet<u64> = sent.iter().filter(|sent| sent.user == user).map(|sent| sent.token).collect();
        let copies = taken.iter().filter(|taken| tokens.contains(&taken.token));
        copies
            .flat_map(|taken| taken.to.iter().map(|to| (taken.token, to.as_str())))
            .collect::<BTreeSet<Copy<'_>>>()
            .len()
    }

    /// The recipients of infected messages that were acknowledged.
    pub(super) fn infected(&self) -> BTreeSet<String> {
        let sent = self.sent.lock().expect("no panic while held");
        let taken = sent.iter().filter(|sent| sent.infected && sent.answer.is_taken());
        taken.flat_map(|sent| sent.to.iter().cloned()).collect()
    }

    /// Compares what arrived with what was promised.
    pub(super) fn verdict(&self, taken: &[Taken]) -> Verdict {
        let sent = self.sent.lock().expect("no panic while held").clone();
        let mut verdict = Verdict::default();
        let by_token: HashMap<u64, &Sent> = sent.iter().map(|sent| (sent.token, sent)).collect();
        let mut lives: HashMap<Copy<'_>, u32> = HashMap::new();
        for taken in taken {
            verdict.look_at(taken, by_token.get(&taken.token).copied(), &mut lives);
        }
        for sent in &sent {
            let arrived = sent.to.iter().any(|to| lives.contains_key(&(sent.token, to.as_str())));
            match &sent.answer {
                Answer::Taken if sent.infected => verdict.acknowledged += 1,
                Answer::Taken => {
                    verdict.acknowledged += 1;
                    let lost = sent.to.iter().filter(|to| !lives.contains_key(&(sent.token, to.as_str())));
                    verdict.missing.extend(lost.map(|to| (sent.token, to.clone())));
                }
                Answer::Refused(_) => {
                    verdict.refused += 1;
                    verdict.refused_but_arrived += usize::from(arrived);
                }
                Answer::Silence => verdict.silent += 1,
            }
        }
        verdict
    }
}

impl Verdict {
    fn look_at<'a>(&mut self, taken: &'a Taken, sent: Option<&Sent>, lives: &mut HashMap<Copy<'a>, u32>) {
        match sent {
            Some(sent) if taken.to.iter().all(|to| sent.to.contains(to)) => {
                if sent.digest != taken.digest {
                    self.broken.push(sent.token);
                }
                self.infected_arrived += usize::from(sent.infected);
            }
            _ => self.unknown += 1,
        }
        let before: Vec<u32> =
            taken.to.iter().filter_map(|to| lives.insert((taken.token, to.as_str()), taken.life)).collect();
        match before.into_iter().max() {
            None => {}
            Some(life) if life == taken.life => self.inexcusable += 1,
            Some(life) => *self.extra.entry(life).or_default() += 1,
        }
    }

    /// The most extra transactions that one kill caused.
    pub(super) fn worst(&self) -> usize {
        self.extra.values().copied().max().unwrap_or_default()
    }

    /// Checks that nothing was lost or damaged, and that no kill repeated more than `most` mails.
    #[track_caller]
    pub(super) fn demand(&self, most: usize, refused_but_arrived_max: usize) {
        assert!(
            self.missing.is_empty(),
            "{} of {} acknowledged messages are LOST for somebody: {:?}",
            self.missing.iter().map(|(token, _)| token).collect::<BTreeSet<_>>().len(),
            self.acknowledged,
            &self.missing[..self.missing.len().min(20)]
        );
        assert!(self.broken.is_empty(), "bodies changed on the way: {:?}", self.broken);
        assert_eq!(self.infected_arrived, 0, "infected mail was delivered");
        assert_eq!(self.unknown, 0, "somebody got what nobody sent them");
        assert_eq!(self.inexcusable, 0, "delivered twice without a kill");
        assert!(self.worst() <= most, "a kill cost more than {most} extra deliveries: {:?}", self.extra);
        assert!(
            self.refused_but_arrived <= refused_but_arrived_max,
            "{} messages were refused and arrived all the same, {refused_but_arrived_max} may",
            self.refused_but_arrived
        );
    }
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Verdict { acknowledged, refused, silent, inexcusable, refused_but_arrived, .. } = self;
        let (lost, broken, worst) = (self.missing.len(), self.broken.len(), self.worst());
        let extra: usize = self.extra.values().sum();
        write!(
            f,
            "{acknowledged} acknowledged, {refused} refused, {silent} unanswered; {lost} lost, {broken} broken; extra deliveries \
             {extra} in all, {worst} after the worst kill, {inexcusable} without one; {refused_but_arrived} refused but arrived"
        )
    }
}

/// The hash of a body.
pub(super) fn digest(body: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    body.hash(&mut hasher);
    hasher.finish()
}
