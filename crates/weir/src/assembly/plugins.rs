//! Collects the plugins of the lab: those that Weir brings, with their settings from `[scan]`, and those in the folder `lab.plugins`.

use crate::config::Config;
use std::path::{Path, PathBuf};
use weir_lab::plugin::Plugin;
use weir_scan::address::Address;
use weir_scan::clamd;
use weir_scan::worker::scanner::Workers;

/// Our own plugins and those in the folder. A plugin that cannot be used is an error, because a lab must not silently do less than it is
/// configured to do.
pub(super) fn plugins(config: &Config) -> anyhow::Result<Vec<Plugin>> {
    let own = own(config)?;
    let Some(folder) = &config.lab.plugins else { return Ok(own) };
    let (plugins, errors) = Plugin::read_all(folder, own);
    if let Some(error) = errors.first() {
        anyhow::bail!("{error}\n  hint: correct the plugin, or remove it from {}", folder.display());
    }
    Ok(plugins)
}

fn own(config: &Config) -> anyhow::Result<Vec<Plugin>> {
    let mut own = Vec::new();
    let off = &config.lab.plugins_off;
    let is_known = |name: &&String| weir_analysis::PLUGINS.iter().any(|known| known.name == name.as_str());
    if let Some(unknown) = off.iter().find(|name| !is_known(name)) {
        let names: Vec<&str> = weir_analysis::PLUGINS.iter().map(|known| known.name).collect();
        anyhow::bail!(
            "lab.plugins_off names {unknown:?}, which is not one of Weir's plugins\n  hint: these are: {}",
            names.join(", ")
        );
    }
    for known in weir_analysis::PLUGINS.iter().filter(|known| !off.iter().any(|off| off == known.name)) {
        let plugin = Plugin::parse(known.manifest, Path::new(""))?;
        own.extend(match known.name {
            "archive" => Some(archive(plugin, &config.lab.passwords)),
            "clamav" => clamav(plugin, config),
            "yara" => Some(yara(plugin, config)?),
            _ => Some(plugin),
        });
    }
    own.sort_by(|a, b| (a.stage, &a.name).cmp(&(b.stage, &b.name)));
    Ok(own)
}

/// Sets the passwords that the plugin tries. They are part of its version, so that results with other passwords do not count.
fn archive(mut plugin: Plugin, passwords: &[String]) -> Plugin {
    plugin.version = format!("{}-{}", plugin.version, weir_analysis::archive::passwords_version(passwords));
    plugin.config = serde_json::json!({ "passwords": passwords });
    plugin
}

/// Connects the plugin to the clamd of the scan; without a clamd, the plugin is left out. A plugin has no network, so only Unix sockets
/// count.
fn clamav(mut plugin: Plugin, config: &Config) -> Option<Plugin> {
    let clamd = config.scanners.find::<clamd::Settings>()?;
    let path = |address: &Address| match address {
        Address::Socket(path) => Some(path.clone()),
        Address::Host(..) => None,
    };
    plugin.sockets = clamd.addresses.iter().filter_map(path).collect();
    if plugin.sockets.is_empty() {
        tracing::warn!("the lab does not ask clamd: a plugin reaches it by a socket of this machine only");
        return None;
    }
    let addresses: Vec<String> = plugin.sockets.iter().map(|path| format!("unix:{}", path.display())).collect();
    plugin.config = serde_json::json!({ "addresses": addresses, "size": clamd.size });
    Some(plugin)
}

/// Gives the plugin the rules of the scan. They are part of its version, so that results with other rules do not count.
fn yara(mut plugin: Plugin, config: &Config) -> anyhow::Result<Plugin> {
    let folder = config.scanners.find::<Workers>().and_then(|workers| workers.folder.as_ref());
    let folder: Option<PathBuf> = folder.map(std::path::absolute).transpose()?;
    let version = weir_analysis::yara::rules_version(folder.as_deref()).map_err(anyhow::Error::msg)?;
    plugin.version = format!("{}-{version}", plugin.version);
    plugin.config = serde_json::json!({ "passwords": config.lab.passwords });
    if let Some(folder) = folder {
        plugin.config["rules"] = serde_json::json!(folder);
        plugin.reads.push(folder);
    }
    Ok(plugin)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Loaded;

    fn find(config: &Config, name: &str) -> Option<Plugin> {
        plugins(config).unwrap().into_iter().find(|plugin| plugin.name == name)
    }

    #[test]
    fn clamd_is_asked_only_where_one_is_configured() {
        let mut config = Loaded::defaults().config;
        let mut with = |address: &str| {
            let clamd = clamd::Settings { addresses: vec![address.parse().unwrap()], ..clamd::Settings::default() };
            config.scanners = config.scanners.clone().with(clamd);
            find(&config, "clamav")
        };
        let clamav = with("unix:/run/clamav/clamd.ctl").unwrap();
        assert_eq!(clamav.sockets, [PathBuf::from("/run/clamav/clamd.ctl")]);
        assert_eq!(clamav.config["addresses"][0], "unix:/run/clamav/clamd.ctl");
        assert!(!clamav.vouches, "no signature is no proof");
        assert_eq!(with("scan.example:3310"), None, "a plugin has no network");
        assert_eq!(find(&Loaded::defaults().config, "clamav"), None);
    }

    #[test]
    fn each_of_our_own_can_be_switched_off() {
        let mut config = Loaded::defaults().config;
        config.lab.plugins_off = vec!["strings".into(), "run-linux".into()];
        let names: Vec<String> = plugins(&config).unwrap().into_iter().map(|plugin| plugin.name).collect();
        assert!(!names.contains(&"strings".into()) && names.contains(&"identify".into()), "{names:?}");
        config.lab.plugins_off = vec!["string".into()];
        assert!(plugins(&config).unwrap_err().to_string().contains("not one of Weir's plugins"));
    }

    #[test]
    fn other_passwords_are_another_version() {
        let mut config = Loaded::defaults().config;
        let usual = find(&config, "archive").unwrap();
        assert_eq!(usual.config["passwords"][0], "infected");
        config.lab.passwords = vec!["of our own".into()];
        let own = find(&config, "archive").unwrap();
        assert_eq!(own.config["passwords"], serde_json::json!(["of our own"]));
        assert_ne!(usual.version, own.version);
    }

    #[test]
    fn other_rules_are_another_version() {
        let mut config = Loaded::defaults().config;
        let ours = find(&config, "yara").unwrap();
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a.yar"), "rule a { condition: true }").unwrap();
        let workers = Workers { folder: Some(folder.path().to_owned()), ..Workers::default() };
        config.scanners = config.scanners.clone().with(workers);
        let theirs = find(&config, "yara").unwrap();
        assert_ne!(ours.version, theirs.version);
        assert_eq!(theirs.reads, [folder.path()]);
        assert_eq!(theirs.config["rules"].as_str(), folder.path().to_str());
    }
}
