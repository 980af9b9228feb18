//! Messages to systemd, if it started Weir: that Weir is ready, that it is stopping, that it is alive (watchdog), and which sockets systemd
//! should keep.
//!
//! systemd keeps these sockets open while `systemctl restart` stops one process and starts the next, so that no client is refused. Without
//! systemd, all of this does nothing.

use sd_notify::NotifyState;
use std::time::Duration;
use weir_foundation::sockets::{self, Address};

/// Says that we accept connections.
pub(crate) fn ready() {
    tell(&[NotifyState::Ready, NotifyState::Status("serving")]);
}

/// Says that we accept no more connections, and finish what is under way.
pub(crate) fn stopping() {
    tell(&[NotifyState::Stopping, NotifyState::Status("finishing what is under way")]);
}

/// The same, but then we start again in the same process.
pub(crate) fn restarting() {
    let mut states = vec![NotifyState::Reloading, NotifyState::Status("restarting")];
    states.extend(NotifyState::monotonic_usec_now());
    tell(&states);
}

/// Says that we are alive, twice as often as systemd demands it; none if it does not.
///
/// This is a task like all others. If they keep all threads busy for too long, Weir is of no use, and systemd should restart it.
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

/// Lets systemd close the socket for this address, because no gate listens there any more.
pub(crate) fn forget(address: &Address) {
    tell(&[NotifyState::FdStoreRemove, NotifyState::FdName(&name(address))]);
}

/// A name for systemd, which must not contain a colon.
fn name(address: &Address) -> String {
    address.to_string().replace(':', "_")
}

fn tell(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!(%error, "systemd cannot be told how we are");
    }
}
