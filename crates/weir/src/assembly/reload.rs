//! Reads the configuration again while everything runs.
//!
//! The web gate adopts its new limits, routes and servers at once ([`Gate::reload`]). If something of the throttle, the notices or delivery
//! has changed, the mail gate is restarted; its sockets stay open all the time. Everything else stays as it was at the start. Changes there
//! are reported by name, so that nobody believes that they are in force. If the configuration has a problem, no setting changes at all.

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

/// Settings of `[web]` that need a restart; all others of this section, and all of `[web.limits]`, do not.
const WEB_AT_START: [&str; 6] = ["enabled", "listen", "listen_tls", "threads", "access_log", "log_format"];
/// Settings of `[web.identity]` that need a restart, because they decide how subnets are named in queues, in the history and by other
/// front-ends.
const IDENTITY_AT_START: [&str; 4] = ["secret_file", "ipv4_prefix", "ipv6_prefix", "groups"];

/// Sections whose changes the mail gate adopts by a restart of its own.
const MAIL_FOLLOWS: [&str; 3] = ["throttle", "notices", "delivery"];

/// Reads the configuration again and remembers what is in force.
pub(crate) struct Reloader {
    place: FolderArgs,
    data: PathBuf,
    web: Option<Arc<Gate>>,
    /// The configuration in force.
    config: Config,
    settings: Vec<Setting>,
    /// The settings that the mail gate has not adopted yet.
    for_mail: Option<(Config, Vec<Setting>)>,
}

/// The outcome of a reload.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct ReloadOutcome {
    /// What the web gate did, if it runs.
    pub(crate) web: Option<Reloaded>,
    /// What the mail gate did, in words; missing if none of its settings has changed.
    #[serde(default)]
    pub(crate) mail: Option<String>,
    /// Whether the mail gate refused the new settings and keeps the old ones.
    #[serde(default)]
    pub(crate) mail_refused: bool,
    /// The settings that were changed and need a restart.
    pub(crate) restart: Vec<String>,
}

impl Reloader {
    /// `config` is the configuration in force, which in a demo contains more than the file that was loaded.
    pub(crate) fn new(
        place: FolderArgs,
        data: PathBuf,
        web: Option<Arc<Gate>>,
        (config, loaded): (&Config, &Loaded),
    ) -> Reloader {
        Reloader { place, data, web, config: config.clone(), settings: loaded.settings.clone(), for_mail: None }
    }

    /// Notes that another web gate runs now, or none.
    pub(crate) fn follow_web(&mut self, web: Option<Arc<Gate>>) {
        self.web = web;
    }

    /// Reads the configuration and puts in force what can change while everything runs. The settings of the mail gate, if there is one, are
    /// left to [`Reloader::for_mail`].
    pub(crate) fn reload(&mut self, has_mail: bool) -> anyhow::Result<ReloadOutcome> {
        // The log is reopened in any case, because it may have been renamed.
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

    /// The configuration with which the mail gate must be restarted; none if its settings have not changed.
    pub(crate) fn for_mail(&self) -> Option<Config> {
        self.for_mail.as_ref().map(|(config, _)| config.clone())
    }

    /// The settings in force, and the names of those that the mail gate has not adopted.
    pub(crate) fn in_force(&self) -> (&[Setting], Vec<String>) {
        let refused = self.for_mail.iter().flat_map(|(_, settings)| settings).filter(|new| self.differs(new));
        (&self.settings, refused.map(|new| format!("{}.{}", new.section, new.key)).collect())
    }

    /// Notes that the mail gate has adopted its new settings.
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

    /// Remembers which settings are in force now. Returns the names of those that need a restart.
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

/// A command to the running process about itself, from the control socket or by a signal. The sender of the command may wait for the
/// outcome.
pub(crate) enum ProcessCommand {
    /// Read the configuration again.
    Reload(Option<ReloadAnswer>),
    /// Restart, and keep the sockets open.
    Restart(Option<oneshot::Sender<anyhow::Result<()>>>),
}

/// Takes the outcome of a reload.
pub(crate) type ReloadAnswer = oneshot::Sender<anyhow::Result<ReloadOutcome>>;

/// Reads the configuration again. This works only on the control socket, so it is not in the API's document.
pub(crate) const RELOAD: Operation<(), ReloadOutcome> = administer("/reload", "Reads the configuration again");
/// Starts the installed program in place of this one. This works only on the control socket, too.
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

/// The new settings, except those that need a restart.
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

/// The same for `[web.identity]`.
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
    // The certificate is read in any case, so that a bad one is noticed before anything has changed.
    let named = before.named.clone().unwrap_or_default();
    let fresh = certificate(config, data, &named).context("the web gate's certificate")?;
    let same = before.tls.as_ref().zip(fresh.as_ref()).is_some_and(|(old, new)| old.has_files_of(new));
    let tls = if same { before.tls.clone() } else { fresh };
    let backends: Vec<_> = config.web.backends.iter().map(|rule| backend(config, rule)).collect();
    // The small backend of the demo is in no configuration.
    let own = before.backends.first().filter(|first| first.admission.name == super::web::BUILTIN);
    let backends = match (backends.is_empty(), own) {
        (true, Some(own)) => vec![own.clone()],
        (true, None) => anyhow::bail!(
            "[web] has no backend any more\n  hint: name one, or stop the web gate with web.enabled = false and a restart"
        ),
        (false, _) => backends,
    };
    let identities = identities(config, data)?;
    let secure = Secure { tls: tls.clone(), named: Some(named) };
    let reloaded = gate.reload(settings(config, secure, identities, backends, data)?)?;
    if same && let Some(tls) = tls {
        // The files were read just now. This keeps the sessions that clients can resume.
        tls.reload().context("the web gate's certificate")?;
    }
    Ok(reloaded)
}
