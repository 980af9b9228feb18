//! Sets up the console from the section `[console]`: the listener, the first administrator, and the settings to show.

use crate::config::{Config, Loaded, Setting};
use anyhow::Context;
use axum::Router;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use tokio::task::JoinHandle;
use weir_console::current_router::CurrentRouter;
use weir_console::gates::Gates;
use weir_console::incidents::IncidentWatch;
use weir_console::listener::ConsoleListener;
use weir_console::site::{Configuration, CurrentSettings, SettingView, Site};
use weir_console::webhooks::Webhooks;
use weir_foundation::Actor;
use weir_foundation::console_accounts::{ConsoleAccounts, NewAccount, Role};
use weir_foundation::identity_provider::IdentityProvider;
use weir_foundation::secret::fresh_password;
use weir_foundation::supervision::{self, Supervisor, keep_running};
use weir_mail::inbound::RecipientCheck;

/// The name of the first account.
pub(crate) const ADMIN: &str = "admin";

/// The console, which serves its pages.
pub(crate) struct Console {
    /// The address at which it listens.
    pub(crate) address: SocketAddr,
    /// The pages that are served now. They are replaced when the gates change.
    current: CurrentRouter,
    /// The task that polls the gates for the pages.
    watch: Mutex<JoinHandle<()>>,
}

/// Starts the console for these gates.
pub(crate) fn console(
    config: &Config,
    configuration: Configuration,
    gates: Gates,
    api: Router,
) -> anyhow::Result<Console> {
    let address = config.console.listen.first().context("console.listen is empty")?;
    let listener =
        ConsoleListener::bind(*address).with_context(|| format!("cannot listen at {address} (console.listen)"))?;
    let address = listener.address();
    let site = Site::new(gates, configuration, address);
    let watch = Mutex::new(supervision::spawn("console watch", site.clone().watch()));
    let current = CurrentRouter::new(weir_console::router(site, api));
    supervision::spawn("console listener", listener.serve(current.service()));
    Ok(Console { address, current, watch })
}

/// The part of the configuration that the pages show.
pub(crate) fn configuration(config: &Config, loaded: &Loaded, demo: bool) -> anyhow::Result<Configuration> {
    Ok(Configuration {
        settings: CurrentSettings::new(setting_views(&loaded.settings, (config, demo), &[])),
        settings_file: loaded.file.as_ref().map(|file| file.display().to_string()),
        hosts: config.console.hosts.clone(),
        identity_provider: IdentityProvider::open(&config.identity_provider).context("sign_in.oidc")?,
    })
}

/// Starts what runs besides the gates: the webhook, and the watch for incidents if no console does that.
pub(crate) fn background(config: &Config, gates: &Gates) -> Vec<JoinHandle<()>> {
    let mut tasks = Vec::new();
    if let Some(webhook) = config.notices.webhook.clone() {
        let (foundation, lab) = (gates.administration.foundation.clone(), gates.lab.clone());
        let start = move || Webhooks::new(webhook.clone(), foundation.clone(), lab.clone()).run();
        tasks.push(keep_running("webhook", start));
    }
    if !config.console.enabled || config.console.listen.is_empty() {
        let gates = gates.clone();
        tasks.push(keep_running("incident watch", move || IncidentWatch::new(&gates).run()));
    }
    tasks
}

impl Console {
    /// Shows other gates from now on.
    pub(crate) fn show(&self, supervisor: &Supervisor, configuration: Configuration, gates: Gates, api: Router) {
        let site = Site::new(gates, configuration, self.address);
        let mut watch = self.watch.lock().unwrap_or_else(PoisonError::into_inner);
        watch.abort();
        *watch = supervisor.spawn("console watch", site.clone().watch());
        self.current.replace(weir_console::router(site, api));
    }
}

/// Settings for the pages. `config` is in force; in a demo it contains more than the file says. `restart` names the settings that were
/// changed in the file and take effect only after a restart.
pub(crate) fn setting_views(
    settings: &[Setting],
    (config, demo): (&Config, bool),
    restart: &[String],
) -> Vec<SettingView> {
    let in_demo = if demo { demo_values(config) } else { Vec::new() };
    let view = |setting: &Setting| {
        let name = format!("{}.{}", setting.section, setting.key);
        let by_demo = in_demo.iter().find(|(key, value)| **key == *name && *value != setting.value);
        SettingView {
            section: setting.section.to_owned(),
            key: setting.key.to_owned(),
            value: by_demo.map_or_else(|| setting.value.clone(), |(_, value)| value.clone()),
            default: setting.default.clone(),
            bounds: setting.bounds.clone(),
            about: setting.about.to_owned(),
            line: setting.line,
            by_demo: by_demo.is_some(),
            waits: restart.contains(&name),
        }
    };
    settings.iter().map(view).collect()
}

/// The settings that [`demo`](super::demo) changes, written as in a configuration file.
fn demo_values(config: &Config) -> Vec<(&'static str, String)> {
    let list = |values: Vec<String>| {
        let quoted: Vec<String> = values.iter().map(|value| format!("{value:?}")).collect();
        format!("[{}]", quoted.join(", "))
    };
    let mut values = vec![
        ("scan.enabled", config.scan.enabled.to_string()),
        ("lab.enabled", config.lab.enabled.to_string()),
        ("lab.vms", list(config.lab.vms.rules.iter().map(ToString::to_string).collect())),
        ("inbound.listen", list(config.inbound.listen.iter().map(ToString::to_string).collect())),
        ("inbound.domains", list(config.inbound.domains.iter().map(ToString::to_string).collect())),
    ];
    if config.inbound.recipients == RecipientCheck::Any {
        values.push(("inbound.recipients", "\"any\"".to_owned()));
    }
    values
}

/// Makes an administrator if there is no account yet. Returns the password, which is shown only this once. A demo gets a new password at
/// every start.
pub(crate) async fn first_admin(known: &ConsoleAccounts, demo: bool) -> anyhow::Result<Option<String>> {
    let accounts = known.list().await?;
    let (password, actor) = (fresh_password(), Actor::new("weir"));
    if demo && accounts.iter().any(|account| account.name == ADMIN) {
        known.set_password(ADMIN, &password, &actor).await?;
        return Ok(Some(password));
    }
    if !accounts.is_empty() {
        return Ok(None);
    }
    let new = NewAccount { name: ADMIN.to_owned(), role: Role::Admin, password: password.clone() };
    known.add(new, &actor).await?;
    Ok(Some(password))
}
