//! The clamd door: serves clamd's protocol to other programs. A program that asks clamd today can ask Weir's scan instead by changing one
//! address. Then it also gets the feeds, YARA, the attachment policy and the verdicts that the lab already has.
//!
//! [`weir_scan::clamd::server`] is the protocol without I/O, `door` holds its sockets, and this module hands files to the feeds
//! ([`crate::scan::Scanning::look_at`]). Files are not kept: all but small ones are in a nameless file in the data folder until they are
//! answered. Paths are not opened: otherwise a client could have us read files that it may not read itself.

mod conversation;
mod settings;

pub use settings::DoorSettings;

use crate::door::{Closing, Door, DoorSpec, Room, Socket};
use crate::scan::Scanning;
use conversation::converse;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// What connections share.
pub(crate) struct ClamdDoor {
    idle: Duration,
    scanning: Scanning,
    room: Arc<Room>,
}

impl ClamdDoor {
    /// The door, and where it is. Larger files are in `folder` while they are looked at.
    pub(crate) fn new(settings: &DoorSettings, scanning: Scanning, folder: PathBuf) -> (DoorSpec, ClamdDoor) {
        let place = DoorSpec {
            name: "clamd",
            about: "clamd's protocol, for other programs",
            section: "scan.clamd_door",
            listen: settings.listen.clone(),
            listen_unix: settings.listen_unix.clone(),
            clients: settings.clients.clone(),
            connections: settings.connections,
        };
        let room = Room::new(settings.streams_size, settings.stream_size, folder);
        (place, ClamdDoor { idle: settings.idle, scanning, room })
    }
}

impl Door for ClamdDoor {
    async fn converse(self: Arc<Self>, socket: Socket, client: String, closing: Closing) -> io::Result<()> {
        converse(&self, socket, &client, closing).await
    }
}
