//! Reads from a response how much it has cost, so that the slot can be charged for that.

use std::sync::Arc;
use std::time::Duration;

use http::HeaderName;

use crate::admission::Cost;
use crate::units::{Meter, Units, UnitsSource};

/// Reads one response.
#[derive(Debug)]
pub(super) struct UnitMeter {
    units: Arc<Units>,
    meter: Meter,
}

impl UnitMeter {
    /// For a response; `field` finds a field of its head.
    pub(super) fn new<'a>(
        units: Arc<Units>,
        events: bool,
        field: impl FnOnce(&HeaderName) -> Option<&'a [u8]>,
    ) -> UnitMeter {
        let meter = match &units.place {
            UnitsSource::Header(name) => Meter::of_header(field(name)),
            UnitsSource::Json(keys) => Meter::of_body(keys, events),
        };
        UnitMeter { units, meter }
    }

    /// The next piece of the body.
    pub(super) fn see(&mut self, octets: &[u8]) {
        self.meter.see(octets);
    }

    /// What to charge now that the response is complete, and the slot was held for so long. A response that does not say its cost, such as an error,
    /// is charged by its time.
    pub(super) fn cost(&self, held: Duration) -> Cost {
        match self.meter.told() {
            Some(units) => Cost::Told(self.units.cost(units)),
            None => match self.units.cost(self.meter.events()) {
                events if events > held => Cost::Told(events),
                _ => Cost::Time,
            },
        }
    }
}
