//! TLS for relay and front-end, and the mutual proof of the shared key.

use crate::identity::Secret;
use ring::hmac;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use rustls::{ClientConfig, ServerConfig};
use std::io;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use weir_tls::any_certificate;

/// The key with which a side proves who it is.
#[derive(Clone)]
pub(super) struct RelayKey(hmac::Key);

pub(super) const PROOF_BYTES: usize = 32;
const PROTOCOL: &[u8] = b"weir-exchange/1";
const EXPORTER: &[u8] = b"EXPORTER-weir-exchange";

impl RelayKey {
    pub(super) fn new(secret: &Secret) -> RelayKey {
        RelayKey(secret.hmac_key("weir hitserver"))
    }

    fn proof(&self, side: &[u8], binding: &[u8; 32]) -> hmac::Tag {
        hmac::sign(&self.0, &[side, binding].concat())
    }

    fn accepts(&self, side: &[u8], binding: &[u8; 32], proof: &[u8]) -> bool {
        hmac::verify(&self.0, &[side, binding].concat(), proof).is_ok()
    }
}

/// The front-end proves itself first, because a relay says nothing to strangers.
pub(super) async fn prove_as_client<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut tokio_rustls::client::TlsStream<S>,
    key: &RelayKey,
) -> io::Result<bool> {
    let binding = stream.get_ref().1.export_keying_material([0; 32], EXPORTER, None).map_err(io::Error::other)?;
    stream.write_all(key.proof(b"front-end", &binding).as_ref()).await?;
    stream.flush().await?;
    let mut proof = [0; PROOF_BYTES];
    match stream.read_exact(&mut proof).await {
        Ok(_) => Ok(key.accepts(b"hitserver", &binding, &proof)),
        // The relay closes without an answer if it does not accept our proof.
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

pub(super) async fn prove_as_server<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut tokio_rustls::server::TlsStream<S>,
    key: &RelayKey,
) -> io::Result<bool> {
    let binding = stream.get_ref().1.export_keying_material([0; 32], EXPORTER, None).map_err(io::Error::other)?;
    let mut proof = [0; PROOF_BYTES];
    stream.read_exact(&mut proof).await?;
    if !key.accepts(b"front-end", &binding, &proof) {
        return Ok(false);
    }
    stream.write_all(key.proof(b"hitserver", &binding).as_ref()).await?;
    stream.flush().await?;
    Ok(true)
}

/// TLS 1.3 with a certificate made now.
pub(super) fn server_config() -> Result<Arc<ServerConfig>, Box<dyn std::error::Error + Send + Sync>> {
    let made = rcgen::generate_simple_self_signed(vec![SERVER_NAME.to_owned()])?;
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)?;
    config.alpn_protocols = vec![PROTOCOL.to_vec()];
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

pub(super) fn client_config() -> Result<Arc<ClientConfig>, rustls::Error> {
    let provider = provider();
    // Who the other side is, is shown by the proof of the key, which is bound to this connection.
    let verifier = any_certificate(&provider);
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    config.alpn_protocols = vec![PROTOCOL.to_vec()];
    config.enable_sni = false;
    config.resumption = rustls::client::Resumption::disabled();
    Ok(Arc::new(config))
}

const SERVER_NAME: &str = "hitserver.weir.invalid";

/// The name in the relay's certificate.
pub(super) fn server_name() -> ServerName<'static> {
    ServerName::try_from(SERVER_NAME).unwrap_or(ServerName::IpAddress(std::net::Ipv4Addr::LOCALHOST.into()))
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}
