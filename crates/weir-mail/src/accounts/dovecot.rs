//! Logins checked by Dovecot, over its authentication socket (protocol 1.x, mechanism PLAIN).
//!
//! Each login has a connection of its own: such sites have few logins per second, and a fresh connection is never in a wrong state.
//! Everything Dovecot says is bounded in length and time, and so is how much we ask at once: Dovecot keeps wrong logins waiting, and a
//! flood of them must not use up its connections (see [`LoginQueue`]).

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use weir_foundation::login_queue::LoginQueue;

/// Most bytes Dovecot may say in one conversation.
const SAID_MAX: u64 = 64 * 1024;
const PATIENCE: Duration = Duration::from_secs(10);
/// Logins that Dovecot is asked about at once, and that wait for it in one line.
const AT_ONCE: usize = 64;
const WAITING_MAX: usize = 256;

/// Dovecot's authentication server.
#[derive(Debug, Clone)]
pub struct Dovecot {
    socket: PathBuf,
    login_queue: Arc<LoginQueue>,
}

impl Dovecot {
    /// The server behind a socket such as `/run/dovecot/auth-client`.
    pub fn new(socket: impl Into<PathBuf>) -> Dovecot {
        Dovecot { socket: socket.into(), login_queue: Arc::new(LoginQueue::new(AT_ONCE, WAITING_MAX)) }
    }

    /// The user's name as Dovecot knows it; none if name or password is wrong.
    pub async fn login(&self, name: &str, password: &str, from: IpAddr) -> Result<Option<String>, DovecotError> {
        // NUL separates the parts of a PLAIN login; tab and newline those of the protocol, but they are encoded.
        if name.contains('\0') || password.contains('\0') {
            return Ok(None);
        }
        let turn = self.login_queue.enter(Some(from)).await.ok_or(DovecotError::Busy)?;
        let asked = tokio::time::timeout(PATIENCE, self.converse(name, password)).await;
        let answer = asked.map_err(|_| DovecotError::Silent)?;
        if matches!(answer, Ok(None)) {
            turn.failed();
        }
        answer
    }

    async fn converse(&self, name: &str, password: &str) -> Result<Option<String>, DovecotError> {
        let mut stream = UnixStream::connect(&self.socket).await?;
        let (reader, mut writer) = stream.split();
        let mut lines = BufReader::new(reader.take(SAID_MAX));
        let pid = std::process::id();
        writer.write_all(format!("VERSION\t1\t1\nCPID\t{pid}\n").as_bytes()).await?;
        let mut line = String::new();
        while line != "DONE" {
            next(&mut lines, &mut line).await?;
            let version = line.strip_prefix("VERSION\t").and_then(|rest| rest.split('\t').next());
            if version.is_some_and(|major| major != "1") {
                return Err(DovecotError::Strange(line));
            }
        }
        let response = STANDARD.encode(format!("\0{name}\0{password}"));
        writer.write_all(format!("AUTH\t1\tPLAIN\tservice=smtp\tsecured\tresp={response}\n").as_bytes()).await?;
        next(&mut lines, &mut line).await?;
        let mut words = line.split('\t');
        match words.next() {
            Some("OK") => Ok(Some(words.find_map(|w| w.strip_prefix("user=")).unwrap_or(name).to_owned())),
            // The first since 1.0, the second since 2.3.
            Some("FAIL") if words.any(|word| matches!(word, "temp" | "code=temp_fail")) => Err(DovecotError::Temporary),
            Some("FAIL") => Ok(None),
            _ => Err(DovecotError::Strange(line)),
        }
    }
}

async fn next(lines: &mut (impl AsyncBufReadExt + Unpin), line: &mut String) -> Result<(), DovecotError> {
    line.clear();
    if lines.read_line(line).await? == 0 || !line.ends_with('\n') {
        return Err(DovecotError::Ended);
    }
    line.pop();
    Ok(())
}

/// Why Dovecot gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum DovecotError {
    /// The socket.
    #[error("Dovecot's socket: {0}")]
    Socket(#[from] std::io::Error),
    /// It said nothing for too long.
    #[error("Dovecot does not answer")]
    Silent,
    /// We asked it too much at once.
    #[error("too many logins at once; try again")]
    Busy,
    /// It hung up in the middle, or said too much.
    #[error("Dovecot ended the conversation")]
    Ended,
    /// It cannot check now.
    #[error("Dovecot cannot check passwords now")]
    Temporary,
    /// It said what its protocol does not know.
    #[error("Dovecot said {0:?}")]
    Strange(String),
}
