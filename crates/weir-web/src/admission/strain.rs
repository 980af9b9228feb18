//! Measures how much slower the server is with all slots in use than with at most half of them. That tells whether there are too many slots
//! or too few.

/// How much longer the server takes while all slots are in use than while at most half are. Two kinds of responses are measured separately.
/// Those that are charged by time: when they begin, compared with what is usual. Those that tell what they cost: how long they took for
/// each unit that they tell.
#[derive(Clone, Debug, Default)]
pub(super) struct Strain {
    by_time: Pair,
    by_units: Pair,
}

#[derive(Clone, Debug, Default)]
struct Pair {
    relaxed: Sums,
    pressed: Sums,
}

/// What answers took, and what was expected of them.
#[derive(Clone, Debug, Default)]
struct Sums {
    took: f64,
    expected: f64,
    count: u32,
}

/// How many answers are needed on both sides.
const STRAIN_LEAST: u32 = 50;
/// Earlier answers count less and less.
const MEMORY: f64 = 200.0;

impl Strain {
    /// A response began after this many times the usual cost of requests of its kind.
    pub(super) fn note(&mut self, part_of_usual: f64, pressed: bool) {
        self.by_time.side(pressed).add(part_of_usual, 1.0);
    }

    /// An answer took `took_ns`, and said that it has cost `told_ns`.
    pub(super) fn note_told(&mut self, took_ns: u64, told_ns: u64, pressed: bool) {
        if told_ns > 0 {
            self.by_units.side(pressed).add(took_ns as f64, told_ns as f64);
        }
    }

    /// The ratio of pressed to relaxed, once enough of both has been seen.
    pub(super) fn ratio(&self) -> Option<f64> {
        self.by_time.ratio()
    }

    /// The same for responses that tell what they have cost, by the time for a unit.
    pub(super) fn unit_ratio(&self) -> Option<f64> {
        self.by_units.ratio()
    }
}

impl Pair {
    fn side(&mut self, pressed: bool) -> &mut Sums {
        if pressed { &mut self.pressed } else { &mut self.relaxed }
    }

    fn ratio(&self) -> Option<f64> {
        let Pair { relaxed, pressed } = self;
        let enough = relaxed.count >= STRAIN_LEAST && pressed.count >= STRAIN_LEAST;
        (enough && relaxed.took > 0.0).then(|| pressed.value() / relaxed.value())
    }
}

impl Sums {
    fn add(&mut self, took: f64, expected: f64) {
        self.count = self.count.saturating_add(1);
        let kept = if f64::from(self.count) > MEMORY { 1.0 - 1.0 / MEMORY } else { 1.0 };
        (self.took, self.expected) = (self.took * kept + took, self.expected * kept + expected);
    }

    fn value(&self) -> f64 {
        self.took / self.expected
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
        (0..2_000).for_each(|_| strain.note(1.0, true));
        assert!((strain.ratio().unwrap() - 1.0).abs() < 0.01, "what was long ago is forgotten");
    }

    #[test]
    fn units_are_compared_with_units() {
        let mut strain = Strain::default();
        // Small answers while there is room, large ones while there is none: the server is no slower.
        (0..60).for_each(|number| {
            strain.note_told(10 + number % 2, 10 + number % 2, false);
            strain.note_told(1_000, 1_000, true);
            strain.note_told(1_000, 0, true);
        });
        assert!((strain.unit_ratio().unwrap() - 1.0).abs() < 0.01);
        assert_eq!(strain.ratio(), None);
    }
}
