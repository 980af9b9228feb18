//! Where requests go: routes and backends, and everything else that can be changed while the gate runs.
//!
//! A site never changes; a reload makes another and puts it in its place ([`Site::after`]). What is under way ends in the site that it began in. A backend that
//! is in both keeps its queue, and a server that is in both its idle connections and what is known of its health, so nobody loses a place.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::HeaderValue;

use super::GateError;
use super::link::Secure;
use super::settings::{Backend, Limits, Settings};
use crate::admission::Admission;
use crate::exchange::BoardId;
use crate::health::{Server, Servers};
use crate::pages::Pages;
use crate::route::{Routes, Rule};

/// Where requests go, and what they may use.
#[derive(Debug)]
pub(super) struct Site {
    pub(super) settings: Settings,
    /// Those of the settings, for connections that outlive the site.
    pub(super) limits: Arc<Limits>,
    pub(super) routes: Routes,
    pub(super) backends: Vec<Arc<Place>>,
    pub(super) pages: Pages,
}

/// One backend at work.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) settings: Backend,
    pub(super) admission: Arc<Admission>,
    pub(super) servers: Servers,
    /// For servers with TLS.
    pub(super) secure: Option<Secure>,
    /// What requests are for that name no host.
    pub(super) default_host: HeaderValue,
}

impl Site {
    /// A site; what is known of a backend is taken over, and servers that are new are numbered. Nothing is changed before [`Site::settle`].
    pub(super) fn after(
        known: impl Fn(&str) -> Option<Arc<Place>>,
        settings: Settings,
        numbers: &AtomicUsize,
    ) -> Result<Site, GateError> {
        let pages = match &settings.pages {
            Some(folder) => {
                Pages::read(folder).map_err(|source| GateError::Pages { folder: folder.clone(), source })?
            }
            None => Pages::default(),
        };
        let names: Vec<&str> = settings.backends.iter().map(|backend| backend.admission.name.as_str()).collect();
        let routes = Routes::new(&settings.rules, &names)?;
        let places = settings.backends.iter().zip(routes.counts()).map(|(backend, count)| {
            let mut backend = backend.clone();
            backend.admission.routes = *count;
            backend.admission.answer_within = backend.response;
            backend.admission.board = BoardId(settings.identities.name_key(&backend.admission.name));
            Place::after(known(&backend.admission.name).as_deref(), backend, numbers).map(Arc::new)
        });
        let backends = places.collect::<Result<_, _>>()?;
        let limits = Arc::new(settings.limits.clone());
        Ok(Site { settings, limits, routes, backends, pages })
    }

    /// The queues that stay are set up as this site says.
    pub(super) fn settle(&self, before: &Site) {
        for place in &self.backends {
            let name = place.admission.name();
            let old = before.place_of(&place.admission).map_or_else(Vec::new, |_| before.rules_of(name));
            let routes = self.rules_of(name).into_iter().map(|rule| number_of(rule, &old));
            let routes: Vec<Option<u16>> = routes.collect();
            place.admission.change(&place.settings.admission, &routes);
        }
    }

    /// The backend of this name.
    pub(super) fn place(&self, name: &str) -> Option<&Arc<Place>> {
        self.backends.iter().find(|place| place.admission.name() == name)
    }

    /// The backend with this queue.
    pub(super) fn place_of(&self, admission: &Arc<Admission>) -> Option<&Arc<Place>> {
        self.backends.iter().find(|place| Arc::ptr_eq(&place.admission, admission))
    }

    /// The rules that lead to a backend, in the order of their numbers.
    fn rules_of(&self, name: &str) -> Vec<&Rule> {
        self.settings.rules.iter().filter(|rule| rule.backend == name).collect()
    }
}

fn number_of(rule: &Rule, among: &[&Rule]) -> Option<u16> {
    among.iter().position(|other| *other == rule).and_then(|at| u16::try_from(at).ok())
}

impl Place {
    fn after(before: Option<&Place>, settings: Backend, numbers: &AtomicUsize) -> Result<Place, GateError> {
        let name = &settings.admission.name;
        // Who is only observed holds no slot: such a queue cannot become another, so it runs dry beside the new one.
        let queue = before.filter(|before| before.admission.observes() == settings.admission.observe);
        let admission = queue.map(|before| Arc::clone(&before.admission));
        let known = |address: &String| {
            let all = before.map_or(&[][..], |before| before.servers.all());
            all.iter().find(|server| server.address == *address).cloned()
        };
        let list = settings.servers.iter().map(|address| {
            known(address).unwrap_or_else(|| Server::new(numbers.fetch_add(1, Ordering::Relaxed), address.clone()))
        });
        let list: Vec<Arc<Server>> = list.collect();
        let secure = list.iter().any(|server| server.is_secure()).then(|| Secure::new(&settings.trust)).transpose();
        Ok(Place {
            admission: admission.unwrap_or_else(|| Admission::new(settings.admission.clone())),
            default_host: default_host(&list),
            servers: Servers::new(list, settings.failures, settings.rest),
            secure: secure.map_err(|source| GateError::Trust { backend: name.clone(), source })?,
            settings,
        })
    }
}

/// The first server's, as it would be asked by somebody who comes to it.
fn default_host(servers: &[Arc<Server>]) -> HeaderValue {
    let first = servers.first().and_then(|server| HeaderValue::from_str(server.place()).ok());
    first.unwrap_or(HeaderValue::from_static("localhost"))
}
