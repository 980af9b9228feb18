//! Starts the gates separately, and restarts a gate that fails.
//!
//! A gate that is off opens nothing. One that cannot start, or whose task is gone, is stopped in an orderly way, and started again after a
//! pause ([`BackOff`]) while the others serve. The lab is started before the mail gate, because mail may wait for its verdict; if the lab
//! comes up later, the mail gate uses it from then on ([`CurrentLab`]). The console is started last, and is told whenever the set of
//! running gates changes.
//!
//! The first gate that needs the records opens them. While their database cannot be reached, these gates are tried again like any gate that
//! fails. The web gate needs no records and goes on serving.
//!
//! The sockets of a gate stay open while it is restarted ([`sockets`]), so that clients wait for a moment instead of being refused. If it
//! cannot start, clients are refused until it can.

use crate::assembly::{self, Certificates, Console, CurrentLab, web_gate};
use crate::config::{Config, Loaded, Setting};
use anyhow::Context;
use axum::Router;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::Instant;
use weir_console::api::router;
use weir_console::gates::Gates;
use weir_console::session::Sessions;
use weir_console::site::Configuration;
use weir_foundation::Foundation;
use weir_foundation::administration::Administration;
use weir_foundation::backup::Backup;
use weir_foundation::clock::wall_clock;
use weir_foundation::passwords::Passwords;
use weir_foundation::sockets;
use weir_foundation::supervision::{
    self, BackOff, GateName, GateState, GateStates, OpenError, Supervisor, TaskFailure,
};
use weir_lab::node::Node;
use weir_lab::tasks::Task;
use weir_mail::gate::{DeliverySettings, Gate, Settings as MailSettings, StageSettings, operations_without_mail};
use weir_store::folder::DataFolder;
use weir_web::proxy;

/// The mail gate, and a short description of its scan.
pub(crate) struct Mail {
    pub(crate) gate: Gate,
    pub(crate) scanned: Option<String>,
}

/// All gates of this process.
pub(crate) struct Orchestrator {
    config: Config,
    /// The file that the configuration was read from; none if there are only defaults.
    config_file: Option<PathBuf>,
    demo: bool,
    folder: Arc<DataFolder>,
    /// Everything that works on the records alone. It is made when a gate first needs the records, and stays the same whichever gates are
    /// restarted: it also knows who has logged in from a directory or by an identity provider.
    administration: Option<Administration>,
    passwords: Passwords,
    certificates: Certificates,
    watch: Watch,
    pub(crate) lab: Slot<(Node, String)>,
    pub(crate) web: Slot<Arc<proxy::Gate>>,
    pub(crate) mail: Slot<Mail>,
    pub(crate) console: Slot<Console>,
    configuration: Configuration,
    /// The sessions of people who are logged in at the console.
    sessions: Arc<Sessions>,
    current_lab: CurrentLab,
    failures: UnboundedReceiver<TaskFailure>,
}

/// One gate: whether it should run, whether it runs, and when it is tried again.
pub(crate) struct Slot<T> {
    name: GateName,
    wanted: bool,
    running: Option<(T, Supervisor)>,
    life: u64,
    back_off: BackOff,
    next_try: Option<Instant>,
}

/// What is needed to watch a gate.
#[derive(Clone)]
struct Watch {
    states: GateStates,
    failures: UnboundedSender<TaskFailure>,
}

/// Something that must be handled for a gate.
pub(crate) enum GateEvent {
    /// One of its tasks has ended.
    Failed(TaskFailure),
    /// Its pause after a failure is over.
    Due(GateName),
}

impl<T> Slot<T> {
    fn new(name: GateName, wanted: bool) -> Slot<T> {
        Slot { name, wanted, running: None, life: 0, back_off: BackOff::default(), next_try: None }
    }

    /// Whether the configuration switches it on.
    pub(crate) fn is_wanted(&self) -> bool {
        self.wanted
    }

    /// The gate, if it runs.
    pub(crate) fn gate(&self) -> Option<&T> {
        self.running.as_ref().map(|(gate, _)| gate)
    }

    /// Starts the gate. If that fails, it is tried again after a pause.
    async fn start(&mut self, watch: &Watch, opening: impl Future<Output = anyhow::Result<T>>) {
        self.life += 1;
        self.next_try = None;
        let supervisor = Supervisor::new(self.name, self.life, watch.failures.clone());
        watch.states.starting(self.name, wall_clock());
        match supervisor.open(opening).await {
            Ok(gate) => {
                self.running = Some((gate, supervisor));
                watch.states.up(self.name, wall_clock());
            }
            Err(error) => {
                supervisor.abort();
                sockets::keep(self.name);
                sockets::close(self.name);
                let why = match error {
                    OpenError::Failed(error) => format!("{error:#}"),
                    OpenError::Panicked(why) => why,
                };
                self.rest(watch, &why);
            }
        }
    }

    fn rest(&mut self, watch: &Watch, why: &str) {
        let rest = self.back_off.failed(wall_clock());
        self.next_try = Some(Instant::now() + rest);
        watch.states.failed(self.name, why, wall_clock(), rest);
    }

    /// Takes the gate out to stop it. From now on, the end of one of its tasks is not a failure.
    fn take(&mut self) -> Option<(T, Supervisor)> {
        let taken = self.running.take();
        taken.iter().for_each(|(_, supervisor)| supervisor.stop());
        taken
    }
}

impl Orchestrator {
    /// Prepares the gates; nothing is started yet.
    pub(crate) fn new(
        loaded: &Loaded,
        config: Config,
        demo: bool,
        folder: DataFolder,
        passwords: Passwords,
    ) -> anyhow::Result<Self> {
        let certificates = Certificates::open(&config, folder.path())?;
        let (sender, failures) = unbounded_channel();
        let web = config.web.enabled && (demo || !config.web.backends.is_empty());
        let mail = assembly::mail_is_wanted(&config, loaded, demo);
        Ok(Orchestrator {
            lab: Slot::new(GateName::Lab, config.lab.enabled),
            web: Slot::new(GateName::Web, web),
            mail: Slot::new(GateName::Mail, mail),
            console: Slot::new(GateName::Console, config.console.enabled && !config.console.listen.is_empty()),
            configuration: assembly::configuration(&config, loaded, demo)?,
            sessions: Arc::default(),
            config,
            config_file: loaded.file.as_deref().and_then(|file| std::path::absolute(file).ok()),
            demo,
            folder: Arc::new(folder),
            administration: None,
            passwords,
            certificates,
            watch: Watch { states: GateStates::default(), failures: sender },
            current_lab: CurrentLab::default(),
            failures,
        })
    }

    /// The kind of database, if the records are open.
    pub(crate) fn database(&self) -> &'static str {
        self.administration.as_ref().map_or("a database that is not open", |open| open.foundation.database())
    }

    /// Whether this is a demo.
    pub(crate) fn is_demo(&self) -> bool {
        self.demo
    }

    /// The data folder.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Opens the records, unless they are open already.
    async fn open_records(&mut self) -> anyhow::Result<Foundation> {
        if let Some(administration) = &self.administration {
            return Ok(administration.foundation.clone());
        }
        let hostname = assembly::mail_gate(&self.config).hostname;
        let url = self.config.store.records.as_deref();
        let foundation = Foundation::lay(Arc::clone(&self.folder), url, &hostname).await?;
        let administration = Administration::new(&foundation, self.passwords.clone(), None, &self.config.store);
        administration.audit.report_interrupted().await;
        self.certificates.records_opened(&foundation.records);
        self.administration = Some(administration);
        Ok(foundation)
    }

    fn mail_settings(&self) -> MailSettings {
        MailSettings { named: Arc::clone(&self.certificates.named), ..assembly::mail_gate(&self.config) }
    }

    /// The certificates that all gates use.
    pub(crate) fn certificates(&self) -> &Certificates {
        &self.certificates
    }

    /// The state of each gate.
    pub(crate) fn states(&self) -> &GateStates {
        &self.watch.states
    }

    /// Starts every gate that is switched on. If there are some but none of them starts, that is an error.
    pub(crate) async fn start_all(&mut self) -> anyhow::Result<()> {
        for gate in [GateName::Lab, GateName::Web, GateName::Mail] {
            self.start(gate).await;
        }
        let wanted = [self.lab.wanted, self.web.wanted, self.mail.wanted].contains(&true);
        let runs = self.lab.gate().is_some() || self.web.gate().is_some() || self.mail.gate().is_some();
        if wanted && !runs {
            anyhow::bail!("{}", self.complaints().map(|(_, why)| why).collect::<Vec<_>>().join("\n"));
        }
        self.complaints().for_each(|(gate, why)| log_failed_start(gate, &why));
        Ok(())
    }

    /// Starts the console for the gates that run. If it cannot start, it is tried again like a gate.
    pub(crate) async fn start_console(&mut self) {
        self.start(GateName::Console).await;
        if let GateState::Failed { why, .. } = self.states().state(GateName::Console) {
            log_failed_start(GateName::Console, &why);
        }
    }

    /// Lets the pages show these settings. `restart` names those that need a restart.
    pub(crate) fn show_settings(&self, settings: &[Setting], restart: &[String]) {
        let views = assembly::setting_views(settings, (&self.config, self.demo), restart);
        self.configuration.settings.replace(views);
    }

    /// Lets the pages show the gates that run now.
    pub(crate) fn show(&self, api: Router) {
        if let (Some((console, supervisor)), Some(gates)) = (&self.console.running, self.gates()) {
            console.show(supervisor, self.configuration.clone(), gates, api);
        }
    }

    /// The gates that should run but do not, and why.
    pub(crate) fn complaints(&self) -> impl Iterator<Item = (GateName, String)> {
        GateName::ALL.into_iter().filter_map(|gate| match self.states().state(gate) {
            GateState::Failed { why, .. } => Some((gate, why)),
            _ => None,
        })
    }

    /// Waits for the next thing to do about a gate. It may be dropped while it waits, and asked again.
    pub(crate) async fn next(&mut self) -> GateEvent {
        let due = [
            (self.lab.next_try, GateName::Lab),
            (self.web.next_try, GateName::Web),
            (self.mail.next_try, GateName::Mail),
            (self.console.next_try, GateName::Console),
        ];
        let first = due.into_iter().filter_map(|(at, gate)| Some((at?, gate))).min_by_key(|(at, _)| *at);
        let rested = async {
            match first {
                Some((at, gate)) => {
                    tokio::time::sleep_until(at).await;
                    gate
                }
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            Some(failure) = self.failures.recv() => GateEvent::Failed(failure),
            gate = rested => GateEvent::Due(gate),
        }
    }

    /// Does what the event asks for. Must not be dropped half-way. Returns whether other gates run now than before.
    pub(crate) async fn handle(&mut self, event: GateEvent) -> bool {
        match event {
            GateEvent::Failed(failure) => self.failed(&failure).await,
            GateEvent::Due(gate) => {
                self.start(gate).await;
                match self.states().state(gate) {
                    GateState::Failed { why, .. } => {
                        log_failed_start(gate, &why);
                        false
                    }
                    _ => {
                        tracing::warn!(%gate, "a gate runs that had failed");
                        true
                    }
                }
            }
        }
    }

    async fn failed(&mut self, failure: &TaskFailure) -> bool {
        let (life, runs) = match failure.gate {
            GateName::Mail => (self.mail.life, self.mail.running.is_some()),
            GateName::Web => (self.web.life, self.web.running.is_some()),
            GateName::Lab => (self.lab.life, self.lab.running.is_some()),
            GateName::Console => (self.console.life, self.console.running.is_some()),
        };
        if life != failure.life || !runs {
            return false;
        }
        let watch = self.watch.clone();
        match failure.gate {
            GateName::Mail => self.mail.rest(&watch, &failure.why),
            GateName::Web => self.web.rest(&watch, &failure.why),
            GateName::Lab => self.lab.rest(&watch, &failure.why),
            GateName::Console => self.console.rest(&watch, &failure.why),
        }
        self.stop(failure.gate).await;
        true
    }

    async fn start(&mut self, gate: GateName) {
        let watch = self.watch.clone();
        match gate {
            GateName::Lab if self.lab.wanted => {
                let records = self.open_records().await;
                self.lab.start(&watch, open_lab(&self.config, records)).await;
                self.current_lab.set(self.lab.gate().map(|(node, _)| node.clone()));
            }
            GateName::Web if self.web.wanted => {
                self.web.start(&watch, open_web(&self.config, &self.folder, &self.certificates, self.demo)).await;
            }
            GateName::Mail if self.mail.wanted => {
                let records = self.open_records().await;
                let settings = self.mail_settings();
                let opening = open_mail(&self.config, settings, records, &self.passwords, &self.current_lab);
                self.mail.start(&watch, opening).await;
            }
            GateName::Console if self.console.wanted => {
                let gates = self.open_records().await.map(|_| self.gates());
                let opening = open_console(&self.config, self.configuration.clone(), gates);
                self.console.start(&watch, opening).await;
            }
            _ => {}
        }
    }

    /// Stops a gate: first its listeners, then it finishes what is under way.
    async fn stop(&mut self, gate: GateName) {
        match gate {
            GateName::Lab => {
                if let Some(((node, _), supervisor)) = self.lab.take() {
                    self.current_lab.set(None);
                    node.resign().await;
                    supervisor.abort();
                }
            }
            GateName::Web => {
                if let Some((web, supervisor)) = self.web.take() {
                    let _ = tokio::task::spawn_blocking(move || web.shutdown()).await;
                    supervisor.abort();
                }
            }
            GateName::Mail => {
                if let Some((mail, supervisor)) = self.mail.take() {
                    mail.gate.shutdown().await;
                    supervisor.abort();
                }
            }
            GateName::Console => {
                if let Some((_, supervisor)) = self.console.take() {
                    supervisor.abort();
                }
            }
        }
        sockets::keep(gate);
    }

    /// Restarts the mail gate with these settings. Its sockets stay open: messages that are coming in are finished, and new clients wait.
    /// If it does not start with the new settings, it is started with the old ones. A gate that has failed and waits for its next start is
    /// left waiting, and gets these settings then: so look whether it runs, whatever this returns.
    pub(crate) async fn restart_mail(&mut self, config: Config) -> anyhow::Result<()> {
        // Problems that can be seen beforehand are refused before anything stops.
        assembly::delivery(&config, &self.folder)?;
        let before = std::mem::replace(&mut self.config, config);
        if self.mail.gate().is_none() {
            return Ok(());
        }
        self.stop(GateName::Mail).await;
        self.start(GateName::Mail).await;
        let GateState::Failed { why, .. } = self.states().state(GateName::Mail) else { return Ok(()) };
        self.config = before;
        self.start(GateName::Mail).await;
        anyhow::bail!("it does not start with them: {why}")
    }

    /// Stops every gate, and closes the records.
    pub(crate) async fn stop_all(mut self) {
        for gate in [GateName::Console, GateName::Lab, GateName::Web, GateName::Mail] {
            self.stop(gate).await;
        }
        if let Some(administration) = self.administration {
            administration.foundation.records.close().await;
        }
    }

    /// Everything that the API and the pages work with; none without records.
    pub(crate) fn gates(&self) -> Option<Gates> {
        let administration = self.administration.as_ref()?;
        let foundation = &administration.foundation;
        let mail = match self.mail.gate() {
            Some(mail) => mail.gate.operations().clone(),
            None => operations_without_mail(foundation, self.passwords.clone(), &assembly::mail_gate(&self.config)),
        };
        let of_mail = self.mail.gate().map(|mail| mail.gate.operations().backup.clone());
        let backup = Backup::new(foundation, of_mail, self.config.store.backup_passphrase_file.clone());
        let backup = backup.with_configuration(self.config_file.clone());
        let administration = Administration { backup, ..administration.clone() };
        Some(Gates {
            administration,
            mail,
            web: self.web.gate().cloned(),
            lab: self.lab.gate().map(|(node, _)| node.clone()),
            states: self.states().clone(),
            sessions: Arc::clone(&self.sessions),
            certificates: Arc::clone(&self.certificates.named),
            demo: self.demo,
        })
    }
}

fn log_failed_start(gate: GateName, why: &str) {
    tracing::error!(%gate, why, "a gate cannot start; it is tried again");
}

async fn open_lab(config: &Config, foundation: anyhow::Result<Foundation>) -> anyhow::Result<(Node, String)> {
    let lab = assembly::lab(config, &foundation?).await?.ok_or_else(|| anyhow::anyhow!("the lab is off"))?;
    for Task { name, future } in lab.tasks {
        supervision::spawn(name, future);
    }
    Ok((lab.node, lab.about))
}

async fn open_web(
    config: &Config,
    folder: &DataFolder,
    certificates: &Certificates,
    demo: bool,
) -> anyhow::Result<Arc<proxy::Gate>> {
    let web = web_gate(config, folder, &certificates.named, demo).await?;
    web.ok_or_else(|| anyhow::anyhow!("the web gate is off"))
}

async fn open_console(
    config: &Config,
    configuration: Configuration,
    gates: anyhow::Result<Option<Gates>>,
) -> anyhow::Result<Console> {
    let gates = gates?.context("the records are not open")?;
    let api = router(&gates);
    assembly::console(config, configuration, gates, api)
}

async fn open_mail(
    config: &Config,
    mut settings: MailSettings,
    foundation: anyhow::Result<Foundation>,
    passwords: &Passwords,
    lab: &CurrentLab,
) -> anyhow::Result<Mail> {
    let foundation = &foundation?;
    let keys = foundation.folder.keys().join("dkim");
    let (delivery, about) = assembly::delivery(config, &foundation.folder)?;
    settings.inbound = assembly::inbound(config, &delivery)?;
    let authentication = settings.inbound.as_ref().and_then(|inbound| inbound.evaluation.clone());
    let scan = assembly::Scan::new(config, foundation).await?;
    let scanned = scan.about();
    let gate = Gate::open(foundation.clone(), passwords.clone(), settings, |spool| StageSettings {
        authentication,
        scan: scan.setup(spool, lab),
        delivery: DeliverySettings { settings: delivery, keys, about },
    });
    Ok(Mail { gate: gate.await?, scanned })
}
