//! AUTH PLAIN and LOGIN at a smarthost (RFC 4954, RFC 4616).
//!
//! A password is never sent where others could read it: without TLS, it is sent only within this machine. If a login is refused, the
//! operator has to correct that, so the mail waits.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::approach::Credentials;
use super::capabilities::Capabilities;
use super::reply::Reply;
use super::wire::{Wire, WireError};
use crate::outcome::{DeliveryOutcome, Status};

/// Logs in.
pub async fn log_in(
    wire: &mut Wire,
    login: &Credentials,
    offered: Capabilities,
    safe: bool,
    within: Duration,
) -> Result<(), LoginError> {
    if !safe {
        return Err(LoginError::InTheOpen);
    }
    let reply = if offered.auth_plain {
        let response = STANDARD.encode(format!("\0{}\0{}", login.user, login.password));
        ask(wire, &format!("AUTH PLAIN {response}"), within).await?
    } else if offered.auth_login {
        expect_prompt(ask(wire, "AUTH LOGIN", within).await?)?;
        expect_prompt(ask(wire, &STANDARD.encode(&login.user), within).await?)?;
        ask(wire, &STANDARD.encode(&login.password), within).await?
    } else {
        return Err(LoginError::NotOffered);
    };
    if reply.is_success() { Ok(()) } else { Err(LoginError::Refused(reply)) }
}

async fn ask(wire: &mut Wire, line: &str, within: Duration) -> Result<Reply, LoginError> {
    wire.send(format!("{line}\r\n").as_bytes(), within).await?;
    Ok(wire.reply(within).await?)
}

fn expect_prompt(reply: Reply) -> Result<(), LoginError> {
    if reply.is_intermediate() { Ok(()) } else { Err(LoginError::Refused(reply)) }
}

/// Why the login failed.
#[derive(Debug, thiserror::Error)]
pub enum LoginError {
    /// The connection is not encrypted.
    #[error("the line is not encrypted, so the password is not sent; set TLS to required")]
    InTheOpen,
    /// The server offers neither PLAIN nor LOGIN.
    #[error("the server offers neither AUTH PLAIN nor AUTH LOGIN")]
    NotOffered,
    /// The server refused the login.
    #[error("the login was refused: {} {}", .0.code, .0.text)]
    Refused(Reply),
    /// The connection broke.
    #[error("{0} during the login")]
    Wire(#[from] WireError),
}

impl LoginError {
    /// The outcome for the mail that waits.
    pub fn outcome(&self, peer: &Arc<str>) -> DeliveryOutcome {
        DeliveryOutcome::temporary(Status(4, 7, 0), &self.to_string()).by(peer)
    }
}
