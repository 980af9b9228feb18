//! Obtains certificates from an authority (ACME, RFC 8555), renews them early, and stores them in the data folder.
//!
//! [`CertificateKeeper`] is a task. It requests certificates only for names that are configured, one at a time, and hands them to
//! [`weir_tls::NamedCertificates`], from which the gates serve. If the authority fails, the present certificates stay in use: the keeper
//! tries again, after longer and longer waits, and raises an alarm when a certificate is about to run out.
//!
//! If several machines share their records, they also share the account, the certificates and the open challenges, and only the machine
//! with the lease asks the authority ([`shared`]).

mod back_off;
mod dns_hook;
mod folder;
mod http_client;
mod keeper;
mod order;
mod responder;
mod settings;
pub mod shared;

pub use folder::CertificateFolder;
pub use keeper::{Alarm, CertificateKeeper};
pub use responder::respond;
pub use settings::{CertificateSettings, ChallengeKind};
