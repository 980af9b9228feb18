//! What many requests and many sessions hold in memory.
//!
//! One test, because memory is counted by process. The clients are plain sockets, which hold nothing in this process but a number.
#![allow(missing_docs, clippy::print_stdout)]

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use weir_core::fair::{PeerId, Report, SessionKey, SubnetKey, Work};
use weir_web::admission::{self, Admission, Slots};
use weir_web::exchange::SharedQueue;
use weir_web::identity::{self, Identities, Secret};
use weir_web::proxy::{Backend, Gate, Limits, Listener, Settings, WebSettings};
use weir_web::route::Rule;
use weir_web::waiting_page::WaitingPage;

const QUEUED: usize = 10_000;
const QUEUED_BYTES_MAX: usize = 20 << 10;
const SESSIONS: u64 = 1_000_000;
const SESSION_BYTES_MAX: usize = 250;
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn memory_of_the_queue_and_of_known_sessions() {
    let session_bytes = known_sessions();
    assert!(session_bytes <= SESSION_BYTES_MAX, "{session_bytes} bytes a known session");
    let queued_bytes = queued_requests();
    assert!(queued_bytes <= QUEUED_BYTES_MAX, "{queued_bytes} bytes a queued request");
    println!("{session_bytes} bytes a known session, {queued_bytes} bytes a queued request");
}

/// A million sessions of a hundred thousand subnets, active at another front-end: those without a request and without debt are not kept.
fn known_sessions() -> usize {
    let settings =
        admission::Settings { slots: Slots::Fixed(4), sessions: SESSIONS as u32, ..admission::Settings::default() };
    let before = resident_bytes();
    let queue = Admission::new(settings);
    for number in 0..SESSIONS {
        let report = Report {
            session: SessionKey(mixed(number)),
            subnet: SubnetKey(mixed(number / 10)),
            life: 1,
            served: Work(1_000_000),
            active: true,
        };
        queue.hear(PeerId(1), number + 1, &report);
    }
    assert_eq!(queue.view().sessions as u64, SESSIONS);
    (resident_bytes() - before) / SESSIONS as usize
}

/// Ten thousand connections, each with a request that waits; fewer where fewer files may be open.
fn queued_requests() -> usize {
    let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let gate = Gate::start(settings(server.local_addr().unwrap())).unwrap();
    let at = gate.addresses()[0];
    let count = QUEUED.min((raise_open_files() - 200) / 2);
    // What is made once is there before counting begins.
    let mut first = ask(at, 0);
    let mut held = server.accept().unwrap().0;
    held.read_exact(&mut [0; 16]).unwrap();
    let before = resident_bytes();
    let clients: Vec<TcpStream> = (0..count).map(|number| ask(at, number)).collect();
    let begun = Instant::now();
    while gate.admissions()[0].view().waiting < count {
        assert!(begun.elapsed() < PATIENCE, "{:?}", gate.admissions()[0].view());
        std::thread::sleep(Duration::from_millis(20));
    }
    let bytes = resident_bytes().saturating_sub(before) / count;
    held.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok").unwrap();
    first.read_exact(&mut [0; 12]).unwrap();
    drop((clients, server));
    bytes
}

fn ask(at: SocketAddr, number: usize) -> TcpStream {
    let mut stream = TcpStream::connect(at).unwrap();
    let head = format!(
        "GET /page/{number} HTTP/1.1\r\nHost: www.example.org\r\nUser-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:128.0)\r\nAccept: \
         text/html,application/xhtml+xml,application/xml;q=0.9\r\nAccept-Language: en\r\nAccept-Encoding: gzip, br\r\nReferer: \
         https://www.example.org/\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream
}

fn settings(backend: SocketAddr) -> Settings {
    let admission = admission::Settings {
        slots: Slots::Fixed(1),
        queue: 20_000,
        queue_bytes: 1 << 40,
        queue_timeout: Duration::from_secs(600),
        ..admission::Settings::default()
    };
    let secret = Secret::new(b"a secret of the tests").unwrap();
    let limits = Limits { connections: 50_000, connections_per_address: 50_000, ..Limits::default() };
    // A slow machine would send browsers away with a page before all of them wait.
    let waiting = WaitingPage { enabled: false, ..WaitingPage::default() };
    Settings {
        listeners: vec![Listener::plain(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))],
        web: WebSettings { threads: 2, waiting, ..WebSettings::default() },
        tls: None,
        named: None,
        identities: Identities::new(&identity::Settings::default(), &secret).unwrap(),
        limits,
        backends: vec![Backend {
            admission,
            servers: vec![backend.to_string()],
            response: Duration::from_secs(600),
            health_every: Duration::ZERO,
            ..Backend::default()
        }],
        rules: vec![Rule::all_to("default")],
        tally: None,
        buffers: None,
        door: Default::default(),
    }
}

/// Keys are hashes, and so in no order.
fn mixed(number: u64) -> u64 {
    let mixed = (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ (mixed >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93)
}

fn raise_open_files() -> usize {
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
    maximum.map_or(usize::MAX, |maximum| maximum as usize)
}

fn resident_bytes() -> usize {
    let fields = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = fields.split_whitespace().nth(1).unwrap().parse().unwrap();
    pages * rustix::param::page_size()
}
