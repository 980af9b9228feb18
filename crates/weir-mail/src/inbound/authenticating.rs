//! The stage in which received mail is evaluated, between acceptance and whatever comes next.
//!
//! A letter from outside waits for a place, is evaluated ([`Authenticity`]), and goes on with the result as a header line. The
//! result stands in a mark, so that a restart does not ask again; if the mark is lost, it is asked again. All other letters
//! pass. A letter is never lost here: it is in the spool, and if its evaluation fails in any way it goes on without.

use super::authenticity::{Authenticity, AuthenticitySettings};
use crate::delivery::resolver::ResolverError;
use crate::delivery::spool_ledger::SpoolBody;
use crate::desk::{Queue, QueueList, QueueSelection, ScanDesk};
use crate::letter::{Letter, Origin};
use crate::outbound::{Outbound, RaiseAlarm, SubmitReport};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::{Semaphore, watch};
use weir_foundation::Answer;
use weir_store::spool::{Marks, MessageId, Spool};

/// How long a letter waits for a place. What is not evaluated by then goes on as `none`: the queue stays as short as the time
/// is, whatever comes in and however slow the DNS is.
const PLACE_WAIT: Duration = Duration::from_secs(10);

/// Evaluates received letters before it hands them on. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Authenticating<O> {
    next: O,
    stage: Option<Arc<Stage>>,
}

#[derive(Debug)]
struct Stage {
    authenticity: Arc<Authenticity>,
    spool: Spool,
    places: Semaphore,
    /// The last letter that wanted a place got none.
    crowded: AtomicBool,
    stop: watch::Sender<bool>,
}

impl<O: Outbound> Authenticating<O> {
    /// Puts the stage before `next`; without settings everything passes.
    pub fn new(next: O, spool: &Spool, settings: Option<&AuthenticitySettings>) -> Result<Self, ResolverError> {
        let stage = match settings {
            None => None,
            Some(settings) => Some(Arc::new(Stage {
                authenticity: Arc::new(Authenticity::new(settings)?),
                spool: spool.clone(),
                places: Semaphore::new(settings.at_once.max(1)),
                crowded: AtomicBool::new(false),
                stop: watch::Sender::new(false),
            })),
        };
        Ok(Authenticating { next, stage })
    }

    fn begin(&self, stage: &Arc<Stage>, errand: Errand) {
        let (stage, next) = (Arc::clone(stage), self.next.clone());
        tokio::spawn(async move {
            let mut stop = stage.stop.subscribe();
            // What is stopped here is found in the spool at the next start.
            let field = tokio::select! {
                _ = stop.wait_for(|stop| *stop) => return,
                field = stage.evaluate(errand.id, &errand.letter) => field,
            };
            if let Some(field) = &field {
                let _ = stage.spool.mark(errand.id, mark(field));
            }
            errand.hand_on(&next, field.as_deref());
        });
    }

    /// The stage, if this letter has to go through it.
    fn stage_for(&self, letter: &Letter) -> Option<&Arc<Stage>> {
        self.stage.as_ref().filter(|_| letter.origin == Origin::Received && letter.client.is_some())
    }
}

impl Stage {
    /// The field for a letter; nothing if it cannot be evaluated.
    async fn evaluate(&self, id: MessageId, letter: &Arc<Letter>) -> Option<String> {
        let Ok(place) = tokio::time::timeout(PLACE_WAIT, self.places.acquire()).await else {
            if !self.crowded.swap(true, Ordering::Relaxed) {
                tracing::warn!("more mail comes from outside than can be evaluated; some goes on as `none`");
            }
            return Some(self.authenticity.nothing());
        };
        let _place = place.ok()?;
        self.crowded.store(false, Ordering::Relaxed);
        let body = match self.spool.body(id) {
            Ok(body) => body,
            Err(error) => {
                tracing::warn!(%id, %error, "a message cannot be read to be evaluated");
                return None;
            }
        };
        let (authenticity, letter) = (Arc::clone(&self.authenticity), Arc::clone(letter));
        // A task of its own: should a message bring the evaluation down, it still goes on.
        let evaluated = tokio::spawn(async move { authenticity.authenticate(&letter, SpoolBody(body)).await });
        match evaluated.await {
            Ok(field) => Some(field),
            Err(error) => {
                tracing::error!(%id, %error, "a message brought its evaluation down; it goes on without");
                None
            }
        }
    }
}

/// A letter on its way through.
struct Errand {
    id: MessageId,
    letter: Arc<Letter>,
    places: Vec<usize>,
    /// What was marked in a former life.
    marks: Option<Marks>,
}

impl Errand {
    fn hand_on<O: Outbound>(self, next: &O, field: Option<&str>) {
        let Errand { id, letter, places, marks } = self;
        let letter = match field {
            None => letter,
            Some(field) => Arc::new(Letter { added: format!("{field}{}", letter.added), ..Letter::clone(&letter) }),
        };
        match marks {
            None => next.send(id, letter, places),
            Some(marks) => next.resume(id, letter, places, &marks),
        }
    }
}

const TAG: &[u8] = b"authenticated ";

fn mark(field: &str) -> Vec<u8> {
    [TAG, field.as_bytes()].concat()
}

/// The field in a mark; nothing if it is another one.
fn read(mark: &[u8]) -> Option<&str> {
    let field = std::str::from_utf8(mark.strip_prefix(TAG)?).ok()?;
    field.ends_with("\r\n").then_some(field)
}

impl<O: Outbound> Outbound for Authenticating<O> {
    fn send(&self, id: MessageId, letter: Arc<Letter>, places: Vec<usize>) {
        match self.stage_for(&letter) {
            None => self.next.send(id, letter, places),
            Some(stage) => self.begin(stage, Errand { id, letter, places, marks: None }),
        }
    }

    fn resume(&self, id: MessageId, letter: Arc<Letter>, places: Vec<usize>, marks: &Marks) {
        let Some(stage) = self.stage_for(&letter) else { return self.next.resume(id, letter, places, marks) };
        let errand = Errand { id, letter, places, marks: Some(marks.clone()) };
        match marks.iter().filter_map(read).last() {
            Some(field) => errand.hand_on(&self.next, Some(field)),
            None => self.begin(stage, errand),
        }
    }

    async fn prepare(&self) {
        self.next.prepare().await;
    }

    fn taken_up(&self) {
        self.next.taken_up();
    }

    async fn stop(&self, patience: Duration) {
        if let Some(stage) = &self.stage {
            stage.stop.send_replace(true);
        }
        self.next.stop(patience).await;
    }

    fn keys_changed(&self) {
        self.next.keys_changed();
    }

    fn tell_alarms(&self, raise: RaiseAlarm) {
        self.next.tell_alarms(raise);
    }

    fn charge_reports(&self, submit: SubmitReport) {
        self.next.charge_reports(submit);
    }

    fn scanning(&self) -> Option<&dyn ScanDesk> {
        self.next.scanning()
    }
}

impl<O: Queue> Queue for Authenticating<O> {
    fn about(&self) -> String {
        self.next.about()
    }

    fn list<'a>(&'a self, selection: &'a QueueSelection, most: usize) -> Answer<'a, QueueList> {
        self.next.list(selection, most)
    }

    fn retry<'a>(&'a self, selection: &'a QueueSelection) -> Answer<'a, Vec<String>> {
        self.next.retry(selection)
    }

    fn delete<'a>(&'a self, selection: &'a QueueSelection) -> Answer<'a, Vec<String>> {
        self.next.delete(selection)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delivery::resolver::Dns;
    use crate::letter::{Client, LetterTo};
    use tokio::sync::mpsc;
    use weir_smtp::envelope::{Envelope, MailFrom};
    use weir_store::spool::Options;

    #[derive(Clone)]
    struct Next(mpsc::UnboundedSender<Arc<Letter>>);

    impl Outbound for Next {
        fn send(&self, _: MessageId, letter: Arc<Letter>, _: Vec<usize>) {
            self.0.send(letter).unwrap();
        }
    }

    #[tokio::test]
    async fn a_letter_waits_for_a_place_and_not_for_ever() {
        let folder = tempfile::tempdir().unwrap();
        let options = Options { free_floor_bytes: 0, ..Options::default() };
        let (spool, _) = Spool::open(folder.path().join("spool"), options).unwrap();
        let patience = Duration::from_secs(1);
        let dns = Dns::Server("127.0.0.1:9".parse().unwrap(), patience);
        let settings = AuthenticitySettings { hostname: "mx.example".into(), dns, patience, at_once: 1 };
        let (came, mut coming) = mpsc::unbounded_channel();
        let stage = Authenticating::new(Next(came), &spool, Some(&settings)).unwrap();
        let envelope = Envelope { sender: MailFrom::default(), recipients: Vec::new(), forwarded: None };
        let mut letter = Letter::new(&envelope, Origin::Received, "192.0.2.0/24", "192.0.2.1", 1);
        letter.client = Some(Client { address: "192.0.2.1".parse().unwrap(), helo: "mail.example".into() });
        letter.to = vec![LetterTo { address: "ann@example.org".into(), notify: None, orcpt: None }];
        let mut draft = spool.draft().unwrap();
        draft.write(b"From: a@b.example\r\n\r\nhello\r\n").await.unwrap();
        let id = draft.commit(letter.write()).await.unwrap();
        let place = stage.stage.as_ref().unwrap().places.acquire().await.unwrap();
        tokio::time::pause();
        let begun = tokio::time::Instant::now();
        stage.send(id, Arc::new(letter), vec![0]);
        let went = coming.recv().await.unwrap();
        assert!(begun.elapsed() >= PLACE_WAIT && begun.elapsed() < PLACE_WAIT * 2, "{:?}", begun.elapsed());
        assert_eq!(went.added, "Authentication-Results: mx.example; none\r\n");
        drop(place);
    }

    #[test]
    fn a_mark_is_read_as_it_was_written() {
        let field = "Authentication-Results: mx.example;\r\n\tspf=pass\r\n";
        assert_eq!(read(&mark(field)), Some(field));
        assert_eq!((read(b"decided 0"), read(b"authenticated cut off"), read(b"")), (None, None, None));
    }
}
