//! Applies a submitter's choices: checks whether the lab's plugins can fulfil them, and which plugins a sample then needs.

use crate::choices::{BadChoice, Choices, GuestProfile, PASSWORD_LENGTH_MAX, PASSWORDS_MAX, is_password, quoted};
use crate::plugin::{Plugin, Run};
use std::collections::BTreeSet;
use std::time::Duration;

/// The time that an attempt needs in addition to watching the sample: restoring the guest, and its report.
const BESIDES_WATCH: Duration = Duration::from_secs(60);

/// Whether a lab with these plugins, which ends attempts after this time, can follow the choices.
pub(crate) fn check(choices: &Choices, plugins: &[Plugin], threshold: Duration) -> Result<(), BadChoice> {
    let known = |name: &&String| plugins.iter().any(|plugin| plugin.name == **name);
    if let Some(unknown) = choices.plugins.iter().find(|name| !known(name)) {
        let names: Vec<&str> = plugins.iter().map(|plugin| plugin.name.as_str()).collect();
        return Err(BadChoice(format!("this lab has no plugin {}: it has {}", quoted(unknown), names.join(", "))));
    }
    if let Some(guest) = choices.guest.filter(|guest| *guest != GuestProfile::None)
        && !plugins.iter().any(|plugin| plugin.run == Run::Vm && fits(guest, plugin))
    {
        return Err(BadChoice(format!("this lab has no guest for {}", guest.word())));
    }
    if choices.watch_s == Some(0) {
        return Err(BadChoice("a sample is watched for a second at least".to_owned()));
    }
    let longest = threshold.saturating_sub(BESIDES_WATCH).as_secs();
    if let Some(watch) = choices.watch_s.filter(|watch| u64::from(*watch) > longest) {
        let why = "lab.threshold ends an attempt a minute later";
        return Err(BadChoice(format!("{watch} s is too long: a sample is watched for {longest} s at most ({why})")));
    }
    if choices.passwords.len() > PASSWORDS_MAX || !choices.passwords.iter().all(|word| is_password(word)) {
        let most = format!("{PASSWORDS_MAX} passwords of {PASSWORD_LENGTH_MAX} characters");
        return Err(BadChoice(format!("at most {most} are tried, and none with control characters")));
    }
    Ok(())
}

/// Which of these plugins a sample of this type needs, in the form of the database: pairs of name and version.
pub(crate) fn needs(choices: &Choices, plugins: &[Plugin], file_type: &str) -> String {
    if choices.is_none() {
        return Plugin::needs(plugins, file_type);
    }
    let allowed: Vec<Plugin> = plugins.iter().filter(|plugin| allows(choices, plugin, plugins)).cloned().collect();
    let needed: Vec<(&String, String)> = Plugin::needed(&allowed, file_type)
        .into_iter()
        .map(|plugin| (&plugin.name, choices.version(&plugin.name, &plugin.version, plugin.run == Run::Vm)))
        .collect();
    serde_json::json!(needed).to_string()
}

/// Whether a plugin may examine the sample.
fn allows(choices: &Choices, plugin: &Plugin, all: &[Plugin]) -> bool {
    let named = choices.plugins.is_empty() || with_required(choices, all).contains(plugin.name.as_str());
    named && choices.guest.is_none_or(|guest| fits(guest, plugin))
}

/// The plugins that are named, and those that these require.
fn with_required<'a>(choices: &'a Choices, all: &'a [Plugin]) -> BTreeSet<&'a str> {
    let mut named: BTreeSet<&str> = choices.plugins.iter().map(String::as_str).collect();
    loop {
        let required = all.iter().filter(|plugin| named.contains(plugin.name.as_str()));
        let required: Vec<&str> = required.flat_map(|plugin| plugin.requires.iter().map(String::as_str)).collect();
        let before = named.len();
        named.extend(required);
        if named.len() == before {
            return named;
        }
    }
}

/// Whether a plugin belongs to this guest; plugins that run nothing belong to every guest.
fn fits(guest: GuestProfile, plugin: &Plugin) -> bool {
    let of_windows = plugin.tags.iter().any(|tag| tag == "windows");
    plugin.run != Run::Vm
        || match guest {
            GuestProfile::Linux => !of_windows,
            GuestProfile::Windows => of_windows,
            GuestProfile::None => false,
        }
}

#[cfg(test)]
mod tests;
