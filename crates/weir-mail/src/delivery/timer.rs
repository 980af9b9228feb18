//! The timer task of delivery: wakes at deadlines, hands out what has become due, and writes a few reports at a time.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use weir_store::diary::DiaryLine;

use super::dsn::{Returned, compose};
use super::ledger::{Ledger, LedgerError};
use super::pool::Pool;
use super::queue::{DueTask, SenderReport, Settlement};
use super::worker::note_outcomes;

/// Reports that are written at once.
const REPORTS_MAX: usize = 8;
/// The timer looks up at least this often: the clock may have been set.
const NAP_MAX: Duration = Duration::from_secs(60);

/// How soon a ledger that is behind is looked at again.
const LEDGER_NAP: Duration = Duration::from_millis(2);

/// Works until delivery stops.
pub(super) async fn run<L: Ledger>(pool: Arc<Pool<L>>) {
    let slots = Arc::new(Semaphore::new(REPORTS_MAX));
    let mut stopped = pool.stopped();
    while !*stopped.borrow_and_update() {
        run_due_tasks(&pool, &slots);
        pool.dispatch();
        let nap = nap(&pool, slots.available_permits() > 0);
        tokio::select! {
            () = tokio::time::sleep(nap) => {}
            () = pool.wake_timer.notified() => {}
            _ = stopped.changed() => {}
        }
    }
}

fn run_due_tasks<L: Ledger>(pool: &Arc<Pool<L>>, slots: &Arc<Semaphore>) {
    // A free slot for a report comes first: a task that was taken must be carried out.
    while let Ok(slot) = Arc::clone(slots).try_acquire_owned()
        && let Some(task) = take_due_task(pool)
    {
        match task {
            DueTask::Settle(settlement) => pool.write_down(&settlement),
            DueTask::Report(report) => {
                let shared = Arc::clone(pool);
                pool.spawn(async move {
                    tell(&shared, &report).await;
                    drop(slot);
                    shared.wake_timer.notify_one();
                });
            }
        }
    }
}

fn take_due_task<L: Ledger>(pool: &Pool<L>) -> Option<DueTask> {
    let now = pool.now();
    pool.state().queue.due_task(now)
}

/// How long there is nothing to do; without a free slot for a report, tasks do not count.
fn nap<L: Ledger>(pool: &Pool<L>, slot: bool) -> Duration {
    let now = pool.now();
    let mut state = pool.state();
    state.tasks_wait = !slot;
    let deadline = state.next_deadline();
    state.asleep_until = deadline;
    if state.waits_for_ledger { LEDGER_NAP } else { deadline.since(now).min(NAP_MAX) }
}

/// Tells a sender what happened, and writes down that it was told.
async fn tell<L: Ledger>(pool: &Arc<Pool<L>>, report: &SenderReport) {
    let posted = post(pool, report).await;
    if posted.is_ok() {
        note_expired(pool, report);
    }
    if let Err(error) = &posted {
        tracing::error!(message = %report.message.id, %error, "a report to the sender could not be made; it is tried again");
    }
    let now = pool.now();
    let settlement: Option<Settlement> = pool.state().queue.reported(report, posted.is_ok(), now);
    settlement.iter().for_each(|settlement| pool.write_down(settlement));
}

/// The last line about recipients whose time is over was that of an attempt, after which another could follow.
fn note_expired<L: Ledger>(pool: &Pool<L>, report: &SenderReport) {
    let expired = report.recipients.iter().filter(|told| told.outcome.is_expired());
    note_outcomes(&pool.ledger, &report.message, expired.map(|told| (told.place, &*told.outcome)));
}

async fn post<L: Ledger>(pool: &Arc<Pool<L>>, report: &SenderReport) -> Result<(), LedgerError> {
    let body = pool.ledger.body(report.message.id);
    let returned = Returned::read(report, &pool.reports, body).await;
    let Some(mail) = compose(report, &pool.reports, &returned, pool.now()) else { return Ok(()) };
    let job = pool.ledger.post(mail).await?;
    tracing::info!(message = %report.message.id, kind = ?report.kind, "the sender is told");
    let text = format!("the sender is told: {:?}", report.kind).to_lowercase();
    pool.ledger.note(DiaryLine::new(report.message.id, "report", text));
    if let Some(job) = job {
        pool.enqueue(job);
    }
    Ok(())
}
