//! SpamAssassin's spamd (`CHECK`, protocol 1.5). Off unless an address is configured.

use crate::address::Address;
use crate::content::Content;
use crate::inspect::About;
use crate::plain::shown;
use crate::scanner::{Answer, Common, Configured, Later, Scanner, ScannerKind, StartError, Wants};
use crate::spam::{self, Opinion};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use weir_settings::Reader;

/// Its row in the registry.
pub(crate) const KIND: ScannerKind = ScannerKind { name: "spamassassin", read: read_settings };

/// The head of an answer to CHECK is its whole.
const REPLY_MAX: u64 = 64 << 10;

/// How spamd is used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// As every spam scanner.
    pub spam: spam::Settings,
}

impl Settings {
    /// The usual ones, at an address.
    pub fn at(address: Address) -> Settings {
        Settings { spam: spam::Settings::at(address) }
    }
}

fn read_settings(reader: &mut Reader<'_>, _: &mut Common) -> Option<Box<dyn Configured>> {
    let spam = reader.section("scan.spamassassin", "SpamAssassin's spamd; off until it has an address", |s| {
        spam::Settings::read(s, "Where spamd listens: \"127.0.0.1:783\"")
    });
    spam.map(|spam| Box::new(Settings { spam }) as Box<dyn Configured>)
}

impl Configured for Settings {
    fn start(&self) -> Later<'_, Result<Arc<dyn Scanner>, StartError>> {
        Box::pin(async { Ok(Arc::new(Spamd { settings: self.spam.clone() }) as Arc<dyn Scanner>) })
    }

    /// SpamAssassin learns from our Received field who the client is.
    fn wants(&self) -> Wants {
        Wants::MessageWithTrace
    }
}

#[derive(Debug)]
struct Spamd {
    settings: spam::Settings,
}

impl Scanner for Spamd {
    fn name(&self) -> &'static str {
        KIND.name
    }

    fn judges_senders(&self) -> bool {
        true
    }

    fn looks_at(&self, length: u64) -> bool {
        length <= self.settings.size
    }

    fn deadline(&self, length: u64) -> Duration {
        self.settings.deadline.of(length)
    }

    fn scan<'a>(&'a self, content: &'a Content, about: &'a About) -> Later<'a, Answer> {
        Box::pin(async {
            match ask(&self.settings, content, about).await {
                Ok(opinion) => opinion.into(),
                Err(why) => Answer::Failed { problem: format!("spamd at {} {why}", self.settings.address) },
            }
        })
    }

    fn gave_up(&self, waited: Duration) -> String {
        format!("spamd at {} did not answer within {} s", self.settings.address, waited.as_secs())
    }

    fn is_optional(&self) -> bool {
        self.settings.optional
    }
}

async fn ask(settings: &spam::Settings, content: &Content, about: &About) -> Result<Opinion, String> {
    let broke = |error: std::io::Error| format!("cannot be asked: {error}");
    let mut bytes = format!("CHECK SPAMC/1.5\r\nContent-length: {}\r\n", content.length()).into_bytes();
    // One recipient has preferences of their own; several have not.
    if let [to] = about.to.as_slice()
        && to.bytes().all(|byte| byte.is_ascii_graphic())
    {
        bytes.extend(format!("User: {to}\r\n").into_bytes());
    }
    bytes.extend_from_slice(b"\r\n");
    let head = bytes.len();
    bytes.resize(head + content.length() as usize, 0);
    content.read_at(&mut bytes[head..], 0).map_err(broke)?;
    let mut stream = settings.address.connect().await.map_err(|error| format!("cannot be reached: {error}"))?;
    stream.write_all(&bytes).await.map_err(broke)?;
    let mut reply = Vec::new();
    stream.take(REPLY_MAX).read_to_end(&mut reply).await.map_err(broke)?;
    read(&reply)
}

/// `SPAMD/1.1 0 EX_OK`, then among others `Spam: True ; 15.0 / 5.0`.
pub(crate) fn read(reply: &[u8]) -> Result<Opinion, String> {
    let nonsense = || "answered nonsense".to_owned();
    let text = std::str::from_utf8(reply).map_err(|_| nonsense())?;
    let mut lines = text.split("\r\n");
    let mut status = lines.next().unwrap_or("").split_whitespace();
    let (protocol, code, words) =
        (status.next().unwrap_or(""), status.next().unwrap_or(""), status.next().unwrap_or(""));
    if !protocol.starts_with("SPAMD/") {
        return Err(nonsense());
    }
    if code != "0" {
        return Err(format!("answered {}", shown(words, 40)));
    }
    let (verdict, numbers) =
        lines.find_map(|line| line.strip_prefix("Spam: ")?.split_once(';')).ok_or_else(nonsense)?;
    let (score, threshold) = numbers.split_once('/').ok_or_else(nonsense)?;
    let number = |text: &str| text.trim().parse::<f64>().ok().filter(|number| number.is_finite()).ok_or_else(nonsense);
    let (score, threshold) = (number(score)?, number(threshold)?);
    match verdict.trim() {
        "True" | "Yes" => Ok(Opinion::Spam { score, threshold }),
        "False" | "No" => Ok(Opinion::Ham),
        _ => Err(nonsense()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers() {
        let spam = Opinion::Spam { score: 15.5, threshold: 5.0 };
        assert_eq!(read(b"SPAMD/1.1 0 EX_OK\r\nSpam: True ; 15.5 / 5.0\r\n\r\n"), Ok(spam));
        assert_eq!(
            read(b"SPAMD/1.1 0 EX_OK\r\nContent-length: 0\r\nSpam: False ; -1.0 / 5.0\r\n\r\n"),
            Ok(Opinion::Ham)
        );
        assert_eq!(read(b"SPAMD/1.0 76 Bad header line: x\r\n"), Err("answered Bad".into()));
        for nonsense in [
            "",
            "SPAMD/1.1 0 EX_OK\r\n",
            "HTTP/1.1 200 OK\r\n",
            "SPAMD/1.1 0 EX_OK\r\nSpam: Maybe ; 1 / 2\r\n",
            "SPAMD/1.1 0 EX_OK\r\nSpam: True ; x / NaN\r\n",
        ] {
            assert!(read(nonsense.as_bytes()).is_err(), "{nonsense:?}");
        }
    }
}
