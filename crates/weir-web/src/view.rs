//! The state of the whole gate for people and programs: as one document, and as Prometheus text.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::admission::{AdmissionRefusal, History, View, WAIT_BOUNDS_MS};
use crate::exchange;
use crate::metrics::{Page, quoted};

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Web")]
pub struct Status {
    pub listeners: Vec<ListenerView>,
    /// Threads that carry traffic.
    pub threads: usize,
    /// Connections of clients now.
    pub connections: u32,
    /// Connections accepted so far.
    pub connections_accepted: u64,
    /// Connections refused because there were too many.
    pub connections_refused: u64,
    /// Idle connections closed because another client needed their place.
    #[serde(default)]
    pub connections_pushed_out: u64,
    /// Idle connections to backends.
    pub idle_connections: usize,
    /// Responses by the first digit of their status: 1xx to 5xx.
    pub responses: [u64; 5],
    /// Requests that their client gave up.
    pub given_up: u64,
    /// Memory for bodies that wait to be read.
    #[serde(default)]
    pub buffered_bytes: u64,
    /// The same on the disk.
    #[serde(default)]
    pub buffered_file_bytes: u64,
    /// Clients that were cut off because they took their responses too slowly when the buffers were full.
    #[serde(default)]
    pub readers_cut: u64,
    /// Lines of the access log that were dropped because the disk was too slow, or did not take them.
    pub log_lines_dropped: u64,
    /// The backends with their queues.
    pub backends: Vec<BackendView>,
    /// The exchange with other front-ends, if there is one.
    pub exchange: Option<exchange::Status>,
    /// The door for other proxies, if it is open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forward_auth: Option<DoorView>,
}

impl Status {
    /// Backends that have no other server for their requests than this one, so it gets them even while it is drained.
    pub fn only_servers_of(&self, address: &str) -> Vec<&str> {
        let alone = |backend: &&BackendView| {
            let (this, others): (Vec<_>, Vec<_>) = backend.servers.iter().partition(|server| server.address == address);
            !this.is_empty() && others.iter().all(|server| server.draining || !server.up)
        };
        self.backends.iter().filter(alone).map(|backend| backend.queue.backend.as_str()).collect()
    }
}

/// The requests that other proxies carry.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "ForwardAuth")]
pub struct DoorView {
    /// Where proxies ask.
    pub listeners: Vec<String>,
    /// Where their logs come in.
    pub logs: Vec<String>,
    /// Slots that their requests hold now.
    pub held: u64,
    /// Slots that ended because the log said that the request is over.
    pub ended_by_log: u64,
    /// Slots that ended because their time was over.
    pub ended_by_time: u64,
    /// Lines of the log that name no request.
    pub unreadable_lines: u64,
    /// Questions that were refused because a field was missing, or there twice.
    pub unclear_questions: u64,
    /// What is wrong, in words.
    pub trouble: Option<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "WebListener")]
pub struct ListenerView {
    pub address: String,
    /// The protocol that is spoken there.
    pub about: String,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Backend")]
pub struct BackendView {
    pub queue: View,
    pub servers: Vec<ServerView>,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "WebServer")]
pub struct ServerView {
    pub address: String,
    /// Whether it counts as up.
    pub up: bool,
    /// Whether it was ever asked, by a client or by a check.
    #[serde(default = "yes")]
    pub tried: bool,
    /// What was wrong with it when it was last tried, if anything was.
    pub trouble: Option<String>,
    /// Since when it has failed every time, if it has.
    #[serde(default)]
    #[schemars(extend("format" = "date-time"))]
    pub failing_since: Option<String>,
    /// Requests that are there now.
    pub in_flight: u32,
    /// How many requests it gets for one of a server with the weight 1.
    #[serde(default = "one")]
    pub weight: u32,
    /// Whether it gets no new requests, because somebody wants to remove it.
    #[serde(default)]
    pub draining: bool,
    /// Whether others are preferred to it, because it answers with errors to most networks.
    #[serde(default)]
    pub broken: bool,
}

fn one() -> u32 {
    1
}

fn yes() -> bool {
    true
}

/// A name, what it means, and how it is read from a queue.
type Metric = (&'static str, &'static str, fn(&View) -> f64);

impl Status {
    /// In Prometheus's text format 0.0.4.
    pub fn metrics(&self) -> String {
        let mut page = Page::default();
        page.gauge("weir_web_connections", "Connections of clients now", self.connections);
        page.counter("weir_web_connections_accepted_total", "Connections accepted", self.connections_accepted);
        let refused = "Connections refused because there were too many";
        page.counter("weir_web_connections_refused_total", refused, self.connections_refused);
        let pushed_out = "Idle connections closed because somebody else needed their place";
        page.counter("weir_web_connections_pushed_out_total", pushed_out, self.connections_pushed_out);
        page.head("weir_web_responses_total", "counter", "Responses by class of status");
        for (at, count) in self.responses.iter().enumerate() {
            page.sample("weir_web_responses_total", &format!("{{class=\"{}xx\"}}", at + 1), count);
        }
        page.gauge("weir_web_buffered_bytes", "Memory that bodies hold which wait to be taken", self.buffered_bytes);
        page.gauge(
            "weir_web_buffered_file_bytes",
            "Disk that bodies hold which wait to be taken",
            self.buffered_file_bytes,
        );
        let cut = "Clients cut off because they took their responses too slowly when the buffers were full";
        page.counter("weir_web_readers_cut_total", cut, self.readers_cut);
        page.counter("weir_web_given_up_total", "Requests that their client gave up", self.given_up);
        let dropped = "Lines of the access log that the disk was too slow for, or did not take";
        page.counter("weir_web_log_lines_dropped_total", dropped, self.log_lines_dropped);
        self.gauges(&mut page);
        self.counters(&mut page);
        self.shares(&mut page);
        self.waits(&mut page);
        self.servers(&mut page);
        if let Some(exchange) = &self.exchange {
            exchange.measure(&mut page);
        }
        if let Some(door) = &self.forward_auth {
            door.measure(&mut page);
        }
        page.into_text()
    }

    fn gauges(&self, page: &mut Page) {
        let gauges: [Metric; 8] = [
            ("weir_web_waiting_requests", "Requests that wait for a slot", |view| view.waiting as f64),
            ("weir_web_waiting_bytes", "Memory that waiting requests hold", |view| view.waiting_bytes as f64),
            ("weir_web_running_requests", "Requests that the backend works on", |view| view.running as f64),
            ("weir_web_slots", "Slots of the backend", |view| f64::from(view.slots)),
            ("weir_web_streams", "Open streams", |view| f64::from(view.streams)),
            ("weir_web_sessions", "Sessions that are remembered", |view| view.sessions as f64),
            ("weir_web_newcomers", "Newcomers who wait to be let in, here or away with the waiting page", |view| {
                view.room.visitors as f64
            }),
            ("weir_web_cost_seconds", "Mean cost of a request in slot time", |view| view.mean_cost_ms / 1e3),
        ];
        for (name, help, value) in gauges {
            page.head(name, "gauge", help);
            self.each(|label, view| page.sample(name, &format!("{{{label}}}"), value(view)));
        }
    }

    fn counters(&self, page: &mut Page) {
        let counters: [Metric; 8] = [
            ("weir_web_newcomers_let_in_total", "Newcomers who were let in", |view| view.room.let_in as f64),
            ("weir_web_waiting_pages_total", "Places told to newcomers who have to wait", |view| {
                view.room.pages as f64
            }),
            ("weir_web_asked_total", "Requests that asked for a slot", |view| view.counters.asked as f64),
            ("weir_web_dispatched_total", "Requests that got a slot", |view| view.counters.dispatched as f64),
            ("weir_web_left_total", "Requests whose client left the queue", |view| view.counters.left as f64),
            ("weir_web_service_seconds_total", "Slot time of all requests", |view| view.counters.service_s),
            ("weir_web_sooner_total", "Requests dispatched before first come, first served would have", |view| {
                view.counters.sooner as f64
            }),
            ("weir_web_later_total", "Requests dispatched after first come, first served would have", |view| {
                view.counters.later as f64
            }),
        ];
        for (name, help, value) in counters {
            page.head(name, "counter", help);
            self.each(|label, view| page.sample(name, &format!("{{{label}}}"), value(view)));
        }
        page.head("weir_web_refused_total", "counter", "Requests that got no slot, by reason");
        self.each(|label, view| {
            for (reason, count) in AdmissionRefusal::ALL.iter().zip(view.counters.refused) {
                page.sample("weir_web_refused_total", &format!("{{{label},reason=\"{}\"}}", reason.as_str()), count);
            }
        });
    }

    fn shares(&self, page: &mut Page) {
        let (requests, seconds) = ("weir_web_class_requests_total", "weir_web_class_service_seconds_total");
        let label = |label: &str, history: History| format!("{{{label},history=\"{}\"}}", history.as_str());
        page.head(requests, "counter", "Requests served, by the history of their subnet against the average");
        self.each(|backend, view| {
            for (history, count) in History::ALL.into_iter().zip(view.counters.finished_by_history) {
                page.sample(requests, &label(backend, history), count);
            }
        });
        page.head(seconds, "counter", "Slot time of requests, by the history of their subnet against the average");
        self.each(|backend, view| {
            for (history, time_s) in History::ALL.into_iter().zip(view.counters.service_by_history_s) {
                page.sample(seconds, &label(backend, history), time_s);
            }
        });
    }

    fn waits(&self, page: &mut Page) {
        page.head("weir_web_wait_seconds", "histogram", "How long requests waited for a slot");
        self.each(|label, view| {
            let mut below = 0;
            for (at, count) in view.counters.waits.iter().enumerate() {
                below += count;
                let bound = WAIT_BOUNDS_MS.get(at).map_or("+Inf".to_owned(), |ms| (*ms as f64 / 1e3).to_string());
                page.sample("weir_web_wait_seconds_bucket", &format!("{{{label},le=\"{bound}\"}}"), below);
            }
            page.sample("weir_web_wait_seconds_sum", &format!("{{{label}}}"), view.counters.wait_s);
            page.sample("weir_web_wait_seconds_count", &format!("{{{label}}}"), below);
        });
    }

    fn servers(&self, page: &mut Page) {
        page.head("weir_web_server_up", "gauge", "Whether a server is taken to live");
        for backend in &self.backends {
            for server in &backend.servers {
                let label = format!(
                    "{{backend=\"{}\",server=\"{}\"}}",
                    quoted(&backend.queue.backend),
                    quoted(&server.address)
                );
                page.sample("weir_web_server_up", &label, u8::from(server.up));
            }
        }
    }

    fn each(&self, mut with: impl FnMut(&str, &View)) {
        for backend in &self.backends {
            with(&format!("backend=\"{}\"", quoted(&backend.queue.backend)), &backend.queue);
        }
    }
}

impl DoorView {
    fn measure(&self, page: &mut Page) {
        page.gauge("weir_web_forward_auth_slots", "Slots of requests that other proxies carry", self.held);
        let ended = "weir_web_forward_auth_ended_total";
        page.head(ended, "counter", "Slots of requests that other proxies carry, by what ended them");
        page.sample(ended, "{by=\"log\"}", self.ended_by_log);
        page.sample(ended, "{by=\"time\"}", self.ended_by_time);
        let unclear = "Questions of proxies that were refused because a field was missing or there twice";
        page.counter("weir_web_forward_auth_unclear_total", unclear, self.unclear_questions);
        let unreadable = "Lines of the logs of proxies that name no request";
        page.counter("weir_web_forward_auth_unreadable_lines_total", unreadable, self.unreadable_lines);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::{Admission, Settings};

    #[test]
    fn metrics_are_complete_and_well_formed() {
        let queue = Admission::new(Settings { name: "a\"b".into(), ..Settings::default() }).view();
        let server = ServerView {
            address: "127.0.0.1:80".into(),
            up: true,
            tried: true,
            trouble: None,
            failing_since: None,
            in_flight: 0,
            weight: 1,
            draining: false,
            broken: false,
        };
        let status = Status {
            listeners: Vec::new(),
            threads: 1,
            connections: 3,
            connections_accepted: 4,
            connections_refused: 0,
            connections_pushed_out: 0,
            idle_connections: 0,
            responses: [0, 7, 0, 0, 1],
            given_up: 0,
            buffered_bytes: 0,
            buffered_file_bytes: 0,
            readers_cut: 0,
            log_lines_dropped: 0,
            backends: vec![BackendView { queue, servers: vec![server] }],
            exchange: Some(exchange::Status::default()),
            forward_auth: None,
        };
        let text = status.metrics();
        for line in [
            "weir_web_connections 3",
            "weir_web_responses_total{class=\"2xx\"} 7",
            "weir_web_waiting_requests{backend=\"a\\\"b\"} 0",
            "weir_web_refused_total{backend=\"a\\\"b\",reason=\"timeout\"} 0",
            "weir_web_refused_total{backend=\"a\\\"b\",reason=\"upload\"} 0",
            "weir_web_class_requests_total{backend=\"a\\\"b\",history=\"none\"} 0",
            "weir_web_class_service_seconds_total{backend=\"a\\\"b\",history=\"above\"} 0",
            "weir_web_wait_seconds_bucket{backend=\"a\\\"b\",le=\"+Inf\"} 0",
            "weir_web_server_up{backend=\"a\\\"b\",server=\"127.0.0.1:80\"} 1",
        ] {
            assert!(text.lines().any(|known| known == line), "{line} is missing in\n{text}");
        }
        for name in
            text.lines().filter(|line| !line.starts_with('#')).map(|line| line.split(['{', ' ']).next().unwrap())
        {
            let family = name.trim_end_matches("_bucket").trim_end_matches("_sum").trim_end_matches("_count");
            assert!(text.contains(&format!("# TYPE {family} ")), "{name} has no type");
        }
    }
}
