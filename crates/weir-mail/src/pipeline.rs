//! The pipeline: the way of a letter from acceptance to delivery, with its stages in order, the mark that each leaves in the spool, and how
//! a letter that is found at start is taken up again.
//!
//! # The stages
//!
//! | | stage | letters that stop here | mark in the spool before the letter goes on |
//! | --- | --- | --- | --- |
//! | 1 | authentication (`inbound/authenticating.rs`) | received from a listed peer that names the client; strangers' mail was evaluated before it was taken | `authenticated FIELD`, `held by policy REASON` if a person is to look at it, and `sender allowed by ENTRY` |
//! | 2 | scan (`scan/`) | all but our own and what a person released from quarantine | `scan passed` with the lines for its header |
//! | 3 | delivery (`gate/delivering.rs` over `delivery/`) | all | it goes to no other stage; per recipient `dD` delivered, `dF` failed, `dL` tried again later, and `dW` when its sender was told of a delay |
//!
//! `gate/stages.rs` starts them in this order. A letter enters at the top with [`Pipeline::send`] when it is in the spool and may go:
//! submission sends what the throttle let go (its mark is `decided PLACES`), inbound what was received, held mail what was released,
//! notices what Weir itself writes. What a person releases from quarantine has been scanned and enters after the scan. A stage that has
//! nothing to do with a letter gives it back at once; one that has keeps it, works in tasks of its own, and hands it on to the stages
//! behind it. Lines for the header travel in [`Letter::added`]. A stage may also end a letter: the scan moves it to quarantine, delivery
//! is done with its last recipient. Then the letter is finished in the spool.
//!
//! # At start
//!
//! 1. [`Pipeline::prepare`]: each stage finishes in the spool the letters that the former process had settled but not finished there.
//! 2. Each letter in the spool (`gate/recovery.rs`): a submitted one without `decided` goes to the throttle first. All others enter at
//!    the top with [`Pipeline::resume`], and each stage looks for its own marks:
//!    * authentication: with `authenticated` the field is added and the letter goes on; without, it is evaluated again.
//!    * scan: with `scan passed` the lines are added and the letter goes on; with `scan pending` it waits for the lab again; otherwise it is
//!      scanned, and `scan tried` and `scan interrupted` count the attempts so far.
//!    * delivery: recipients in `dD` and `dF` are finished, those in `dL` wait until their time, and after `dW` no second warning is sent.
//!      If nobody is left, the letter is finished.
//! 3. [`Pipeline::taken_up`]: from now on stages may put new letters into the spool.
//!
//! No stage waits until a mark is on the disk. If a power cut loses a mark, the stage only repeats its work: a letter is evaluated or
//! scanned once more or, if it was a mark of delivery, a recipient gets it twice. A letter is never lost, and never goes out unscanned.

use crate::letter::{Allowed, Letter};
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use weir_store::spool::{Marks, MessageId};

/// A letter on its way, which is in the spool.
#[derive(Debug, Clone)]
pub struct Transit {
    /// Its name there.
    pub id: MessageId,
    /// The letter, with the header lines of the stages that it has passed.
    pub letter: Arc<Letter>,
    /// The places of those recipients in the letter to whom it goes.
    pub places: Vec<usize>,
}

impl Transit {
    /// A letter that goes to all of its recipients.
    pub fn to_all(id: MessageId, letter: Letter) -> Transit {
        Transit { id, places: (0..letter.to.len()).collect(), letter: Arc::new(letter) }
    }

    /// The same with these lines above those that are added already.
    #[must_use]
    pub fn with_lines(self, lines: &str) -> Transit {
        if lines.is_empty() {
            return self;
        }
        let added = format!("{lines}{}", self.letter.added);
        Transit { letter: Arc::new(Letter { added, ..Letter::clone(&self.letter) }), ..self }
    }

    /// The same, with a sender that is allowed and confirmed, or that is not allowed after all.
    #[must_use]
    pub fn allowed(self, allowed: Option<Allowed>) -> Transit {
        if self.letter.allowed == allowed {
            return self;
        }
        Transit { letter: Arc::new(Letter { allowed, ..Letter::clone(&self.letter) }), ..self }
    }

    /// The same, to be kept for a person if there is a reason.
    #[must_use]
    pub fn held(self, hold: Option<String>) -> Transit {
        if hold.is_none() {
            return self;
        }
        Transit { letter: Arc::new(Letter { hold, ..Letter::clone(&self.letter) }), ..self }
    }
}

/// Used only at start and at the end, so it may cost an allocation.
pub type BoxFuture<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// One stage. It holds the stages behind it as a [`Pipeline`] of their own.
pub trait Stage: Send + Sync + 'static {
    /// What it is called, for the log.
    fn name(&self) -> &'static str {
        std::any::type_name::<Self>()
    }

    /// Takes a letter over, or gives it back to go on at once. Must not block.
    fn take(&self, transit: Transit) -> Option<Transit>;

    /// The same for a letter found in the spool at start, with everything that was marked since it was accepted.
    fn resume(&self, transit: Transit, marks: &Marks) -> Option<Transit> {
        let _ = marks;
        self.take(transit)
    }

    /// Called once at start, before the first letter is resumed: what the last life had settled but not yet finished in the spool is
    /// finished now.
    fn prepare(&self) -> BoxFuture<'_> {
        Box::pin(async {})
    }

    /// Every letter that was found at start has been resumed: from now on something new may be put into the spool.
    fn taken_up(&self) {}

    /// Begins nothing new, and returns when what is under way has ended or `patience` is over.
    fn stop(&self, patience: Duration) -> BoxFuture<'_> {
        let _ = patience;
        Box::pin(async {})
    }
}

/// Stages in their order. Cheap to clone.
#[derive(Clone)]
pub struct Pipeline {
    stages: Arc<[Arc<dyn Stage>]>,
}

impl Pipeline {
    /// The last stage alone.
    pub fn ending_in(last: impl Stage) -> Pipeline {
        Pipeline { stages: Arc::new([Arc::new(last) as Arc<dyn Stage>]) }
    }

    /// The same with one more stage before the others.
    #[must_use]
    pub fn preceded_by(&self, first: impl Stage) -> Pipeline {
        let first: Arc<dyn Stage> = Arc::new(first);
        Pipeline { stages: std::iter::once(first).chain(self.stages.iter().cloned()).collect() }
    }

    /// Takes over a letter that may go. Does not block.
    pub fn send(&self, transit: Transit) {
        self.each(transit, |stage, transit| stage.take(transit));
    }

    /// The same for a letter found in the spool at start: some of the stages may have been passed, some of the recipients may have it.
    pub fn resume(&self, transit: Transit, marks: &Marks) {
        self.each(transit, |stage, transit| stage.resume(transit, marks));
    }

    fn each(&self, mut transit: Transit, take: impl Fn(&dyn Stage, Transit) -> Option<Transit>) {
        for stage in &*self.stages {
            match take(&**stage, transit) {
                Some(given_back) => transit = given_back,
                None => return,
            }
        }
        tracing::error!(id = %transit.id, "no stage took a letter; it stays in the spool until the next start");
    }

    /// See [`Stage::prepare`].
    pub async fn prepare(&self) {
        for stage in &*self.stages {
            stage.prepare().await;
        }
    }

    /// See [`Stage::taken_up`].
    pub fn taken_up(&self) {
        self.stages.iter().for_each(|stage| stage.taken_up());
    }

    /// Stops each stage in order, so that nobody hands a letter to one that has ended. Each may take as long as `patience`.
    pub async fn stop(&self, patience: Duration) {
        for stage in &*self.stages {
            stage.stop(patience).await;
        }
    }
}

impl fmt::Debug for Pipeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.stages.iter().map(|stage| stage.name())).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::letter::LetterOrigin;
    use std::sync::Mutex;
    use weir_smtp::envelope::{Envelope, MailFrom};

    /// Keeps letters from one owner, and writes down what happens to it.
    struct Keeps {
        name: &'static str,
        owner: &'static str,
        seen: Arc<Mutex<Vec<String>>>,
    }

    impl Stage for Keeps {
        fn name(&self) -> &'static str {
            self.name
        }

        fn take(&self, transit: Transit) -> Option<Transit> {
            self.seen.lock().unwrap().push(format!("{} takes {}", self.name, transit.letter.added));
            (transit.letter.owner != self.owner).then(|| transit.with_lines(self.name))
        }

        fn resume(&self, transit: Transit, _: &Marks) -> Option<Transit> {
            self.seen.lock().unwrap().push(format!("{} resumes", self.name));
            (transit.letter.owner != self.owner).then_some(transit)
        }

        fn stop(&self, _: Duration) -> BoxFuture<'_> {
            Box::pin(async { self.seen.lock().unwrap().push(format!("{} stops", self.name)) })
        }
    }

    fn letter(owner: &str) -> Transit {
        let envelope = Envelope { sender: MailFrom::default(), recipients: Vec::new(), ..Envelope::default() };
        let letter = Letter::new(&envelope, LetterOrigin::Submitted, owner, "", 1);
        Transit::to_all("0dh3k9w2m1c8t0qzx4pn".parse().unwrap(), letter)
    }

    #[tokio::test]
    async fn a_letter_passes_the_stages_in_order_until_one_keeps_it() {
        let seen = Arc::<Mutex<Vec<String>>>::default();
        let stage = |name, owner| Keeps { name, owner, seen: Arc::clone(&seen) };
        let last = Pipeline::ending_in(stage("c", "bob"));
        let pipeline = last.preceded_by(stage("b", "ann")).preceded_by(stage("a", ""));
        assert_eq!(format!("{pipeline:?}"), r#"["a", "b", "c"]"#);
        let seen = || std::mem::take(&mut *seen.lock().unwrap());
        pipeline.send(letter("ann"));
        assert_eq!(seen(), ["a takes ", "b takes a"]);
        pipeline.send(letter("bob"));
        assert_eq!(seen(), ["a takes ", "b takes a", "c takes ba"]);
        pipeline.resume(letter("bob"), &Marks::default());
        assert_eq!(seen(), ["a resumes", "b resumes", "c resumes"]);
        // Nobody wants it: it stays where it is.
        pipeline.send(letter("eve"));
        assert_eq!(seen().len(), 3);
        pipeline.stop(Duration::ZERO).await;
        assert_eq!(seen(), ["a stops", "b stops", "c stops"]);
    }
}
