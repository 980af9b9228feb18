//! Messages to systemd, if it started Weir: that Weir is ready, that it stops, that it is alive (watchdog), and which sockets systemd
//! should keep.
//!
//! A socket in systemd's store stays open while `systemctl restart` stops one process and starts the next, so that nobody is refused. Without
//! systemd all of this does nothing.

use sd_notify::NotifyState;
use std::time::Duration;
use weir_foundation::sockets::{self, Address};

/// We take connections.
pub(crate) fn ready() {
    tell(&[NotifyState::Ready, NotifyState::Status("serving")]);
}

/// We take no more, and finish what is under way.
pub(crate) fn stopping() {
    tell(&[NotifyState::Stopping, NotifyState::Status("finishing what is under way")]);
}

/// The same, and then we start anew in the same process.
pub(crate) fn restarting() {
    let mut states = vec![NotifyState::Reloading, NotifyState::Status("restarting")];
    states.extend(NotifyState::monotonic_usec_now());
    tell(&states);
}

/// Says that we are alive, twice as often as systemd wants to hear it; nothing if it does not want to.
///
/// It runs as a task among the others: if they keep all threads busy for so long, we are no longer of use to anybody.
pub(crate) fn watchdog() -> Option<impl Future<Output = ()>> {
    let every = sd_notify::watchdog_enabled()? / 2;
    Some(async move {
        let mut ticks = tokio::time::interval(every.max(Duration::from_millis(10)));
        loop {
            ticks.tick().await;
            tell(&[NotifyState::Watchdog]);
        }
    })
}

/// Lets systemd keep the sockets that we listen on.
pub(crate) fn keep_sockets() {
    sockets::for_each(|address, socket| {
        let stored = [NotifyState::FdStore, NotifyState::FdName(&name(&address))];
        if let Err(error) = sd_notify::notify_with_fds(&stored, &[socket]) {
            tracing::debug!(%error, %address, "systemd does not keep a socket");
        }
    });
}

/// Nobody listens on this address any more.
pub(crate) fn forget(address: &Address) {
    tell(&[NotifyState::FdStoreRemove, NotifyState::FdName(&name(address))]);
}

/// Names of stored sockets hold no colon.
fn name(address: &Address) -> String {
    address.to_string().replace(':', "_")
}

fn tell(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!(%error, "systemd cannot be told how we are");
    }
}
