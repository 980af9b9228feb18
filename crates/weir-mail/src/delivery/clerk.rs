//! The clerk: wakes for deadlines, hands out what has become due, and writes reports, a few at a time.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;

use super::dsn::{Returned, compose};
use super::ledger::{Ledger, LedgerError};
use super::office::Office;
use super::queue::{Errand, Report, Settlement};

/// Reports that are written at once.
const REPORTS_MAX: usize = 8;
/// The clerk looks up at least this often: the clock may have been set.
const NAP_MAX: Duration = Duration::from_secs(60);

/// How soon a ledger that is behind is looked at again.
const LEDGER_NAP: Duration = Duration::from_millis(2);

/// Works until delivery stops.
pub(super) async fn run<L: Ledger>(office: Arc<Office<L>>) {
    let desks = Arc::new(Semaphore::new(REPORTS_MAX));
    let mut stopped = office.stopped();
    while !*stopped.borrow_and_update() {
        run_errands(&office, &desks);
        office.dispatch();
        let nap = nap(&office, desks.available_permits() > 0);
        tokio::select! {
            () = tokio::time::sleep(nap) => {}
            () = office.bell.notified() => {}
            _ = stopped.changed() => {}
        }
    }
}

fn run_errands<L: Ledger>(office: &Arc<Office<L>>, desks: &Arc<Semaphore>) {
    // A place at a desk comes first: an errand that was taken must be carried out.
    while let Ok(desk) = Arc::clone(desks).try_acquire_owned()
        && let Some(errand) = take_errand(office)
    {
        match errand {
            Errand::Settle(settlement) => office.write_down(&settlement),
            Errand::Report(report) => {
                let shared = Arc::clone(office);
                office.spawn(async move {
                    tell(&shared, &report).await;
                    drop(desk);
                    shared.bell.notify_one();
                });
            }
        }
    }
}

fn take_errand<L: Ledger>(office: &Office<L>) -> Option<Errand> {
    let now = office.now();
    office.state().queue.errand(now)
}

/// How long there is nothing to do; without a free desk errands do not count.
fn nap<L: Ledger>(office: &Office<L>, desk: bool) -> Duration {
    let now = office.now();
    let mut state = office.state();
    state.errands_wait = !desk;
    let deadline = state.next_deadline();
    state.asleep_until = deadline;
    if state.waits_for_ledger { LEDGER_NAP } else { deadline.since(now).min(NAP_MAX) }
}

/// Tells a sender what happened, and writes down that it was told.
async fn tell<L: Ledger>(office: &Arc<Office<L>>, report: &Report) {
    let posted = post(office, report).await;
    if let Err(error) = &posted {
        tracing::error!(message = %report.message.id, %error, "a report to the sender could not be made; it is tried again");
    }
    let now = office.now();
    let settlement: Option<Settlement> = office.state().queue.reported(report, posted.is_ok(), now);
    settlement.iter().for_each(|settlement| office.write_down(settlement));
}

async fn post<L: Ledger>(office: &Arc<Office<L>>, report: &Report) -> Result<(), LedgerError> {
    let body = office.ledger.body(report.message.id);
    let returned = Returned::read(report, &office.reports, body).await;
    let Some(mail) = compose(report, &office.reports, &returned, office.now()) else { return Ok(()) };
    let job = office.ledger.post(mail).await?;
    tracing::info!(message = %report.message.id, kind = ?report.kind, "the sender is told");
    if let Some(job) = job {
        office.enqueue(job);
    }
    Ok(())
}
