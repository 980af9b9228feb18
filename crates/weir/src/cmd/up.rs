//! `weir up`: runs every enabled gate in one process.

use crate::allocator;
use crate::assembly::{self, Console, Outcome, ReloadAnswer, Reloader, reload_route};
use crate::config::Loaded;
use crate::control::{Place, refuse_other_owner};
use crate::memory;
use crate::orchestrator::{Event, Orchestrator};
use anyhow::Context;
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tracing_subscriber::filter::LevelFilter;
use weir_console::api::router;
use weir_console::current_router::CurrentRouter;
use weir_console::socket::ControlSocket;
use weir_foundation::Actor;
use weir_foundation::Foundation;
use weir_foundation::clock::wall_clock;
use weir_foundation::passwords::Passwords;
use weir_foundation::random::random;
use weir_foundation::secret::fresh_password;
use weir_foundation::supervision::{self, GateName, GateStates};
use weir_mail::desk::{Desk, Listener, NewUser};
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
    /// Make the user `demo` where nobody is known yet, and show its password
    #[arg(long)]
    demo_user: bool,
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
        supervision::watch_panics();
        if let Ok(task) = std::env::var("WEIR_PLANT_PANIC") {
            supervision::plant_panic(&task);
        }
        allocator::take_back();
        raise_open_files();
        let loaded = self.place.load()?;
        let folder = std::path::absolute(self.place.folder()?)?;
        refuse_other_owner(&folder)?;
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        builder.enable_all().max_blocking_threads(BLOCKING_THREADS_MAX).on_thread_park(memory::before_sleep);
        let runtime = builder.build()?;
        runtime.spawn(memory::give_back());
        runtime.block_on(up(&loaded, self, &folder, out))
    }
}

async fn up(loaded: &Loaded, args: &Args, path: &Path, out: &mut dyn Write) -> anyhow::Result<()> {
    let (folder, demo) = (take(path).await?, args.demo);
    let config = if demo { &assembly::demo(&loaded.config) } else { &loaded.config };
    let hostname = assembly::mail_gate(config).hostname;
    let foundation = Foundation::lay(folder, config.store.records.as_deref(), &hostname).await?;
    let control = foundation.folder.control_socket();
    // Signals that come while we open count too.
    let mut stop = Stop::new()?;
    let passwords = Passwords::new(config.submission.hashes_at_once as usize, random())?;
    let mut gates = Orchestrator::new(loaded, config.clone(), demo, foundation, passwords);
    gates.start_all().await?;
    let submission = &config.submission;
    let own_users = submission.identity == Identity::Login && submission.dovecot_socket.as_os_str().is_empty();
    let made = match gates.mail.gate() {
        Some(mail) if own_users && (demo || args.demo_user) => demo_user(mail.gate.desk(), demo).await?,
        _ => None,
    };
    let socket = ControlSocket::bind(&control)?;
    let shown = gates.gates();
    let accounts = shown.administration.accounts.clone();
    let api = router(&shown);
    let mut webhooks = assembly::webhooks(config, &shown).map(tokio::spawn);
    let mut console = assembly::console(config, loaded, shown, api.clone()).await;
    note_console(&console, gates.states());
    let admin = match console {
        Console::Serves { .. } => assembly::first_admin(&accounts, demo).await?,
        Console::Off | Console::Cannot(_) => None,
    };
    let (reloads, mut wanted) = mpsc::channel(1);
    let current = CurrentRouter::new(api.merge(reload_route(reloads.clone())));
    let serving = tokio::spawn(socket.serve(current.service()));
    if let Err(error) =
        greet(out, &gates, &console, &Greeting { path, password: made.as_deref(), admin: admin.as_deref() })
    {
        tracing::warn!(%error, "the greeting could not be printed");
    }
    let mut reloader = Reloader::new(args.place.clone(), path.to_owned(), gates.web.gate().cloned(), (config, loaded));
    loop {
        let next = tokio::select! {
            next = stop.or_reload(&mut wanted) => next.map(Next::Reload),
            event = gates.next() => Some(Next::Gate(event)),
        };
        match next {
            None => break,
            Some(Next::Reload(answer)) => reload(&mut reloader, &gates, answer),
            Some(Next::Gate(event)) => {
                if gates.handle(event).await {
                    let shown = gates.gates();
                    let api = router(&shown);
                    reloader.follow_web(shown.web.clone());
                    if let Some(former) = webhooks.take() {
                        former.abort();
                        webhooks = assembly::webhooks(config, &shown).map(tokio::spawn);
                    }
                    current.replace(api.clone().merge(reload_route(reloads.clone())));
                    console.show(config, loaded, shown, api);
                }
            }
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
    gates.stop_all().await;
    Ok(())
}

/// What to do next.
enum Next {
    /// The configuration is to be read again, and whoever asked for that may want to hear what came of it.
    Reload(Option<ReloadAnswer>),
    /// Something about a gate.
    Gate(Event),
}

fn reload(reloader: &mut Reloader, gates: &Orchestrator, answer: Option<ReloadAnswer>) {
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
        && let Some(Err(error)) = gates.mail.gate().map(|mail| mail.gate.reload())
    {
        tracing::warn!(%error, "the mail gate's certificate cannot be read again; the old one stays");
    }
    if let Some(answer) = answer {
        let _ = answer.send(outcome);
    }
}

/// Whether there are pages is told with the gates.
fn note_console(console: &Console, states: &GateStates) {
    match console {
        Console::Serves { .. } => states.up(GateName::Console, wall_clock()),
        Console::Cannot(why) => states.failed(GateName::Console, why, wall_clock(), Duration::MAX),
        Console::Off => {}
    }
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

/// What else is said at the start.
struct Greeting<'a> {
    path: &'a Path,
    /// The demo user's password.
    password: Option<&'a str>,
    /// The first administrator's.
    admin: Option<&'a str>,
}

fn greet(out: &mut dyn Write, gates: &Orchestrator, console: &Console, said: &Greeting<'_>) -> anyhow::Result<()> {
    let version = env!("CARGO_PKG_VERSION");
    writeln!(out, "Weir {version} is up.\n")?;
    for (gate, why) in gates.complaints() {
        let why = why.replace('\n', "\n               ");
        writeln!(out, "  {:<12} DOES NOT RUN, and is tried again: {why}", gate.to_string())?;
    }
    let mail = gates.mail.gate();
    // Not its whole status: counting all that is held would keep the reader waiting.
    let vital = mail.map(|mail| mail.gate.desk().vital().context("the gate runs")).transpose()?;
    let listeners = vital.as_ref().map(|vital| vital.listeners.as_slice()).unwrap_or_default();
    for listener in listeners {
        writeln!(out, "  {:<12} {:<24} {}", listener.name, listener.address, listener.about)?;
    }
    match mail {
        Some(mail) => {
            writeln!(out, "  {:<12} {}", "scan", mail.scanned.as_deref().unwrap_or("off (scan.enabled)"))?;
        }
        None if !gates.mail.is_wanted() => writeln!(out, "  {:<12} off (submission.enabled)", "mail")?,
        None => {}
    }
    if gates.web.gate().is_some() || !gates.web.is_wanted() {
        greet_web(out, gates.web.gate().map(Arc::as_ref))?;
    }
    match gates.lab.gate() {
        Some((lab, vms)) => {
            let from = lab.analysis().display();
            writeln!(out, "  {:<12} samples from {from}/32 and `weir lab submit`; {vms}", "lab")?;
        }
        None if !gates.lab.is_wanted() => writeln!(out, "  {:<12} off (lab.enabled)", "lab")?,
        None => {}
    }
    greet_console(out, console)?;
    if let Some(vital) = &vital {
        writeln!(out, "  {:<12} {}", "delivery", vital.delivery)?;
    }
    writeln!(out, "  {:<12} {} (records in {})", "data", said.path.display(), gates.database())?;
    if let Some(recovered) = mail.map(|mail| mail.gate.recovered()).filter(|all| all.going + all.decided + all.left > 0)
    {
        let (going, decided, left) = (recovered.going, recovered.decided, recovered.left);
        writeln!(
            out,
            "  {:<12} {going} in the spool go on, {decided} were decided, {left} left (see the log)",
            "mail"
        )?;
    }
    if let Some(password) = said.password {
        greet_demo(out, gates, password, listeners)?;
    } else if mail.is_some() {
        writeln!(out, "\nUsers are made with `{} user add NAME`.", own_name())?;
    }
    if let Console::Serves { address, .. } = console {
        writeln!(out, "\nTo see and decide everything, open http://{address}")?;
        match said.admin {
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

/// What to try with the demo user.
fn greet_demo(out: &mut dyn Write, gates: &Orchestrator, password: &str, listeners: &[Listener]) -> io::Result<()> {
    let address = listeners.first().map(|first| first.address.as_str()).unwrap_or_default();
    writeln!(out, "\nA user to try things with; this password is shown only once:")?;
    writeln!(out, "  user {DEMO}, password {password}, sends as {DEMO}@localhost")?;
    writeln!(out, "\nFor example:")?;
    writeln!(
        out,
        "  swaks --server {address} -tls --auth-user {DEMO} --auth-password {password} --from {DEMO}@localhost --to \
         ann@localhost"
    )?;
    if let Some(inbound) = listeners.iter().find(|listener| listener.name == "inbound") {
        let domain = inbound.about.split([',', ' ']).next().unwrap_or_default();
        writeln!(out, "  swaks --server {} --from you@example.org --to ann@{domain}", inbound.address)?;
    }
    writeln!(
        out,
        "  {} demo                       # four attacks, measured, and what they would have done",
        own_name()
    )?;
    writeln!(out, "  {} demo outbreak --server {address} --password {password}", own_name())?;
    if let Some(listener) = gates.web.gate().and_then(|web| web.status().listeners.into_iter().next()) {
        let tls = listener.about.starts_with("HTTPS");
        writeln!(out, "  curl {}://{}/", if tls { "-k https" } else { "http" }, listener.address)?;
    }
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
