//! The thesis's own test (chapter 4): two front-ends, four clients, 125 s of its time in 25 s of ours.
//!
//! Clients 1 and 2 are always there, at server 1 and at server 2; 3 from 25 to 75 s and 4 from 50 to 100 s, at both; 2 and 4 in one subnet. A request takes
//! 10 ms, so there are 25 times as many in a second of ours as in the thesis, and rates are shown in its unit: eight in all.

use super::Failure;
use super::backend::{Backend, Served};
use super::cluster::{Asker, Carrier, Cluster, Discipline, Plan, deviation, ideal, work};
use crate::Plan as Bench;
use std::io::Write;
use std::time::{Duration, Instant};
use weir_chart::{Axis, Chart, sheet};

const COST: Duration = Duration::from_millis(10);
/// Seconds of the thesis in one of ours.
const PACE: f64 = 5.0;
/// Requests of ours a second that the thesis counts as one.
const UNIT: f64 = 25.0;
const END_S: f64 = 125.0;
const EDGES_S: [f64; 6] = [0.0, 25.0, 50.0, 75.0, 100.0, 125.0];

const ASKERS: [Asker; 4] = [
    Asker { name: "client 1", servers: 0b01, address: [127, 2, 1, 1] },
    Asker { name: "client 2", servers: 0b10, address: [127, 2, 2, 1] },
    Asker { name: "client 3", servers: 0b11, address: [127, 2, 3, 1] },
    Asker { name: "client 4", servers: 0b11, address: [127, 2, 2, 2] },
];
const THERE_S: [(f64, f64); 4] = [(0.0, END_S), (0.0, END_S), (25.0, 75.0), (50.0, 100.0)];

pub(crate) async fn run(bench: &Bench) -> Result<Vec<String>, Failure> {
    let mut out = std::io::stdout();
    writeln!(out, "The thesis's own test over HTTP: two front-ends, four clients; 125 s in 25 s, requests of 10 ms.")?;
    writeln!(
        out,
        "Rates in the thesis's unit (8 requests/s in all); the ideal is the max-min share of what was done.\n"
    )?;
    let fair = play(bench, Discipline::Fair, Carrier::Relay { loss: 0.0 }).await?;
    let worst = fair.table(&mut out, "DFQ")?;
    let fifo = play(bench, Discipline::Fifo, Carrier::None).await?;
    let fifo_worst = fifo.table(&mut out, "FIFO")?;
    writeln!(out, "\nworst deviation in any interval: DFQ {worst:.2} %, FIFO {fifo_worst:.0} %")?;
    if let Some(path) = &bench.plot {
        std::fs::write(path, charts(&fair, &fifo))?;
        writeln!(out, "drawn to {}", path.display())?;
    }
    writeln!(out)?;
    Ok(vec![
        format!("figure web_thesis_worst_percent {worst:.2}"),
        format!("figure web_thesis_fifo_worst_percent {fifo_worst:.1}"),
    ])
}

/// What happened.
struct Play {
    start: Instant,
    served: Vec<Vec<Served>>,
}

async fn play(bench: &Bench, discipline: Discipline, carrier: Carrier) -> Result<Play, Failure> {
    let cluster = Cluster::start(&bench.weir, Plan { servers: 2, cost: COST, carrier, discipline }).await?;
    let start = Instant::now();
    let mut clients: Vec<_> = ASKERS.iter().map(|_| None).collect();
    for edge in EDGES_S {
        tokio::time::sleep_until((start + ours(edge)).into()).await;
        for (number, (from, to)) in THERE_S.iter().enumerate() {
            let here = *from <= edge && edge < *to;
            match (here, clients[number].is_some()) {
                (true, false) => clients[number] = Some(cluster.client(number, &ASKERS[number])),
                (false, true) => clients[number] = None,
                _ => {}
            }
        }
    }
    let served = cluster.backends.iter().map(Backend::served).collect();
    Ok(Play { start, served })
}

fn ours(thesis_s: f64) -> Duration {
    Duration::from_secs_f64(thesis_s / PACE)
}

impl Play {
    fn done(&self, from_s: f64, to_s: f64) -> Vec<Vec<f64>> {
        work(&self.served, ASKERS.len(), (self.start + ours(from_s), self.start + ours(to_s)), COST)
    }

    fn shares(&self, from_s: f64, to_s: f64) -> (Vec<Vec<f64>>, Vec<f64>) {
        let done = self.done(from_s, to_s);
        let here: Vec<bool> = THERE_S.iter().map(|(from, to)| *from <= from_s && to_s <= *to).collect();
        let ideal = ideal(&done, &ASKERS, &here);
        (done, ideal)
    }

    /// Prints the intervals; returns the worst deviation in percent.
    fn table(&self, out: &mut impl Write, name: &str) -> Result<f64, Failure> {
        let names: String = ASKERS.iter().map(|asker| format!("{:>18}", asker.name)).collect();
        writeln!(out, "{name:<12}{names}{:>10}{:>10}", "worst %", "of 8/s")?;
        let mut worst_of_all = 0.0f64;
        for pair in EDGES_S.windows(2) {
            let (from, to) = (pair[0], pair[1]);
            let (done, ideal) = self.shares(from, to);
            let unit = UNIT * (to - from) / PACE;
            let totals: Vec<f64> = done.iter().map(|client| client.iter().sum()).collect();
            let cell = |(total, ideal): (&f64, &f64)| match *ideal > 0.0 {
                true => format!("{:>9.2} of {:>5.2}", total / unit, ideal / unit),
                false => format!("{:>18}", "–"),
            };
            let cells: String = totals.iter().zip(&ideal).map(cell).collect();
            let (worst, _) = deviation(&totals, &ideal);
            worst_of_all = worst_of_all.max(worst);
            let all = totals.iter().sum::<f64>() / unit;
            writeln!(out, "{from:>3.0}–{to:<3.0} s   {cells}{worst:>10.2}{all:>10.2}")?;
            for server in 0..self.served.len() {
                let at: String = done.iter().map(|client| format!("{:>18.2}", client[server] / unit)).collect();
                writeln!(out, "  server {:<3}{at}", server + 1)?;
            }
        }
        Ok(worst_of_all)
    }

    /// Rates over time, of one server or of all.
    fn rates(&self, client: usize, server: Option<usize>) -> Vec<(f64, f64)> {
        const STEP_S: f64 = 2.5;
        let (from, to) = THERE_S[client];
        let steps = ((to - from) / STEP_S) as usize;
        let rate = |step: usize| {
            let at = from + step as f64 * STEP_S;
            let done = &self.done(at, at + STEP_S)[client];
            let work = server.map_or_else(|| done.iter().sum(), |server| done[server]);
            (at + STEP_S / 2.0, work / (UNIT * STEP_S / PACE))
        };
        (0..steps).map(rate).collect()
    }

    fn ideals(&self, client: usize) -> Vec<(f64, f64)> {
        let steps = EDGES_S.windows(2).map(|pair| (pair[0], pair[1]));
        let here = steps.filter(|(from, to)| THERE_S[client].0 <= *from && *to <= THERE_S[client].1);
        here.flat_map(|(from, to)| {
            let rate = self.shares(from, to).1[client] / (UNIT * (to - from) / PACE);
            [(from, rate), (to, rate)]
        })
        .collect()
    }

    fn chart(&self, title: &str, server: Option<usize>) -> Chart {
        let time = Axis::linear("time", "s of the thesis").range(0.0, END_S);
        let mut chart = Chart::new(title, time, Axis::linear("rate", "requests/s").range(0.0, 6.0));
        for (client, asker) in ASKERS.iter().enumerate() {
            let uses = server.is_none_or(|server| asker.servers >> server & 1 == 1);
            // A client that does not use the server keeps its place in the order of colours.
            let points = if uses { self.rates(client, server) } else { Vec::new() };
            chart = chart.line(asker.name, points);
            if server.is_none() {
                chart = chart.dashed("", self.ideals(client));
            }
        }
        chart
    }
}

/// As Figures 4-3, 4-2, 4-4 and 4-5.
fn charts(fair: &Play, fifo: &Play) -> String {
    let charts = [
        fair.chart("DFQ, both servers together; dashed: the ideal share (Figure 4-3)", None),
        fifo.chart("FIFO, both servers together; dashed: the ideal share (Figure 4-2)", None),
        fair.chart("DFQ at server 1 (Figure 4-4)", Some(0)),
        fair.chart("DFQ at server 2 (Figure 4-5)", Some(1)),
    ];
    sheet("The thesis's test over HTTP, two front-ends", &charts)
}
