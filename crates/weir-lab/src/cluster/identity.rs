//! Who a machine is, as its certificate says: a name, a role and a priority, and the key that is certified.
//!
//! All of it is in one name of the certificate, `weir-lab:NAME/ROLE/PRIORITY`. Messages do not name their sender; the certificate of the
//! connection does.

use super::validity::{Issued, Validity};
use crate::wire::is_name;
use rustls::pki_types::CertificateDer;
use sha2::{Digest, Sha256};
use std::time::SystemTime;
use weir_core::election::{KeyId, NodeId, Priority, Role};
pub(crate) use weir_store::{hex, unhex};

/// A machine of the lab.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Its name, unique in the lab.
    pub name: String,
    /// Its role.
    pub role: Role,
    /// Its priority in elections.
    pub priority: Priority,
}

impl Identity {
    /// A machine of this name; none if the name is not valid.
    pub fn new(name: &str, role: Role, priority: Priority) -> Option<Identity> {
        is_name(name).then(|| Identity { name: name.to_owned(), role, priority })
    }

    /// The identity in the certificate and the key of a connection; None if it is not a machine of a lab.
    pub fn certified(certificate: &CertificateDer<'_>) -> Option<(Identity, KeyId)> {
        let certificate = webpki::EndEntityCert::try_from(certificate).ok()?;
        let identity = certificate.valid_uri_names().find_map(Identity::read)?;
        let key = Sha256::digest(certificate.subject_public_key_info());
        Some((identity, KeyId(key.into())))
    }

    /// The Ed25519 key in a certificate; None if it is another kind of key.
    pub(crate) fn public_key(certificate: &CertificateDer<'_>) -> Option<[u8; 32]> {
        /// The DER bytes before an Ed25519 key.
        const BEFORE: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];
        let certificate = webpki::EndEntityCert::try_from(certificate).ok()?;
        let info = certificate.subject_public_key_info();
        info.as_ref().strip_prefix(&BEFORE)?.try_into().ok()
    }

    /// The number that stands for the name in the election.
    pub fn id(&self) -> NodeId {
        id_of(&self.name)
    }

    pub(crate) fn uri(&self) -> String {
        format!("weir-lab:{}/{}/{}", self.name, role_name(self.role), self.priority.0)
    }

    fn read(uri: &str) -> Option<Identity> {
        let mut parts = uri.strip_prefix("weir-lab:")?.split('/');
        let (name, role, priority) = (parts.next()?, parts.next()?, parts.next()?);
        let identity = Identity::new(name, role_of(role)?, Priority(priority.parse().ok()?))?;
        parts.next().is_none().then_some(identity)
    }
}

/// What the other end of a connection has shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PeerIdentity {
    pub(crate) identity: Identity,
    pub(crate) key: KeyId,
    /// When it was certified.
    pub(crate) at: SystemTime,
}

impl PeerIdentity {
    /// None if it is not a machine of a lab.
    pub(crate) fn by(certificate: &CertificateDer<'_>) -> Option<PeerIdentity> {
        let (identity, key) = Identity::certified(certificate)?;
        Some(PeerIdentity { identity, key, at: Validity::of(certificate)?.made() })
    }
}

/// The number that stands for a name.
pub(crate) fn id_of(name: &str) -> NodeId {
    let digest = Sha256::digest(name.as_bytes());
    let mut first = [0; 8];
    first.copy_from_slice(&digest[..8]);
    NodeId(u64::from_be_bytes(first))
}

/// A role as it is written.
pub fn role_name(role: Role) -> &'static str {
    match role {
        Role::Eligible => "eligible",
        Role::Dispatcher => "dispatcher",
        Role::External => "external",
    }
}

/// The role with this name.
pub fn role_of(name: &str) -> Option<Role> {
    [Role::Eligible, Role::Dispatcher, Role::External].into_iter().find(|role| role_name(*role) == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identities_are_read_as_written_and_nothing_else() {
        let identity = Identity::new("n1", Role::Dispatcher, Priority(7)).unwrap();
        assert_eq!(Identity::read(&identity.uri()), Some(identity));
        for bad in [
            "",
            "n1/eligible/1",
            "weir-lab:n1/king/1",
            "weir-lab:n1/eligible/256",
            "weir-lab:n1/eligible/1/x",
            "weir-lab:../eligible/1",
        ] {
            assert_eq!(Identity::read(bad), None, "{bad}");
        }
    }
}
