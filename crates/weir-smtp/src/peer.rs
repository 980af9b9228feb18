//! What is known about the client at the other end of a connection.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// The other end of a session. With XCLIENT, the client is not the host that holds the connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SmtpPeer {
    /// Number of the session, for logs.
    pub session: u64,
    /// The address at the other end of the connection.
    pub socket: SocketAddr,
    /// Our end of the connection.
    pub local: SocketAddr,
    /// The client's address: that of the connection, or the one that a listed peer named by XCLIENT.
    pub client: IpAddr,
    /// The client's name, if a listed peer told us.
    pub name: Option<Box<str>>,
    /// The argument of HELO, EHLO or LHLO; safe to print.
    pub helo: Option<Box<str>>,
    /// Which greeting it used.
    pub dialect: Dialect,
    /// The TLS connection, if there is one.
    pub tls: Option<TlsFacts>,
    /// The user who is logged in.
    pub user: Option<Arc<str>>,
}

/// Which greeting a client used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Dialect {
    /// HELO, or none yet.
    #[default]
    Smtp,
    /// EHLO.
    Esmtp,
    /// LHLO.
    Lmtp,
}

/// What was agreed in the TLS handshake.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TlsFacts {
    /// For example `TLSv1_3`.
    pub version: &'static str,
    /// For example `TLS13_AES_256_GCM_SHA384`.
    pub cipher: &'static str,
}

/// What XFORWARD says about the first client of a message; only for logs.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Forwarded {
    /// Its name.
    pub name: Option<Box<str>>,
    /// Its address.
    pub addr: Option<Box<str>>,
    /// Its port.
    pub port: Option<Box<str>>,
    /// Its HELO.
    pub helo: Option<Box<str>>,
    /// `SMTP` or `ESMTP`.
    pub proto: Option<Box<str>>,
    /// The id of the message at the first server.
    pub ident: Option<Box<str>>,
    /// `LOCAL` or `REMOTE`.
    pub source: Option<Box<str>>,
}

impl SmtpPeer {
    /// A peer about which only the connection is known.
    pub fn new(session: u64, socket: SocketAddr, local: SocketAddr) -> SmtpPeer {
        let client = socket.ip().to_canonical();
        SmtpPeer {
            session,
            socket,
            local,
            client,
            name: None,
            helo: None,
            dialect: Dialect::Smtp,
            tls: None,
            user: None,
        }
    }

    /// Whether both the connection and the client are on this machine.
    pub fn is_loopback(&self) -> bool {
        self.socket.ip().to_canonical().is_loopback() && self.client.is_loopback()
    }

    /// The word for the `with` clause of a Received header (RFC 3848, RFC 6531).
    pub fn with_keyword(&self, smtputf8: bool) -> &'static str {
        let words = match (self.dialect, smtputf8) {
            (Dialect::Smtp, _) => return "SMTP",
            (Dialect::Esmtp, false) => ["ESMTP", "ESMTPS", "ESMTPA", "ESMTPSA"],
            (Dialect::Esmtp, true) => ["UTF8SMTP", "UTF8SMTPS", "UTF8SMTPA", "UTF8SMTPSA"],
            (Dialect::Lmtp, false) => ["LMTP", "LMTPS", "LMTPA", "LMTPSA"],
            (Dialect::Lmtp, true) => ["UTF8LMTP", "UTF8LMTPS", "UTF8LMTPA", "UTF8LMTPSA"],
        };
        let [plain, tls, auth, both] = words;
        match (self.tls.is_some(), self.user.is_some()) {
            (false, false) => plain,
            (true, false) => tls,
            (false, true) => auth,
            (true, true) => both,
        }
    }

    /// Forgets what the client said about itself, as STARTTLS demands.
    pub(crate) fn forget_greeting(&mut self) {
        self.helo = None;
        self.dialect = Dialect::Smtp;
        self.user = None;
    }
}
