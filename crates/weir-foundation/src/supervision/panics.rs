//! Remembers where a thread panicked last, so that the supervisor can log it when a task has ended.

use std::cell::RefCell;
use std::panic::PanicHookInfo;

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

fn describe(info: &PanicHookInfo<'_>) -> String {
    let said = info.payload_as_str().unwrap_or("a panic without words");
    match info.location() {
        Some(place) => format!("{said} (at {}:{})", place.file(), place.line()),
        None => said.to_owned(),
    }
}
