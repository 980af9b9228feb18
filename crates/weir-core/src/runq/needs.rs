//! What a sample needs and what a VM offers: plugins and tags, as small sets.
//!
//! The shell numbers plugins and tags; names stay with it. A VM can run a sample if it has all the tags
//! asked for and at least one plugin that is still to run: "execute where it is able to, report whatever
//! it gets, and execute again in another VM as necessary".

/// A plugin's number, 0–127.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PluginId(u8);

impl PluginId {
    /// The plugin of a number; none above 127.
    pub fn new(number: u32) -> Option<PluginId> {
        u8::try_from(number).ok().filter(|n| *n < 128).map(PluginId)
    }

    /// Its number.
    pub fn number(self) -> u8 {
        self.0
    }
}

/// A set of plugins.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Plugins(pub u128);

impl Plugins {
    /// None.
    pub const NONE: Plugins = Plugins(0);

    /// Whether the set is empty.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// How many there are.
    pub fn len(self) -> u32 {
        self.0.count_ones()
    }

    /// Whether `plugin` is among them.
    pub fn contains(self, plugin: PluginId) -> bool {
        self.0 & (1 << plugin.0) != 0
    }

    /// These and `plugin`.
    #[must_use]
    pub fn with(self, plugin: PluginId) -> Plugins {
        Plugins(self.0 | (1 << plugin.0))
    }

    /// These without `plugin`.
    #[must_use]
    pub fn without(self, plugin: PluginId) -> Plugins {
        Plugins(self.0 & !(1 << plugin.0))
    }

    /// Those that are in both sets.
    #[must_use]
    pub fn and(self, other: Plugins) -> Plugins {
        Plugins(self.0 & other.0)
    }

    /// Each of them, lowest first.
    pub fn iter(self) -> impl Iterator<Item = PluginId> {
        (0..128).map(PluginId).filter(move |plugin| self.contains(*plugin))
    }
}

/// A set of VM tags, one bit each.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Tags(pub u64);

impl Tags {
    /// None.
    pub const NONE: Tags = Tags(0);

    /// Whether these include all of `others`.
    pub fn include(self, others: Tags) -> bool {
        others.0 & !self.0 == 0
    }

    /// Those of these that `others` lack.
    #[must_use]
    pub fn missing_in(self, others: Tags) -> Tags {
        Tags(self.0 & !others.0)
    }
}

/// What a sample needs of a VM. Samples with equal needs belong to one needs class.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Needs {
    /// What is still to run.
    pub plugins: Plugins,
    /// What the VM must have.
    pub tags: Tags,
}

/// What a VM offers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Offer {
    /// The plugins it supports.
    pub plugins: Plugins,
    /// The tags it has.
    pub tags: Tags,
}

impl Offer {
    /// The part of `needs` that a VM with this offer can run.
    pub fn runs(&self, needs: &Needs) -> Plugins {
        if self.tags.include(needs.tags) { self.plugins.and(needs.plugins) } else { Plugins::NONE }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vm_runs_what_it_can_if_it_has_every_tag() {
        let vm = Offer { plugins: Plugins(0b011), tags: Tags(0b10) };
        let runs = |plugins, tags| vm.runs(&Needs { plugins: Plugins(plugins), tags: Tags(tags) }).0;
        assert_eq!(runs(0b110, 0), 0b010);
        assert_eq!(runs(0b110, 0b10), 0b010);
        assert_eq!(runs(0b110, 0b11), 0);
        assert_eq!(runs(0b100, 0), 0);
    }

    #[test]
    fn sets_know_their_members() {
        let seven = PluginId::new(7).unwrap();
        let set = Plugins(1).with(seven);
        assert!(set.contains(seven) && set.len() == 2 && set.without(seven) == Plugins(1));
        assert!(set.iter().map(PluginId::number).eq([0, 7]));
        assert_eq!((PluginId::new(127).is_some(), PluginId::new(128)), (true, None));
    }
}
