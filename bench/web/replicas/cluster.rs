//! Front-ends, a hitserver and a NATS server as processes of their own, each before a backend of ours.

use super::Failure;
use super::backend::{Backend, Served};
use super::client::Client;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use weir_peers::Nats;
use weir_sim::fair::{Share, water_fill};

/// Who asks whom: the servers as bits, and the address.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asker {
    pub(crate) name: &'static str,
    pub(crate) servers: u32,
    /// Second and third part of the address say the subnet, the fourth the client.
    pub(crate) address: [u8; 4],
}

impl Asker {
    fn from(&self) -> IpAddr {
        IpAddr::V4(Ipv4Addr::from(self.address))
    }

    pub(crate) fn subnet(&self) -> [u8; 3] {
        [self.address[0], self.address[1], self.address[2]]
    }
}

/// What carries the exchange.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Carrier {
    None,
    Relay { loss: f64 },
    Nats,
}

/// How the front-ends queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Discipline {
    Fair,
    /// Nobody waits at the front-end; the backend serves in order of arrival.
    Fifo,
}

/// What the machine is to look like.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) servers: usize,
    pub(crate) cost: Duration,
    pub(crate) carrier: Carrier,
    pub(crate) discipline: Discipline,
}

/// All of it, running.
pub(crate) struct Cluster {
    pub(crate) backends: Vec<Backend>,
    front_ends: Vec<Process>,
    addresses: Vec<SocketAddr>,
    _hitserver: Option<Process>,
    _nats: Option<Nats>,
    _folder: tempfile::TempDir,
}

struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Cluster {
    pub(crate) async fn start(weir: &Path, plan: Plan) -> Result<Cluster, Failure> {
        let folder = tempfile::tempdir()?;
        let key = folder.path().join("key");
        write_key(&key)?;
        let (hitserver, nats, exchange) = carry(weir, plan.carrier, &key)?;
        let mut cluster = Cluster {
            backends: Vec::new(),
            front_ends: Vec::new(),
            addresses: Vec::new(),
            _hitserver: hitserver,
            _nats: nats,
            _folder: folder,
        };
        for number in 0..plan.servers {
            let (backend, address) = (Backend::start(plan.cost).await?, free_address()?);
            let home = cluster._folder.path().join(format!("front-end-{number}"));
            std::fs::create_dir(&home)?;
            let config =
                configuration(&plan, address, backend.address, &key, &format!("name = \"f{number}\"\n{exchange}"));
            cluster.front_ends.push(front_end(weir, &home, &config)?);
            cluster.backends.push(backend);
            cluster.addresses.push(address);
        }
        cluster.wait_until_up().await?;
        // Front-ends find each other within a beat or two.
        tokio::time::sleep(Duration::from_secs(2)).await;
        Ok(cluster)
    }

    /// Starts a client.
    pub(crate) fn client(&self, number: usize, asker: &Asker) -> Client {
        let places = self.addresses.iter().enumerate().filter(|(place, _)| asker.servers >> place & 1 == 1);
        let places: Vec<SocketAddr> = places.map(|(_, address)| *address).collect();
        Client::start(number, asker.from(), &places)
    }

    /// Kills a front-end as `kill -9` does.
    pub(crate) fn kill(&mut self, front_end: usize) -> std::io::Result<()> {
        self.front_ends[front_end].0.kill()?;
        self.front_ends[front_end].0.wait().map(drop)
    }

    async fn wait_until_up(&mut self) -> Result<(), Failure> {
        let deadline = Instant::now() + Duration::from_secs(60);
        for (address, process) in self.addresses.iter().zip(&mut self.front_ends) {
            while tokio::net::TcpStream::connect(address).await.is_err() {
                if let Some(status) = process.0.try_wait()? {
                    return Err(format!("a front-end ended early: {status}").into());
                }
                if Instant::now() > deadline {
                    return Err("a front-end did not come up within a minute".into());
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
        Ok(())
    }
}

fn carry(weir: &Path, carrier: Carrier, key: &Path) -> Result<(Option<Process>, Option<Nats>, String), Failure> {
    match carrier {
        Carrier::None => Ok((None, None, String::new())),
        Carrier::Relay { loss } => {
            let address = free_address()?;
            let mut command = bound(weir);
            command.args(["hitserver", "--log", "warn", "--listen", &address.to_string()]);
            command.args(["--loss", &loss.to_string(), "--key-file"]).arg(key).stdout(Stdio::null());
            Ok((Some(Process(command.spawn()?)), None, format!("relays = [\"{address}\"]\n")))
        }
        Carrier::Nats => {
            let nats = Nats::start();
            let exchange = format!("nats = [\"nats://{}\"]\n", nats.address());
            Ok((None, Some(nats), exchange))
        }
    }
}

fn configuration(plan: &Plan, listen: SocketAddr, backend: SocketAddr, key: &Path, exchange: &str) -> String {
    let (observe, cap_ms) = (plan.discipline == Discipline::Fifo, 20 * plan.cost.as_millis());
    format!(
        "[submission]\nlisten = [\"127.0.0.1:0\"]\nlisten_tls = [\"127.0.0.1:0\"]\n\
         [web]\nlisten = [\"{listen}\"]\nthreads = 1\nbackends = [\"app {backend} slots=1\"]\nobserve = {observe}\nstrangers = 0.0\n\
         debt_cap = \"{cap_ms}ms\"\nqueue_timeout = \"1h\"\n\
         [web.identity]\nsecret_file = \"{}\"\n\
         [web.history]\nlearn = false\n\
         [web.exchange]\n{exchange}",
        key.display()
    )
}

fn front_end(weir: &Path, home: &Path, config: &str) -> Result<Process, Failure> {
    std::fs::write(home.join("weir.toml"), config)?;
    let mut command = bound(weir);
    command.arg("up").arg("--data").arg(home.join("data")).arg("--config").arg(home.join("weir.toml"));
    Ok(Process(command.stdout(Stdio::null()).spawn()?))
}

/// A command that ends with us.
fn bound(program: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command.arg("--pdeathsig=KILL").arg(program);
    command
}

fn write_key(path: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt;
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    std::io::Write::write_all(&mut file, b"the key of a bench is no secret\n")
}

fn free_address() -> std::io::Result<SocketAddr> {
    TcpListener::bind("127.0.0.1:0")?.local_addr()
}

/// Work done for each client at each server within a stretch of time, in requests.
pub(crate) fn work(
    served: &[Vec<Served>],
    clients: usize,
    (from, to): (Instant, Instant),
    cost: Duration,
) -> Vec<Vec<f64>> {
    let mut done = vec![vec![0.0; served.len()]; clients];
    for (server, list) in served.iter().enumerate() {
        for one in list {
            let inside = one.to.min(to).saturating_duration_since(one.from.max(from));
            done[one.client][server] += inside.as_secs_f64() / cost.as_secs_f64();
        }
    }
    done
}

/// Each client's max-min share of what the servers did; clients that are not there have none.
pub(crate) fn ideal(done: &[Vec<f64>], askers: &[Asker], here: &[bool]) -> Vec<f64> {
    let servers = done.first().map_or(0, Vec::len);
    let capacities: Vec<f64> = (0..servers).map(|server| done.iter().map(|client| client[server]).sum()).collect();
    let up = (0..servers).filter(|server| capacities[*server] > 0.0).fold(0, |bits, server| bits | 1 << server);
    let neighbours = |asker: &Asker| {
        let same =
            |(other, here): &(&Asker, &bool)| **here && other.subnet() == asker.subnet() && other.servers & up != 0;
        askers.iter().zip(here).filter(same).count().max(1)
    };
    let shares: Vec<Share> = askers
        .iter()
        .zip(here)
        .map(|(asker, here)| (1.0 / neighbours(asker) as f64, if *here { asker.servers & up } else { 0 }))
        .collect();
    water_fill(&capacities, &shares)
}

/// The largest distance of a total from its ideal, in percent; and the smallest total over its ideal.
pub(crate) fn deviation(totals: &[f64], ideal: &[f64]) -> (f64, f64) {
    let ratios = totals.iter().zip(ideal).filter(|(_, ideal)| **ideal > 0.0).map(|(total, ideal)| total / ideal);
    ratios
        .fold((0.0, f64::MAX), |(worst, least), ratio| (f64::max(worst, (ratio - 1.0).abs() * 100.0), least.min(ratio)))
}
