//! `weir up`: runs every enabled gate in one process.

use crate::allocator;
use crate::assembly::{self, Console, Outcome, ReloadAnswer, Reloader, Shown, reload_route, web_gate};
use crate::config::Loaded;
use crate::control::{Place, refuse_other_owner};
use crate::memory;
use anyhow::Context;
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::time::{Duration, Instant};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tracing_subscriber::filter::LevelFilter;
use weir_console::api::router;
use weir_console::socket::ControlSocket;
use weir_lab::node::Node;
use weir_mail::desk::{Actor, Desk, NewUser, Queue, fresh_password};
use weir_mail::gate::{Foundation, Gate, WayOut};
use weir_mail::inbound::Authenticating;
use weir_mail::outbound::Outbound;
use weir_mail::submission::Identity;
use weir_store::folder::{DataFolder, FolderError};

/// Another verb may hold the folder for a moment.
const PATIENCE_FOR_FOLDER: Duration = Duration::from_secs(1);

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    place: Place,
    /// How much to log, on standard error
    #[arg(long, value_enum, value_name = "LEVEL", default_value = "warn", env = "WEIR_LOG")]
    log: Level,
    /// Give the user `demo` a new password and show it (made if there is none, and also made where nobody is known yet), scan
    /// mail, take mail from outside for demo.test if no domain is configured, and let the web gate serve a small backend of
    /// its own if none is configured
    #[arg(long)]
    demo: bool,
}

#[derive(Clone, Copy, clap::ValueEnum)]
pub(crate) enum Level {
    /// Nothing
    Off,
    /// What is our fault
    Error,
    /// And what the operator should look at
    Warn,
    /// And the life cycle
    Info,
    /// And every decision
    Debug,
}

impl Args {
    pub(crate) fn run(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        log(self.log);
        allocator::take_back();
        raise_open_files();
        let loaded = self.place.load()?;
        let folder = std::path::absolute(self.place.folder()?)?;
        refuse_other_owner(&folder)?;
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        builder.enable_all().max_blocking_threads(BLOCKING_THREADS_MAX).on_thread_park(memory::before_sleep);
        let runtime = builder.build()?;
        runtime.spawn(memory::give_back());
        runtime.block_on(up(&loaded, &self.place, (&folder, self.demo), out))
    }
}

async fn up(loaded: &Loaded, place: &Place, (path, demo): (&Path, bool), out: &mut dyn Write) -> anyhow::Result<()> {
    let folder = take(path).await?;
    let config = if demo { &assembly::demo(&loaded.config) } else { &loaded.config };
    let mut settings = assembly::mail_gate(config);
    let foundation = Foundation::lay(folder, config.store.records.as_deref(), &settings.hostname).await?;
    let (control, keys) = (foundation.folder.control_socket(), foundation.folder.keys().join("dkim"));
    let (delivery, about) = assembly::delivery(config, &foundation.folder)?;
    settings.inbound = assembly::inbound(config, &delivery)?;
    let authenticity = settings.inbound.as_ref().and_then(|inbound| inbound.authenticity.clone());
    let own_users = settings.identity == Identity::Login && settings.dovecot.is_none();
    // Signals that come while we open count too.
    let mut stop = Stop::new()?;
    let scan = assembly::Scan::new(config, &foundation).await?;
    let scanned = scan.about();
    let web = web_gate(config, &foundation.folder, demo).await?;
    let (lab, vms) = assembly::lab(config, &foundation).await?;
    let gate = Gate::open(foundation, settings, |spool| {
        let out = scan.before(spool, lab.as_ref(), WayOut::start(delivery, spool, &keys, &about)?)?;
        Ok(Authenticating::new(out, spool, authenticity.as_ref())?)
    });
    let gate = gate.await?;
    let made = if own_users { demo_user(gate.desk(), demo).await? } else { None };
    let socket = ControlSocket::bind(&control)?;
    let api = router(gate.desk().clone(), web.clone(), lab.clone());
    let webhooks = assembly::webhooks(config, gate.desk(), lab.as_ref()).map(tokio::spawn);
    let shown = Shown { desk: gate.desk(), web: web.as_ref(), lab: lab.as_ref() };
    let console = assembly::console(config, loaded, shown, api.clone()).await;
    let admin = match console {
        Console::Serves { .. } => assembly::first_admin(gate.desk(), demo).await?,
        Console::Off | Console::Cannot(_) => None,
    };
    let (reloads, mut wanted) = mpsc::channel(1);
    let serving = tokio::spawn(socket.serve(api.merge(reload_route(reloads))));
    let passwords = (made.as_deref(), admin.as_deref());
    if let Err(error) = greet(
        out,
        &gate,
        (web.as_deref(), scanned.as_deref(), lab.as_ref().zip(Some(vms.as_str())), &console),
        (path, passwords),
    ) {
        tracing::warn!(%error, "the greeting could not be printed");
    }
    let mut reloader = Reloader::new(place.clone(), path.to_owned(), web.clone(), (config, loaded));
    while let Some(answer) = stop.or_reload(&mut wanted).await {
        let outcome = reloader.reload();
        match &outcome {
            Ok(Outcome { restart, .. }) => {
                tracing::info!(restart = restart.join(" "), "the configuration was read again");
            }
            Err(error) => {
                tracing::error!(error = format!("{error:#}"), "the configuration cannot be used; nothing has changed");
            }
        }
        if outcome.is_ok()
            && let Err(error) = gate.reload()
        {
            tracing::warn!(%error, "the mail gate's certificate cannot be read again; the old one stays");
        }
        if let Some(answer) = answer {
            let _ = answer.send(outcome);
        }
    }
    drop(reloader);
    // Nobody may be reading any more; that must not keep us from stopping in order.
    let _ = writeln!(out, "Stopping: messages that are coming in are finished first.").and_then(|()| out.flush());
    if let Some(webhooks) = webhooks {
        webhooks.abort();
    }
    console.stop().await;
    serving.abort();
    let _ = serving.await;
    if let Some(lab) = &lab {
        lab.resign().await;
    }
    if let Some(web) = web {
        let _ = tokio::task::spawn_blocking(move || web.shutdown()).await;
    }
    gate.shutdown().await;
    Ok(())
}

/// Every connection is an open file, and the usual limit is for programs that have few.
fn raise_open_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let maximum = getrlimit(Resource::Nofile).maximum;
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
        tracing::warn!(%error, "the limit of open files cannot be raised");
    }
}

/// Takes the data folder, patiently if another verb has it for a moment.
async fn take(path: &Path) -> anyhow::Result<DataFolder> {
    let begun = Instant::now();
    loop {
        match DataFolder::open(path) {
            Err(FolderError::Owned { .. }) if begun.elapsed() < PATIENCE_FOR_FOLDER => {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            taken => return Ok(taken?),
        }
    }
}

/// For what waits for the disk or hashes passwords. Each thread keeps a huge page or more of its own, so that hundreds of them,
/// as the runtime would have by default, would hold memory that nobody needs after a rush.
const BLOCKING_THREADS_MAX: usize = 32;

const DEMO: &str = "demo";

/// A user to try everything with, and the password, once. Without being wanted, only where nobody is known yet.
async fn demo_user(desk: &Desk, wanted: bool) -> anyhow::Result<Option<String>> {
    if !wanted && !desk.user_list("").await?.users.is_empty() {
        return Ok(None);
    }
    let (password, actor) = (fresh_password(), Actor::new("weir"));
    if desk.user_show(DEMO).await.is_ok() {
        desk.user_password(DEMO, &password, &actor).await?;
        return Ok(Some(password));
    }
    let new = NewUser {
        name: DEMO.to_owned(),
        password: Some(password.clone()),
        addresses: vec![format!("{DEMO}@localhost")],
        contact: format!("{DEMO}-contact@localhost"),
        ..NewUser::default()
    };
    desk.user_add(new, &actor).await?;
    Ok(Some(password))
}

/// What runs beside the mail gate, where it does: the web gate, a word about the scan, the lab and a word about its VMs, the console.
type Besides<'a> = (Option<&'a weir_web::proxy::Gate>, Option<&'a str>, Option<(&'a Node, &'a str)>, &'a Console);

fn greet(
    out: &mut dyn Write,
    gate: &Gate<impl Outbound + Queue>,
    (web, scanned, lab, console): Besides<'_>,
    (path, (password, admin)): (&Path, (Option<&str>, Option<&str>)),
) -> anyhow::Result<()> {
    // Not its whole status: counting all that is held would keep the reader waiting.
    let vital = gate.desk().vital().context("the gate runs")?;
    let version = env!("CARGO_PKG_VERSION");
    writeln!(out, "Weir {version} is up.\n")?;
    for listener in &vital.listeners {
        writeln!(out, "  {:<12} {:<24} {}", listener.name, listener.address, listener.about)?;
    }
    writeln!(out, "  {:<12} {}", "scan", scanned.unwrap_or("off (scan.enabled)"))?;
    greet_web(out, web)?;
    match lab {
        Some((lab, vms)) => {
            let from = lab.analysis().display();
            writeln!(out, "  {:<12} samples from {from}/32 and `weir lab submit`; {vms}", "lab")?;
        }
        None => writeln!(out, "  {:<12} off (lab.enabled)", "lab")?,
    }
    greet_console(out, console)?;
    writeln!(out, "  {:<12} {}", "delivery", vital.delivery)?;
    writeln!(out, "  {:<12} {} (records in {})", "data", path.display(), gate.desk().database())?;
    let recovered = gate.recovered();
    if recovered.going + recovered.decided + recovered.left > 0 {
        let (going, decided, left) = (recovered.going, recovered.decided, recovered.left);
        writeln!(
            out,
            "  {:<12} {going} in the spool go on, {decided} were decided, {left} left (see the log)",
            "mail"
        )?;
    }
    if let (Some(password), Some(first)) = (password, vital.listeners.first()) {
        let address = &first.address;
        writeln!(out, "\nA user to try things with; this password is shown only once:")?;
        writeln!(out, "  user {DEMO}, password {password}, sends as {DEMO}@localhost")?;
        writeln!(out, "\nFor example:")?;
        writeln!(
            out,
            "  swaks --server {address} -tls --auth-user {DEMO} --auth-password {password} --from {DEMO}@localhost --to \
             ann@localhost"
        )?;
        if let Some(inbound) = vital.listeners.iter().find(|listener| listener.name == "inbound") {
            let domain = inbound.about.split([',', ' ']).next().unwrap_or_default();
            writeln!(out, "  swaks --server {} --from you@example.org --to ann@{domain}", inbound.address)?;
        }
        writeln!(
            out,
            "  {} demo                       # four attacks, measured, and what they would have done",
            own_name()
        )?;
        writeln!(out, "  {} demo outbreak --server {address} --password {password}", own_name())?;
        if let Some(listener) = web.and_then(|web| web.status().listeners.into_iter().next()) {
            let tls = listener.about.starts_with("HTTPS");
            writeln!(out, "  curl {}://{}/", if tls { "-k https" } else { "http" }, listener.address)?;
        }
    }
    if let Console::Serves { address, .. } = console {
        writeln!(out, "\nTo see and decide everything, open http://{address}")?;
        match admin {
            Some(admin) => writeln!(out, "  log in as {}; the password is shown only once: {admin}", assembly::ADMIN)?,
            None => writeln!(out, "  a lost password: {} console passwd {}", own_name(), assembly::ADMIN)?,
        }
    }
    writeln!(
        out,
        "\n`{0} status`, `{0} held list` and the other verbs work from another terminal. Stop with Ctrl-C.",
        own_name()
    )?;
    out.flush()?;
    Ok(())
}

/// Where the pages are.
fn greet_console(out: &mut dyn Write, console: &Console) -> io::Result<()> {
    match console {
        Console::Serves { address, .. } => {
            writeln!(out, "  {:<12} {:<24} pages for people in charge", "console", address.to_string())
        }
        Console::Off => writeln!(out, "  {:<12} off (console.enabled)", "console"),
        Console::Cannot(why) => writeln!(out, "  {:<12} off: {why} (console.listen)", "console"),
    }
}

/// Where the web gate listens, and whom it serves.
fn greet_web(out: &mut dyn Write, web: Option<&weir_web::proxy::Gate>) -> io::Result<()> {
    let Some(status) = web.map(weir_web::proxy::Gate::status) else {
        return writeln!(out, "  {:<12} off: no backend in [web]", "web");
    };
    let names: Vec<&str> = status.backends.iter().map(|backend| backend.queue.backend.as_str()).collect();
    for listener in &status.listeners {
        writeln!(out, "  {:<12} {:<24} {}, for {}", "web", listener.address, listener.about, names.join(", "))?;
    }
    Ok(())
}

/// What the reader typed to start us, and can type again.
fn own_name() -> String {
    std::env::args().next().unwrap_or_else(|| "weir".to_owned())
}

/// The signals that end us, and the one that makes us read again.
struct Stop {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
    hangup: tokio::signal::unix::Signal,
}

impl Stop {
    fn new() -> io::Result<Stop> {
        Ok(Stop {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// None when it is time to stop; otherwise the configuration is to be read again, and whoever asked for that may want to hear what came of it.
    async fn or_reload(&mut self, wanted: &mut mpsc::Receiver<ReloadAnswer>) -> Option<Option<ReloadAnswer>> {
        tokio::select! {
            _ = self.terminate.recv() => None,
            _ = self.interrupt.recv() => None,
            _ = self.hangup.recv() => Some(None),
            Some(answer) = wanted.recv() => Some(Some(answer)),
        }
    }
}

/// Logs on standard error from now on.
pub(crate) fn log(level: Level) {
    let level = match level {
        Level::Off => LevelFilter::OFF,
        Level::Error => LevelFilter::ERROR,
        Level::Warn => LevelFilter::WARN,
        Level::Info => LevelFilter::INFO,
        Level::Debug => LevelFilter::DEBUG,
    };
    tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(io::stderr)
        .with_target(false)
        .with_ansi(io::stderr().is_terminal())
        .init();
}
