//! A scenario: servers, clients, history; as read from a file, as the thesis has it, or drawn at random.

use super::subnet::Subnet;
use crate::input::InputError;
use crate::rng::Rng;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// Who asks whom for what, and when.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// How long it takes, in seconds.
    pub duration_s: f64,
    /// How long news takes from one front-end to another, in milliseconds.
    #[serde(default = "default_delay")]
    pub exchange_delay_ms: f64,
    /// The servers, each with a front-end.
    pub servers: Vec<Server>,
    /// The clients, each a session of its own.
    pub clients: Vec<Client>,
    /// Histories of subnets in multiples of the average; a subnet that is missing has the average, 1.
    #[serde(default)]
    pub history: BTreeMap<String, f64>,
}

/// A server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Server {
    /// Its name.
    pub name: String,
    /// Requests that it serves at once.
    #[serde(default = "default_slots")]
    pub slots: u32,
    /// Work units a second, of all slots together.
    pub rate: f64,
}

/// A client.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Client {
    /// Its name.
    pub name: String,
    /// Its address, which says its subnet.
    pub ip: String,
    /// The servers that it uses.
    pub servers: Vec<String>,
    /// Work units of each of its requests.
    #[serde(default = "default_work")]
    pub work: f64,
    /// When it comes, in seconds.
    #[serde(default)]
    pub from_s: f64,
    /// When it goes; the end of the scenario if missing or later.
    #[serde(default = "default_to")]
    pub to_s: f64,
    /// Requests that it keeps waiting at each of its servers; when one is taken for service, it sends another.
    #[serde(default = "default_outstanding")]
    pub outstanding: u32,
}

fn default_delay() -> f64 {
    5.0
}
fn default_slots() -> u32 {
    1
}
fn default_work() -> f64 {
    1.0
}
fn default_to() -> f64 {
    LONGEST_S
}
fn default_outstanding() -> u32 {
    4
}

const LONGEST_S: f64 = 86_400.0;
const SERVERS_MAX: usize = 12;
const CLIENTS_MAX: usize = 1_000;
/// Requests that a scenario may take to play.
const REQUESTS_MAX: f64 = 2e7;

impl Scenario {
    /// Reads a scenario; `place` names the file in errors.
    pub fn parse(text: &str, place: &str) -> Result<Scenario, InputError> {
        let mut scenario: Scenario = serde_json::from_str(text).map_err(|error| malformed(place, &error))?;
        for client in &mut scenario.clients {
            client.to_s = client.to_s.min(scenario.duration_s);
        }
        scenario.check(place)?;
        Ok(scenario)
    }

    /// The thesis's own test (section 4): two servers of four requests a second; clients 1 and 2 always there,
    /// 3 from 25 to 75 s and 4 from 50 to 100 s at both servers; 2 and 4 in one subnet.
    pub fn thesis() -> Scenario {
        let client = |name: &str, ip: &str, servers: &[&str], (from_s, to_s): (f64, f64)| Client {
            name: name.into(),
            ip: ip.into(),
            servers: servers.iter().map(|s| (*s).into()).collect(),
            work: 1.0,
            from_s,
            to_s,
            outstanding: 4,
        };
        let server = |name: &str| Server { name: name.into(), slots: 1, rate: 4.0 };
        Scenario {
            duration_s: 125.0,
            exchange_delay_ms: 5.0,
            servers: vec![server("s1"), server("s2")],
            clients: vec![
                client("c1", "10.0.1.1", &["s1"], (0.0, 125.0)),
                client("c2", "10.0.2.1", &["s2"], (0.0, 125.0)),
                client("c3", "10.0.3.1", &["s1", "s2"], (25.0, 75.0)),
                client("c4", "10.0.2.2", &["s1", "s2"], (50.0, 100.0)),
            ],
            history: BTreeMap::new(),
        }
    }

    /// A scenario drawn at random: 2–6 servers, 3–40 clients, mixed subnets, slots, costs and histories, with
    /// two or three intervals. It lasts long enough for the smallest share to be a few hundred requests.
    pub fn random(seed: u64) -> Scenario {
        let mut rng = Rng::new(seed);
        let servers: Vec<Server> = (1..=rng.between(2, 6))
            .map(|i| Server {
                name: format!("s{i}"),
                slots: rng.between(1, 4) as u32,
                rate: rng.between(10, 60) as f64,
            })
            .collect();
        let clients = rng.between(3, 40);
        let subnets = rng.between(1, clients);
        let interval_s = 20.0 * clients as f64;
        let cuts = rng.between(1, 2);
        let duration_s = interval_s * (cuts + 1) as f64;
        let client = |i| random_client(&mut rng, i, (&servers, subnets, interval_s, cuts));
        let clients: Vec<Client> = (1..=clients).map(client).collect();
        let mut history = BTreeMap::new();
        for client in &clients {
            if rng.chance(0.3) {
                history.insert(subnet_of(client).to_string(), rng.between(1, 4) as f64);
            }
        }
        Scenario { duration_s, exchange_delay_ms: rng.between(0, 20) as f64, servers, clients, history }
    }

    /// The subnet of each client, and the history of each subnet that has one.
    pub(super) fn subnets(&self) -> (Vec<Subnet>, BTreeMap<Subnet, f64>) {
        let history = self.history.iter().filter_map(|(key, value)| Some((key.parse().ok()?, *value)));
        (self.clients.iter().map(subnet_of).collect(), history.collect())
    }

    /// For each client, the places of its servers in the list of servers.
    pub(super) fn edges(&self) -> Vec<Vec<usize>> {
        let place = |name: &String| self.servers.iter().position(|server| server.name == *name);
        self.clients.iter().map(|client| client.servers.iter().filter_map(place).collect()).collect()
    }

    /// Moments at which a client comes or goes, with the beginning and the end.
    pub(super) fn cuts(&self) -> Vec<f64> {
        let moments = self.clients.iter().flat_map(|client| [client.from_s, client.to_s]);
        let mut cuts: Vec<f64> = moments.chain([0.0, self.duration_s]).collect();
        cuts.sort_by(f64::total_cmp);
        cuts.dedup();
        cuts
    }

    fn check(&self, place: &str) -> Result<(), InputError> {
        let at = InFile(place);
        at.number("duration_s", self.duration_s, (0.001, LONGEST_S))?;
        at.number("exchange_delay_ms", self.exchange_delay_ms, (0.0, 60_000.0))?;
        at.count("servers", self.servers.len(), SERVERS_MAX)?;
        at.count("clients", self.clients.len(), CLIENTS_MAX)?;
        self.check_servers(&at)?;
        self.check_clients(&at)?;
        for (key, value) in &self.history {
            let path = format!("history[{key:?}]");
            key.parse::<Subnet>().map_err(|hint| at.wrong(&path, format!("{key:?} is not a subnet"), hint))?;
            at.number(&path, *value, (0.001, 1e6))?;
        }
        self.check_size(&at)
    }

    fn check_servers(&self, at: &InFile<'_>) -> Result<(), InputError> {
        let mut names = BTreeSet::new();
        for (i, server) in self.servers.iter().enumerate() {
            at.name(&format!("servers[{i}].name"), &server.name, &mut names)?;
            at.number(&format!("servers[{i}].slots"), f64::from(server.slots), (1.0, 1_000.0))?;
            at.number(&format!("servers[{i}].rate"), server.rate, (0.001, 1e6))?;
        }
        Ok(())
    }

    fn check_clients(&self, at: &InFile<'_>) -> Result<(), InputError> {
        let mut names = BTreeSet::new();
        for (i, client) in self.clients.iter().enumerate() {
            let path = |key: &str| format!("clients[{i}].{key}");
            at.name(&path("name"), &client.name, &mut names)?;
            client.ip.parse::<IpAddr>().map_err(|_| {
                let problem = format!("{:?} is not an IP address", client.ip);
                at.wrong(&path("ip"), problem, "write one such as \"10.0.1.1\" or \"2001:db8::1\"")
            })?;
            at.number(&path("work"), client.work, (0.001, 1_000.0))?;
            at.number(&path("from_s"), client.from_s, (0.0, self.duration_s))?;
            at.number(&path("to_s"), client.to_s, (0.0, self.duration_s))?;
            at.number(&path("outstanding"), f64::from(client.outstanding), (1.0, 1_000.0))?;
            if client.from_s >= client.to_s {
                let problem = format!("the client goes at {} s but comes at {} s", client.to_s, client.from_s);
                return Err(at.wrong(&path("to_s"), problem, "let it go after it has come, and before the end"));
            }
            self.check_edges(i, client, at)?;
        }
        Ok(())
    }

    fn check_edges(&self, i: usize, client: &Client, at: &InFile<'_>) -> Result<(), InputError> {
        at.count(&format!("clients[{i}].servers"), client.servers.len(), self.servers.len())?;
        let mut seen = BTreeSet::new();
        for (j, name) in client.servers.iter().enumerate() {
            let path = format!("clients[{i}].servers[{j}]");
            if !self.servers.iter().any(|server| server.name == *name) {
                let known: Vec<&str> = self.servers.iter().map(|s| s.name.as_str()).collect();
                let hint = format!("the servers are {}", known.join(", "));
                return Err(at.wrong(&path, format!("there is no server {name:?}"), &hint));
            }
            if !seen.insert(name) {
                return Err(at.wrong(&path, format!("{name:?} is listed twice"), "list each server once"));
            }
        }
        Ok(())
    }

    /// How long it takes to play is bounded: requests served, and requests that wait.
    fn check_size(&self, at: &InFile<'_>) -> Result<(), InputError> {
        let least = self.clients.iter().map(|client| client.work).fold(f64::INFINITY, f64::min);
        let requests = self.duration_s * self.servers.iter().map(|server| server.rate).sum::<f64>() / least;
        if requests > REQUESTS_MAX {
            let problem = format!("about {requests:.0} requests would be served");
            let hint = format!("duration_s × rate / work may come to {REQUESTS_MAX:.0} at most");
            return Err(at.wrong("duration_s", problem, &hint));
        }
        let waiting: usize = self.clients.iter().map(|c| c.servers.len() * c.outstanding as usize).sum();
        if waiting > 1_000_000 {
            let hint = "clients × servers × outstanding may come to a million at most";
            return Err(at.wrong("clients", format!("{waiting} requests would wait"), hint));
        }
        Ok(())
    }
}

fn subnet_of(client: &Client) -> Subnet {
    client.ip.parse().map_or(Subnet::V4(0), |ip: IpAddr| Subnet::from(ip))
}

fn random_client(rng: &mut Rng, i: u64, setting: (&[Server], u64, f64, u64)) -> Client {
    let (servers, subnets, interval_s, cuts) = setting;
    let mut names: Vec<String> = servers.iter().map(|server| server.name.clone()).collect();
    rng.shuffle(&mut names);
    names.truncate(rng.between(1, servers.len() as u64) as usize);
    let subnet = rng.between(1, subnets);
    let ip =
        if subnet.is_multiple_of(3) { format!("2001:db8:0:{subnet:x}00::{i:x}") } else { format!("10.0.{subnet}.{i}") };
    let (mut from, mut to) = (0, cuts + 1);
    if rng.chance(0.3) {
        let cut = rng.between(1, cuts);
        *rng.pick(&[true, false]).then_some(&mut from).unwrap_or(&mut to) = cut;
    }
    Client {
        name: format!("c{i}"),
        ip,
        servers: names,
        work: rng.between(1, 8) as f64 / 4.0,
        from_s: from as f64 * interval_s,
        to_s: to as f64 * interval_s,
        outstanding: rng.between(2, 8) as u32,
    }
}

/// Where a problem is: the file, then the key.
struct InFile<'a>(&'a str);

impl InFile<'_> {
    fn wrong(&self, path: &str, problem: String, hint: &str) -> InputError {
        InputError::new(format!("{}: {path}", self.0), problem, hint)
    }

    fn number(&self, path: &str, value: f64, (least, most): (f64, f64)) -> Result<(), InputError> {
        if value >= least && value <= most {
            return Ok(());
        }
        Err(self.wrong(path, format!("{value} is out of bounds"), &format!("give a number from {least} to {most}")))
    }

    fn count(&self, path: &str, count: usize, most: usize) -> Result<(), InputError> {
        if (1..=most).contains(&count) {
            return Ok(());
        }
        Err(self.wrong(path, format!("{count} entries"), &format!("list from 1 to {most}")))
    }

    fn name<'n>(&self, path: &str, name: &'n str, seen: &mut BTreeSet<&'n str>) -> Result<(), InputError> {
        if name.is_empty() || name.len() > 100 || name.chars().any(char::is_control) {
            return Err(self.wrong(path, format!("{name:?} is not a name"), "use 1 to 100 printable characters"));
        }
        if !seen.insert(name) {
            return Err(self.wrong(path, format!("{name:?} is there already"), "give each a name of its own"));
        }
        Ok(())
    }
}

fn malformed(place: &str, error: &serde_json::Error) -> InputError {
    let text = error.to_string();
    let problem = text.split(" at line ").next().unwrap_or(&text).to_string();
    let place = match error.line() {
        0 => place.to_string(),
        line => format!("{place}:{line}:{}", error.column()),
    };
    let hint = if error.is_data() {
        "the keys are duration_s, exchange_delay_ms, servers (name, slots, rate), clients (name, ip, servers, work, \
         from_s, to_s, outstanding) and history"
    } else {
        "the file must be one JSON object"
    };
    InputError::new(place, problem, hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: &str = r#"{"duration_s":125,"exchange_delay_ms":5,"servers":[{"name":"s1","slots":1,"rate":4}],
        "clients":[{"name":"c1","ip":"10.0.1.1","servers":["s1"],"work":1,"from_s":0,"to_s":125,"outstanding":4}],
        "history":{"10.0.1.0/24":1.0}}"#;

    #[test]
    fn a_scenario_is_read_and_printed() {
        let scenario = Scenario::parse(SMALL, "x.json").unwrap();
        let again = serde_json::to_string(&scenario).unwrap();
        assert_eq!(Scenario::parse(&again, "x.json").unwrap(), scenario);
        for seed in 0..200 {
            let text = serde_json::to_string(&Scenario::random(seed)).unwrap();
            Scenario::parse(&text, "random").unwrap();
        }
        Scenario::thesis().check("thesis").unwrap();
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place() {
        let cases = [
            ("\"slots\"", "\"solts\"", "x.json:1:", "unknown field `solts`"),
            ("10.0.1.1", "10.0.1", "clients[0].ip", "\"10.0.1\" is not an IP"),
            ("[\"s1\"]", "[\"s9\"]", "clients[0].servers[0]", "no server \"s9\""),
            ("[\"s1\"]", "[\"s1\",\"s1\"]", "clients[0].servers", "2 entries"),
            ("[\"s1\"]", "[]", "clients[0].servers", "0 entries"),
            ("\"rate\":4", "\"rate\":-4", "servers[0].rate", "-4 is out of bounds"),
            ("\"rate\":4", "\"rate\":1e18", "servers[0].rate", "out of bounds"),
            ("\"slots\":1", "\"slots\":0", "servers[0].slots", "out of bounds"),
            ("\"slots\":1", "\"slots\":-1", "x.json:1:", "invalid value"),
            ("\"work\":1", "\"work\":0", "clients[0].work", "out of bounds"),
            ("\"from_s\":0", "\"from_s\":125", "clients[0].to_s", "comes at 125"),
            ("\"outstanding\":4", "\"outstanding\":0", "clients[0].outstanding", "out of bounds"),
            ("\"duration_s\":125", "\"duration_s\":0", "duration_s", "out of bounds"),
            ("\"rate\":4", "\"rate\":1000000", "duration_s", "requests would be served"),
            ("10.0.1.0/24", "10.0.1.0/16", "history[\"10.0.1.0/16\"]", "not a subnet"),
            ("1.0}", "-1}", "history[\"10.0.1.0/24\"]", "out of bounds"),
            ("125,\"exchange", "125 \"exchange", "x.json:1:", "expected `,`"),
        ];
        for (from, to, place, problem) in cases {
            let error = Scenario::parse(&SMALL.replacen(from, to, 1), "x.json").unwrap_err();
            assert!(error.place.contains(place) && error.problem.contains(problem), "{to}: {error}");
        }
        assert!(Scenario::parse("", "x.json").unwrap_err().problem.contains("EOF"));
    }
}
