//! From `[web]` to a running web gate.

use super::key_file::{make_key, read_key};
use super::machine_name;
use super::web_exchange::{join, tally};
use crate::config::{BackendRule, Config, SlotsRule, Web, WebExchange, WebIdentity};
use anyhow::Context;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::net::TcpListener;
use weir_foundation::supervision;
use weir_store::folder::DataFolder;
use weir_tls::{CertificateFiles, Tls};
use weir_web::admission::{self, Slots};
use weir_web::builtin;
use weir_web::identity::{self, CookieSettings, Group, Identities, Network, Secret};
use weir_web::log::LogSettings;
use weir_web::proxy::{Backend, Gate, Listener, Settings, Trust};
use weir_web::route::Rule;

/// How often the certificate's files are looked at.
const CERTIFICATE_LOOK: Duration = Duration::from_secs(60);
/// Slots that are found by measuring: where to begin, and how many at most.
const SLOTS_START: u32 = 16;
const SLOTS_MOST: u32 = 1_024;
/// The backend that `weir up --demo` has of its own.
pub(super) const BUILTIN: &str = "builtin";

/// Starts the web gate, if it is enabled and has a backend. `demo` gives it one of our own.
pub(crate) async fn web_gate(config: &Config, data: &DataFolder, demo: bool) -> anyhow::Result<Option<Arc<Gate>>> {
    let web = &config.web;
    if !web.enabled || (web.backends.is_empty() && !demo) {
        return Ok(None);
    }
    let tls = certificate(web, data.path())?;
    let backends = backends(web, &config.web_exchange).await?;
    let identities = identities(&config.web_identity, data.path())?;
    let settings = settings(config, (tls, identities), backends);
    let gate = Gate::start(settings).context("the web gate cannot start")?;
    join(config, data, &gate).context("the exchange of the web gate cannot start")?;
    let gate = Arc::new(gate);
    supervision::spawn("web certificate", watch_certificate(Arc::downgrade(&gate)));
    Ok(Some(gate))
}

/// Looks after the certificate that the gate has, whichever that is, for as long as there is a gate.
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

/// What the gate is told.
pub(super) fn settings(
    config: &Config,
    (tls, identities): (Option<Arc<Tls>>, Identities),
    backends: Vec<Backend>,
) -> Settings {
    let web = &config.web;
    let given = |path: &PathBuf| (!path.as_os_str().is_empty()).then(|| path.clone());
    let rules = rules(web, &backends);
    Settings {
        listeners: listeners(web, &config.web_identity),
        threads: threads(web),
        tls,
        identities,
        limits: config.web_limits.clone(),
        backends,
        rules,
        log: given(&web.access_log).map(|path| LogSettings { path, format: web.log_format }),
        pages: given(&web.error_pages),
        server_timing: web.server_timing,
        tally: tally(config),
    }
}

fn threads(web: &Web) -> usize {
    match web.threads {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        number => number as usize,
    }
}

fn listeners(web: &Web, identity: &WebIdentity) -> Vec<Listener> {
    let proxy_protocol = identity.proxy_protocol;
    let redirect = (web.redirect_port > 0).then_some(web.redirect_port);
    let plain = web.listen.iter().map(|at| Listener { address: at.0, tls: false, proxy_protocol, redirect });
    let tls = web.listen_tls.iter().map(|at| Listener { address: at.0, tls: true, proxy_protocol, redirect: None });
    plain.chain(tls).collect()
}

/// The certificate, if one is needed.
pub(super) fn certificate(web: &Web, data: &Path) -> anyhow::Result<Option<Arc<Tls>>> {
    if web.listen_tls.is_empty() {
        return Ok(None);
    }
    let tls = if web.certificate.as_os_str().is_empty() {
        Tls::self_signed(&data.join("web"), &[machine_name(), "localhost".to_owned()])?
    } else {
        Tls::load(CertificateFiles { chain: web.certificate.clone(), key: web.key.clone() })?
    };
    Ok(Some(Arc::new(tls.speaking(&["h2", "http/1.1"]))))
}

async fn backends(web: &Web, exchange: &WebExchange) -> anyhow::Result<Vec<Backend>> {
    if !web.backends.is_empty() {
        return Ok(web.backends.iter().map(|rule| backend(web, rule, exchange)).collect());
    }
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.context("the built-in backend cannot listen")?;
    let servers = vec![listener.local_addr()?.to_string()];
    tokio::spawn(builtin::serve(listener, Arc::default()));
    // Few enough that one client can fill them, and see who is let in before it.
    let slots = Some(SlotsRule::Fixed(8));
    let rule = BackendRule { slots, ..BackendRule::new(BUILTIN, servers) };
    Ok(vec![backend(web, &rule, exchange)])
}

/// A backend as it is configured.
pub(super) fn backend(web: &Web, rule: &BackendRule, exchange: &WebExchange) -> Backend {
    let (queue, servers) = (&web.queue, &web.servers);
    let slots = match rule.slots.unwrap_or(queue.slots) {
        SlotsRule::Fixed(number) => Slots::Fixed(u32::from(number)),
        SlotsRule::Auto => Slots::Auto { start: SLOTS_START, least: 1, most: SLOTS_MOST },
    };
    let admission = admission::Settings {
        name: rule.name.clone(),
        slots,
        debt_cap: queue.debt_cap.0,
        queue: queue.requests,
        queue_bytes: queue.size.0,
        queue_timeout: queue.timeout.0,
        stream_after: queue.stream_after.0,
        streams_per_session: queue.streams_per_session,
        streams_per_subnet: queue.streams_per_subnet,
        streams: queue.streams,
        observe: queue.observe,
        stranger_weight: queue.stranger_weight,
        sessions: queue.sessions,
        report: exchange.is_shared(),
        peers: u8::try_from(exchange.peers).unwrap_or(u8::MAX),
        ..admission::Settings::default()
    };
    Backend {
        admission,
        servers: rule.servers.clone(),
        trust: Trust {
            ca_file: (!web.server_ca_file.as_os_str().is_empty()).then(|| web.server_ca_file.clone()),
            name: rule.sni.clone(),
            unverified: rule.unverified,
        },
        health_path: rule.health.clone(),
        health_every: servers.health_every.0,
        failures: servers.failures,
        rest: servers.rest.0,
        connect: servers.connect.0,
        response: servers.response.0,
        piece: servers.piece.0,
        idle: servers.idle.0,
        idle_connections: servers.idle_connections,
        stops_early: rule.stops_early,
        request_buffer: servers.request_buffer.0,
    }
}

fn rules(web: &Web, backends: &[Backend]) -> Vec<Rule> {
    let rule = |host: &str, path: &str, backend: &str| Rule {
        host: host.to_owned(),
        path: path.to_owned(),
        backend: backend.to_owned(),
    };
    match (web.routes.is_empty(), backends.first()) {
        (true, Some(first)) => vec![rule("", "/", &first.admission.name)],
        _ => web.routes.iter().map(|route| rule(&route.host, &route.path, &route.backend)).collect(),
    }
}

/// How clients are told apart.
pub(super) fn identities(from: &WebIdentity, data: &Path) -> anyhow::Result<Identities> {
    let network = |text: String| text.parse::<Network>().with_context(|| format!("{text:?} is not a network"));
    let mut settings = identity::Settings::new(secret(from, data)?);
    settings.ipv4_prefix = from.ipv4_prefix as u8;
    settings.ipv6_prefix = from.ipv6_prefix as u8;
    for group in &from.groups {
        let networks = group.networks.iter().cloned().map(network).collect::<Result<_, _>>()?;
        settings.groups.push(Group { name: group.name.clone(), networks });
    }
    settings.listed_peers = from.trusted.iter().map(|net| network(net.to_string())).collect::<Result<_, _>>()?;
    settings.trail = if from.proxy_protocol { identity::forwarded::Trail::None } else { from.trail };
    let key = |path: &PathBuf| (!path.as_os_str().is_empty()).then(|| read_key(path)).transpose();
    let (key, previous_key) = (key(&from.cookie_key_file)?, key(&from.previous_cookie_key_file)?);
    let (name, lifetime) = (from.cookie.clone(), from.cookie_lifetime.0);
    settings.cookie = (!name.is_empty()).then_some(CookieSettings { name, lifetime, key, previous_key });
    Ok(Identities::new(&settings)?)
}

/// The cluster's secret from its file; one of our own is made at first start.
pub(crate) fn secret(from: &WebIdentity, data: &Path) -> anyhow::Result<Secret> {
    if !from.secret_file.as_os_str().is_empty() {
        return read_key(&from.secret_file);
    }
    let own = data.join("web").join("secret");
    if !own.exists() {
        make_key(&own).with_context(|| format!("cannot write {}", own.display()))?;
    }
    read_key(&own)
}
