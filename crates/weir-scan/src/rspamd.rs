//! Rspamd over HTTP (`/checkv2`). Off unless an address is configured.
//!
//! Mail is spam when rspamd's action is anything but to let it pass, or its score reaches the required one. Greylisting and soft rejects
//! have no meaning after a message was taken; they decide nothing.

use crate::address::Address;
use crate::content::Content;
use crate::deadline::Deadline;
use crate::inspect::About;
use crate::plain::shown;
use crate::verdict::Outcome;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::header::{HeaderName, HeaderValue};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use std::time::Duration;

/// How a spam scanner is used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Where it is.
    pub address: Address,
    /// What is larger is not sent: spam is small.
    pub size: u64,
    /// How long it may take, by size.
    pub deadline: Deadline,
    /// Whether mail goes on without it when it fails.
    pub optional: bool,
    /// For rspamd's controller; empty for none.
    pub password: String,
}

impl Settings {
    /// The usual ones, at an address.
    pub fn at(address: Address) -> Settings {
        let deadline = Deadline { base: Duration::from_secs(30), per_mib: Duration::from_secs(2) };
        Settings { address, size: 5 << 20, deadline, optional: false, password: String::new() }
    }
}

/// A reply with all its symbols is smaller.
const REPLY_MAX: usize = 1 << 20;
/// Of an answer that is none.
const NONSENSE_SHOWN: usize = 200;
/// As many recipients as matter.
const RECIPIENTS_MAX: usize = 100;

#[derive(Deserialize)]
struct Reply {
    score: f64,
    #[serde(default)]
    required_score: f64,
    #[serde(default)]
    action: String,
}

/// Asks rspamd.
pub(crate) async fn check(settings: &Settings, content: &Content, about: &About) -> Outcome {
    let deadline = settings.deadline.of(content.length());
    let asked = tokio::time::timeout(deadline, ask(settings, content, about)).await;
    match asked.unwrap_or_else(|_| Err(format!("did not answer within {} s", deadline.as_secs()))) {
        Ok(outcome) => outcome,
        Err(why) => Outcome::Failed { problem: format!("rspamd at {} {why}", settings.address) },
    }
}

async fn ask(settings: &Settings, content: &Content, about: &About) -> Result<Outcome, String> {
    let broke = |error: &dyn std::fmt::Display| format!("cannot be asked: {error}");
    let request = request(settings, content, about).map_err(|error| broke(&error))?;
    let stream = settings.address.connect().await.map_err(|error| format!("cannot be reached: {error}"))?;
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
pub(crate) fn read(body: &[u8]) -> Result<Outcome, String> {
    let nonsense = |error: serde_json::Error| shown(&format!("answered nonsense: {error}"), NONSENSE_SHOWN);
    let reply: Reply = serde_json::from_slice(body).map_err(nonsense)?;
    let threshold = reply.required_score;
    // To mark, to reject, to quarantine, to discard, and whatever a site has defined for itself.
    let marked = !matches!(reply.action.as_str(), "" | "no action" | "greylist" | "soft reject");
    let reached = threshold > 0.0 && reply.score >= threshold;
    Ok(if marked || reached { Outcome::Spam { score: reply.score, threshold } } else { Outcome::Clean })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn actions_and_scores() {
        let read = |text: &str| read(text.as_bytes());
        assert_eq!(read(r#"{"score": 1.5, "required_score": 15, "action": "no action"}"#), Ok(Outcome::Clean));
        assert_eq!(read(r#"{"score": 4.5, "required_score": 15, "action": "greylist"}"#), Ok(Outcome::Clean));
        let spam = Outcome::Spam { score: 7.0, threshold: 15.0 };
        assert_eq!(read(r#"{"score": 7, "required_score": 15, "action": "add header"}"#), Ok(spam));
        for action in ["reject", "rewrite subject", "quarantine", "discard", "a site's own"] {
            let text = format!(r#"{{"score": 7, "required_score": 15, "action": "{action}"}}"#);
            assert!(matches!(read(&text), Ok(Outcome::Spam { .. })), "{action}");
        }
        let long = format!(r#"{{"score": "{}\u001b[2J"}}"#, "x".repeat(5000));
        assert!(read(&long).is_err_and(|why| why.len() <= 400 && !why.contains('\u{1b}')));
        assert!(read("{}").is_err() && read("hello").is_err() && read(r#"{"score": "x"}"#).is_err());
    }
}
