//! How the proxy is set up.

use std::path::PathBuf;
use std::sync::Arc;

use weir_tls::{NamedCertificates, Tls};

use super::backend::Backend;
use super::door_settings::DoorSettings;
use super::limits::Limits;
use super::listener::Listener;
use super::web_settings::WebSettings;
use crate::identity::Identities;
use crate::profile::tally::Tally;
use crate::route::Rule;

/// Everything that the proxy needs to know.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What applies to the whole gate.
    pub web: WebSettings,
    pub listeners: Vec<Listener>,
    /// The certificate, for listeners with TLS.
    pub tls: Option<Arc<Tls>>,
    /// Certificates from an authority, which asks for answers here; None if there are none.
    pub named: Option<Arc<NamedCertificates>>,
    pub identities: Identities,
    /// What clients may use.
    pub limits: Limits,
    /// The backends that do the work.
    pub backends: Vec<Backend>,
    /// Which requests go to which backend.
    pub rules: Vec<Rule>,
    /// Counts requests that found nobody waiting, for the history profile.
    pub tally: Option<Arc<Tally>>,
    /// Where bodies are buffered that are too large for memory; None if they may only be in memory.
    pub buffers: Option<PathBuf>,
    /// Where other proxies ask when their requests may go.
    pub door: DoorSettings,
}
