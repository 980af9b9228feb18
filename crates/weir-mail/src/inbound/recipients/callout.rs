//! Asks the next server whether a recipient exists: we send it MAIL FROM:<> and RCPT TO:<…> and nothing more, and cache the answer.
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
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
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
        let begun = OnceLock::new();
        let asked = tokio::time::timeout(self.patience, self.ask(to, &address, &begun)).await;
        let late = |_| {
            let outcome = DeliveryOutcome::temporary(Status(4, 4, 1), "no answer in time");
            if begun.get().is_some_and(|begun| self.was_silent(*begun)) {
                self.transport.gave_up(&plain(to), &outcome, wall_clock());
            }
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

    /// Whether a server that was asked then had a fair time to answer. Whoever waited for one of our own slots may have had next to none
    /// left, and a stranger with a list of invented names can make everybody wait.
    fn was_silent(&self, begun: std::time::Instant) -> bool {
        begun.elapsed() >= self.patience / 2
    }

    /// Asks, when there is a slot; `begun` is set when the question is on its way.
    async fn ask(
        &self,
        to: &RcptTo,
        address: &str,
        begun: &OnceLock<std::time::Instant>,
    ) -> Result<Existence, DeliveryOutcome> {
        let closed = |_| DeliveryOutcome::temporary(Status(4, 3, 0), "closed");
        let _slot = self.slots.acquire().await.map_err(closed)?;
        // Somebody may have asked the same while this one waited.
        if let Some(known) = self.memory().find(address, self.now()) {
            return Ok(known.map_or_else(Existence::No, |()| Existence::Yes));
        }
        begun.get_or_init(std::time::Instant::now);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delivery::next_hops::NextHopView;
    use crate::delivery::route::{Endpoint, HostOrder, Route, Routes, Smarthost};
    use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
    use tokio::net::TcpListener;
    use weir_smtp::client::approach::Approach;
    use weir_smtp::client::tls::TlsLevel;

    fn callout(server: &TcpListener, patience: Duration) -> Callout {
        let host = Endpoint::Host("127.0.0.1".into(), server.local_addr().unwrap().port());
        let approach = Approach { tls: TlsLevel::Off, ..Approach::default() };
        let route = Route::Smarthost(Smarthost { hosts: vec![host], order: HostOrder::Failover, approach });
        let mut delivery = DeliverySettings::new("mx.example.org", "/nonexistent".into());
        delivery.routes = Routes::new(route);
        let settings = CalloutSettings { patience, at_once: 1, ..CalloutSettings::default() };
        Callout::new(&delivery, settings).unwrap()
    }

    impl Callout {
        async fn find_name(&self, name: &str) -> Existence {
            self.find(&RcptTo::parse(&format!("<{name}@example.org>"), false).unwrap()).await
        }

        fn hop(&self) -> NextHopView {
            self.transport.next_hops().hops.remove(0)
        }
    }

    /// Replies to each command as `say` has it, in session after session, and hangs up where that is nothing.
    async fn serve(server: TcpListener, say: fn(&str) -> &'static str) {
        while let Ok((stream, _)) = server.accept().await {
            let mut stream = BufReader::new(stream);
            let mut reply = "220 next.example";
            while !reply.is_empty() && stream.write_all(format!("{reply}\r\n").as_bytes()).await.is_ok() {
                let mut line = String::new();
                if stream.read_line(&mut line).await.unwrap_or(0) == 0 {
                    break;
                }
                reply = say(line.split(' ').next().unwrap_or_default());
            }
        }
    }

    #[tokio::test]
    async fn whoever_waits_for_a_slot_of_ours_says_nothing_of_the_server() {
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let callout = callout(&server, Duration::from_secs(1));
        let slot = callout.slots.acquire().await.unwrap();
        assert!(matches!(callout.find_name("ann").await, Existence::NotNow(_)));
        assert_eq!((callout.hop().tried, callout.hop().failures), (None, 0), "nobody has asked it");
        drop(slot);
        // It takes the connection and never says a word. The second waits until the first gives up.
        let both = tokio::join!(callout.find_name("ann"), callout.find_name("bob"));
        assert!(matches!(both, (Existence::NotNow(_), Existence::NotNow(_))));
        assert_eq!((callout.hop().answers, callout.hop().failures), (false, 1), "{:?}", callout.hop());
    }

    #[tokio::test]
    async fn a_recipient_that_is_put_off_is_no_trouble_of_the_server() {
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let callout = callout(&server, Duration::from_secs(60));
        let serving = tokio::spawn(serve(server, |verb| match verb {
            "RCPT" => "452 4.2.2 the mailbox is full",
            _ => "250 fine",
        }));
        for _ in 0..5 {
            assert!(matches!(callout.find_name("ann").await, Existence::NotNow(_)));
        }
        assert_eq!((callout.hop().answers, callout.hop().failures), (true, 0), "{:?}", callout.hop());
        serving.abort();
    }

    #[tokio::test]
    async fn a_server_that_hangs_up_when_it_is_asked_does_not_answer() {
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let callout = callout(&server, Duration::from_secs(60));
        let serving = tokio::spawn(serve(server, |verb| if verb == "RCPT" { "" } else { "250 fine" }));
        assert!(matches!(callout.find_name("ann").await, Existence::NotNow(_)));
        assert_eq!((callout.hop().answers, callout.hop().failures), (false, 1), "{:?}", callout.hop());
        serving.abort();
    }
}
