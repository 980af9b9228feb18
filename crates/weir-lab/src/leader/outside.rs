//! Files that a machine outside the lab found in samples. No machine of the lab can connect to it to get them, so the leader asks for them
//! on the connection on which the machine works, and keeps them in its own store before the report counts.
//!
//! Such a machine is trusted only about its sample: it was given that sample, and may say what is in it, within the same limits as any
//! other machine. A file that it names but does not bring, or brings with another hash or length, does not become a sample, and is a doubt about
//! the one in which it is said to be. If the connection is lost meanwhile, the report does not count yet: the machine brings it again.

use super::received::Received;
use crate::dispatcher::Envelope;
use crate::verdict::{Brief, Child};
use crate::wire::{ChildLimits, Message};
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc;
use weir_store::samples::{SampleHash, Samples};

/// All files of one report must come within this time, or are left out.
const PATIENCE: Duration = Duration::from_secs(120);
/// How many messages are kept meanwhile.
const KEPT_MAX: usize = 4_096;

/// What a leader needs to fetch files from a machine outside. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Outside {
    /// Where they go.
    pub samples: Samples,
    /// How much one report may bring.
    pub limits: ChildLimits,
    awaited: Arc<Mutex<HashMap<SampleHash, u64>>>,
}

impl Outside {
    /// With this store and these limits.
    pub fn new(samples: Samples, limits: ChildLimits) -> Outside {
        Outside { samples, limits, awaited: Arc::default() }
    }

    /// Whether the machine was asked for this file, with this length. It may send it once.
    pub(crate) fn expects(&self, hash: SampleHash, length: u64) -> bool {
        let mut awaited = self.awaited();
        let expected = awaited.get(&hash) == Some(&length);
        if expected {
            awaited.remove(&hash);
        }
        expected
    }

    /// Asks for the files of a report and keeps those that come; the others are removed from the list, and leave a doubt. Other messages that come
    /// meanwhile are handled afterwards, in their order. False if the machine is gone: then nobody knows what it would have brought.
    pub(super) async fn fetch(
        &self,
        brief: &mut Brief,
        out: &mpsc::UnboundedSender<Message>,
        (from, later): (&mut mpsc::Receiver<Received>, &mut VecDeque<Received>),
    ) -> bool {
        let named = brief.children.len();
        self.cut(&mut brief.children);
        let mut wanted: Vec<SampleHash> = Vec::new();
        for child in &brief.children {
            let Ok(hash) = child.sha256.parse::<SampleHash>() else { continue };
            if !wanted.contains(&hash) && !self.has(hash).await {
                self.awaited().insert(hash, child.bytes);
                wanted.push(hash);
                let _ = out.send(Message::Fetch(hash));
            }
        }
        let is_gone = tokio::time::timeout(PATIENCE, await_all(wanted, from, later)).await == Ok(Awaited::Gone);
        self.awaited().clear();
        if is_gone {
            return false;
        }
        for child in std::mem::take(&mut brief.children) {
            match child.sha256.parse() {
                Ok(hash) if self.has(hash).await => brief.children.push(child),
                _ => tracing::warn!(sha256 = child.sha256, "a machine outside names a file that it does not bring"),
            }
        }
        let missing = named - brief.children.len();
        if missing > 0 {
            brief.leave_out(missing, "the machine that found them did not bring them");
        }
        true
    }

    /// Drops the files that exceed what one report may bring.
    fn cut(&self, children: &mut Vec<Child>) {
        let mut left = self.limits.bytes;
        children.truncate(self.limits.count as usize);
        children.retain(|child| match left.checked_sub(child.bytes) {
            Some(rest) => {
                left = rest;
                true
            }
            None => false,
        });
    }

    async fn has(&self, hash: SampleHash) -> bool {
        let samples = self.samples.clone();
        tokio::task::spawn_blocking(move || samples.open_verified(hash).is_ok()).await.unwrap_or(false)
    }

    fn awaited(&self) -> MutexGuard<'_, HashMap<SampleHash, u64>> {
        self.awaited.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How waiting for files ended.
#[derive(Debug, PartialEq, Eq)]
enum Awaited {
    /// Each was sent or reported as missing, or the machine says too much else.
    Answered,
    /// The connection is lost.
    Gone,
}

async fn await_all(
    mut wanted: Vec<SampleHash>,
    from: &mut mpsc::Receiver<Received>,
    later: &mut VecDeque<Received>,
) -> Awaited {
    while !wanted.is_empty() {
        let Some(heard) = from.recv().await else { return Awaited::Gone };
        match heard.envelope {
            Envelope { message: Message::Sample(hash, _) | Message::Missing(hash), .. } => {
                wanted.retain(|other| *other != hash);
            }
            _ if later.len() < KEPT_MAX => later.push_back(heard),
            _ => break,
        }
    }
    Awaited::Answered
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::Level;

    fn child(content: &[u8]) -> Child {
        use sha2::{Digest, Sha256};
        let sha256 = SampleHash(Sha256::digest(content).into()).to_string();
        Child { sha256, bytes: content.len() as u64, name: "x".into(), file_type: "text/plain".into() }
    }

    fn heard(message: Message) -> Received {
        Received { envelope: message.into(), share: None }
    }

    #[tokio::test]
    async fn only_files_that_were_brought_are_samples_and_nothing_else_is_lost_meanwhile() {
        let home = tempfile::tempdir().unwrap();
        let samples = Samples::open(&home.path().join("samples")).unwrap();
        let outside = Outside::new(samples.clone(), ChildLimits { count: 4, bytes: 100 });
        let (out, mut asked) = mpsc::unbounded_channel();
        let (to, mut from) = mpsc::channel(16);
        let children = vec![child(b"here"), child(b"comes"), child(b"never"), child(&[b'x'; 99]), child(b"fifth")];
        let mut brief = Brief { children, ..Brief::default() };
        samples.put(&mut &b"here"[..], 100).unwrap();
        let machine = async {
            let Some(Message::Fetch(first)) = asked.recv().await else { panic!("it asks") };
            let Some(Message::Fetch(second)) = asked.recv().await else { panic!("it asks") };
            assert!(!outside.expects(first, 4), "another length than was said");
            assert!(outside.expects(first, 5) && !outside.expects(first, 5), "once");
            assert!(!outside.expects(SampleHash([1; 32]), 5), "nobody asked for that");
            samples.put(&mut &b"comes"[..], 100).unwrap();
            to.send(heard(Message::Over(7))).await.unwrap();
            to.send(heard(Message::Sample(first, 5))).await.unwrap();
            to.send(heard(Message::Missing(second))).await.unwrap();
            asked
        };
        let mut later = VecDeque::new();
        let (lives, mut asked) = tokio::join!(outside.fetch(&mut brief, &out, (&mut from, &mut later)), machine);
        assert!(asked.try_recv().is_err(), "nothing beyond the limits, and nothing that is here");
        let names: Vec<String> = brief.children.into_iter().map(|child| child.sha256).collect();
        assert_eq!((lives, names), (true, vec![child(b"here").sha256, child(b"comes").sha256]));
        let doubts: Vec<(Level, &str)> = brief.findings.iter().map(|found| (found.level, &*found.text)).collect();
        let why = "files that are not analysed: 3 (the machine that found them did not bring them)";
        assert_eq!((brief.partial, doubts), (true, vec![(Level::Unknown, why)]));
        assert_eq!(later.pop_front().unwrap().envelope.message, Message::Over(7));
        assert!(!outside.expects("00".repeat(32).parse().unwrap(), 5));
    }

    #[tokio::test]
    async fn a_report_whose_machine_is_gone_before_its_files_came_does_not_count() {
        let home = tempfile::tempdir().unwrap();
        let samples = Samples::open(&home.path().join("samples")).unwrap();
        let outside = Outside::new(samples.clone(), ChildLimits { count: 4, bytes: 100 });
        let (out, mut asked) = mpsc::unbounded_channel();
        let (to, mut from) = mpsc::channel(16);
        let mut brief = Brief { children: vec![child(b"comes"), child(b"never")], ..Brief::default() };
        let machine = async {
            let Some(Message::Fetch(first)) = asked.recv().await else { panic!("it asks") };
            to.send(heard(Message::Sample(first, 5))).await.unwrap();
            drop(to);
        };
        let mut later = VecDeque::new();
        let (lives, ()) = tokio::join!(outside.fetch(&mut brief, &out, (&mut from, &mut later)), machine);
        assert!(!lives);
        // Where all files are here already, there is nothing to wait for.
        samples.put(&mut &b"here"[..], 100).unwrap();
        let mut brief = Brief { children: vec![child(b"here")], ..Brief::default() };
        assert!(outside.fetch(&mut brief, &out, (&mut from, &mut later)).await);
        assert_eq!((brief.children.len(), brief.partial, brief.findings.len()), (1, false, 0));
    }
}
