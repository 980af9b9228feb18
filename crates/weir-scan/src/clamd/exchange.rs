//! One command and one reply on one connection, as clamd likes it best.
//!
//! A small message goes out in one write; a large one in chunks, while the reply is watched for: clamd answers early
//! when it has had enough. A reply ends with NUL and is bounded.

use super::reply::{NotAReply, REPLY_MAX, Scanned};
use crate::address::{Address, Connection};
use crate::content::Content;
use std::io;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf};

/// Up to here a message goes out at once.
const SMALL: u64 = 128 << 10;
const CHUNK: usize = 256 << 10;
/// When sending broke off, the reason is on its way.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Has content scanned.
pub(super) async fn scan(address: &Address, content: &Content) -> Result<Scanned, ExchangeError> {
    let mut connection = address.connect().await.map_err(ExchangeError::Connect)?;
    let reply = if content.length() <= SMALL {
        connection.write_all(&small(content)?).await?;
        reply(&mut connection).await?
    } else {
        large(connection, content).await?
    };
    Ok(Scanned::read(&reply)?)
}

/// A command of one word; the reply may have lines.
pub(super) async fn command(address: &Address, word: &str) -> Result<Vec<u8>, ExchangeError> {
    let mut connection = address.connect().await.map_err(ExchangeError::Connect)?;
    connection.write_all(format!("z{word}\0").as_bytes()).await?;
    reply(&mut connection).await
}

fn small(content: &Content) -> io::Result<Vec<u8>> {
    let length = content.length() as usize;
    let mut bytes = Vec::with_capacity(length + 18);
    bytes.extend_from_slice(b"zINSTREAM\0");
    if length > 0 {
        bytes.extend_from_slice(&(length as u32).to_be_bytes());
        bytes.resize(14 + length, 0);
        content.read_at(&mut bytes[14..], 0)?;
    }
    bytes.extend_from_slice(&[0; 4]);
    Ok(bytes)
}

async fn large(connection: Box<dyn Connection>, content: &Content) -> Result<Vec<u8>, ExchangeError> {
    let (mut from, mut to): (ReadHalf<_>, WriteHalf<_>) = tokio::io::split(connection);
    let (mut replying, mut sending) = (std::pin::pin!(reply(&mut from)), std::pin::pin!(chunks(&mut to, content)));
    let sent = tokio::select! {
        biased;
        reply = &mut replying => return reply,
        sent = &mut sending => sent,
    };
    match sent {
        Ok(()) => replying.await,
        Err(error) => match tokio::time::timeout(LAST_WORDS, replying).await {
            Ok(Ok(reply)) => Ok(reply),
            _ => Err(error.into()),
        },
    }
}

async fn chunks(to: &mut (impl AsyncWrite + Unpin), content: &Content) -> io::Result<()> {
    to.write_all(b"zINSTREAM\0").await?;
    let (mut buffer, mut offset) = (vec![0; CHUNK + 4], 0);
    while offset < content.length() {
        let read = content.read_at(&mut buffer[4..], offset)?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        buffer[..4].copy_from_slice(&(read as u32).to_be_bytes());
        to.write_all(&buffer[..4 + read]).await?;
        offset += read as u64;
    }
    to.write_all(&[0; 4]).await
}

/// Reads up to NUL.
async fn reply(from: &mut (impl AsyncRead + Unpin)) -> Result<Vec<u8>, ExchangeError> {
    let mut reply = Vec::new();
    let mut piece = [0; 512];
    loop {
        let read = from.read(&mut piece).await?;
        if read == 0 {
            return Err(ExchangeError::ClosedEarly);
        }
        let end = memchr::memchr(0, &piece[..read]);
        reply.extend_from_slice(&piece[..end.unwrap_or(read)]);
        if end.is_some() {
            return Ok(reply);
        }
        if reply.len() > REPLY_MAX {
            return Err(ExchangeError::TooLong);
        }
    }
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum ExchangeError {
    /// Nobody there.
    #[error("cannot be reached: {0}")]
    Connect(io::Error),
    /// The connection broke.
    #[error("the connection broke: {0}")]
    Broken(#[from] io::Error),
    /// It hung up before its answer was whole.
    #[error("closed the connection without an answer")]
    ClosedEarly,
    /// Its answer does not end.
    #[error("sends an answer without end")]
    TooLong,
    /// Its answer is not one of clamd's protocol.
    #[error(transparent)]
    Nonsense(#[from] NotAReply),
}
