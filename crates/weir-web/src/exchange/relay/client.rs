//! A front-end's connection to a relay.

use super::handshake::{RelayKey, client_config, prove_as_client, server_name};
use super::lengths::Lengths;
use crate::exchange::carrier::{CarrierError, Connect, Connection};
use crate::identity::Secret;
use bytes::BytesMut;
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// Where a relay is.
#[derive(Clone, Debug)]
pub struct RelaySettings {
    /// `host:port`.
    pub address: String,
    /// The key that it shares with its front-ends.
    pub key: Secret,
}

/// A relay to connect to.
pub(in crate::exchange) struct Relay {
    address: String,
    key: RelayKey,
    tls: Arc<rustls::ClientConfig>,
}

impl Relay {
    pub(in crate::exchange) fn new(settings: &RelaySettings) -> Result<Relay, rustls::Error> {
        let tls = client_config()?;
        Ok(Relay { address: settings.address.clone(), key: RelayKey::new(&settings.key), tls })
    }
}

impl Connect for Relay {
    fn name(&self) -> String {
        format!("relay {}", self.address)
    }

    async fn connect(&self) -> Result<Connection, CarrierError> {
        let socket = TcpStream::connect(&self.address).await?;
        socket.set_nodelay(true)?;
        let mut stream = TlsConnector::from(Arc::clone(&self.tls)).connect(server_name(), socket).await?;
        if prove_as_client(&mut stream, &self.key).await? {
            Ok(Connection { stream: Box::new(stream), codec: Box::new(Lengths), read: BytesMut::new() })
        } else {
            Err(CarrierError::Key)
        }
    }
}
