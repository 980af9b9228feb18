//! `weir check`: is the configuration right?

use crate::assembly;
use crate::config::{ConfigArg, Loaded};
use std::io::Write;
use weir_tls::Tls;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    config: ConfigArg,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

impl Args {
    pub(crate) fn run(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        let loaded = self.config.load();
        if self.json {
            serde_json::to_writer_pretty(&mut *out, &report(&loaded))?;
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
        for warning in warnings(&loaded) {
            writeln!(out, "warning: {warning}")?;
        }
        Ok(())
    }
}

/// What is valid and still likely to surprise somebody.
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
        warnings.push("nobody would hear that a user is stopped: set notices.admin or notices.webhook".into());
    }
    let unusable = assembly::needs::certificates(loaded).into_iter().filter_map(|files| Tls::load(files).err());
    warnings.extend(unusable.map(|error| format!("on this machine a certificate cannot be used: {error}")));
    warnings
}

fn report(loaded: &Result<Loaded, crate::config::Problems>) -> serde_json::Value {
    match loaded {
        Ok(loaded) => {
            let warnings = warnings(loaded);
            serde_json::json!({ "valid": true, "file": loaded.file, "problems": [], "warnings": warnings })
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
