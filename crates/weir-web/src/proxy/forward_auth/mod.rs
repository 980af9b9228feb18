//! A door for other proxies: nginx (`auth_request`), Caddy and Traefik (`forward_auth`) carry the requests, and ask here whether a request
//! may go now.
//!
//! The question names the request and the client ([`question`]); route, identity, standing, the waiting room and the fair queue are those
//! of the gate's own requests. The answer is `204`, as soon as there is a slot; or what the gate would have said itself (`503` with a
//! waiting page, `403`); or, for nginx, which understands nothing else, `401` and `403`, and the page when nginx asks for it. The slot is
//! held under the name of the request (`held_slots`) until the proxy's access log names it ([`log_line`]), or its time is over.
//!
//! Only machines that the settings name get answers, and only their log lines are read. A client can neither end a slot nor use the name of
//! another request: the proxy writes both, and a name that occurs twice, or was used before, is refused.

mod answer;
mod held_slots;
mod listening;
pub mod log_line;
pub mod question;

pub(super) use listening::{answer_questions, hear_ends};

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::door_settings::DoorSettings;
use super::error::GateError;
use super::thread::ProxyShared;
use crate::view::DoorView;
use held_slots::HeldSlots;
use listening::Sockets;

/// What all questions and log lines share.
#[derive(Debug)]
pub(super) struct Door {
    shared: Arc<ProxyShared>,
    settings: DoorSettings,
    slots: Arc<HeldSlots>,
    listeners: Vec<String>,
    logs: Vec<String>,
    /// The number of the next request that the proxy does not name.
    next: AtomicU64,
    ended_by_log: AtomicU64,
    ended_by_time: AtomicU64,
    unreadable_lines: AtomicU64,
    unclear_questions: AtomicU64,
}

impl Door {
    pub(super) fn open(shared: Arc<ProxyShared>, settings: &DoorSettings) -> Result<(Arc<Door>, Sockets), GateError> {
        let (sockets, listeners, logs) = Sockets::open(settings)?;
        let door = Door {
            shared,
            settings: settings.clone(),
            slots: Arc::default(),
            listeners,
            logs,
            next: AtomicU64::new(0),
            ended_by_log: AtomicU64::new(0),
            ended_by_time: AtomicU64::new(0),
            unreadable_lines: AtomicU64::new(0),
            unclear_questions: AtomicU64::new(0),
        };
        Ok((Arc::new(door), sockets))
    }

    pub(super) fn view(&self) -> DoorView {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let mut view = DoorView {
            listeners: self.listeners.clone(),
            logs: self.logs.clone(),
            held: self.slots.count(),
            ended_by_log: count(&self.ended_by_log),
            ended_by_time: count(&self.ended_by_time),
            unreadable_lines: count(&self.unreadable_lines),
            unclear_questions: count(&self.unclear_questions),
            trouble: None,
        };
        view.trouble = self.trouble(&view);
        view
    }

    /// A log that is awaited and not heard of costs every request `longest`, so it is not left unsaid.
    fn trouble(&self, view: &DoorView) -> Option<String> {
        if !self.settings.hears_ends() || view.ended_by_time <= view.ended_by_log / 10 {
            return None;
        }
        Some(match (view.ended_by_log, view.unreadable_lines) {
            (0, 0) => "the proxy sends no log: every request holds its slot for web.forward_auth.longest".to_owned(),
            (0, _) => "the proxy's log does not begin with the name of the request (docs/doors.md)".to_owned(),
            _ => "of more than one request in ten the proxy's log did not say in time that it is over".to_owned(),
        })
    }
}
