//! The second part of the demonstration: eight clients send large mail, some of it infected, while small mail arrives as usual.

use super::mail_client::MailSession;
use super::percentile;
use super::stage::Stage;
use base64::Engine;
use serde::Serialize;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_console::api::feeds;
use weir_scan::eicar::eicar;

const LASTS: Duration = Duration::from_secs(10);
const FLOODERS: u32 = 8;
/// One of this many large mails is infected.
const INFECTED_ONE_IN: u32 = 4;
const LARGE_BYTES: usize = 4 << 20;
const SMALL_EVERY: Duration = Duration::from_millis(200);
/// How long after the flood small mail may still take to arrive.
const PATIENCE: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// The results of this part.
#[derive(Serialize)]
pub(super) struct FloodOutcome {
    pub(super) large: u32,
    pub(super) viruses: u32,
    pub(super) quarantined: u64,
    pub(super) small_sent: usize,
    pub(super) small_arrived: usize,
    /// Measured from the moment when the client begins to send until the file is in the mailbox.
    pub(super) small_mean_s: f64,
    pub(super) small_p95_s: f64,
}

pub(super) fn play(stage: &Stage) -> anyhow::Result<Option<FloodOutcome>> {
    let Some((server, domain)) = &stage.inbound else { return Ok(None) };
    let before = quarantined(stage)?;
    let until = Instant::now() + LASTS;
    let (large, virus) = (Arc::new(large_letter()), attached("invoice.bin", eicar().as_bytes()));
    let flooders: Vec<_> = (0..FLOODERS)
        .map(|number| {
            let (server, to, large, virus) =
                (*server, format!("flood-{number}@{domain}"), Arc::clone(&large), virus.clone());
            std::thread::spawn(move || flood(server, &to, (&large, &virus), until))
        })
        .collect();
    let mut times = small(*server, domain, &stage.data, until);
    let small_sent = times.len();
    let mut arrived: Vec<f64> = times.drain(..).flatten().collect();
    let (mut large, mut viruses) = (0, 0);
    for flooder in flooders {
        let (sent, infected) = flooder.join().unwrap_or_default();
        large += sent;
        viruses += infected;
    }
    let deadline = Instant::now() + PATIENCE;
    while quarantined(stage)? < before + u64::from(viruses) && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(Some(FloodOutcome {
        large,
        viruses,
        quarantined: quarantined(stage)? - before,
        small_sent,
        small_arrived: arrived.len(),
        small_mean_s: arrived.iter().sum::<f64>() / arrived.len() as f64,
        small_p95_s: percentile(&mut arrived, 95),
    }))
}

fn quarantined(stage: &Stage) -> anyhow::Result<u64> {
    Ok(stage.control.ask(&feeds::STATUS, &())?.counts.quarantined)
}

/// Sends mail as fast as the server takes it. Returns how many large mails were sent, and how many infected ones.
fn flood(server: SocketAddr, to: &str, (large, virus): (&str, &str), until: Instant) -> (u32, u32) {
    let (mut sent, mut infected) = (0, 0);
    let Ok(mut session) = MailSession::open(server) else { return (0, 0) };
    for number in 0_u32.. {
        if Instant::now() >= until {
            break;
        }
        let is_infected = number % INFECTED_ONE_IN == 0;
        let letter = if is_infected { virus } else { large };
        match session.send("crowd@example.net", &[to.to_owned()], letter) {
            Ok(reply) if reply.starts_with("250") => *if is_infected { &mut infected } else { &mut sent } += 1,
            _ => break,
        }
    }
    (sent, infected)
}

/// Sends small mail at a steady pace, each to a mailbox of its own. Returns how long each took to arrive; none for those that did not.
fn small(server: SocketAddr, domain: &str, data: &Path, until: Instant) -> Vec<Option<f64>> {
    let mut under_way: Vec<(Instant, PathBuf)> = Vec::new();
    let mut times = Vec::new();
    let mut next = Instant::now();
    let mut sent = 0;
    while Instant::now() < until + PATIENCE {
        under_way.retain(|(begun, folder)| match has_mail(folder) {
            true => {
                times.push(Some(begun.elapsed().as_secs_f64()));
                false
            }
            false => true,
        });
        if Instant::now() >= until && under_way.is_empty() {
            break;
        }
        if Instant::now() >= next && Instant::now() < until {
            let to = format!("small-{}-{sent}@{domain}", std::process::id());
            let begun = Instant::now();
            let letter = "Subject: lunch\r\n\r\nAt noon?";
            let reply = MailSession::open(server)
                .and_then(|mut session| session.send("bob@example.org", std::slice::from_ref(&to), letter));
            if reply.is_ok_and(|reply| reply.starts_with("250")) {
                under_way.push((begun, data.join("mail").join(&to).join("Maildir/new")));
            }
            sent += 1;
            next += SMALL_EVERY;
        }
        std::thread::sleep(LOOK_EVERY);
    }
    times.extend(under_way.iter().map(|_| None));
    times
}

fn has_mail(folder: &Path) -> bool {
    std::fs::read_dir(folder).is_ok_and(|mut files| files.next().is_some())
}

/// A large mail whose bytes are pseudo-random, so that no result for it is cached from earlier.
fn large_letter() -> String {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64 ^ u64::from(std::process::id());
    let bytes: Vec<u8> = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    })
    .take(LARGE_BYTES)
    .collect();
    attached("pictures.bin", &bytes)
}

fn attached(name: &str, content: &[u8]) -> String {
    let text = base64::engine::general_purpose::STANDARD.encode(content);
    let lines: Vec<&str> = text.as_bytes().chunks(76).filter_map(|line| std::str::from_utf8(line).ok()).collect();
    format!(
        "Subject: see attached\r\nMIME-Version: 1.0\r\nContent-Type: application/octet-stream; name=\"{name}\"\r\n\
         Content-Disposition: attachment; filename=\"{name}\"\r\nContent-Transfer-Encoding: base64\r\n\r\n{}",
        lines.join("\r\n")
    )
}
