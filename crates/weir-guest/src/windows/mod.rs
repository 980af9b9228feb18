//! Windows programs, run by Wine: this guest has a Windows that has started already, with a user and a screen (`guest/init-windows`).
//!
//! Three things are believed because a sample cannot forge them: what is laid over the read-only disk, the registry as Wine's server writes it
//! down, and what the internet in this guest was asked. Wine's trace tells the rest: who did it, and what it asked of Windows. It is written by the
//! sample's own processes, so that a hostile one can add lines or stop its own: it counts only against a sample.

mod command;
mod hive;
mod notes;
mod overlay;
mod pe;
mod run;
mod screen;
mod server;
mod trace_line;
mod tracing;

pub(crate) use overlay::on_disk;
pub(crate) use run::Windows;

/// Where samples are put.
pub(crate) const DOWNLOADS: &str = "/home/anna/.wine/drive_c/users/anna/Downloads";

/// Whether this is such a guest.
pub(crate) fn is_here() -> bool {
    std::path::Path::new("/run/weir/trace").exists()
}
