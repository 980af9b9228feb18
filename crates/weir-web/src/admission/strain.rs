//! Whether the server is slower with all slots in use, which tells whether there are too many of them or too few.

/// How much longer the server takes while all slots are in use than while at most half are.
#[derive(Clone, Debug, Default)]
pub(super) struct Strain {
    relaxed: Mean,
    pressed: Mean,
}

#[derive(Clone, Debug, Default)]
struct Mean {
    value: f64,
    count: u32,
}

/// Answers that are needed on both sides.
const STRAIN_LEAST: u32 = 50;

impl Strain {
    /// An answer took so many times what requests of its kind usually cost.
    pub(super) fn note(&mut self, part_of_usual: f64, pressed: bool) {
        let mean = if pressed { &mut self.pressed } else { &mut self.relaxed };
        mean.count = mean.count.saturating_add(1);
        mean.value += (part_of_usual - mean.value) / f64::from(mean.count.min(200));
    }

    /// Pressed over relaxed, once enough has been seen of both.
    pub(super) fn ratio(&self) -> Option<f64> {
        let enough = self.relaxed.count >= STRAIN_LEAST && self.pressed.count >= STRAIN_LEAST;
        (enough && self.relaxed.value > 0.0).then(|| self.pressed.value / self.relaxed.value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_told_once_enough_has_been_seen() {
        let mut strain = Strain::default();
        assert_eq!(strain.ratio(), None);
        (0..60).for_each(|_| {
            strain.note(1.0, false);
            strain.note(3.0, true);
        });
        assert!((strain.ratio().unwrap() - 3.0).abs() < 0.01);
    }
}
