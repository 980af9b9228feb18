//! Starts the ports for mail from outside.

use super::bans::KeptBans;
use super::{GateError, Works, open};
use crate::inbound::{Inbound, InboundError, InboundParts, RecipientRule, Settings};
use crate::operations::Listener;
use crate::submission::{ClockBox, RaiseAlarm};
use std::sync::Arc;
use weir_foundation::{Foundation, supervision};
use weir_smtp::server::{SmtpServer, TlsMode};
use weir_smtp::settings::{Protocol, Purpose, Settings as SmtpSettings};
use weir_tls::Tls;

/// The server for mail from outside. It has its own counts and bans: a flood there takes no place from users.
pub(super) struct Receiving {
    pub(super) server: Arc<SmtpServer<Inbound>>,
    pub(super) listeners: Vec<Listener>,
    pub(super) bans: KeptBans,
}

impl Receiving {
    pub(super) async fn open(
        settings: &Settings,
        works: &Works,
        foundation: &Foundation,
        tls: &Arc<Tls>,
    ) -> Result<Self, GateError> {
        let notices = works.notices.clone();
        let alarm: RaiseAlarm = Box::new(move |alarm| notices.raise(alarm.clone()));
        let (spool, pipeline, records) =
            (works.spool.clone(), works.stages.pipeline.clone(), foundation.records.clone());
        let (throttling, held) = (works.throttling.clone(), works.held.clone());
        let clock = ClockBox(Arc::clone(&works.clock));
        let (evaluator, senders) = (works.stages.evaluator.clone(), works.senders.clone());
        let rules = Arc::clone(&works.rules);
        let parts =
            InboundParts { spool, records, throttling, held, pipeline, evaluator, senders, clock, alarm, rules };
        let inbound = Inbound::new(settings.clone(), parts).map_err(|error| match error {
            InboundError::Recipients(source) => recipients(settings, source),
            InboundError::Dns(error) => error.into(),
        })?;
        let limits = settings.smtp.limits.clone();
        let server = Arc::new(SmtpServer::with_purpose(inbound, limits, Purpose::Inbound));
        let bans = KeptBans::open(&server, "bans.inbound", foundation).await;
        let listeners = match listen(&server, settings, tls) {
            Ok(listeners) => listeners,
            Err(error) => {
                server.shutdown(std::time::Duration::ZERO).await;
                return Err(error);
            }
        };
        Ok(Receiving { server, listeners, bans })
    }
}

fn listen(server: &SmtpServer<Inbound>, settings: &Settings, tls: &Arc<Tls>) -> Result<Vec<Listener>, GateError> {
    let smtp = settings.listen.iter().map(|address| (*address, Protocol::Smtp, "inbound"));
    let lmtp = settings.listen_lmtp.iter().map(|address| (*address, Protocol::Lmtp, "lmtp"));
    let mut listeners = Vec::new();
    for (address, protocol, name) in smtp.chain(lmtp) {
        let sessions = SmtpSettings { protocol, ..settings.smtp.clone() };
        let (listener, bound) = open(address)?;
        let serving = server.serve(listener, sessions, TlsMode::StartTls(Arc::clone(tls)));
        supervision::spawn("inbound listener", serving);
        listeners.push(Listener { name: name.to_owned(), address: bound.to_string(), about: about(settings) });
    }
    Ok(listeners)
}

fn about(settings: &Settings) -> String {
    let domains = match settings.domains.is_empty() {
        true if settings.smtp.trusted.is_empty() => "orders from notices only".to_owned(),
        true => "listed peers only".to_owned(),
        false => format!("{}, {}", settings.domains.summary(), settings.recipients.about()),
    };
    let results = if settings.evaluation.is_some() { ", SPF DKIM DMARC" } else { "" };
    format!("{domains}{results}")
}

fn recipients(settings: &Settings, source: std::io::Error) -> GateError {
    let path = match &settings.recipients {
        RecipientRule::File(path) => path.display().to_string(),
        _ => String::new(),
    };
    GateError::Recipients { path, source }
}
