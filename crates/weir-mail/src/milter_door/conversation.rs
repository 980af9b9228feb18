//! One connection of a mail server to the milter door: the session of one of the server's clients, or of several in turn.

use super::MilterDoor;
use super::deciding::Transaction;
use super::message::Message;
use crate::door::{Closing, Socket};
use crate::inbound::senders;
use std::collections::HashSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;
use weir_smtp::envelope::{MailFrom, RcptTo};
use weir_smtp::mailbox::Mailbox;
use weir_smtp::milter::{Agreed, Answer, Conversation, MilterCommand};
use weir_smtp::peer::{Dialect, SmtpPeer};
use weir_smtp::reply::{Reply, Status};
use weir_store::diary::Facts;

/// A server that waits for a decision hears so often that it is being made; servers give up after some minutes of silence.
const PROGRESS_EVERY: Duration = Duration::from_secs(20);
/// The longest name of a user; what is longer is nobody's.
const LOGIN_MAX: usize = 320;

struct Session<'d> {
    door: &'d Arc<MilterDoor>,
    /// The machine that asks.
    server: &'d str,
    socket: Socket,
    conversation: Conversation,
    client: SmtpPeer,
    /// Who is logged in, for the message that comes.
    login: Option<String>,
    transaction: Option<Transaction>,
}

/// Answers a server until it has enough, is gone, or says nothing for too long.
pub(super) async fn converse(
    door: &Arc<MilterDoor>,
    socket: Socket,
    server: &str,
    mut closing: Closing,
) -> io::Result<()> {
    let conversation = Conversation::new(door.needed());
    let mut session = Session { door, server, socket, conversation, client: nobody(), login: None, transaction: None };
    let mut buffer = vec![0; 64 << 10];
    loop {
        while let Some(command) = session.next_command()? {
            if command == MilterCommand::Quit {
                return Ok(());
            }
            session.take(command).await?;
        }
        let mut descriptors = Vec::new();
        let read = timeout(door.settings.idle, session.socket.read(&mut buffer, &mut descriptors));
        let length = tokio::select! {
            read = read => read.map_err(|_| io::ErrorKind::TimedOut)??,
            () = closing.begins() => return Ok(()),
        };
        if length == 0 {
            return Ok(());
        }
        session.conversation.feed(&buffer[..length]);
    }
}

/// A client of whom nothing is known.
fn nobody() -> SmtpPeer {
    let unknown = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    SmtpPeer { dialect: Dialect::Esmtp, ..SmtpPeer::new(0, unknown, unknown) }
}

impl Session<'_> {
    fn next_command(&mut self) -> io::Result<Option<MilterCommand>> {
        self.conversation.next_command().map_err(|garbled| io::Error::new(io::ErrorKind::InvalidData, garbled))
    }

    async fn take(&mut self, command: MilterCommand) -> io::Result<()> {
        let answered = self.conversation.is_answered(&command);
        let answer = match command {
            MilterCommand::Negotiate(_) => return self.agree().await,
            MilterCommand::Macros { of, values } => {
                self.note_macros(of, values);
                return Ok(());
            }
            MilterCommand::Connect { name, address } => self.connected(&name, address),
            MilterCommand::Helo(name) => {
                self.transaction = None;
                self.client.helo = Some(printable(&name).into());
                Answer::Continue
            }
            MilterCommand::Mail(words) => self.mail(&words),
            MilterCommand::Recipient(words) => self.recipient(&words),
            MilterCommand::Data | MilterCommand::Unknown(_) => Answer::Continue,
            MilterCommand::Header { name, value } => {
                let spaced = self.leaves_space();
                self.with_message(|message| message.header(&name, &value, spaced))
            }
            MilterCommand::EndOfHeader => self.with_message(Message::end_of_header),
            MilterCommand::Body(piece) => self.with_message(|message| message.body(&piece)),
            MilterCommand::EndOfMessage(piece) => return self.decide(&piece).await,
            MilterCommand::Abort | MilterCommand::Quit => {
                self.forget_message();
                Answer::Continue
            }
            MilterCommand::QuitNewConnection => {
                self.forget_message();
                self.client = nobody();
                Answer::Continue
            }
        };
        if answered { self.say(&[answer]).await } else { Ok(()) }
    }

    /// Whether the blank behind the colon of a field is part of its value.
    fn leaves_space(&self) -> bool {
        self.conversation.agreed().is_some_and(Agreed::leaves_space)
    }

    async fn agree(&mut self) -> io::Result<()> {
        let mut out = Vec::new();
        if let Some(agreed) = self.conversation.agreed() {
            agreed.write(&mut out);
        }
        self.write(&out).await
    }

    async fn say(&self, answers: &[Answer]) -> io::Result<()> {
        let mut out = Vec::new();
        answers.iter().for_each(|answer| answer.write(&mut out));
        self.write(&out).await
    }

    /// A server that does not read is not waited for any longer than one that does not write.
    async fn write(&self, octets: &[u8]) -> io::Result<()> {
        let written = timeout(self.door.settings.idle, self.socket.write(octets)).await;
        written.map_err(|_| io::ErrorKind::TimedOut)?
    }

    /// Of all that a server tells, only who is logged in and the name of the message in its queue are gone by.
    fn note_macros(&mut self, of: u8, values: Vec<(String, String)>) {
        let mut login = None;
        for (name, value) in values {
            match name.as_str() {
                "{auth_authen}" | "auth_authen" => login = Some(value).filter(|login| !login.is_empty()),
                "i" => {
                    if let Some(transaction) = &mut self.transaction {
                        transaction.queue_id = printable(&value);
                    }
                }
                _ => {}
            }
        }
        if of == b'M' {
            self.login = login;
        }
    }

    fn connected(&mut self, name: &str, address: Option<IpAddr>) -> Answer {
        self.transaction = None;
        self.client = nobody();
        if let Some(address) = address {
            self.client.client = address;
            self.client.socket = SocketAddr::from((address, 0));
        }
        self.client.name = Some(printable(name).into());
        Answer::Continue
    }

    fn mail(&mut self, words: &[String]) -> Answer {
        self.transaction = None;
        let settings = &self.door.settings;
        let login = self.login.take();
        let throttled = settings.throttle && login.is_some();
        // Users may write as whom they like: people block strangers.
        let judged = login.is_none() && self.door.senders.now().blocks_any();
        if !throttled && !settings.scan && !judged {
            // It does not concern us.
            self.conversation.message_is_over();
            return Answer::Accept;
        }
        if login.as_ref().is_some_and(|login| login.len() > LOGIN_MAX || login.chars().any(char::is_control)) {
            self.conversation.message_is_over();
            return Answer::Reply(Reply::fixed(550, Status(5, 7, 1), "the name of this login cannot be read"));
        }
        let sender = match of_mail(words) {
            Ok(sender) => sender,
            // The scan does not need it.
            Err(_) if !throttled => MailFrom::default(),
            Err(reply) => {
                self.conversation.message_is_over();
                return Answer::Reply(reply);
            }
        };
        let rules = self.door.senders.now();
        let from = sender.mailbox.iter().map(Mailbox::as_str);
        if let Some(by) = rules.blocks(from.clone()).filter(|_| login.is_none()) {
            let (reply, from) = (senders::refusal(by), from.collect());
            let client = self.client.client.to_string();
            self.door.refusals.note(&reply, Facts { from, client, ..Facts::default() });
            self.conversation.message_is_over();
            return Answer::Reply(reply);
        }
        let mut client = self.client.clone();
        client.user = login.as_deref().map(Arc::from);
        let message = Message::new(&self.door.room, &self.door.hostname);
        self.transaction = Some(Transaction::new(client, login.filter(|_| throttled), sender, message));
        Answer::Continue
    }

    fn recipient(&mut self, words: &[String]) -> Answer {
        let Some(transaction) = &mut self.transaction else { return Answer::Continue };
        let Some(path) = words.first() else { return Answer::Reject };
        if transaction.named >= self.door.recipients_max as usize {
            return Answer::Reply(Reply::fixed(452, Status(4, 5, 3), "too many recipients for one message"));
        }
        match of_recipient(words) {
            Ok(to) => transaction.add(path.clone(), to),
            Err(_) if transaction.login.is_none() => transaction.unreadable = true,
            Err(reply) => return Answer::Reply(reply),
        }
        Answer::Continue
    }

    fn with_message(&mut self, tell: impl FnOnce(&mut Message)) -> Answer {
        if let Some(transaction) = &mut self.transaction {
            tell(&mut transaction.message);
        }
        Answer::Continue
    }

    fn forget_message(&mut self) {
        (self.transaction, self.login) = (None, None);
    }

    /// The message is complete: what becomes of it.
    async fn decide(&mut self, piece: &[u8]) -> io::Result<()> {
        self.conversation.message_is_over();
        self.login = None;
        let Some(mut transaction) = self.transaction.take() else { return self.say(&[Answer::Accept]).await };
        if !piece.is_empty() {
            transaction.message.body(piece);
        }
        let (door, server) = (self.door, self.server);
        // In a task of its own: if the server hangs up meanwhile, what was begun is ended all the same.
        let (door, server) = (Arc::clone(door), server.to_owned());
        let mut deciding = tokio::spawn(async move { transaction.decide(&door, &server).await });
        let answers = loop {
            tokio::select! {
                decided = &mut deciding => break decided,
                () = tokio::time::sleep(PROGRESS_EVERY) => self.say(&[Answer::Progress]).await?,
            }
        };
        match answers {
            Ok(answers) if self.leaves_space() => {
                let answers: Vec<Answer> = answers.into_iter().map(Answer::spaced).collect();
                self.say(&answers).await
            }
            Ok(answers) => self.say(&answers).await,
            Err(error) => {
                tracing::error!(%error, "no decision about a message of another server");
                self.say(&[Answer::TempFail]).await
            }
        }
    }
}

/// What a server says of MAIL. An address beyond ASCII is international mail, whether or not the client had to declare that to the server.
fn of_mail(words: &[String]) -> Result<MailFrom, Reply> {
    let mut line = known_parameters(words, &["SIZE", "BODY", "SMTPUTF8", "RET", "ENVID"]);
    let declared = words.iter().skip(1).any(|word| word.eq_ignore_ascii_case("SMTPUTF8"));
    if !line.is_ascii() && !declared {
        line.push_str(" SMTPUTF8");
    }
    MailFrom::parse(&line)
}

/// What a server says of RCPT. It has taken the recipient, so that MAIL need not say that the mail is international.
fn of_recipient(words: &[String]) -> Result<RcptTo, Reply> {
    RcptTo::parse(&known_parameters(words, &["NOTIFY", "ORCPT"]), true)
}

/// An address with those of its parameters that we know; servers have some of their own.
fn known_parameters(words: &[String], known: &[&str]) -> String {
    let mut line = words.first().cloned().unwrap_or_default();
    let mut seen = HashSet::new();
    for word in words.iter().skip(1) {
        let key = word.split('=').next().unwrap_or_default().to_ascii_uppercase();
        if known.contains(&key.as_str()) && seen.insert(key) {
            line.push(' ');
            line.push_str(word);
        }
    }
    line
}

/// What strangers wrote, for logs and trace headers.
fn printable(text: &str) -> String {
    text.chars().filter(|c| c.is_ascii_graphic()).take(255).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn addresses_beyond_ascii_are_read_whatever_else_is_said_of_them() {
        for line in
            ["<jürgen@there.example>", "<b@bücher.example> NOTIFY=NEVER", "<ü@d.example> ORCPT=utf-8;ü@d.example"]
        {
            let to = of_recipient(&words(line)).map_err(|reply| reply.text().to_owned());
            assert!(to.unwrap().mailbox.is_international(), "{line}");
        }
        for line in
            ["<jürgen@there.example>", "<jürgen@there.example> SIZE=7 smtputf8", "<jürgen@there.example> RET=HDRS"]
        {
            let from = of_mail(&words(line)).map_err(|reply| reply.text().to_owned());
            assert!(from.unwrap().smtputf8, "{line}");
        }
        assert!(!of_mail(&words("<a@b.example> SIZE=7")).unwrap().smtputf8);
    }

    #[test]
    fn parameters_of_the_servers_own_are_left_out() {
        let from = of_mail(&words("<a@b.example> SIZE=7 MT-PRIORITY=3 BODY=8BITMIME SIZE=8 AUTH=<>")).unwrap();
        assert_eq!((from.size_bytes, from.eight_bit, from.auth), (Some(7), true, None));
        let to = of_recipient(&words("<a@b.example> RRVS=2014-04-03T23:01:00Z NOTIFY=NEVER SMTPUTF8")).unwrap();
        assert!(to.notify.is_some());
    }
}
