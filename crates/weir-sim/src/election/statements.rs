//! The statements that reach the database: the lease, and fenced assignments.

use super::Payload;
use super::invariants::Broken;
use super::lab::ElectionLab;
use crate::world::{Power, Transport, WorldAddress};
use weir_core::election::{Epoch, LeaseAnswer, LeaseOrder, Role};

impl ElectionLab {
    pub(super) fn at_database(&mut self, host: usize, payload: Payload) -> Result<(), Broken> {
        let now = self.world.now();
        if !self.world.database.is_writable() {
            return Ok(());
        }
        let answer = match payload {
            Payload::Order { order, holder } => {
                let answer = self.lease(host, order, holder)?;
                Payload::Answer { order, answer }
            }
            Payload::Commit { epoch, holder, to } => {
                if self.world.database.is_held(now, holder, epoch.0) {
                    self.tally.committed += 1;
                    self.invariants.committed(now, epoch)?;
                    Payload::Committed { epoch, to }
                } else {
                    Payload::FencedOut { epoch }
                }
            }
            _ => return Ok(()),
        };
        self.world.send(WorldAddress::Database, WorldAddress::Host(host), Transport::Stream, answer);
        Ok(())
    }

    fn lease(&mut self, host: usize, order: LeaseOrder, holder: u64) -> Result<LeaseAnswer, Broken> {
        let (now, lease, others) = (self.world.now(), self.settings.lease, self.others(host));
        let database = &mut self.world.database;
        Ok(match order {
            LeaseOrder::Acquire { .. } => match database.acquire(now, holder, lease) {
                Ok(epoch) => {
                    self.invariants.granted(now, epoch, holder)?;
                    LeaseAnswer::Granted { epoch: Epoch(epoch), others }
                }
                Err(free_in) => LeaseAnswer::Refused { free_in, others },
            },
            LeaseOrder::Renew { epoch, .. } if database.renew(now, (holder, epoch.0), lease) => {
                LeaseAnswer::Granted { epoch, others }
            }
            LeaseOrder::Renew { .. } => LeaseAnswer::Lost,
            LeaseOrder::Release { epoch } => {
                database.release(holder, epoch.0);
                LeaseAnswer::Released
            }
            LeaseOrder::Probe => LeaseAnswer::Reachable,
        })
    }

    /// How many other machines of the lab the database hears.
    fn others(&self, but: usize) -> u32 {
        let heard = |host: &usize| self.world.host(*host).power() != Power::Down && self.world.reaches_database(*host);
        let lab = (0..self.real).filter(|host| *host != but && self.nodes[*host].me.role != Role::External);
        lab.filter(heard).count() as u32
    }
}
