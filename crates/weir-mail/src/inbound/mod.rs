//! Inbound mail: SMTP and LMTP for the domains of this site, as their MX or behind another server.
//!
//! Nobody logs in. A recipient must be in one of our domains and exist ([`RecipientRule`]), or be an address from a notice of
//! ours, which is an order and goes no further; listed peers may relay to anywhere, which is how a server uses us as its
//! content filter, and their mail can be handed back to them. Everything is committed to the spool first and then goes the
//! way of all letters: [`Authenticating`] evaluates SPF, DKIM and DMARC, the scan follows, then delivery. So nothing slow
//! stands between a sender and its `250`. docs/inbound.md tells the rules in prose.

pub mod authenticating;
pub mod authenticity;
mod detour;
mod domains;
mod inbound_settings;
mod owner;
pub mod recipients;
mod settings;

pub use authenticating::Authenticating;
pub use domains::Domains;
pub use inbound_settings::{InboundSettings, RecipientCheck};
pub use recipients::RecipientRule;
pub use settings::Settings;

use crate::held::HeldMail;
use crate::intake::{Care, Incoming, refusal, trace};
use crate::letter::{Client, Letter, LetterOrigin};
use crate::orders::Orders;
use crate::pipeline::{Pipeline, Transit};
use crate::submission::{ClockBox, RaiseAlarm};
use crate::throttle::Throttling;
use detour::leads_elsewhere;
use owner::network_of;
use recipients::{Existence, Recipients};
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use weir_foundation::date::Date;
use weir_smtp::envelope::{Envelope, MailFrom, RcptTo};
use weir_smtp::mailbox::Mailbox;
use weir_smtp::peer::SmtpPeer;
use weir_smtp::reception::{Alarm, Reception};
use weir_smtp::reply::{Reply, Status};
use weir_smtp::sasl::Login;
use weir_smtp::session::{LoginVerdict, MessageAnswer, Verdict};
use weir_smtp::trusted;
use weir_store::diary::DiaryLine;
use weir_store::records::Records;
use weir_store::spool::Spool;

/// The reception behind the inbound ports. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Inbound {
    shared: Arc<InboundShared>,
}

struct InboundShared {
    settings: Settings,
    recipients: Recipients,
    spool: Spool,
    records: Records,
    throttling: Throttling,
    held: HeldMail,
    pipeline: Pipeline,
    clock: ClockBox,
    alarm: RaiseAlarm,
}

/// What inbound mail needs of the rest of the gate.
pub struct InboundParts {
    /// Mail in transit.
    pub spool: Spool,
    /// The users, who may be the recipients, and what orders are good.
    pub records: Records,
    /// Carries out orders,
    pub throttling: Throttling,
    /// which are about held mail.
    pub held: HeldMail,
    /// The stages that follow.
    pub pipeline: Pipeline,
    /// What time it is.
    pub clock: ClockBox,
    /// Tells the operator of an attack. Must not block.
    pub alarm: RaiseAlarm,
}

impl Inbound {
    /// A reception; fails if the file of recipients cannot be read.
    pub fn new(settings: Settings, parts: InboundParts) -> io::Result<Inbound> {
        let InboundParts { spool, records, throttling, held, pipeline, clock, alarm } = parts;
        let recipients = Recipients::new(&settings.recipients, &records.users())?;
        let shared = InboundShared { settings, recipients, spool, records, throttling, held, pipeline, clock, alarm };
        Ok(Inbound { shared: Arc::new(shared) })
    }

    /// Whether mail for this recipient is taken.
    async fn judge(&self, peer: &SmtpPeer, to: &RcptTo) -> Result<(), Reply> {
        let settings = &self.shared.settings;
        let to_postmaster = to.mailbox == Mailbox::postmaster() && settings.domains.first().is_some();
        if settings.relays_for(peer) || to_postmaster {
            return Ok(());
        }
        let (local, domain) = (to.mailbox.local(), to.mailbox.domain());
        if !settings.domains.contain(domain) {
            return Err(Reply::new(550, Status(5, 7, 1), format!("relaying denied: {domain} is no domain of ours")));
        }
        if leads_elsewhere(local) {
            return Err(Reply::new(550, Status(5, 7, 1), "relaying denied: the address names a way to somewhere else"));
        }
        // Somebody must hear of trouble (RFC 5321 section 4.5.1).
        if local.eq_ignore_ascii_case("postmaster") {
            return Ok(());
        }
        match self.shared.recipients.find(to).await {
            Existence::Yes => Ok(()),
            Existence::No(why) => Err(Reply::new(550, Status(5, 1, 1), why.into_string())),
            Existence::NotNow(why) => Err(Reply::new(451, Status(4, 4, 3), format!("{why}, try again later"))),
        }
    }

    async fn take(&self, peer: &SmtpPeer, mut envelope: Envelope, body: Incoming) -> Result<Reply, Reply> {
        let shared = &self.shared;
        self.complete_postmaster(&mut envelope);
        if !shared.settings.relays_for(peer) {
            envelope.forget_wishes();
        }
        let (draft, header) = body.complete().await?;
        let mut ordered = self.orders().carry_out(&mut envelope).await?;
        if let Some(done) = ordered.take_if(|_| envelope.recipients.is_empty()) {
            return self.orders().use_up(done).await;
        }
        let origin = Provenance::of(peer, &envelope, &shared.settings);
        let (owner, source) = (network_of(origin.address), origin.address.to_string());
        let mut letter = Letter::new(&envelope, LetterOrigin::Received, &owner, &source, (shared.clock.0)().0);
        letter.subject = header.subject;
        letter.client = origin.evaluated.then_some(Client { address: origin.address, helo: origin.helo });
        letter.hand_back = origin.relayed && shared.settings.hand_back;
        let (id, count) = (draft.id(), letter.to.len());
        draft.commit(letter.write()).await.map_err(|error| refusal(&error))?;
        tracing::debug!(%id, from = letter.from, source, recipients = count, "received");
        let line = DiaryLine::new(id, "accepted", letter.in_words()).about([header.message_id]).at(letter.at);
        shared.spool.diary().note(line);
        shared.pipeline.send(Transit::to_all(id, letter));
        if let Some(done) = ordered {
            let _ = self.orders().use_up(done).await;
        }
        Ok(Reply::new(250, Status(2, 0, 0), format!("{id} accepted")))
    }

    fn orders(&self) -> Orders<'_> {
        let InboundShared { settings, records, throttling, held, clock, .. } = &*self.shared;
        Orders { hostname: &settings.smtp.hostname, records, throttling, held, now: (clock.0)() }
    }

    /// `<postmaster>` alone is the postmaster of our first domain.
    fn complete_postmaster(&self, envelope: &mut Envelope) {
        let Some(domain) = self.shared.settings.domains.first() else { return };
        let Ok(whole) = Mailbox::parse(&format!("postmaster@{domain}")) else { return };
        for to in envelope.recipients.iter_mut().filter(|to| to.mailbox == Mailbox::postmaster()) {
            to.mailbox = whole.clone();
        }
    }
}

/// Where a message came from, as far as we may believe it.
struct Provenance {
    address: IpAddr,
    helo: String,
    /// A listed peer relays it.
    relayed: bool,
    /// SPF, DKIM and DMARC have something to say about it.
    evaluated: bool,
}

impl Provenance {
    fn of(peer: &SmtpPeer, envelope: &Envelope, settings: &Settings) -> Provenance {
        let relayed = settings.relays_for(peer);
        let own = Provenance {
            address: peer.client,
            helo: peer.helo.as_deref().unwrap_or_default().to_owned(),
            relayed,
            evaluated: !relayed && !peer.client.is_loopback(),
        };
        let Some(forwarded) = envelope.forwarded.as_deref().filter(|_| relayed) else { return own };
        let Some(address) = forwarded.addr.as_deref().and_then(trusted::address) else { return own };
        let local = forwarded.source.as_deref().is_some_and(|source| source.eq_ignore_ascii_case("LOCAL"));
        // What a listed peer sends out to others is its own users' mail; nobody's SPF record speaks of their addresses.
        let for_us = envelope.recipients.iter().any(|to| settings.domains.contain(to.mailbox.domain()));
        Provenance {
            address,
            helo: forwarded.helo.as_deref().unwrap_or_default().to_owned(),
            relayed,
            evaluated: !local && for_us && !address.is_loopback(),
        }
    }
}

impl Reception for Inbound {
    type Body = Incoming;

    async fn authenticate(&self, _: &SmtpPeer, _: &Login) -> LoginVerdict {
        LoginVerdict::Unavailable(Reply::new(502, Status(5, 5, 1), "nobody logs in here; use the submission port"))
    }

    async fn mail_from(&self, _: &SmtpPeer, _: &MailFrom) -> Verdict {
        Verdict::Accept
    }

    async fn rcpt_to(&self, peer: &SmtpPeer, _: &Envelope, to: &RcptTo) -> Verdict {
        if let Some(verdict) = self.orders().verdict(to).await {
            return verdict;
        }
        match self.judge(peer, to).await {
            Ok(()) => Verdict::Accept,
            Err(reply) => Verdict::Refuse(reply),
        }
    }

    async fn begin_body(&self, peer: &SmtpPeer, envelope: &Envelope) -> Result<Incoming, Reply> {
        let hostname = &*self.shared.settings.smtp.hostname;
        let draft = self.shared.spool.draft().map_err(|error| refusal(&error))?;
        let date = Date::new((self.shared.clock.0)()).rfc5322();
        let trace = trace::received(hostname, peer, envelope, draft.id(), &date);
        Ok(Incoming::new(draft, trace, Care::Received { hostname: hostname.to_owned() }))
    }

    async fn finish(&self, peer: &SmtpPeer, envelope: Envelope, body: Incoming) -> MessageAnswer {
        // In a box: a connection that waits for its client should not be large for it.
        match Box::pin(self.take(peer, envelope, body)).await {
            Ok(reply) | Err(reply) => MessageAnswer::All(reply),
        }
    }

    fn alarm(&self, alarm: &Alarm) {
        (self.shared.alarm)(alarm);
    }
}

impl fmt::Debug for InboundShared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("settings", &self.settings).finish_non_exhaustive()
    }
}
