//! The settings of delivery in the form that the code uses.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::dsn::ReportSettings;
use super::next_hops::NextHops;
use super::queue::QueueSettings;
use super::resolver::{Dns, Ourselves};
use super::route::{Route, Routes};
use weir_smtp::dkim::Keyring;

/// How delivery behaves.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Our name, as we say it to other servers.
    pub hostname: Arc<str>,
    /// Where mail goes.
    pub routes: Routes,
    /// Concurrency, retries, lifetimes.
    pub queue: QueueSettings,
    /// How sessions are kept.
    pub keep: Keep,
    /// The DNS.
    pub dns: Dns,
    /// Whether what the DNS says of servers' certificates counts (DANE), where the name server can be believed.
    pub dane: bool,
    /// Whether the name server can be believed although it is not on this machine.
    pub dns_trusted: bool,
    /// The port at which policies of domains are asked for (MTA-STS); none if they are not.
    pub sts_port: Option<u16>,
    /// Who we are, so that mail does not come back to us.
    pub ourselves: Ourselves,
    /// Root certificates in place of the machine's.
    pub roots: Option<PathBuf>,
    /// Reports to senders.
    pub reports: ReportSettings,
    /// Keys to sign with.
    pub keyring: Keyring,
    /// Where it is noted how next hops behave, by all who speak to them.
    pub next_hops: Arc<NextHops>,
}

/// How sessions are kept for the next message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Keep {
    /// The most messages of a session. Default 1000.
    pub messages_max: u32,
    /// How old a session gets. Default 5 min.
    pub lifetime: Duration,
    /// How long it is kept without work. Default 5 s.
    pub idle: Duration,
    /// The most sessions without work. Default 50.
    pub idle_max: usize,
}

impl Default for Keep {
    fn default() -> Keep {
        let (lifetime, idle) = (Duration::from_secs(300), Duration::from_secs(5));
        Keep { messages_max: 1000, lifetime, idle, idle_max: 50 }
    }
}

impl Settings {
    /// The defaults for a server of this name: everything goes into Maildirs in `folder`.
    pub fn new(hostname: &str, folder: PathBuf) -> Settings {
        let hostname: Arc<str> = hostname.into();
        let postmaster = format!("postmaster@{hostname}");
        Settings {
            routes: Routes::new(Route::Maildir(folder)),
            queue: QueueSettings::default(),
            keep: Keep::default(),
            dns: Dns::System,
            dane: true,
            dns_trusted: false,
            sts_port: Some(443),
            ourselves: Ourselves { names: vec![hostname.to_string()], ..Ourselves::default() },
            roots: None,
            reports: ReportSettings { hostname: Arc::clone(&hostname), postmaster, returned_max: 64 << 10 },
            keyring: Keyring::default(),
            next_hops: Arc::default(),
            hostname,
        }
    }
}
