//! Builds and starts the web gate from the section `[web]`.

use super::key_file::{read_key, secret};
use super::machine_name;
use super::web_exchange::join;
use crate::config::Config;
use anyhow::Context;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::net::TcpListener;
use weir_acme::ChallengeKind;
use weir_foundation::supervision;
use weir_store::folder::DataFolder;
use weir_tls::{CHALLENGE_PROTOCOL, CertificateFiles, NamedCertificates, Tls};
use weir_web::admission::Slots;
use weir_web::builtin;
use weir_web::identity::Identities;
use weir_web::proxy::{Backend, BackendRule, Gate, Settings};

/// How often the certificate's files are checked for changes.
const CERTIFICATE_LOOK: Duration = Duration::from_secs(60);
/// The name of the backend that `weir up --demo` brings along.
pub(super) const BUILTIN: &str = "builtin";

/// Starts the web gate, if it is enabled and has a backend. With `demo`, it gets the built-in backend.
pub(crate) async fn web_gate(
    config: &Config,
    data: &DataFolder,
    named: &Arc<NamedCertificates>,
    demo: bool,
) -> anyhow::Result<Option<Arc<Gate>>> {
    let web = &config.web;
    if !web.enabled || (web.backends.is_empty() && !demo) {
        return Ok(None);
    }
    let tls = certificate(config, data.path(), named)?;
    let backends = backends(config).await?;
    let identities = identities(config, data.path())?;
    let secure = Secure { tls, named: Some(Arc::clone(named)) };
    let settings = settings(config, secure, identities, backends, data.path())?;
    let gate = Gate::start(settings).context("the web gate cannot start")?;
    join(config, data, &gate).context("the exchange of the web gate cannot start")?;
    let gate = Arc::new(gate);
    supervision::spawn("web certificate", watch_certificate(Arc::downgrade(&gate)));
    Ok(Some(gate))
}

/// Reloads the gate's current certificate when its files change, for as long as the gate exists.
async fn watch_certificate(gate: Weak<Gate>) {
    let mut complaint = String::new();
    loop {
        tokio::time::sleep(CERTIFICATE_LOOK).await;
        let Some(gate) = gate.upgrade() else { return };
        let Some(tls) = gate.settings().tls else { continue };
        drop(gate);
        match tokio::task::spawn_blocking(move || tls.reload_if_changed()).await {
            Ok(Ok(true)) => tracing::info!("the web gate's certificate was renewed"),
            Ok(Ok(false)) => {}
            Ok(Err(error)) if error.to_string() == complaint => {}
            Ok(Err(error)) => {
                tracing::warn!(%error, "the web gate's new certificate cannot be used; the old one stays");
                complaint = error.to_string();
            }
            Err(_) => return,
        }
    }
}

/// The certificates of the gate.
pub(super) struct Secure {
    pub(super) tls: Option<Arc<Tls>>,
    pub(super) named: Option<Arc<NamedCertificates>>,
}

/// The settings of the gate.
pub(super) fn settings(
    config: &Config,
    secure: Secure,
    identities: Identities,
    backends: Vec<Backend>,
    data: &Path,
) -> anyhow::Result<Settings> {
    let web = config.web.clone();
    let buffers = data.join("web").join("buffers");
    std::fs::create_dir_all(&buffers).with_context(|| format!("{} cannot be made", buffers.display()))?;
    Ok(Settings {
        listeners: web.listeners(config.web_identity.proxy_protocol),
        rules: web.rules(&backends),
        web,
        tls: secure.tls,
        named: secure.named,
        identities,
        limits: config.web_limits.clone(),
        backends,
        tally: config.web_history.learn.then(Arc::default),
        buffers: Some(buffers),
        door: config.web_forward_auth.clone(),
    })
}

/// The certificates for TLS; none if the gate has no TLS listener.
pub(super) fn certificate(
    config: &Config,
    data: &Path,
    named: &Arc<NamedCertificates>,
) -> anyhow::Result<Option<Arc<Tls>>> {
    let web = &config.web;
    if web.listen_tls.is_empty() {
        return Ok(None);
    }
    let first = match web.certificate() {
        None => CertificateFiles::self_signed(&data.join("web"), &[machine_name(), "localhost".to_owned()])?,
        Some(files) => files,
    };
    let others = web.certificates.iter().map(|rule| rule.0.clone()).collect();
    let tls = Tls::load_all(first, others)?;
    let own = config.certificates.names.first().filter(|_| web.certificate.is_none());
    let tls = tls.with_names(Arc::clone(named), own.map(String::as_str));
    // The authority's own protocol is offered only if certificates are obtained with it.
    let asks = config.certificates.is_on() && config.certificates.challenge == ChallengeKind::TlsAlpn;
    let protocols: &[&str] = if asks { &["h2", "http/1.1", CHALLENGE_PROTOCOL] } else { &["h2", "http/1.1"] };
    Ok(Some(Arc::new(tls.speaking(protocols))))
}

async fn backends(config: &Config) -> anyhow::Result<Vec<Backend>> {
    if !config.web.backends.is_empty() {
        return Ok(config.web.backends.iter().map(|rule| backend(config, rule)).collect());
    }
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.context("the built-in backend cannot listen")?;
    let servers = vec![listener.local_addr()?.to_string()];
    tokio::spawn(builtin::serve(listener, Arc::default()));
    // One client can fill so few slots, and then sees that others are admitted before it.
    let slots = Some(Slots::Fixed(8));
    let rule = BackendRule { slots, ..BackendRule::new(BUILTIN, servers) };
    Ok(vec![backend(config, &rule)])
}

/// A backend with its settings from the configuration.
pub(super) fn backend(config: &Config, rule: &BackendRule) -> Backend {
    let mut backend = config.web.backend(rule);
    backend.admission.report = config.web_exchange.is_shared();
    backend.admission.peers = config.web_exchange.peers;
    backend
}

/// How clients are told apart.
pub(super) fn identities(config: &Config, data: &Path) -> anyhow::Result<Identities> {
    let from = &config.web_identity;
    let secret = secret(from, data)?;
    let mut settings = from.clone();
    settings.cookie.standing_after = config.web.usual.admission.standing_after;
    let key = |path: &Option<PathBuf>| path.as_deref().map(read_key).transpose();
    settings.cookie.key = key(&from.cookie.key_file)?;
    settings.cookie.previous_key = key(&from.cookie.previous_key_file)?;
    Ok(Identities::new(&settings, &secret)?)
}
