//! Bans that survive the process: the banned addresses are written to the records a few seconds later.
//!
//! A relay keeps one value for each server. It is rewritten as a whole when a ban is added or lifted, and once after the start, which
//! removes what has expired. A kill loses the bans of the last seconds, but an attacker who goes on is soon banned again. Bound:
//! [`KEPT_MAX`] addresses, those that are remembered longest, about a megabyte. Failures that have brought no ban yet are not kept.

use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use weir_core::time::Instant;
use weir_foundation::Foundation;
use weir_foundation::clock::Clock;
use weir_foundation::clock::wall_clock;
use weir_smtp::address_key::AddressKey;
use weir_smtp::ban::Offender;
use weir_smtp::reception::Reception;
use weir_smtp::registry::Registry;
use weir_smtp::server::SmtpServer;
use weir_store::records::{RecordsError, ValueRecords};

/// Addresses that are kept; the server itself may remember more.
const KEPT_MAX: usize = 10_000;
/// How long a change waits to be written, and how often it is looked for one.
const BEHIND: Duration = Duration::from_secs(10);

/// The bans of one server, and where they are kept.
#[derive(Clone)]
pub(super) struct KeptBans {
    registry: Arc<Registry>,
    /// The server's time.
    time: Clock,
    /// Everybody's time.
    wall_clock: Clock,
    values: ValueRecords,
    relay: String,
    /// Under which name.
    name: &'static str,
}

/// An address that has been banned, as it is written down. Times are milliseconds since the Unix epoch.
#[derive(Serialize, Deserialize)]
struct StoredBan {
    address: IpAddr,
    offences: u32,
    banned_until: u64,
    forgotten_at: u64,
}

impl KeptBans {
    /// Those of `server`, under `name`, taken up from the last life.
    pub(super) async fn open<R: Reception>(
        server: &SmtpServer<R>,
        name: &'static str,
        foundation: &Foundation,
    ) -> KeptBans {
        let bans = KeptBans {
            registry: Arc::clone(server.registry()),
            time: server.clock(),
            wall_clock: Arc::new(wall_clock),
            values: foundation.records.values(),
            relay: foundation.relay.clone(),
            name,
        };
        bans.take_up().await;
        bans
    }

    /// Keeps what changes, until the task is dropped.
    pub(super) async fn run(self) {
        let mut written = None;
        loop {
            tokio::time::sleep(BEHIND).await;
            let changes = self.registry.ban_changes();
            if written != Some(changes) && self.write().await {
                written = Some(changes);
            }
        }
    }

    /// Keeps what is to be kept, at the end.
    pub(super) async fn close(&self) {
        if self.registry.ban_changes() > 0 {
            self.write().await;
        }
    }

    async fn take_up(&self) {
        let kept = match self.read().await {
            Ok(kept) => kept,
            Err(error) => {
                tracing::warn!(%error, name = self.name, "bans of addresses are not taken up");
                return;
            }
        };
        let (time, now) = ((self.time)(), (self.wall_clock)());
        for kept in kept.into_iter().take(KEPT_MAX) {
            self.registry.take_up(kept.offender(now), time);
        }
    }

    async fn read(&self) -> Result<Vec<StoredBan>, RecordsError> {
        let text = self.values.get(&self.relay, self.name).await?.unwrap_or_else(|| "[]".to_owned());
        serde_json::from_str(&text).map_err(|error| RecordsError::Corrupt(error.to_string()))
    }

    /// Whether it could be written.
    async fn write(&self) -> bool {
        let (time, now) = ((self.time)(), (self.wall_clock)());
        let offenders = self.registry.offenders(KEPT_MAX, time);
        let kept: Vec<StoredBan> = offenders.iter().map(|offender| StoredBan::new(offender, now)).collect();
        let text = serde_json::to_string(&kept).unwrap_or_else(|_| "[]".to_owned());
        let written = self.values.set(&self.relay, self.name, &text).await;
        if let Err(error) = &written {
            tracing::warn!(%error, name = self.name, "bans of addresses are not written; a restart would forget them");
        }
        written.is_ok()
    }
}

impl StoredBan {
    fn new(offender: &Offender, now: Instant) -> StoredBan {
        let in_ms = |after: Duration| (now + after).0 / 1_000_000;
        StoredBan {
            address: offender.address.address(),
            offences: offender.offences,
            banned_until: in_ms(offender.banned),
            forgotten_at: in_ms(offender.remembered),
        }
    }

    fn offender(&self, now: Instant) -> Offender {
        let left = |until_ms: u64| Instant(until_ms.saturating_mul(1_000_000)).since(now);
        Offender {
            // Whole: the registry cuts it to the prefix that counts.
            address: AddressKey::new(self.address, 128),
            offences: self.offences,
            banned: left(self.banned_until),
            remembered: left(self.forgotten_at),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_smtp::limits::SmtpLimits;
    use weir_smtp::settings::Purpose;
    use weir_store::records::Records;

    const SECOND: u64 = 1_000_000_000;

    /// A life of a server that began `began_s` after the epoch and is `age_s` old.
    fn life(values: &ValueRecords, began_s: u64, age_s: u64) -> KeptBans {
        let limits = SmtpLimits { failed_logins_per_address: 3, ..SmtpLimits::default() };
        KeptBans {
            registry: Registry::new(limits, Purpose::Submission),
            time: Arc::new(move || Instant(age_s * SECOND)),
            wall_clock: Arc::new(move || Instant((began_s + age_s) * SECOND)),
            values: values.clone(),
            relay: "r1".to_owned(),
            name: "bans.submission",
        }
    }

    fn offend(bans: &KeptBans, address: IpAddr) -> Option<Duration> {
        let offend = |guess: u32| bans.registry.offended(address, guess, (bans.time)());
        (0..3).find_map(offend).map(|ban| ban.length)
    }

    #[tokio::test]
    async fn a_restart_pardons_nobody() {
        let home = tempfile::tempdir().unwrap();
        let values = Records::sqlite(&home.path().join("records.db")).await.unwrap().values();
        let four: IpAddr = "192.0.2.9".parse().unwrap();
        let six: IpAddr = "2001:db8::5:1".parse().unwrap();
        let first = SmtpLimits::default().ban_first;

        let bans = life(&values, 1_000_000, 50);
        bans.take_up().await;
        assert_eq!((offend(&bans, four), offend(&bans, six)), (Some(first), Some(first)));
        bans.close().await;

        // A minute later: banned still, with a minute less; a neighbour in the same prefix too.
        let bans = life(&values, 1_000_110, 0);
        bans.take_up().await;
        let left = first - Duration::from_secs(60);
        let neighbour = "2001:db8::7".parse().unwrap();
        for address in [four, six, neighbour] {
            assert_eq!(bans.registry.banned(address, Instant::ZERO), Some(left), "{address}");
        }
        assert_eq!(bans.registry.ban_changes(), 0, "nothing to write yet");
        assert!(bans.registry.pardon(four));
        bans.close().await;

        // When the ban is over its offence counts, and a pardon holds.
        let later = 1_000_050 + first.as_secs();
        let bans = life(&values, later, 0);
        bans.take_up().await;
        assert_eq!(bans.registry.banned(six, Instant::ZERO), None);
        assert_eq!((offend(&bans, six), offend(&bans, four)), (Some(first * 2), Some(first)));

        // Long after it everything is forgotten, and the next write leaves nothing.
        let bans = life(&values, later + SmtpLimits::default().ban_longest.as_secs() * 2, 0);
        bans.take_up().await;
        assert!(bans.write().await);
        assert_eq!(values.get("r1", "bans.submission").await.unwrap().as_deref(), Some("[]"));
    }

    #[tokio::test]
    async fn what_no_weir_wrote_is_not_taken_up() {
        let home = tempfile::tempdir().unwrap();
        let values = Records::sqlite(&home.path().join("records.db")).await.unwrap().values();
        values.set("r1", "bans.submission", "{\"address\": 7}").await.unwrap();
        let bans = life(&values, 1_000_000, 0);
        bans.take_up().await;
        assert_eq!(bans.registry.offenders(9, Instant::ZERO), []);
    }
}
