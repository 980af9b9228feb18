//! The gates that run, as the console and the API see them.

use crate::session::Sessions;
use std::sync::Arc;
use weir_foundation::administration::Administration;
use weir_foundation::supervision::GateStates;
use weir_lab::node::Node;
use weir_mail::operations::MailOperations;
use weir_tls::NamedCertificates;
use weir_web::proxy::Gate;

/// What the console and the API show and change. Cheap to clone.
#[derive(Clone)]
pub struct Gates {
    /// Accounts, tokens, the audit trail, backups.
    pub administration: Administration,
    /// The mail gates.
    pub mail: MailOperations,
    /// The web gate, if it runs.
    pub web: Option<Arc<Gate>>,
    /// The lab, if it runs.
    pub lab: Option<Node>,
    /// The state of each gate, including those that do not run.
    pub states: GateStates,
    /// Who is logged in at the console. Sessions survive a restart of the gates, so it logs nobody out.
    pub sessions: Arc<Sessions>,
    /// Certificates from an authority.
    pub certificates: Arc<NamedCertificates>,
    /// Whether this Weir was started to be tried out (`weir up --demo`).
    pub demo: bool,
}
