//! Alarms: an attack, told to the administrator and the webhook.
//!
//! Whoever guesses passwords from a thousand addresses must not have us write a thousand mails: at most one alarm goes out
//! in [`QUIET`], and says how many it stands for. The log has each of them.

use super::Writer;
use crate::outbound::Outbound;
use crate::smtp::reception::Alarm;
use std::time::{Duration, Instant};

/// The least time between two alarms.
const QUIET: Duration = Duration::from_secs(600);

/// When it last rang, and what was passed over since.
#[derive(Debug, Default)]
pub(super) struct Bell {
    rung_at: Option<Instant>,
    silenced: u64,
}

impl Bell {
    /// How many alarms this one stands for besides itself; none if it is too soon for it.
    fn ring(&mut self, now: Instant) -> Option<u64> {
        if self.rung_at.is_some_and(|at| now.saturating_duration_since(at) < QUIET) {
            self.silenced += 1;
            return None;
        }
        self.rung_at = Some(now);
        Some(std::mem::take(&mut self.silenced))
    }
}

impl<O: Outbound> Writer<O> {
    pub(super) async fn raise(&self, alarm: &Alarm, bell: &mut Bell) {
        let Some(others) = bell.ring(Instant::now()) else { return };
        let admin = &self.settings.admin;
        if !admin.is_empty()
            && let Err(error) = self.send(admin, &subject(alarm), &body(alarm, others)).await
        {
            tracing::error!(to = %admin, %error, "an alarm could not be written");
        }
        if let Some(webhook) = &self.settings.webhook
            && let Err(error) = webhook.call(&json(alarm, others)).await
        {
            tracing::warn!(%error, "the webhook did not take an alarm");
        }
    }
}

fn subject(alarm: &Alarm) -> String {
    let Alarm::Banned { address, .. } = alarm;
    format!("Somebody at {address} guesses passwords and is banned")
}

fn body(alarm: &Alarm, others: u64) -> String {
    let Alarm::Banned { address, user, length, offence } = alarm;
    let minutes = length.as_secs().div_ceil(60);
    let others = match others {
        0 => String::new(),
        others => format!("Since the last such notice {others} more bans were given; the log names them.\n"),
    };
    format!(
        "Too many logins from {address} failed, the last one as {user:?}. The address is banned for {minutes} min (ban {offence} of \
         this address; each further one is twice as long).\n{others}\nNothing needs to be done. If the address is yours, such \
         as a webmail server's, list it in submission.trusted: then it is not banned for the wrong passwords of its users.\n\nThe \
         next such notice comes in {} min at the earliest.\n",
        QUIET.as_secs() / 60
    )
}

fn json(alarm: &Alarm, others: u64) -> serde_json::Value {
    let Alarm::Banned { address, user, length, offence } = alarm;
    serde_json::json!({
        "event": "login.banned",
        "address": address.to_string(),
        "user": &**user,
        "seconds": length.as_secs(),
        "offence": offence,
        "others": others,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_alarms_is_one_alarm() {
        let (mut bell, now) = (Bell::default(), Instant::now());
        assert_eq!(bell.ring(now), Some(0));
        assert!((0..50).all(|_| bell.ring(now + QUIET / 2).is_none()));
        assert_eq!(bell.ring(now + QUIET), Some(50));
    }

    #[test]
    fn an_alarm_says_who_and_what_to_do() {
        let alarm = Alarm::Banned {
            address: "192.0.2.7".parse().unwrap(),
            user: "a\r\nBcc: x".into(),
            length: Duration::from_secs(300),
            offence: 1,
        };
        assert_eq!(subject(&alarm), "Somebody at 192.0.2.7 guesses passwords and is banned");
        let text = body(&alarm, 3);
        assert!(text.contains("banned for 5 min (ban 1") && text.contains("3 more bans"), "{text}");
        assert!(text.contains("\\r\\nBcc") && text.contains("submission.trusted"), "{text}");
    }
}
