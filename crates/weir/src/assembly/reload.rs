//! Reading the configuration again while everything runs.
//!
//! What the web gate may use and where it sends requests follows at once ([`Gate::reload`]). If something of the throttle, the notices or delivery is
//! different, the mail gate is started anew, with its sockets open all the time. Everything else stays as it was read at the start, and
//! what differs there is named, so that nobody believes that it is in force. A configuration with a problem changes nothing at all.

use super::web::{Secure, backend, certificate, identities, settings};
use crate::config::{Config, Loaded, Setting};
use crate::folder_args::FolderArgs;
use anyhow::Context;
use axum::Json;
use axum::http::StatusCode;
use axum::routing::post;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::sync::{mpsc, oneshot};
use weir_console::api::{Operation, PREFIX, administer};
use weir_web::identity;
use weir_web::proxy::{Gate, Reloaded, WebSettings};

/// Keys of `[web]` and `[web.identity]` that need a restart; all others of them, and all of `[web.limits]`, do not.
const WEB_AT_START: [&str; 6] = ["enabled", "listen", "listen_tls", "threads", "access_log", "log_format"];
/// Queues, the history and other front-ends know subnets by what comes of these.
const IDENTITY_AT_START: [&str; 4] = ["secret_file", "ipv4_prefix", "ipv6_prefix", "groups"];

/// Sections that the mail gate follows by starting anew.
const MAIL_FOLLOWS: [&str; 3] = ["throttle", "notices", "delivery"];

/// What reads the configuration again.
pub(crate) struct Reloader {
    place: FolderArgs,
    data: PathBuf,
    web: Option<Arc<Gate>>,
    /// The configuration in force.
    config: Config,
    settings: Vec<Setting>,
    /// What the mail gate has not followed yet.
    for_mail: Option<(Config, Vec<Setting>)>,
}

/// What came of it.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct ReloadOutcome {
    /// Of the web gate, if it runs.
    pub(crate) web: Option<Reloaded>,
    /// What the mail gate did, in words; nothing if nothing of its settings has changed.
    #[serde(default)]
    pub(crate) mail: Option<String>,
    /// Whether the mail gate refused the new settings, and goes by the old ones.
    #[serde(default)]
    pub(crate) mail_refused: bool,
    /// Settings that were changed and need a restart.
    pub(crate) restart: Vec<String>,
}

impl Reloader {
    /// `config` is the one in force, which may be more than what was loaded.
    pub(crate) fn new(
        place: FolderArgs,
        data: PathBuf,
        web: Option<Arc<Gate>>,
        (config, loaded): (&Config, &Loaded),
    ) -> Reloader {
        Reloader { place, data, web, config: config.clone(), settings: loaded.settings.clone(), for_mail: None }
    }

    /// Another web gate runs now, or none.
    pub(crate) fn follow_web(&mut self, web: Option<Arc<Gate>>) {
        self.web = web;
    }

    /// Reads the configuration and goes by it, as far as that is possible while everything runs. The mail gate, if there is one, is
    /// left to [`Reloader::for_mail`].
    pub(crate) fn reload(&mut self, has_mail: bool) -> anyhow::Result<ReloadOutcome> {
        // Whatever becomes of the rest: it may have been renamed.
        if let Some(gate) = &self.web {
            gate.reopen_log();
        }
        let Loaded { config, settings, .. } = self.place.load()?;
        let of_mail = Config {
            throttle: config.throttle,
            notices: config.notices,
            delivery: config.delivery,
            ..self.config.clone()
        };
        let config = Config {
            web: following(&self.config.web, config.web),
            web_limits: config.web_limits,
            web_identity: knowing(&self.config.web_identity, config.web_identity),
            ..self.config.clone()
        };
        let web = self.web.as_ref().map(|gate| reload_web(gate, &config, &self.data)).transpose()?;
        let Config { web: web_settings, web_limits, web_identity, .. } = config.clone();
        self.config = config;
        let (mail, others) = settings.into_iter().partition(|setting: &Setting| has_mail && is_mails(setting));
        let restart = self.follow(others);
        let mail: Vec<Setting> = mail;
        let of_mail = Config { web: web_settings, web_limits, web_identity, ..of_mail };
        self.for_mail = mail.iter().any(|new| self.differs(new)).then_some((of_mail, mail));
        Ok(ReloadOutcome { web, mail: None, mail_refused: false, restart })
    }

    /// The configuration that the mail gate is to be started anew with, if something of it has changed.
    pub(crate) fn for_mail(&self) -> Option<Config> {
        self.for_mail.as_ref().map(|(config, _)| config.clone())
    }

    /// The settings in force, and the names of those that the mail gate has refused to follow.
    pub(crate) fn in_force(&self) -> (&[Setting], Vec<String>) {
        let refused = self.for_mail.iter().flat_map(|(_, settings)| settings).filter(|new| self.differs(new));
        (&self.settings, refused.map(|new| format!("{}.{}", new.section, new.key)).collect())
    }

    /// The mail gate goes by it now.
    pub(crate) fn mail_follows(&mut self) {
        if let Some((config, settings)) = self.for_mail.take() {
            self.config = config;
            for new in settings {
                let known = self.settings.iter_mut().find(|known| (known.section, known.key) == (new.section, new.key));
                if let Some(known) = known {
                    *known = new;
                }
            }
        }
    }

    fn differs(&self, new: &Setting) -> bool {
        let known = self.settings.iter().find(|known| (known.section, known.key) == (new.section, new.key));
        known.is_some_and(|known| known.value != new.value)
    }

    /// Keeps in mind what is in force now; the keys that are not, though the file says so.
    fn follow(&mut self, settings: Vec<Setting>) -> Vec<String> {
        let mut restart = Vec::new();
        for new in settings {
            let known = self.settings.iter_mut().find(|known| (known.section, known.key) == (new.section, new.key));
            match known {
                Some(known) if is_followed(&new) && self.web.is_some() => *known = new,
                Some(known) if known.value != new.value => restart.push(format!("{}.{}", new.section, new.key)),
                _ => {}
            }
        }
        restart
    }
}

/// What the running process is asked to do about itself, on the control socket or by a signal. Whoever asked may want to hear what came of it.
pub(crate) enum ProcessCommand {
    /// To read its configuration again.
    Reload(Option<ReloadAnswer>),
    /// To start anew, with the sockets that it has.
    Restart(Option<oneshot::Sender<anyhow::Result<()>>>),
}

/// Where the outcome of a reload goes.
pub(crate) type ReloadAnswer = oneshot::Sender<anyhow::Result<ReloadOutcome>>;

/// Reads the configuration again. It is asked for on the control socket alone, and so is not in the API's document.
pub(crate) const RELOAD: Operation<(), ReloadOutcome> = administer("/reload", "Reads the configuration again");
/// Starts the installed program anew; on the control socket alone, too.
pub(crate) const RESTART: Operation<(), ()> = administer("/restart", "Starts the installed program anew");

/// Carries out [`RELOAD`] and [`RESTART`].
pub(crate) fn own_routes(commands: mpsc::Sender<ProcessCommand>) -> axum::Router {
    let restarts = commands.clone();
    let reload = move || ask(commands.clone(), |answer| ProcessCommand::Reload(Some(answer)));
    let restart = move || ask(restarts.clone(), |answer| ProcessCommand::Restart(Some(answer)));
    axum::Router::new()
        .route(&format!("{PREFIX}{}", RELOAD.path()), post(reload))
        .route(&format!("{PREFIX}{}", RESTART.path()), post(restart))
}

async fn ask<T: Serialize>(
    commands: mpsc::Sender<ProcessCommand>,
    command: impl FnOnce(oneshot::Sender<anyhow::Result<T>>) -> ProcessCommand,
) -> (StatusCode, Json<serde_json::Value>) {
    let (answer, outcome) = oneshot::channel();
    let gone = || (StatusCode::SERVICE_UNAVAILABLE, Json(json!({ "detail": "Weir is stopping" })));
    if commands.send(command(answer)).await.is_err() {
        return gone();
    }
    match outcome.await {
        Ok(Ok(outcome)) => (StatusCode::OK, Json(json!(outcome))),
        Ok(Err(error)) => {
            let detail = format!("{error:#}\nnothing has changed");
            (StatusCode::UNPROCESSABLE_ENTITY, Json(json!({ "detail": detail })))
        }
        Err(_) => gone(),
    }
}

fn is_mails(setting: &Setting) -> bool {
    let first = setting.section.split('.').next().unwrap_or_default();
    MAIL_FOLLOWS.contains(&first)
}

fn is_followed(setting: &Setting) -> bool {
    match setting.section {
        "web" => !WEB_AT_START.contains(&setting.key),
        "web.identity" => !IDENTITY_AT_START.contains(&setting.key),
        section => section == "web.limits",
    }
}

/// The new settings, but for those that need a restart.
fn following(before: &WebSettings, new: WebSettings) -> WebSettings {
    WebSettings {
        enabled: before.enabled,
        listen: before.listen.clone(),
        listen_tls: before.listen_tls.clone(),
        threads: before.threads,
        log: before.log.clone(),
        ..new
    }
}

/// The same of `[web.identity]`.
fn knowing(before: &identity::Settings, new: identity::Settings) -> identity::Settings {
    identity::Settings {
        secret_file: before.secret_file.clone(),
        ipv4_prefix: before.ipv4_prefix,
        ipv6_prefix: before.ipv6_prefix,
        groups: before.groups.clone(),
        ..new
    }
}

fn reload_web(gate: &Gate, config: &Config, data: &std::path::Path) -> anyhow::Result<Reloaded> {
    let before = gate.settings();
    // Read in any case, so that one that cannot be used is noticed before anything has changed.
    let named = before.named.clone().unwrap_or_default();
    let fresh = certificate(config, data, &named).context("the web gate's certificate")?;
    let same = before.tls.as_ref().zip(fresh.as_ref()).is_some_and(|(old, new)| old.has_files_of(new));
    let tls = if same { before.tls.clone() } else { fresh };
    let backends: Vec<_> = config.web.backends.iter().map(|rule| backend(config, rule)).collect();
    // The small one of the demo is in no configuration.
    let own = before.backends.first().filter(|first| first.admission.name == super::web::BUILTIN);
    let backends = match (backends.is_empty(), own) {
        (true, Some(own)) => vec![own.clone()],
        (true, None) => anyhow::bail!(
            "[web] has no backend any more\n  hint: name one, or stop the web gate with web.enabled = false and a restart"
        ),
        (false, _) => backends,
    };
    let identities = identities(&config.web_identity, data)?;
    let secure = Secure { tls: tls.clone(), named: Some(named) };
    let reloaded = gate.reload(settings(config, secure, identities, backends, data)?)?;
    if same && let Some(tls) = tls {
        // It was read a moment ago. Sessions that can be resumed stay so.
        tls.reload().context("the web gate's certificate")?;
    }
    Ok(reloaded)
}
