//! Pieces of responses that streams of HTTP/2 hold until their clients take them, counted like all that is kept of responses.
//!
//! hyper takes a piece before it knows whether the stream's window is open, and h2 keeps whatever does not fit. So each piece counts for as long as it
//! exists, whoever has it. A piece that finds no room is sent all the same. But if room is still missing after a second, and after the time in which a
//! client would have read the piece at `response_rate`, its client is cut off.

use std::sync::Arc;

use bytes::Bytes;
use weir_core::fair::SubnetKey;

use super::budget::Share;
use super::client::Client;
use super::http2_stream::SendWatch;
use super::readers::Registered;
use super::thread::ProxyShared;
use crate::admission::Reader;

/// A piece, until it is sent.
struct Unread {
    data: Bytes,
    _share: Share,
    _registered: Option<Registered>,
}

/// Pieces up to this size are copied. Otherwise all of the buffer into which they were read would stay with them.
const COPIED: usize = 16 << 10;

/// The octets of a small piece by themselves.
pub(super) fn alone(data: Bytes) -> Bytes {
    if data.len() <= COPIED { Bytes::copy_from_slice(&data) } else { data }
}

/// The same octets, counted for this subnet until they are dropped.
pub(super) fn counted(
    data: Bytes,
    shared: &ProxyShared,
    (client, stream): (&Arc<Client>, &Arc<SendWatch>),
    subnet: SubnetKey,
) -> Bytes {
    let mut share = shared.responses.share(subnet);
    let mut registered = None;
    if !share.grow(data.len()) {
        share.take(data.len());
        // What h2 has already ends only with the connection. That of a listed proxy carries many clients, and stays.
        let reader: Arc<dyn Reader> = if client.origin.listed {
            Arc::clone(stream) as Arc<dyn Reader>
        } else {
            Arc::clone(client) as Arc<dyn Reader>
        };
        let found = shared.unread.register(reader, subnet);
        found.progress.note_piece(data.len());
        found.progress.want_room(true);
        registered = Some(found);
    }
    Bytes::from_owner(Unread { data, _share: share, _registered: registered })
}

impl AsRef<[u8]> for Unread {
    fn as_ref(&self) -> &[u8] {
        &self.data
    }
}
