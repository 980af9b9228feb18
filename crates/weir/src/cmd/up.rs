//! `weir up`: runs every enabled gate in one process.

use crate::allocator;
use crate::assembly::{self, Console, ProcessCommand, ReloadAnswer, ReloadOutcome, Reloader, own_routes};
use crate::config::Loaded;
use crate::control::refuse_other_owner;
use crate::folder_args::FolderArgs;
use crate::memory;
use crate::orchestrator::{GateEvent, Orchestrator};
use crate::{restart, service_manager};
use anyhow::Context;
use axum::http::StatusCode;
use axum::{Json, Router};
use serde_json::json;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tracing_subscriber::filter::LevelFilter;
use weir_console::api::router;
use weir_console::current_router::CurrentRouter;
use weir_console::socket::ControlSocket;
use weir_foundation::Actor;
use weir_foundation::directory::Directory;
use weir_foundation::passwords::Passwords;
use weir_foundation::random::random;
use weir_foundation::secret::fresh_password;
use weir_foundation::sockets;
use weir_foundation::supervision::{self, GateName, GateStates, keep_running};
use weir_mail::operations::{Listener, NewUser, UserOperations};
use weir_mail::submission::Identity;
use weir_store::folder::{DataFolder, FolderError};

/// How long to wait for the data folder, which another command may hold for a moment.
const PATIENCE_FOR_FOLDER: Duration = Duration::from_secs(1);
/// How long an answer on the control socket may take to be written and read.
const TIME_TO_ANSWER: Duration = Duration::from_millis(500);
/// How long threads may still write a file after everything has stopped.
const PATIENCE_FOR_THREADS: Duration = Duration::from_secs(5);

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    place: FolderArgs,
    /// How much to log to standard error
    #[arg(long, value_enum, value_name = "LEVEL", default_value = "warn", env = "WEIR_LOG")]
    log: Level,
    /// Start a Weir to try things with, and print how to log in
    ///
    /// The user `demo` is created, or gets a new password if it exists, and so does the console's administrator. The
    /// scan and the lab are switched on. If no mail from outside is configured, mail for the domain demo.test is
    /// accepted, and if no backend is configured, the web gate serves a small built-in one.
    #[arg(long)]
    demo: bool,
    /// If there are no users yet, create the user `demo` and print its password
    #[arg(long)]
    demo_user: bool,
}

#[derive(Clone, Copy, clap::ValueEnum)]
pub(crate) enum Level {
    /// Nothing
    Off,
    /// Only errors of Weir itself
    Error,
    /// Also what an operator should look at
    Warn,
    /// Also starts, stops and similar events
    Info,
    /// Also every decision
    Debug,
}

impl Args {
    pub(crate) fn run(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        log(self.log);
        supervision::watch_panics();
        if let Ok(task) = std::env::var("WEIR_PLANT_PANIC") {
            supervision::plant_panic(&task);
        }
        // This comes before anything is opened: the sockets that were passed to us have fixed numbers, which nothing else may get.
        restart::take_sockets()?;
        let program = restart::Invocation::new()?;
        allocator::take_back();
        raise_open_files();
        let loaded = self.place.load()?;
        let folder = std::path::absolute(self.place.folder()?)?;
        refuse_other_owner(&folder)?;
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        builder.enable_all().max_blocking_threads(BLOCKING_THREADS_MAX).on_thread_park(memory::before_sleep);
        let runtime = builder.build()?;
        runtime.spawn(memory::give_back());
        let end = runtime.block_on(up(&loaded, self, &folder, &program, out))?;
        runtime.shutdown_timeout(PATIENCE_FOR_THREADS);
        match end {
            RunEnd::Stop => Ok(()),
            RunEnd::Restart => Err(program.replace_this()),
        }
    }
}

/// Serves the control socket, which is opened again if its task fails.
fn serve(socket: ControlSocket, path: PathBuf, router: Router) -> JoinHandle<()> {
    let mut first = Some(Ok(socket));
    keep_running("control socket", move || {
        let (socket, router) = (first.take().unwrap_or_else(|| ControlSocket::bind(&path)), router.clone());
        async move {
            match socket {
                Ok(socket) => socket.serve(router).await,
                Err(error) => tracing::error!(%error, "the control socket cannot be opened; Weir tries again"),
            }
        }
    })
}

/// How a run ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RunEnd {
    Stop,
    /// The program is started again, with the sockets of this one.
    Restart,
}

async fn up(
    loaded: &Loaded,
    args: &Args,
    path: &Path,
    program: &restart::Invocation,
    out: &mut dyn Write,
) -> anyhow::Result<RunEnd> {
    let (folder, demo) = (take(path).await?, args.demo);
    let config = if demo { &assembly::demo(&loaded.config) } else { &loaded.config };
    let control = folder.control_socket();
    // Signals that arrive while the gates open must count too.
    let mut stop = Stop::new()?;
    let passwords = Passwords::new(config.submission.hashes_at_once as usize, random())?;
    let passwords = passwords.with_directory(Directory::open(&config.directory).context("sign_in.ldap")?);
    let mut gates = Orchestrator::new(loaded, config.clone(), demo, folder, passwords)?;
    gates.start_all().await?;
    let submission = &config.submission;
    let own_users = submission.identity == Identity::Login && submission.dovecot_socket.is_none();
    let made = match gates.mail.gate() {
        Some(mail) if own_users && (demo || args.demo_user) => demo_user(&mail.gate.operations().users, demo).await?,
        _ => None,
    };
    let socket = ControlSocket::bind(&control)?;
    gates.start_console().await;
    close_unused_sockets(gates.states());
    let mut admin = FirstAdmin { demo, looked: false };
    let password = admin.make(&gates).await?;
    let background =
        |gates: &Orchestrator| gates.gates().map_or_else(Vec::new, |shown| assembly::background(config, &shown));
    let mut behind = background(&gates);
    let (commands, mut wanted) = mpsc::channel(1);
    let current = CurrentRouter::new(api(&gates).merge(own_routes(commands.clone())));
    let serving = serve(socket, control, current.service());
    let greeting = Greeting { path, password: made.as_deref(), admin: password.as_deref() };
    if let Err(error) = greet(out, &gates, &greeting) {
        tracing::warn!(%error, "the greeting could not be printed");
    }
    // The authority can ask only now, because something listens.
    let keepers = gates.certificates().start(config);
    service_manager::ready();
    let watchdog = service_manager::watchdog().map(tokio::spawn);
    let mut reloader = Reloader::new(args.place.clone(), path.to_owned(), gates.web.gate().cloned(), (config, loaded));
    let end = loop {
        let next = tokio::select! {
            next = stop.or_command(&mut wanted) => next,
            event = gates.next() => NextEvent::Gate(event),
        };
        let others_run = match next {
            NextEvent::Stop => break RunEnd::Stop,
            NextEvent::Command(ProcessCommand::Reload(answer)) => reload(&mut reloader, &mut gates, answer).await,
            NextEvent::Command(ProcessCommand::Restart(answer)) => {
                let checked = program.check(&args.place);
                if let Err(error) = &checked {
                    tracing::error!(error = format!("{error:#}"), "not restarted; everything keeps running");
                }
                let restarts = checked.is_ok();
                let asked = answer.map(|answer| answer.send(checked)).is_some();
                if restarts {
                    if asked {
                        // The answer is still being sent, and would be lost when this program ends.
                        tokio::time::sleep(TIME_TO_ANSWER).await;
                    }
                    break RunEnd::Restart;
                }
                false
            }
            NextEvent::Gate(event) => gates.handle(event).await,
        };
        if others_run {
            let api = api(&gates);
            reloader.follow_web(gates.web.gate().cloned());
            behind.iter().for_each(JoinHandle::abort);
            behind = background(&gates);
            current.replace(api.clone().merge(own_routes(commands.clone())));
            gates.show(api);
            if let Err(error) = admin.greet_late(&gates, out).await {
                tracing::warn!(error = format!("{error:#}"), "the first administrator could not be shown");
            }
            close_unused_sockets(gates.states());
        }
    };
    drop(reloader);
    keepers.iter().for_each(JoinHandle::abort);
    let how = match end {
        RunEnd::Stop => {
            service_manager::stopping();
            // From now on new clients are refused. Those that were accepted are served to the end.
            sockets::close_all();
            "Stopping"
        }
        RunEnd::Restart => {
            service_manager::restarting();
            "Restarting"
        }
    };
    // The reader of our output may be gone, and that must not keep us from stopping in order.
    let under_way = if gates.mail.is_wanted() { "messages that are being received are" } else { "open requests are" };
    let _ = writeln!(out, "{how}: {under_way} finished first.").and_then(|()| out.flush());
    behind.iter().for_each(JoinHandle::abort);
    serving.abort();
    let _ = serving.await;
    gates.stop_all().await;
    if let Some(watchdog) = watchdog {
        watchdog.abort();
    }
    Ok(end)
}

/// What the control socket serves. Without records it can only say why they are not open.
fn api(gates: &Orchestrator) -> Router {
    if let Some(gates) = gates.gates() {
        return router(&gates);
    }
    let why = gates.complaints().map(|(gate, why)| format!("{gate}: {why}")).collect::<Vec<_>>().join("\n");
    let answer = json!({ "title": "Not open", "status": 503, "detail": format!("the records are not open\n{why}") });
    Router::new().fallback(move || std::future::ready((StatusCode::SERVICE_UNAVAILABLE, Json(answer.clone()))))
}

/// Makes the first account when the console runs for the first time.
struct FirstAdmin {
    demo: bool,
    looked: bool,
}

impl FirstAdmin {
    /// The password of the account, if it was made just now.
    async fn make(&mut self, gates: &Orchestrator) -> anyhow::Result<Option<String>> {
        let Some(shown) = gates.gates().filter(|_| gates.console.gate().is_some() && !self.looked) else {
            return Ok(None);
        };
        self.looked = true;
        assembly::first_admin(&shown.administration.accounts, self.demo).await
    }

    /// The same if the console starts later than everything else: also prints how to log in.
    async fn greet_late(&mut self, gates: &Orchestrator, out: &mut dyn Write) -> anyhow::Result<()> {
        match self.make(gates).await? {
            Some(password) => Ok(greet_console(out, gates, Some(&password))?),
            None => Ok(()),
        }
    }
}

/// Closes the sockets that were passed to us but are unused. When every gate that is switched on is up, no gate will ask for them any more.
fn close_unused_sockets(states: &GateStates) {
    if states.all_up() {
        for address in sockets::close_unused() {
            tracing::warn!(%address, "a socket that was passed to Weir is closed: no gate listens there");
            service_manager::forget(&address);
        }
        service_manager::keep_sockets();
    }
}

/// What to do next.
enum NextEvent {
    Stop,
    Command(ProcessCommand),
    /// Something happened to a gate.
    Gate(GateEvent),
}

/// Reads the configuration again. Returns whether other gates run now than before.
async fn reload(reloader: &mut Reloader, gates: &mut Orchestrator, answer: Option<ReloadAnswer>) -> bool {
    let mut outcome = reloader.reload(gates.mail.is_wanted());
    let mut others_run = false;
    if let Ok(done) = &mut outcome {
        let certificate = gates.mail.gate().and_then(|mail| mail.gate.reload().err());
        (others_run, done.mail, done.mail_refused) = reload_mail(reloader, gates).await;
        if let Some(error) = certificate {
            tracing::warn!(%error, "the mail gate's certificate cannot be read again; the old one stays");
            let kept = format!("keeps its old certificate: {error}");
            done.mail = Some(done.mail.take().map_or(kept.clone(), |said| format!("{said}; {kept}")));
        }
        let (settings, refused) = reloader.in_force();
        gates.show_settings(settings, &[refused, done.restart.clone()].concat());
    }
    match &outcome {
        Ok(ReloadOutcome { restart, mail, .. }) => {
            let mail = mail.as_deref().unwrap_or("unchanged");
            tracing::info!(restart = restart.join(" "), mail, "the configuration was read again");
        }
        Err(error) => {
            tracing::error!(error = format!("{error:#}"), "the configuration cannot be used; nothing has changed");
        }
    }
    if let Some(answer) = answer {
        let _ = answer.send(outcome);
    }
    others_run
}

/// Lets the mail gate adopt its new settings. Returns whether another mail gate runs now, what it did in words, and whether it refused
/// them.
async fn reload_mail(reloader: &mut Reloader, gates: &mut Orchestrator) -> (bool, Option<String>, bool) {
    let mut refused = None;
    let Some(config) = reloader.for_mail() else {
        // The file may have been changed back to what is in force.
        gates.states().refused_settings(GateName::Mail, refused);
        return (false, None, false);
    };
    let said = match gates.restart_mail(config).await {
        Ok(()) => {
            reloader.mail_follows();
            let failed = gates.complaints().find(|(gate, _)| *gate == GateName::Mail);
            failed.map_or_else(
                || "restarted with the new settings; its sockets stayed open".to_owned(),
                |(_, why)| format!("does not run, and will be started with the new settings: {why}"),
            )
        }
        Err(error) => {
            let runs = gates.mail.gate().is_some();
            let goes_on = if runs { "runs as before" } else { "does not run with the old ones either" };
            tracing::error!(error = format!("{error:#}"), "the mail gate refuses the new settings and {goes_on}");
            refused = Some(format!("{error:#}"));
            format!("refuses the new settings and {goes_on}: {error:#}")
        }
    };
    let is_refused = refused.is_some();
    gates.states().refused_settings(GateName::Mail, refused);
    (true, Some(said), is_refused)
}

/// Raises the limit of open files. Every connection is one, and the usual limit is meant for programs that have few.
fn raise_open_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let maximum = getrlimit(Resource::Nofile).maximum;
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
        tracing::warn!(%error, "the limit of open files cannot be raised");
    }
}

/// Locks the data folder. If another command holds it, this waits for a moment.
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

/// The number of threads for work that waits for the disk or hashes passwords. Each thread keeps a huge page or more for itself. The
/// hundreds that the runtime allows by default would keep memory that nobody needs after a rush.
const BLOCKING_THREADS_MAX: usize = 32;

const DEMO: &str = "demo";

/// Makes a user to try everything with, and returns the password, which is shown only this once. Unless it is `wanted`, this is done only
/// if there are no users yet.
async fn demo_user(users: &UserOperations, wanted: bool) -> anyhow::Result<Option<String>> {
    if !wanted && !users.list("").await?.users.is_empty() {
        return Ok(None);
    }
    let (password, actor) = (fresh_password(), Actor::new("weir"));
    if users.show(DEMO).await.is_ok() {
        users.set_password(DEMO, &password, &actor).await?;
        return Ok(Some(password));
    }
    let new = NewUser {
        name: DEMO.to_owned(),
        password: Some(password.clone()),
        addresses: vec![format!("{DEMO}@localhost")],
        contact: format!("{DEMO}-contact@localhost"),
        ..NewUser::default()
    };
    users.add(new, &actor).await?;
    Ok(Some(password))
}

/// What is printed at the start besides the state of the gates.
struct Greeting<'a> {
    path: &'a Path,
    /// The demo user's password.
    password: Option<&'a str>,
    /// The first administrator's password.
    admin: Option<&'a str>,
}

fn greet(out: &mut dyn Write, gates: &Orchestrator, said: &Greeting<'_>) -> anyhow::Result<()> {
    let version = env!("CARGO_PKG_VERSION");
    writeln!(out, "Weir {version} is up.\n")?;
    for (gate, why) in gates.complaints() {
        let why = why.replace('\n', "\n               ");
        writeln!(out, "  {:<12} DOES NOT RUN, and will be tried again: {why}", gate.to_string())?;
    }
    let mail = gates.mail.gate();
    // The whole status would count all held mail, which takes too long here.
    let vital = mail.map(|mail| mail.gate.operations().status.vital().context("the gate runs")).transpose()?;
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
    if let Some(console) = gates.console.gate() {
        writeln!(out, "  {:<12} {:<24} pages for administrators", "console", console.address.to_string())?;
    } else if !gates.console.is_wanted() {
        writeln!(out, "  {:<12} off (console.enabled)", "console")?;
    }
    if let Some(vital) = &vital {
        writeln!(out, "  {:<12} {}", "delivery", vital.delivery)?;
    }
    writeln!(out, "  {:<12} {} (records in {})", "data", said.path.display(), gates.database())?;
    if let Some(recovered) = mail.map(|mail| mail.gate.recovered()).filter(|all| all.going + all.decided + all.left > 0)
    {
        let (going, decided, left) = (recovered.going, recovered.decided, recovered.left);
        writeln!(
            out,
            "  {:<12} from the spool: {going} continue, {decided} decided now, {left} left there (see the log)",
            "mail"
        )?;
    }
    if let Some(password) = said.password {
        greet_demo(out, gates, password, listeners)?;
    } else if mail.is_some() {
        writeln!(out, "\nAdd users with `{} user add NAME`.", own_name())?;
    }
    greet_console(out, gates, said.admin)?;
    let verb = match (gates.mail.is_wanted(), gates.web.is_wanted()) {
        (true, _) => "held list",
        (false, true) => "web status",
        (false, false) => "lab list",
    };
    writeln!(
        out,
        "\n`{0} status`, `{0} {verb}` and all other commands work from another terminal. Stop with Ctrl-C.",
        own_name()
    )?;
    out.flush()?;
    Ok(())
}

/// The file with the first administrator's password, if it was not printed on a terminal.
const FIRST_PASSWORD: &str = "first-password";

/// Prints where the pages are, and how to log in.
fn greet_console(out: &mut dyn Write, gates: &Orchestrator, password: Option<&str>) -> io::Result<()> {
    let Some(Console { address, .. }) = gates.console.gate() else { return Ok(()) };
    writeln!(out, "\nTo see and decide everything, open http://{address}")?;
    let name = assembly::ADMIN;
    match password {
        Some(password) if gates.is_demo() || io::stdout().is_terminal() => {
            writeln!(out, "  log in as {name}; the password is shown only once: {password}")?;
        }
        // Otherwise the output goes into a journal or a log, where many people can read it for a long time.
        Some(password) => {
            let file = gates.folder().join(FIRST_PASSWORD);
            weir_tls::write_private(&file, &format!("{password}\n"))?;
            writeln!(out, "  log in as {name}; the password is in {}", file.display())?;
            writeln!(out, "  only its owner can read that file; set a password of your own, then remove the file")?;
        }
        None => writeln!(out, "  if its password is lost: {} console passwd {name}", own_name())?,
    }
    out.flush()
}

/// Prints what can be tried with the demo user.
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
        "  {} demo                       # four attacks, once with the gates on and once with gates that only observe",
        own_name()
    )?;
    writeln!(out, "  {} demo outbreak --server {address} --password {password}", own_name())?;
    if let Some(listener) = gates.web.gate().and_then(|web| web.status().listeners.into_iter().next()) {
        let tls = listener.about.starts_with("HTTPS");
        writeln!(out, "  curl {}://{}/", if tls { "-k https" } else { "http" }, listener.address)?;
    }
    Ok(())
}

/// Prints where the web gate listens, and for which backends.
fn greet_web(out: &mut dyn Write, web: Option<&weir_web::proxy::Gate>) -> io::Result<()> {
    let Some(status) = web.map(weir_web::proxy::Gate::status) else {
        return writeln!(out, "  {:<12} off: no backend in [web]", "web");
    };
    let names: Vec<&str> = status.backends.iter().map(|backend| backend.queue.backend.as_str()).collect();
    for listener in &status.listeners {
        writeln!(out, "  {:<12} {:<24} {}, for {}", "web", listener.address, listener.about, names.join(", "))?;
    }
    for listener in status.forward_auth.iter().flat_map(|door| &door.listeners) {
        writeln!(out, "  {:<12} {:<24} other proxies ask here whose turn it is", "forward-auth", listener)?;
    }
    for log in status.forward_auth.iter().flat_map(|door| &door.logs) {
        writeln!(out, "  {:<12} {:<24} and send their access log here", "", log)?;
    }
    Ok(())
}

/// The name under which the user started this program, for commands that we print.
fn own_name() -> String {
    std::env::args().next().unwrap_or_else(|| "weir".to_owned())
}

/// The signals that stop us, the one that makes us read the configuration again, and the one that restarts us.
struct Stop {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
    hangup: tokio::signal::unix::Signal,
    user2: tokio::signal::unix::Signal,
}

impl Stop {
    fn new() -> io::Result<Stop> {
        Ok(Stop {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
            user2: signal(SignalKind::user_defined2())?,
        })
    }

    /// Waits for a signal or a command. The sender of a command may wait for its outcome.
    async fn or_command(&mut self, wanted: &mut mpsc::Receiver<ProcessCommand>) -> NextEvent {
        tokio::select! {
            _ = self.terminate.recv() => NextEvent::Stop,
            _ = self.interrupt.recv() => NextEvent::Stop,
            _ = self.hangup.recv() => NextEvent::Command(ProcessCommand::Reload(None)),
            _ = self.user2.recv() => NextEvent::Command(ProcessCommand::Restart(None)),
            Some(command) = wanted.recv() => NextEvent::Command(command),
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
