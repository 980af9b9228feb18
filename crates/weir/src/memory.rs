//! Gives memory back to the system after a peak of load.
//!
//! The allocator gives free pages back only while somebody allocates: after ten thousand clients have left at once, their memory would stay
//! allocated for as long as no new client comes. So every thread gives back what it has freed when it goes to sleep, at most once a second,
//! and every few seconds the whole process does. Unsafe code is allowed in this file for one call.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::time::{Duration, Instant};

const OFTEN: Duration = Duration::from_secs(1);
const RARELY: Duration = Duration::from_secs(5);

/// For a thread that goes to sleep: what it has freed becomes the process's.
pub(crate) fn before_sleep() {
    thread_local!(static LAST: Cell<Option<Instant>> = const { Cell::new(None) });
    let now = Instant::now();
    if LAST.get().is_none_or(|last| now.duration_since(last) >= OFTEN) {
        LAST.set(Some(now));
        collect(false);
    }
}

/// Gives the process's free memory back to the system now and then, for ever.
pub(crate) async fn give_back() {
    let mut tick = tokio::time::interval(RARELY);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        // It may walk through much memory: not on a thread that serves.
        let _ = tokio::task::spawn_blocking(|| collect(true)).await;
    }
}

fn collect(whole_process: bool) {
    // SAFETY: the allocator may be asked for this at any time from any thread; it touches free memory only.
    unsafe { libmimalloc_sys::mi_collect(whole_process) }
}
