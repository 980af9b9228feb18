//! A dispatcher that works for a leader on another machine: it calls, works, and calls again until a leader answers.
//!
//! Results that no leader has stored are said again to the next one. Samples that this machine has not are fetched from the
//! leader, or from whichever machine has them.

use super::connection::{Caller, Lines, called};
use super::elector::Post;
use super::registry::Registry;
use super::server::SILENCE;
use crate::dispatcher::{Dispatcher, Fetch, Saying};
use crate::wire::Message;
use sha2::{Digest, Sha256};
use std::io::{self, Write};
use std::net::IpAddr;
use std::time::Duration;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::{mpsc, watch};
use weir_core::election::{Epoch, NodeId, Role};
use weir_store::samples::SampleHash;

/// From a call to the leader's answer.
const CALL: Duration = Duration::from_secs(2);
/// Between two calls.
const AGAIN: Duration = Duration::from_millis(300);
/// Samples that are fetched at once.
const FETCHES_MAX: usize = 8;

/// Works for whoever leads, for ever.
pub(super) async fn work(dispatcher: Dispatcher, mut post: watch::Receiver<Post>, registry: Registry, caller: Caller) {
    loop {
        let now = post.borrow_and_update().clone();
        let Post::Following(leader) = now else {
            if post.changed().await.is_err() {
                return;
            }
            continue;
        };
        let Some(address) = registry.address(leader) else {
            tokio::time::sleep(AGAIN).await;
            continue;
        };
        tokio::select! {
            end = work_for(&dispatcher, (leader, address), &registry, &caller) => {
                tracing::debug!(?end, %address, "a connection to the leader ended");
                tokio::time::sleep(AGAIN).await;
            }
            gone = async { post.wait_for(|post| *post != Post::Following(leader)).await.is_err() } => {
                if gone {
                    return;
                }
            }
        }
    }
}

async fn work_for(
    dispatcher: &Dispatcher,
    (leader, address): (NodeId, IpAddr),
    registry: &Registry,
    caller: &Caller,
) -> io::Result<()> {
    let stream = caller.call_eligible(address, "dispatcher", CALL).await?;
    let (identity, key) = called(&stream).ok_or(io::ErrorKind::InvalidData)?;
    if identity.id() != leader || !registry.admits(&identity, key).await {
        return Err(io::Error::other(format!("{} answers there, which is not the leader", identity.name)));
    }
    let (read, mut write) = tokio::io::split(stream);
    let mut lines = Lines::new(read);
    let silent = || io::Error::from(io::ErrorKind::TimedOut);
    let first = tokio::time::timeout(CALL, lines.line()).await.map_err(|_| silent())??.unwrap_or_default();
    let Some(epoch) = first.strip_prefix("leader ").and_then(|epoch| epoch.parse().ok()) else {
        return Err(io::Error::other(first));
    };
    let (out, sayings) = mpsc::unbounded_channel();
    if !dispatcher.connect(Epoch(epoch), out) {
        return Err(io::Error::other(format!("epoch {epoch} is over")));
    }
    let listen = async {
        while let Some(line) = tokio::time::timeout(SILENCE, lines.line()).await.map_err(|_| silent())?? {
            match Message::parse(&line).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))? {
                Message::Bye(why) => return Err(io::Error::other(why)),
                message => dispatcher.hear(&message),
            }
        }
        Ok(())
    };
    tokio::select! {
        end = listen => end,
        end = say(&mut write, sayings) => end,
    }
}

async fn say<W: AsyncWrite + Unpin>(write: &mut W, mut sayings: mpsc::UnboundedReceiver<Saying>) -> io::Result<()> {
    let mut bytes = Vec::new();
    while let Some(saying) = sayings.recv().await {
        bytes.clear();
        let mut next = Some(saying);
        while let Some(Saying { message, payload }) = next {
            bytes.extend_from_slice(format!("{message}\n").as_bytes());
            bytes.extend_from_slice(&payload);
            next = if bytes.len() < 64 * 1024 { sayings.try_recv().ok() } else { None };
        }
        write.write_all(&bytes).await?;
        write.flush().await?;
    }
    Ok(())
}

/// Fetches samples that are wanted, for ever.
pub(super) async fn fetch(
    mut wanted: mpsc::Receiver<Fetch>,
    post: watch::Receiver<Post>,
    registry: Registry,
    caller: Caller,
) {
    let places = std::sync::Arc::new(tokio::sync::Semaphore::new(FETCHES_MAX));
    while let Some(Fetch { hash, to, answer }) = wanted.recv().await {
        let Ok(place) = places.clone().acquire_owned().await else { return };
        let leader = match *post.borrow() {
            Post::Following(leader) => Some(leader),
            _ => None,
        };
        let (registry, caller) = (registry.clone(), caller.clone());
        tokio::spawn(async move {
            let _ = answer.send(fetch_from_any(hash, &to, leader, (&registry, &caller)).await);
            drop(place);
        });
    }
}

pub(super) async fn fetch_from_any(
    hash: SampleHash,
    to: &std::path::Path,
    leader: Option<NodeId>,
    (registry, caller): (&Registry, &Caller),
) -> Result<(), String> {
    let first = leader.and_then(|leader| registry.address(leader));
    let mut rest = registry.addresses(&[Role::Eligible, Role::Dispatcher]);
    rest.retain(|address| Some(*address) != first && *address != IpAddr::from(caller.from));
    let mut problem = String::from("no other machine is known");
    for address in first.into_iter().chain(rest) {
        match fetch_from(address, hash, to, caller).await {
            Ok(()) => return Ok(()),
            Err(error) => problem = format!("{address}: {error}"),
        }
    }
    Err(format!("the sample {hash} is not here and cannot be fetched: {problem}"))
}

async fn fetch_from(address: IpAddr, hash: SampleHash, to: &std::path::Path, caller: &Caller) -> io::Result<()> {
    let silent = |_| io::Error::from(io::ErrorKind::TimedOut);
    let stream = caller.call(address, "fetch", CALL).await?;
    let (read, mut write) = tokio::io::split(stream);
    write.write_all(format!("{}\n", Message::Fetch(hash)).as_bytes()).await?;
    write.flush().await?;
    let mut lines = Lines::new(read);
    let answer = tokio::time::timeout(10 * CALL, lines.line()).await.map_err(silent)??.unwrap_or_default();
    let length = match Message::parse(&answer) {
        Ok(Message::Sample(found, length)) if found == hash => length,
        Ok(Message::Missing(_)) => return Err(io::Error::other("it has not got it")),
        _ => return Err(io::ErrorKind::InvalidData.into()),
    };
    let mut file = std::fs::File::create(to)?;
    let (mut digest, mut left) = (Sha256::new(), length);
    while left > 0 {
        let piece = tokio::time::timeout(SILENCE, lines.some(left)).await.map_err(silent)??;
        digest.update(piece);
        file.write_all(piece)?;
        left -= piece.len() as u64;
    }
    let found = SampleHash(digest.finalize().into());
    if found == hash { Ok(()) } else { Err(io::Error::other(format!("what came is {found}"))) }
}
