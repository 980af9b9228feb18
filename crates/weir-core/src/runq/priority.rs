//! From a directory's number to a run queue and a class, as section 5 of the paper maps them.
//!
//! The directory (0–127) plus 128 is the priority, and a quarter of that the run queue: four directories
//! share a queue, and directories fill queues 32–63. Lower goes first. Directories 0–31 are real-time,
//! 32–95 normal and 96–127 the idle class. Which directories return to *current* after a run rather
//! than to *next* is a setting of its own: the paper says both "31" and "0–2 by default".

/// How many run queues there are.
pub const QUEUES: usize = 64;

/// The number of a drop directory, 0–127; lower is more urgent.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Directory(u8);

/// What the number of a directory means for its samples.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum PriorityClass {
    /// Before everything else.
    RealTime,
    /// The ordinary case.
    Normal,
    /// Only when a machine has nothing else to do.
    Idle,
}

impl Directory {
    /// The directory for samples that name no priority.
    pub const DEFAULT: Directory = Directory(32);
    /// The last one.
    pub const LAST: Directory = Directory(127);

    /// The directory of a number; none above 127.
    pub fn new(number: u64) -> Option<Directory> {
        u8::try_from(number).ok().filter(|n| *n <= Self::LAST.0).map(Directory)
    }

    /// Its number.
    pub fn number(self) -> u8 {
        self.0
    }

    /// Its run queue, 32–63.
    pub fn queue(self) -> u8 {
        (128 + self.0) / 4
    }
}

/// Where the classes begin and end. Boundaries lie between run queues, so that a queue has one class.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PriorityRules {
    real_time_last: u8,
    idle_first: u8,
    return_to_current_last: u8,
}

impl Default for PriorityRules {
    fn default() -> Self {
        PriorityRules { real_time_last: 31, idle_first: 96, return_to_current_last: 2 }
    }
}

impl PriorityRules {
    /// Other boundaries: directories up to `real_time_last` are real-time, those from `idle_first` on are the
    /// idle class (128: none is). None if a boundary would divide a run queue, or if they cross.
    pub fn new(real_time_last: u8, idle_first: u8, return_to_current_last: u8) -> Option<PriorityRules> {
        let whole = real_time_last % 4 == 3 && idle_first.is_multiple_of(4);
        let ordered = real_time_last < idle_first && idle_first <= 128 && return_to_current_last < idle_first;
        (whole && ordered).then_some(PriorityRules { real_time_last, idle_first, return_to_current_last })
    }

    /// The class of a directory.
    pub fn class(&self, directory: Directory) -> PriorityClass {
        match directory.0 {
            n if n <= self.real_time_last => PriorityClass::RealTime,
            n if n < self.idle_first => PriorityClass::Normal,
            _ => PriorityClass::Idle,
        }
    }

    /// Whether a sample that still needs another plugin goes back to *current* rather than to *next*.
    pub fn returns_to_current(&self, directory: Directory) -> bool {
        directory.0 <= self.return_to_current_last
    }

    /// The first run queue of the idle class; 64 if there is none.
    pub(super) fn idle_queues_from(&self) -> u8 {
        32 + self.idle_first / 4
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_map_to_queues_as_in_the_paper() {
        let queue = |n| Directory::new(n).unwrap().queue();
        assert_eq!([0, 3, 4, 31, 32, 35, 36, 95, 96, 127].map(queue), [32, 32, 33, 39, 40, 40, 41, 55, 56, 63]);
        for n in 0..=127 {
            assert_eq!(u64::from(queue(n)), (128 + n) / 4);
        }
        assert_eq!([128, 223, 255, 256, u64::MAX].map(Directory::new), [None; 5]);
    }

    #[test]
    fn classes_follow_the_arithmetic_and_the_way_back_is_a_setting_of_its_own() {
        let rules = PriorityRules::default();
        let class = |n| rules.class(Directory::new(n).unwrap());
        use PriorityClass::{Idle, Normal, RealTime};
        assert_eq!([0, 31, 32, 95, 96, 127].map(class), [RealTime, RealTime, Normal, Normal, Idle, Idle]);
        let returns = |n| rules.returns_to_current(Directory::new(n).unwrap());
        assert_eq!([0, 2, 3, 31].map(returns), [true, true, false, false]);
        for n in 0..=127 {
            let directory = Directory::new(n).unwrap();
            assert_eq!(rules.class(directory) == Idle, directory.queue() >= rules.idle_queues_from());
        }
    }

    #[test]
    fn a_boundary_inside_a_queue_is_refused() {
        assert!(PriorityRules::new(31, 96, 2).is_some());
        assert!(PriorityRules::new(31, 128, 127).is_some());
        assert_eq!(PriorityRules::new(30, 96, 2), None);
        assert_eq!(PriorityRules::new(31, 97, 2), None);
        assert_eq!(PriorityRules::new(99, 96, 2), None);
        assert_eq!(PriorityRules::new(31, 96, 96), None);
    }
}
