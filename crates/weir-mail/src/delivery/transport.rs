//! Delivers one assignment to its destination and returns what the server answered.
//!
//! A failure before any host has said anything about the message counts against the destination ([`Feedback::Unreachable`]), and the parcel
//! keeps its place in the queue. Hosts are tried in order until one opens a session; a host whose TLS does not work is tried once more
//! without, where that is allowed. A session that was kept and has died is replaced by a fresh one at once.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use weir_core::time::Instant;

use super::ledger::Ledger;
use super::maildir;
use super::message::Recipient;
use super::next_hops::{NextHops, NextHopsView};
use super::preparation::{Preparation, Prepared};
use super::protection::Protection;
use super::queue::{Assignment, Attempt};
use super::resolver::MailResolver;
use super::route::{Endpoint, HostOrder, Route, Routes, Smarthost, Target};
use super::window::Feedback;
use weir_smtp::client::approach::{Approach, Host, ServerAddress};
use weir_smtp::client::fitness::unfit_recipient;
use weir_smtp::client::proof::Proof;
use weir_smtp::client::session::{OpenError, OpenFault, Parcel, Session};
use weir_smtp::client::tls::{ClientTls, TlsLevel};
use weir_smtp::dkim::Keyring;
use weir_smtp::envelope::RcptTo;
use weir_smtp::outcome::{DeliveryOutcome, Fate, Status};

/// Carries assignments out.
#[derive(Debug)]
pub struct Transport {
    routes: Routes,
    resolver: MailResolver,
    protection: Protection,
    tls: ClientTls,
    hello: Arc<str>,
    keyring: RwLock<Arc<Keyring>>,
    turn: AtomicUsize,
    opened: AtomicU64,
    next_hops: Arc<NextHops>,
}

impl Transport {
    /// A transport that calls itself `hello`.
    pub fn new(routes: Routes, resolver: MailResolver, tls: ClientTls, hello: Arc<str>, keyring: Keyring) -> Transport {
        let (keyring, turn, opened) = (RwLock::new(Arc::new(keyring)), AtomicUsize::new(0), AtomicU64::new(0));
        let (protection, next_hops) = (Protection::default(), Arc::default());
        Transport { routes, resolver, protection, tls, hello, keyring, turn, opened, next_hops }
    }

    /// The same, which asks what the servers of domains have to prove.
    #[must_use]
    pub fn protected(self, protection: Protection) -> Transport {
        Transport { protection, ..self }
    }

    /// The same, which notes here how next hops behave.
    #[must_use]
    pub fn noting(self, next_hops: Arc<NextHops>) -> Transport {
        Transport { next_hops, ..self }
    }

    /// What is known of the next hops that the configuration names.
    pub fn next_hops(&self) -> NextHopsView {
        self.next_hops.view(&self.routes)
    }

    /// The routes.
    pub fn routes(&self) -> &Routes {
        &self.routes
    }

    /// Sessions opened so far.
    pub fn sessions_opened(&self) -> u64 {
        self.opened.load(Ordering::Relaxed)
    }

    /// Signs with these keys from now on.
    pub fn set_keyring(&self, keyring: Keyring) {
        *self.keyring.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(keyring);
    }

    /// Asks the next server whether it takes mail for this recipient: its word (delivered or permanent), or why it cannot
    /// be asked. A folder here takes everything.
    pub async fn would_take(&self, recipient: &Recipient, now: Instant) -> Result<DeliveryOutcome, DeliveryOutcome> {
        let target = self.routes.target(recipient);
        let approach = match self.routes.route(&target) {
            Some(Route::Maildir(_)) => return Ok(DeliveryOutcome::delivered("a folder here")),
            Some(Route::Refuse(text)) => return Ok(DeliveryOutcome::permanent(Status(5, 7, 1), text)),
            Some(Route::Mx(approach)) => approach,
            Some(Route::Smarthost(to) | Route::Lmtp(to)) => &to.approach,
            None => return Ok(DeliveryOutcome::permanent(Status(5, 3, 5), "no route leads there")),
        };
        let mut session = self.open(&target, approach, now).await?;
        let said = session.would_take(&recipient.to).await;
        self.next_hops.answered(&target, &said, now);
        session.quit().await;
        said
    }

    /// Nobody waited any longer for the answer to [`Transport::would_take`].
    pub fn gave_up(&self, recipient: &Recipient, outcome: &DeliveryOutcome, now: Instant) {
        self.next_hops.unreachable(&self.routes.target(recipient), outcome, now);
    }

    /// Carries an assignment out. `kept` is a session of an earlier one to the same destination, or where it is left.
    pub async fn carry<L: Ledger>(
        &self,
        work: &Assignment,
        kept: &mut Option<Session>,
        ledger: &L,
        now: Instant,
    ) -> Attempt {
        match self.routes.route(&work.target) {
            Some(Route::Maildir(folder)) => self.to_maildirs(folder, work, ledger).await,
            Some(Route::Refuse(text)) => {
                all(work, DeliveryOutcome::permanent(Status(5, 7, 1), text), Feedback::Reached)
            }
            Some(Route::Mx(approach)) => self.over_the_wire(work, approach, kept, ledger, now).await,
            Some(Route::Smarthost(to) | Route::Lmtp(to)) => {
                self.over_the_wire(work, &to.approach, kept, ledger, now).await
            }
            None => all(work, DeliveryOutcome::permanent(Status(5, 3, 5), "no route leads there"), Feedback::Reached),
        }
    }

    async fn to_maildirs<L: Ledger>(&self, folder: &std::path::Path, work: &Assignment, ledger: &L) -> Attempt {
        let mut outcomes = Vec::with_capacity(work.places.len());
        for recipient in work.places.iter().filter_map(|place| work.message.recipients.get(*place)) {
            outcomes.push(match ledger.body(work.message.id) {
                Ok(body) => maildir::deliver(folder, &self.hello, &work.message, recipient, body).await,
                Err(error) => error.into(),
            });
        }
        Attempt { outcomes, feedback: Feedback::Reached, untried: false, reports_itself: false, arrived: true }
    }

    async fn over_the_wire<L: Ledger>(
        &self,
        work: &Assignment,
        approach: &Approach,
        kept: &mut Option<Session>,
        ledger: &L,
        now: Instant,
    ) -> Attempt {
        if let Some(session) = kept.take()
            && let Some(attempt) = self.with_session(work, session, kept, ledger, now).await
        {
            self.next_hops.ended(&work.target, &attempt, now);
            return attempt;
        }
        match self.open(&work.target, approach, now).await {
            Ok(session) => {
                let attempt = self.with_session(work, session, kept, ledger, now).await;
                let attempt = attempt.unwrap_or_else(|| {
                    let peer = self.routes.name(&work.target).into();
                    let hung_up = DeliveryOutcome::temporary(Status(4, 4, 2), "the server hung up").by(&peer);
                    all(work, hung_up, Feedback::Lost)
                });
                self.next_hops.ended(&work.target, &attempt, now);
                attempt
            }
            Err(outcome) if outcome.fate == Fate::Permanent => all(work, outcome, Feedback::Reached),
            Err(outcome) => Attempt { untried: true, ..all(work, outcome, Feedback::Unreachable) },
        }
    }

    /// Delivers in a session, which is kept if it can be used again. Nothing if it had been dead.
    async fn with_session<L: Ledger>(
        &self,
        work: &Assignment,
        mut session: Session,
        kept: &mut Option<Session>,
        ledger: &L,
        now: Instant,
    ) -> Option<Attempt> {
        let offered = session.offered();
        let peer = Arc::clone(session.peer());
        let recipients: Vec<&RcptTo> =
            work.places.iter().filter_map(|place| work.message.recipients.get(*place)).map(|one| &one.to).collect();
        let mut outcomes: Vec<Option<DeliveryOutcome>> =
            recipients.iter().map(|to| unfit_recipient(&to.mailbox, offered, &peer)).collect();
        let fit: Vec<&RcptTo> =
            recipients.iter().zip(&outcomes).filter(|(_, unfit)| unfit.is_none()).map(|(to, _)| *to).collect();
        let mut feedback = Feedback::Reached;
        let keyring = Arc::clone(&self.keyring.read().unwrap_or_else(PoisonError::into_inner));
        let preparation = Preparation { message: &work.message, ledger, keyring, offered, peer: &peer, now };
        match preparation.prepare().await {
            _ if fit.is_empty() => *kept = Some(session),
            Err(outcome) => {
                outcomes.iter_mut().filter(|known| known.is_none()).for_each(|known| *known = Some(outcome.clone()));
                *kept = Some(session);
            }
            Ok((plan, prepared)) => {
                let parcel = Parcel { sender: &work.message.sender, recipients: &fit, manner: plan.manner };
                let delivered = match prepared {
                    Prepared::Same(content) => session.deliver(&parcel, content).await,
                    Prepared::Converted(content) => session.deliver(&parcel, *content).await,
                };
                if delivered.stale {
                    return None;
                }
                feedback = if delivered.broken { Feedback::Lost } else { Feedback::Reached };
                let places = outcomes.iter_mut().filter(|known| known.is_none());
                places.zip(delivered.outcomes).for_each(|(known, outcome)| *known = Some(outcome));
                if !delivered.broken {
                    *kept = Some(session);
                }
            }
        }
        let lost = || DeliveryOutcome::temporary(Status(4, 5, 0), "no answer").by(&peer);
        let outcomes = outcomes.into_iter().map(|outcome| outcome.unwrap_or_else(lost)).collect();
        let arrived = matches!(self.routes.route(&work.target), Some(Route::Lmtp(_)));
        Some(Attempt { outcomes, feedback, untried: false, reports_itself: offered.dsn, arrived })
    }

    async fn open(&self, target: &Target, approach: &Approach, now: Instant) -> Result<Session, DeliveryOutcome> {
        let opened = self.open_first(target, approach, now).await;
        if let Err(outcome) = &opened {
            self.next_hops.unreachable(target, outcome, now);
        }
        opened
    }

    /// A session with the first host that gives one.
    async fn open_first(&self, target: &Target, approach: &Approach, now: Instant) -> Result<Session, DeliveryOutcome> {
        let hosts = self.hosts(target, now).await?;
        let mut last = DeliveryOutcome::temporary(Status(4, 4, 4), "there is no host to go to");
        for host in &hosts {
            match self.open_one(host, approach).await {
                Ok(session) => {
                    self.opened.fetch_add(1, Ordering::Relaxed);
                    tracing::debug!(%host, encrypted = session.is_encrypted(), "connected");
                    return Ok(session);
                }
                Err(error) => {
                    tracing::debug!(%host, %error, "no session");
                    // The error of a host that can be repaired says more than that a host is ourselves.
                    if error.fault != OpenFault::Loop || hosts.len() == 1 {
                        last = error.outcome;
                    }
                }
            }
        }
        Err(last)
    }

    async fn open_one(&self, host: &Host, approach: &Approach) -> Result<Session, OpenError> {
        match Session::open(host, approach, &self.tls, &self.hello).await {
            Err(error)
                if error.fault == OpenFault::Tls
                    && approach.tls == TlsLevel::Opportunistic
                    && host.proof == Proof::AsAsked
                    && !approach.implicit_tls =>
            {
                let plain = Approach { tls: TlsLevel::Off, ..approach.clone() };
                Session::open(host, &plain, &self.tls, &self.hello).await
            }
            Err(error) => {
                if error.fault == OpenFault::Login {
                    tracing::warn!(%host, %error, "the login at the smarthost fails; its mail waits");
                }
                Err(error)
            }
            opened => opened,
        }
    }

    async fn hosts(&self, target: &Target, now: Instant) -> Result<Vec<Host>, DeliveryOutcome> {
        match self.routes.route(target) {
            Some(Route::Smarthost(smarthost) | Route::Lmtp(smarthost)) => self.smarthosts(smarthost).await,
            Some(Route::Mx(approach)) if approach.tls != TlsLevel::Off => {
                let hosts = self.resolver.exchangers(&target.domain, now).await?;
                self.protection.of(&target.domain, hosts).await
            }
            _ => self.resolver.exchangers(&target.domain, now).await,
        }
    }

    async fn smarthosts(&self, smarthost: &Smarthost) -> Result<Vec<Host>, DeliveryOutcome> {
        let turn = match smarthost.order {
            HostOrder::Failover => 0,
            HostOrder::RoundRobin => self.turn.fetch_add(1, Ordering::Relaxed),
        };
        let (mut hosts, mut last) = (Vec::new(), DeliveryOutcome::temporary(Status(4, 3, 5), "no smarthost is set"));
        let count = smarthost.hosts.len();
        for place in 0..count {
            match smarthost.hosts.get((place + turn) % count) {
                Some(Endpoint::Host(name, port)) => match self.resolver.addresses(name, *port).await {
                    Ok(found) => hosts.extend(found),
                    Err(outcome) => last = outcome,
                },
                Some(Endpoint::Socket(path)) => {
                    let name = path.display().to_string().into();
                    hosts.push(Host {
                        name,
                        place: ServerAddress::Unix(path.clone()),
                        by_dns: false,
                        proof: Proof::AsAsked,
                    });
                }
                None => {}
            }
        }
        if hosts.is_empty() { Err(last) } else { Ok(hosts) }
    }
}

/// The same outcome for everybody.
fn all(work: &Assignment, outcome: DeliveryOutcome, feedback: Feedback) -> Attempt {
    let outcomes = vec![outcome; work.places.len()];
    Attempt { outcomes, feedback, untried: false, reports_itself: false, arrived: false }
}
