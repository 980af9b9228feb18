//! Builds the settings of the gates from the configuration.

mod certificates;
mod console;
mod delivery;
mod inbound;
mod key_file;
mod lab;
pub(crate) mod needs;
mod plugins;
mod reload;
mod scan;
mod together;
mod vms;
mod web;
mod web_exchange;

pub(crate) use certificates::Certificates;
pub(crate) use console::{ADMIN, Console, background, configuration, console, first_admin, setting_views};
pub(crate) use delivery::delivery;
pub(crate) use inbound::{demo, inbound};
pub(crate) use key_file::read_key;
pub(crate) use lab::{credentials, lab, lab_problems};
pub(crate) use reload::{ProcessCommand, RELOAD, RESTART, ReloadAnswer, ReloadOutcome, Reloader, own_routes};
pub(crate) use scan::Scan;
pub(crate) use together::CurrentLab;
pub(crate) use web::web_gate;
pub(crate) use web_exchange::{read_history, write_history};

use crate::config::{Config, Loaded};
use weir_mail::gate;
use weir_mail::notices;

/// Whether the mail gate is wanted. `submission.enabled` decides if it is set. Otherwise mail is on, except on a web front-end or a lab
/// machine whose configuration does not mention mail.
pub(crate) fn mail_is_wanted(config: &Config, loaded: &Loaded, demo: bool) -> bool {
    let given = |setting: &&crate::config::Setting| setting.line.is_some();
    let mut given = loaded.settings.iter().filter(given);
    if given.clone().any(|setting| (setting.section, setting.key) == ("submission", "enabled")) {
        return config.submission.enabled;
    }
    let other = (config.web.enabled && !config.web.backends.is_empty()) || config.lab.enabled;
    let of_mail = ["submission", "throttle", "inbound", "delivery", "scan", "quarantine"];
    let about_mail = |section: &str| of_mail.contains(&section.split('.').next().unwrap_or_default());
    demo || !other || given.any(|setting| about_mail(setting.section))
}

/// The mail gate's settings.
pub(crate) fn mail_gate(config: &Config) -> gate::Settings {
    let hostname = hostname(config);
    gate::Settings {
        submission: config.submission.clone(),
        limits: config.limits.clone(),
        throttle: config.throttle.clone(),
        store: config.store.clone(),
        notices: notices::Settings { hostname: hostname.clone(), ..config.notices.clone() },
        hostname,
        clamd_door: config.clamd_door.clone(),
        milter: config.milter.clone(),
        policy_service: config.policy_service.clone(),
        // Filled in later, because it depends on how mail is delivered.
        inbound: None,
        // Filled in later too, by the process.
        named: std::sync::Arc::default(),
    }
}

fn hostname(config: &Config) -> String {
    config.submission.hostname.clone().unwrap_or_else(machine_name)
}

/// This machine's name.
pub(crate) fn machine_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = name.trim();
    let plain = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-.".contains(&byte));
    if plain { name.to_owned() } else { "localhost".to_owned() }
}
