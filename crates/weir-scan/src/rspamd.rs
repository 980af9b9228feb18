//! Rspamd over HTTP (`/checkv2`). Off unless an address is configured.
//!
//! Its actions are followed as by a mail server that asks it as a milter: `reject`, `quarantine`, `discard` and whatever a site has defined
//! for itself keep a message; `add header` and `rewrite subject` mark it; `soft reject` puts it off; `greylist`, which rspamd itself turns
//! into a soft reject where it means it, and `no action` let it pass. The header fields that it wants are added. With `actions = "ignore"`
//! only its opinion counts: every action except letting the mail pass means spam.

use crate::address::Address;
use crate::content::Content;
use crate::examine::Report;
use crate::inspect::About;
use crate::plain::shown;
use crate::scanner::{Answer, Common, Configured, Later, Scanner, ScannerKind, StartError};
use crate::spam::{self, Opinion};
use crate::verdict::{Finding, Outcome};
use crate::wishes::{Wish, Wishes};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::header::{HeaderName, HeaderValue};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_settings::{Reader, kinds};

/// Its row in the registry.
pub(crate) const KIND: ScannerKind = ScannerKind { name: "rspamd", read: read_settings };

/// How rspamd is used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// As every spam scanner.
    pub spam: spam::Settings,
    /// For its controller; empty for none.
    pub password: String,
    /// Whether its actions and headers are obeyed, or only its opinion counts.
    pub obeyed: bool,
}

impl Settings {
    /// The usual ones, at an address.
    pub fn at(address: Address) -> Settings {
        Settings { spam: spam::Settings::at(address), password: String::new(), obeyed: true }
    }
}

fn read_settings(reader: &mut Reader<'_>, _: &mut Common) -> Option<Box<dyn Configured>> {
    let settings = reader.section("scan.rspamd", "Rspamd over HTTP; off until it has an address", |s| {
        let spam = spam::Settings::read(s, "Where rspamd's normal worker listens: \"127.0.0.1:11333\"");
        let password = s.key("password", "Its password, where it wants one", kinds::text("", "text"));
        let about = "Whether its actions (reject, add header, rewrite subject, soft reject, quarantine) and headers are obeyed, or only \
                     its opinion counts, as scan.on_spam says";
        let obeyed = s.key("actions", about, kinds::choice([("obey", true), ("ignore", false)]));
        spam.map(|spam| Settings { spam, password, obeyed })
    });
    settings.map(|settings| Box::new(settings) as Box<dyn Configured>)
}

/// A reply with all its symbols is smaller.
const REPLY_MAX: usize = 1 << 20;
/// For an answer that is not one of rspamd's protocol.
const NONSENSE_SHOWN: usize = 200;
/// Fields that it may want.
const FIELDS_MAX: usize = 64;
/// As many recipients as matter.
const RECIPIENTS_MAX: usize = 100;

#[derive(Deserialize)]
struct RspamdReply {
    score: f64,
    #[serde(default)]
    required_score: f64,
    #[serde(default)]
    action: String,
    #[serde(default)]
    subject: serde_json::Value,
    #[serde(default)]
    messages: serde_json::Value,
    #[serde(default)]
    milter: serde_json::Value,
}

/// What an answer means.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RspamdAnswer {
    pub(crate) opinion: Opinion,
    pub(crate) wishes: Wishes,
}

impl Configured for Settings {
    fn start(&self) -> Later<'_, Result<Arc<dyn Scanner>, StartError>> {
        Box::pin(async { Ok(Arc::new(Rspamd { settings: self.clone() }) as Arc<dyn Scanner>) })
    }
}

#[derive(Debug)]
struct Rspamd {
    settings: Settings,
}

impl Scanner for Rspamd {
    fn name(&self) -> &'static str {
        KIND.name
    }

    fn judges_senders(&self) -> bool {
        true
    }

    fn looks_at(&self, length: u64) -> bool {
        length <= self.settings.spam.size
    }

    fn deadline(&self, length: u64) -> Duration {
        self.settings.spam.deadline.of(length)
    }

    fn scan<'a>(&'a self, content: &'a Content, about: &'a About) -> Later<'a, Answer> {
        Box::pin(async {
            let begun = Instant::now();
            match ask(&self.settings, content, about).await {
                Ok(RspamdAnswer { opinion, wishes }) if self.settings.obeyed => {
                    obeyed(opinion, wishes, begun.elapsed())
                }
                Ok(RspamdAnswer { opinion, .. }) => opinion.into(),
                Err(why) => Answer::Failed { problem: format!("rspamd at {} {why}", self.settings.spam.address) },
            }
        })
    }

    fn gave_up(&self, waited: Duration) -> String {
        format!("rspamd at {} did not answer within {} s", self.settings.spam.address, waited.as_secs())
    }

    fn is_optional(&self) -> bool {
        self.settings.spam.optional
    }
}

/// An opinion with what it asks for.
fn obeyed(opinion: Opinion, wishes: Wishes, took: Duration) -> Answer {
    let outcome = match opinion {
        Opinion::Ham => Outcome::Clean,
        Opinion::Spam { score, threshold } => Outcome::Spam { score, threshold },
    };
    let finding = Finding { scanner: KIND.name.into(), outcome, place: String::new(), took };
    Answer::Several(Box::new(Report { findings: vec![finding], wishes: Some(wishes), ..Report::default() }))
}

async fn ask(settings: &Settings, content: &Content, about: &About) -> Result<RspamdAnswer, String> {
    let broke = |error: &dyn std::fmt::Display| format!("cannot be asked: {error}");
    let request = request(settings, content, about).map_err(|error| broke(&error))?;
    let stream = settings.spam.address.connect().await.map_err(|error| format!("cannot be reached: {error}"))?;
    let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = handshake.map_err(|error| broke(&error))?;
    let driver = tokio::spawn(connection);
    let answered = async {
        let response = sender.send_request(request).await.map_err(|error| broke(&error))?;
        let status = response.status();
        let body = Limited::new(response.into_body(), REPLY_MAX).collect().await.map_err(|error| broke(&error))?;
        Ok::<_, String>((status, body.to_bytes()))
    };
    let answered = answered.await;
    driver.abort();
    let (status, body) = answered?;
    if status != StatusCode::OK {
        return Err(format!("answered with status {status}"));
    }
    read(&body)
}

fn request(
    settings: &Settings,
    content: &Content,
    about: &About,
) -> Result<Request<Full<Bytes>>, Box<dyn std::error::Error>> {
    let mut body = vec![0; usize::try_from(content.length())?];
    content.read_at(&mut body, 0)?;
    let mut request = Request::post("/checkv2").header("Host", "rspamd").body(Full::new(body.into()))?;
    let headers = request.headers_mut();
    // What does not fit into a header is left out: it came from a stranger.
    let mut set = |name: &'static str, value: &str| {
        if let (false, Ok(value)) = (value.is_empty(), HeaderValue::from_str(value)) {
            headers.append(HeaderName::from_static(name), value);
        }
    };
    set("from", &about.from);
    about.to.iter().take(RECIPIENTS_MAX).for_each(|to| set("rcpt", to));
    set("ip", &about.client.map_or_else(String::new, |ip| ip.to_string()));
    set("helo", &about.helo);
    set("user", about.login.as_deref().unwrap_or(""));
    set("queue-id", &about.id);
    set("password", &settings.password);
    Ok(request)
}

/// Reads the JSON of an answer.
pub(crate) fn read(body: &[u8]) -> Result<RspamdAnswer, String> {
    let nonsense = |error: serde_json::Error| shown(&format!("answered nonsense: {error}"), NONSENSE_SHOWN);
    let reply: RspamdReply = serde_json::from_slice(body).map_err(nonsense)?;
    let threshold = reply.required_score;
    let reached = threshold > 0.0 && reply.score >= threshold;
    let action = match reply.action.as_str() {
        "soft reject" => Wish::Later,
        "" | "no action" | "greylist" if reached => Wish::Keep,
        "" | "no action" | "greylist" => Wish::Pass,
        "add header" | "rewrite subject" => Wish::Mark,
        // To reject, to quarantine, to discard, and whatever a site has defined for itself.
        _ => Wish::Keep,
    };
    let is_spam = matches!(action, Wish::Mark | Wish::Keep) || reached;
    let opinion = if is_spam { Opinion::Spam { score: reply.score, threshold } } else { Opinion::Ham };
    let text = |value: &serde_json::Value| value.as_str().map(str::to_owned);
    let words = text(&reply.messages["smtp_message"]).unwrap_or_else(|| reply.action.clone());
    let subject = text(&reply.subject).filter(|_| reply.action == "rewrite subject");
    let fields = fields(&reply.milter["add_headers"]);
    Ok(RspamdAnswer { opinion, wishes: Wishes { action, words: shown(&words, NONSENSE_SHOWN), fields, subject } })
}

/// The fields that it wants: a value, a value with its place, or a list of these, for each name.
fn fields(wanted: &serde_json::Value) -> Vec<(String, String)> {
    let Some(wanted) = wanted.as_object() else { return Vec::new() };
    let mut found = Vec::new();
    for (name, value) in wanted {
        let values = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
        let texts = values.iter().filter_map(|value| value.as_str().or_else(|| value["value"].as_str()));
        found.extend(texts.take(FIELDS_MAX).map(|text| (name.clone(), text.to_owned())));
    }
    found.truncate(FIELDS_MAX);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn actions_and_scores() {
        let read = |text: &str| read(text.as_bytes()).map(|reading| reading.opinion);
        assert_eq!(read(r#"{"score": 1.5, "required_score": 15, "action": "no action"}"#), Ok(Opinion::Ham));
        assert_eq!(read(r#"{"score": 4.5, "required_score": 15, "action": "greylist"}"#), Ok(Opinion::Ham));
        let spam = Opinion::Spam { score: 7.0, threshold: 15.0 };
        assert_eq!(read(r#"{"score": 7, "required_score": 15, "action": "add header"}"#), Ok(spam));
        for action in ["reject", "rewrite subject", "quarantine", "discard", "a site's own"] {
            let text = format!(r#"{{"score": 7, "required_score": 15, "action": "{action}"}}"#);
            assert!(matches!(read(&text), Ok(Opinion::Spam { .. })), "{action}");
        }
        let long = format!(r#"{{"score": "{}\u001b[2J"}}"#, "x".repeat(5000));
        assert!(read(&long).is_err_and(|why| why.len() <= 400 && !why.contains('\u{1b}')));
        assert!(read("{}").is_err() && read("hello").is_err() && read(r#"{"score": "x"}"#).is_err());
    }

    #[test]
    fn what_it_asks_for() {
        let wish = |action: &str, score: u32| {
            let text = format!(r#"{{"score": {score}, "required_score": 15, "action": "{action}"}}"#);
            read(text.as_bytes()).unwrap().wishes.action
        };
        for (action, wanted) in [
            ("no action", Wish::Pass),
            ("greylist", Wish::Pass),
            ("soft reject", Wish::Later),
            ("add header", Wish::Mark),
            ("rewrite subject", Wish::Mark),
            ("reject", Wish::Keep),
            ("quarantine", Wish::Keep),
            ("discard", Wish::Keep),
            ("a site's own", Wish::Keep),
        ] {
            assert_eq!(wish(action, 4), wanted, "{action}");
        }
        assert_eq!(wish("no action", 20), Wish::Keep);
        let reply = r#"{"score": 7, "required_score": 15, "action": "rewrite subject", "subject": "[SPAM] hi",
            "messages": {"smtp_message": "try\u001b later"}, "milter": {"remove_headers": {"X-Spam": 0},
            "add_headers": {"X-Spamd-Bar": {"value": "+++", "order": 0}, "X-Spam": "Yes",
            "X-Two": [{"value": "one"}, "two", 7], "X-Odd": 7}}}"#;
        let Wishes { words, fields, subject, .. } = read(reply.as_bytes()).unwrap().wishes;
        let names: Vec<String> = fields.iter().map(|(name, value)| format!("{name}={value}")).collect();
        assert_eq!(names, ["X-Spam=Yes", "X-Spamd-Bar=+++", "X-Two=one", "X-Two=two"]);
        assert_eq!((subject.as_deref(), words.contains('\u{1b}')), (Some("[SPAM] hi"), false));
        let odd = r#"{"score": 7, "action": "add header", "subject": 7, "messages": [], "milter": "x"}"#;
        assert_eq!(read(odd.as_bytes()).unwrap().wishes.fields, []);
    }
}
