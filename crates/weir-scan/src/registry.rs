//! Every kind of scanner that there is. A new one is a file of its own and one line here.

use crate::scanner::Kind;
use crate::{clamd, rspamd, spamd, worker};

/// All kinds, in the order in which their settings and findings are listed.
pub const REGISTRY: &[&Kind] = &[&worker::scanner::KIND, &clamd::scanner::KIND, &rspamd::KIND, &spamd::KIND];
