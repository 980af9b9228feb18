//! Who has how many connections, and from where: one machine must not use up what all need, and two must not be one.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use weir_core::election::NodeId;

/// The connections of each machine. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(super) struct Crowd(Arc<Mutex<HashMap<NodeId, Vec<IpAddr>>>>);

/// One connection of a machine, until it is dropped.
#[derive(Debug)]
pub(super) struct Entered(Crowd, NodeId, IpAddr);

/// Why a connection is one too many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turned {
    /// The machine has as many already.
    TooMany,
    /// It has one from another address: somebody copied its disk, or it has moved and the old connection is not given up yet.
    Elsewhere(IpAddr),
}

impl Crowd {
    /// One more connection of a machine, from wherever it is.
    pub(super) fn enter(&self, id: NodeId, from: IpAddr, most: usize) -> Result<Entered, Turned> {
        self.enter_if(id, from, |of_machine| if of_machine.len() < most { Ok(()) } else { Err(Turned::TooMany) })
    }

    /// The same of a machine that may be in one place only.
    pub(super) fn enter_once(&self, id: NodeId, from: IpAddr, most: usize) -> Result<Entered, Turned> {
        self.enter_if(id, from, |of_machine| match of_machine.iter().find(|other| **other != from) {
            Some(other) => Err(Turned::Elsewhere(*other)),
            None if of_machine.len() < most => Ok(()),
            None => Err(Turned::TooMany),
        })
    }

    fn enter_if(
        &self,
        id: NodeId,
        from: IpAddr,
        may: impl FnOnce(&[IpAddr]) -> Result<(), Turned>,
    ) -> Result<Entered, Turned> {
        let mut crowd = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        may(crowd.get(&id).map(Vec::as_slice).unwrap_or_default())?;
        crowd.entry(id).or_default().push(from);
        Ok(Entered(self.clone(), id, from))
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        let mut crowd = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(of_machine) = crowd.get_mut(&self.1) {
            if let Some(at) = of_machine.iter().position(|from| *from == self.2) {
                of_machine.swap_remove(at);
            }
            if of_machine.is_empty() {
                crowd.remove(&self.1);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> IpAddr {
        [10, 7, 0, last].into()
    }

    #[test]
    fn one_machine_has_so_many_connections_and_no_more() {
        let crowd = Crowd::default();
        let enter = |id, last| crowd.enter(NodeId(id), address(last), 2);
        let first = enter(1, 1).unwrap();
        let second = enter(1, 2).unwrap();
        assert_eq!(enter(1, 1).unwrap_err(), Turned::TooMany);
        assert!(enter(2, 1).is_ok());
        drop(first);
        let third = enter(1, 1);
        assert!(third.is_ok() && enter(1, 1).is_err());
        drop((second, third));
        assert!(crowd.0.lock().unwrap().is_empty());
    }

    #[test]
    fn one_machine_works_in_one_place() {
        let crowd = Crowd::default();
        let enter = |last| crowd.enter_once(NodeId(1), address(last), 2);
        let first = enter(1).unwrap();
        assert_eq!(enter(2).unwrap_err(), Turned::Elsewhere(address(1)));
        let again = enter(1).unwrap();
        drop(first);
        assert_eq!(enter(2).unwrap_err(), Turned::Elsewhere(address(1)));
        drop(again);
        assert!(enter(2).is_ok());
    }
}
