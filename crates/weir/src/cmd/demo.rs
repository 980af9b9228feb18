//! `weir demo`: attacks on a running Weir, to be watched. Loopback only.

use anyhow::{Context, ensure};
use base64::Engine;
use serde::Serialize;
use std::io::{BufRead, BufReader, IsTerminal, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);
/// Longer replies are cut; ours are far shorter.
const REPLY_LINES_MAX: usize = 100;

#[derive(clap::Subcommand)]
pub(crate) enum Demo {
    /// A taken-over account mails strangers until the throttle stops it
    Outbreak(OutbreakArgs),
}

impl Demo {
    pub(crate) fn run(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        match self {
            Demo::Outbreak(args) => args.run(out),
        }
    }
}

#[derive(clap::Args)]
pub(crate) struct OutbreakArgs {
    /// Where submission listens on this machine
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:2587")]
    server: SocketAddr,
    /// The login that was taken over
    #[arg(long, value_name = "NAME", default_value = "demo")]
    user: String,
    /// Its password, as `weir up` has printed it
    #[arg(long, env = "WEIR_DEMO_PASSWORD", hide_env_values = true)]
    password: String,
    /// The address that it sends as
    #[arg(long, value_name = "ADDRESS", default_value = "demo@localhost")]
    from: String,
    /// How many mails
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    mails: u32,
    /// How many recipients each mail has
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    recipients: u32,
    /// How many mails a second
    #[arg(long, value_name = "NUMBER", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    a_second: u32,
    /// Print what happened as JSON
    #[arg(long)]
    json: bool,
}

/// What became of the outbreak.
#[derive(Serialize, Default)]
struct Outbreak {
    mails_tried: u32,
    mails_accepted: u32,
    replies: Vec<String>,
    ended_by: Option<String>,
}

impl OutbreakArgs {
    fn run(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        ensure!(self.server.ip().is_loopback(), "{} is another machine: this demo attacks only this one", self.server);
        let lively = !self.json && std::io::stdout().is_terminal();
        let mut outbreak = Outbreak::default();
        let mut session = Session::log_in(self)?;
        let begun = Instant::now();
        for number in 1..=self.mails {
            let due = Duration::from_secs(1) * (number - 1) / self.a_second;
            std::thread::sleep(due.saturating_sub(begun.elapsed()));
            outbreak.mails_tried = number;
            let reply = session.send(&self.from, &self.strangers(number))?;
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
        if let Err(refused) = Session::log_in(self) {
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

/// A mail client of a few lines.
struct Session(BufReader<TcpStream>);

impl Session {
    fn log_in(args: &OutbreakArgs) -> anyhow::Result<Session> {
        let line = TcpStream::connect_timeout(&args.server, PATIENCE)
            .with_context(|| format!("nothing listens on {}\n  hint: start `weir up` first", args.server))?;
        line.set_read_timeout(Some(PATIENCE))?;
        line.set_write_timeout(Some(PATIENCE))?;
        let mut session = Session(BufReader::new(line));
        session.expect("", "220")?;
        session.expect("EHLO outbreak.localhost", "250")?;
        let secret = format!("\0{}\0{}", args.user, args.password);
        session.expect(&format!("AUTH PLAIN {}", base64::engine::general_purpose::STANDARD.encode(secret)), "235")?;
        Ok(session)
    }

    /// Sends one mail; the reply that decided about it.
    fn send(&mut self, from: &str, to: &[String]) -> anyhow::Result<String> {
        let reply = self.ask(&format!("MAIL FROM:<{from}>"))?;
        if !reply.starts_with("250") {
            return Ok(reply);
        }
        for recipient in to {
            let reply = self.ask(&format!("RCPT TO:<{recipient}>"))?;
            if !reply.starts_with("25") {
                return Ok(reply);
            }
        }
        let reply = self.ask("DATA")?;
        if !reply.starts_with("354") {
            return Ok(reply);
        }
        let shown = to.first().map_or("", String::as_str);
        self.ask(&format!(
            "From: <{from}>\r\nTo: <{shown}>\r\nSubject: I love you\r\n\r\nPlease see the attached file.\r\n."
        ))
    }

    fn expect(&mut self, command: &str, code: &str) -> anyhow::Result<()> {
        let reply = self.ask(command)?;
        ensure!(reply.starts_with(code), "{reply}");
        Ok(())
    }

    /// Says something, if anything, and reads the whole reply as one line.
    fn ask(&mut self, command: &str) -> anyhow::Result<String> {
        if !command.is_empty() {
            self.0.get_mut().write_all(format!("{command}\r\n").as_bytes())?;
        }
        let mut reply = String::new();
        for _ in 0..REPLY_LINES_MAX {
            let mut line = String::new();
            ensure!(self.0.read_line(&mut line)? > 0, "the server has hung up after {reply:?}");
            let is_last = line.as_bytes().get(3) != Some(&b'-');
            reply.push_str(if reply.is_empty() {
                line.trim_end()
            } else {
                line.get(4..).unwrap_or_default().trim_end()
            });
            if is_last {
                return Ok(reply);
            }
            reply.push(' ');
        }
        Ok(reply)
    }
}
