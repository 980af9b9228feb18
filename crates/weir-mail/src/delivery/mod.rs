//! Delivery: mail on its way out.
//!
//! [`queue::Queue`] knows what has to be delivered, and [`scheduler::Scheduler`] decides what is next; both do no I/O.
//! [`transport::Transport`] carries one delivery out over SMTP, LMTP or into a Maildir. [`Delivery`] is the shell: a worker for each
//! delivery under way, which goes on with the next one for its destination without giving its connection up, and one timer, which wakes for
//! deadlines and writes reports. What must survive is in the [`ledger::Ledger`], written before the next delivery begins; the queue itself
//! is in memory and rebuilt from the ledger at start. docs/delivery.md explains the rules.

mod conversion;
mod delivery_settings;
pub mod dsn;
pub mod failure_cache;
pub mod ledger;
pub mod maildir;
pub mod message;
pub mod names;
pub mod next_hops;
mod pool;
mod preparation;
pub mod progress;
pub mod protection;
pub mod queue;
mod replaced;
pub mod resolver;
pub mod retry;
pub mod route;
mod route_rule;
pub mod scheduler;
pub mod settings;
pub mod slots;
pub mod spool_ledger;
mod timer;
pub mod transport;
pub mod window;
mod worker;

pub use self::delivery_settings::{DeliverySettings, Way};
pub use self::route_rule::{DomainRule, MailServer, RouteRule, RuleWay};

use std::sync::Arc;
use std::time::Duration;

use self::ledger::Ledger;
use self::message::Job;
use self::next_hops::NextHopsView;
use self::pool::Pool;
use self::protection::sts::Sts;
use self::protection::{Protection, SecureDns};
use self::queue::{Listing, QueueStats, Selection};
use self::resolver::{MailResolver, ResolverError};
use self::settings::Settings;
use self::transport::Transport;
use weir_smtp::client::tls::{ClientTls, ClientTlsError, TlsLevel};
use weir_store::spool::MessageId;

use weir_foundation::clock::Clock;
use weir_foundation::supervision;
use weir_smtp::dkim::Keyring;

/// A handle on delivery. Cheap to clone; deliveries go on until [`Delivery::shutdown`].
#[derive(Debug)]
pub struct Delivery<L: Ledger> {
    pool: Arc<Pool<L>>,
}

impl<L: Ledger> Clone for Delivery<L> {
    fn clone(&self) -> Delivery<L> {
        Delivery { pool: Arc::clone(&self.pool) }
    }
}

/// What is asked about the servers of domains.
fn protection(settings: &Settings, tls: &ClientTls) -> Result<Protection, StartError> {
    let dane = SecureDns::of(&settings.dns, settings.dns_trusted).filter(|_| settings.dane);
    let policies = |port| -> Result<Sts, StartError> {
        Ok(Sts::new(resolver::resolver(&settings.dns)?, tls.config(TlsLevel::Verified), port))
    };
    Ok(Protection { dane, sts: settings.sts_port.map(policies).transpose()? })
}

impl<L: Ledger> Delivery<L> {
    /// Starts delivering. Must be called within a tokio runtime. The clock counts from the Unix epoch.
    pub fn start(settings: Settings, ledger: L, clock: Clock) -> Result<Delivery<L>, StartError> {
        let tls = ClientTls::new(settings.roots.as_deref())?;
        let protection = protection(&settings, &tls)?;
        let resolver = MailResolver::new(&settings.dns, settings.ourselves)?;
        let transport = Transport::new(settings.routes, resolver, tls, settings.hostname, settings.keyring);
        let transport = transport.protected(protection).noting(settings.next_hops);
        let pool = Pool::new(settings.queue, settings.keep, settings.reports, transport, ledger, clock, worker::start);
        let pool = Arc::new(pool);
        pool.spawn(supervision::watched("delivery", timer::run(Arc::clone(&pool))));
        Ok(Delivery { pool })
    }

    /// Takes over a message that is safe in the ledger. Does not wait.
    pub fn enqueue(&self, job: impl Into<Job>) {
        self.pool.enqueue(job.into());
    }

    /// Takes over many at once, as at start.
    pub fn enqueue_all(&self, jobs: impl IntoIterator<Item = Job>) {
        jobs.into_iter().for_each(|job| self.pool.enqueue(job));
    }

    /// Messages in the queue, oldest first.
    pub fn list(&self, selection: &Selection, skip: usize, most: usize) -> Listing {
        self.pool.state().queue.list(selection, skip, most)
    }

    /// Lets messages be tried at once; which there were.
    pub fn retry(&self, selection: &Selection) -> Vec<MessageId> {
        let found = self.pool.state().queue.retry(selection);
        self.pool.dispatch();
        found
    }

    /// Deletes messages without telling their senders; which there were, each with how many of its recipients did not have it.
    pub fn delete(&self, selection: &Selection) -> Vec<(MessageId, usize)> {
        self.pool.delete(selection)
    }

    /// Figures.
    pub fn stats(&self) -> DeliveryStats {
        self.pool.stats()
    }

    /// What is known of the next hops that the configuration names.
    pub fn next_hops(&self) -> NextHopsView {
        self.pool.transport.next_hops()
    }

    /// Signs with these keys from now on.
    pub fn set_keyring(&self, keyring: Keyring) {
        self.pool.transport.set_keyring(keyring);
    }

    /// Begins nothing new, waits so long for what is under way, and breaks the rest off. What was broken off is still in
    /// the ledger. Whether everything ended in time.
    pub async fn shutdown(&self, patience: Duration) -> bool {
        self.pool.shutdown(patience).await
    }
}

/// Figures of delivery.
#[derive(Clone, PartialEq, Eq, Debug, Default, serde::Serialize)]
pub struct DeliveryStats {
    /// The queue.
    #[serde(flatten)]
    pub queue: QueueStats,
    /// Sessions that are kept without work.
    pub sessions_idle: usize,
    /// Sessions opened since the start.
    pub sessions_opened: u64,
}

/// Why delivery does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The DNS.
    #[error(transparent)]
    Resolver(#[from] ResolverError),
    /// TLS.
    #[error(transparent)]
    Tls(#[from] ClientTlsError),
}
