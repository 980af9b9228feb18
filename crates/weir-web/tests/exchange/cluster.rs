//! A cluster in one process: front-ends with schedulers and exchanges of their own, servers that take their time, and clients that
//! always have requests waiting.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use weir_core::fair::{self, Fair, PeerId, Profile, Report, SessionKey, SubnetKey, Work};
use weir_sim::fair::{Share, water_fill};
use weir_web::exchange::nats::NatsSettings;
use weir_web::exchange::relay::{Hitserver, HitserverSettings, RelaySettings};
use weir_web::exchange::{Exchange, QueueId, Settings, SharedQueue};
use weir_web::identity::{self, Identities, Secret};

/// What one request takes of its server.
const COST: Duration = Duration::from_millis(10);
/// Requests that a client keeps waiting at each of its servers.
const OUTSTANDING: usize = 4;

pub(crate) fn secret() -> Secret {
    Secret::new(b"the secret of the test cluster").unwrap()
}

/// A relay on a thread of its own, to be stopped and started again on the same port.
pub(crate) struct TestRelay {
    pub(crate) address: SocketAddr,
    loss: f64,
    front_ends: usize,
    runtime: Option<tokio::runtime::Runtime>,
}

impl TestRelay {
    pub(crate) fn start(loss: f64) -> TestRelay {
        TestRelay::start_for(64, loss)
    }

    pub(crate) fn start_for(front_ends: usize, loss: f64) -> TestRelay {
        let mut relay = TestRelay { address: "127.0.0.1:0".parse().unwrap(), loss, front_ends, runtime: None };
        relay.restart();
        relay
    }

    pub(crate) fn restart(&mut self) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let (listen, connections_max) = (self.address, self.front_ends);
        let settings = HitserverSettings { listen, key: secret(), connections_max, loss: self.loss };
        let relay = runtime.block_on(async {
            // The port of a relay that was just killed may take a moment to be free.
            for _ in 0..200 {
                if let Ok(relay) = Hitserver::bind(&settings).await {
                    return relay;
                }
                tokio::time::sleep(Duration::from_millis(25)).await;
            }
            panic!("the relay's port is not free");
        });
        self.address = relay.address().unwrap();
        runtime.spawn(relay.serve());
        self.runtime = Some(runtime);
    }

    pub(crate) fn kill(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }

    pub(crate) fn settings(&self) -> RelaySettings {
        RelaySettings { address: self.address.to_string(), key: secret() }
    }
}

impl Drop for TestRelay {
    fn drop(&mut self) {
        self.kill();
    }
}

/// One front-end's scheduler.
pub(crate) struct TestBoard(Mutex<Fair>);

impl TestBoard {
    pub(crate) fn new() -> Arc<TestBoard> {
        let cost = COST.as_nanos() as u64;
        let settings = fair::Settings { slots: 1, debt_cap: Work(20 * cost), ..fair::Settings::default() };
        Arc::new(TestBoard(Mutex::new(Fair::new(settings, Profile::default()))))
    }

    pub(crate) fn with<T>(&self, act: impl FnOnce(&mut Fair) -> T) -> T {
        act(&mut self.0.lock().unwrap())
    }
}

impl SharedQueue for TestBoard {
    fn id(&self) -> QueueId {
        QueueId(1)
    }

    fn drain(&self, most: usize, out: &mut Vec<Report>) {
        self.with(|fair| out.extend(std::iter::from_fn(|| fair.next_report()).take(most)));
    }

    fn hear(&self, peer: PeerId, number: u64, report: &Report) {
        let _ = self.with(|fair| fair.hear(peer, number, report));
    }

    fn forget_peer(&self, peer: PeerId) {
        self.with(|fair| fair.forget_peer(peer));
    }

    fn report_all(&self) {
        self.with(Fair::report_all);
    }

    fn adopt(&self, profile: &Arc<Profile>) {
        self.with(|fair| fair.set_profile((**profile).clone()));
    }
}

/// A client: which servers it uses, as bits, and its subnet.
#[derive(Clone, Copy)]
pub(crate) struct Client {
    pub(crate) servers: u32,
    pub(crate) subnet: u64,
}

/// How front-ends reach each other.
#[derive(Clone, Default)]
pub(crate) struct Carriers {
    pub(crate) relays: Vec<RelaySettings>,
    pub(crate) nats: Vec<NatsSettings>,
}

pub(crate) struct FrontEnd {
    pub(crate) board: Arc<TestBoard>,
    pub(crate) exchange: Exchange,
}

impl FrontEnd {
    pub(crate) fn new(name: &str, carriers: &Carriers) -> FrontEnd {
        let identities = Identities::new(&identity::Settings::default(), &secret()).unwrap();
        let settings =
            Settings { relays: carriers.relays.clone(), nats: carriers.nats.clone(), ..Settings::new(name, secret()) };
        let board = TestBoard::new();
        let boards = vec![Arc::clone(&board) as Arc<dyn SharedQueue>];
        FrontEnd { exchange: Exchange::start(&settings, &identities, boards, None).unwrap(), board }
    }
}

/// Front-ends, the servers behind them and the clients before them, at work until dropped.
pub(crate) struct Cluster {
    pub(crate) front_ends: Vec<FrontEnd>,
    clients: Vec<Client>,
    served: Arc<Mutex<Vec<Vec<u64>>>>,
    stop: Arc<AtomicBool>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

impl Cluster {
    pub(crate) fn new(servers: usize, clients: &[Client], carriers: &Carriers) -> Cluster {
        let front_ends: Vec<FrontEnd> = (0..servers).map(|i| FrontEnd::new(&format!("f{i}"), carriers)).collect();
        let served = Arc::new(Mutex::new(vec![vec![0; servers]; clients.len()]));
        let stop = Arc::new(AtomicBool::new(false));
        let threads = front_ends.iter().enumerate().map(|(server, front_end)| {
            let work = Server {
                server,
                board: Arc::clone(&front_end.board),
                clients: clients.to_vec(),
                served: Arc::clone(&served),
            };
            let stop = Arc::clone(&stop);
            std::thread::spawn(move || work.serve(&stop))
        });
        let threads = threads.collect();
        Cluster { front_ends, clients: clients.to_vec(), served, stop, threads }
    }

    /// Waits until every front-end hears all others.
    pub(crate) fn wait_for_peers(&self) {
        let all = self.front_ends.len() - 1;
        wait_for("everybody to hear everybody", || {
            self.front_ends.iter().all(|front_end| {
                let status = front_end.exchange.status();
                status.peers.iter().filter(|peer| peer.whole).count() == all
            })
        });
    }

    /// Lets it run, and tells how far the worst client was from its max-min share of what the servers did, in percent.
    pub(crate) fn worst_percent(&self, time: Duration) -> f64 {
        let before = self.served.lock().unwrap().clone();
        std::thread::sleep(time);
        let after = self.served.lock().unwrap().clone();
        let count = |client: usize, server: usize| (after[client][server] - before[client][server]) as f64;
        let servers = 0..self.front_ends.len();
        let capacities: Vec<f64> =
            servers.clone().map(|server| (0..self.clients.len()).map(|client| count(client, server)).sum()).collect();
        let shares: Vec<Share> =
            self.clients.iter().map(|client| (self.weight(client.subnet), client.servers)).collect();
        let ideal = water_fill(&capacities, &shares);
        let totals: Vec<f64> =
            (0..self.clients.len()).map(|client| servers.clone().map(|server| count(client, server)).sum()).collect();
        let worst = totals.iter().zip(&ideal).map(|(got, ideal)| (got / ideal - 1.0).abs() * 100.0).fold(0.0, f64::max);
        eprintln!("capacities {capacities:.0?}, totals {totals:.0?}, ideal {ideal:.1?}, worst {worst:.2} %");
        worst
    }

    /// The sessions of a subnet share the average's weight.
    fn weight(&self, subnet: u64) -> f64 {
        1.0 / self.clients.iter().filter(|client| client.subnet == subnet).count() as f64
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// One server with one slot.
struct Server {
    server: usize,
    board: Arc<TestBoard>,
    clients: Vec<Client>,
    served: Arc<Mutex<Vec<Vec<u64>>>>,
}

impl Server {
    fn serve(&self, stop: &AtomicBool) {
        let cost = Work(COST.as_nanos() as u64);
        let mut owners = Vec::new();
        let mine = self.clients.iter().enumerate().filter(|(_, client)| client.servers >> self.server & 1 == 1);
        for (place, _) in mine {
            (0..OUTSTANDING).for_each(|_| self.arrive(place, &mut owners));
        }
        let mut until = Instant::now();
        while !stop.load(Ordering::Relaxed) {
            let ticket = self.board.with(Fair::dispatch).expect("somebody always waits");
            let client = owners[ticket.index()];
            self.arrive(client, &mut owners);
            until = Instant::now().max(until + COST);
            std::thread::sleep(until - Instant::now().min(until));
            self.board.with(|fair| fair.finish(ticket, cost));
            self.served.lock().unwrap()[client][self.server] += 1;
        }
    }

    fn arrive(&self, client: usize, owners: &mut Vec<usize>) {
        let hashed = |number: u64| (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let (session, subnet) =
            (SessionKey(hashed(client as u64)), SubnetKey(hashed(1000 + self.clients[client].subnet)));
        let cost = Work(COST.as_nanos() as u64);
        let ticket = self.board.with(|fair| fair.arrive(session, subnet, cost)).expect("room");
        if owners.len() <= ticket.index() {
            owners.resize(ticket.index() + 1, 0);
        }
        owners[ticket.index()] = client;
    }
}

/// Waits until something is so.
pub(crate) fn wait_for(what: &str, so: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !so() {
        assert!(Instant::now() < deadline, "waited a minute for {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
