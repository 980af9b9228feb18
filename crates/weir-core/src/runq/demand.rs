//! What the machines together can take at this moment: for each needs class, how many have room or time.
//!
//! Kept up to date machine by machine, O(classes) per change, so that `choose` need not ask any machine.

use super::group::Group;
use super::needs_class::ClassId;
use super::run_queues::Servable;
use super::settings::Settings;
use alloc::vec::Vec;

#[derive(Clone, Debug)]
pub(super) struct Demand {
    pub(super) servable: Servable,
    takers: Vec<u32>,
    idle_takers: Vec<u32>,
}

impl Demand {
    pub(super) fn new(settings: &Settings) -> Demand {
        let idle_from = settings.priority.idle_queues_from();
        let servable = Servable { idle_from, ageing: settings.ageing, ..Servable::default() };
        Demand { servable, takers: Vec::new(), idle_takers: Vec::new() }
    }

    /// Notes what a group can take of the first `classes` classes.
    pub(super) fn refresh(&mut self, group: &mut Group, classes: usize) {
        (0..classes).for_each(|class| self.refresh_class(group, ClassId(class as u32)));
    }

    /// Notes what a group can take of one class: what a free VM could run at once, or what there is
    /// room for; of the idle class only what a free VM could run while nothing else waits.
    pub(super) fn refresh_class(&mut self, group: &mut Group, class: ClassId) {
        let at_once = group.free_for(class) != 0;
        self.note(group, class, (at_once || group.has_room(class), at_once && group.len() == 0));
    }

    /// Notes that a group takes nothing any more.
    pub(super) fn forget(&mut self, group: &mut Group, classes: usize) {
        (0..classes).for_each(|class| self.note(group, ClassId(class as u32), (false, false)));
    }

    fn note(&mut self, group: &mut Group, class: ClassId, (takes, takes_idle): (bool, bool)) {
        if self.takers.len() <= class.index() {
            self.takers.resize(class.index() + 1, 0);
            self.idle_takers.resize(class.index() + 1, 0);
        }
        if group.takes.contains(class) != takes {
            group.takes.set(class, takes);
            let any = step(&mut self.takers[class.index()], takes);
            self.servable.ordinary.set(class, any);
        }
        if group.takes_idle.contains(class) != takes_idle {
            group.takes_idle.set(class, takes_idle);
            let any = step(&mut self.idle_takers[class.index()], takes_idle);
            self.servable.idle.set(class, any);
        }
    }
}

fn step(count: &mut u32, up: bool) -> bool {
    *count = count.saturating_add_signed(if up { 1 } else { -1 });
    *count > 0
}
