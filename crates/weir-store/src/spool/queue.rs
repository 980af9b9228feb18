//! The queue of requests to the spool's writer, in order.
//!
//! Bodies and envelopes wait for [`QueueMemory`] before they enter, so they never hold more memory than its size. Marks do not wait,
//! because a delivery that has happened must be recorded. While the disk hangs, marks add up only as fast as deliveries are made, and
//! deliveries soon hang too. If only marks are queued, the writer waits a moment for more, so that it is not woken for each one.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Semaphore, oneshot};

use super::SpoolError;
use super::id::MessageId;
use super::index::IndexEntry;
use super::receipt::Receipt;

/// How long marks wait for others, and from which number on they do not wait any longer. A kill loses at most these.
const COMPANY_WAIT: Duration = Duration::from_millis(1);
const COMPANY_MAX: usize = 16;

/// A request to the writer.
#[derive(Debug)]
pub(super) enum Request {
    Chunk(MessageId, Chunk),
    Commit(Box<Committal>),
    /// A draft that has sent chunks will not be committed.
    Abandon(MessageId),
    Mark(MessageId, Box<[u8]>),
    /// The message has left the index; this is its former entry.
    Finish(MessageId, IndexEntry),
    Flush(oneshot::Sender<Result<(), SpoolError>>),
    /// Moves everything out of all segments of which little is needed.
    Compact(oneshot::Sender<()>),
    /// Links everything into a folder inside the spool.
    Snapshot(oneshot::Sender<Result<std::path::PathBuf, SpoolError>>),
}

/// A part of a body on its way to the disk.
#[derive(Debug)]
pub(super) struct Chunk {
    pub(super) bytes: Vec<u8>,
    pub(super) crc: u32,
}

/// A draft that is to become a message.
#[derive(Debug)]
pub(super) struct Committal {
    pub(super) id: MessageId,
    pub(super) last: Chunk,
    pub(super) size: u64,
    pub(super) body_crc: u32,
    pub(super) envelope: Vec<u8>,
    pub(super) reply: oneshot::Sender<Result<Receipt, SpoolError>>,
}

impl Request {
    /// Whether it adds something to a segment.
    pub(super) fn is_mail(&self) -> bool {
        matches!(self, Request::Chunk(..) | Request::Commit(_))
    }

    /// Whether nobody waits for it.
    fn can_wait(&self) -> bool {
        matches!(self, Request::Abandon(_) | Request::Mark(..) | Request::Finish(..))
    }

    /// How much of the memory it took.
    pub(super) fn cost(&self) -> usize {
        match self {
            Request::Chunk(_, chunk) => chunk.bytes.len(),
            Request::Commit(committal) => committal.last.bytes.len() + committal.envelope.len(),
            _ => 0,
        }
    }
}

/// Requests on their way to the writer's thread.
#[derive(Debug, Default)]
pub(super) struct RequestQueue {
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Debug, Default)]
struct State {
    requests: Vec<Request>,
    closed: bool,
    writer: WriterState,
}

/// What the writer does, which decides what wakes it. Awake → Asleep → (Gathering →) Awake.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum WriterState {
    #[default]
    Awake,
    /// It waits for anything.
    Asleep,
    /// There are marks; it waits a moment for more.
    Gathering,
}

impl State {
    /// Whether there are only marks, and few of them.
    fn can_wait(&self) -> bool {
        !self.closed && self.requests.len() < COMPANY_MAX && self.requests.iter().all(Request::can_wait)
    }
}

impl RequestQueue {
    /// Adds a request, unless the writer has ended.
    pub(super) fn push(&self, request: Request) -> Result<(), SpoolError> {
        let mut state = self.state();
        if state.closed {
            return Err(SpoolError::Closed);
        }
        let can_wait = request.can_wait();
        state.requests.push(request);
        let wakes = match state.writer {
            WriterState::Awake => false,
            WriterState::Asleep => true,
            WriterState::Gathering => !can_wait || state.requests.len() >= COMPANY_MAX,
        };
        if wakes {
            state.writer = WriterState::Awake;
            self.wake.notify_one();
        }
        Ok(())
    }

    /// Takes everything there is; waits until a request comes, the time comes, or the queue closes. False once it
    /// is closed and empty.
    pub(super) fn take(&self, into: &mut Vec<Request>, until: Option<Instant>) -> bool {
        let mut state = self.state();
        while state.requests.is_empty() && !state.closed {
            let wait = until.map(|until| until.saturating_duration_since(Instant::now()));
            state.writer = WriterState::Asleep;
            state = match wait {
                Some(wait) if wait.is_zero() => break,
                Some(wait) => self.wake.wait_timeout(state, wait).unwrap_or_else(PoisonError::into_inner).0,
                None => self.wake.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
        if !state.requests.is_empty() && state.can_wait() {
            state.writer = WriterState::Gathering;
            let gathering = |state: &mut State| state.writer == WriterState::Gathering && !state.closed;
            let waited = self.wake.wait_timeout_while(state, COMPANY_WAIT, gathering);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        state.writer = WriterState::Awake;
        std::mem::swap(&mut state.requests, into);
        !(state.closed && into.is_empty())
    }

    /// Refuses further requests. Those in the queue are still served.
    pub(super) fn close(&self) {
        self.state().closed = true;
        self.wake.notify_one();
    }

    /// How many requests wait.
    pub(super) fn waiting(&self) -> usize {
        self.state().requests.len()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The memory that bodies and envelopes may take on their way to the disk.
#[derive(Debug)]
pub(super) struct QueueMemory {
    kib: Semaphore,
    kib_max: u32,
}

impl QueueMemory {
    pub(super) fn new(bytes: usize) -> QueueMemory {
        let kib_max = u32::try_from(bytes / 1024).unwrap_or(u32::MAX).clamp(64, 1 << 22);
        QueueMemory { kib: Semaphore::new(kib_max as usize), kib_max }
    }

    /// Waits until there is room for this many bytes.
    pub(super) async fn enter(&self, bytes: usize) -> Result<(), SpoolError> {
        let permit = self.kib.acquire_many(self.share(bytes)).await.map_err(|_| SpoolError::Closed)?;
        permit.forget();
        Ok(())
    }

    /// Gives back what requests of these costs took.
    pub(super) fn leave(&self, costs: impl Iterator<Item = usize>) {
        self.kib.add_permits(costs.map(|bytes| self.share(bytes) as usize).sum());
    }

    pub(super) fn close(&self) {
        self.kib.close();
    }

    /// A request that is larger than all of the memory waits until it is alone.
    fn share(&self, bytes: usize) -> u32 {
        u32::try_from(bytes.div_ceil(1024)).unwrap_or(u32::MAX).min(self.kib_max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_inside_is_served_after_closing() {
        let queue = RequestQueue::default();
        queue.push(Request::Abandon(MessageId::of(1))).unwrap();
        queue.close();
        assert!(queue.push(Request::Abandon(MessageId::of(2))).is_err());
        let mut taken = Vec::new();
        assert!(queue.take(&mut taken, None));
        assert_eq!(taken.len(), 1);
        taken.clear();
        assert!(!queue.take(&mut taken, None));
    }

    #[test]
    fn marks_wait_for_company_and_nothing_else_does() {
        let queue = RequestQueue::default();
        let mut taken = Vec::new();
        std::thread::scope(|scope| {
            let push = |count: u128| (0..count).for_each(|n| queue.push(Request::Abandon(MessageId::of(n))).unwrap());
            push(1);
            scope.spawn(|| queue.take(&mut taken, None));
            // Whether they come before, while or after it waits, what they bring along is taken in the end.
            push(COMPANY_MAX as u128);
            queue.push(Request::Flush(oneshot::channel().0)).unwrap();
        });
        let mut rest = Vec::new();
        queue.close();
        queue.take(&mut rest, None);
        assert_eq!(taken.len() + rest.len(), COMPANY_MAX + 2);
    }

    #[test]
    fn a_deadline_in_the_past_does_not_wait() {
        let mut taken = Vec::new();
        assert!(RequestQueue::default().take(&mut taken, Some(Instant::now())));
        assert!(taken.is_empty());
    }

    #[tokio::test]
    async fn the_room_gives_back_exactly_what_it_lent() {
        let room = QueueMemory::new(128 * 1024);
        for bytes in [0, 1, 1024, 1025, 70_000, 9 << 20] {
            room.enter(bytes).await.unwrap();
            room.leave([bytes].into_iter());
            assert_eq!(room.kib.available_permits(), 128, "{bytes}");
        }
    }
}
