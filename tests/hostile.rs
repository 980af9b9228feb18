//! Hostile clients against the real binary, while an honest one is being served.
//!
//! Every test starts a gate, lets an honest user send all the while, attacks, and then demands three things: every honest
//! mail was accepted and arrived, the process's memory stayed within a bound, and the attack got what docs/hostile.md
//! says. How long honest mail took is printed, never demanded. `WEIR_HOSTILE=full` (as `make soak` has it) attacks with ten
//! thousand connections and a million recipients.

mod bombs;
mod cables;
pub(crate) mod crowd;
mod floods;
mod fuzz;
mod honest;
mod recipients;
mod slow;
mod smuggling;

/// The size of an attack: the full one in soak, a short one otherwise.
pub(crate) fn full_or(full: usize, short: usize) -> usize {
    if std::env::var("WEIR_HOSTILE").is_ok_and(|size| size == "full") { full } else { short }
}
