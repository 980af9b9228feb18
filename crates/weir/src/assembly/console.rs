//! From `[console]` to the pages: the listener, the first administrator, and the settings to show.

use crate::config::{Config, Loaded};
use axum::Router;
use std::net::SocketAddr;
use tokio::task::JoinHandle;
use weir_console::current_router::CurrentRouter;
use weir_console::listener::ConsoleListener;
use weir_console::site::{Configuration, Gates, SettingView, Site};
use weir_console::webhooks::Webhooks;
use weir_foundation::Actor;
use weir_foundation::console_accounts::{ConsoleAccounts, NewAccount, Role};
use weir_foundation::secret::fresh_password;

/// The name of the first account.
pub(crate) const ADMIN: &str = "admin";

/// What became of the console.
pub(crate) enum Console {
    /// Pages are served.
    Serves {
        /// Where.
        address: SocketAddr,
        /// What is served now.
        current: CurrentRouter,
        /// By these tasks: one looks at the gates, one takes requests.
        tasks: [JoinHandle<()>; 2],
    },
    /// It is switched off.
    Off,
    /// It cannot listen, which keeps nothing else from running.
    Cannot(String),
}

/// Serves the pages, if they are wanted. A port that is taken does not keep mail from flowing.
pub(crate) async fn console(config: &Config, loaded: &Loaded, gates: Gates, api: Router) -> Console {
    let wanted = config.console.listen.first().filter(|_| config.console.enabled);
    let Some(address) = wanted else { return Console::Off };
    let listener = match ConsoleListener::bind(address.0).await {
        Ok(listener) => listener,
        Err(error) => return Console::Cannot(format!("{address} cannot be listened at: {error}")),
    };
    let address = listener.address();
    let site = Site::new(gates, configuration(config, loaded), address);
    let watch = tokio::spawn(site.clone().watch());
    let current = CurrentRouter::new(weir_console::router(site, api));
    let serve = tokio::spawn(listener.serve(current.service()));
    Console::Serves { address, current, tasks: [watch, serve] }
}

fn configuration(config: &Config, loaded: &Loaded) -> Configuration {
    Configuration {
        settings: settings(loaded),
        settings_file: loaded.file.as_ref().map(|file| file.display().to_string()),
        hosts: config.console.hosts.clone(),
    }
}

/// Tells the webhook what happens, if there is one.
pub(crate) fn webhooks(config: &Config, gates: &Gates) -> Option<impl Future<Output = ()> + use<>> {
    let webhook = config.notices.webhook.clone()?;
    Some(Webhooks::new(webhook, gates.administration.foundation.clone(), gates.lab.clone()).run())
}

impl Console {
    /// Other gates run now: shows those. Whoever is logged in logs in again.
    pub(crate) fn show(&mut self, config: &Config, loaded: &Loaded, gates: Gates, api: Router) {
        if let Console::Serves { address, current, tasks: [watch, _] } = self {
            let site = Site::new(gates, configuration(config, loaded), *address);
            watch.abort();
            *watch = tokio::spawn(site.clone().watch());
            current.replace(weir_console::router(site, api));
        }
    }

    /// Takes no more requests.
    pub(crate) async fn stop(self) {
        if let Console::Serves { tasks, .. } = self {
            for task in tasks {
                task.abort();
                let _ = task.await;
            }
        }
    }
}

fn settings(loaded: &Loaded) -> Vec<SettingView> {
    let view = |setting: &crate::config::Setting| SettingView {
        section: setting.section.to_owned(),
        key: setting.key.to_owned(),
        value: setting.value.clone(),
        default: setting.default.clone(),
        bounds: setting.bounds.clone(),
        about: setting.about.to_owned(),
        line: setting.line,
    };
    loaded.settings.iter().map(view).collect()
}

/// An administrator where there is nobody yet, and the password, once. In a demo it gets a new one at every start.
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
