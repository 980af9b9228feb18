//! The record of one request, from its arrival to the last octet of its response: counted, and written to the access log at its end.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime};

use http::{HeaderMap, HeaderName, Method, StatusCode, Version, header, request};

use super::client::Client;
use super::thread::Thread;
use crate::identity::{Fields, Identity};
use crate::log::LoggedRequest;

/// A request in progress. If this is dropped before the request is complete, the client has given it up.
pub(super) struct RequestRecord {
    thread: Arc<Thread>,
    client: Arc<Client>,
    complete: bool,
    entry: Option<Box<LogEntry>>,
}

/// The line of the access log that is being written.
struct LogEntry {
    entry: LoggedRequest,
    began: Instant,
}

impl RequestRecord {
    pub(super) fn new(
        thread: &Arc<Thread>,
        client: &Arc<Client>,
        summary: &RequestSummary<'_, impl Fields + ?Sized>,
    ) -> RequestRecord {
        let entry =
            thread.log.as_ref().map(|_| Box::new(LogEntry { entry: summary.entry(client), began: Instant::now() }));
        RequestRecord { thread: Arc::clone(thread), client: Arc::clone(client), complete: false, entry }
    }

    /// Which client it was, and where the request goes.
    pub(super) fn identified(&mut self, identity: &Identity, backend: &str) {
        if let Some(entry) = &mut self.entry {
            entry.entry.client = identity.client;
            entry.entry.session = format!("{:016x}", identity.session.0);
            entry.entry.backend = backend.to_owned();
        }
    }

    /// How long it waited for a slot.
    pub(super) fn waited(&mut self, wait: Duration) {
        if let Some(entry) = &mut self.entry {
            entry.entry.wait_ms = wait.as_secs_f64() * 1e3;
        }
    }

    pub(super) fn answered(&mut self, status: StatusCode) {
        let class = usize::from(status.as_u16() / 100).min(self.thread.responses.len() - 1);
        self.thread.responses[class].fetch_add(1, Ordering::Relaxed);
        if let Some(entry) = &mut self.entry {
            entry.entry.status = status.as_u16();
        }
    }

    /// This many octets of the response were sent.
    pub(super) fn sent(&mut self, octets: usize) {
        if let Some(entry) = &mut self.entry {
            entry.entry.bytes += octets as u64;
        }
    }

    /// Whose request it is.
    pub(super) fn client(&self) -> Arc<Client> {
        Arc::clone(&self.client)
    }

    /// Everything was sent, or the rest will never come: the client can no longer give the request up.
    pub(super) fn complete(&mut self) {
        self.complete = true;
    }
}

impl Drop for RequestRecord {
    fn drop(&mut self) {
        if self.complete {
            self.client.over(None);
        } else {
            self.client.over(Some(&self.thread.site().settings.limits));
            self.thread.given_up.fetch_add(1, Ordering::Relaxed);
        }
        let (Some(mut entry), Some(log)) = (self.entry.take(), self.thread.log.as_ref()) else { return };
        entry.entry.took_ms = entry.began.elapsed().as_secs_f64() * 1e3;
        if entry.entry.status == 0 {
            // This is the status that nginx writes for a client that left before its response.
            entry.entry.status = 499;
        }
        log.add(&entry.entry);
    }
}

/// What was asked for, as the log tells it.
pub(super) struct RequestSummary<'a, F: ?Sized> {
    pub(super) method: &'a Method,
    pub(super) target: &'a str,
    pub(super) version: Version,
    pub(super) fields: &'a F,
}

impl<'a> RequestSummary<'a, HeaderMap> {
    pub(super) fn of(parts: &'a request::Parts) -> RequestSummary<'a, HeaderMap> {
        let target = parts.uri.path_and_query().map_or("", |target| target.as_str());
        RequestSummary { method: &parts.method, target, version: parts.version, fields: &parts.headers }
    }
}

impl<F: Fields + ?Sized> RequestSummary<'_, F> {
    fn entry(&self, client: &Client) -> LoggedRequest {
        LoggedRequest {
            time: SystemTime::now(),
            client: client.peer,
            method: self.method.as_str().to_owned(),
            target: self.target.to_owned(),
            protocol: match self.version {
                Version::HTTP_2 => "HTTP/2.0",
                Version::HTTP_10 => "HTTP/1.0",
                _ => "HTTP/1.1",
            },
            host: self.text(&header::HOST),
            status: 0,
            bytes: 0,
            referer: self.text(&header::REFERER),
            agent: self.text(&header::USER_AGENT),
            backend: String::new(),
            session: String::new(),
            wait_ms: 0.0,
            took_ms: 0.0,
        }
    }

    fn text(&self, name: &HeaderName) -> String {
        self.fields.lines(name).next().map_or_else(String::new, |value| String::from_utf8_lossy(value).into_owned())
    }
}
