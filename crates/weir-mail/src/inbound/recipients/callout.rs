//! Recipients that the next server knows: we ask it (MAIL FROM:<>, RCPT TO:<…>, and no more), and remember the answer.
//!
//! A refusal of the recipient for good is a no, in the server's own words. Everything else that is not a yes (it cannot be
//! reached, it is slow, it refuses us rather than the recipient, it says 4xx) means that nobody could be asked: `451`, and
//! the client comes again. Only if the server has accepted mail for the recipient in the last days do we accept it all the same. Bounded:
//! so many questions at once, so long for each, so many addresses remembered.

use super::memory::{Memory, Remembering};
use super::{Existence, domain_key};
use crate::delivery::StartError;
use crate::delivery::message::Recipient;
use crate::delivery::resolver::MailResolver;
use crate::delivery::settings::Settings as DeliverySettings;
use crate::delivery::transport::Transport;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Semaphore;
use weir_core::time::Instant;
use weir_foundation::clock::wall_clock;
use weir_settings::settings;
use weir_smtp::client::tls::ClientTls;
use weir_smtp::dkim::Keyring;
use weir_smtp::envelope::RcptTo;
use weir_smtp::outcome::{DeliveryOutcome, Fate, Status};

settings! {
    /// How the next server is asked.
    #[derive(Copy, PartialEq, Eq)]
    pub struct CalloutSettings {
        /// How long the next server is asked about a recipient before the client hears 451
        pub patience as "callout_patience": Duration = duration("15s", "100ms"..="4m"),
        /// Questions to next servers at once
        pub at_once as "callouts": usize = count(20, 1..=1_000),
        /// What is remembered.
        pub remembering: Remembering = part(),
    }
}

/// Asks the next server.
#[derive(Debug)]
pub struct Callout {
    transport: Transport,
    memory: Mutex<Memory>,
    slots: Semaphore,
    patience: Duration,
    begun: std::time::Instant,
}

impl Callout {
    /// Asks along the routes by which mail is delivered.
    pub fn new(delivery: &DeliverySettings, settings: CalloutSettings) -> Result<Callout, StartError> {
        let resolver = MailResolver::new(&delivery.dns, delivery.ourselves.clone())?;
        let tls = ClientTls::new(delivery.roots.as_deref())?;
        let (routes, hello) = (delivery.routes.clone(), Arc::clone(&delivery.hostname));
        Ok(Callout {
            transport: Transport::new(routes, resolver, tls, hello, Keyring::default())
                .noting(Arc::clone(&delivery.next_hops)),
            memory: Mutex::new(Memory::new(settings.remembering)),
            slots: Semaphore::new(settings.at_once.max(1)),
            patience: settings.patience,
            begun: std::time::Instant::now(),
        })
    }

    pub(super) async fn find(&self, to: &RcptTo) -> Existence {
        let address = format!("{}@{}", to.mailbox.local(), domain_key(to.mailbox.domain()));
        if let Some(known) = self.memory().find(&address, self.now()) {
            return known.map_or_else(Existence::No, |()| Existence::Yes);
        }
        let asked = tokio::time::timeout(self.patience, self.ask(to, &address)).await;
        let late = |_| {
            let outcome = DeliveryOutcome::temporary(Status(4, 4, 1), "no answer in time");
            self.transport.gave_up(&plain(to), &outcome, wall_clock());
            Err(outcome)
        };
        match asked.unwrap_or_else(late) {
            Ok(known) => known,
            Err(outcome) if self.memory().was_there(&address, self.now()) => {
                tracing::warn!(%address, %outcome, "a recipient cannot be asked about; it was there not long ago and is taken");
                Existence::Yes
            }
            Err(outcome) => {
                tracing::warn!(%address, %outcome, "a recipient cannot be asked about; its mail is refused for now");
                Existence::NotNow("the recipient cannot be verified now".into())
            }
        }
    }

    async fn ask(&self, to: &RcptTo, address: &str) -> Result<Existence, DeliveryOutcome> {
        let closed = |_| DeliveryOutcome::temporary(Status(4, 3, 0), "closed");
        let _slot = self.slots.acquire().await.map_err(closed)?;
        // Somebody may have asked the same while this one waited.
        if let Some(known) = self.memory().find(address, self.now()) {
            return Ok(known.map_or_else(Existence::No, |()| Existence::Yes));
        }
        let outcome = self.transport.would_take(&plain(to), wall_clock()).await?;
        let known = match outcome.fate {
            Fate::Delivered => Ok(()),
            Fate::Temporary => return Err(outcome),
            Fate::Permanent => {
                Err(format!("the next server refuses this recipient: {}", outcome.text).into_boxed_str())
            }
        };
        self.memory().learn(address, known.clone(), self.now());
        Ok(known.map_or_else(Existence::No, |()| Existence::Yes))
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Instant {
        Instant(u64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }
}

/// The recipient without what its sender wants to hear of it.
fn plain(to: &RcptTo) -> Recipient {
    Recipient { index: 0, to: RcptTo { mailbox: to.mailbox.clone(), notify: None, orcpt: None } }
}
