//! What a person can do with a sample: download it, analyse it again, cancel it, and block it in mail.

use crate::frame::{back, token};
use crate::html;
use crate::html::Html;
use crate::rule_proposal::Proposal;
use crate::session::Visit;
use crate::words::time;
use weir_foundation::console_accounts::Role;
use weir_lab::operations::SampleLine;
use weir_lab::report::Merged;
use weir_mail::operations::RuleView;

pub(super) fn choices(visit: &Visit, merged: &Merged, proposal: &Proposal) -> Html {
    let sample = &merged.page.sample;
    html!(
        "{}<div class=\"actions\">{}{}{}<a class=\"button\" href=\"/api/v1/lab/samples/{}/content\">Download it</a>{}</div>\
         <p class=\"faint\">A download is a zip archive with the password \"infected\". The report: \
         <a href=\"/api/v1/lab/samples/{}/report\">JSON</a>, <a href=\"/api/v1/lab/samples/{}/report?form=misp\">MISP</a>, \
         <a href=\"/api/v1/lab/samples/{}/report?form=stix\">STIX</a>, \
         <a href=\"/api/v1/lab/samples/{}/report?form=navigator\">ATT&amp;CK layer</a>.</p>",
        rules(visit, sample, &proposal.blocked),
        block(visit, sample, proposal),
        from_yara(visit, sample, proposal),
        again_or_back(visit, sample),
        sample.sample,
        packets(merged),
        sample.sample,
        sample.sample,
        sample.sample,
        sample.sample
    )
}

/// The packets of its network, if there are any.
fn packets(merged: &Merged) -> Html {
    let sample = merged.page.sample.sample;
    match merged.behaviour.iter().any(|(_, acted)| acted.seen.capture.is_some()) {
        true => html!("<a class=\"button\" href=\"/api/v1/lab/samples/{}/pcap\">Its packets (pcap)</a>", sample),
        false => Html::none(),
    }
}

fn here(sample: &SampleLine) -> String {
    format!("/lab/samples/{}", sample.sample)
}

/// Rules that exist for it.
fn rules(visit: &Visit, sample: &SampleLine, rules: &[RuleView]) -> Html {
    let rule = |rule: &RuleView| {
        let what = if rule.is_yara() { "What it reaches and drops is" } else { "This file is" };
        let remove = match visit.may(Role::Admin) || !rule.is_yara() {
            true => html!(
                "<form method=\"post\" action=\"/rules/remove\">{}{}<input type=\"hidden\" name=\"rule\" value=\"{}\">\
                 <button>Remove {}: it passes again</button></form>",
                token(visit),
                back(&here(sample)),
                rule.rule,
                rule.name
            ),
            false => Html::none(),
        };
        html!(
            "<div class=\"blocked\"><p>{} blocked in mail by <a href=\"/rules\">{}</a>, made by {} {}.</p>{}</div>",
            what,
            rule.name,
            rule.by,
            time(&rule.since),
            remove
        )
    };
    rules.iter().take(20).map(rule).collect()
}

/// Whether mail with it should be blocked.
fn is_bad(sample: &SampleLine) -> bool {
    matches!(sample.verdict.as_str(), "malicious" | "suspicious")
}

/// A single click is enough, because it can be undone.
fn block(visit: &Visit, sample: &SampleLine, proposal: &Proposal) -> Html {
    if !is_bad(sample) || proposal.blocked.iter().any(|rule| rule.content == sample.hash) {
        return Html::none();
    }
    html!(
        "<form method=\"post\" action=\"/rules/add\">{}{}<input type=\"hidden\" name=\"sample\" value=\"{}\">\
         <button class=\"main\" name=\"what\" value=\"hash\">Block this file in mail</button></form>",
        token(visit),
        back(&here(sample)),
        sample.sample
    )
}

/// The text is shown before it is saved, and may be changed.
fn from_yara(visit: &Visit, sample: &SampleLine, proposal: &Proposal) -> Html {
    let known = proposal.blocked.iter().any(RuleView::is_yara);
    let Some(text) = proposal.yara.as_ref().filter(|_| is_bad(sample) && !known && visit.may(Role::Admin)) else {
        return Html::none();
    };
    html!(
        "<details class=\"ask wide\"><summary class=\"button\">Block what it reaches and drops…</summary>\
         <p>Mail in which this rule of YARA finds something is quarantined from now on. Look at each line: what honest mail has too would keep that mail back.</p>\
         <form method=\"post\" action=\"/rules/add\">{}{}<input type=\"hidden\" name=\"sample\" value=\"{}\">\
         <label>The rule <textarea name=\"yara\" rows=\"16\" spellcheck=\"false\" required>{}</textarea></label>\
         <button class=\"main\" name=\"what\" value=\"yara\">Save this rule</button></form></details>",
        token(visit),
        back(&here(sample)),
        sample.sample,
        text
    )
}

fn again_or_back(visit: &Visit, sample: &SampleLine) -> Html {
    let (action, words) = match sample.ended_at {
        None => ("cancel", "Cancel it: it will not be analysed"),
        Some(_) => ("rerun", "Analyse it again"),
    };
    html!(
        "<form method=\"post\" action=\"/lab/{}\">{}{}<input type=\"hidden\" name=\"sample\" value=\"{}\"><button>{}</button></form>",
        action,
        token(visit),
        back(&here(sample)),
        sample.sample,
        words
    )
}
