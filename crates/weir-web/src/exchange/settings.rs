//! The sections `[web.exchange]` and `[web.history]`: what the front-ends of a cluster share.

use super::nats::{NatsSettings, NatsUrl, is_subject};
use super::relay::RelaySettings;
use super::service::{Learning, Settings};
use crate::identity::Secret;
use std::path::PathBuf;
use std::time::Duration;
use weir_settings::{Section, settings};

settings! {
    /// How the front-ends of a cluster tell each other who was served
    #[section("web.exchange")]
    #[check(ExchangeSettings::check)]
    pub struct ExchangeSettings {
        /// This front-end's own name in the cluster; empty for the machine's name and data folder
        pub name: Option<String> = text("", "a name").optional(),
        /// Hitservers, as host:port; frames go to all of them
        pub relays: Vec<String> = list([], 8, "addresses"),
        /// The key that front-ends and hitservers share; empty for the cluster's secret
        pub relay_key_file: Option<PathBuf> = path().optional(),
        /// NATS servers, as nats://user:password@host:port or tls://…
        pub nats: Vec<NatsUrl> = list([], 8, "URLs"),
        /// The NATS subject of this cluster
        pub nats_subject: String = text("weir.exchange", "a subject").valid(subject),
        /// Certificates to trust for tls://, as PEM; empty for the system's
        pub nats_ca_file: Option<PathBuf> = path().optional(),
        /// How often news goes out
        pub period: Duration = duration("5ms", "2ms"..="10ms"),
        /// Most other front-ends that are listened to
        pub peers: u8 = count(64, 1..=255),
    }
}

settings! {
    /// How much each subnet has asked for in the past, which decides its share under load
    #[section("web.history")]
    pub struct HistorySettings {
        /// The history document (`weir web learn` makes one); empty for web/history.json in the data folder
        pub file: Option<PathBuf> = path().optional(),
        /// Whether requests that did not have to wait are counted for it
        pub learn: bool = flag(true),
        pub learning: Learning = part(),
    }
}

impl ExchangeSettings {
    fn check(&self, section: &mut Section<'_, '_>) {
        for relay in self.relays.iter().filter(|relay| !is_place(relay)) {
            let hint = "write \"hitserver.example:2490\" or \"[::1]:2490\"";
            section.blame("relays", format!("{relay:?} is not host:port"), hint);
        }
    }

    /// Whether there are other front-ends.
    pub fn is_shared(&self) -> bool {
        !self.relays.is_empty() || !self.nats.is_empty()
    }

    /// The exchange of a front-end with this name, unless another name was configured.
    pub fn settings(&self, own_name: &str, secret: Secret, relay_key: &Secret) -> Settings {
        let relay = |address: &String| RelaySettings { address: address.clone(), key: relay_key.clone() };
        let nats = |url: &NatsUrl| NatsSettings {
            url: url.clone(),
            subject: self.nats_subject.clone(),
            ca_file: self.nats_ca_file.clone(),
        };
        Settings {
            relays: self.relays.iter().map(relay).collect(),
            nats: self.nats.iter().map(nats).collect(),
            period: self.period,
            peers_max: self.peers.into(),
            ..Settings::new(self.name.as_deref().unwrap_or(own_name), secret)
        }
    }
}

fn subject(text: &str) -> Result<(), String> {
    if is_subject(text) { Ok(()) } else { Err(format!("{text:?} is not a subject: write words with dots between")) }
}

fn is_place(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else { return false };
    let bracketed = host.starts_with('[') && host.ends_with(']');
    let sound = !host.is_empty() && !host.contains([' ', '/']) && (bracketed || !host.contains(':'));
    sound && port.parse::<u16>().is_ok_and(|port| port > 0)
}
