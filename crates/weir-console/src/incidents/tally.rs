//! Counts how visitors and senders were served while something was wrong: how much was served and refused, and how long others had to wait.

use super::kind::IncidentKind;
use crate::pulse::Pulse;
use crate::words::{count, grouped, seconds};
use serde::{Deserialize, Serialize};
use weir_mail::operations::Vital;

/// Figures of a look, or of all looks during an incident together: counters with their growth, gauges with their highest values.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Tally {
    /// Mails accepted.
    mails: f64,
    /// Mails that the scan let pass.
    passed: f64,
    /// Requests served, refused, and given up by their clients.
    served: f64,
    refused: f64,
    left: f64,
    /// Recipients of users who are not stopped, whose mail was held.
    held_of_others: f64,
    /// Mails that waited for the scan, and the oldest of them.
    scan_waiting: f64,
    scan_oldest_s: f64,
    /// Requests that waited, and the longest wait of a visitor who is known.
    web_waiting: f64,
    known_wait_s: f64,
    /// Samples that waited.
    samples_open: f64,
    /// 1 if no mail was accepted because the disk was full.
    full: f64,
}

impl Tally {
    /// Of one look.
    pub(super) fn of(pulse: &Pulse) -> Tally {
        let mut tally = Tally { samples_open: pulse.samples_open() as f64, ..Tally::default() };
        if let Some(status) = &pulse.status {
            let of_stopped: usize = pulse.stopped().map(|busy| busy.throttle.held).sum();
            tally.held_of_others = (status.totals.held_recipients - of_stopped as i64).max(0) as f64;
            tally.mails = status.gate.as_ref().map_or(0, mails) as f64;
            tally.full = f64::from(u8::from(status.spool.full));
        }
        if let Some(feeds) = &pulse.feeds {
            tally.passed = feeds.counts.passed as f64;
            tally.scan_waiting = feeds.unscanned() as f64;
            tally.scan_oldest_s = feeds.oldest_s;
        }
        for queue in pulse.web.iter().flat_map(|web| &web.backends).map(|backend| &backend.queue) {
            tally.served += queue.counters.dispatched as f64;
            tally.refused += queue.counters.refused.iter().sum::<u64>() as f64;
            tally.left += queue.counters.left as f64;
            tally.web_waiting += queue.waiting as f64;
            tally.known_wait_s = tally.known_wait_s.max(queue.pressure.known.oldest_s);
        }
        tally
    }

    /// Adds what happened between two looks. A gate that was restarted counts from zero again, which is not growth.
    pub(super) fn add(&mut self, before: &Tally, now: &Tally) {
        let grown = |counter: fn(&Tally) -> f64| (counter(now) - counter(before)).max(0.0);
        self.mails += grown(|tally| tally.mails);
        self.passed += grown(|tally| tally.passed);
        self.served += grown(|tally| tally.served);
        self.refused += grown(|tally| tally.refused);
        self.left += grown(|tally| tally.left);
        self.held_of_others = self.held_of_others.max(now.held_of_others);
        self.scan_waiting = self.scan_waiting.max(now.scan_waiting);
        self.scan_oldest_s = self.scan_oldest_s.max(now.scan_oldest_s);
        self.web_waiting = self.web_waiting.max(now.web_waiting);
        self.known_wait_s = self.known_wait_s.max(now.known_wait_s);
        self.samples_open = self.samples_open.max(now.samples_open);
        self.full = self.full.max(now.full);
    }

    /// What it cost others, in sentences.
    pub(super) fn cost(&self, kind: IncidentKind) -> Vec<String> {
        match kind {
            IncidentKind::Stopped => vec![self.other_mail(), self.held()],
            IncidentKind::Virus => vec![self.scanned(), self.scan_wait()],
            IncidentKind::Scanner => vec![self.scan_wait()],
            IncidentKind::Flood => vec![self.requests(), self.known()],
            IncidentKind::Malware | IncidentKind::Leader => vec![self.samples()],
            IncidentKind::Disk => vec![self.space()],
            IncidentKind::Gate => vec!["Its clients were refused, or waited, until it was back.".to_owned()],
            IncidentKind::Guessing => vec!["Nobody who logs in from where they were before was slowed.".to_owned()],
            IncidentKind::Certificate => vec!["Nothing so far: the certificate has not ended.".to_owned()],
        }
    }

    fn other_mail(&self) -> String {
        match self.mails as u64 {
            0 => "No other mail came meanwhile.".to_owned(),
            mails => format!("Meanwhile {} of everybody were taken.", count(mails, "mail")),
        }
    }

    fn held(&self) -> String {
        match self.held_of_others as u64 {
            0 => "Nobody else's mail was held at any time.".to_owned(),
            held => {
                format!("Of users who were not stopped, {} were held at most at one time.", count(held, "recipient"))
            }
        }
    }

    fn scanned(&self) -> String {
        format!("Meanwhile {} passed the scan.", count(self.passed as u64, "mail"))
    }

    fn scan_wait(&self) -> String {
        match self.scan_waiting as u64 {
            0 => "No mail had to wait for the scan when Weir looked.".to_owned(),
            waiting => format!(
                "At most {} waited for the scan at one time, the oldest for {}.",
                count(waiting, "mail"),
                seconds(self.scan_oldest_s)
            ),
        }
    }

    fn requests(&self) -> String {
        format!(
            "Meanwhile {} were served, {} refused, and {} given up by their clients. At most {} waited at one time.",
            count(self.served as u64, "request"),
            grouped(self.refused as u64),
            grouped(self.left as u64),
            grouped(self.web_waiting as u64)
        )
    }

    fn known(&self) -> String {
        match self.known_wait_s {
            wait if wait < 0.001 => "No visitor who is known from before was seen to wait.".to_owned(),
            wait => format!("A visitor who is known from before waited {} at most.", seconds(wait)),
        }
    }

    fn samples(&self) -> String {
        match self.samples_open as u64 {
            0 => "No sample had to wait when Weir looked.".to_owned(),
            open => format!("At most {} waited or ran at one time. None is lost.", count(open, "sample")),
        }
    }

    fn space(&self) -> String {
        if self.full > 0.0 {
            "No mail was taken for a while: senders were told to try again later.".to_owned()
        } else {
            "Nothing so far: mail was taken all the time.".to_owned()
        }
    }
}

/// Mails that both servers have accepted.
fn mails(gate: &Vital) -> u64 {
    let servers = std::iter::once(&gate.counters).chain(&gate.inbound);
    servers.filter_map(|counters| counters.get("messages")).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_add_up_gauges_peak_and_a_gate_that_starts_anew_makes_no_dent() {
        let mut sum = Tally::default();
        let look = |served, web_waiting| Tally { served, web_waiting, ..Tally::default() };
        sum.add(&look(100.0, 0.0), &look(110.0, 40.0));
        sum.add(&look(110.0, 40.0), &look(3.0, 2.0));
        sum.add(&look(3.0, 2.0), &look(8.0, 7.0));
        assert_eq!((sum.served, sum.web_waiting), (15.0, 40.0));
        assert!(
            sum.cost(IncidentKind::Flood)[0].contains("15 requests were served, 0 refused"),
            "{:?}",
            sum.cost(IncidentKind::Flood)
        );
    }

    #[test]
    fn a_look_that_saw_nothing_costs_nothing() {
        assert_eq!(Tally::of(&Pulse::blind()), Tally::default());
    }
}
