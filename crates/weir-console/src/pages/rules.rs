//! The page of rules that people made for the scan: what they block, who made them and why, and how to remove them.

use super::{Asking, NOT_SAID_WHAT, PageResult, Sent, Trouble, ended, refused};
use crate::frame::{Here, Sheet, back, empty, status, token};
use crate::html;
use crate::html::Html;
use crate::rule_proposal::Proposal;
use crate::session::Visit;
use crate::site::Site;
use crate::words::{count, time};
use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use weir_foundation::console_accounts::Role;
use weir_lab::report::Merged;
use weir_mail::operations::{NewRule, RuleSeverity, RuleView};

/// Rules in the table.
const SHOWN_MAX: usize = 500;
const FOR_ADMINISTRATORS: &str = "Only administrators can make and remove YARA rules.";

pub(super) async fn page(State(site): State<Site>, Extension(visit): Asking) -> PageResult {
    let rules = site.mail.rules.list().await?;
    let table = if rules.is_empty() {
        let how = html!(
            "The page of a bad sample in <a href=\"/lab?verdict=malicious\">the lab</a> has a button that makes one."
        );
        empty("Nobody has made a rule.", &how)
    } else {
        table(&visit, &rules)
    };
    let lead = match rules.len() {
        0 => "Nothing is blocked in addition to what the scanners find.".to_owned(),
        many => format!("{} in force, in addition to what the scanners find.", count(many as u64, "rule")),
    };
    let parts = [html!("<h1>Rules</h1><p class=\"lead\">{}</p>", lead), table, by_hand(&visit)];
    Ok(Sheet::live("Rules", Here::Quarantine, &parts).page(&site, &visit).await)
}

fn table(visit: &Visit, rules: &[RuleView]) -> Html {
    let rest = match rules.len().saturating_sub(SHOWN_MAX) {
        0 => Html::none(),
        rest => html!("<p class=\"faint\">… and {} older; <code>weir scan rules list</code> shows all.</p>", rest),
    };
    html!(
        "<div class=\"scroll\" tabindex=\"0\"><table class=\"rows\"><thead><tr><th>Rule</th><th>Stops</th><th>Why</th><th>From</th><th>Made by</th><th>Since</th><th><span class=\"unseen\">Actions</span></th></tr></thead>\
         <tbody>{}</tbody></table></div>{}",
        rules.iter().rev().take(SHOWN_MAX).map(|rule| row(visit, rule)).collect::<Html>(),
        rest
    )
}

fn row(visit: &Visit, rule: &RuleView) -> Html {
    let stops = match rule.is_yara() {
        true => html!("<details class=\"raw\"><summary>a rule of YARA</summary><pre>{}</pre></details>", rule.content),
        false => html!("{} <code>{}</code>", status(&rule.severity, &rule.severity), rule.content),
    };
    let from = rule.sample.map(|sample| html!("<a href=\"/lab/samples/{}\">sample {}</a>", sample, sample));
    let remove = match visit.may(Role::Admin) || !rule.is_yara() {
        true => html!(
            "<form method=\"post\" action=\"/rules/remove\">{}{}<input type=\"hidden\" name=\"rule\" value=\"{}\"><button>Remove</button></form>",
            token(visit),
            back("/rules"),
            rule.rule
        ),
        false => Html::none(),
    };
    html!(
        "<tr><td>{}</td><td class=\"main\">{}</td><td class=\"main\">{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
        rule.name,
        stops,
        rule.about,
        from,
        rule.by,
        time(&rule.since),
        remove
    )
}

/// The form for a rule that a person writes.
fn by_hand(visit: &Visit) -> Html {
    let yara = match visit.may(Role::Admin) {
        true => html!(
            "<details class=\"ask wide\"><summary class=\"button\">Write a rule of YARA…</summary><p>Mail in which it finds something does not pass: \
             as infected, or as its meta field <code>severity</code> says.</p><form method=\"post\" action=\"/rules/add\">{}{}\
             <label>Why <input name=\"about\" maxlength=\"200\" required></label>\
             <label>The rule <textarea name=\"yara\" rows=\"12\" spellcheck=\"false\" required></textarea></label>\
             <button class=\"main\" name=\"what\" value=\"yara\">Save this rule</button></form></details>",
            token(visit),
            back("/rules")
        ),
        false => Html::none(),
    };
    html!(
        "<section><h2>Make one</h2><div class=\"actions\"><details class=\"ask\"><summary class=\"button\">Block a file by its hash…</summary>\
         <p>Mail with exactly this file does not pass from now on, also where it is inside an archive.</p>\
         <form method=\"post\" action=\"/rules/add\">{}{}<label>SHA-256 <input name=\"sha256\" minlength=\"64\" maxlength=\"64\" required></label>\
         <label>Why <input name=\"about\" maxlength=\"200\" required></label>\
         <button class=\"main\" name=\"what\" value=\"hash\">Block this file</button></form></details>{}</div></section>",
        token(visit),
        back("/rules"),
        yara
    )
}

/// Makes a rule: for a sample, whose content is known here and not taken from the form, or as written.
pub(super) async fn add(
    State(site): State<Site>,
    Extension(visit): Asking,
    Extension(sent): Sent,
) -> Result<Response, Trouble> {
    let (what, yara) = (sent.value("what"), sent.value("yara"));
    if what == "yara" && !visit.may(Role::Admin) {
        return Ok(refused(&site, &visit, &sent, ("/rules", FOR_ADMINISTRATORS.to_owned())));
    }
    let made = async {
        let suggested = match sent.value("sample") {
            "" => None,
            sample => Some(suggested(&site, sample).await?),
        };
        let rule = match (what, suggested) {
            ("hash", Some(rule)) => rule,
            ("hash", None) => NewRule {
                sha256: sent.value("sha256").to_owned(),
                severity: RuleSeverity::Forbidden,
                about: sent.value("about").to_owned(),
                ..NewRule::default()
            },
            ("yara", suggested) => {
                let about = match &suggested {
                    Some(rule) => rule.about.clone(),
                    None => sent.value("about").to_owned(),
                };
                let sample = suggested.and_then(|rule| rule.sample);
                let severity = RuleSeverity::Forbidden;
                // A browser sends line ends as two characters.
                NewRule { yara: yara.replace("\r\n", "\n"), about, sample, severity, ..NewRule::default() }
            }
            _ => {
                return Err(Trouble::new(
                    axum::http::StatusCode::UNPROCESSABLE_ENTITY,
                    NOT_SAID_WHAT,
                    "Go back, and try again",
                ));
            }
        };
        Ok::<_, Trouble>(site.mail.rules.add(rule, &visit.actor()).await?)
    };
    let words = made.await.map(|rule| match rule.is_yara() {
        true => format!("Rule {} is in force: mail in which it finds something does not pass from now on.", rule.rule),
        false => format!("Rule {} is in force: mail with this file does not pass from now on.", rule.rule),
    });
    Ok(ended(&site, &visit, &sent, ("/rules", words)))
}

/// The rule for a sample's content.
async fn suggested(site: &Site, sample: &str) -> Result<NewRule, Trouble> {
    let page = super::machines::node(site)?.page(sample).await?;
    Ok(Proposal::of(&Merged::new(page, Vec::new()), Vec::new()).hash)
}

pub(super) async fn remove(
    State(site): State<Site>,
    Extension(visit): Asking,
    Extension(sent): Sent,
) -> Result<Response, Trouble> {
    let removed = async {
        let rule = site.mail.rules.show(sent.value("rule")).await?;
        if rule.is_yara() && !visit.may(Role::Admin) {
            return Err(Trouble::new(axum::http::StatusCode::FORBIDDEN, FOR_ADMINISTRATORS, "Ask one of them"));
        }
        Ok::<_, Trouble>(site.mail.rules.remove(sent.value("rule"), &visit.actor()).await?)
    };
    let words = removed.await.map(|rule| format!("Rule {} is removed. It is no longer in force.", rule.rule));
    Ok(ended(&site, &visit, &sent, ("/rules", words)))
}
