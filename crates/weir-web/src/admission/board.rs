//! One backend's queue as the exchange sees it.

use super::Admission;
use crate::exchange::{Board, BoardId};
use crate::identity::Identities;
use std::sync::Arc;
use weir_core::fair::{PeerId, Profile, Report};

/// A backend's queue under the number that all front-ends know it by.
#[derive(Debug)]
pub struct BackendBoard {
    id: BoardId,
    admission: Arc<Admission>,
}

impl BackendBoard {
    /// Backends of the same name are the same to all front-ends of a cluster.
    pub fn new(identities: &Identities, admission: Arc<Admission>) -> BackendBoard {
        BackendBoard { id: BoardId(identities.name_key(admission.name())), admission }
    }
}

impl Board for BackendBoard {
    fn id(&self) -> BoardId {
        self.id
    }

    fn drain(&self, most: usize, out: &mut Vec<Report>) {
        self.admission.drain_reports(most, out);
    }

    fn hear(&self, peer: PeerId, number: u64, report: &Report) {
        self.admission.hear_report(peer, number, report);
    }

    fn forget_peer(&self, peer: PeerId) {
        self.admission.forget(peer);
    }

    fn report_all(&self) {
        self.admission.tell_all();
    }

    fn adopt(&self, profile: &Arc<Profile>) {
        self.admission.set_profile((**profile).clone());
    }
}
