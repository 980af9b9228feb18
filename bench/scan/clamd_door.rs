//! Clients of clamd's protocol: files go to clamd itself, or to Weir in its place, a connection for each, as Rspamd and Amavis ask.

use crate::client::Plan;
use crate::mix::{Class, Message};
use crate::round::{Round, Times};
use std::path::{Path, PathBuf};
use std::time::Instant;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::task::JoinSet;

/// Files that are asked about at once in a burst.
pub(crate) const AT_ONCE: usize = 20;
/// The same in a stream: as good as no bound.
const IN_STREAM: usize = 150;
const CHUNK: usize = 256 << 10;

/// How a file fared.
struct Fared {
    class: Class,
    due: Instant,
    answered: Instant,
    found: bool,
}

/// Asks about everything when it is due; what a round showed. Only what concerns the files themselves is measured here.
pub(crate) async fn play(socket: &Path, plan: &Plan) -> Round {
    let burst = plan.messages.last().is_none_or(|(due, _)| due.is_zero());
    let most = if burst { AT_ONCE } else { IN_STREAM };
    let (start, mut asking, mut fared) = (Instant::now(), JoinSet::new(), Vec::new());
    for (due, message) in &plan.messages {
        let due = start + *due;
        while asking.len() >= most {
            fared.extend(asking.join_next().await.transpose().expect("no panic"));
        }
        tokio::time::sleep_until(due.into()).await;
        asking.spawn(ask(socket.to_owned(), message.clone(), due));
    }
    while let Some(one) = asking.join_next().await {
        fared.push(one.expect("no panic"));
    }
    let times = |class: Class| {
        let of = fared.iter().filter(|one| one.class == class);
        Times::of(of.map(|one| one.answered.duration_since(one.due).as_secs_f64()).collect())
    };
    let last = fared.iter().map(|one| one.answered).max().unwrap_or(start);
    let infected = fared.iter().filter(|one| one.class == Class::Infected);
    Round {
        per_s: fared.len() as f64 / last.duration_since(start).as_secs_f64(),
        small: times(Class::Small),
        large: times(Class::Large),
        cpu_s: f64::NAN,
        rss_mb: f64::NAN,
        pss_mb: f64::NAN,
        infected: infected.clone().count(),
        leaked: infected.filter(|one| !one.found).count(),
    }
}

async fn ask(socket: PathBuf, message: Message, due: Instant) -> Fared {
    let reply = converse(&socket, &message).await.expect("an answer");
    let found = reply.ends_with("FOUND");
    assert!(found || reply == "stream: OK", "{reply}");
    assert!(!found || message.class == Class::Infected, "{:?}: {reply}", message.class);
    Fared { class: message.class, due, answered: Instant::now(), found }
}

async fn converse(socket: &Path, message: &Message) -> std::io::Result<String> {
    let mut stream = UnixStream::connect(socket).await?;
    stream.write_all(b"zINSTREAM\0").await?;
    for piece in message.head.as_bytes().chunks(CHUNK).chain(message.tail.as_bytes().chunks(CHUNK)) {
        stream.write_all(&(piece.len() as u32).to_be_bytes()).await?;
        stream.write_all(piece).await?;
    }
    stream.write_all(&[0; 4]).await?;
    let mut reply = Vec::new();
    stream.read_to_end(&mut reply).await?;
    Ok(String::from_utf8_lossy(&reply).trim_end_matches('\0').to_owned())
}
