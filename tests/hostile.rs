//! Hostile clients attack the real binary while an honest one is served.
//!
//! Every test starts a gate, lets an honest user send all the time, attacks, and then checks three things: every honest mail was accepted
//! and arrived, the memory of the process stayed within a bound, and the attack ended as docs/hostile.md says. How long honest mail took is
//! printed but not checked. With `WEIR_HOSTILE=full` (in `make soak`) the attacks have ten thousand connections and a million recipients.

mod bombs;
mod cables;
pub(crate) mod crowd;
mod floods;
mod fuzz;
mod honest;
mod recipients;
mod slow;
mod smuggling;

/// The size of an attack: the full one in a soak, otherwise the short one.
pub(crate) fn full_or(full: usize, short: usize) -> usize {
    if std::env::var("WEIR_HOSTILE").is_ok_and(|size| size == "full") { full } else { short }
}
