//! A mail client of a few lines, for the demonstrations.

use anyhow::{Context, ensure};
use base64::Engine;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);
/// Longer replies are cut off; those of Weir are far shorter.
const REPLY_LINES_MAX: usize = 100;

/// A connection to a mail server.
pub(super) struct MailSession(BufReader<TcpStream>);

impl MailSession {
    /// Connects and sends EHLO.
    pub(super) fn open(server: SocketAddr) -> anyhow::Result<MailSession> {
        let line = TcpStream::connect_timeout(&server, PATIENCE)
            .with_context(|| format!("nothing listens on {server}\n  hint: start `weir up` first"))?;
        line.set_read_timeout(Some(PATIENCE))?;
        line.set_write_timeout(Some(PATIENCE))?;
        let mut session = MailSession(BufReader::new(line));
        session.expect("", "220")?;
        session.expect("EHLO demo.localhost", "250")?;
        Ok(session)
    }

    /// Connects, sends EHLO, and logs in.
    pub(super) fn log_in(server: SocketAddr, user: &str, password: &str) -> anyhow::Result<MailSession> {
        let mut session = MailSession::open(server)?;
        let secret = format!("\0{user}\0{password}");
        session.expect(&format!("AUTH PLAIN {}", base64::engine::general_purpose::STANDARD.encode(secret)), "235")?;
        Ok(session)
    }

    /// Sends one mail. `letter` begins with further header fields. Returns the reply that decided about the mail.
    pub(super) fn send(&mut self, from: &str, to: &[String], letter: &str) -> anyhow::Result<String> {
        let reply = self.ask(&format!("MAIL FROM:<{from}>"))?;
        if !reply.starts_with("250") {
            return Ok(reply);
        }
        for recipient in to {
            let reply = self.ask(&format!("RCPT TO:<{recipient}>"))?;
            if !reply.starts_with("25") {
                return Ok(reply);
            }
        }
        let reply = self.ask("DATA")?;
        if !reply.starts_with("354") {
            return Ok(reply);
        }
        let shown = to.first().map_or("", String::as_str);
        self.ask(&format!("From: <{from}>\r\nTo: <{shown}>\r\n{letter}\r\n."))
    }

    fn expect(&mut self, command: &str, code: &str) -> anyhow::Result<()> {
        let reply = self.ask(command)?;
        ensure!(reply.starts_with(code), "{reply}");
        Ok(())
    }

    /// Sends a command, unless it is empty, and reads the whole reply as one line.
    fn ask(&mut self, command: &str) -> anyhow::Result<String> {
        if !command.is_empty() {
            self.0.get_mut().write_all(format!("{command}\r\n").as_bytes())?;
        }
        let mut reply = String::new();
        for _ in 0..REPLY_LINES_MAX {
            let mut line = String::new();
            ensure!(self.0.read_line(&mut line)? > 0, "the server closed the connection after {reply:?}");
            let is_last = line.as_bytes().get(3) != Some(&b'-');
            reply.push_str(if reply.is_empty() {
                line.trim_end()
            } else {
                line.get(4..).unwrap_or_default().trim_end()
            });
            if is_last {
                return Ok(reply);
            }
            reply.push(' ');
        }
        Ok(reply)
    }
}
