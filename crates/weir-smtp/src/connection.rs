//! One client connection: does the I/O that the session (a state machine) asks for.
//!
//! It reads only after all replies are sent, so a client that does not read its replies only holds up itself. While it waits, it holds a
//! socket, a timer and the session, but no buffer. The timer is moved only if the deadline comes nearer; if it fires too early, it is set
//! again.

use std::future::poll_fn;
use std::hash::Hash;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::time::{Sleep, timeout};

use super::ban::Ban;
use super::buffer::Buffer;
use super::envelope::RcptTo;
use super::leash::Leash;
use super::reception::{Alarm, BodySink, Reception};
use super::registry::Admission;
use super::reply::{Reply, Status};
use super::sasl::Login;
use super::server_state::ServerState;
use super::session::{CloseReason, Ending, LoginVerdict, MessageAnswer, Output, PolicyVerdict, Question, Session};
use super::settings::Purpose;

/// A session with what its I/O needs: the shared state, its admission, and the sink for the present message.
pub(crate) struct Connection<R: Reception> {
    pub(crate) shared: Arc<ServerState<R>>,
    pub(crate) session: Session,
    pub(crate) admission: Admission,
    sink: Option<R::Body>,
}

/// Why [`Connection::run`] returned.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// TLS is to begin: shake hands, then run again.
    StartTls,
    /// The session is over.
    Closed(CloseReason),
}

/// A reply buffer with more capacity is freed, because most connections are idle most of the time.
const REPLIES_KEPT: usize = 128;

enum Woken {
    Read(Buffer, usize),
    Timer,
    Ordered(Reply, Ending),
    Gone,
}

/// After an error, the client gets this long to read the last reply before the socket is closed.
const LINGER: Duration = Duration::from_secs(2);
/// Meanwhile at most this much of what it still sends is read, because closing a socket with unread input destroys the reply.
const LINGER_BYTES: usize = 256 << 10;

impl<R: Reception> Connection<R> {
    pub(crate) fn new(shared: Arc<ServerState<R>>, session: Session, admission: Admission) -> Self {
        Connection { shared, session, admission, sink: None }
    }

    /// Serves the session over `stream` until it ends or TLS is to begin.
    pub(crate) async fn run<S>(&mut self, stream: &mut S, mut timer: Pin<&mut Sleep>) -> Exit
    where
        S: AsyncRead + AsyncWrite + Unpin + Send,
    {
        // The gate may have refused the client before its first word.
        if let Some(exit) = self.digest(stream, None, 0).await {
            return exit;
        }
        loop {
            if self.send(stream).await.is_err() {
                self.drop_sink();
                return Exit::Closed(CloseReason::Gone);
            }
            self.set_timer(timer.as_mut(), false);
            self.admission.leash().waits(self.shared.now(), self.session.envelope().is_some());
            let woken = wait(self.admission.leash(), stream, timer.as_mut()).await;
            self.admission.leash().works();
            let exit = match woken {
                Woken::Read(buffer, length) => {
                    // If the client sends without a pause, the timer alone would never be noticed.
                    self.session.timeout(self.shared.now());
                    self.digest(stream, Some(buffer), length).await
                }
                Woken::Timer => {
                    self.session.timeout(self.shared.now());
                    self.set_timer(timer.as_mut(), true);
                    self.digest(stream, None, 0).await
                }
                Woken::Ordered(reply, when) => {
                    self.session.end(reply, when);
                    self.digest(stream, None, 0).await
                }
                Woken::Gone => Some(Exit::Closed(CloseReason::Gone)),
            };
            if let Some(exit) = exit {
                // A message that was coming in will not be completed.
                self.drop_sink();
                return exit;
            }
        }
    }

    /// Passes `length` octets of the buffer to the session and does what the session says, until it needs more input.
    async fn digest<S>(&mut self, stream: &mut S, mut buffer: Option<Buffer>, length: usize) -> Option<Exit>
    where
        S: AsyncWrite + Unpin + Send,
    {
        let mut from = 0;
        loop {
            let filled = buffer.as_deref().and_then(|bytes| bytes.get(from..length)).unwrap_or_default();
            let mut input = filled;
            let output = self.session.poll(&mut input, self.shared.now());
            from = length - input.len();
            match output {
                Output::NeedInput => return None,
                Output::Body(text) => self.write(text).await,
                Output::Close(reason) => {
                    let _ = self.send(stream).await;
                    return Some(Exit::Closed(reason));
                }
                Output::StartTls => {
                    return Some(match self.send(stream).await {
                        Ok(()) => Exit::StartTls,
                        Err(_) => Exit::Closed(CloseReason::Gone),
                    });
                }
                Output::BodyAborted => self.drop_sink(),
                Output::Ask(question) => {
                    if from == length {
                        buffer = None;
                    }
                    self.answer(question).await;
                }
                Output::Waiting => return Some(Exit::Closed(CloseReason::NotSmtp)),
            }
            if self.session.replies_pressing() && self.send(stream).await.is_err() {
                return Some(Exit::Closed(CloseReason::Gone));
            }
        }
    }

    async fn answer(&mut self, question: Question) {
        match question {
            // Logins are rare, so they have a box of their own and do not make the future of every connection larger.
            Question::Login(login) => Box::pin(self.authenticate(login)).await,
            Question::Client(login) => Box::pin(self.client(login)).await,
            Question::Sender(sender) => {
                let verdict = self.shared.reception.mail_from(self.session.peer(), &sender).await;
                if let PolicyVerdict::Refuse(_) = verdict {
                    self.shared.counters.senders_refused.up();
                }
                self.session.sender_answered(sender, verdict, self.shared.now());
            }
            Question::Recipient(recipient) => {
                let Some(envelope) = self.session.envelope() else { return };
                let verdict = self.shared.reception.rcpt_to(self.session.peer(), envelope, &recipient).await;
                match &verdict {
                    PolicyVerdict::Accept => self.shared.counters.recipients.up(),
                    PolicyVerdict::Refuse(reply) => self.recipient_refused(&recipient, reply),
                }
                self.session.recipient_answered(recipient, verdict, self.shared.now());
            }
            Question::BodyBegin => self.begin_body().await,
            Question::BodyEnd => self.finish().await,
        }
    }

    async fn begin_body(&mut self) {
        let Some(envelope) = self.session.envelope() else { return };
        let verdict = match self.shared.reception.begin_body(self.session.peer(), envelope).await {
            Ok(sink) => {
                self.sink = Some(sink);
                Ok(())
            }
            Err(reply) => Err(reply),
        };
        self.session.body_opened(verdict, self.shared.now());
    }

    async fn write(&mut self, text: &[u8]) {
        self.shared.counters.message_bytes.add(text.len() as u64);
        let Some(sink) = &mut self.sink else { return };
        if let Err(reply) = sink.write(text).await {
            self.drop_sink();
            self.session.body_failed(reply);
        }
    }

    async fn finish(&mut self) {
        let (Some(envelope), Some(sink)) = (self.session.take_envelope(), self.sink.take()) else {
            self.session.finished(&MessageAnswer::All(OUR_FAULT), self.shared.now());
            return;
        };
        let answer = self.shared.reception.finish(self.session.peer(), envelope, sink).await;
        let accepted = match &answer {
            MessageAnswer::All(reply) => reply.is_success(),
            MessageAnswer::Each(replies) => replies.iter().any(Reply::is_success),
        };
        let counters = &self.shared.counters;
        if accepted {
            counters.messages.up();
            self.admission.established();
        } else {
            counters.messages_refused.up();
        }
        self.session.finished(&answer, self.shared.now());
    }

    fn drop_sink(&mut self) {
        if self.sink.take().is_some() {
            self.shared.counters.messages_aborted.up();
        }
    }

    async fn authenticate(&mut self, login: Login) {
        let client = self.session.peer().client;
        // Other sessions of this address may have brought a ban since this one was admitted.
        let ban = self.shared.registry.banned(client, self.shared.now()).filter(|_| !self.exempt());
        let verdict = match ban {
            Some(left) => LoginVerdict::RefuseAndClose(self.shared.registry.banned_reply(left)),
            None => {
                let verdict = self.shared.reception.authenticate(self.session.peer(), &login).await;
                self.judged(&login, verdict)
            }
        };
        self.session.login_answered(verdict, self.shared.now());
    }

    /// Counts the result of a login, and changes it if a limit is reached.
    fn judged(&mut self, login: &Login, verdict: LoginVerdict) -> LoginVerdict {
        match verdict {
            LoginVerdict::Accept(user) => match self.admission.login(&user, self.shared.now()) {
                Ok(()) => {
                    self.shared.counters.logins.up();
                    LoginVerdict::Accept(user)
                }
                Err(reply) => LoginVerdict::RefuseAndClose(reply),
            },
            LoginVerdict::Refuse(reply) => {
                self.shared.counters.logins_failed.up();
                self.count_failure(login);
                LoginVerdict::Refuse(reply)
            }
            other => other,
        }
    }

    /// Whether the client is a listed peer itself. Such a peer stands for many clients and is not banned.
    fn exempt(&self) -> bool {
        self.session.settings().trusts(self.session.peer().client)
    }

    fn count_failure(&self, login: &Login) {
        let address = self.session.peer().client;
        tracing::debug!(session = self.session.peer().session, %address, user = login.user(), "login failed");
        let tried = match login {
            Login::Password { user, password, .. } => (&**user, password.reveal()),
            Login::Vouched { user } => (&**user, ""),
        };
        self.offended(tried, |ban| Alarm::Banned {
            address,
            user: login.user().into(),
            length: ban.length,
            offence: ban.offence,
        });
    }

    /// A client that tries many recipients that do not exist is searching for those that do.
    fn recipient_refused(&self, recipient: &RcptTo, reply: &Reply) {
        self.shared.counters.recipients_refused.up();
        let address = self.session.peer().client;
        tracing::debug!(session = self.session.peer().session, %address, %recipient.mailbox, reply = reply.text(), "recipient refused");
        if self.shared.purpose == Purpose::Inbound && !reply.is_temporary() {
            self.offended(recipient.mailbox.as_str(), |ban| Alarm::Searching {
                address,
                length: ban.length,
                offence: ban.offence,
            });
        }
    }

    /// Counts an offence of the client. If it brings a ban, the operator is told.
    fn offended(&self, what: impl Hash, alarm: impl FnOnce(&Ban) -> Alarm) {
        let address = self.session.peer().client;
        if self.exempt() {
            return;
        }
        let Some(ban) = self.shared.registry.offended(address, what, self.shared.now()) else { return };
        self.shared.counters.bans.up();
        let alarm = alarm(&ban);
        tracing::warn!(%address, seconds = ban.length.as_secs(), offence = ban.offence, ?alarm, "address banned");
        self.shared.reception.alarm(&alarm);
    }

    /// XCLIENT: checks the counts, bans and login of the client for whom a listed peer speaks.
    async fn client(&mut self, login: Option<Login>) {
        self.admission.logout();
        let verdict = match self.admission.stand_for(self.session.peer().client, self.shared.now()) {
            Ok(()) => self.vouched(login).await,
            Err(reply) => Err(reply),
        };
        self.session.client_answered(verdict, self.shared.now());
    }

    async fn vouched(&mut self, login: Option<Login>) -> Result<Option<Arc<str>>, Reply> {
        let Some(login) = login else { return Ok(None) };
        match self.shared.reception.authenticate(self.session.peer(), &login).await {
            LoginVerdict::Accept(user) => self.admission.login(&user, self.shared.now()).map(|()| Some(user)),
            LoginVerdict::Refuse(reply) | LoginVerdict::Unavailable(reply) | LoginVerdict::RefuseAndClose(reply) => {
                Err(reply)
            }
        }
    }

    fn set_timer(&self, mut timer: Pin<&mut Sleep>, fired: bool) {
        let deadline = self.shared.tokio_instant(self.session.deadline());
        if fired || deadline < timer.deadline() {
            timer.as_mut().reset(deadline);
        }
    }

    /// Sends the replies. A client that does not read them times out like one that does not write.
    async fn send<S: AsyncWrite + Unpin>(&mut self, stream: &mut S) -> io::Result<()> {
        let mut replies = std::mem::take(self.session.replies());
        if replies.is_empty() {
            return Ok(());
        }
        let sending = async {
            stream.write_all(&replies).await?;
            stream.flush().await
        };
        let send_max = self.session.settings().limits.command;
        let sent = {
            let mut sending = pin!(timeout(send_max, sending));
            loop {
                match sent_or_ordered(self.admission.leash(), sending.as_mut()).await {
                    Ok(sent) => break sent.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())),
                    Err((_, Ending::AtOnce)) => break Err(io::ErrorKind::Interrupted.into()),
                    Err((reply, when)) => self.session.end(reply, when),
                }
            }
        };
        if replies.capacity() <= REPLIES_KEPT && self.session.replies().is_empty() {
            replies.clear();
            *self.session.replies() = replies;
        }
        sent
    }
}

/// The outcome of `sending`, or an order to end the session that came first.
async fn sent_or_ordered<F: Future>(leash: &Leash, mut sending: Pin<&mut F>) -> Result<F::Output, (Reply, Ending)> {
    poll_fn(|context| {
        if let Poll::Ready(sent) = sending.as_mut().poll(context) {
            return Poll::Ready(Ok(sent));
        }
        leash.poll_order(context).map(Err)
    })
    .await
}

/// Waits for input, the deadline, or an order to end the session.
async fn wait<S>(leash: &Leash, stream: &mut S, mut timer: Pin<&mut Sleep>) -> Woken
where
    S: AsyncRead + Unpin,
{
    poll_fn(|context| {
        if let Poll::Ready((reply, when)) = leash.poll_order(context) {
            return Poll::Ready(Woken::Ordered(reply, when));
        }
        let mut buffer = Buffer::take();
        let mut read = ReadBuf::new(&mut buffer);
        match Pin::new(&mut *stream).poll_read(context, &mut read) {
            Poll::Ready(Ok(())) if !read.filled().is_empty() => {
                let length = read.filled().len();
                return Poll::Ready(Woken::Read(buffer, length));
            }
            Poll::Ready(_) => return Poll::Ready(Woken::Gone),
            Poll::Pending => {}
        }
        std::task::ready!(timer.as_mut().poll(context));
        Poll::Ready(Woken::Timer)
    })
    .await
}

/// Closes our side, then reads and discards what the client still sends, for a short time.
pub(crate) async fn linger<S: AsyncRead + AsyncWrite + Unpin>(stream: &mut S) {
    let discard = async {
        let _ = stream.shutdown().await;
        let mut left = LINGER_BYTES;
        while left > 0 {
            let read = poll_fn(|context| {
                let mut buffer = Buffer::take();
                let mut read = ReadBuf::new(&mut buffer);
                std::task::ready!(Pin::new(&mut *stream).poll_read(context, &mut read))?;
                Poll::Ready(io::Result::Ok(read.filled().len()))
            });
            match read.await {
                Ok(0) | Err(_) => return,
                Ok(length) => left = left.saturating_sub(length),
            }
        }
    };
    let _ = timeout(LINGER, discard).await;
}

const OUR_FAULT: Reply = Reply::fixed(451, Status(4, 3, 0), "an error on our side; please try again");
