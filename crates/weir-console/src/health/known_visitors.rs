//! Known visitors of a web backend who wait for long while all its slots are held. The fair queue cannot help them until a slot is free.

use super::HealthPart;
use crate::words::seconds;
use weir_web::admission::{Pressure, View};

/// If a known visitor has waited for this long, somebody should look.
const WAIT_S: f64 = 5.0;

pub(super) fn look(part: &mut HealthPart, queue: &View) {
    if let Some(says) = says(&queue.backend, &queue.pressure).filter(|_| !queue.observe) {
        part.look(says, "/web");
    }
}

fn says(backend: &str, pressure: &Pressure) -> Option<String> {
    let waited_s = pressure.known.oldest_s;
    let is_long = waited_s >= WAIT_S && pressure.held >= pressure.slots;
    // A visitor who has sent more than the slots can handle waits because of its own requests.
    let first = pressure.holders.first().filter(|first| is_long && pressure.waiting() > first.waiting)?;
    Some(format!(
        "known visitors of {backend} have waited for {}: all slots are held, {} of {} by {} (the oldest for {})",
        seconds(waited_s),
        first.slots,
        pressure.slots,
        first.network,
        seconds(first.oldest_s)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;
    use weir_web::admission::SlotHolder;

    #[test]
    fn who_keeps_known_visitors_waiting_is_named() {
        let holder = SlotHolder {
            network: "192.0.2.0/24".into(),
            client: Ipv4Addr::new(192, 0, 2, 1).into(),
            slots: 4,
            oldest_s: 34.0,
            waiting: 0,
        };
        let mut pressure = Pressure { holders: vec![holder], slots: 4, held: 4, ..Pressure::default() };
        (pressure.known.waiting, pressure.known.oldest_s) = (1, 12.0);
        let said = says("app", &pressure).expect("somebody should look");
        assert!(said.contains("4 of 4 by 192.0.2.0/24") && said.contains("12"), "{said}");
        pressure.holders[0].waiting = 1;
        assert_eq!(says("app", &pressure), None, "it waits for itself");
        pressure.holders[0].waiting = 0;
        pressure.held = 3;
        assert_eq!(says("app", &pressure), None, "a slot is free");
        pressure.held = 4;
        pressure.known.oldest_s = 1.0;
        assert_eq!(says("app", &pressure), None, "that is not long");
    }
}
