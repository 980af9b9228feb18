//! HTTPS in the guest: an authority of its own, which the guest trusts, and a certificate for every name that is asked for.
//!
//! The authority's key lives and dies with the guest. Nobody else believes it.

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use std::collections::BTreeMap;
use std::fmt;
use std::net::TcpStream;
use std::sync::{Arc, Mutex, PoisonError};

/// Names whose certificates are kept.
const NAMES_MAX: usize = 256;
/// The name in the certificate for a client that asks for no name.
const NAMELESS: &str = "www.example.com";
/// Where programs of the guest look for authorities.
const TRUSTED: [&str; 2] = ["/etc/ssl/certs/ca-certificates.crt", "/usr/lib/ssl/cert.pem"];

/// The server's side of HTTPS.
#[derive(Debug)]
pub(crate) struct Tls(Arc<ServerConfig>);

struct Authority {
    issuer: Issuer<'static, KeyPair>,
    made: Mutex<BTreeMap<String, Arc<CertifiedKey>>>,
}

impl Tls {
    /// A new authority, which the programs of this guest believe from now on. None if it cannot be made.
    pub(crate) fn start() -> Option<Tls> {
        let (authority, pem) = Authority::new()?;
        for path in TRUSTED {
            let known = std::fs::read_to_string(path).unwrap_or_default();
            let _ = std::fs::write(path, format!("{known}{pem}"));
        }
        Tls::of(authority)
    }

    fn of(authority: Authority) -> Option<Tls> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().ok()?;
        Some(Tls(Arc::new(config.with_no_client_auth().with_cert_resolver(Arc::new(authority)))))
    }

    /// Serves a client on a connection.
    pub(crate) fn accept(&self, stream: TcpStream) -> Option<StreamOwned<ServerConnection, TcpStream>> {
        Some(StreamOwned::new(ServerConnection::new(Arc::clone(&self.0)).ok()?, stream))
    }
}

impl Authority {
    fn new() -> Option<(Authority, String)> {
        let key = KeyPair::generate().ok()?;
        let mut about = CertificateParams::new(Vec::new()).ok()?;
        about.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        about.distinguished_name.push(DnType::CommonName, "Global Trust Root R3");
        (about.not_before, about.not_after) = (rcgen::date_time_ymd(2015, 1, 1), rcgen::date_time_ymd(2045, 1, 1));
        let pem = about.self_signed(&key).ok()?.pem();
        Some((Authority { issuer: Issuer::new(about, key), made: Mutex::default() }, pem))
    }

    fn certificate(&self, name: &str) -> Option<Arc<CertifiedKey>> {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = made.get(name) {
            return Some(Arc::clone(known));
        }
        let key = KeyPair::generate().ok()?;
        let mut about = CertificateParams::new(vec![name.to_owned()]).ok()?;
        about.distinguished_name.push(DnType::CommonName, name);
        (about.not_before, about.not_after) = (rcgen::date_time_ymd(2020, 1, 1), rcgen::date_time_ymd(2040, 1, 1));
        let certificate: CertificateDer<'static> = about.signed_by(&key, &self.issuer).ok()?.into();
        let private = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let signing = rustls::crypto::ring::sign::any_supported_type(&private).ok()?;
        let certified = Arc::new(CertifiedKey::new(vec![certificate], signing));
        if made.len() < NAMES_MAX {
            made.insert(name.to_owned(), Arc::clone(&certified));
        }
        Some(certified)
    }
}

impl ResolvesServerCert for Authority {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.certificate(hello.server_name().unwrap_or(NAMELESS))
    }
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Authority")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::pki_types::ServerName;
    use rustls::pki_types::pem::PemObject;
    use rustls::{ClientConfig, ClientConnection, RootCertStore};
    use std::io::{Read, Write};
    use std::net::TcpListener;

    #[test]
    fn whoever_trusts_the_authority_is_served_under_every_name() {
        let (authority, pem) = Authority::new().unwrap();
        let tls = Tls::of(authority).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            for _ in 0..2 {
                let mut stream = tls.accept(listener.accept().unwrap().0).unwrap();
                let mut heard = [0; 5];
                stream.read_exact(&mut heard).unwrap();
                stream.write_all(&heard).unwrap();
                stream.flush().unwrap();
            }
        });
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let config = Arc::new(config.with_root_certificates(roots).with_no_client_auth());
        for name in ["evil.example", "another.example"] {
            let client = ClientConnection::new(Arc::clone(&config), ServerName::try_from(name).unwrap()).unwrap();
            let mut stream = StreamOwned::new(client, TcpStream::connect(at).unwrap());
            stream.write_all(b"hello").unwrap();
            let mut heard = [0; 5];
            stream.read_exact(&mut heard).unwrap();
            assert_eq!(&heard, b"hello");
        }
        server.join().unwrap();
    }
}
