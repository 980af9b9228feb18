//! The servers of a backend: which of them are up, and which to ask next.
//!
//! A server that fails several times in a row (no connection, no response, or a failed check) is not used for a while. Then it gets one
//! request at a time, until it has answered one. Health checks ask every server in turn, and an answer brings it back at once. A check that
//! only connects says nothing about answers, because the system accepts connections for a program that has stopped working. If all are down, they are asked all the same, which is better than refusing
//! everybody. Among servers that are equally well, the one with the fewest requests for its weight is asked, and of those that are equal in
//! this, too, each in its turn, as often as its weight says.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use http::StatusCode;
use weir_core::fair::SubnetKey;

use crate::breaker::Breaker;

#[derive(Debug)]
pub struct UpstreamServer {
    /// Its number among all servers of the gate.
    pub number: usize,
    /// Where it is, as `host:port`, `https://host:port` for TLS, or `unix:/path`.
    pub address: String,
    /// Failures in a row: no connection, and a connection but no answer.
    unreached: AtomicU32,
    unanswered: AtomicU32,
    /// When the first of these failures was, in seconds since 1970.
    failing_since_unix_s: AtomicU64,
    /// Whether it was ever asked, by a client or by a check.
    tried: AtomicBool,
    /// Until when it is left alone, in milliseconds since the start; 0 if it is up.
    down_until: AtomicU64,
    /// Whether a request finds out whether it still is.
    on_trial: AtomicBool,
    in_flight: AtomicU32,
    /// Whether it gets no new requests, because somebody wants to remove it.
    draining: AtomicBool,
    /// Its share of the requests compared with the others.
    weight: AtomicU32,
    breaker: Breaker,
    /// Until when others are preferred to it, because it answers with errors.
    broken_until: AtomicU64,
    /// What was wrong with it when it last failed.
    trouble: Mutex<String>,
}

/// The largest weight of a server.
pub const WEIGHT_MAX: u32 = 100;

/// How an address with TLS begins, and that of a Unix socket.
const SECURE: &str = "https://";
const SOCKET: &str = "unix:";

/// Times are counted from here, so a server's rest does not begin again when its backend is set up again.
static START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// The servers of one backend.
#[derive(Debug)]
pub struct Servers {
    list: Vec<Arc<UpstreamServer>>,
    next: AtomicUsize,
    failures_max: u32,
    rest: Duration,
    /// The part of bad buckets at which a server is left alone.
    breaking: f64,
}

/// A request at a server, until it is dropped.
#[derive(Debug)]
pub struct Busy(Arc<UpstreamServer>);

/// The server to ask next.
#[derive(Debug)]
pub struct Picked<'a> {
    pub server: &'a Arc<UpstreamServer>,
    /// If the server has failed, and this request is to find out whether it answers again.
    pub trial: Option<Trial>,
}

/// The one request that a failed server gets, until it is dropped.
#[derive(Debug)]
pub struct Trial(Arc<UpstreamServer>);

impl Servers {
    /// Servers that are all assumed to be up.
    pub fn new(list: Vec<Arc<UpstreamServer>>, failures_max: u32, rest: Duration) -> Servers {
        Servers { list, next: AtomicUsize::new(0), failures_max: failures_max.max(1), rest, breaking: 0.0 }
    }

    /// The same, but a server that answers this part of all networks only with errors is left alone; 0 is never.
    #[must_use]
    pub fn breaking_at(self, part: f64) -> Servers {
        Servers { breaking: part, ..self }
    }

    pub fn all(&self) -> &[Arc<UpstreamServer>] {
        &self.list
    }

    /// The server to ask next, other than those in `tried`.
    pub fn pick(&self, tried: &[usize]) -> Option<Picked<'_>> {
        if let [only] = &self.list[..] {
            return (!tried.contains(&only.number)).then_some(Picked { server: only, trial: None });
        }
        let from = self.turn(self.next.fetch_add(1, Ordering::Relaxed));
        loop {
            let now = now_ms();
            let turn = (0..self.list.len()).map(|step| &self.list[(from + step) % self.list.len()]);
            let left = turn.filter(|server| !tried.contains(&server.number));
            let left = left.map(|server| (server, self.is_left_alone(server, now)));
            // Not by how long they rest: if all are down or broken, they still share the load.
            let (server, alone) = left.min_by_key(|(server, alone)| {
                (server.is_draining(), *alone, server.is_broken_at(now), server.load())
            })?;
            if alone || self.is_up(server) {
                return Some(Picked { server, trial: None });
            }
            if let Some(trial) = server.begin_trial() {
                return Some(Picked { server, trial: Some(trial) });
            }
            // Another thread's request has just become the trial.
        }
    }

    /// Whether it is down, and rests or is on trial.
    fn is_left_alone(&self, server: &UpstreamServer, now_ms: u64) -> bool {
        let alone = || server.down_until.load(Ordering::Relaxed) > now_ms || server.on_trial.load(Ordering::Relaxed);
        !self.is_up(server) && alone()
    }

    /// Ends a trial early, for a request whose duration is up to its client (an upload): after another rest the next request may try the server, even if
    /// this one is still under way.
    pub fn pass_on(&self, trial: Trial) {
        if !self.is_up(&trial.0) {
            trial.0.down_until.store((now_ms() + millis(self.rest)).max(1), Ordering::Relaxed);
        }
        drop(trial);
    }

    /// Which server is next: each is first as often as its weight says.
    fn turn(&self, count: usize) -> usize {
        let all: usize = self.list.iter().map(|server| server.weight() as usize).sum();
        let mut place = count % all.max(1);
        let mut passed = |server: &Arc<UpstreamServer>| {
            let weight = server.weight() as usize;
            let behind = place >= weight;
            place = place.saturating_sub(weight);
            behind
        };
        self.list.iter().take_while(|server| passed(server)).count()
    }

    /// A server has answered a client of this subnet.
    pub fn answered(&self, server: &UpstreamServer, subnet: SubnetKey, status: StatusCode) {
        self.worked(server);
        let (now, error) = (now_ms(), is_failure(status));
        if server.breaker.heard(subnet, error, self.breaking, now) {
            server.breaker.clear(now);
            server.broken_until.store(now + millis(self.rest), Ordering::Relaxed);
            tracing::warn!(server = %server.address, %status, "server answers with errors to most networks; others are preferred to it");
        } else if !error && server.is_broken_at(now) && server.breaker.is_well(self.breaking) {
            // It was asked because there is no better one, and has recovered before its time is over.
            server.broken_until.store(0, Ordering::Relaxed);
            tracing::info!(server = %server.address, "server answers most networks well again");
        }
    }

    /// A server has answered, or passed a check that wants an answer.
    pub fn worked(&self, server: &UpstreamServer) {
        // Written only on change, because this runs for every request.
        if server.unanswered.load(Ordering::Relaxed) > 0 {
            server.unanswered.store(0, Ordering::Relaxed);
        }
        self.reached(server);
    }

    /// A check has connected to a server, and asked it nothing. Whether it would have answered is not known.
    pub fn reached(&self, server: &UpstreamServer) {
        if !server.tried.load(Ordering::Relaxed) {
            server.tried.store(true, Ordering::Relaxed);
        }
        if server.unreached.load(Ordering::Relaxed) > 0 {
            server.unreached.store(0, Ordering::Relaxed);
        }
        if server.down_until.load(Ordering::Relaxed) > 0 && self.is_up(server) {
            server.down_until.store(0, Ordering::Relaxed);
            tracing::info!(server = %server.address, "server is back");
        }
    }

    /// A server could not be reached, and why.
    pub fn unreached(&self, server: &UpstreamServer, why: &str) {
        self.failed(server, &server.unreached, why);
    }

    /// A server was reached and has not answered, or failed a check, and why.
    pub fn unanswered(&self, server: &UpstreamServer, why: &str) {
        self.failed(server, &server.unanswered, why);
    }

    fn failed(&self, server: &UpstreamServer, count: &AtomicU32, why: &str) {
        // This is set before the failure is counted, so whoever sees a failure also sees since when.
        if server.failures() == 0 {
            server.failing_since_unix_s.store(unix_s(), Ordering::Release);
        }
        count.fetch_add(1, Ordering::AcqRel);
        let failures = server.failures();
        server.tried.store(true, Ordering::Relaxed);
        why.clone_into(&mut server.trouble.lock().unwrap_or_else(PoisonError::into_inner));
        if failures >= self.failures_max {
            let until = now_ms() + millis(self.rest);
            if server.down_until.swap(until.max(1), Ordering::Relaxed) == 0 {
                tracing::warn!(server = %server.address, failures, why, "server is down");
            }
        }
    }

    /// Whether a server counts as up. One that was down stays down until it has answered, not only until it is tried again.
    pub fn is_up(&self, server: &UpstreamServer) -> bool {
        server.failures() < self.failures_max
    }
}

/// Whether an answer says that the server, or one behind it, is not well. Other errors are about the request: with a method that no server knows,
/// anybody can get a 501.
fn is_failure(status: StatusCode) -> bool {
    matches!(status.as_u16(), 500 | 502..=504)
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX >> 1)
}

fn now_ms() -> u64 {
    u64::try_from(START.elapsed().as_millis()).unwrap_or(u64::MAX >> 1)
}

fn unix_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

impl UpstreamServer {
    /// A server that has not been asked yet.
    pub fn new(number: usize, address: String) -> Arc<UpstreamServer> {
        Arc::new(UpstreamServer {
            number,
            address,
            unreached: AtomicU32::new(0),
            unanswered: AtomicU32::new(0),
            failing_since_unix_s: AtomicU64::new(0),
            tried: AtomicBool::new(false),
            down_until: AtomicU64::new(0),
            on_trial: AtomicBool::new(false),
            in_flight: AtomicU32::new(0),
            draining: AtomicBool::new(false),
            weight: AtomicU32::new(1),
            breaker: Breaker::default(),
            broken_until: AtomicU64::new(0),
            trouble: Mutex::default(),
        })
    }

    /// Whether it is spoken to over TLS.
    pub fn is_secure(&self) -> bool {
        self.address.starts_with(SECURE)
    }

    /// The path of its Unix socket, if it has one.
    pub fn socket(&self) -> Option<&str> {
        self.address.strip_prefix(SOCKET)
    }

    /// Where to connect, as `host:port`; also the name of the host in a request that has none.
    pub fn authority(&self) -> &str {
        if self.socket().is_some() {
            return "localhost";
        }
        self.address.strip_prefix(SECURE).unwrap_or(&self.address)
    }

    /// Its name or address without the port.
    pub fn host(&self) -> &str {
        let host = self.authority().rsplit_once(':').map_or(self.authority(), |(host, _)| host);
        host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
    }

    /// With `true` it gets no new requests from now on while there is another server; with `false` it gets them again.
    pub fn drain(&self, draining: bool) {
        self.draining.store(draining, Ordering::Relaxed);
        tracing::info!(server = %self.address, draining, "server is drained, or no longer");
    }

    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    /// From now on it gets this many requests for each one of a server with the weight 1.
    pub fn set_weight(&self, weight: u32) {
        self.weight.store(weight.clamp(1, WEIGHT_MAX), Ordering::Relaxed);
        tracing::info!(server = %self.address, weight, "server has another weight");
    }

    pub fn weight(&self) -> u32 {
        self.weight.load(Ordering::Relaxed)
    }

    /// How often in a row it has failed.
    fn failures(&self) -> u32 {
        self.unreached.load(Ordering::Acquire).saturating_add(self.unanswered.load(Ordering::Acquire))
    }

    /// Lets one request find out whether it answers again; None if another request does that already.
    fn begin_trial(self: &Arc<UpstreamServer>) -> Option<Trial> {
        let begun = !self.on_trial.swap(true, Ordering::Relaxed);
        begun.then(|| Trial(Arc::clone(self)))
    }

    /// The number of requests there, divided by its weight.
    fn load(&self) -> u64 {
        u64::from(self.in_flight()) * u64::from(WEIGHT_MAX).pow(2) / u64::from(self.weight())
    }

    /// Whether others are preferred to it, because it answers with errors.
    pub fn is_broken(&self) -> bool {
        self.is_broken_at(now_ms())
    }

    fn is_broken_at(&self, now_ms: u64) -> bool {
        self.broken_until.load(Ordering::Relaxed) > now_ms
    }

    /// What was wrong with it when it last failed, if it has not worked since.
    pub fn trouble(&self) -> Option<String> {
        let failed = self.failures() > 0;
        failed.then(|| self.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }

    /// Since when it has been failing, in seconds since 1970.
    pub fn failing_since_unix_s(&self) -> Option<u64> {
        let failed = self.failures() > 0;
        failed.then(|| self.failing_since_unix_s.load(Ordering::Relaxed))
    }

    /// Whether it was ever asked, by a client or by a check.
    pub fn was_tried(&self) -> bool {
        self.tried.load(Ordering::Relaxed)
    }

    /// Counts a request at this server.
    pub fn busy(self: &Arc<UpstreamServer>) -> Busy {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        Busy(Arc::clone(self))
    }

    /// How many requests are at this server.
    pub fn in_flight(&self) -> u32 {
        self.in_flight.load(Ordering::Relaxed)
    }
}

impl Busy {
    /// The server.
    pub fn server(&self) -> &UpstreamServer {
        &self.0
    }
}

impl Drop for Trial {
    fn drop(&mut self) {
        self.0.on_trial.store(false, Ordering::Relaxed);
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn servers(count: usize) -> Servers {
        let list = (0..count).map(|number| UpstreamServer::new(number, format!("s{number}:80"))).collect();
        Servers::new(list, 2, Duration::from_secs(3600))
    }

    #[test]
    fn the_least_busy_that_lives_is_asked() {
        let servers = servers(3);
        let _busy = (servers.all()[0].busy(), servers.all()[2].busy());
        assert_eq!(servers.pick(&[]).unwrap().server.number, 1);
        servers.unreached(&servers.all()[1], "refused");
        assert!(servers.is_up(&servers.all()[1]), "once is no proof");
        servers.unreached(&servers.all()[1], "refused again");
        assert!(!servers.is_up(&servers.all()[1]));
        assert_eq!(servers.all()[1].trouble().as_deref(), Some("refused again"));
        assert_ne!(servers.pick(&[]).unwrap().server.number, 1);
        servers.worked(&servers.all()[1]);
        assert_eq!(servers.all()[1].trouble(), None);
        assert_eq!(servers.pick(&[]).unwrap().server.number, 1);
    }

    #[test]
    fn a_server_is_down_until_it_answers_although_it_is_tried_before() {
        let list = vec![UpstreamServer::new(0, "s:80".into())];
        let servers = Servers::new(list, 2, Duration::ZERO);
        let only = &servers.all()[0];
        assert!(!only.was_tried() && servers.is_up(only), "nobody knows yet");
        servers.unreached(only, "refused");
        assert!(only.was_tried() && only.failing_since_unix_s().is_some());
        servers.unreached(only, "refused");
        assert!(servers.pick(&[]).is_some() && !servers.is_up(only), "its rest is over, and it has not answered");
        servers.worked(only);
        assert!(servers.is_up(only) && only.failing_since_unix_s().is_none());
    }

    #[test]
    fn a_connection_is_no_answer() {
        let servers = servers(2);
        let [silent, closed] = [&servers.all()[0], &servers.all()[1]];
        for _ in 0..2 {
            servers.unanswered(silent, "no answer in time");
            servers.unreached(closed, "refused");
        }
        servers.reached(silent);
        servers.reached(closed);
        assert!(!servers.is_up(silent) && servers.is_up(closed), "only what a connection proves is forgiven");
        assert!((0..10).all(|_| servers.pick(&[]).unwrap().server.number == 1));
        servers.worked(silent);
        assert!(servers.is_up(silent) && silent.trouble().is_none());
        // Either kind counts towards the same limit.
        servers.unanswered(silent, "no answer in time");
        servers.unreached(silent, "refused");
        assert!(!servers.is_up(silent));
        servers.reached(silent);
        assert!(servers.is_up(silent) && silent.trouble().is_some());
    }

    #[test]
    fn a_failed_server_gets_one_request_at_a_time_until_it_has_answered() {
        let list = (0..2).map(|number| UpstreamServer::new(number, format!("s{number}:80"))).collect();
        let servers = Servers::new(list, 2, Duration::ZERO);
        let [failed, good] = [&servers.all()[0], &servers.all()[1]];
        (0..2).for_each(|_| servers.unanswered(failed, "no answer in time"));
        // In its first millisecond the clock cannot tell a rest of nothing from one that is not over.
        std::thread::sleep(Duration::from_millis(2));
        let _busy = [good.busy(), good.busy()];
        let picked = servers.pick(&[]).unwrap();
        assert!(picked.server.number == 0 && picked.trial.is_some(), "its rest is over");
        assert!((0..10).all(|_| servers.pick(&[]).unwrap().server.number == 1), "one at a time");
        let last = servers.pick(&[1]).unwrap();
        assert!(last.server.number == 0 && last.trial.is_none(), "better than nobody");
        servers.unanswered(failed, "no answer in time");
        drop(picked.trial);
        let next = servers.pick(&[]).unwrap();
        assert!(next.server.number == 0 && next.trial.is_some(), "the next one");
        servers.worked(failed);
        let after = servers.pick(&[]).unwrap();
        assert!(after.server.number == 0 && after.trial.is_none(), "it has answered");
    }

    #[test]
    fn who_drains_or_answers_with_errors_is_asked_last() {
        let servers = servers(2).breaking_at(0.5);
        let first = &servers.all()[0];
        first.drain(true);
        assert!((0..10).all(|_| servers.pick(&[]).unwrap().server.number == 1));
        servers.all()[1].drain(true);
        assert!(servers.pick(&[]).is_some(), "all drain: better than nothing");
        servers.all().iter().for_each(|server| server.drain(false));
        for subnet in 0..8 {
            servers.answered(first, SubnetKey(subnet), StatusCode::INTERNAL_SERVER_ERROR);
        }
        assert!(first.is_broken() && servers.is_up(first), "it lives, and is not well");
        assert!((0..10).all(|_| servers.pick(&[]).unwrap().server.number == 1));
    }

    #[test]
    fn servers_that_are_all_broken_or_down_still_share_the_load() {
        let shared = |servers: &Servers| {
            let mut there = Vec::new();
            for _ in 0..30 {
                there.push(servers.pick(&[]).unwrap().server.busy());
            }
            servers.all().iter().map(|server| server.in_flight()).collect::<Vec<_>>()
        };
        let broken = servers(3).breaking_at(0.5);
        for server in broken.all() {
            (0..8).for_each(|subnet| broken.answered(server, SubnetKey(subnet), StatusCode::BAD_GATEWAY));
            assert!(server.is_broken());
            std::thread::sleep(Duration::from_millis(2));
        }
        assert_eq!(shared(&broken), [10, 10, 10]);
        let down = servers(3);
        for server in down.all() {
            (0..2).for_each(|_| down.unreached(server, "gone"));
            std::thread::sleep(Duration::from_millis(2));
        }
        assert_eq!(shared(&down), [10, 10, 10]);
        // One that is only broken answers somebody; one that is down answers nobody.
        let mixed = servers(2).breaking_at(0.5);
        let (broken, down) = (&mixed.all()[0], &mixed.all()[1]);
        (0..2).for_each(|_| mixed.unreached(down, "gone"));
        (0..8).for_each(|subnet| mixed.answered(broken, SubnetKey(subnet), StatusCode::SERVICE_UNAVAILABLE));
        assert!((0..10).all(|_| mixed.pick(&[]).unwrap().server.number == 0));
    }

    #[test]
    fn errors_about_the_request_break_no_server() {
        let is_broken_by = |status: u16| {
            let servers = servers(2).breaking_at(0.5);
            let (first, status) = (&servers.all()[0], StatusCode::from_u16(status).unwrap());
            (0..64).for_each(|subnet| servers.answered(first, SubnetKey(subnet), status));
            first.is_broken()
        };
        assert_eq!([500, 502, 503, 504].map(is_broken_by), [true; 4]);
        assert_eq!([404, 501, 505, 508, 511].map(is_broken_by), [false; 5]);
    }

    #[test]
    fn a_few_good_answers_do_not_make_a_broken_server_well() {
        let servers = servers(2).breaking_at(0.5);
        let first = &servers.all()[0];
        let answer = |subnets: std::ops::Range<u64>, status| {
            subnets.for_each(|subnet| servers.answered(first, SubnetKey(subnet), status));
        };
        answer(0..8, StatusCode::BAD_GATEWAY);
        answer(0..7, StatusCode::OK);
        assert!(first.is_broken(), "too few networks to tell");
        answer(7..8, StatusCode::NOT_FOUND);
        assert!(!first.is_broken());
    }

    #[test]
    fn requests_are_shared_by_weight() {
        let servers = servers(3);
        servers.all()[1].set_weight(3);
        let picked = |servers: &Servers| servers.pick(&[]).unwrap().server.number;
        let idle = (0..50).map(|_| picked(&servers)).fold([0; 3], |mut counts, number| {
            counts[number] += 1;
            counts
        });
        assert_eq!(idle, [10, 30, 10], "one after the other");
        let mut there = Vec::new();
        for _ in 0..50 {
            there.push(servers.pick(&[]).unwrap().server.busy());
        }
        assert_eq!(servers.all().iter().map(|server| server.in_flight()).collect::<Vec<_>>(), [10, 30, 10]);
        servers.all()[0].set_weight(0);
        servers.all()[2].set_weight(1_000);
        assert_eq!((servers.all()[0].weight(), servers.all()[2].weight()), (1, WEIGHT_MAX));
        assert_eq!(picked(&servers), 2, "from now on");
    }

    #[test]
    fn an_address_says_how_to_get_there() {
        let server = |address: &str| UpstreamServer::new(0, address.to_owned());
        let (plain, secure) = (server("app.example:80"), server("https://[::1]:8443"));
        assert_eq!((plain.is_secure(), plain.authority(), plain.host()), (false, "app.example:80", "app.example"));
        assert_eq!((secure.is_secure(), secure.authority(), secure.host()), (true, "[::1]:8443", "::1"));
        let socket = UpstreamServer::new(2, "unix:/run/app.sock".into());
        assert_eq!((socket.socket(), socket.authority()), (Some("/run/app.sock"), "localhost"));
    }

    #[test]
    fn if_all_are_down_one_is_tried_all_the_same_but_none_twice() {
        let servers = servers(2);
        for _ in 0..2 {
            servers.all().iter().for_each(|server| servers.unreached(server, "gone"));
        }
        let first = servers.pick(&[]).unwrap().server.number;
        let second = servers.pick(&[first]).unwrap().server.number;
        assert_ne!(first, second);
        assert!(servers.pick(&[first, second]).is_none());
    }
}
