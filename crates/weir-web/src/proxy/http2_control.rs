//! Counts the frames of an HTTP/2 connection that ask for nothing.
//!
//! Every SETTINGS and every PING has to be answered, PRIORITY and unknown frames have to be read, and none of them is part of a request: a
//! client can keep a processor busy with them for ever (CVE-2019-9512, -9515). The same goes for WINDOW_UPDATE, of which a client needs
//! only as many as fit the data that it is sent. The watch follows frames by their lengths and reads nothing else of them. What it cannot
//! follow, h2 refuses too.

/// Watches the control frames of one connection.
#[derive(Debug)]
pub(super) struct ControlWatch {
    /// Octets to skip before the next frame's head: those of the preface, or of a payload.
    skip: u64,
    /// The beginning of a frame's head.
    head: [u8; HEAD],
    kept: usize,
    /// When this period began, and in it: frames that ask for nothing, and requests.
    since: u64,
    idle: u32,
    requests: u32,
    /// Frames that open a window, and octets that the client was sent.
    window_updates: u64,
    sent: u64,
}

/// The result of the watch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Flow {
    Usual,
    /// Far more frames than the requests could explain.
    Flood,
}

/// The length of a frame's head, and of the preface.
const HEAD: usize = 9;
const PREFACE: u64 = 24;

const PERIOD_MS: u64 = 10_000;
/// How many frames without a request a connection may send within a period, and how many more with every request.
const FREE: u32 = 1_000;
const WITH_REQUEST: u32 = 20;
/// A client may open its windows once for this many octets that it is sent. Most wait for 16 KiB and more.
const SENT_BYTES: u64 = 512;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;

impl Default for ControlWatch {
    fn default() -> ControlWatch {
        ControlWatch {
            skip: PREFACE,
            head: [0; HEAD],
            kept: 0,
            since: 0,
            idle: 0,
            requests: 0,
            window_updates: 0,
            sent: 0,
        }
    }
}

impl ControlWatch {
    /// This many octets were sent.
    pub(super) fn sent(&mut self, octets: usize) {
        self.sent = self.sent.saturating_add(octets as u64);
    }

    /// Octets that came in, and when.
    pub(super) fn see(&mut self, mut octets: &[u8], now_ms: u64) -> Flow {
        if now_ms.saturating_sub(self.since) > PERIOD_MS {
            (self.since, self.idle, self.requests, self.window_updates) = (now_ms, 0, 0, 0);
            // Windows may also be opened for what was sent a moment ago.
            self.sent /= 2;
        }
        while !octets.is_empty() {
            let skipped = usize::try_from(self.skip).unwrap_or(usize::MAX).min(octets.len());
            self.skip -= skipped as u64;
            octets = &octets[skipped..];
            let taken = (HEAD - self.kept).min(octets.len());
            self.head[self.kept..self.kept + taken].copy_from_slice(&octets[..taken]);
            self.kept += taken;
            octets = &octets[taken..];
            if self.kept == HEAD {
                self.frame();
            }
        }
        let most = FREE.saturating_add(self.requests.saturating_mul(WITH_REQUEST));
        let windows_most = u64::from(most) + self.sent / SENT_BYTES;
        if self.idle > most || self.window_updates > windows_most { Flow::Flood } else { Flow::Usual }
    }

    fn frame(&mut self) {
        let [a, b, c, kind, ..] = self.head;
        let length = u32::from_be_bytes([0, a, b, c]);
        (self.skip, self.kept) = (length.into(), 0);
        match kind {
            HEADERS => self.requests = self.requests.saturating_add(1),
            // Octets of bodies are limited by windows, and continuations by h2; but a frame without octets has no purpose.
            DATA | CONTINUATION if length > 0 => {}
            WINDOW_UPDATE => self.window_updates += 1,
            _ => self.idle = self.idle.saturating_add(1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, length: u8) -> Vec<u8> {
        [vec![0, 0, length, kind, 0, 0, 0, 0, 1], vec![7; length.into()]].concat()
    }

    fn watch(frames: &[u8], piece: usize) -> Flow {
        let mut watch = ControlWatch::default();
        let all = [&[0; PREFACE as usize][..], frames].concat();
        all.chunks(piece).map(|octets| watch.see(octets, 1)).last().unwrap()
    }

    #[test]
    fn only_floods_are_floods() {
        for piece in [1, 7, 9, 100, 1 << 20] {
            for (kind, length) in [(4, 0), (4, 6), (6, 8), (2, 5), (0, 0), (99, 3), (8, 4), (3, 4)] {
                let most = FREE as usize;
                assert_eq!(watch(&frame(kind, length).repeat(most), piece), Flow::Usual, "{kind} {piece}");
                assert_eq!(watch(&frame(kind, length).repeat(most + 1), piece), Flow::Flood, "{kind} {piece}");
            }
            for (kind, length) in [(0, 9), (1, 9)] {
                assert_eq!(watch(&frame(kind, length).repeat(5_000), piece), Flow::Usual, "{kind} {piece}");
            }
        }
        let with_requests = [frame(1, 30), frame(6, 8).repeat(15)].concat().repeat(500);
        assert_eq!(watch(&with_requests, 64), Flow::Usual);
    }

    #[test]
    fn windows_are_opened_for_what_is_sent() {
        let mut watch = ControlWatch::default();
        watch.see(&[0; PREFACE as usize], 1);
        // A gigabyte within a period, and two frames for every 16 KiB of it; then the period is over, and some frames are late.
        for piece in 0..65_536_u64 {
            watch.sent(16 << 10);
            assert_eq!(watch.see(&frame(8, 4).repeat(2), 1 + piece / 7), Flow::Usual);
        }
        assert_eq!(watch.see(&frame(8, 4).repeat(4_000), 2 * PERIOD_MS), Flow::Usual);
        let mut idle = ControlWatch::default();
        idle.see(&[0; PREFACE as usize], 1);
        idle.sent(1_000);
        assert_eq!(idle.see(&frame(8, 4).repeat(2_000), 1), Flow::Flood);
    }

    #[test]
    fn what_was_long_ago_is_forgotten() {
        let mut watch = ControlWatch::default();
        watch.see(&[0; PREFACE as usize], 1);
        for round in 0..20 {
            assert_eq!(watch.see(&frame(6, 8).repeat(900), round * (PERIOD_MS + 1)), Flow::Usual);
        }
    }
}
