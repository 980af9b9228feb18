//! The simulated internet that a sample sees: every name has an address, every address answers.
//!
//! Every address is this machine (`guest/init`). A port is served from the moment that a sample calls it; a client that speaks HTTP, with
//! or without TLS, gets a page or a program; others are answered in their own protocol. Nothing leaves: there is no other interface.

use crate::capture::Recorder;
use crate::conversation::{self, Conversation, LINE_MAX, WORDS_MAX};
use crate::record::{RESOLVER, Record};
use crate::stage::{self, STAGES_MAX};
use crate::tls::Tls;
use std::collections::BTreeSet;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;
use weir_guest::behaviour::TEXT_MAX;

/// Ports and resolvers that are served at most.
const SERVED_MAX: usize = 128;
/// Connections at once; more are closed.
const CONNECTIONS_MAX: usize = 64;
/// A connection that says nothing for so long is closed.
const PATIENCE: Duration = Duration::from_secs(30);
/// A client that says nothing for so long is sent something first.
const SILENCE: Duration = Duration::from_millis(2500);
/// Where clients speak first and would be confused; slow ones are slow on a busy machine.
const CLIENTS_FIRST: [u16; 7] = [80, 443, 3128, 8000, 8080, 8443, 8888];
/// The port that stands for all of them.
const ALL_PORTS: u16 = 1;
const HEAD_MAX: usize = 64 * 1024;
/// How much of what is handed over with a request is waited for.
const BODY_MAX: usize = 32 * 1024;
/// A longer line is no prompt.
const PROMPT_MAX: usize = 200;
const STACK: usize = 256 * 1024;

#[derive(Debug)]
pub(crate) struct Internet {
    server: InnerServer,
    recorder: Recorder,
    served: Mutex<BTreeSet<(bool, SocketAddr)>>,
    connections: Arc<AtomicUsize>,
}

impl Internet {
    /// With what nearly every sample calls.
    pub(crate) fn start() -> Internet {
        let internet = Internet { recorder: Recorder::start(), ..Internet::of(Tls::start()) };
        internet.expect(RESOLVER);
        for port in [80, 443, 8080] {
            internet.expect(SocketAddr::from(([192, 0, 2, 1], port)));
        }
        internet
    }

    /// Nothing is served before somebody calls it, and nothing is recorded.
    pub(crate) fn unplugged() -> Internet {
        Internet::of(None)
    }

    fn of(tls: Option<Tls>) -> Internet {
        let server = InnerServer { record: Arc::default(), tls: Arc::new(tls), stages: Arc::default() };
        Internet { server, recorder: Recorder::none(), served: Mutex::default(), connections: Arc::default() }
    }

    pub(crate) fn record(&self) -> &Record {
        &self.server.record
    }

    /// What is said on it.
    pub(crate) fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    /// A stage that was given out has made its file: this process carries it out.
    pub(crate) fn stage_ran(&self, pid: u32, path: &str) {
        let stages = self.server.stages.lock().unwrap_or_else(PoisonError::into_inner);
        let link = stage::number(path).and_then(|number| stages.get(number)).map_or("a link", String::as_str);
        self.record().acts(pid, "second-stage", link);
    }

    /// A sample is about to call this address: somebody should be there. This machine itself is as empty as any.
    pub(crate) fn expect(&self, to: SocketAddr) {
        if to.ip().is_loopback() || to.ip().is_unspecified() || to.port() == 0 {
            return;
        }
        // A server hears all addresses; a resolver must answer from the address that was asked.
        let any = SocketAddr::from((Ipv6Addr::UNSPECIFIED, to.port()));
        let dns = to.port() == 53;
        let mut served = self.served.lock().unwrap_or_else(PoisonError::into_inner);
        if served.len() < SERVED_MAX && served.insert((true, any)) {
            self.serve(any);
        }
        if dns && served.len() < SERVED_MAX && served.insert((false, to)) {
            self.resolve(to);
        }
    }

    /// Every port is this one, where the kernel has been told so (`guest/init-windows`).
    pub(crate) fn answer_all(&self) {
        self.serve(SocketAddr::from((Ipv4Addr::UNSPECIFIED, ALL_PORTS)));
    }

    fn serve(&self, at: SocketAddr) {
        let Ok(listener) = TcpListener::bind(at) else { return };
        let (server, connections) = (self.server.clone(), Arc::clone(&self.connections));
        start(move || {
            for stream in listener.incoming().flatten() {
                if connections.fetch_add(1, Ordering::AcqRel) >= CONNECTIONS_MAX {
                    connections.fetch_sub(1, Ordering::AcqRel);
                    continue;
                }
                let (server, connections) = (server.clone(), Arc::clone(&connections));
                let serve = move || {
                    server.converse(stream);
                    connections.fetch_sub(1, Ordering::AcqRel);
                };
                start(serve);
            }
        });
    }

    fn resolve(&self, at: SocketAddr) {
        let Ok(socket) = UdpSocket::bind(at) else { return };
        let record = Arc::clone(&self.server.record);
        start(move || {
            let mut question = [0; 1500];
            loop {
                let Ok((length, from)) = socket.recv_from(&mut question) else { continue };
                if let Some(answer) = answer(&question[..length], &record) {
                    let _ = socket.send_to(&answer, from);
                }
            }
        });
    }
}

/// A thread, if there is still room for one.
fn start(work: impl FnOnce() + Send + 'static) {
    let _ = thread::Builder::new().stack_size(STACK).spawn(work);
}

/// What a server needs to know.
#[derive(Debug, Clone)]
struct InnerServer {
    record: Arc<Record>,
    tls: Arc<Option<Tls>>,
    stages: Arc<Mutex<Vec<String>>>,
}

impl InnerServer {
    /// Serves one connection.
    fn converse(&self, stream: TcpStream) {
        let Ok(at) = stream.local_addr() else { return };
        let mut at = SocketAddr::new(at.ip().to_canonical(), at.port());
        if at.port() == ALL_PORTS
            && let Ok(wanted) = rustix::net::sockopt::ip_original_dst(&stream)
        {
            at = wanted.into();
            self.record.connects(0, at);
        }
        let conversation = Conversation::new(at.port());
        let _ = stream.set_read_timeout(Some(InnerServer::patience(&conversation, at)));
        if let Some(greeting) = conversation.greeting() {
            let _ = (&stream).write_all(greeting.as_bytes());
        }
        let mut first = [0; 3];
        let length = stream.peek(&mut first).unwrap_or(0);
        match (&first[..length], &*self.tls) {
            (&[0x16, 3, _], Some(tls)) => {
                if let Some(stream) = tls.accept(stream) {
                    self.serve(stream, at, conversation, "https");
                }
            }
            _ => self.serve(stream, at, conversation, "http"),
        }
    }

    /// The patience with somebody who says nothing: shells wait for orders.
    fn patience(conversation: &Conversation, at: SocketAddr) -> Duration {
        let is_told = conversation.greeting().is_none() && !CLIENTS_FIRST.contains(&at.port());
        if is_told { SILENCE } else { PATIENCE }
    }

    fn serve(&self, mut stream: impl Read + Write, at: SocketAddr, mut conversation: Conversation, scheme: &str) {
        let (mut heard, mut piece) = (Vec::new(), [0; 4096]);
        let (mut is_request, mut orders) = (None, Some(conversation.orders()));
        loop {
            let length = match stream.read(&mut piece) {
                Ok(length @ 1..) => length,
                // It waits, and so it is told something, once.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let told = orders.take().filter(|_| InnerServer::patience(&conversation, at) == SILENCE);
                    if told.is_none_or(|orders| stream.write_all(orders.as_bytes()).is_err()) {
                        break;
                    }
                    continue;
                }
                _ => break,
            };
            heard.extend_from_slice(&piece[..length]);
            // A shell says that it is ready and then waits, also where clients speak first.
            if is_prompt(&heard)
                && let Some(orders) = orders.take()
            {
                let _ = stream.write_all(orders.as_bytes()).and_then(|()| stream.flush());
            }
            if *is_request.get_or_insert_with(|| begins_like_a_request(&heard)) {
                if let Some(request) = request(&heard) {
                    let _ = stream.write_all(&self.respond(at, &request, scheme));
                    let _ = stream.flush();
                    return;
                }
                if heard.len() < HEAD_MAX {
                    continue;
                }
            }
            while let Some(line) = next_line(&mut heard) {
                let reply = conversation.hear(&line);
                if orders.is_none() && conversation::is_obedient(&line) {
                    self.record.obeys(at);
                }
                reply.told.into_iter().for_each(|words| self.record.talks(at, words));
                let sent = stream.write_all(reply.answer.as_bytes()).and_then(|()| stream.flush());
                if reply.over || sent.is_err() {
                    return;
                }
            }
        }
        // What has no end of its line was said, too.
        if !heard.is_empty() {
            let reply = conversation.hear(&String::from_utf8_lossy(&heard));
            reply.told.into_iter().for_each(|words| self.record.talks(at, words));
        }
    }

    /// The answer to a request: a page, or a second stage.
    fn respond(&self, at: SocketAddr, request: &HttpRequest, scheme: &str) -> Vec<u8> {
        self.record.requests(at, request.line(scheme), request.host.clone());
        let host = if request.host.is_empty() { at.to_string() } else { request.host.clone() };
        let number = {
            let mut stages = self.stages.lock().unwrap_or_else(PoisonError::into_inner);
            if stages.len() < STAGES_MAX {
                stages.push(format!("{scheme}://{host}{}", request.path));
            }
            stages.len() - 1
        };
        let (body, kind) = match request.method.as_str() {
            "POST" | "PUT" => (b"{\"status\":\"ok\"}\n".to_vec(), "application/json"),
            _ => stage::content(&request.path, &request.agent, number),
        };
        let length = body.len();
        let head = format!(
            "HTTP/1.1 200 OK\r\nServer: nginx\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
        );
        let mut answer = head.into_bytes();
        if request.method != "HEAD" {
            answer.extend(body);
        }
        answer
    }
}

/// The next line of what was heard, taken out; one that is too long is cut.
fn next_line(heard: &mut Vec<u8>) -> Option<String> {
    let end = heard.iter().position(|byte| *byte == b'\n').or((heard.len() >= LINE_MAX).then_some(LINE_MAX - 1))?;
    let line: Vec<u8> = heard.drain(..=end).collect();
    Some(String::from_utf8_lossy(&line).into_owned())
}

/// Whether the last that was heard is a shell's sign that it waits for a command.
fn is_prompt(heard: &[u8]) -> bool {
    let line = heard.rsplit(|byte| *byte == b'\n').next().unwrap_or_default();
    line.len() <= PROMPT_MAX && (line.ends_with(b"$ ") || line.ends_with(b"# "))
}

/// Whether these are the first bytes of a request: a verb in capitals, a space, and a path or a link.
fn begins_like_a_request(heard: &[u8]) -> bool {
    let verbs = ["GET ", "POST ", "HEAD ", "PUT ", "DELETE ", "OPTIONS ", "PATCH ", "CONNECT "];
    let text = String::from_utf8_lossy(heard);
    let first = text.lines().next().unwrap_or_default();
    let rest = verbs.iter().find_map(|verb| first.strip_prefix(verb));
    rest.is_some_and(|rest| rest.starts_with(['/', 'h', '*'])) || verbs.iter().any(|verb| verb.starts_with(&*text))
}

/// A request whose whole head, and as much of its body as anybody reads, has come.
#[derive(Debug, Clone, PartialEq, Eq)]
struct HttpRequest {
    method: String,
    path: String,
    host: String,
    agent: String,
    body: String,
}

impl HttpRequest {
    /// As it is told: what was asked, and what was handed over.
    fn line(&self, scheme: &str) -> String {
        let secure = if scheme == "https" { " (TLS)" } else { "" };
        let body = if self.body.is_empty() { String::new() } else { format!(" {}", self.body) };
        let line = format!("{} {}{secure}{body}", self.method, self.path);
        line.chars().filter(|c| !c.is_control()).take(TEXT_MAX).collect()
    }
}

/// The request, once it is there.
fn request(heard: &[u8]) -> Option<HttpRequest> {
    let find = |end: &[u8]| heard.windows(end.len()).position(|window| window == end).map(|at| (at, end.len()));
    let (end, gap) = find(b"\r\n\r\n").or_else(|| find(b"\n\n"))?;
    let head = String::from_utf8_lossy(&heard[..end]);
    let mut lines = head.lines();
    let mut words = lines.next()?.split(' ');
    let (method, path) = (words.next()?, words.next()?);
    let field = |wanted: &str| {
        let named = head.lines().skip(1).find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case(wanted).then(|| value.trim().chars().take(255).collect::<String>())
        });
        named.unwrap_or_default()
    };
    let body = &heard[end + gap..];
    let wanted = field("content-length").parse::<usize>().unwrap_or(0).min(BODY_MAX);
    (body.len() >= wanted).then(|| HttpRequest {
        method: method.to_owned(),
        path: path.chars().take(TEXT_MAX).collect(),
        host: field("host"),
        agent: field("user-agent"),
        body: String::from_utf8_lossy(&body[..wanted.min(WORDS_MAX)]).into_owned(),
    })
}

/// An address for every name; nothing for other questions.
fn answer(question: &[u8], record: &Record) -> Option<Vec<u8>> {
    let (name, end) = name(question, 12)?;
    let kind = u16::from_be_bytes([*question.get(end)?, *question.get(end + 1)?]);
    let address = address_of(&name);
    record.asks(&name, address.into());
    let mut answer = Vec::with_capacity(end + 20);
    answer.extend_from_slice(question.get(..2)?);
    let given = u8::from(kind == 1);
    // A response, recursion desired and available, no error; one question and at most one answer.
    answer.extend_from_slice(&[0x81, 0x80, 0, 1, 0, given, 0, 0, 0, 0]);
    answer.extend_from_slice(question.get(12..end + 4)?);
    if given == 1 {
        answer.extend_from_slice(&[0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4]);
        answer.extend_from_slice(&address.octets());
    }
    Some(answer)
}

/// A name of a question, and where it ends.
fn name(message: &[u8], mut at: usize) -> Option<(String, usize)> {
    let mut name = String::new();
    loop {
        let length = usize::from(*message.get(at)?);
        at += 1;
        if length == 0 {
            return Some((name, at));
        }
        if length > 63 || name.len() > 255 {
            return None;
        }
        if !name.is_empty() {
            name.push('.');
        }
        let label = message.get(at..at + length)?;
        name.extend(label.iter().map(|byte| if byte.is_ascii_graphic() { char::from(*byte) } else { '?' }));
        at += length;
    }
}

/// The same name has the same address, in a network that is nobody's (198.18.0.0/15).
fn address_of(name: &str) -> Ipv4Addr {
    let hash = name
        .to_ascii_lowercase()
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    let [a, b, c, ..] = hash.to_le_bytes();
    Ipv4Addr::new(198, 18 + (a & 1), b, c.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_that_waits_is_known_by_its_prompt() {
        for (heard, is) in [
            (&b"$ "[..], true),
            (b"bash: no job control in this shell\nuser@desk:~$ ", true),
            (b"# ", true),
            (b"GET / HTTP/1.1\r\n", false),
            (b"EHLO x", false),
            (b"", false),
        ] {
            assert_eq!(is_prompt(heard), is, "{}", String::from_utf8_lossy(heard));
        }
    }

    #[test]
    fn names_get_addresses() {
        let record = Record::default();
        let mut question = vec![0xab, 0xcd, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        question.extend_from_slice(b"\x04evil\x07example\x00\x00\x01\x00\x01");
        let reply = answer(&question, &record).unwrap();
        assert_eq!(&reply[..8], &[0xab, 0xcd, 0x81, 0x80, 0, 1, 0, 1]);
        assert_eq!(reply[reply.len() - 4..], address_of("evil.example").octets());
        let behaviour = record.take();
        assert_eq!((behaviour.network[0].what.as_str(), behaviour.network[0].to.as_str()), ("dns", "evil.example"));
        for cut in 0..question.len() {
            let _ = answer(&question[..cut], &record);
        }
        assert_eq!(answer(&[0xff; 40], &record), None);
    }

    #[test]
    fn requests_are_read_when_they_are_whole() {
        assert_eq!(request(b"GET /x HTTP/1.1\r\nHost: a.example\r\n"), None);
        let whole = request(b"GET /x HTTP/1.1\r\nHost: a.example\r\nUser-Agent: curl\r\n\r\n").unwrap();
        assert_eq!(
            (whole.line("http").as_str(), whole.host.as_str(), whole.agent.as_str()),
            ("GET /x", "a.example", "curl")
        );
        let begun = b"POST /p HTTP/1.1\r\ncontent-length: 5\r\n\r\nabc";
        assert_eq!(request(begun), None);
        let posted = request(&[&begun[..], b"de"].concat()).unwrap();
        assert_eq!(posted.line("https"), "POST /p (TLS) abcde");
        for (heard, is) in [
            (&b"GET /x"[..], true),
            (b"GE", true),
            (b"GET http://a/ HTTP/1.0", true),
            (b"NICK bot\r\n", false),
            (b"{\"id\":1}", false),
        ] {
            assert_eq!(begins_like_a_request(heard), is, "{}", String::from_utf8_lossy(heard));
        }
    }

    #[test]
    fn lines_are_taken_one_by_one_and_cut() {
        let mut heard = b"NICK bot\r\nUSER x".to_vec();
        assert_eq!(next_line(&mut heard).as_deref(), Some("NICK bot\r\n"));
        assert_eq!((next_line(&mut heard), heard.as_slice()), (None, &b"USER x"[..]));
        let mut long = vec![b'x'; LINE_MAX + 5];
        assert_eq!(next_line(&mut long).map(|line| line.len()), Some(LINE_MAX));
        assert_eq!(long.len(), 5);
        assert!(!address_of("x").is_loopback());
    }
}
