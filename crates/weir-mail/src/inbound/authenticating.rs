//! The stage in which received mail is evaluated, between acceptance and whatever comes next.
//!
//! A letter from outside waits for a place, is evaluated ([`Authenticity`]), and goes on with the result as a header line. The
//! result stands in a mark, so that a restart does not ask again; if the mark is lost, it is asked again. All other letters
//! pass. A letter is never lost here: it is in the spool, and if its evaluation fails in any way it goes on without.

use super::authenticity::{Authenticity, AuthenticitySettings};
use crate::delivery::resolver::ResolverError;
use crate::delivery::spool_ledger::SpoolBody;
use crate::letter::{Letter, LetterOrigin};
use crate::pipeline::{BoxFuture, Pipeline, Stage, Transit};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::{Semaphore, watch};
use weir_store::spool::{Marks, MessageId, Spool};

/// How long a letter waits for a place. What is not evaluated by then goes on as `none`: the queue stays as short as the time
/// is, whatever comes in and however slow the DNS is.
const PLACE_WAIT: Duration = Duration::from_secs(10);

/// Evaluates received letters before it hands them on.
#[derive(Debug)]
pub struct Authenticating {
    shared: Arc<AuthenticatingShared>,
}

#[derive(Debug)]
struct AuthenticatingShared {
    authenticity: Arc<Authenticity>,
    spool: Spool,
    places: Semaphore,
    /// The last letter that wanted a place got none.
    crowded: AtomicBool,
    stop: watch::Sender<bool>,
    next: Pipeline,
}

impl Authenticating {
    /// Puts the stage before those that follow.
    pub fn new(settings: &AuthenticitySettings, spool: &Spool, next: Pipeline) -> Result<Self, ResolverError> {
        let shared = AuthenticatingShared {
            authenticity: Arc::new(Authenticity::new(settings)?),
            spool: spool.clone(),
            places: Semaphore::new(settings.at_once.max(1)),
            crowded: AtomicBool::new(false),
            stop: watch::Sender::new(false),
            next,
        };
        Ok(Authenticating { shared: Arc::new(shared) })
    }

    /// Evaluates a letter and hands it on, as one that is resumed if it has marks of a former life.
    fn begin(&self, transit: Transit, marks: Option<Marks>) {
        let shared = Arc::clone(&self.shared);
        tokio::spawn(async move {
            let mut stop = shared.stop.subscribe();
            // What is stopped here is found in the spool at the next start.
            let field = tokio::select! {
                _ = stop.wait_for(|stop| *stop) => return,
                field = shared.evaluate(transit.id, &transit.letter) => field,
            };
            if let Some(field) = &field {
                let _ = shared.spool.mark(transit.id, mark(field));
            }
            let transit = transit.with_lines(field.as_deref().unwrap_or_default());
            match marks {
                None => shared.next.send(transit),
                Some(marks) => shared.next.resume(transit, &marks),
            }
        });
    }
}

/// Whether SPF, DKIM and DMARC have something to say about a letter.
fn is_concerned(letter: &Letter) -> bool {
    letter.origin == LetterOrigin::Received && letter.client.is_some()
}

impl AuthenticatingShared {
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

const TAG: &[u8] = b"authenticated ";

fn mark(field: &str) -> Vec<u8> {
    [TAG, field.as_bytes()].concat()
}

/// The field in a mark; nothing if it is another one.
fn read(mark: &[u8]) -> Option<&str> {
    let field = std::str::from_utf8(mark.strip_prefix(TAG)?).ok()?;
    field.ends_with("\r\n").then_some(field)
}

impl Stage for Authenticating {
    fn take(&self, transit: Transit) -> Option<Transit> {
        if !is_concerned(&transit.letter) {
            return Some(transit);
        }
        self.begin(transit, None);
        None
    }

    fn resume(&self, transit: Transit, marks: &Marks) -> Option<Transit> {
        if !is_concerned(&transit.letter) {
            return Some(transit);
        }
        if let Some(field) = marks.iter().filter_map(read).last() {
            return Some(transit.with_lines(field));
        }
        self.begin(transit, Some(marks.clone()));
        None
    }

    fn stop(&self, _: Duration) -> BoxFuture<'_> {
        self.shared.stop.send_replace(true);
        Box::pin(async {})
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

    struct Next(mpsc::UnboundedSender<Arc<Letter>>);

    impl Stage for Next {
        fn take(&self, letter: Transit) -> Option<Transit> {
            self.0.send(letter.letter).unwrap();
            None
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
        let stage = Authenticating::new(&settings, &spool, Pipeline::ending_in(Next(came))).unwrap();
        let envelope = Envelope { sender: MailFrom::default(), recipients: Vec::new(), forwarded: None };
        let mut letter = Letter::new(&envelope, LetterOrigin::Received, "192.0.2.0/24", "192.0.2.1", 1);
        letter.client = Some(Client { address: "192.0.2.1".parse().unwrap(), helo: "mail.example".into() });
        letter.to = vec![LetterTo { address: "ann@example.org".into(), notify: None, orcpt: None }];
        let mut draft = spool.draft().unwrap();
        draft.write(b"From: a@b.example\r\n\r\nhello\r\n").await.unwrap();
        let id = draft.commit(letter.write()).await.unwrap();
        let place = stage.shared.places.acquire().await.unwrap();
        tokio::time::pause();
        let begun = tokio::time::Instant::now();
        assert!(stage.take(Transit::to_all(id, letter)).is_none(), "it is kept to be evaluated");
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
