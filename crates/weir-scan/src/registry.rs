//! Every kind of scanner that there is. A new one is a file of its own, with its `mod` line in `lib.rs`, and a row here.

use crate::scanner::ScannerKind;

/// All kinds, in the order in which their settings and findings are listed.
pub const REGISTRY: &[&ScannerKind] = &[
    // YARA rules and the policy for attachments, in sandboxed processes of our own.
    &crate::worker::scanner::KIND,
    &crate::clamd::scanner::KIND,
    &crate::rspamd::KIND,
    &crate::spamd::KIND,
];
