//! Inbound mail: SMTP and LMTP for the domains of this site, as their MX or behind another server.
//!
//! Nobody logs in. A recipient must be in one of our domains and exist ([`RecipientRule`]), or be an address from a notice of
//! ours, which is an order and goes no further; listed peers may relay to anywhere, which is how a server uses us as its
//! content filter, and their mail can be handed back to them. A stranger's message is evaluated (SPF, DKIM, DMARC) before it is taken, so
//! that forged mail is refused and not bounced. A sender waits for nothing else slow before its `250`. Then everything is committed to the
//! spool and goes the way of all letters: [`Authenticating`] for what listed peers bring, the scan, delivery. docs/inbound.md explains the
//! rules.

pub mod authenticating;
pub mod authenticity;
mod body;
mod detour;
pub mod dnsbl;
pub mod enforcement;
mod evaluator;
mod inbound_settings;
pub mod rates;
pub mod recipients;
pub mod senders;
mod settings;

pub use crate::domains::Domains;
pub use authenticating::Authenticating;
pub use body::InboundBody;
pub use evaluator::{Evaluator, EvaluatorSettings};
pub use inbound_settings::{InboundSettings, RecipientCheck};
pub use recipients::RecipientRule;
pub use settings::Settings;

use crate::client_network::network_of;
use crate::delivery::resolver::ResolverError;
use crate::delivery::route::canonical;
use crate::held::HeldMail;
use crate::intake::header::MailHeader;
use crate::intake::{Care, Incoming, refusal, trace};
use crate::letter::{Client, Letter, LetterOrigin};
use crate::orders::Orders;
use crate::pipeline::{Pipeline, Transit};
use crate::refusals::{INBOUND, Refusals};
use crate::submission::{self, ClockBox, RaiseAlarm};
use crate::throttle::Throttling;
use authenticity::{Evidence, Witness};
use detour::leads_elsewhere;
use dnsbl::Dnsbl;
use enforcement::Judgement;
use rates::Rates;
use recipients::{Existence, Recipients};
use senders::SenderList;
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use weir_core::throttle::Recipients as ThrottledRecipients;
use weir_foundation::date::Date;
use weir_smtp::envelope::{Envelope, MailFrom, RcptTo};
use weir_smtp::mailbox::Mailbox;
use weir_smtp::peer::SmtpPeer;
use weir_smtp::reception::{Alarm, Reception};
use weir_smtp::reply::{Reply, Status};
use weir_smtp::sasl::Login;
use weir_smtp::session::{LoginVerdict, MessageAnswer, PolicyVerdict};
use weir_smtp::trusted;
use weir_store::diary::{DiaryLine, Facts};
use weir_store::records::Records;
use weir_store::spool::{MessageId, Spool};

/// The reception behind the inbound ports. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Inbound {
    shared: Arc<InboundShared>,
}

struct InboundShared {
    settings: Settings,
    recipients: Recipients,
    rates: Rates,
    dnsbl: Option<Dnsbl>,
    spool: Spool,
    records: Records,
    throttling: Throttling,
    held: HeldMail,
    pipeline: Pipeline,
    evaluator: Option<Arc<Evaluator>>,
    senders: SenderList,
    clock: ClockBox,
    alarm: RaiseAlarm,
    rules: Arc<submission::Settings>,
    refusals: Refusals,
}

/// What inbound mail needs of the rest of the gate.
pub struct InboundParts {
    /// Mail in transit.
    pub spool: Spool,
    /// The users, who may be the recipients, and what orders are good.
    pub records: Records,
    /// Carries out orders.
    pub throttling: Throttling,
    /// Held mail, which orders are about.
    pub held: HeldMail,
    /// The stages that follow.
    pub pipeline: Pipeline,
    /// Evaluates mail of strangers before it is taken; without it nobody does.
    pub evaluator: Option<Arc<Evaluator>>,
    /// Whom people allow and block.
    pub senders: SenderList,
    /// What time it is.
    pub clock: ClockBox,
    /// Tells the operator of an attack. Must not block.
    pub alarm: RaiseAlarm,
    /// The rules of submission: how addresses are known to the throttle.
    pub rules: Arc<submission::Settings>,
}

impl Inbound {
    /// A reception; fails if the file of recipients cannot be read, or the DNS not be used.
    pub fn new(settings: Settings, parts: InboundParts) -> Result<Inbound, InboundError> {
        let InboundParts { spool, records, throttling, held, pipeline, evaluator, senders, clock, alarm, rules } =
            parts;
        let recipients = Recipients::new(&settings.recipients, &records.users())?;
        let (rates, dnsbl) = (Rates::new(settings.rates), Dnsbl::new(&settings.dnsbl, &settings.dns)?);
        let refusals = Refusals::new(spool.clone(), &INBOUND);
        let shared = InboundShared {
            refusals,
            settings,
            recipients,
            rates,
            dnsbl,
            spool,
            records,
            throttling,
            held,
            pipeline,
            evaluator,
            senders,
            clock,
            alarm,
            rules,
        };
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
        self.check_lists(peer).await?;
        match self.shared.recipients.find(to).await {
            Existence::Yes => Ok(()),
            Existence::No(why) => Err(Reply::new(550, Status(5, 1, 1), why.into_string())),
            Existence::NotNow(why) => Err(Reply::new(451, Status(4, 4, 3), format!("{why}, try again later"))),
        }
    }

    /// Whether a stranger is on lists that weigh too much.
    async fn check_lists(&self, peer: &SmtpPeer) -> Result<(), Reply> {
        let Some(dnsbl) = self.shared.dnsbl.as_ref().filter(|_| self.shared.settings.is_stranger(peer)) else {
            return Ok(());
        };
        let listed = dnsbl.look_up(peer.client).await;
        match dnsbl.refusal(peer.client, &listed) {
            Some(reply) => Err(reply),
            None => Ok(()),
        }
    }

    async fn take(&self, peer: &SmtpPeer, envelope: &mut Envelope, body: InboundBody) -> Result<Reply, RefusedMessage> {
        let shared = &self.shared;
        self.complete_postmaster(envelope);
        if !shared.settings.relays_for(peer) {
            envelope.forget_wishes();
        }
        let InboundBody { incoming, witness } = body;
        let (draft, header) = incoming.complete().await?;
        let mut ordered = self.orders().carry_out(envelope).await?;
        if let Some(done) = ordered.take_if(|_| envelope.recipients.is_empty()) {
            return Ok(self.orders().use_up(done).await?);
        }
        let origin = Provenance::of(peer, envelope, &shared.settings);
        let id = draft.id();
        let mut letter = self.letter(envelope, origin, &header);
        let refused = |reply| RefusedMessage { reply, subject: header.subject.clone() };
        self.look_at_senders(peer, &header, &mut letter).map_err(refused)?;
        if let Some(dnsbl) = shared.dnsbl.as_ref().filter(|_| shared.settings.is_stranger(peer)) {
            letter.added = dnsbl.look_up(peer.client).await.line();
        }
        let letter = match witness {
            Some(witness) => self.judged(id, letter, &header, witness.finish()).await.map_err(refused)?,
            None if shared.settings.is_stranger(peer) => letter.without_reports(),
            None => letter,
        };
        let (count, size) = (letter.to.len(), draft.size());
        draft.commit(letter.write()).await.map_err(|error| refusal(&error))?;
        tracing::debug!(%id, from = letter.from, source = letter.source, recipients = count, "received");
        let line = DiaryLine::new(id, "accepted", "").with(letter.facts(size)).about([header.message_id]).at(letter.at);
        shared.spool.diary().note(line);
        shared.pipeline.send(Transit::to_all(id, letter));
        if let Some(done) = ordered {
            let _ = self.orders().use_up(done).await;
        }
        Ok(Reply::new(250, Status(2, 0, 0), format!("{id} accepted")))
    }

    /// Writes down what was refused, so that people find it.
    fn note(&self, peer: &SmtpPeer, from: &MailFrom, to: &[RcptTo], refused: &RefusedMessage) {
        let RefusedMessage { reply, subject } = refused;
        let facts = Facts {
            from: from.mailbox.as_ref().map_or("", |from| from.as_str()).to_owned(),
            to: to.iter().map(|to| to.mailbox.as_str().to_owned()).collect(),
            client: peer.client.to_string(),
            subject: subject.clone(),
            ..Facts::default()
        };
        // Also where the sender may come again: it waits there, and not here.
        self.shared.refusals.write("refused", &format!("{} {}", reply.code(), reply.text()), facts);
    }

    /// Whether people block the sender, in the envelope or in From, or allow it.
    fn look_at_senders(&self, peer: &SmtpPeer, header: &MailHeader, letter: &mut Letter) -> Result<(), Reply> {
        let rules = self.shared.senders.now();
        let names = || std::iter::once(letter.from.as_str()).chain(header.from.iter().map(String::as_str));
        match rules.blocks(names()) {
            Some(by) if self.shared.settings.is_stranger(peer) => return Err(senders::refusal(by)),
            Some(by) => letter.hold = Some(senders::reason(by)),
            None => letter.allowed = rules.allows(names()),
        }
        Ok(())
    }

    /// What the spool remembers of a message.
    fn letter(&self, envelope: &Envelope, origin: Provenance, header: &MailHeader) -> Letter {
        let shared = &self.shared;
        let (owner, source) = (network_of(origin.address), origin.address.to_string());
        let mut letter = Letter::new(envelope, LetterOrigin::Received, &owner, &source, (shared.clock.0)().0);
        letter.subject = header.subject.clone();
        letter.hand_back = origin.relayed && shared.settings.hand_back;
        letter.client = origin.evaluated.then_some(Client { address: origin.address, helo: origin.helo });
        letter
    }

    /// A stranger's letter with what was found out about it, if it is taken at all.
    async fn judged(
        &self,
        id: MessageId,
        letter: Letter,
        header: &MailHeader,
        evidence: Evidence,
    ) -> Result<Letter, Reply> {
        let Some(evaluator) = &self.shared.evaluator else { return Ok(letter) };
        if header.from_fields > 1 {
            // Each reader would show another one.
            return Err(Reply::new(550, Status(5, 6, 0), "the message has more than one From"));
        }
        let letter = Arc::new(letter);
        let (evaluation, judgement) = evaluator.judge(id, &letter, evidence).await?;
        let hold = match judgement {
            Judgement::Take => None,
            Judgement::Hold(reason) => Some(reason),
            Judgement::Refuse(reply) | Judgement::Defer(reply) => {
                tracing::info!(%id, from = letter.from, source = letter.source, reply = reply.text(), "not taken");
                return Err(reply);
            }
        };
        if let Some((_, domain)) = letter.from.rsplit_once('@') {
            self.shared.rates.sends(&canonical(domain), evaluation.sender_passed, letter.to.len())?;
        }
        if evaluation.sender_passed && hold.is_none() {
            self.may_be_answered(&letter);
        }
        let added = format!("{}{}", evaluation.field, letter.added);
        let allowed = senders::confirmed(letter.allowed.as_ref(), &evaluation);
        let letter = Letter { judged: true, hold, added, allowed, ..Letter::clone(&letter) };
        Ok(if evaluation.sender_passed { letter } else { letter.without_reports() })
    }

    /// The recipients may answer a sender whose address is confirmed. One that anybody can write would let a worm choose its own
    /// correspondents.
    fn may_be_answered(&self, letter: &Letter) {
        let InboundShared { rules, throttling, .. } = &*self.shared;
        if rules.params.recipients == ThrottledRecipients::Alike || letter.from.is_empty() {
            return;
        }
        let sender = rules.key_of(&letter.from);
        for address in letter.to.iter().map(|to| rules.own_address(&to.address)).filter(|address| !address.is_empty()) {
            throttling.note_letter(&address, sender);
        }
    }

    fn orders(&self) -> Orders<'_> {
        let InboundShared { settings, records, throttling, held, spool, pipeline, clock, .. } = &*self.shared;
        Orders { hostname: &settings.smtp.hostname, records, throttling, held, spool, pipeline, now: (clock.0)() }
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

/// Why mail from outside cannot be taken at all.
#[derive(Debug, thiserror::Error)]
pub enum InboundError {
    /// The recipients are not known.
    #[error("the recipients cannot be read: {0}")]
    Recipients(#[from] io::Error),
    /// Lists cannot be asked.
    #[error(transparent)]
    Dns(#[from] ResolverError),
}

/// Why a message is not taken, and its subject where that is known.
struct RefusedMessage {
    reply: Reply,
    subject: String,
}

impl From<Reply> for RefusedMessage {
    fn from(reply: Reply) -> RefusedMessage {
        RefusedMessage { reply, subject: String::new() }
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
    type Body = InboundBody;

    async fn authenticate(&self, _: &SmtpPeer, _: &Login) -> LoginVerdict {
        LoginVerdict::Unavailable(Reply::new(502, Status(5, 5, 1), "nobody logs in here; use the submission port"))
    }

    async fn mail_from(&self, peer: &SmtpPeer, from: &MailFrom) -> PolicyVerdict {
        let rules = self.shared.senders.now();
        let blocked = || rules.blocks(from.mailbox.iter().map(Mailbox::as_str)).map(senders::refusal);
        let may_come = match self.shared.settings.is_stranger(peer) {
            true => self.shared.rates.may_come(peer.client).and_then(|()| blocked().map_or(Ok(()), Err)),
            false => Ok(()),
        };
        match may_come {
            Ok(()) => PolicyVerdict::Accept,
            Err(reply) => {
                self.note(peer, from, &[], &reply.clone().into());
                PolicyVerdict::Refuse(reply)
            }
        }
    }

    async fn rcpt_to(&self, peer: &SmtpPeer, envelope: &Envelope, to: &RcptTo) -> PolicyVerdict {
        if let Some(verdict) = self.orders().verdict(to).await {
            return verdict;
        }
        match self.judge(peer, to).await {
            Ok(()) => PolicyVerdict::Accept,
            Err(reply) => {
                self.note(peer, &envelope.sender, std::slice::from_ref(to), &reply.clone().into());
                PolicyVerdict::Refuse(reply)
            }
        }
    }

    async fn begin_body(&self, peer: &SmtpPeer, envelope: &Envelope) -> Result<InboundBody, Reply> {
        if self.shared.settings.is_stranger(peer) {
            let comes = self.shared.rates.comes(peer.client, envelope.recipients.len());
            comes.inspect_err(|reply| {
                self.note(peer, &envelope.sender, &envelope.recipients, &reply.clone().into());
            })?;
        }
        let hostname = &*self.shared.settings.smtp.hostname;
        let draft = self.shared.spool.draft().map_err(|error| refusal(&error))?;
        let date = Date::new((self.shared.clock.0)()).rfc5322();
        let trace = trace::received(hostname, peer, envelope, draft.id(), &date);
        let incoming = Incoming::new(draft, trace, Care::Received { hostname: hostname.to_owned() });
        let origin = Provenance::of(peer, envelope, &self.shared.settings);
        let judged = origin.evaluated && !origin.relayed && self.shared.evaluator.is_some();
        Ok(InboundBody { incoming, witness: judged.then(Witness::default) })
    }

    async fn finish(&self, peer: &SmtpPeer, mut envelope: Envelope, body: InboundBody) -> MessageAnswer {
        // In a box: a connection that waits for its client should not be large for it.
        let taken = Box::pin(self.take(peer, &mut envelope, body)).await;
        MessageAnswer::All(taken.unwrap_or_else(|refused| {
            self.note(peer, &envelope.sender, &envelope.recipients, &refused);
            refused.reply
        }))
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
