//! How fast the spool takes mail, and how much memory a backlog costs.
//!
//! ```text
//! cargo run --release -p weir-store --example spool_speed -- [--folder DIR] [--sessions 20] [--bytes 4096]
//!     [--seconds 3] [--backlog 100000]
//! ```
//!
//! First part: so many sessions at once commit messages, mark each as decided and finish it. Second part: a backlog is committed,
//! the spool is opened anew, and the memory of the process is printed.

use std::error::Error;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use weir_store::spool::{Options, Spool};

type Outcome = Result<(), Box<dyn Error + Send + Sync>>;

struct Wanted {
    folder: PathBuf,
    sessions: usize,
    bytes: usize,
    seconds: u64,
    backlog: usize,
}

#[tokio::main]
async fn main() -> Outcome {
    let wanted = wanted()?;
    let mut out = std::io::stdout().lock();
    let _ = std::fs::remove_dir_all(&wanted.folder);
    commits(&wanted, &mut out).await?;
    std::fs::remove_dir_all(&wanted.folder)?;
    backlog(&wanted, &mut out).await?;
    std::fs::remove_dir_all(&wanted.folder)?;
    Ok(())
}

async fn commits(wanted: &Wanted, out: &mut impl Write) -> Outcome {
    let (spool, _) = Spool::open(&wanted.folder, Options::default())?;
    let start = Instant::now();
    let until = start + Duration::from_secs(wanted.seconds);
    let sessions: Vec<_> =
        (0..wanted.sessions).map(|_| tokio::spawn(session(spool.clone(), wanted.bytes, until))).collect();
    let mut waits = Vec::new();
    for session in sessions {
        waits.extend(session.await??);
    }
    let seconds = start.elapsed().as_secs_f64();
    waits.sort_unstable();
    let at = |part: f64| waits.get((waits.len() as f64 * part) as usize).copied().unwrap_or_default();
    writeln!(
        out,
        "{} sessions, {} bytes a message, {seconds:.1} s, each durable before the next",
        wanted.sessions, wanted.bytes
    )?;
    writeln!(out, "  commits/s      {:>10.0}", waits.len() as f64 / seconds)?;
    writeln!(out, "  wait p50, p99  {:>10.2?} {:>10.2?}", at(0.5), at(0.99))?;
    writeln!(out, "  last sync      {:>10.2?}", spool.stats().last_sync)?;
    Ok(())
}

async fn session(spool: Spool, bytes: usize, until: Instant) -> Result<Vec<Duration>, Box<dyn Error + Send + Sync>> {
    let body = vec![b'x'; bytes];
    let mut waits = Vec::new();
    while Instant::now() < until {
        let start = Instant::now();
        let mut draft = spool.draft()?;
        draft.write(&body).await?;
        let id = draft.commit(&b"from:alice@example.org to:bob@example.com"[..]).await?;
        waits.push(start.elapsed());
        spool.mark(id, &b"decided"[..])?;
        spool.finish(id)?;
    }
    Ok(waits)
}

async fn backlog(wanted: &Wanted, out: &mut impl Write) -> Outcome {
    let before = resident_mib();
    fill(wanted).await?;
    let start = Instant::now();
    let (spool, found) = Spool::open(&wanted.folder, Options::default())?;
    let seconds = start.elapsed().as_secs_f64();
    writeln!(out, "{} messages of {} bytes found at start in {seconds:.2} s", found.len(), wanted.bytes)?;
    writeln!(out, "  resident before {before:.0} MiB, with what was found {:.0} MiB", resident_mib())?;
    drop(found);
    let stats = spool.stats();
    writeln!(out, "  {} segments, {} MiB on the disk", stats.segments, stats.disk_bytes >> 20)?;
    Ok(())
}

async fn fill(wanted: &Wanted) -> Outcome {
    let (spool, _) = Spool::open(&wanted.folder, Options { keep_bytes: 0, ..Options::default() })?;
    let each = wanted.backlog / wanted.sessions;
    let mut sessions = Vec::new();
    for number in 0..wanted.sessions {
        let (spool, body) = (spool.clone(), vec![b'x'; wanted.bytes]);
        let envelope = format!("{number} from:alice@example.org to:bob@example.com {}", "x".repeat(100));
        sessions.push(tokio::spawn(async move {
            for _ in 0..each {
                let mut draft = spool.draft()?;
                draft.write(&body).await?;
                let id = draft.commit(envelope.as_bytes()).await?;
                spool.mark(id, &b"decided"[..])?;
            }
            Ok::<_, weir_store::spool::SpoolError>(())
        }));
    }
    for session in sessions {
        session.await??;
    }
    Ok(())
}

fn resident_mib() -> f64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let resident: f64 = pages.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0.0);
    resident * 4096.0 / 1048576.0
}

fn wanted() -> Result<Wanted, Box<dyn Error + Send + Sync>> {
    let folder = Path::new("target/spool_speed").to_owned();
    let mut wanted = Wanted { folder, sessions: 20, bytes: 4096, seconds: 3, backlog: 100_000 };
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let value = arguments.next().ok_or_else(|| format!("{name} needs a value"))?;
        match name.as_str() {
            "--folder" => wanted.folder = value.into(),
            "--sessions" => wanted.sessions = value.parse()?,
            "--bytes" => wanted.bytes = value.parse()?,
            "--seconds" => wanted.seconds = value.parse()?,
            "--backlog" => wanted.backlog = value.parse()?,
            _ => return Err(format!("unknown option {name}").into()),
        }
    }
    Ok(wanted)
}
