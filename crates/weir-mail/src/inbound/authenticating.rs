//! The stage that evaluates (SPF, DKIM, DMARC) mail that was accepted without this: mail of listed peers, who tell us about the client, and
//! mail that an older release left in the spool. Mail of strangers is evaluated before it is accepted.
//!
//! A letter waits for its turn, is evaluated ([`Evaluator`]), and goes on with the result as a header line, or the scan keeps it for a
//! person. The result is also written as marks, so that a restart does not evaluate the letter again unless a mark was lost. All other
//! letters pass at once. A letter is never lost here: it is in the spool, and if its evaluation fails it goes on without a result.

use super::evaluator::{Evaluator, Found};
use crate::delivery::spool_ledger::SpoolBody;
use crate::letter::{Allowed, Letter, LetterOrigin};
use crate::pipeline::{BoxFuture, Pipeline, Stage, Transit};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use weir_store::spool::{Marks, MessageId, Spool};

/// Evaluates received letters before it hands them on.
#[derive(Debug)]
pub struct Authenticating {
    shared: Arc<AuthenticatingShared>,
}

#[derive(Debug)]
struct AuthenticatingShared {
    evaluator: Arc<Evaluator>,
    spool: Spool,
    stop: watch::Sender<bool>,
    next: Pipeline,
}

impl Authenticating {
    /// Puts the stage before those that follow.
    pub fn new(evaluator: Arc<Evaluator>, spool: &Spool, next: Pipeline) -> Self {
        let stop = watch::Sender::new(false);
        Authenticating { shared: Arc::new(AuthenticatingShared { evaluator, spool: spool.clone(), stop, next }) }
    }

    /// Evaluates a letter and hands it on, as one that is resumed if it has marks of a former life.
    fn begin(&self, transit: Transit, marks: Option<Marks>) {
        let shared = Arc::clone(&self.shared);
        tokio::spawn(async move {
            let mut stop = shared.stop.subscribe();
            // What is stopped here is found in the spool at the next start.
            let found = tokio::select! {
                _ = stop.wait_for(|stop| *stop) => return,
                found = shared.evaluate(transit.id, &transit.letter) => found,
            };
            let Found { field, hold, allowed } = found.unwrap_or_default();
            if let Some(hold) = &hold {
                let _ = shared.spool.mark(transit.id, mark(HELD, hold));
            }
            if let Some(allowed) = &allowed {
                let _ = shared.spool.mark(transit.id, mark(ALLOWED, &allowed.by));
            }
            if !field.is_empty() {
                let _ = shared.spool.mark(transit.id, mark(AUTHENTICATED, &field));
            }
            let transit = transit.with_lines(&field).held(hold).allowed(allowed);
            match marks {
                None => shared.next.send(transit),
                Some(marks) => shared.next.resume(transit, &marks),
            }
        });
    }
}

/// Whether SPF, DKIM and DMARC have something to say about a letter that they have not said yet.
fn is_concerned(letter: &Letter) -> bool {
    letter.origin == LetterOrigin::Received && letter.client.is_some() && !letter.judged
}

impl AuthenticatingShared {
    /// What is found about a letter; nothing if it cannot be evaluated.
    async fn evaluate(&self, id: MessageId, letter: &Arc<Letter>) -> Option<Found> {
        match self.spool.body(id) {
            Ok(body) => self.evaluator.look_at(id, letter, SpoolBody(body)).await,
            Err(error) => {
                tracing::warn!(%id, %error, "a message cannot be read to be evaluated");
                None
            }
        }
    }
}

const AUTHENTICATED: &[u8] = b"authenticated ";
const HELD: &[u8] = b"held by policy ";
const ALLOWED: &[u8] = b"sender allowed by ";

fn mark(tag: &[u8], text: &str) -> Vec<u8> {
    [tag, text.as_bytes()].concat()
}

/// The field in a mark; nothing if it is another one.
fn field_in(mark: &[u8]) -> Option<&str> {
    let field = std::str::from_utf8(mark.strip_prefix(AUTHENTICATED)?).ok()?;
    field.ends_with("\r\n").then_some(field)
}

/// The reason in a mark for which a letter is kept.
fn hold_in(mark: &[u8]) -> Option<&str> {
    std::str::from_utf8(mark.strip_prefix(HELD)?).ok()
}

/// The entry of the list in a mark that allows the sender, which is confirmed.
fn allowed_in(mark: &[u8]) -> Option<Allowed> {
    let by = std::str::from_utf8(mark.strip_prefix(ALLOWED)?).ok()?;
    Some(Allowed { by: by.to_owned(), domain: String::new(), confirmed: true })
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
        if let Some(field) = marks.iter().filter_map(field_in).last() {
            let hold = marks.iter().filter_map(hold_in).last().map(str::to_owned);
            let allowed = marks.iter().filter_map(allowed_in).last();
            return Some(transit.with_lines(field).held(hold).allowed(allowed));
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
    use super::super::authenticity::AuthenticitySettings;
    use super::super::evaluator::{EvaluatorSettings, PLACE_WAIT};
    use super::*;
    use crate::delivery::resolver::Dns;
    use crate::letter::{Client, LetterTo};
    use tokio::sync::mpsc;
    use weir_smtp::envelope::{Envelope, MailFrom};
    use weir_store::spool::Options;

    struct NextStage(mpsc::UnboundedSender<Arc<Letter>>);

    impl Stage for NextStage {
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
        let stage = Authenticating::new(
            Arc::new(Evaluator::new(&EvaluatorSettings { authenticity: settings, ..Default::default() }).unwrap()),
            &spool,
            Pipeline::ending_in(NextStage(came)),
        );
        let envelope = Envelope { sender: MailFrom::default(), recipients: Vec::new(), ..Envelope::default() };
        let mut letter = Letter::new(&envelope, LetterOrigin::Received, "192.0.2.0/24", "192.0.2.1", 1);
        letter.client = Some(Client { address: "192.0.2.1".parse().unwrap(), helo: "mail.example".into() });
        letter.to = vec![LetterTo { address: "ann@example.org".into(), notify: None, orcpt: None }];
        let mut draft = spool.draft().unwrap();
        draft.write(b"From: a@b.example\r\n\r\nhello\r\n").await.unwrap();
        let id = draft.commit(letter.write()).await.unwrap();
        let place = stage.shared.evaluator.places.acquire().await.unwrap();
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
        assert_eq!(field_in(&mark(AUTHENTICATED, field)), Some(field));
        assert_eq!((field_in(b"decided 0"), field_in(b"authenticated cut off"), field_in(b"")), (None, None, None));
        assert_eq!((hold_in(&mark(HELD, "why")), hold_in(&mark(AUTHENTICATED, field))), (Some("why"), None));
    }
}
