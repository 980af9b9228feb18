//! One request from its arrival to the last octet of its response: counted, and written down at its end.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime};

use http::{HeaderMap, HeaderName, StatusCode, Version, header, request};

use super::client::Client;
use super::thread::Thread;
use crate::identity::Identity;
use crate::log::Entry;

/// A request under way. Dropped before it is complete, its client has given it up.
pub(super) struct Visit {
    thread: Arc<Thread>,
    client: Arc<Client>,
    complete: bool,
    entry: Option<Box<(Entry, Instant)>>,
}

impl Visit {
    pub(super) fn new(thread: &Arc<Thread>, client: &Arc<Client>, parts: &request::Parts) -> Visit {
        let entry = thread.log.as_ref().map(|_| Box::new((entry(client, parts), Instant::now())));
        Visit { thread: Arc::clone(thread), client: Arc::clone(client), complete: false, entry }
    }

    /// Who it was, and where it goes.
    pub(super) fn identified(&mut self, identity: &Identity, backend: &str) {
        if let Some(entry) = &mut self.entry {
            entry.0.client = identity.client;
            entry.0.session = format!("{:016x}", identity.session.0);
            entry.0.backend = backend.to_owned();
        }
    }

    /// How long it waited for a slot.
    pub(super) fn waited(&mut self, wait: Duration) {
        if let Some(entry) = &mut self.entry {
            entry.0.wait_ms = wait.as_secs_f64() * 1e3;
        }
    }

    /// What was answered.
    pub(super) fn answered(&mut self, status: StatusCode) {
        let class = usize::from(status.as_u16() / 100).min(self.thread.responses.len() - 1);
        self.thread.responses[class].fetch_add(1, Ordering::Relaxed);
        if let Some(entry) = &mut self.entry {
            entry.0.status = status.as_u16();
        }
    }

    /// Octets of the response have gone out.
    pub(super) fn sent(&mut self, octets: usize) {
        if let Some(entry) = &mut self.entry {
            entry.0.bytes += octets as u64;
        }
    }

    /// Everything is said.
    pub(super) fn complete(&mut self) {
        self.complete = true;
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        self.client.over(!self.complete, &self.thread.shared.settings.limits);
        if !self.complete {
            self.thread.given_up.fetch_add(1, Ordering::Relaxed);
        }
        let (Some(mut entry), Some(log)) = (self.entry.take(), self.thread.log.as_ref()) else { return };
        entry.0.took_ms = entry.1.elapsed().as_secs_f64() * 1e3;
        if entry.0.status == 0 {
            // What nginx writes for a client that left before its answer.
            entry.0.status = 499;
        }
        log.add(&entry.0);
    }
}

fn entry(client: &Client, parts: &request::Parts) -> Entry {
    Entry {
        time: SystemTime::now(),
        client: client.peer,
        method: parts.method.as_str().to_owned(),
        target: parts.uri.path_and_query().map_or_else(String::new, |target| target.as_str().to_owned()),
        protocol: match parts.version {
            Version::HTTP_2 => "HTTP/2.0",
            Version::HTTP_10 => "HTTP/1.0",
            _ => "HTTP/1.1",
        },
        host: text(&parts.headers, &header::HOST),
        status: 0,
        bytes: 0,
        referer: text(&parts.headers, &header::REFERER),
        agent: text(&parts.headers, &header::USER_AGENT),
        backend: String::new(),
        session: String::new(),
        wait_ms: 0.0,
        took_ms: 0.0,
    }
}

fn text(headers: &HeaderMap, name: &HeaderName) -> String {
    headers.get(name).map_or_else(String::new, |value| String::from_utf8_lossy(value.as_bytes()).into_owned())
}
