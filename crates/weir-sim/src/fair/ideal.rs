//! The ideal: weighted max-min shares over the graph of clients and servers, by water-filling.
//!
//! A set B of servers limits the clients that use no other server: they share what B can do. The set with the
//! least water level, capacity over weight, is the bottleneck: its clients get that level times their weight,
//! its servers are spent, and the rest is filled again. All sets are looked at (at most 2^12), so this is
//! exact, not an approximation by iteration.

/// One client: its weight and its servers as bits.
pub type Share = (f64, u32);

/// What each client gets. Client `i` has `clients[i]`; server `j` can do `capacities[j]` and is bit `j`.
pub fn water_fill(capacities: &[f64], clients: &[Share]) -> Vec<f64> {
    let mut shares = vec![0.0; clients.len()];
    let mut open: Vec<usize> = (0..clients.len()).filter(|i| clients[*i].1 != 0).collect();
    let mut left: u32 = (1 << capacities.len()) - 1;
    while !open.is_empty() {
        let weights = weights_inside(capacities.len(), left, open.iter().map(|i| clients[*i]));
        let level = |set: u32| capacity(capacities, set & left) / weights[set as usize];
        let sets = (1..weights.len() as u32).filter(|set| set & !left == 0 && weights[*set as usize] > 0.0);
        let Some(bottleneck) = sets.min_by(|a, b| level(*a).total_cmp(&level(*b))) else { break };
        let water = level(bottleneck);
        open.retain(|&i| {
            let inside = clients[i].1 & left & !bottleneck == 0;
            if inside {
                shares[i] = water * clients[i].0;
            }
            !inside
        });
        left &= !bottleneck;
    }
    shares
}

fn capacity(capacities: &[f64], set: u32) -> f64 {
    capacities.iter().enumerate().filter(|(j, _)| set >> j & 1 == 1).map(|(_, capacity)| capacity).sum()
}

/// For each set of servers, the weight of the clients that use no other of those left.
fn weights_inside(servers: usize, left: u32, clients: impl Iterator<Item = Share>) -> Vec<f64> {
    let mut weights = vec![0.0; 1 << servers];
    for (weight, mask) in clients {
        weights[(mask & left) as usize] += weight;
    }
    for server in 0..servers {
        for set in 0..weights.len() {
            if set >> server & 1 == 1 {
                weights[set] += weights[set ^ (1 << server)];
            }
        }
    }
    weights
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(shares: &[f64], wanted: &[f64]) {
        assert_eq!(shares.len(), wanted.len());
        for (share, wanted) in shares.iter().zip(wanted) {
            assert!((share - wanted).abs() < 1e-9, "{shares:?}");
        }
    }

    #[test]
    fn the_thesis_s_intervals() {
        let (s1, s2, both) = (0b01, 0b10, 0b11);
        let fill = |clients: &[Share]| water_fill(&[4.0, 4.0], clients);
        close(&fill(&[(1.0, s1), (1.0, s2)]), &[4.0, 4.0]);
        close(&fill(&[(1.0, s1), (1.0, s2), (1.0, both)]), &[8.0 / 3.0; 3]);
        let third = 4.0 / 3.0;
        close(&fill(&[(1.0, s1), (0.5, s2), (1.0, both), (0.5, both)]), &[2.0 * third, third, 2.0 * third, third]);
        close(&fill(&[(1.0, s1), (0.5, s2), (0.5, both)]), &[4.0, 2.0, 2.0]);
    }

    #[test]
    fn bottlenecks_are_filled_one_after_the_other() {
        let shares = water_fill(&[10.0, 2.0, 5.0], &[(1.0, 0b001), (1.0, 0b011), (1.0, 0b010), (2.0, 0b100)]);
        close(&shares, &[5.0, 5.0, 2.0, 5.0]);
        close(&water_fill(&[3.0], &[(1.0, 0), (1.0, 1)]), &[0.0, 3.0]);
    }
}
