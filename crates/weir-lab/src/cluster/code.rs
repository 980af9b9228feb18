//! Joining by a code that a person can read out: the newcomer asks its network who knows the code, and one of the lab answers.
//!
//! A code is twenty letters and digits, 100 random bits, so its hash can be broadcast: nobody can find the code from it. The newcomer
//! broadcasts `weir-lab 1 seek NAME-OF-THE-CODE NONCE`. A machine that may admit others looks the name up and answers `weir-lab 1 found
//! ADDRESS:PORT FINGERPRINT PROOF`. The proof is made with a key derived from the code, and covers the nonce: somebody who only hears the
//! question cannot lead the newcomer into another lab. Then the newcomer joins as with a token.

use super::identity::{hex, unhex};
use super::local_net::LocalNet;
use ring::hmac;
use sha2::{Digest, Sha256};
use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::UdpSocket;
use tokio::time::Instant;
use weir_store::records::{Records, RecordsError};

/// Letters and digits that cannot be mistaken for each other.
const ALPHABET: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";
/// The length of a code.
const LENGTH: usize = 20;
/// The longest datagram of this kind.
pub(crate) const SEEK_MAX: usize = 256;
const SEEK: &str = "weir-lab 1 seek ";
const FOUND: &str = "weir-lab 1 found ";
/// How often, and for how long, a newcomer asks.
const ASK_EVERY: Duration = Duration::from_millis(500);
const PATIENCE: Duration = Duration::from_secs(10);

/// A code, without the hyphens between its groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Code(String);

impl Code {
    pub(crate) fn random() -> io::Result<Code> {
        let mut random = [0; LENGTH];
        weir_store::random(&mut random)?;
        let letters = random.iter().map(|byte| char::from(ALPHABET[usize::from(byte & 31)]));
        Ok(Code(letters.collect()))
    }

    /// A code as somebody typed it: with lower case, hyphens, and letters that look alike; None if it is not a code.
    pub(crate) fn read(typed: &str) -> Option<Code> {
        let letter = |c: char| match c.to_ascii_uppercase() {
            'O' => '0',
            'I' | 'L' => '1',
            other => other,
        };
        let text: String = typed.trim().chars().filter(|c| !matches!(c, '-' | ' ')).map(letter).collect();
        let fits = text.len() == LENGTH && text.bytes().all(|byte| ALPHABET.contains(&byte));
        fits.then_some(Code(text))
    }

    /// As it is shown: `4K7QF-2MXD9-PATVW-3H8YZ`.
    pub(crate) fn shown(&self) -> String {
        let groups: Vec<&str> = (0..LENGTH / 5).map(|group| &self.0[group * 5..group * 5 + 5]).collect();
        groups.join("-")
    }

    /// What the newcomer shows when it joins.
    pub(crate) fn secret(&self) -> &str {
        &self.0
    }

    /// The part of it that may be sent openly.
    fn name(&self) -> String {
        hex(&Sha256::digest(format!("weir-lab seek {}", self.0)))
    }

    /// The key with which an answer is proved.
    fn key(&self) -> [u8; 32] {
        Sha256::digest(format!("weir-lab found {}", self.0)).into()
    }
}

/// Allows machines of the lab to answer a newcomer who has this code, until the given time.
pub(crate) async fn publish(records: &Records, code: &Code, until: i64, now: i64) -> Result<(), RecordsError> {
    let purpose = format!("lab-seek {}", hex(&code.key()));
    records.tokens().add(&code.name(), &purpose, until, now).await
}

/// The answer to a datagram of a machine that seeks a lab: the address `at` and the lab's fingerprint. None if it is not such a datagram, or if
/// nobody was invited with that code.
pub(crate) async fn answer(
    records: &Records,
    (at, fingerprint): (SocketAddr, &str),
    datagram: &[u8],
    now: i64,
) -> Option<String> {
    let (name, nonce) = read_seek(datagram)?;
    let purpose = records.tokens().purpose(name, now).await.ok()??;
    let key = unhex(purpose.strip_prefix("lab-seek ")?)?;
    let found = format!("{FOUND}{at} {fingerprint}");
    let proof = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &key), format!("{found} {nonce}").as_bytes());
    Some(format!("{found} {}", hex(proof.as_ref())))
}

/// Parses a datagram that seeks a lab: the name of its code, and its nonce.
pub(crate) fn read_seek(datagram: &[u8]) -> Option<(&str, &str)> {
    let text = std::str::from_utf8(datagram.get(..).filter(|bytes| bytes.len() <= SEEK_MAX)?).ok()?;
    let (name, nonce) = text.strip_prefix(SEEK)?.split_once(' ')?;
    let is_hex = |text: &str, bytes: usize| text.len() == 2 * bytes && unhex(text).is_some();
    (is_hex(name, 32) && is_hex(nonce, 16)).then_some((name, nonce))
}

/// The address and fingerprint of the lab in an answer; None if it is not an answer to this question from a machine that knows the code.
fn read_found(code: &Code, nonce: &str, datagram: &[u8]) -> Option<(SocketAddr, String)> {
    let text = std::str::from_utf8(datagram).ok()?;
    let (found, proof) = text.rsplit_once(' ')?;
    let key = hmac::Key::new(hmac::HMAC_SHA256, &code.key());
    hmac::verify(&key, format!("{found} {nonce}").as_bytes(), &unhex(proof)?).ok()?;
    let (at, fingerprint) = found.strip_prefix(FOUND)?.split_once(' ')?;
    Some((at.parse().ok()?, fingerprint.to_owned()))
}

/// Asks the network for the lab of this code; returns the token for joining it.
pub(crate) async fn seek(code: &Code, net: &LocalNet) -> io::Result<Option<String>> {
    let (udp, all) = (net.mouth().await?, net.all()?);
    seek_at(code, &udp, all).await
}

async fn seek_at(code: &Code, udp: &UdpSocket, all: SocketAddr) -> io::Result<Option<String>> {
    let mut nonce = [0; 16];
    weir_store::random(&mut nonce)?;
    let nonce = hex(&nonce);
    let question = format!("{SEEK}{} {nonce}", code.name());
    let end = Instant::now() + PATIENCE;
    let mut piece = [0; 2 * SEEK_MAX];
    while Instant::now() < end {
        udp.send_to(question.as_bytes(), all).await?;
        let again = Instant::now() + ASK_EVERY;
        while let Ok(heard) = tokio::time::timeout_at(again, udp.recv_from(&mut piece)).await {
            let Ok((length, _)) = heard else { continue };
            let answer = piece.get(..length).and_then(|datagram| read_found(code, &nonce, datagram));
            if let Some((at, fingerprint)) = answer {
                return Ok(Some(format!("{at}/{fingerprint}/{}", code.secret())));
            }
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_read_as_people_type_them() {
        let code = Code::random().unwrap();
        assert_ne!(code, Code::random().unwrap());
        let shown = code.shown();
        assert_eq!((shown.len(), shown.matches('-').count()), (LENGTH + 3, 3));
        for typed in [shown.clone(), shown.to_lowercase(), format!(" {} ", shown.replace('-', " ")), code.0.clone()] {
            assert_eq!(Code::read(&typed), Some(code.clone()), "{typed}");
        }
        assert_eq!(Code::read("ooooo-iiiii-lllll-00000"), Some(Code("00000111111111100000".into())));
        for wrong in ["", "4K7QF", &format!("{shown}X"), &shown.replace(&shown[..1], "U"), "10.7.0.1:7300/ab/cd"] {
            assert_eq!(Code::read(wrong), None, "{wrong}");
        }
    }

    #[tokio::test]
    async fn only_who_knows_the_code_leads_a_newcomer_anywhere() {
        let home = tempfile::tempdir().unwrap();
        let records = Records::sqlite(&home.path().join("records.db")).await.unwrap();
        let (code, other) = (Code::random().unwrap(), Code::random().unwrap());
        publish(&records, &code, 1_000, 0).await.unwrap();
        let (at, nonce) = ("10.7.0.1:7300".parse().unwrap(), "ab".repeat(16));
        let question = format!("{SEEK}{} {nonce}", code.name());
        let answered = answer(&records, (at, "f00d"), question.as_bytes(), 5).await.unwrap();
        assert!(!answered.contains(code.secret()) && !question.contains(code.secret()));
        assert_eq!(read_found(&code, &nonce, answered.as_bytes()), Some((at, "f00d".into())));
        assert!(answered.len() <= SEEK_MAX, "an answer is not much longer than the question");

        for (code, nonce, text) in [
            (&other, nonce.clone(), answered.clone()),
            (&code, "cd".repeat(16), answered.clone()),
            (&code, nonce.clone(), answered.replace("10.7.0.1", "10.7.0.9")),
            (&code, nonce.clone(), answered.replace("f00d", "beef")),
            (&code, nonce.clone(), String::new()),
        ] {
            assert_eq!(read_found(code, &nonce, text.as_bytes()), None, "{text}");
        }
        let of_other = format!("{SEEK}{} {nonce}", other.name());
        for (question, now) in [(of_other, 5), (question.clone(), 2_000), (question[..60].to_owned(), 5)] {
            assert_eq!(answer(&records, (at, "f00d"), question.as_bytes(), now).await, None, "{question}");
        }
        assert!(records.tokens().purpose(&code.name(), 5).await.unwrap().is_some(), "asking uses nothing up");
    }

    #[tokio::test]
    async fn a_newcomer_hears_the_true_answer_among_false_ones() {
        let home = tempfile::tempdir().unwrap();
        let records = Records::sqlite(&home.path().join("records.db")).await.unwrap();
        let code = Code::random().unwrap();
        publish(&records, &code, 1_000, 0).await.unwrap();
        let (lab, newcomer) =
            (UdpSocket::bind("127.0.0.1:0").await.unwrap(), UdpSocket::bind("127.0.0.1:0").await.unwrap());
        let there = lab.local_addr().unwrap();
        let serve = async {
            let mut piece = [0; SEEK_MAX];
            loop {
                let (length, from) = lab.recv_from(&mut piece).await.unwrap();
                let true_answer =
                    answer(&records, ("10.7.0.1:7300".parse().unwrap(), "f00d"), &piece[..length], 5).await;
                let false_answer = format!("{FOUND}10.7.0.66:7300 beef {}", "00".repeat(32));
                for text in [false_answer, true_answer.unwrap()] {
                    lab.send_to(text.as_bytes(), from).await.unwrap();
                }
            }
        };
        let token = tokio::select! {
            token = seek_at(&code, &newcomer, there) => token.unwrap(),
            () = serve => None,
        };
        assert_eq!(token, Some(format!("10.7.0.1:7300/f00d/{}", code.secret())));
    }
}
