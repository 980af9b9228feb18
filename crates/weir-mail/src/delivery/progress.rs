//! Records the progress of a delivery as marks in the spool, and restores it from them after a restart.
//!
//! A mark is one tag and numbers in little endian. A mark that is not ours (another part of the gate wrote it) is passed
//! over. A list of recipients that does not fit into one mark becomes several.

use std::collections::BTreeSet;

use weir_core::time::Instant;

use super::ledger::DeliveryProgress;
use super::message::{Deferral, Job, OutgoingMessage};

/// Indices in one mark; a mark has at most 64 KiB.
const INDICES_MAX: usize = 8000;
const DELIVERED: &[u8; 2] = b"dD";
const FAILED: &[u8; 2] = b"dF";
const DEFERRED: &[u8; 2] = b"dL";
const WARNED: &[u8; 2] = b"dW";

impl DeliveryProgress {
    /// The marks that say this.
    pub fn to_marks(&self) -> Vec<Box<[u8]>> {
        match self {
            DeliveryProgress::Delivered(indices) => list_marks(DELIVERED, indices),
            DeliveryProgress::Failed(indices) => list_marks(FAILED, indices),
            DeliveryProgress::Deferred { recipients, attempts, until } => {
                let head = [&DEFERRED[..], &attempts.to_le_bytes(), &until.0.to_le_bytes()].concat();
                if recipients.is_empty() { vec![head.into()] } else { list_marks(&head, recipients) }
            }
            DeliveryProgress::Warned => vec![WARNED.to_vec().into()],
        }
    }

    /// Reads a mark; nothing if it is not one of ours.
    pub fn from_mark(mark: &[u8]) -> Option<DeliveryProgress> {
        let (tag, rest) = mark.split_first_chunk()?;
        match tag {
            DELIVERED => indices(rest).map(DeliveryProgress::Delivered),
            FAILED => indices(rest).map(DeliveryProgress::Failed),
            DEFERRED => {
                let (attempts, rest) = rest.split_first_chunk()?;
                let (until, rest) = rest.split_first_chunk()?;
                let (attempts, until) = (u32::from_le_bytes(*attempts), Instant(u64::from_le_bytes(*until)));
                Some(DeliveryProgress::Deferred { recipients: indices(rest)?, attempts, until })
            }
            WARNED => Some(DeliveryProgress::Warned),
            _ => None,
        }
    }
}

impl Job {
    /// The message as its marks left it; nothing if no recipient is left.
    pub fn resumed<'a>(message: OutgoingMessage, marks: impl Iterator<Item = &'a [u8]>) -> Option<Job> {
        let mut job = Job::from(message);
        let mut done = BTreeSet::new();
        for progress in marks.filter_map(DeliveryProgress::from_mark) {
            match progress {
                DeliveryProgress::Delivered(indices) | DeliveryProgress::Failed(indices) => done.extend(indices),
                DeliveryProgress::Deferred { recipients, attempts, until } => {
                    let all = || job.message.recipients.iter().map(|recipient| recipient.index).collect();
                    let those = if recipients.is_empty() { all() } else { recipients };
                    let deferral = Deferral { attempts, not_before: until };
                    job.deferred.extend(those.into_iter().map(|index| (index, deferral)));
                }
                DeliveryProgress::Warned => job.warned = true,
            }
        }
        let recipients = std::mem::take(&mut job.message.recipients).into_vec();
        job.message.recipients = recipients.into_iter().filter(|recipient| !done.contains(&recipient.index)).collect();
        job.deferred.retain(|index, _| !done.contains(index));
        (!job.message.recipients.is_empty()).then_some(job)
    }
}

fn list_marks(head: &[u8], indices: &[u32]) -> Vec<Box<[u8]>> {
    let mark = |part: &[u32]| head.iter().copied().chain(part.iter().flat_map(|index| index.to_le_bytes())).collect();
    indices.chunks(INDICES_MAX).map(mark).collect()
}

fn indices(bytes: &[u8]) -> Option<Box<[u32]>> {
    let (whole, rest) = bytes.as_chunks();
    rest.is_empty().then(|| whole.iter().map(|index| u32::from_le_bytes(*index)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delivery::message::Recipient;
    use weir_smtp::envelope::{MailFrom, RcptTo};

    fn message(count: u32) -> OutgoingMessage {
        let to = RcptTo::parse("<a@b>", false).unwrap();
        OutgoingMessage {
            id: "0dh3k9w2m1c8t0qzx4pn".parse().unwrap(),
            owner: "ann".into(),
            sender: MailFrom::default(),
            recipients: (0..count).map(|index| Recipient { index, to: to.clone() }).collect(),
            size_bytes: 1,
            accepted_at: Instant::ZERO,
            sign: false,
            added: "".into(),
            hand_back: false,
            long_lines: false,
        }
    }

    #[test]
    fn marks_and_back() {
        let all = [
            DeliveryProgress::Delivered([1, 70_000].into()),
            DeliveryProgress::Failed([0].into()),
            DeliveryProgress::Deferred { recipients: [7, 8].into(), attempts: 3, until: Instant(99) },
            DeliveryProgress::Deferred { recipients: Box::default(), attempts: 3, until: Instant(99) },
            DeliveryProgress::Warned,
        ];
        for progress in all {
            let marks = progress.to_marks();
            assert_eq!(DeliveryProgress::from_mark(&marks[0]), Some(progress));
        }
        for strange in [&b""[..], b"d", b"decided", b"dD123", b"dL1", b"xD"] {
            assert_eq!(DeliveryProgress::from_mark(strange), None);
        }
    }

    #[test]
    fn a_long_list_fits_into_marks() {
        let marks = DeliveryProgress::Delivered((0..20_000).collect()).to_marks();
        assert!(marks.iter().all(|mark| mark.len() <= weir_store::spool::MARK_MAX));
        let job = Job::resumed(message(20_001), marks.iter().map(|mark| &**mark)).unwrap();
        assert_eq!(job.message.recipients.iter().map(|recipient| recipient.index).collect::<Vec<_>>(), [20_000]);
    }

    #[test]
    fn marks_add_up() {
        let marks = [
            DeliveryProgress::Delivered([0].into()),
            DeliveryProgress::Deferred { recipients: Box::default(), attempts: 1, until: Instant(5) },
            DeliveryProgress::Deferred { recipients: [1].into(), attempts: 2, until: Instant(9) },
            DeliveryProgress::Warned,
        ];
        let marks: Vec<_> = marks.iter().flat_map(DeliveryProgress::to_marks).collect();
        let job = Job::resumed(message(3), marks.iter().map(|mark| &**mark)).unwrap();
        let deferral = |attempts, at| Deferral { attempts, not_before: Instant(at) };
        assert_eq!(job.deferred, [(1, deferral(2, 9)), (2, deferral(1, 5))].into());
        assert_eq!((job.message.recipients.len(), job.warned), (2, true));
        assert_eq!(job.deferral(&job.message.recipients), deferral(2, 5));
        assert_eq!(Job::resumed(message(1), marks.iter().map(|mark| &**mark)), None);
    }
}
