//! A client's connection: who the client is, which requests it has under way, and the reading and writing of its octets.
//!
//! Times are in milliseconds of the thread's clock, which a sweep moves on; the sweep also finds connections that are
//! too slow or idle for too long, so that no connection needs a timer of its own.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use weir_http1::framing_watch::FramingWatch;

use super::connection_count::CountedConnection;
use super::http2_control::{ControlWatch, Flow};
use super::interim_responses::InterimResponses;
use super::limits::Limits;
use super::origin::Origin;
use super::presence::{ConnectionEnd, Presence};
use crate::admission::Reader;
use crate::identity::{Identities, PeerKeys};
use std::net::IpAddr;

/// What is known of a connection.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) peer: IpAddr,
    pub(super) origin: Origin,
    pub(super) identities: Identities,
    pub(super) peer_keys: PeerKeys,
    /// Every request is redirected to https, at this port.
    pub(super) redirect: Option<u16>,
    pub(super) clock: Arc<AtomicU64>,
    /// Those of the plain request that is being served.
    pub(super) interim: InterimResponses,
    /// A head with two lengths was seen.
    both_lengths: AtomicBool,
    /// A length was seen that cannot be followed.
    unclear_length: AtomicBool,
    /// A head was longer than it may be.
    long_head: AtomicBool,
    /// Since when a head is incomplete; 0 if none is.
    head_since: AtomicU64,
    /// Since when the client reads nothing; 0 if it does read.
    stuck_since: AtomicU64,
    /// Since when its response keeps a server waiting (0 if none does), and for how long earlier ones did.
    blocks_since: AtomicU64,
    blocked_ms: AtomicU64,
    /// When it was last given a cookie; 0 if never.
    offered: AtomicU64,
    pub(super) presence: Arc<Presence>,
    /// How many of the requests in progress wait for a slot.
    waiting: AtomicU32,
    requests: AtomicU32,
    /// Requests that it gave up, and since when they are counted.
    given_up: AtomicU32,
    given_up_since: AtomicU64,
    _counted: CountedConnection,
}

/// A connection that was accepted.
#[derive(Debug)]
pub(super) struct Accepted {
    pub(super) peer: IpAddr,
    pub(super) origin: Origin,
    pub(super) identities: Identities,
    pub(super) redirect: Option<u16>,
    /// The thread's clock, in milliseconds.
    pub(super) clock: Arc<AtomicU64>,
    pub(super) counted: CountedConnection,
}

const OFFER_EVERY_MS: u64 = 1_000;
/// Requests that were given up longer ago than this no longer count.
const GIVEN_UP_MS: u64 = 10_000;

impl Client {
    pub(super) fn new(accepted: Accepted) -> Arc<Client> {
        let Accepted { peer, origin, identities, redirect, clock, mut counted } = accepted;
        let presence = Arc::new(Presence::new(clock.load(Ordering::Relaxed)));
        counted.may_make_room(&presence);
        Arc::new(Client {
            peer,
            origin,
            peer_keys: identities.peer_keys(peer),
            identities,
            redirect,
            clock,
            interim: InterimResponses::default(),
            both_lengths: AtomicBool::new(false),
            unclear_length: AtomicBool::new(false),
            long_head: AtomicBool::new(false),
            head_since: AtomicU64::new(0),
            stuck_since: AtomicU64::new(0),
            blocks_since: AtomicU64::new(0),
            blocked_ms: AtomicU64::new(0),
            offered: AtomicU64::new(0),
            presence,
            waiting: AtomicU32::new(0),
            requests: AtomicU32::new(0),
            given_up: AtomicU32::new(0),
            given_up_since: AtomicU64::new(0),
            _counted: counted,
        })
    }

    pub(super) fn now(&self) -> u64 {
        self.clock.load(Ordering::Relaxed)
    }

    pub(super) fn saw_both_lengths(&self) -> bool {
        self.both_lengths.load(Ordering::Relaxed)
    }

    pub(super) fn saw_unclear_length(&self) -> bool {
        self.unclear_length.load(Ordering::Relaxed)
    }

    pub(super) fn saw_long_head(&self) -> bool {
        self.long_head.load(Ordering::Relaxed)
    }

    /// Whether a request without a cookie may be given one. Once a second is enough for one client; a listed proxy carries many.
    pub(super) fn may_be_offered(&self) -> bool {
        let last = self.offered.load(Ordering::Relaxed);
        self.origin.listed || last == 0 || self.now().saturating_sub(last) >= OFFER_EVERY_MS
    }

    pub(super) fn was_offered(&self) {
        self.offered.store(self.now(), Ordering::Relaxed);
    }

    /// Counts a request that begins, and returns how many there were before.
    pub(super) fn begin(&self) -> u32 {
        self.presence.begin();
        self.blocked_ms.store(0, Ordering::Relaxed);
        self.requests.fetch_add(1, Ordering::Relaxed)
    }

    /// Counts a request that waits for a slot, until the result is dropped.
    pub(super) fn waits(&self) -> Wait<'_> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        Wait(self)
    }

    /// Whether a request waits for a slot.
    pub(super) fn is_waiting(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    /// Counts a request that waits for its client to send more, until the result is dropped.
    pub(super) fn sends(&self) -> Sending<'_> {
        self.presence.waits_for_client(self.now());
        Sending(&self.presence)
    }

    /// A request is over. If the client gave it up, it counts against these limits, unless the client is a listed proxy.
    pub(super) fn over(&self, given_up: Option<&Limits>) {
        self.presence.over(self.now());
        if let Some(limits) = given_up
            && !self.origin.listed
        {
            self.note_given_up(limits.resets);
        }
    }

    /// Too many within a short time drain the connection. A client that continues to give up requests is cut off.
    fn note_given_up(&self, most: u32) {
        let now = self.now();
        if now.saturating_sub(self.given_up_since.load(Ordering::Relaxed)) > GIVEN_UP_MS {
            self.given_up_since.store(now, Ordering::Relaxed);
            self.given_up.store(0, Ordering::Relaxed);
        }
        let count = self.given_up.fetch_add(1, Ordering::Relaxed);
        if count >= most.saturating_mul(2) {
            self.finish(ConnectionEnd::Cut);
        } else if count >= most {
            self.finish(ConnectionEnd::Drain);
        }
    }

    /// How it is to end.
    pub(super) fn end(&self) -> ConnectionEnd {
        self.presence.end()
    }

    pub(super) fn finish(&self, end: ConnectionEnd) {
        self.presence.finish(end);
    }

    /// Ends the connection if it is too slow, or idle for too long.
    pub(super) fn sweep(&self, limits: &Limits) {
        let now = self.now();
        let older = |since: u64, limit: Duration| u128::from(now.saturating_sub(since)) > limit.as_millis();
        let (head, stuck) = (self.head_since.load(Ordering::Relaxed), self.stuck_since.load(Ordering::Relaxed));
        if (head > 0 && older(head, limits.header)) || (stuck > 0 && older(stuck, limits.send)) {
            return self.finish(ConnectionEnd::Cut);
        }
        let new = self.requests.load(Ordering::Relaxed) == 0;
        let quiet = if new { limits.header } else { limits.idle };
        if self.presence.quiet_since().is_some_and(|since| older(since, quiet)) {
            // First no new request is accepted; at the next sweep the connection is cut.
            self.finish(if self.end() == ConnectionEnd::Drain { ConnectionEnd::Cut } else { ConnectionEnd::Drain });
        }
    }

    /// Whether a head has begun and is not complete.
    pub(super) fn note_head(&self, in_head: bool) {
        let since = self.head_since.load(Ordering::Relaxed);
        if in_head != (since > 0) {
            self.head_since.store(if in_head { self.now().max(1) } else { 0 }, Ordering::Relaxed);
        }
    }

    /// Notes whether a write was possible.
    pub(super) fn note_write<T>(&self, outcome: &Poll<io::Result<T>>) {
        let stuck = outcome.is_pending();
        let since = self.stuck_since.load(Ordering::Relaxed);
        if !stuck && since > 0 {
            self.stuck_since.store(0, Ordering::Relaxed);
            self.presence.has_client();
        } else if stuck && since == 0 {
            let now = self.now().max(1);
            self.stuck_since.store(now, Ordering::Relaxed);
            self.presence.waits_for_client(now);
        }
    }
}

/// For HTTP/1, where there is one response at a time.
impl Reader for Client {
    fn cut(&self) {
        self.finish(ConnectionEnd::Cut);
    }

    fn blocks(&self, blocks: bool) {
        let now = self.now().max(1);
        let since = self.blocks_since.swap(if blocks { now } else { 0 }, Ordering::Relaxed);
        if since > 0 {
            self.blocked_ms.fetch_add(now.saturating_sub(since), Ordering::Relaxed);
        }
    }

    fn blocked(&self) -> Duration {
        let since = self.blocks_since.load(Ordering::Relaxed);
        let now = if since > 0 { self.now().saturating_sub(since) } else { 0 };
        Duration::from_millis(self.blocked_ms.load(Ordering::Relaxed) + now)
    }
}

/// A request that waits for its client to send more of the body.
#[derive(Debug)]
pub(super) struct Sending<'a>(&'a Presence);

impl Drop for Sending<'_> {
    fn drop(&mut self) {
        self.0.has_client();
    }
}

/// A request of this client that waits for a slot.
#[derive(Debug)]
pub(super) struct Wait<'a>(&'a Client);

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The octets of a connection: first those that were read to find out the protocol, then the rest.
///
/// A `"`, `<` or `>` in the query of an HTTP/1 request is replaced by `%` and its number: hyper refuses these characters, nginx and the fast path do not.
#[derive(Debug)]
pub(super) struct ClientStream<S> {
    stream: S,
    client: Arc<Client>,
    ahead: ReadAhead,
    /// What was read ahead and changed before it is passed on.
    rewritten: ReadAhead,
    watch: Watch,
}

/// Octets that were read already, and how many of them have been passed on.
#[derive(Debug, Default)]
struct ReadAhead {
    octets: Vec<u8>,
    given: usize,
}

impl ReadAhead {
    fn give(&mut self, buffer: &mut ReadBuf<'_>) {
        let here = (self.octets.len() - self.given).min(buffer.remaining());
        buffer.put_slice(&self.octets[self.given..self.given + here]);
        self.given += here;
        if self.given == self.octets.len() {
            *self = ReadAhead::default();
        }
    }
}

/// What examines the octets that come in.
#[derive(Debug)]
pub(super) enum Watch {
    Nobody,
    /// For HTTP/1.
    Framing(FramingWatch),
    /// For HTTP/2.
    Control(ControlWatch),
}

impl<S> ClientStream<S> {
    pub(super) fn new(stream: S, client: Arc<Client>, ahead: Vec<u8>, watch: Watch) -> ClientStream<S> {
        let ahead = ReadAhead { octets: ahead, given: 0 };
        ClientStream { stream, client, ahead, rewritten: ReadAhead::default(), watch }
    }

    pub(super) fn inner(&self) -> &S {
        &self.stream
    }

    /// Examines what came in; returns where in it a character has to be replaced by `%` and its number.
    fn note(&mut self, octets: &[u8]) -> Vec<usize> {
        match &mut self.watch {
            Watch::Nobody => {}
            Watch::Framing(watch) => {
                let raw = watch.see(octets);
                if watch.saw_both() {
                    self.client.both_lengths.store(true, Ordering::Relaxed);
                }
                if watch.saw_unclear() {
                    self.client.unclear_length.store(true, Ordering::Relaxed);
                }
                if watch.saw_long() {
                    self.client.long_head.store(true, Ordering::Relaxed);
                }
                self.client.note_head(watch.in_head());
                return raw;
            }
            Watch::Control(watch) => {
                if watch.see(octets, self.client.now()) == Flow::Flood && !self.client.origin.listed {
                    self.client.finish(ConnectionEnd::Cut);
                }
            }
        }
        Vec::new()
    }

    fn wrote(&mut self, outcome: &Poll<io::Result<usize>>) {
        self.client.note_write(outcome);
        if let (Watch::Control(watch), Poll::Ready(Ok(octets))) = (&mut self.watch, outcome) {
            watch.sent(*octets);
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for ClientStream<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if !self.rewritten.octets.is_empty() {
            self.rewritten.give(buffer);
            return Poll::Ready(Ok(()));
        }
        let before = buffer.filled().len();
        if self.ahead.octets.is_empty() {
            match Pin::new(&mut self.stream).poll_read(cx, buffer) {
                Poll::Ready(Ok(())) => {}
                other => return other,
            }
        } else {
            self.ahead.give(buffer);
        }
        let raw = self.note(&buffer.filled()[before..]);
        if self.client.end() == ConnectionEnd::Cut {
            // h2 reads for as long as there is something to read, and would read all of a flood before it learns that the connection is to end.
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        if !raw.is_empty() {
            self.rewritten.octets = with_percent(&buffer.filled()[before..], &raw);
            buffer.set_filled(before);
            self.rewritten.give(buffer);
        }
        Poll::Ready(Ok(()))
    }
}

/// The octets, with those at these places replaced by `%` and their numbers.
fn with_percent(octets: &[u8], raw: &[usize]) -> Vec<u8> {
    let (mut written, mut from) = (Vec::with_capacity(octets.len() + 2 * raw.len()), 0);
    for at in raw {
        written.extend_from_slice(&octets[from..*at]);
        written.extend_from_slice(format!("%{:02X}", octets[*at]).as_bytes());
        from = at + 1;
    }
    written.extend_from_slice(&octets[from..]);
    written
}

impl<S: AsyncWrite + Unpin> AsyncWrite for ClientStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, octets: &[u8]) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write(cx, octets);
        self.wrote(&outcome);
        outcome
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write_vectored(cx, pieces);
        self.wrote(&outcome);
        outcome
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::{self, Secret};
    use crate::proxy::connection_count::{ConnectionCount, ConnectionLimits};
    use http::HeaderValue;
    use std::net::Ipv4Addr;

    fn one(listed: bool) -> (Arc<Client>, Arc<AtomicU64>) {
        let clock = Arc::new(AtomicU64::new(1));
        let secret = Secret::new(b"a secret of the tests").unwrap();
        let identities = Identities::new(&identity::Settings::default(), &secret).unwrap();
        let trail = listed.then_some(identity::forwarded::Trail::XForwardedFor);
        let origin = Origin::new(HeaderValue::from_static("127.0.0.1"), trail, false);
        let limits = ConnectionLimits { total: 1, per_address: 1 };
        let counted = Arc::new(ConnectionCount::default()).admit(None, limits).unwrap();
        let (peer, shared) = (Ipv4Addr::LOCALHOST.into(), Arc::clone(&clock));
        (Client::new(Accepted { peer, origin, identities, redirect: None, clock: shared, counted }), clock)
    }

    fn give_up(client: &Client, count: u32) -> ConnectionEnd {
        let limits = Limits { resets: 10, ..Limits::default() };
        for _ in 0..count {
            client.begin();
            client.over(Some(&limits));
        }
        client.end()
    }

    #[test]
    fn requests_that_are_given_up_count_for_a_while() {
        let (client, clock) = one(false);
        for _ in 0..5 {
            assert_eq!(give_up(&client, 10), ConnectionEnd::Open);
            clock.fetch_add(GIVEN_UP_MS + 1, Ordering::Relaxed);
        }
        assert_eq!(give_up(&client, 11), ConnectionEnd::Drain);
        assert_eq!(give_up(&client, 10), ConnectionEnd::Cut, "it goes on all the same");
    }

    #[tokio::test]
    async fn a_flood_is_not_read_to_its_end() {
        use tokio::io::AsyncReadExt;
        let window_update = [0, 0, 4, 8, 0, 0, 0, 0, 0, 0, 0, 0, 1];
        let flood = [vec![0; 24], window_update.repeat(100_000)].concat();
        let mut stream =
            ClientStream::new(flood.as_slice(), one(false).0, Vec::new(), Watch::Control(ControlWatch::default()));
        let (mut taken, mut piece) = (0, [0; 4096]);
        let error = loop {
            match stream.read(&mut piece).await {
                Ok(octets) => taken += octets,
                Err(error) => break error,
            }
            assert!(taken < flood.len(), "all of it was read");
        };
        assert_eq!(error.kind(), io::ErrorKind::ConnectionAborted);
        assert!(taken < 20_000, "{taken}");
    }

    #[test]
    fn who_speaks_for_many_may_give_up_for_many() {
        assert_eq!(give_up(&one(true).0, 1_000), ConnectionEnd::Open);
    }
}
