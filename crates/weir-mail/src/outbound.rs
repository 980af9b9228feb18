//! The way out, as the rest of the gate sees it.

use crate::desk::ScanDesk;
use crate::letter::Letter;
use std::sync::Arc;
use std::time::Duration;
use weir_smtp::reception::Alarm;
use weir_store::spool::{Marks, MessageId};

/// Takes over letters that may go. It finishes them in the spool when the last of their recipients is settled.
pub trait Outbound: Clone + Send + Sync + 'static {
    /// Sends the message to the recipients at these places of the letter. Must not block.
    fn send(&self, id: MessageId, letter: Arc<Letter>, places: Vec<usize>);

    /// The same for a letter found in the spool at start, with everything that was marked since: some of the
    /// recipients may have it already.
    fn resume(&self, id: MessageId, letter: Arc<Letter>, places: Vec<usize>, marks: &Marks) {
        let _ = marks;
        self.send(id, letter, places);
    }

    /// Called once at start, before the first letter is resumed: what the last life had settled but not yet finished in the
    /// spool is finished now.
    fn prepare(&self) -> impl Future<Output = ()> + Send {
        async {}
    }

    /// Every letter that was found at start has been resumed: from now on something new may be put into the spool.
    fn taken_up(&self) {}

    /// Begins nothing new, and returns when what is under way has ended or `patience` is over.
    fn stop(&self, patience: Duration) -> impl Future<Output = ()> + Send {
        let _ = patience;
        async {}
    }

    /// Keys to sign with were made or removed.
    fn keys_changed(&self) {}

    /// Whom to tell of trouble that the operator should know of; told once, at start.
    fn tell_alarms(&self, raise: RaiseAlarm) {
        drop(raise);
    }

    /// From now on a report to the sender of submitted mail is mail of whoever handed that in, and `submit` takes it through their
    /// throttle: where senders are not checked, reports are a way to write to anybody. Told once, at start.
    fn charge_reports(&self, submit: SubmitReport) {
        drop(submit);
    }

    /// The scan on this way out, for people; a stage that wraps another one passes this on.
    fn scanning(&self) -> Option<&dyn ScanDesk> {
        None
    }
}

/// Takes an alarm; does not wait.
pub type RaiseAlarm = Arc<dyn Fn(Alarm) + Send + Sync>;

/// Takes a report that is in the spool; does not wait.
pub type SubmitReport = Arc<dyn Fn(MessageId, Letter) + Send + Sync>;
