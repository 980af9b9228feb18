//! Message tracking on the search page: the fields, the messages that were found, and links to older ones.

use super::super::held::title;
use crate::form::Form;
use crate::html;
use crate::html::{Html, Piece};
use crate::site::Site;
use crate::words::{cut, size, time};
use weir_mail::operations::{FoundMail, MailFilter, MailFound};

/// The fields of the form, with their labels and examples.
const FIELDS: [(&str, &str, &str); 9] = [
    ("from", "Sender", "ann@example.org, ann or example.org"),
    ("to", "Recipient", "bob@example.net, bob or example.net"),
    ("subject", "Subject", "words, or the beginning of one*"),
    ("client", "Client", "192.0.2.7 or 192.0.2.*"),
    ("login", "User", "ann"),
    ("verdict", "Verdict", "infected, spam, clean …"),
    ("state", "State", "delivered, held, bounced …"),
    ("since", "Since", "2h, 7d or 2026-11-17"),
    ("until", "Until", "1h or 2026-11-17T18:00:00Z"),
];
/// The longest value of a field.
const VALUE_MAX: usize = 255;

/// What was typed into the fields, in their order.
pub(super) struct SearchFields {
    values: [String; 9],
    after: Option<i64>,
}

impl SearchFields {
    pub(super) fn of(asked: &Form) -> SearchFields {
        let value = |(name, ..): (&str, &str, &str)| asked.value(name).chars().take(VALUE_MAX).collect();
        SearchFields { values: FIELDS.map(value), after: asked.value("after").parse().ok() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.values.iter().all(String::is_empty)
    }

    /// Results other than mail are shown only on the first page of a search by words.
    pub(super) fn is_first_page(&self) -> bool {
        self.after.is_none() && self.is_empty()
    }

    /// The fields as a part of the form; unfolded if something is in them.
    pub(super) fn form(&self) -> Html {
        let field = |((name, label, hint), value): ((&str, &str, &str), &String)| {
            html!("<label>{} <input name=\"{}\" value=\"{}\" placeholder=\"{}\"></label>", label, name, value, hint)
        };
        let fields: Html = FIELDS.into_iter().zip(&self.values).map(field).collect();
        if self.is_empty() {
            html!("<details class=\"fields\"><summary>Mail by field</summary>{}</details>", fields)
        } else {
            html!("<details class=\"fields\" open><summary>Mail by field</summary>{}</details>", fields)
        }
    }

    fn filter(&self, wanted: &str) -> MailFilter {
        let [from, to, subject, client, login, verdict, state, since, until] = self.values.clone();
        let (text, after) = (wanted.to_owned(), self.after);
        MailFilter { text, from, to, subject, client, login, verdict, state, since, until, after, most: None }
    }

    /// The address of the page with older messages.
    fn older(&self, wanted: &str, next: i64) -> Html {
        let field = |((name, ..), value): ((&str, &str, &str), &String)| match value.is_empty() {
            true => Html::none(),
            false => html!("&{}={}", name, Piece(value)),
        };
        let fields: Html = FIELDS.into_iter().zip(&self.values).map(field).collect();
        html!("<p><a href=\"/search?q={}{}&after={}\">Older messages</a></p>", Piece(wanted), fields, next)
    }
}

/// The messages that match; None if there are none.
pub(super) async fn section(site: &Site, wanted: &str, fields: &SearchFields) -> Option<Html> {
    let found = match site.mail.find.find(&fields.filter(wanted)).await {
        Ok(found) => found,
        // A search for something else continues without it.
        Err(_) if fields.is_empty() => return None,
        Err(error) => return Some(html!("<section><h2>Messages</h2><p>{}</p></section>", error.to_string())),
    };
    let notes: Html = found.notes.iter().map(|note| html!("<p class=\"faint\">{}</p>", note)).collect();
    if found.messages.is_empty() {
        return (!found.notes.is_empty()).then(|| html!("<section><h2>Messages</h2>{}</section>", notes));
    }
    let older = found.next.map_or_else(Html::none, |next| fields.older(wanted, next));
    Some(html!("<section><h2>Messages</h2>{}{}{}</section>", table(&found), older, notes))
}

fn table(found: &MailFound) -> Html {
    html!(
        "<div class=\"scroll\" tabindex=\"0\"><table class=\"rows\"><thead><tr><th>Came</th><th>Subject</th><th>From</th><th>To</th><th class=\"number\">Size</th><th>State</th>\
         <th>Verdict</th></tr></thead><tbody>{}</tbody></table></div>",
        found.messages.iter().map(row).collect::<Html>()
    )
}

fn row(mail: &FoundMail) -> Html {
    let to = match (mail.to.first(), mail.recipients) {
        (Some(one), 0 | 1) => cut(one, 60),
        (Some(one), many) => format!("{} and {} more", cut(one, 60), many - 1),
        (None, _) => String::new(),
    };
    html!(
        "<tr><td>{}</td><td class=\"main\"><a href=\"/trace/{}\">{}</a><br><small>{}</small></td><td>{}</td><td>{}</td>\
         <td class=\"number\">{}</td><td>{}</td><td>{}</td></tr>",
        time(&mail.at),
        Piece(&mail.message),
        title(&mail.subject),
        cut(&mail.answer, 120),
        if mail.from.is_empty() { "<>".to_owned() } else { cut(&mail.from, 60) },
        to,
        if mail.size_bytes > 0 { size(mail.size_bytes) } else { String::new() },
        mail.state,
        cut(&mail.verdict, 60)
    )
}
