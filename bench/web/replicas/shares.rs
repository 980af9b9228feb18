//! Bench (c): three front-ends, clients at one or several of them.

use super::Failure;
use super::backend::Backend;
use super::cluster::{Asker, Carrier, Cluster, Discipline, Plan, deviation, ideal, work};
use crate::Plan as Bench;
use std::io::Write;
use std::time::{Duration, Instant};

const COST: Duration = Duration::from_millis(10);
const WARM: Duration = Duration::from_secs(2);
const RUN: Duration = Duration::from_secs(20);

/// One at server 1 alone; five at server 2 alone, two of them neighbours; one at 1 and 3; two at all three, one of these a
/// neighbour of the first.
const ASKERS: [Asker; 9] = [
    Asker { name: "c1", servers: 0b001, address: [127, 1, 1, 1] },
    Asker { name: "c2", servers: 0b010, address: [127, 1, 2, 1] },
    Asker { name: "c3", servers: 0b010, address: [127, 1, 3, 1] },
    Asker { name: "c4", servers: 0b010, address: [127, 1, 4, 1] },
    Asker { name: "c5", servers: 0b010, address: [127, 1, 5, 1] },
    Asker { name: "c6", servers: 0b010, address: [127, 1, 5, 2] },
    Asker { name: "c7", servers: 0b101, address: [127, 1, 6, 1] },
    Asker { name: "c8", servers: 0b111, address: [127, 1, 7, 1] },
    Asker { name: "c9", servers: 0b111, address: [127, 1, 1, 2] },
];

pub(crate) async fn run(bench: &Bench) -> Result<Vec<String>, Failure> {
    let mut out = std::io::stdout();
    writeln!(
        out,
        "(c) Three front-ends, nine clients with four requests at each of their servers; 100 requests/s a server."
    )?;
    writeln!(out, "Totals against max-min shares of what the servers did, over {} s.\n", RUN.as_secs())?;
    let names: String = ASKERS.iter().map(|asker| format!("{:>7}", asker.name)).collect();
    writeln!(out, "{:<34}{names}{:>9}{:>8}", "requests/s", "worst %", "least")?;
    let mut worst_share = f64::MAX;
    for (name, carrier) in [
        ("no exchange", Carrier::None),
        ("relay", Carrier::Relay { loss: 0.0 }),
        ("NATS", Carrier::Nats),
        ("relay, a fifth of frames lost", Carrier::Relay { loss: 0.2 }),
    ] {
        let plan = Plan { servers: 3, cost: COST, carrier, discipline: Discipline::Fair };
        let mut cluster = Cluster::start(&bench.weir, plan).await?;
        let _clients: Vec<_> = ASKERS.iter().enumerate().map(|(number, asker)| cluster.client(number, asker)).collect();
        tokio::time::sleep(WARM).await;
        let least = measure(&mut out, name, &cluster).await?;
        if carrier != Carrier::None {
            worst_share = worst_share.min(least);
        }
        if carrier == (Carrier::Relay { loss: 0.0 }) {
            cluster.kill(2)?;
            // The dead one is forgotten after two seconds.
            tokio::time::sleep(WARM + WARM).await;
            let least = measure(&mut out, "relay, third front-end killed", &cluster).await?;
            worst_share = worst_share.min(least);
        }
    }
    Ok(vec![format!("ratio web_worst_share {worst_share:.3}")])
}

/// A line of the table; returns the smallest total over its ideal.
async fn measure(out: &mut impl Write, name: &str, cluster: &Cluster) -> Result<f64, Failure> {
    let from = Instant::now();
    tokio::time::sleep(RUN).await;
    let to = Instant::now();
    let served: Vec<_> = cluster.backends.iter().map(Backend::served).collect();
    let done = work(&served, ASKERS.len(), (from, to), COST);
    let totals: Vec<f64> = done.iter().map(|client| client.iter().sum()).collect();
    let ideal = ideal(&done, &ASKERS, &[true; ASKERS.len()]);
    let (worst, least) = deviation(&totals, &ideal);
    let a_second = |count: &f64| format!("{:>7.1}", count / RUN.as_secs_f64());
    let (got, wanted): (String, String) = (totals.iter().map(a_second).collect(), ideal.iter().map(a_second).collect());
    writeln!(out, "{name:<34}{got}{worst:>9.2}{least:>8.3}")?;
    writeln!(out, "{:<34}{wanted}", "  max-min")?;
    Ok(least)
}
