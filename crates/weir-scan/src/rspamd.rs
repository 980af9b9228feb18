//! Rspamd over HTTP (`/checkv2`). Off unless an address is configured.
//!
//! Mail is spam when rspamd's action is anything but to let it pass, or its score reaches the required one. Greylisting and soft rejects
//! have no meaning after a message was taken; they decide nothing.

use crate::address::Address;
use crate::content::Content;
use crate::inspect::About;
use crate::plain::shown;
use crate::scanner::{Answer, Common, Configured, Kind, Later, Scanner, StartError};
use crate::spam::{self, Opinion};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::header::{HeaderName, HeaderValue};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use std::sync::Arc;
use std::time::Duration;
use weir_settings::{Reader, kinds};

/// Its row in the registry.
pub(crate) const KIND: Kind = Kind { name: "rspamd", read: read_settings };

/// How rspamd is used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// As every spam scanner.
    pub spam: spam::Settings,
    /// For its controller; empty for none.
    pub password: String,
}

impl Settings {
    /// The usual ones, at an address.
    pub fn at(address: Address) -> Settings {
        Settings { spam: spam::Settings::at(address), password: String::new() }
    }
}

fn read_settings(reader: &mut Reader<'_>, _: &mut Common) -> Option<Box<dyn Configured>> {
    let settings = reader.section("scan.rspamd", "Rspamd over HTTP; off until it has an address", |s| {
        let spam = spam::Settings::read(s, "Where rspamd's normal worker listens: \"127.0.0.1:11333\"");
        let password = s.key("password", "Its password, where it wants one", kinds::text("", "text"));
        spam.map(|spam| Settings { spam, password })
    });
    settings.map(|settings| Box::new(settings) as Box<dyn Configured>)
}

/// A reply with all its symbols is smaller.
const REPLY_MAX: usize = 1 << 20;
/// Of an answer that is none.
const NONSENSE_SHOWN: usize = 200;
/// As many recipients as matter.
const RECIPIENTS_MAX: usize = 100;

#[derive(Deserialize)]
struct RspamdReply {
    score: f64,
    #[serde(default)]
    required_score: f64,
    #[serde(default)]
    action: String,
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

    fn looks_at(&self, length: u64) -> bool {
        length <= self.settings.spam.size
    }

    fn deadline(&self, length: u64) -> Duration {
        self.settings.spam.deadline.of(length)
    }

    fn scan<'a>(&'a self, content: &'a Content, about: &'a About) -> Later<'a, Answer> {
        Box::pin(async {
            match ask(&self.settings, content, about).await {
                Ok(opinion) => opinion.into(),
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

async fn ask(settings: &Settings, content: &Content, about: &About) -> Result<Opinion, String> {
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
pub(crate) fn read(body: &[u8]) -> Result<Opinion, String> {
    let nonsense = |error: serde_json::Error| shown(&format!("answered nonsense: {error}"), NONSENSE_SHOWN);
    let reply: RspamdReply = serde_json::from_slice(body).map_err(nonsense)?;
    let threshold = reply.required_score;
    // To mark, to reject, to quarantine, to discard, and whatever a site has defined for itself.
    let marked = !matches!(reply.action.as_str(), "" | "no action" | "greylist" | "soft reject");
    let reached = threshold > 0.0 && reply.score >= threshold;
    Ok(if marked || reached { Opinion::Spam { score: reply.score, threshold } } else { Opinion::Ham })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn actions_and_scores() {
        let read = |text: &str| read(text.as_bytes());
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
}
