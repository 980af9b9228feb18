//! The first part of the demonstration: a worm sends from one account, while fifty users write to the people to whom they always write.

use super::mail_client::MailSession;
use super::stage::Stage;
use serde::Serialize;
use std::net::SocketAddr;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use weir_console::api::{held, users};
use weir_foundation::secret::fresh_password;
use weir_mail::operations::{HeldSelection, NewUser};

const USERS: u32 = 50;
const LASTS: Duration = Duration::from_secs(12);
/// How often a normal user writes.
const NORMAL_EVERY: Duration = Duration::from_secs(3);
const WORM_EVERY: Duration = Duration::from_millis(100);
const WORM: &str = "demo-worm";
const LETTER: &str = "Subject: see this\r\n\r\nA few words.";

/// The results of this part.
#[derive(Serialize)]
pub(super) struct WormOutcome {
    /// How many mails the worm tried to send.
    pub(super) tried: u32,
    /// How many of them were sent at once.
    pub(super) reached: u32,
    /// The number of the mail after which it was stopped.
    pub(super) stopped_after: Option<u32>,
    pub(super) normal_sent: u32,
    pub(super) normal_held: u32,
}

impl WormOutcome {
    pub(super) fn stopped(&self) -> String {
        self.stopped_after.map_or_else(|| format!("never ({} mails)", self.tried), |mails| format!("{mails} mails"))
    }
}

pub(super) fn play(stage: &Stage) -> anyhow::Result<Option<WormOutcome>> {
    let password = fresh_password();
    let users: Vec<String> = (1..=USERS).map(|number| format!("demo-user-{number:02}")).collect();
    for user in users.iter().map(String::as_str).chain([WORM]) {
        ready(stage, user, &password)?;
    }
    let until = Instant::now() + LASTS;
    let normal: Vec<JoinHandle<(u32, u32)>> = users
        .into_iter()
        .map(|user| {
            let (server, password) = (stage.submission, password.clone());
            std::thread::spawn(move || normal(server, &user, &password, until))
        })
        .collect();
    let mut outcome = worm(stage.submission, &password, until)?;
    for user in normal {
        let (sent, held) = user.join().unwrap_or_default();
        outcome.normal_sent += sent;
        outcome.normal_held += held;
    }
    Ok(Some(outcome))
}

/// Makes sure that the account exists with this password, and that an earlier run did not leave it stopped.
fn ready(stage: &Stage, user: &str, password: &str) -> anyhow::Result<()> {
    let new = NewUser {
        name: user.to_owned(),
        password: Some(password.to_owned()),
        addresses: vec![format!("{user}@localhost")],
        contact: format!("{user}-contact@localhost"),
        ..NewUser::default()
    };
    if stage.control.ask(&users::ADD, &new).is_ok() {
        return Ok(());
    }
    let password = users::NewPassword { password: password.to_owned() };
    stage.control.ask_of(&users::PASSWORD, user, &password)?;
    // This fails if nothing is held, and that is fine.
    let selection = HeldSelection { user: user.to_owned(), ..HeldSelection::default() };
    stage.control.ask(&held::DELETE, &held::Which { selection }).ok();
    stage.control.ask_of(&users::UNLOCK, user, &()).map(drop)
}

/// Writes to the same friend again and again. Returns how many mails were sent, and how many of them had to wait.
fn normal(server: SocketAddr, user: &str, password: &str, until: Instant) -> (u32, u32) {
    let (mut sent, mut held) = (0, 0);
    let Ok(mut session) = MailSession::log_in(server, user, password) else { return (0, 0) };
    let (from, friend) = (format!("{user}@localhost"), [format!("friend-of-{user}@localhost")]);
    while Instant::now() < until {
        match session.send(&from, &friend, LETTER) {
            Ok(reply) if reply.starts_with("250") => {
                sent += 1;
                held += u32::from(is_held(&reply));
            }
            _ => break,
        }
        std::thread::sleep(NORMAL_EVERY.min(until.saturating_duration_since(Instant::now())));
    }
    (sent, held)
}

fn worm(server: SocketAddr, password: &str, until: Instant) -> anyhow::Result<WormOutcome> {
    let mut outcome = WormOutcome { tried: 0, reached: 0, stopped_after: None, normal_sent: 0, normal_held: 0 };
    let mut session = MailSession::log_in(server, WORM, password)?;
    while Instant::now() < until {
        let stranger = [format!("stranger-{}-{}@localhost", std::process::id(), outcome.tried)];
        let reply = session.send(&format!("{WORM}@localhost"), &stranger, LETTER)?;
        if !reply.starts_with("250") {
            outcome.stopped_after = Some(outcome.tried);
            break;
        }
        outcome.tried += 1;
        outcome.reached += u32::from(!is_held(&reply));
        std::thread::sleep(WORM_EVERY);
    }
    Ok(outcome)
}

fn is_held(reply: &str) -> bool {
    reply.contains("held:")
}
