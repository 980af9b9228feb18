//! From `[console]` to the pages: the listener, the first administrator, and the settings to show.

use crate::config::{Config, Loaded};
use axum::Router;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::task::JoinHandle;
use weir_console::listener::ConsoleListener;
use weir_console::site::{Gates, SettingView, Site};
use weir_console::webhooks::Webhooks;
use weir_lab::node::Node;
use weir_mail::desk::{Actor, Desk, NewAccount, Role, fresh_password};
use weir_web::proxy::Gate;

/// The name of the first account.
pub(crate) const ADMIN: &str = "admin";

/// What became of the console.
pub(crate) enum Console {
    /// Pages are served.
    Serves {
        /// Where.
        address: SocketAddr,
        /// By these tasks.
        tasks: [JoinHandle<()>; 2],
    },
    /// It is switched off.
    Off,
    /// It cannot listen, which keeps nothing else from running.
    Cannot(String),
}

/// The gates that it shows.
pub(crate) struct Shown<'a> {
    pub(crate) desk: &'a Desk,
    pub(crate) web: Option<&'a Arc<Gate>>,
    pub(crate) lab: Option<&'a Node>,
}

/// Serves the pages, if they are wanted. A port that is taken does not keep mail from flowing.
pub(crate) async fn console(config: &Config, loaded: &Loaded, shown: Shown<'_>, api: Router) -> Console {
    let wanted = config.console.listen.first().filter(|_| config.console.enabled);
    let Some(address) = wanted else { return Console::Off };
    let listener = match ConsoleListener::bind(address.0).await {
        Ok(listener) => listener,
        Err(error) => return Console::Cannot(format!("{address} cannot be listened at: {error}")),
    };
    let gates = Gates {
        desk: shown.desk.clone(),
        web: shown.web.cloned(),
        lab: shown.lab.cloned(),
        settings: settings(loaded),
        settings_file: loaded.file.as_ref().map(|file| file.display().to_string()),
        hosts: config.console.hosts.clone(),
    };
    let address = listener.address();
    let site = Site::new(gates, address);
    let watch = tokio::spawn(site.clone().watch());
    let serve = tokio::spawn(listener.serve(weir_console::router(site, api)));
    Console::Serves { address, tasks: [watch, serve] }
}

/// Tells the webhook what happens, if there is one.
pub(crate) fn webhooks(config: &Config, desk: &Desk, lab: Option<&Node>) -> Option<impl Future<Output = ()> + use<>> {
    let webhook = config.notices.webhook.clone()?;
    Some(Webhooks::new(webhook, desk.clone(), lab.cloned()).run())
}

impl Console {
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
pub(crate) async fn first_admin(desk: &Desk, demo: bool) -> anyhow::Result<Option<String>> {
    let accounts = desk.account_list().await?;
    let (password, actor) = (fresh_password(), Actor::new("weir"));
    if demo && accounts.iter().any(|account| account.name == ADMIN) {
        desk.account_password(ADMIN, &password, &actor).await?;
        return Ok(Some(password));
    }
    if !accounts.is_empty() {
        return Ok(None);
    }
    let new = NewAccount { name: ADMIN.to_owned(), role: Role::Admin, password: password.clone() };
    desk.account_add(new, &actor).await?;
    Ok(Some(password))
}
