//! The honest user: sends all the time, and must never notice more than a delay.

use super::crowd::{resident_kib, resident_most_kib};
use crate::control::gate::{Client, Site, Up, wait_for};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub(super) const PASSWORD: &str = "honest to the bone";
const PAUSE: Duration = Duration::from_millis(25);

/// An honest user at work.
pub(super) struct Honest {
    stop: Arc<AtomicBool>,
    sending: JoinHandle<Vec<Duration>>,
    began_kib: u64,
}

impl Honest {
    /// Makes the user and lets it send, with a new connection and a login for every third mail.
    pub(super) fn begin(site: &Site, up: &Up) -> Honest {
        user(site, "honest");
        let (stop, address) = (Arc::new(AtomicBool::new(false)), up.plain.clone());
        let sending = std::thread::spawn({
            let stop = Arc::clone(&stop);
            move || send_until(&stop, &address)
        });
        Honest { stop, sending, began_kib: resident_kib(up.pid()) }
    }

    /// Whether it still sends. It stops early only if it is refused.
    pub(super) fn is_served(&self) -> bool {
        !self.sending.is_finished()
    }

    /// Stops it, and checks that every mail arrived and that memory was never above `most_mib`.
    #[track_caller]
    pub(super) fn end(self, site: &Site, up: &Up, attack: &str, most_mib: u64) {
        self.stop.store(true, Ordering::SeqCst);
        let mut times = self.sending.join().expect("every honest mail is accepted");
        times.sort();
        let at = |share: usize| times[(times.len() - 1) * share / 100].as_millis();
        let most_kib = resident_most_kib(up.pid());
        eprintln!(
            "{attack}: {} honest mails accepted, median {} ms, p95 {} ms, slowest {} ms; resident {} → at most {} KiB",
            times.len(),
            at(50),
            at(95),
            at(100),
            self.began_kib,
            most_kib
        );
        site.arrived("friend@localhost", times.len());
        assert!(most_kib < most_mib * 1024, "{most_kib} KiB in memory");
    }
}

/// Makes a user who may send as NAME@localhost.
pub(super) fn user(site: &Site, name: &str) {
    let address = format!("{name}@localhost");
    let add = ["user", "add", name, "--address", &address, "--password-stdin"];
    site.weir_with(&add, &format!("{PASSWORD}\n")).ok();
}

/// Makes a user whom the throttle does not limit, because these attacks are not about sending much mail.
pub(super) fn mallory(site: &Site) {
    user(site, "mallory");
    site.weir(&["user", "set", "mallory", "--profile", "exempt"]).ok();
}

fn send_until(stop: &AtomicBool, address: &str) -> Vec<Duration> {
    let mut times = Vec::new();
    let mut client = None;
    // A short attack ends before three mails were sent; the user must be served all the same.
    while !stop.load(Ordering::SeqCst) || times.len() < 3 {
        let begun = Instant::now();
        if times.len() % 3 == 0 {
            client = None;
        }
        // "Try again" is an answer that every client understands, but trying again must succeed in the end.
        let mut connected = client.take().unwrap_or_else(|| {
            wait_for("the honest user to be let in", || Client::login_now(address, "honest", PASSWORD))
        });
        let reply = connected.mail("honest@localhost", &["friend@localhost"], "how are you");
        assert!(reply.contains("accepted, on its way to 1 recipient"), "{reply}");
        times.push(begun.elapsed());
        client = Some(connected);
        std::thread::sleep(PAUSE);
    }
    times
}
