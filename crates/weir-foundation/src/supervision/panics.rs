//! Remembers where a thread panicked last, so that the supervisor can log it when a task has ended.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind};
use std::pin::pin;
use std::task::Poll;

thread_local! {
    static LAST: RefCell<String> = const { RefCell::new(String::new()) };
}

/// From now on, logs every panic with its place, and remembers it. Call it once, early.
pub fn watch_panics() {
    std::panic::set_hook(Box::new(|info| {
        let text = describe(info);
        tracing::error!("panic: {text}");
        // Storing it fails only on a thread that is about to end, and then nobody will ask for it.
        let _ = LAST.try_with(|last| last.replace(text));
    }));
}

/// The last panic of this thread.
pub(super) fn last() -> String {
    LAST.with(|last| last.borrow().clone())
}

/// Runs the future to its end. The error is the text of a panic in it, and its place.
pub(super) async fn caught<F: Future>(future: F) -> Result<F::Output, String> {
    let mut future = pin!(future);
    poll_fn(move |context| match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context))) {
        Ok(polled) => polled.map(Ok),
        Err(_) => Poll::Ready(Err(format!("a panic: {}", last()))),
    })
    .await
}

fn describe(info: &PanicHookInfo<'_>) -> String {
    let said = info.payload_as_str().unwrap_or("a panic without words");
    match info.location() {
        Some(place) => format!("{said} (at {}:{})", place.file(), place.line()),
        None => said.to_owned(),
    }
}
