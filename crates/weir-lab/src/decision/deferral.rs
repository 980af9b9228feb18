//! Attempts that failed although neither the sample nor the plugin is to blame. The sample waits, longer each time, and a machine that keeps
//! refusing gets no work for a while. The core decides how long.

use super::{Decision, MachineId, Now};
use weir_core::runq::{Hindrance, VmId};

impl Decision {
    /// A dispatcher refuses an attempt, or cannot run it: that is not the sample's fault. A machine that refuses again and again gets no samples for a while.
    pub fn refused(&mut self, now: Now, machine: MachineId, attempt: i64, why: &str) {
        if !self.is_running(attempt, machine) {
            return;
        }
        self.put_off(now, attempt, &format!("refused: {why}"), Hindrance::Refused);
        if let Some(known) = self.machines.get_mut(&machine) {
            let rests = known.rest.refused(now.clock);
            tracing::warn!(node = known.node, attempt, why, ?rests, "a machine refuses an attempt");
        }
        self.go_on(now);
        self.retire(now, machine);
    }

    /// The dispatcher cannot get the content of an attempt's sample: that is nobody's fault, and may be over soon.
    pub fn lacks(&mut self, now: Now, machine: MachineId, attempt: i64, why: &str) {
        if !self.is_running(attempt, machine) {
            return;
        }
        tracing::warn!(attempt, why, "the content of a sample is out of reach");
        self.put_off(now, attempt, &format!("lacks: {why}"), Hindrance::OutOfReach);
        self.go_on(now);
        self.retire(now, machine);
    }

    /// An attempt is over and not charged; its sample waits for a while.
    fn put_off(&mut self, now: Now, attempt: i64, outcome: &str, why: Hindrance) {
        let Some(run) = self.running.get(&attempt).cloned() else { return };
        self.over(now, attempt, outcome);
        if self.scheduler.put_off(now.clock, run.attempt)
            && let Some(held) = self.samples.get_mut(&run.attempt.sample)
        {
            self.put_off.insert((now.clock + held.deferrals.put_off(why), run.attempt.sample));
        }
    }

    /// Samples that have been put off for long enough can run again, and machines that rested get samples again.
    pub(super) fn go_on(&mut self, now: Now) {
        while let Some((due, sample)) = self.put_off.first().copied().filter(|(due, _)| *due <= now.clock) {
            self.put_off.remove(&(due, sample));
            self.scheduler.resume(now.clock, sample);
        }
        let rested: Vec<VmId> = self.machines.values_mut().flat_map(|machine| machine.rested(now.clock)).collect();
        for vm in rested {
            self.scheduler.ready(now.clock, vm);
        }
        self.drain(now);
    }
}
