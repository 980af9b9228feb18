//! Files found in a sample, which become samples of their own (its children), and how many of them a sample may have.

use super::tracked_sample::TrackedSample;
use super::{Decision, Now};
use crate::active;
use crate::display_name::display_name;
use crate::verdict::{Brief, Child};
use crate::wire::ChildLimits;
use std::hash::BuildHasher;
use weir_store::records::NewSample;

/// How many families are remembered.
const FAMILIES_MAX: usize = 65_536;

impl Decision {
    /// Files that were found in a sample become samples, written together with the result that brings them.
    pub(super) fn add_children(&mut self, now: Now, parent: &TrackedSample, brief: &Brief) {
        if brief.children.is_empty() || parent.depth >= self.rules.depth_max {
            return;
        }
        if self.families.len() >= FAMILIES_MAX {
            self.families.clear();
        }
        // The same file, found by two plugins or sent twice, is one child and takes one place.
        let family = self.families.entry(parent.root).or_default();
        let most = self.rules.children.count as usize;
        for child in &brief.children {
            if family.len() < most {
                family.insert(self.hasher.hash_one(ticket(parent, child)));
            }
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
