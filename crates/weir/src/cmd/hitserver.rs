//! `weir hitserver`: the relay between the front-ends of a web cluster.

use crate::assembly::read_key;
use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use tokio::signal::unix::{SignalKind, signal};
use weir_web::exchange::relay::{Hitserver, HitserverSettings};

/// Run the relay between the front-ends of a web cluster
///
/// It passes everything that a front-end reports on to all other front-ends. They connect over TLS and prove that they
/// have the same key file. The hitserver needs nothing else and stores nothing. A second hitserver can run on another
/// machine: front-ends use all hitservers that they are configured with.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The address and port to listen on
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:2490")]
    listen: SocketAddr,
    /// The file with the key that all front-ends share, at least 16 bytes; `openssl rand -hex 32` makes one
    #[arg(long, value_name = "FILE")]
    key_file: PathBuf,
    /// How many front-ends may be connected at once
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=4096))]
    front_ends: u32,
    /// Lose this share of frames on purpose, to test how the front-ends cope
    #[arg(long, value_name = "SHARE", default_value_t = 0.0, value_parser = share, hide = true)]
    loss: f64,
    /// How much to log to standard error
    #[arg(long, value_enum, value_name = "LEVEL", default_value = "info", env = "WEIR_LOG")]
    log: super::up::Level,
}

impl Args {
    pub(crate) fn run(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        super::up::log(self.log);
        let settings = HitserverSettings {
            listen: self.listen,
            key: read_key(&self.key_file)?,
            connections_max: self.front_ends as usize,
            loss: self.loss,
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(serve(&settings, out))
    }
}

async fn serve(settings: &HitserverSettings, out: &mut dyn Write) -> anyhow::Result<()> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let relay = Hitserver::bind(settings).await?;
    let counters = relay.counters();
    writeln!(out, "The hitserver listens on {}. Stop with Ctrl-C.", relay.address()?)?;
    out.flush()?;
    tokio::select! {
        () = relay.serve() => {}
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    let counted = counters();
    let words = format!(
        "Stopping: {} frames received, {} not passed on because a front-end was too slow, {} connections without the \
         right key.",
        counted.frames, counted.dropped, counted.unproven
    );
    // The reader of our output may be gone, and that does not matter.
    let _ = writeln!(out, "{words}").and_then(|()| out.flush());
    Ok(())
}

fn share(text: &str) -> Result<f64, String> {
    let share = text.parse().ok().filter(|share: &f64| (0.0..1.0).contains(share));
    share.ok_or_else(|| "a share from 0 to 1, such as 0.2".to_owned())
}
