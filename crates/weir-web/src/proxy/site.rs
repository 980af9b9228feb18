//! Where requests go: routes and backends, and everything else that can be changed while the gate runs.
//!
//! A site never changes: a reload makes a new one that replaces it ([`Site::after`]). Requests under way end with the site that they began
//! with. A backend that is in both keeps its queue, so no waiting request loses its turn. A server that is in both keeps its idle
//! connections and what is known of its health.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::HeaderValue;
use weir_core::fair::SubnetKey;

use super::backend::Backend;
use super::error::GateError;
use super::expected_stream::StreamPaths;
use super::limits::Limits;
use super::server_stream::UpstreamTls;
use super::settings::Settings;
use crate::admission::Admission;
use crate::exchange::QueueId;
use crate::health::{Servers, UpstreamServer};
use crate::keys::Keys;
use crate::network_lists::NetworkLists;
use crate::pages::Pages;
use crate::route::{Routes, Rule};

/// Where requests go, and what they may use.
#[derive(Debug)]
pub(super) struct Site {
    pub(super) settings: Settings,
    /// The limits in the settings, for connections that outlive the site.
    pub(super) limits: Arc<Limits>,
    pub(super) routes: Routes,
    pub(super) backends: Vec<Arc<ActiveBackend>>,
    pub(super) pages: Pages,
    pub(super) lists: NetworkLists,
    pub(super) keys: Option<Keys>,
}

/// A backend in use.
#[derive(Debug)]
pub(super) struct ActiveBackend {
    pub(super) settings: Backend,
    pub(super) admission: Arc<Admission>,
    pub(super) servers: Servers,
    /// For servers with TLS.
    pub(super) secure: Option<UpstreamTls>,
    /// If streams hold slots: which paths are known to answer with them, before a server is asked.
    pub(super) stream_paths: Option<Arc<StreamPaths>>,
    /// The Host of requests that name none.
    pub(super) default_host: HeaderValue,
}

impl Site {
    /// Makes a site. What is known of a backend is kept, and new servers get a number. Nothing changes before [`Site::settle`].
    pub(super) fn after(
        known: impl Fn(&str) -> Option<Arc<ActiveBackend>>,
        settings: Settings,
        numbers: &AtomicUsize,
    ) -> Result<Site, GateError> {
        let pages = match &settings.web.error_pages {
            Some(folder) => {
                Pages::read(folder).map_err(|source| GateError::Pages { folder: folder.clone(), source })?
            }
            None => Pages::default(),
        };
        let web = &settings.web;
        let lists = web.lists()?;
        let keys = Keys::read(&web.keys)?;
        let holders = keys.as_ref().map_or(&[][..], Keys::holders);
        let weights: Vec<(SubnetKey, u32)> =
            holders.iter().map(|holder| (settings.identities.key_subnet(&holder.account()), holder.weight)).collect();
        let names: Vec<&str> = settings.backends.iter().map(|backend| backend.admission.name.as_str()).collect();
        let routes = Routes::new(&settings.rules, &names)?;
        let backends = settings.backends.iter().zip(routes.counts()).map(|(backend, count)| {
            let mut backend = backend.clone();
            backend.admission.routes = *count;
            let own = settings.rules.iter().filter(|rule| rule.backend == backend.admission.name);
            (backend.admission.route_costs, backend.admission.route_units) =
                own.map(|rule| (rule.cost, rule.units.is_some())).unzip();
            backend.admission.weights.clone_from(&weights);
            backend.admission.answer_within = backend.response;
            backend.admission.queue_id = QueueId(settings.identities.name_key(&backend.admission.name));
            ActiveBackend::after(known(&backend.admission.name).as_deref(), backend, numbers).map(Arc::new)
        });
        let backends = backends.collect::<Result<_, _>>()?;
        let limits = Arc::new(settings.limits.clone());
        Ok(Site { settings, limits, routes, backends, pages, lists, keys })
    }

    /// Applies this site's settings to the queues that stay.
    pub(super) fn settle(&self, before: &Site) {
        for backend in &self.backends {
            let name = backend.admission.name();
            let old = before.backend_of(&backend.admission).map_or_else(Vec::new, |_| before.rules_of(name));
            let routes = self.rules_of(name).into_iter().map(|rule| number_of(rule, &old));
            let routes: Vec<Option<u16>> = routes.collect();
            backend.admission.change(&backend.settings.admission, &routes);
        }
    }

    pub(super) fn backend(&self, name: &str) -> Option<&Arc<ActiveBackend>> {
        self.backends.iter().find(|backend| backend.admission.name() == name)
    }

    /// The backend with this queue.
    pub(super) fn backend_of(&self, admission: &Arc<Admission>) -> Option<&Arc<ActiveBackend>> {
        self.backends.iter().find(|backend| Arc::ptr_eq(&backend.admission, admission))
    }

    /// The rules that lead to a backend, in the order of their numbers.
    fn rules_of(&self, name: &str) -> Vec<&Rule> {
        self.settings.rules.iter().filter(|rule| rule.backend == name).collect()
    }
}

fn number_of(rule: &Rule, among: &[&Rule]) -> Option<u16> {
    among.iter().position(|other| *other == rule).and_then(|at| u16::try_from(at).ok())
}

impl ActiveBackend {
    fn after(
        before: Option<&ActiveBackend>,
        settings: Backend,
        numbers: &AtomicUsize,
    ) -> Result<ActiveBackend, GateError> {
        let name = &settings.admission.name;
        // Observed requests hold no slots, so a queue cannot change between the two modes: the old one finishes its requests beside the new one.
        let queue = before.filter(|before| before.admission.observes() == settings.admission.observe);
        let admission = queue.map(|before| Arc::clone(&before.admission));
        let known = |address: &String| {
            let all = before.map_or(&[][..], |before| before.servers.all());
            all.iter().find(|server| server.address == *address).cloned()
        };
        let list = settings.servers.iter().map(|address| {
            known(address)
                .unwrap_or_else(|| UpstreamServer::new(numbers.fetch_add(1, Ordering::Relaxed), address.clone()))
        });
        let list: Vec<Arc<UpstreamServer>> = list.collect();
        let secure =
            list.iter().any(|server| server.is_secure()).then(|| UpstreamTls::new(&settings.trust)).transpose();
        let stream_paths = settings
            .streams_hold_slots
            .then(|| before.and_then(|before| before.stream_paths.clone()).unwrap_or_default());
        Ok(ActiveBackend {
            stream_paths,
            admission: admission.unwrap_or_else(|| Admission::new(settings.admission.clone())),
            default_host: default_host(&list),
            servers: Servers::new(list, settings.failures, settings.rest).breaking_at(settings.breaker),
            secure: secure.map_err(|source| GateError::Trust { backend: name.clone(), source })?,
            settings,
        })
    }
}

/// The first server's authority, as a client of that server would send it.
fn default_host(servers: &[Arc<UpstreamServer>]) -> HeaderValue {
    let first = servers.first().and_then(|server| HeaderValue::from_str(server.authority()).ok());
    first.unwrap_or(HeaderValue::from_static("localhost"))
}
