//! The front-end of one server: its scheduler, and what it tells the others.

use super::naive::Naive;
use super::scenario::Scenario;
use super::subnet::Subnet;
use serde::Serialize;
use std::collections::{BTreeMap, VecDeque};
use weir_core::fair::{Fair, PeerId, Profile, Report, SessionKey, Settings, SubnetKey, Ticket, Weight, Work};

/// Who decides what is served next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Scheduler {
    /// Distributed fair queueing as this product does it: anchored subnet clocks, capped debt, cumulative reports.
    Dfq,
    /// First come, first served; the front-ends tell each other nothing.
    Fifo,
    /// The thesis's own pseudocode: rescaling every session, debt without bound.
    Naive,
}

/// A request by number, with the client that sent it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) number: usize,
    pub(super) client: usize,
}

/// What one front-end tells the others.
#[derive(Debug, Clone, Copy)]
pub(super) enum News {
    Report(Report),
    /// The thesis's messages: a request has arrived, was selected at this cost, has finished.
    Arrived(usize),
    Selected(usize, f64),
    Finished(usize),
}

/// What all schedulers of a scenario are told about its clients.
#[derive(Debug, Clone)]
pub(super) struct Census {
    pub(super) work: Vec<f64>,
    pub(super) subnets: Vec<Subnet>,
    pub(super) history: BTreeMap<Subnet, f64>,
    /// Units of the core's work in one work unit.
    scale: f64,
    debt_cap: Work,
}

impl Census {
    /// The smallest request becomes a million units, so that rounding does not show; the debt cap is ten of the
    /// largest requests and twice what a client can be served elsewhere before the news arrives.
    pub(super) fn of(scenario: &Scenario) -> Census {
        let (subnets, history) = scenario.subnets();
        let work: Vec<f64> = scenario.clients.iter().map(|client| client.work).collect();
        let least = work.iter().copied().fold(f64::INFINITY, f64::min);
        let most = work.iter().copied().fold(0.0, f64::max);
        let scale = 1e6 / least;
        let unheard = scenario.servers.iter().map(|s| s.rate).sum::<f64>() * scenario.exchange_delay_ms / 1e3;
        let debt_cap = Work(((10.0 * most + 2.0 * unheard) * scale) as u64);
        Census { work, subnets, history, scale, debt_cap }
    }
}

/// A front-end with one of the schedulers.
#[derive(Debug)]
pub(super) enum FrontEnd {
    Dfq(Box<Dfq>),
    Fifo { waiting: VecDeque<Request>, free: u32 },
    Naive(Box<Naive>, Vec<News>),
}

impl FrontEnd {
    pub(super) fn new(scheduler: Scheduler, slots: u32, census: &Census) -> FrontEnd {
        match scheduler {
            Scheduler::Dfq => FrontEnd::Dfq(Box::new(Dfq::new(slots, census))),
            Scheduler::Fifo => FrontEnd::Fifo { waiting: VecDeque::new(), free: slots },
            Scheduler::Naive => {
                FrontEnd::Naive(Box::new(Naive::new(slots, &census.subnets, &census.history)), Vec::new())
            }
        }
    }

    pub(super) fn arrive(&mut self, request: Request, census: &Census) {
        match self {
            FrontEnd::Dfq(dfq) => dfq.arrive(request, census),
            FrontEnd::Fifo { waiting, .. } => waiting.push_back(request),
            FrontEnd::Naive(naive, news) => {
                naive.arrive(request.client, request.number, census.work[request.client]);
                news.push(News::Arrived(request.client));
            }
        }
    }

    /// The next request, if a slot is free and one waits.
    pub(super) fn dispatch(&mut self) -> Option<Request> {
        match self {
            FrontEnd::Dfq(dfq) => dfq.dispatch(),
            FrontEnd::Fifo { waiting, free } => {
                *free = free.checked_sub(1)?;
                let next = waiting.pop_front();
                *free += u32::from(next.is_none());
                next
            }
            FrontEnd::Naive(naive, news) => {
                let (client, number, work) = naive.dispatch()?;
                news.push(News::Selected(client, work));
                Some(Request { number, client })
            }
        }
    }

    pub(super) fn finish(&mut self, request: Request, census: &Census) {
        match self {
            FrontEnd::Dfq(dfq) => dfq.finish(request, census),
            FrontEnd::Fifo { free, .. } => *free += 1,
            FrontEnd::Naive(naive, news) => {
                naive.finish(request.client);
                news.push(News::Finished(request.client));
            }
        }
    }

    /// A client goes: what it has waiting here is forgotten.
    pub(super) fn abandon(&mut self, client: usize) {
        match self {
            FrontEnd::Dfq(dfq) => dfq.abandon(client),
            FrontEnd::Fifo { waiting, .. } => waiting.retain(|request| request.client != client),
            FrontEnd::Naive(naive, news) => {
                (0..naive.abandon(client)).for_each(|_| news.push(News::Finished(client)));
            }
        }
    }

    /// What is to be told since the last time.
    pub(super) fn drain(&mut self) -> Vec<News> {
        match self {
            FrontEnd::Dfq(dfq) => std::iter::from_fn(|| dfq.fair.next_report()).map(News::Report).collect(),
            FrontEnd::Fifo { .. } => Vec::new(),
            FrontEnd::Naive(_, news) => std::mem::take(news),
        }
    }

    /// The `number`-th frame of the front-end `from`.
    pub(super) fn hear(&mut self, from: usize, number: u64, news: &[News]) {
        for item in news {
            match (&mut *self, item) {
                (FrontEnd::Dfq(dfq), News::Report(report)) => {
                    // A full table refuses, and is none of this scenario's business: it is large enough.
                    let _ = dfq.fair.hear(PeerId(from as u64), number, report);
                }
                (FrontEnd::Naive(naive, _), News::Arrived(client)) => naive.hear_arrived(*client),
                (FrontEnd::Naive(naive, _), News::Selected(client, work)) => naive.hear_selected(*client, *work),
                (FrontEnd::Naive(naive, _), News::Finished(client)) => naive.hear_finished(*client),
                _ => {}
            }
        }
    }
}

/// The product's own scheduler.
#[derive(Debug)]
pub(super) struct Dfq {
    fair: Fair,
    keys: Vec<(SessionKey, SubnetKey)>,
    /// The request of each ticket, by the ticket's index.
    requests: Vec<Request>,
    running: BTreeMap<usize, Ticket>,
    /// Tickets of each client that may still wait.
    waiting: Vec<VecDeque<Ticket>>,
}

impl Dfq {
    fn new(slots: u32, census: &Census) -> Dfq {
        let key = |subnet: &Subnet| match subnet {
            Subnet::V4(bits) => hashed(u64::from(*bits)),
            Subnet::V6(bits) => hashed(bits ^ 1 << 63),
        };
        let profile = census.history.iter().fold(Profile::default(), |profile, (subnet, history)| {
            profile.with(SubnetKey(key(subnet)), Weight::from_ratio(*history))
        });
        let settings = Settings { slots, debt_cap: census.debt_cap, ..Settings::default() };
        let keys = census.subnets.iter().enumerate();
        Dfq {
            fair: Fair::new(settings, profile),
            keys: keys.map(|(i, subnet)| (SessionKey(hashed(i as u64)), SubnetKey(key(subnet)))).collect(),
            requests: Vec::new(),
            running: BTreeMap::new(),
            waiting: vec![VecDeque::new(); census.subnets.len()],
        }
    }

    fn arrive(&mut self, request: Request, census: &Census) {
        let (session, subnet) = self.keys[request.client];
        if let Ok(ticket) = self.fair.arrive(session, subnet, cost(request.client, census)) {
            if self.requests.len() <= ticket.index() {
                self.requests.resize(ticket.index() + 1, request);
            }
            self.requests[ticket.index()] = request;
            self.waiting[request.client].push_back(ticket);
        }
    }

    fn dispatch(&mut self) -> Option<Request> {
        let ticket = self.fair.dispatch()?;
        let request = self.requests[ticket.index()];
        // Requests of one client are served in the order in which they came.
        self.waiting[request.client].pop_front();
        self.running.insert(request.number, ticket);
        Some(request)
    }

    fn finish(&mut self, request: Request, census: &Census) {
        if let Some(ticket) = self.running.remove(&request.number) {
            self.fair.finish(ticket, cost(request.client, census));
        }
    }

    fn abandon(&mut self, client: usize) {
        for ticket in self.waiting[client].drain(..) {
            self.fair.cancel(ticket);
        }
    }
}

fn cost(client: usize, census: &Census) -> Work {
    Work((census.work[client] * census.scale).round() as u64)
}

/// Stands for the secret hash of the shell.
fn hashed(value: u64) -> u64 {
    crate::rng::Rng::new(value).next_u64()
}
