//! Counts the connections of each machine and where they come from, so that one machine cannot use up all connections, and two machines
//! cannot use one identity.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use weir_core::election::NodeId;

/// The connections of each machine. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(super) struct ConnectionCounts(Arc<Mutex<HashMap<NodeId, Vec<IpAddr>>>>);

/// One connection of a machine, until it is dropped.
#[derive(Debug)]
pub(super) struct CountedConnection(ConnectionCounts, NodeId, IpAddr);

/// Why a connection is one too many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ConnectionRefused {
    /// The machine has as many already.
    TooMany,
    /// It has one from another address: somebody copied its disk, or it has moved and the old connection has not been closed yet.
    Elsewhere(IpAddr),
}

impl ConnectionCounts {
    /// One more connection of a machine, from wherever it is.
    pub(super) fn enter(&self, id: NodeId, from: IpAddr, most: usize) -> Result<CountedConnection, ConnectionRefused> {
        self.enter_if(
            id,
            from,
            |of_machine| if of_machine.len() < most { Ok(()) } else { Err(ConnectionRefused::TooMany) },
        )
    }

    /// The same of a machine that may be in one place only.
    pub(super) fn enter_once(
        &self,
        id: NodeId,
        from: IpAddr,
        most: usize,
    ) -> Result<CountedConnection, ConnectionRefused> {
        self.enter_if(id, from, |of_machine| match of_machine.iter().find(|other| **other != from) {
            Some(other) => Err(ConnectionRefused::Elsewhere(*other)),
            None if of_machine.len() < most => Ok(()),
            None => Err(ConnectionRefused::TooMany),
        })
    }

    fn enter_if(
        &self,
        id: NodeId,
        from: IpAddr,
        may: impl FnOnce(&[IpAddr]) -> Result<(), ConnectionRefused>,
    ) -> Result<CountedConnection, ConnectionRefused> {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        may(counts.get(&id).map(Vec::as_slice).unwrap_or_default())?;
        counts.entry(id).or_default().push(from);
        Ok(CountedConnection(self.clone(), id, from))
    }
}

impl Drop for CountedConnection {
    fn drop(&mut self) {
        let mut counts = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(of_machine) = counts.get_mut(&self.1) {
            if let Some(at) = of_machine.iter().position(|from| *from == self.2) {
                of_machine.swap_remove(at);
            }
            if of_machine.is_empty() {
                counts.remove(&self.1);
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
        let counts = ConnectionCounts::default();
        let enter = |id, last| counts.enter(NodeId(id), address(last), 2);
        let first = enter(1, 1).unwrap();
        let second = enter(1, 2).unwrap();
        assert_eq!(enter(1, 1).unwrap_err(), ConnectionRefused::TooMany);
        assert!(enter(2, 1).is_ok());
        drop(first);
        let third = enter(1, 1);
        assert!(third.is_ok() && enter(1, 1).is_err());
        drop((second, third));
        assert!(counts.0.lock().unwrap().is_empty());
    }

    #[test]
    fn one_machine_works_in_one_place() {
        let counts = ConnectionCounts::default();
        let enter = |last| counts.enter_once(NodeId(1), address(last), 2);
        let first = enter(1).unwrap();
        assert_eq!(enter(2).unwrap_err(), ConnectionRefused::Elsewhere(address(1)));
        let again = enter(1).unwrap();
        drop(first);
        assert_eq!(enter(2).unwrap_err(), ConnectionRefused::Elsewhere(address(1)));
        drop(again);
        assert!(enter(2).is_ok());
    }
}
