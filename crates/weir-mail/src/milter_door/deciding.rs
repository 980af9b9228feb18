//! Decides what happens to a message that another mail server asks about.

use super::message::{Complete, Message};
use super::{MilterDoor, OnFound};
use crate::client_network::network_of;
use crate::inbound::senders;
use crate::intake::header::MailHeader;
use crate::intake::{Care, Incoming, refusal, trace};
use crate::letter::{Letter, LetterOrigin};
use crate::pipeline::Transit;
use crate::scan::MailAnswer;
use crate::submission::{OfferedMessage, copied, header_of};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use weir_foundation::date::Date;
use weir_scan::inspect::About;
use weir_smtp::envelope::{Envelope, MailFrom, RcptTo};
use weir_smtp::milter::Answer;
use weir_smtp::peer::SmtpPeer;
use weir_smtp::reception::{Alarm, Reception};
use weir_smtp::reply::{Reply, Status};
use weir_store::diary::{DiaryLine, Facts};

/// A message and its envelope, as a server has told them so far.
pub(super) struct Transaction {
    client: SmtpPeer,
    /// Whom the throttle is asked about; nobody if it is not.
    pub(super) login: Option<String>,
    sender: MailFrom,
    /// In each way that the server wrote them, and as we read them.
    recipients: Vec<(Vec<String>, RcptTo)>,
    /// Where the recipient with this address, in small letters, is among them.
    known: HashMap<String, usize>,
    /// How many the server named, those that it named twice among them.
    pub(super) named: usize,
    /// There was a recipient that we cannot read.
    pub(super) unreadable: bool,
    /// Its name in the server's queue.
    pub(super) queue_id: String,
    pub(super) message: Message,
}

impl Transaction {
    pub(super) fn new(client: SmtpPeer, login: Option<String>, sender: MailFrom, message: Message) -> Transaction {
        Transaction {
            client,
            login,
            sender,
            recipients: Vec::new(),
            known: HashMap::new(),
            named: 0,
            unreadable: false,
            queue_id: String::new(),
            message,
        }
    }

    /// One more recipient. A recipient who is named twice counts once. A server removes a recipient only as it wrote it, so that each way is kept.
    pub(super) fn add(&mut self, as_written: String, to: RcptTo) {
        self.named += 1;
        // What we take over of it can reach this recipient only as international mail.
        self.sender.smtputf8 |= to.mailbox.is_international();
        match self.known.entry(to.mailbox.as_str().to_lowercase()) {
            Entry::Vacant(place) => {
                place.insert(self.recipients.len());
                self.recipients.push((vec![as_written], to));
            }
            Entry::Occupied(place) => {
                let (written, _) = &mut self.recipients[*place.get()];
                if !written.contains(&as_written) {
                    written.push(as_written);
                }
            }
        }
    }

    /// Decides, and says what the server is to do.
    pub(super) async fn decide(self, door: &MilterDoor, server: &str) -> Vec<Answer> {
        let Transaction { client, login, sender, recipients, unreadable, queue_id, message, .. } = self;
        let (written, to): (Vec<Vec<String>>, Vec<RcptTo>) = recipients.into_iter().unzip();
        let envelope = Envelope { sender, recipients: to, ..Envelope::default() };
        let complete = match message.complete() {
            Ok(complete) => complete,
            Err(reply) => {
                door.refusals.note(&reply, facts(&client, &envelope));
                return vec![Answer::Reply(reply)];
            }
        };
        let header = header_of(&complete.content).unwrap_or_default();
        let case = DoorCase { door, server, client, login, written, envelope, unreadable, queue_id, header, complete };
        match case.decide().await {
            Ok(answers) => answers,
            Err(MilterRefusal { reply, verdict }) => {
                tracing::info!(server, queue_id = case.queue_id, login = case.login, reply = reply.text(), "refused");
                let (subject, size) = (case.header.subject.clone(), case.complete.content.length());
                let facts = Facts { subject, size, verdict, ..facts(&case.client, &case.envelope) };
                door.refusals.note(&reply, facts);
                vec![Answer::Reply(reply)]
            }
        }
    }
}

/// What is known of a message by its envelope.
fn facts(client: &SmtpPeer, envelope: &Envelope) -> Facts {
    Facts {
        from: envelope.sender.mailbox.as_ref().map_or("", |from| from.as_str()).to_owned(),
        to: envelope.recipients.iter().map(|to| to.mailbox.as_str().to_owned()).collect(),
        client: client.client.to_string(),
        login: client.user.as_deref().unwrap_or_default().to_owned(),
        ..Facts::default()
    }
}

/// Why a message is not taken, and what the scan found if that is why.
struct MilterRefusal {
    reply: Reply,
    verdict: String,
}

impl From<Reply> for MilterRefusal {
    fn from(reply: Reply) -> MilterRefusal {
        MilterRefusal { reply, verdict: String::new() }
    }
}

/// A message that is complete.
struct DoorCase<'a> {
    door: &'a MilterDoor,
    server: &'a str,
    client: SmtpPeer,
    login: Option<String>,
    written: Vec<Vec<String>>,
    envelope: Envelope,
    unreadable: bool,
    queue_id: String,
    header: MailHeader,
    complete: Complete,
}

impl DoorCase<'_> {
    async fn decide(&self) -> Result<Vec<Answer>, MilterRefusal> {
        let mut answers = Vec::new();
        self.look_at_senders()?;
        if self.door.settings.scan {
            match self.scan().await? {
                Scanned::Goes(changes) => answers = changes,
                Scanned::Ends(ends) => return Ok(ends),
            }
        }
        match &self.login {
            Some(login) => Ok(self.throttle(login, answers).await?),
            None => {
                answers.push(Answer::Accept);
                Ok(answers)
            }
        }
    }

    /// Whether people block the author of a stranger's mail. The envelope's sender was looked at before.
    fn look_at_senders(&self) -> Result<(), Reply> {
        let (rules, names) = (self.door.senders.now(), self.header.from.iter().map(String::as_str));
        match rules.blocks(names).filter(|_| self.client.user.is_none()) {
            Some(by) => Err(senders::refusal(by)),
            None => Ok(()),
        }
    }

    /// What the throttle would hold is taken over. If that is all of it, the server has nothing left to send.
    async fn throttle(&self, login: &str, mut answers: Vec<Answer>) -> Result<Vec<Answer>, Reply> {
        let (places, recipients): (Vec<usize>, Vec<RcptTo>) = self
            .envelope
            .recipients
            .iter()
            .enumerate()
            .filter(|(_, to)| !self.door.submission.is_order(to))
            .map(|(place, to)| (place, to.clone()))
            .unzip();
        if recipients.is_empty() {
            answers.push(Answer::Accept);
            return Ok(answers);
        }
        let envelope = Envelope { recipients, ..self.envelope.clone() };
        let Complete { content, eight_bit, long_lines, .. } = &self.complete;
        let asked = OfferedMessage {
            login,
            peer: &self.client,
            envelope: &envelope,
            content,
            eight_bit: *eight_bit,
            long_lines: *long_lines,
        };
        let taken = self.door.submission.take_over(&asked).await.inspect_err(|reply| self.raise_if_undecided(reply))?;
        if taken.len() == self.envelope.recipients.len() {
            return Ok(vec![Answer::Discard]);
        }
        let written = taken.iter().filter_map(|place| self.written.get(*places.get(*place)?)).flatten();
        answers.extend(written.map(|address| Answer::DeleteRecipient(address.clone())));
        answers.push(Answer::Accept);
        Ok(answers)
    }

    async fn scan(&self) -> Result<Scanned, MilterRefusal> {
        let to = self.envelope.recipients.iter().map(|to| to.mailbox.as_str().to_owned());
        let about = About {
            id: self.queue_id.clone(),
            client: Some(self.client.client).filter(|client| !client.is_loopback()),
            helo: self.client.helo.as_deref().unwrap_or_default().to_owned(),
            login: self.client.user.as_deref().map(str::to_owned),
            from: self.envelope.sender.mailbox.as_ref().map_or("", |from| from.as_str()).to_owned(),
            to: to.collect(),
            is_file: false,
        };
        let answer = self.door.scanning.look_at_mail(self.complete.content.clone(), self.server, about).await;
        match answer {
            MailAnswer::Pass(lines) => Ok(Scanned::Goes(self.changes(&lines))),
            MailAnswer::Found(reason) => self.found(&reason).await.map(Scanned::Ends),
            MailAnswer::Later(why) => Err(Reply::new(451, Status(4, 7, 1), format!("{why}; try again later")).into()),
            MailAnswer::Failed(problem) => {
                let reply = Reply::new(451, Status(4, 3, 0), "the message cannot be scanned now, try again later");
                self.raise(&problem);
                Err(reply.into())
            }
        }
    }

    /// What was found decides what becomes of the message, as the settings have it.
    async fn found(&self, reason: &str) -> Result<Vec<Answer>, MilterRefusal> {
        let DoorCase { queue_id, server, .. } = self;
        let refused = || MilterRefusal {
            reply: Reply::new(550, Status(5, 7, 1), format!("the scan refuses this message: {reason}")),
            verdict: reason.to_owned(),
        };
        tracing::info!(server, queue_id, reason, "the scan found something in a message of another server");
        match self.door.settings.on_found {
            OnFound::Refuse => Err(refused()),
            OnFound::Hold => Ok(vec![Answer::Quarantine(reason.to_owned()), Answer::Accept]),
            OnFound::Quarantine => {
                if self.unreadable || self.envelope.recipients.is_empty() {
                    return Err(refused());
                }
                self.quarantine(reason).await.inspect_err(|reply| self.raise_if_undecided(reply))?;
                Ok(vec![Answer::Discard])
            }
        }
    }

    /// The message becomes ours, and a person decides about it. The stages do the rest: its scan puts it into the quarantine.
    async fn quarantine(&self, reason: &str) -> Result<(), Reply> {
        let door = self.door;
        let draft = door.spool.draft().map_err(|error| refusal(&error))?;
        let (id, now) = (draft.id(), (door.clock.0)());
        let trace = trace::received(&door.hostname, &self.client, &self.envelope, id, &Date::new(now).rfc5322());
        let incoming = Incoming::new(draft, trace, Care::Received { hostname: door.hostname.to_string() });
        let (owner, source) = (network_of(self.client.client), self.client.client.to_string());
        let mut letter = Letter::new(&self.envelope, LetterOrigin::Received, &owner, &source, now.0).without_reports();
        letter.eight_bit |= self.complete.eight_bit;
        letter.long_lines = self.complete.long_lines;
        letter.hold = Some(reason.to_owned());
        let size = self.complete.content.length();
        let draft = copied(incoming, &self.complete.content).await?;
        draft.commit(letter.write()).await.map_err(|error| refusal(&error))?;
        door.spool.diary().note(DiaryLine::new(id, "accepted", "").with(letter.facts(size)).at(letter.at));
        door.pipeline.send(Transit::to_all(id, letter));
        Ok(())
    }

    /// What the scan says stands in the header, and nobody else says it.
    fn changes(&self, lines: &str) -> Vec<Answer> {
        let mut answers = self.complete.cleaning.clone();
        for line in lines.lines().rev() {
            let Some((name, value)) = line.split_once(':') else { continue };
            let (name, value) = (name.to_owned(), value.trim().to_owned());
            answers.push(match name.eq_ignore_ascii_case("subject") {
                true => Answer::ChangeHeader { index: 1, name, value },
                false => Answer::InsertHeader { at: 0, name, value },
            });
        }
        answers
    }

    /// The operator hears of it where the fault is here, and not where mail is refused for a reason.
    fn raise_if_undecided(&self, reply: &Reply) {
        if reply.is_temporary() {
            self.raise(reply.text());
        }
    }

    fn raise(&self, problem: &str) {
        tracing::error!(server = self.server, queue_id = self.queue_id, problem, "no decision; the server defers it");
        self.door.submission.alarm(&Alarm::DoorFails { door: "milter".into(), problem: problem.into() });
    }
}

/// What the scan makes of a message.
enum Scanned {
    /// It goes on, with these changes.
    Goes(Vec<Answer>),
    /// This is what becomes of it.
    Ends(Vec<Answer>),
}
