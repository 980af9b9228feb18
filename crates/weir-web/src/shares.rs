//! Counts how much each client and each subnet holds of a shared resource.
//!
//! A client is a session or an address, and anybody can have many of them, so a limit for each alone protects nobody. The caller therefore gives a
//! limit for the subnet too: what is free at that moment. However much one subnet holds, the next one still finds room.

use std::collections::HashMap;
use std::hash::Hash;

use weir_core::fair::SubnetKey;

/// Counts by client and by subnet. A count that reaches zero is removed.
#[derive(Debug)]
pub(crate) struct Shares<K> {
    clients: HashMap<K, u32>,
    subnets: HashMap<SubnetKey, u32>,
}

/// Whose share it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Holder<K> {
    pub(crate) client: K,
    pub(crate) subnet: SubnetKey,
}

/// How much one client and one subnet may hold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ShareLimits {
    pub(crate) per_client: u32,
    pub(crate) per_subnet: u32,
}

impl<K> Default for Shares<K> {
    fn default() -> Shares<K> {
        Shares { clients: HashMap::new(), subnets: HashMap::new() }
    }
}

impl<K: Copy + Eq + Hash> Shares<K> {
    /// Whether this holder may have one more.
    pub(crate) fn has_room(&self, holder: Holder<K>, limits: ShareLimits) -> bool {
        let of_client = self.clients.get(&holder.client).copied().unwrap_or(0);
        of_client < limits.per_client && self.of_subnet(holder.subnet) < limits.per_subnet
    }

    /// What a subnet holds.
    pub(crate) fn of_subnet(&self, subnet: SubnetKey) -> u32 {
        self.subnets.get(&subnet).copied().unwrap_or(0)
    }

    pub(crate) fn add(&mut self, holder: Holder<K>) {
        *self.clients.entry(holder.client).or_default() += 1;
        *self.subnets.entry(holder.subnet).or_default() += 1;
    }

    pub(crate) fn remove(&mut self, holder: Holder<K>) {
        one_less(&mut self.clients, holder.client);
        one_less(&mut self.subnets, holder.subnet);
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.clients.is_empty() && self.subnets.is_empty()
    }
}

fn one_less<K: Copy + Eq + Hash>(counts: &mut HashMap<K, u32>, key: K) {
    let Some(count) = counts.get_mut(&key) else { return };
    *count -= 1;
    if *count == 0 {
        counts.remove(&key);
    }
}
