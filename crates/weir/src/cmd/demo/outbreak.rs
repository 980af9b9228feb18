//! `weir demo outbreak`: a stolen account that sends many mails, shown mail by mail.

use super::mail_client::MailSession;
use anyhow::ensure;
use serde::Serialize;
use std::io::{IsTerminal, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The address on this machine where Weir accepts mail from users
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:2587")]
    server: SocketAddr,
    /// The login of the stolen account
    #[arg(long, value_name = "NAME", default_value = "demo")]
    user: String,
    /// Its password, as `weir up --demo` printed it
    #[arg(long, env = "WEIR_DEMO_PASSWORD", hide_env_values = true)]
    password: String,
    /// The sender address of the mails
    #[arg(long, value_name = "ADDRESS", default_value = "demo@localhost")]
    from: String,
    /// How many mails to send
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    mails: u32,
    /// How many recipients each mail has
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    recipients: u32,
    /// How many mails to send per second
    #[arg(long, value_name = "NUMBER", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    a_second: u32,
    /// Print the results as JSON
    #[arg(long)]
    json: bool,
}

/// The mail that the worm sends.
const LETTER: &str = "Subject: I love you\r\n\r\nPlease see the attached file.";

/// The results of the outbreak.
#[derive(Serialize, Default)]
struct Outbreak {
    mails_tried: u32,
    mails_accepted: u32,
    replies: Vec<String>,
    ended_by: Option<String>,
}

impl Args {
    pub(super) fn run(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        ensure!(self.server.ip().is_loopback(), "{} is another machine: this demo attacks only this one", self.server);
        let lively = !self.json && std::io::stdout().is_terminal();
        let mut outbreak = Outbreak::default();
        let mut session = MailSession::log_in(self.server, &self.user, &self.password)?;
        let begun = Instant::now();
        for number in 1..=self.mails {
            let due = Duration::from_secs(1) * (number - 1) / self.a_second;
            std::thread::sleep(due.saturating_sub(begun.elapsed()));
            outbreak.mails_tried = number;
            let reply = session.send(&self.from, &self.strangers(number), LETTER)?;
            if !self.json {
                writeln!(out, "{number:>5}  {reply}")?;
            }
            if lively {
                out.flush()?;
            }
            if !reply.starts_with("250") {
                outbreak.ended_by = Some(reply);
                break;
            }
            outbreak.mails_accepted += 1;
            outbreak.replies.push(reply);
        }
        drop(session);
        self.finish(&outbreak, out)
    }

    fn finish(&self, outbreak: &Outbreak, out: &mut dyn Write) -> anyhow::Result<()> {
        if self.json {
            serde_json::to_writer_pretty(&mut *out, outbreak)?;
            writeln!(out)?;
            return Ok(());
        }
        match &outbreak.ended_by {
            None => writeln!(out, "\nNo mail was refused; the replies say what waits.")?,
            Some(_) => writeln!(out, "\nMail {} was refused: {} is stopped.", outbreak.mails_tried, self.user)?,
        }
        if let Err(refused) = MailSession::log_in(self.server, &self.user, &self.password) {
            writeln!(out, "Logging in again: {refused:#}")?;
        }
        writeln!(
            out,
            "\nNow see `weir user show {0}`, `weir held list` and `weir held release --user {0}`.",
            self.user
        )?;
        Ok(())
    }

    fn strangers(&self, mail: u32) -> Vec<String> {
        (1..=self.recipients).map(|number| format!("stranger-{mail}-{number}@localhost")).collect()
    }
}
