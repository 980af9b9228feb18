//! Who is next, in which group, and on which VM.

use super::{At, Model, Vm};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use weir_core::runq::{Needs, Strain, Waiting};
use weir_core::time::Instant;

impl Model {
    pub(super) fn room(&self, g: usize) -> usize {
        self.groups[g].vms.len() * self.settings.waiting_per_vm as usize
    }

    pub(super) fn able<'a>(&'a self, g: usize, needs: &'a Needs) -> impl Iterator<Item = usize> + 'a {
        let vms = &self.groups[g].vms;
        (0..vms.len()).filter(move |v| !vms[*v].0.runs(needs).is_empty())
    }

    pub(super) fn free<'a>(&'a self, g: usize, needs: &'a Needs) -> impl Iterator<Item = usize> + 'a {
        let full = self.groups[g].strain == Strain::FULL;
        self.able(g, needs).filter(move |v| !full && self.groups[g].vms[*v].1 == Vm::Free)
    }

    pub(super) fn has_room(&self, g: usize, needs: &Needs) -> bool {
        let group = &self.groups[g];
        let waiting = || group.current.iter().chain(&group.next);
        let of_class = waiting().filter(|s| self.samples[**s].needs() == *needs).count();
        let class_room = self.able(g, needs).count() * self.settings.waiting_per_vm as usize;
        group.strain != Strain::FULL && waiting().count() < self.room(g) && of_class < class_room
    }

    fn takes(&self, g: usize, s: usize) -> bool {
        let (group, needs) = (&self.groups[g], self.samples[s].needs());
        let at_once = self.free(g, &needs).count() > 0;
        if self.is_idle(s) {
            at_once && group.current.is_empty() && group.next.is_empty()
        } else {
            at_once || self.has_room(g, &needs)
        }
    }

    pub(super) fn best(&self, g: usize, vms: impl Iterator<Item = usize>, needs: &Needs) -> Option<usize> {
        let offer = |v: usize| &self.groups[g].vms[v].0;
        vms.max_by_key(|v| (offer(*v).runs(needs).len(), Reverse(offer(*v).plugins.len()), Reverse(*v)))
    }

    pub(super) fn schedule(&mut self) {
        (0..self.groups.len()).for_each(|g| self.settle(g));
        while let Some(s) = self.choose() {
            let g = self.group_for(s);
            let id = self.groups[g].id;
            if self.is_idle(s) {
                self.samples[s].at = At::Waiting(id, Waiting::Idle);
                self.groups[g].idle.push(s);
                self.run_idle(g);
            } else {
                self.samples[s].at = At::Waiting(id, Waiting::Current);
                self.enter_current(g, s);
                self.settle(g);
            }
        }
        (0..self.groups.len()).for_each(|g| self.run_idle(g));
    }

    fn urgency(&self, s: usize) -> Instant {
        let queue = self.samples[s].queue();
        match self.settings.ageing {
            None => Instant(u64::from(queue)),
            Some(step) => self.samples[s].queued_at + step * u32::from(queue),
        }
    }

    pub(super) fn enter_current(&mut self, g: usize, s: usize) {
        let current = &self.groups[g].current;
        let behind = current.iter().rposition(|other| self.urgency(*other) <= self.urgency(s));
        self.groups[g].current.insert(behind.map_or(0, |at| at + 1), s);
    }

    fn choose(&mut self) -> Option<usize> {
        let servable =
            |s: &usize| self.samples[*s].at == At::Queued && (0..self.groups.len()).any(|g| self.takes(g, *s));
        let mut fronts: BTreeMap<u8, usize> = BTreeMap::new();
        let place = |s: usize| (self.turns[&self.lane(s)], self.samples[s].ticket);
        for s in (0..self.samples.len()).filter(servable) {
            let front = fronts.entry(self.samples[s].queue()).or_insert(s);
            if place(s) < place(*front) {
                *front = s;
            }
        }
        let (_, s) = match self.settings.ageing {
            None => fronts.pop_first()?,
            Some(step) => {
                fronts.into_iter().min_by_key(|(q, s)| (self.samples[*s].queued_at + step * u32::from(*q), *q))?
            }
        };
        self.counter += 1;
        let served = self.lane(s);
        for (lane, (submitter_turn, lane_turn)) in &mut self.turns {
            if (lane.0, lane.1) == (served.0, served.1) {
                *submitter_turn = self.counter;
            }
            if *lane == served {
                *lane_turn = self.counter;
            }
        }
        self.dequeue(s);
        Some(s)
    }

    fn group_for(&self, s: usize) -> usize {
        let needs = self.samples[s].needs();
        let fit = |g: &usize| {
            let free: Vec<usize> = self.free(*g, &needs).collect();
            let vms = if free.is_empty() { self.able(*g, &needs).collect() } else { free.clone() };
            let best = self.best(*g, vms.into_iter(), &needs).unwrap();
            let group = &self.groups[*g];
            let in_use = group.vms.iter().filter(|(_, vm)| matches!(vm, Vm::InUse { .. })).count();
            let load = group.current.len() + group.next.len() + group.idle.len() + in_use;
            let runs = group.vms[best].0.runs(&needs).len();
            let strain = Reverse(group.strain);
            (!free.is_empty(), runs, strain, Reverse(load * 1_000_000 / group.vms.len()), Reverse(*g))
        };
        (0..self.groups.len()).filter(|g| self.takes(*g, s)).max_by_key(fit).unwrap()
    }

    fn settle(&mut self, g: usize) {
        let eligible = |model: &Model, list: &[usize]| {
            list.iter().copied().find(|s| model.free(g, &model.samples[*s].needs()).count() > 0)
        };
        loop {
            if let Some(s) = eligible(self, &self.groups[g].current) {
                self.start(g, s);
            } else if eligible(self, &self.groups[g].next).is_some() {
                let next = std::mem::take(&mut self.groups[g].next);
                for s in &next {
                    self.samples[*s].at = At::Waiting(self.groups[g].id, Waiting::Current);
                }
                self.groups[g].current.extend(next);
            } else {
                return;
            }
        }
    }

    fn run_idle(&mut self, g: usize) {
        while self.groups[g].current.is_empty() && self.groups[g].next.is_empty() {
            let mut idle = self.groups[g].idle.iter();
            let Some(s) = idle.find(|s| self.free(g, &self.samples[**s].needs()).count() > 0) else { return };
            self.start(g, *s);
        }
    }
}
