//! The page with the configuration in force, and where each setting comes from.

use super::{Asking, PageResult, query};
use crate::frame::{Here, Sheet, status};
use crate::html;
use crate::html::Html;
use crate::site::{SettingView, Site};
use crate::words::count;
use axum::Extension;
use axum::extract::{RawQuery, State};

pub(super) async fn page(State(site): State<Site>, Extension(visit): Asking, asked: RawQuery) -> PageResult {
    let changed = query(&asked).has("changed");
    let settings = site.configuration.settings.now();
    let set_here = |setting: &&SettingView| setting.line.is_some() || setting.by_demo;
    let shown: Vec<&SettingView> = settings.iter().filter(|setting| !changed || set_here(setting)).collect();
    let sections: Html = shown.chunk_by(|a, b| a.section == b.section).map(|group| section(group, &site)).collect();
    let set = settings.iter().filter(|setting| setting.line.is_some()).count();
    let file = match &site.configuration.settings_file {
        Some(file) => html!(
            "<code>{}</code> sets {} of {}; the rest have their defaults.",
            file,
            set,
            count(settings.len() as u64, "setting")
        ),
        None => html!(
            "There is no configuration file: all {} have their defaults.",
            count(settings.len() as u64, "setting")
        ),
    };
    let other = if changed {
        html!("<a href=\"/settings\">Show all</a>")
    } else {
        html!("<a href=\"/settings?changed\">Show only what the file sets</a>")
    };
    let accounts = super::accounts::section(&visit, &site.administration.accounts.list().await?);
    let keys = super::keys::section(&visit, &site.mail.dkim.list()?);
    let tokens = super::tokens::section(&visit, &site.administration.tokens.list().await?);
    let body = html!(
        "<h1>Settings</h1><p class=\"lead\">{}{}</p><p class=\"faint\">These are in force now. They are changed in the file; <code>weir check</code> tells whether it is valid, \
         <code>weir reload</code> brings some into force while everything runs, and a restart brings all. {}</p>{}{}{}{}{}",
        file,
        demo(&settings),
        other,
        accounts,
        super::sessions::section(&site, &visit),
        tokens,
        keys,
        sections
    );
    Ok(Sheet::new("Settings", Here::Settings, body).page(&site, &visit).await)
}

/// What `--demo` sets in addition.
fn demo(settings: &[SettingView]) -> Html {
    match settings.iter().filter(|setting| setting.by_demo).count() {
        0 => Html::none(),
        some => html!(" This Weir was started with <code>--demo</code>, which sets {}.", count(some as u64, "other")),
    }
}

fn section(group: &[&SettingView], site: &Site) -> Html {
    let Some(first) = group.first() else { return Html::none() };
    let row = |setting: &&SettingView| {
        let source = match (setting.line, &site.configuration.settings_file) {
            _ if setting.by_demo => html!("set by <code>--demo</code><br><small>default {}</small>", setting.default),
            (Some(line), Some(file)) => {
                let file = file.rsplit('/').next().unwrap_or(file);
                html!("{}, line {}<br><small>default {}</small>", file, line, secret(setting, &setting.default))
            }
            (Some(line), None) => html!("line {}", line),
            (None, _) => html!("<span class=\"faint\">default</span>"),
        };
        let waits = if setting.waits {
            html!("<br>{}", status("waiting", "the file has another value: restart to use it"))
        } else {
            Html::none()
        };
        html!(
            "<tr id=\"{}.{}\"><td><code>{}</code></td><td><code>{}</code>{}</td><td>{}</td><td class=\"main\">{}<br><small>{}</small></td></tr>",
            setting.section,
            setting.key,
            setting.key,
            secret(setting, &setting.value),
            waits,
            source,
            setting.about,
            setting.bounds
        )
    };
    html!(
        "<section><h2 id=\"{}\">[{}]</h2><div class=\"scroll\" tabindex=\"0\"><table class=\"rows settings\"><thead><tr><th>Key</th><th>Value</th><th>Source</th><th>Meaning</th></tr></thead>\
         <tbody>{}</tbody></table></div></section>",
        first.section,
        first.section,
        group.iter().map(row).collect::<Html>()
    )
}

/// A value, without parts that would give its reader access elsewhere.
fn secret(setting: &SettingView, value: &str) -> String {
    let key = setting.key.as_str();
    let hidden = ["password", "secret", "token"].iter().any(|word| key.contains(word)) && !key.contains("file");
    let credentials = value.contains("://") && value.contains('@');
    let hook = key == "webhook" && value.len() > 2;
    if (hidden || credentials || hook) && value.len() > 2 { "(set, not shown)".to_owned() } else { value.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_not_shown() {
        let setting = |key: &str, value: &str| {
            let setting = SettingView {
                section: "store".into(),
                key: key.into(),
                value: value.into(),
                default: "\"\"".into(),
                bounds: String::new(),
                about: String::new(),
                line: Some(1),
                by_demo: false,
                waits: false,
            };
            secret(&setting, value)
        };
        assert_eq!(setting("records", "\"postgres://weir:pw@db/weir\""), "(set, not shown)");
        assert_eq!(setting("webhook", "\"https://hooks.example/T0K3N\""), "(set, not shown)");
        assert_eq!(setting("secret", "\"abc\""), "(set, not shown)");
        assert_eq!(setting("secret", "\"\""), "\"\"");
        assert_eq!(setting("password_file", "\"/etc/weir/pw\""), "\"/etc/weir/pw\"");
        assert_eq!(setting("admin", "\"ann@example.org\""), "\"ann@example.org\"");
    }
}
