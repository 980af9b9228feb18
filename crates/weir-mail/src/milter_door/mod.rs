//! The milter protocol for other mail servers: an existing Postfix can stay where it is and have its users' mail throttled and all its mail
//! scanned.
//!
//! [`weir_smtp::milter`] is the protocol without I/O, `door` its sockets. This module decides about a message when it is complete: mail of
//! a user who is logged in goes to the throttle (`Submission::take_over`), and all mail to the scan
//! ([`crate::scan::Scanning::look_at_mail`]), as the settings say; mail of blocked senders is refused. Refusals are noted for
//! [`weir_store::tracking`]. The server tells us who is logged in (its macro `{auth_authen}`), so a server that may connect here is
//! trusted. docs/doors.md explains what happens when either side is killed.

mod conversation;
mod deciding;
mod message;
mod settings;

pub use settings::{MilterSettings, OnFound};

use crate::door::{Closing, Door, DoorSpec, Room, Socket};
use crate::inbound::senders::SenderList;
use crate::pipeline::Pipeline;
use crate::refusals::{MILTER, Refusals};
use crate::scan::Scanning;
use crate::submission::{ClockBox, Submission};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use weir_smtp::milter::Actions;
use weir_store::spool::Spool;

/// What connections share.
pub(crate) struct MilterDoor {
    settings: MilterSettings,
    hostname: Arc<str>,
    /// Recipients of one message.
    recipients_max: u32,
    room: Arc<Room>,
    submission: Submission,
    scanning: Scanning,
    spool: Spool,
    pipeline: Pipeline,
    /// Whom people block.
    senders: SenderList,
    refusals: Refusals,
    clock: ClockBox,
}

/// What the door needs of the rest of the gate.
pub(crate) struct MilterParts {
    pub(crate) hostname: String,
    pub(crate) recipients_max: u32,
    pub(crate) message_bytes: u64,
    /// Where larger messages are while they are looked at.
    pub(crate) folder: PathBuf,
    pub(crate) submission: Submission,
    pub(crate) scanning: Scanning,
    pub(crate) spool: Spool,
    pub(crate) pipeline: Pipeline,
    pub(crate) senders: SenderList,
    pub(crate) clock: ClockBox,
}

impl MilterDoor {
    /// The door, and where it is.
    pub(crate) fn new(settings: &MilterSettings, parts: MilterParts) -> (DoorSpec, MilterDoor) {
        let place = DoorSpec {
            name: "milter",
            about: "the milter protocol, for other mail servers",
            section: "milter",
            listen: settings.listen.clone(),
            listen_unix: settings.listen_unix.clone(),
            clients: settings.clients.clone(),
            connections: settings.connections,
        };
        let MilterParts { recipients_max, submission, scanning, spool, pipeline, senders, clock, .. } = parts;
        let door = MilterDoor {
            settings: settings.clone(),
            hostname: Arc::from(parts.hostname),
            recipients_max,
            room: Room::new(settings.messages_size, parts.message_bytes, parts.folder),
            submission,
            scanning,
            refusals: Refusals::new(spool.clone(), &MILTER),
            spool,
            pipeline,
            senders,
            clock,
        };
        (place, door)
    }

    /// What a server must let us do.
    fn needed(&self) -> Actions {
        let throttle = if self.settings.throttle { Actions::DELETE_RECIPIENT } else { Actions::default() };
        let scan = match (self.settings.scan, self.settings.on_found) {
            (false, _) => Actions::default(),
            (true, OnFound::Hold) => Actions::ADD_HEADER.and(Actions::CHANGE_HEADER).and(Actions::QUARANTINE),
            (true, _) => Actions::ADD_HEADER.and(Actions::CHANGE_HEADER),
        };
        throttle.and(scan)
    }
}

impl Door for MilterDoor {
    async fn converse(self: Arc<Self>, socket: Socket, client: String, closing: Closing) -> io::Result<()> {
        conversation::converse(&self, socket, &client, closing).await
    }
}
