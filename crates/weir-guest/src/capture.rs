//! The packets of a sample, as a pcap file.
//!
//! Every address is this machine (`guest/init`), so everything that a sample sends and receives passes the loopback interface, where it is
//! copied. The size is bounded: later packets are not kept, and the report says so.

use rustix::fd::OwnedFd;
use rustix::net::{AddressFamily, Protocol, RecvFlags, SocketFlags, SocketType, recv, socket_with};
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, SystemTime};
use weir_guest::behaviour::Capture;
use weir_guest::pcap::{FILE_MAX, HEADER, PACKET_MAX, encoded, record};

/// IPv4 and IPv6, as Ethernet numbers them. A socket for one of these gets each packet once: when it arrives, not when it is sent.
const PROTOCOLS: [u16; 2] = [0x0800, 0x86dd];
/// How often a capture that is full looks whether it was begun anew.
const FULL_PAUSE: Duration = Duration::from_millis(100);
const STACK: usize = 128 * 1024;

/// Listens on the loopback interface for as long as the guest lives; keeps what it hears while a sample runs.
#[derive(Debug)]
pub(crate) struct Recorder {
    taps: Vec<Arc<Tap>>,
    kept: Arc<Mutex<KeptPacket>>,
}

#[derive(Debug)]
struct Tap(OwnedFd);

#[derive(Debug, Default)]
struct KeptPacket {
    is_on: bool,
    bytes: Vec<u8>,
    packets: u32,
    is_full: bool,
}

impl Recorder {
    /// A kernel without packet sockets gives no capture, and everything else goes on.
    pub(crate) fn start() -> Recorder {
        let taps: Vec<Arc<Tap>> = PROTOCOLS.into_iter().filter_map(Tap::open).map(Arc::new).collect();
        let kept = Arc::<Mutex<KeptPacket>>::default();
        for tap in &taps {
            let (tap, kept) = (Arc::clone(tap), Arc::clone(&kept));
            let _ = thread::Builder::new().stack_size(STACK).spawn(move || tap.listen(&kept));
        }
        Recorder { taps, kept }
    }

    /// Hears nothing.
    pub(crate) fn none() -> Recorder {
        Recorder { taps: Vec::new(), kept: Arc::default() }
    }

    /// A sample is about to run: what was said before is not its own.
    pub(crate) fn begin(&self) {
        let mut kept = lock(&self.kept);
        self.taps.iter().for_each(|tap| tap.drain(&mut kept));
        *kept = KeptPacket { is_on: true, ..KeptPacket::default() };
    }

    /// What it said and heard; nothing if that was nothing.
    pub(crate) fn end(&self) -> Option<Capture> {
        let mut kept = lock(&self.kept);
        self.taps.iter().for_each(|tap| tap.drain(&mut kept));
        let KeptPacket { bytes, packets, is_full, .. } = std::mem::take(&mut *kept);
        (packets > 0).then(|| Capture { pcap: encoded(&bytes), packets, cut: is_full })
    }
}

impl Tap {
    fn open(protocol: u16) -> Option<Tap> {
        let protocol = NonZeroU32::new(protocol.to_be().into()).map(Protocol::from_raw);
        let socket = socket_with(AddressFamily::PACKET, SocketType::RAW, SocketFlags::CLOEXEC, protocol);
        socket.ok().map(Tap)
    }

    /// Copies packets as they come. The end of a capture copies the last ones itself, so that none is missed.
    fn listen(&self, kept: &Mutex<KeptPacket>) {
        let mut first = [0; 1];
        loop {
            if recv(&self.0, &mut first, RecvFlags::PEEK).is_err() {
                thread::sleep(FULL_PAUSE);
            }
            if lock(kept).is_full {
                // The kernel throws away what nobody fetches, which costs less than fetching it.
                thread::sleep(FULL_PAUSE);
                continue;
            }
            self.drain(&mut lock(kept));
        }
    }

    /// Takes what is there.
    fn drain(&self, kept: &mut KeptPacket) {
        let mut packet = vec![0; PACKET_MAX];
        while !kept.is_full
            && let Ok((copied, length)) = recv(&self.0, &mut packet[..], RecvFlags::DONTWAIT | RecvFlags::TRUNC)
        {
            let copied = packet.get(..copied).unwrap_or_default();
            kept.add(copied, length, SystemTime::now());
        }
    }
}

impl KeptPacket {
    fn add(&mut self, packet: &[u8], length: usize, at: SystemTime) {
        if !self.is_on {
            return;
        }
        let record = record(packet, length, at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default());
        if HEADER.len() + self.bytes.len() + record.len() > FILE_MAX {
            self.is_full = true;
            return;
        }
        self.bytes.extend(record);
        self.packets += 1;
    }
}

fn lock(kept: &Mutex<KeptPacket>) -> MutexGuard<'_, KeptPacket> {
    kept.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_guest::pcap;

    fn recorder() -> Recorder {
        Recorder { taps: Vec::new(), kept: Arc::default() }
    }

    #[test]
    fn a_capture_has_what_was_said_while_a_sample_ran() {
        let recorder = recorder();
        let now = SystemTime::UNIX_EPOCH + Duration::from_micros(1_700_000_000_000_017);
        lock(&recorder.kept).add(b"before it", 9, now);
        recorder.begin();
        assert_eq!(recorder.end(), None, "silence is no capture");
        recorder.begin();
        lock(&recorder.kept).add(b"hello", 5, now);
        lock(&recorder.kept).add(b"cut", 70_000, now);
        let capture = recorder.end().unwrap();
        assert_eq!((capture.packets, capture.cut), (2, false));
        let file = pcap::checked(&capture.pcap).unwrap();
        assert_eq!(file.len(), HEADER.len() + 2 * 16 + 5 + 3);
        lock(&recorder.kept).add(b"after it", 8, now);
        assert_eq!(recorder.end(), None);
    }

    #[test]
    fn a_flood_ends_at_the_bound_and_is_said_to() {
        let recorder = recorder();
        recorder.begin();
        for _ in 0..100_000 {
            lock(&recorder.kept).add(&[7; 1400], 1400, SystemTime::now());
        }
        let capture = recorder.end().unwrap();
        let file = pcap::checked(&capture.pcap).unwrap();
        assert!(capture.cut && file.len() <= FILE_MAX && file.len() > FILE_MAX - 1500, "{}", file.len());
    }
}
