//! Files found in a sample, which become samples of their own (its children), and how many of them a sample may have.

use super::tracked_sample::TrackedSample;
use super::{Decision, Now};
use crate::active;
use crate::display_name::display_name;
use crate::verdict::{Brief, Child};
use crate::wire::ChildLimits;
use std::collections::HashSet;
use std::hash::BuildHasher;
use weir_store::records::NewSample;

/// When this many families are remembered, those are forgotten of which no sample is open.
pub(super) const FAMILIES_MAX: usize = 65_536;

impl Decision {
    /// Files that were found in a sample become samples, written together with the result that brings them. Those for which its family has no room are
    /// left out, and the brief says so: several attempts may fill a family at once, each within the limits that it was given.
    pub(super) fn add_children(&mut self, now: Now, parent: &TrackedSample, brief: &mut Brief) {
        let found = std::mem::take(&mut brief.children);
        let named = found.len();
        if parent.depth < self.rules.depth_max {
            brief.children = found.into_iter().filter(|child| self.has_room(parent, child)).collect();
        }
        let left_out = named - brief.children.len();
        if left_out > 0 {
            brief.leave_out(left_out, "the sample has as many as it may, or they are too deep in it");
        }
        if brief.children.is_empty() {
            return;
        }
        self.work.batch.children_max = self.rules.children.count.into();
        for child in &brief.children {
            self.work.batch.children.push(NewSample {
                ticket: ticket(parent, child),
                hash: child.sha256.clone(),
                size: i64::try_from(child.bytes).unwrap_or(i64::MAX),
                name: display_name(&child.name),
                submitter: parent.submitter.to_string(),
                directory: parent.directory.into(),
                file_type: child.file_type.clone(),
                needs: self.rules.needs(&child.file_type, parent.choices()),
                tags: "[]".into(),
                parent: Some(parent.row),
                root: Some(parent.root),
                depth: i64::from(parent.depth) + 1,
                forced: parent.forced.into(),
                arrived_at: now.wall,
                choices: parent.choices().text(),
                partial: i64::from(parent.choices().are_partial()),
            });
        }
    }

    /// Gives a child its place. The same file, found by two plugins or sent twice, is one child and takes one place.
    fn has_room(&mut self, parent: &TrackedSample, child: &Child) -> bool {
        let place = self.hasher.hash_one(ticket(parent, child));
        let most = self.rules.children.count as usize;
        let family = self.families.entry(parent.root).or_default();
        family.contains(&place) || (family.len() < most && family.insert(place))
    }

    /// Forgets the families of which no sample is open, if there are many. Must not be called between the reading of a family and the acceptance of its
    /// samples. Each call that looks takes time for all families, so the next look comes when there are twice as many as stay now.
    pub fn forget_families(&mut self) {
        if self.families.len() < self.families_next_look.max(FAMILIES_MAX) {
            return;
        }
        let open: HashSet<i64> = self.samples.values().map(|held| held.root).collect();
        self.families.retain(|root, _| open.contains(root));
        self.families_next_look = 2 * self.families.len();
    }

    /// Whether the children of a sample that was submitted are known, and those of its children.
    pub fn knows_family(&self, root: i64) -> bool {
        self.families.contains_key(&root)
    }

    /// The tickets of the children that an earlier leader has made.
    pub fn learn_family(&mut self, root: i64, tickets: &[String]) {
        let places = tickets.iter().map(|ticket| self.hasher.hash_one(ticket));
        self.families.entry(root).or_default().extend(places);
    }

    /// How many files an attempt at this sample may find in it.
    pub(super) fn child_limits(&self, held: &TrackedSample) -> ChildLimits {
        let made = self.families.get(&held.root).map_or(0, |family| u32::try_from(family.len()).unwrap_or(u32::MAX));
        let most = self.rules.children;
        let none = held.depth >= self.rules.depth_max;
        let count = if none { 0 } else { most.count.saturating_sub(made) };
        ChildLimits { count, ..most }
    }
}

/// What identifies a child: a file that is found twice in a sample is one, unless its names have it opened in different ways.
fn ticket(parent: &TrackedSample, child: &Child) -> String {
    match active::way(&child.name) {
        way if way.is_empty() => format!("child-{}-{}", parent.row, child.sha256),
        way => format!("child-{}-{}-{way}", parent.row, child.sha256),
    }
}
