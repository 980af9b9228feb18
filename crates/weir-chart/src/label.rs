//! Labels beside line ends, pushed apart so that none covers another.

/// Moves `wanted` heights (top is 0) apart to at least `gap`, within 0 … `height`, keeping their order.
pub(crate) fn spread(wanted: &[f64], gap: f64, height: f64) -> Vec<f64> {
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by(|a, b| wanted[*a].total_cmp(&wanted[*b]));
    let mut placed = wanted.to_vec();
    let mut lowest = f64::NEG_INFINITY;
    for &i in &order {
        placed[i] = placed[i].max(lowest + gap);
        lowest = placed[i];
    }
    let mut highest = height.max(gap * wanted.len() as f64) + gap;
    for &i in order.iter().rev() {
        placed[i] = placed[i].min(highest - gap);
        highest = placed[i];
    }
    placed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_keep_their_distance_and_order() {
        let placed = spread(&[50.0, 50.0, 52.0, 99.0, 100.0], 12.0, 100.0);
        let mut sorted = placed.clone();
        sorted.sort_by(f64::total_cmp);
        assert!(sorted.windows(2).all(|w| w[1] - w[0] >= 12.0 - 1e-9), "{placed:?}");
        assert!(placed.iter().all(|y| *y <= 100.0 + 1e-9));
        assert!(placed[3] < placed[4]);
    }
}
