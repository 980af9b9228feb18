//! A dispatcher that works for a leader on another machine: it calls, works, and calls again until a leader answers.
//!
//! Results that no leader has stored are sent again to the next one. Samples that this machine does not have are fetched from the leader,
//! or from any machine that has them.

use super::connection::{Caller, Lines, SILENCE, far_end};
use super::elector::Post;
use super::epoch_file::EpochFile;
use super::registry::Registry;
use crate::dispatcher::{Dispatcher, Envelope, Fetch, NoSample};
use crate::wire::Message;
use sha2::{Digest, Sha256};
use std::io::{self, Write};
use std::net::IpAddr;
use std::time::{Duration, Instant};
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::{mpsc, watch};
use weir_core::election::{Epoch, NodeId, Role};
use weir_store::samples::SampleHash;

/// The time from a call to the leader's answer.
const CALL: Duration = Duration::from_secs(2);
/// The pause between two calls; and the time after which it becomes longer if they had no result, as for a machine that is drained or refused.
const AGAIN: Duration = Duration::from_millis(100);
const IN_VAIN: Duration = Duration::from_secs(10);
const AGAIN_IN_VAIN: Duration = Duration::from_secs(1);
/// How many samples are fetched at the same time.
const FETCHES_MAX: usize = 8;

/// Works for the present leader, for ever.
pub(crate) async fn work(
    (dispatcher, seen): (Dispatcher, EpochFile),
    mut post: watch::Receiver<Post>,
    registry: Registry,
    caller: Caller,
) {
    let mut useful = Instant::now();
    loop {
        let now = post.borrow_and_update().clone();
        let Post::Following(leader) = now else {
            if post.changed().await.is_err() {
                return;
            }
            useful = Instant::now();
            continue;
        };
        let Some(address) = registry.address(leader) else {
            tokio::time::sleep(AGAIN).await;
            continue;
        };
        let called = Instant::now();
        tokio::select! {
            end = work_for((&dispatcher, &seen), (leader, address), &registry, &caller) => {
                tracing::debug!(?end, %address, "a connection to the leader ended");
                if called.elapsed() >= caller.silence {
                    useful = Instant::now();
                }
                tokio::time::sleep(if useful.elapsed() < IN_VAIN { AGAIN } else { AGAIN_IN_VAIN }).await;
            }
            gone = async { post.wait_for(|post| *post != Post::Following(leader)).await.is_err() } => {
                if gone {
                    return;
                }
                useful = Instant::now();
            }
        }
    }
}

async fn work_for(
    (dispatcher, seen): (&Dispatcher, &EpochFile),
    (leader, address): (NodeId, IpAddr),
    registry: &Registry,
    caller: &Caller,
) -> io::Result<()> {
    let stream = caller.call_eligible(address, "dispatcher", CALL).await?;
    let other = || io::Error::other("another machine than the leader answers");
    let shown = far_end(&stream).ok_or_else(other)?;
    if shown.identity.id() != leader || !registry.admits(&shown).await {
        return Err(other());
    }
    let (read, mut write) = tokio::io::split(stream);
    let mut lines = Lines::new(read);
    let silent = || io::Error::from(io::ErrorKind::TimedOut);
    let first = tokio::time::timeout(CALL, lines.line()).await.map_err(|_| silent())??.unwrap_or_default();
    let Some(epoch) = first.strip_prefix("leader ").and_then(|epoch| epoch.parse::<u64>().ok()) else {
        return Err(io::Error::other(first));
    };
    let name = &shown.identity.name;
    if !registry.leads(name, epoch).await {
        return Err(io::Error::other(format!("{name} does not lead in epoch {epoch}")));
    }
    // Before any work of this epoch begins.
    seen.clone().keep(Epoch(epoch)).await;
    let (out, envelopes) = mpsc::unbounded_channel();
    if !dispatcher.connect(Epoch(epoch), out) {
        return Err(io::Error::other(format!("epoch {epoch} is over")));
    }
    let listen = async {
        while let Some(line) = tokio::time::timeout(caller.silence, lines.line()).await.map_err(|_| silent())?? {
            match Message::parse(&line).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))? {
                Message::Bye(why) => return Err(io::Error::other(why)),
                message => dispatcher.hear(&message),
            }
        }
        Ok(())
    };
    tokio::select! {
        end = listen => end,
        end = say(&mut write, envelopes) => end,
    }
}

async fn say<W: AsyncWrite + Unpin>(write: &mut W, mut envelopes: mpsc::UnboundedReceiver<Envelope>) -> io::Result<()> {
    let mut bytes = Vec::new();
    while let Some(envelope) = envelopes.recv().await {
        bytes.clear();
        let mut next = Some(envelope);
        while let Some(Envelope { message, payload }) = next {
            bytes.extend_from_slice(format!("{message}\n").as_bytes());
            bytes.extend_from_slice(&payload);
            next = if bytes.len() < 64 * 1024 { envelopes.try_recv().ok() } else { None };
        }
        write.write_all(&bytes).await?;
        write.flush().await?;
    }
    Ok(())
}

/// Fetches requested samples, for ever.
pub(crate) async fn fetch(
    mut wanted: mpsc::Receiver<Fetch>,
    post: watch::Receiver<Post>,
    registry: Registry,
    caller: Caller,
) {
    let places = std::sync::Arc::new(tokio::sync::Semaphore::new(FETCHES_MAX));
    let mut fetches = tokio::task::JoinSet::new();
    while let Some(Fetch { hash, size, to, mut answer }) = wanted.recv().await {
        while fetches.try_join_next().is_some() {}
        let Ok(place) = places.clone().acquire_owned().await else { return };
        let leader = match *post.borrow() {
            Post::Following(leader) => Some(leader),
            _ => None,
        };
        let (registry, caller) = (registry.clone(), caller.clone());
        fetches.spawn(async move {
            let fetched = tokio::select! {
                biased;
                // Its attempt is over, so it is stopped and leaves nothing behind.
                () = answer.closed() => None,
                fetched = fetch_from_any((hash, size), &to, leader, (&registry, &caller)) => Some(fetched),
            };
            match fetched {
                Some(fetched) => {
                    let _ = answer.send(fetched);
                }
                None => {
                    let _ = std::fs::remove_file(&to);
                }
            }
            drop(place);
        });
    }
}

/// Fetches a sample into this file from the leader, or from whichever machine has it.
pub(crate) async fn fetch_from_any(
    (hash, size): (SampleHash, u64),
    to: &std::path::Path,
    leader: Option<NodeId>,
    (registry, caller): (&Registry, &Caller),
) -> Result<(), NoSample> {
    let first = leader.and_then(|leader| registry.address(leader));
    let mut rest = registry.addresses(&[Role::Eligible, Role::Dispatcher]);
    rest.retain(|address| Some(*address) != first && *address != caller.from);
    let mut problem = String::from("no other machine is known");
    for address in first.into_iter().chain(rest) {
        match fetch_from(address, (hash, size), to, (registry, caller)).await {
            Err(NoSample::Absent(error)) => problem = format!("{address}: {error}"),
            ended => return ended,
        }
    }
    Err(NoSample::Absent(format!("the sample {hash} is not here and cannot be fetched: {problem}")))
}

async fn fetch_from(
    address: IpAddr,
    (hash, size): (SampleHash, u64),
    to: &std::path::Path,
    (registry, caller): (&Registry, &Caller),
) -> Result<(), NoSample> {
    let silent = |_| io::Error::from(io::ErrorKind::TimedOut);
    let stream = caller.call(address, "fetch", CALL).await?;
    let stranger = || io::Error::other("it is no machine of this lab");
    if !registry.admits(&far_end(&stream).ok_or_else(stranger)?).await {
        return Err(stranger().into());
    }
    let (read, mut write) = tokio::io::split(stream);
    write.write_all(format!("{}\n", Message::Fetch(hash)).as_bytes()).await?;
    write.flush().await?;
    let mut lines = Lines::new(read);
    let answer = tokio::time::timeout(10 * CALL, lines.line()).await.map_err(silent)??.unwrap_or_default();
    let length = match Message::parse(&answer) {
        Ok(Message::Sample(found, length)) if (found, length) == (hash, size) => length,
        Ok(Message::Missing(_)) => return Err(io::Error::other("it has not got it").into()),
        _ => return Err(io::Error::from(io::ErrorKind::InvalidData).into()),
    };
    let here = |error: io::Error| NoSample::Here(format!("a sample cannot be kept: {error}"));
    let mut file = std::fs::File::create(to).map_err(here)?;
    let (mut digest, mut left) = (Sha256::new(), length);
    while left > 0 {
        let piece = tokio::time::timeout(SILENCE, lines.some(left)).await.map_err(silent)??;
        digest.update(piece);
        file.write_all(piece).map_err(here)?;
        left -= piece.len() as u64;
    }
    let found = SampleHash(digest.finalize().into());
    if found == hash { Ok(()) } else { Err(io::Error::other(format!("what came is {found}")).into()) }
}
