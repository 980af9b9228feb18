//! A carrier of frames: the connection to one relay or NATS server, which is opened again whenever it breaks, and whose state is reported.
//!
//! Each relay or NATS server has a task that connects, pumps frames both ways, and after a failure waits ([`Backoff`]) and tries again. While it is
//! down, frames for it are dropped: they would be old when they arrived, and what is missing is asked for. Queues are bounded both ways.

use super::backoff::Backoff;
use bytes::{Bytes, BytesMut};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval, timeout};

/// The state of one carrier.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct CarrierState {
    pub name: String,
    pub connected: bool,
    /// How many connections were established so far.
    pub connections: u64,
    /// Why the last one ended, or why there is none.
    pub problem: Option<String>,
}

/// The link's end of a carrier.
#[derive(Debug)]
pub(super) struct Carrier {
    outgoing: mpsc::Sender<Bytes>,
    state: Arc<Mutex<CarrierState>>,
}

#[derive(Debug)]
pub(super) struct Port {
    outgoing: mpsc::Receiver<Bytes>,
    events: mpsc::Sender<CarrierEvent>,
    state: Arc<Mutex<CarrierState>>,
}

/// What a carrier reports to the link.
#[derive(Debug)]
pub(super) enum CarrierEvent {
    /// Frames can be sent from now on.
    Connected,
    /// A frame has come.
    Frame(Bytes),
}

/// A byte stream to a relay or a NATS server.
pub(super) trait CarrierStream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> CarrierStream for T {}

/// How frames are written in the stream of a carrier.
pub(super) trait Codec: Send {
    fn encode(&mut self, frame: &[u8], out: &mut BytesMut);
    /// Takes the next item from the front; `None` if more must be read.
    fn decode(&mut self, from: &mut BytesMut) -> Result<Option<Incoming>, CarrierError>;
    /// What to send now and then so that the other side answers, if it does not send anything by itself.
    fn probe(&self) -> Option<&'static [u8]>;
}

/// Something read from a carrier.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Incoming {
    Frame(Bytes),
    /// To be answered with this.
    Answer(&'static [u8]),
    /// A sign of life, with no further meaning.
    Nothing,
}

/// A connection that has introduced itself.
pub(super) struct Connection {
    pub(super) stream: Box<dyn CarrierStream>,
    pub(super) codec: Box<dyn Codec>,
    /// What was read after the introduction.
    pub(super) read: BytesMut,
}

/// How to reach a carrier.
pub(super) trait Connect: Send + Sync {
    /// Its kind and address.
    fn name(&self) -> String;
    /// Connects and introduces itself.
    fn connect(&self) -> impl Future<Output = Result<Connection, CarrierError>> + Send;
}

const QUEUE: usize = 1024;
const CONNECT_WITHIN: Duration = Duration::from_secs(5);
const WRITE_WITHIN: Duration = Duration::from_secs(2);
/// After this many probes without an answer the connection is dead. Because probes are counted rather than time, a stall of our own
/// does not look like silence.
const QUIET_PROBES_MAX: u32 = 3;
const PROBE: Duration = Duration::from_millis(1000);
const BATCH_BYTES: usize = 64 * 1024;

impl Carrier {
    /// Both ends of a new carrier; events go to `events`.
    pub(super) fn new(name: String, events: mpsc::Sender<CarrierEvent>) -> (Carrier, Port) {
        let (sender, outgoing) = mpsc::channel(QUEUE);
        let state = Arc::new(Mutex::new(CarrierState { name, ..CarrierState::default() }));
        (Carrier { outgoing: sender, state: Arc::clone(&state) }, Port { outgoing, events, state })
    }

    /// Sends a frame if the carrier is up. False only if it is up and could not take the frame.
    pub(super) fn send(&self, frame: &Bytes) -> bool {
        !self.is_connected() || self.outgoing.try_send(frame.clone()).is_ok()
    }

    pub(super) fn is_connected(&self) -> bool {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).connected
    }

    pub(super) fn state(&self) -> CarrierState {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Port {
    fn change(&self, change: impl FnOnce(&mut CarrierState)) {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner));
    }

    async fn up(&mut self) {
        while self.outgoing.try_recv().is_ok() {}
        self.change(|state| {
            (state.connected, state.problem) = (true, None);
            state.connections += 1;
        });
        let _ = self.events.send(CarrierEvent::Connected).await;
    }

    fn down(&self, why: &CarrierError) {
        self.change(|state| {
            if state.connected || state.problem.is_none() {
                tracing::warn!(carrier = state.name, problem = %why, "exchange: no connection");
            }
            (state.connected, state.problem) = (false, Some(why.to_string()));
        });
    }
}

/// Keeps a carrier connected for ever.
pub(super) async fn keep(connect: impl Connect, mut port: Port, seed: u64) {
    let mut backoff = Backoff::new(seed);
    loop {
        let ended = match timeout(CONNECT_WITHIN, connect.connect()).await {
            Ok(Ok(connection)) => {
                tracing::info!(carrier = connect.name(), "exchange: connected");
                port.up().await;
                backoff.reset();
                pump(connection, &mut port).await
            }
            Ok(Err(error)) => error,
            Err(_) => CarrierError::Slow,
        };
        port.down(&ended);
        tokio::time::sleep(backoff.wait()).await;
    }
}

/// Passes frames both ways until something fails.
async fn pump(connection: Connection, port: &mut Port) -> CarrierError {
    let Connection { mut stream, mut codec, read: mut from } = connection;
    let mut out = BytesMut::new();
    if let Err(error) = take(&mut *codec, &mut from, &mut out, port).await {
        return error;
    }
    let mut quiet_probes = 0;
    let mut probe = interval(PROBE);
    probe.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let step = tokio::select! {
            read = stream.read_buf(&mut from) => {
                quiet_probes = 0;
                match read {
                    Ok(0) => Err(CarrierError::Closed),
                    Ok(_) => take(&mut *codec, &mut from, &mut out, port).await,
                    Err(error) => Err(error.into()),
                }
            }
            Some(frame) = port.outgoing.recv() => {
                codec.encode(&frame, &mut out);
                while out.len() < BATCH_BYTES && let Ok(frame) = port.outgoing.try_recv() {
                    codec.encode(&frame, &mut out);
                }
                Ok(())
            }
            _ = probe.tick() => {
                out.extend_from_slice(codec.probe().unwrap_or_default());
                quiet_probes += 1;
                if quiet_probes > QUIET_PROBES_MAX { Err(CarrierError::Silent) } else { Ok(()) }
            }
        };
        if let Err(error) = step {
            return error;
        }
        if let Err(error) = flush(&mut *stream, &mut out).await {
            return error;
        }
    }
}

async fn take(codec: &mut dyn Codec, from: &mut BytesMut, out: &mut BytesMut, port: &Port) -> Result<(), CarrierError> {
    while let Some(incoming) = codec.decode(from)? {
        match incoming {
            Incoming::Frame(frame) => drop(port.events.send(CarrierEvent::Frame(frame)).await),
            Incoming::Answer(answer) => out.extend_from_slice(answer),
            Incoming::Nothing => {}
        }
    }
    Ok(())
}

async fn flush(stream: &mut dyn CarrierStream, out: &mut BytesMut) -> Result<(), CarrierError> {
    if out.is_empty() {
        return Ok(());
    }
    let write = async {
        stream.write_all(out).await?;
        stream.flush().await
    };
    timeout(WRITE_WITHIN, write).await.map_err(|_| CarrierError::Slow)??;
    out.clear();
    Ok(())
}

/// Why a carrier does not work.
#[derive(Debug, thiserror::Error)]
pub(super) enum CarrierError {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("the other side closed the connection")]
    Closed,
    #[error("no answer in time")]
    Slow,
    #[error("nothing was heard for some seconds")]
    Silent,
    #[error("the relay's key is not ours: give both the same --key-file")]
    Key,
    #[error("what came is not in the protocol: {0}")]
    Protocol(&'static str),
    #[error("the server says {0}")]
    Refused(String),
    #[error("{0}")]
    Setting(String),
}
