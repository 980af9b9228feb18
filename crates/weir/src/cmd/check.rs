//! `weir check`: is the configuration valid, and could it run on this machine?
//!
//! Problems of the machine are only warnings: a taken port may belong to the running Weir, or be free when it is needed.

mod dkim_keys;
mod ports;

use crate::assembly;
use crate::config::{Loaded, Problems};
use crate::folder_args::FolderArgs;
use dkim_keys::KeyView;
use ports::ListenerView;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::Path;
use weir_tls::Tls;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    place: FolderArgs,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// What was found out about a valid configuration on this machine.
struct CheckResult {
    listeners: Vec<ListenerView>,
    keys: Vec<KeyView>,
    warnings: Vec<String>,
}

impl Args {
    pub(crate) fn run(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        let loaded = self.place.load_or_problems();
        let folder = self.place.existing_folder().unwrap_or_default();
        if self.json {
            serde_json::to_writer_pretty(&mut *out, &report(&loaded, &folder))?;
            writeln!(out)?;
            return Ok(loaded.map(drop)?);
        }
        let loaded = loaded?;
        let changed = loaded.settings.iter().filter(|setting| !setting.is_default()).count();
        match &loaded.file {
            Some(file) => writeln!(
                out,
                "{} is valid: {} of {} settings differ from their defaults",
                file.display(),
                changed,
                loaded.settings.len()
            )?,
            None => writeln!(out, "no configuration file: all {} settings have their defaults", loaded.settings.len())?,
        }
        let seen = look(&loaded, &folder);
        let lines = seen.listeners.iter().filter_map(ListenerView::line);
        for line in lines.chain(seen.keys.iter().filter_map(KeyView::line)) {
            writeln!(out, "{line}")?;
        }
        for warning in &seen.warnings {
            writeln!(out, "warning: {warning}")?;
        }
        Ok(())
    }
}

/// Looks at the machine and at the data folder.
fn look(loaded: &Loaded, folder: &Path) -> CheckResult {
    let mut warnings = warnings(loaded);
    let runs = UnixStream::connect(folder.join("control.sock")).is_ok();
    let listeners = ports::look(loaded, runs);
    warnings.extend(listeners.iter().filter_map(ListenerView::warning));
    let mail = assembly::mail_is_wanted(&loaded.config, loaded, false);
    let keys = if mail { dkim_keys::look(folder) } else { Ok(Vec::new()) };
    let keys = keys.unwrap_or_else(|error| {
        warnings.push(dkim_keys::unusable(&error));
        Vec::new()
    });
    warnings.extend(keys.iter().filter_map(KeyView::warning));
    CheckResult { listeners, keys, warnings }
}

/// Warnings about settings that are valid but likely to surprise somebody.
fn warnings(loaded: &Loaded) -> Vec<String> {
    let config = &loaded.config;
    let lab = assembly::lab_problems(config);
    let mut warnings: Vec<String> =
        lab.iter().map(|problem| format!("on this machine the lab would not start: {problem}")).collect();
    if config.web.enabled && !config.web.backends.is_empty() {
        let web = config.web.file_problems();
        warnings.extend(web.iter().map(|problem| format!("on this machine the web gate would not start: {problem}")));
    }
    if let Some(warning) = config.web.sign_in_warning() {
        warnings.push(warning);
    }
    if config.stops_are_silent() && assembly::mail_is_wanted(config, loaded, false) {
        warnings.push("nobody would be told when a user is stopped: set notices.admin or notices.webhook".into());
    }
    let unusable = assembly::needs::certificates(loaded).into_iter().filter_map(|files| Tls::load(files).err());
    warnings.extend(unusable.map(|error| format!("on this machine a certificate cannot be used: {error}")));
    warnings
}

fn report(loaded: &Result<Loaded, Problems>, folder: &Path) -> serde_json::Value {
    match loaded {
        Ok(loaded) => {
            let CheckResult { listeners, keys, warnings } = look(loaded, folder);
            serde_json::json!({
                "valid": true,
                "file": loaded.file,
                "problems": [],
                "warnings": warnings,
                "listeners": listeners,
                "dkim_keys": keys,
            })
        }
        Err(problems) => {
            let list = problems
                .list()
                .iter()
                .map(|p| serde_json::json!({ "line": p.line, "key": p.key, "problem": p.what, "hint": p.hint }));
            serde_json::json!({ "valid": false, "problems": list.collect::<Vec<_>>() })
        }
    }
}
