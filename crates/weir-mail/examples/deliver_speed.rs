//! How fast mail leaves: messages through the spool's ledger to one smtp-sink, over 20 connections.
//!
//! `cargo run --release -p weir-mail --example deliver_speed -- [MESSAGES] [OCTETS] [CONNECTIONS]`; needs Debian's postfix
//! package. Spooling is done before the clock starts; recording progress and finishing count.
#![allow(clippy::print_stdout, missing_docs)]

use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant as Moment, SystemTime, UNIX_EPOCH};

use weir_core::time::Instant;
use weir_mail::delivery::Delivery;
use weir_mail::delivery::message::{OutgoingMessage, Recipient};
use weir_mail::delivery::route::{Endpoint, HostOrder, Route, Routes, Smarthost};
use weir_mail::delivery::settings::Settings;
use weir_mail::delivery::spool_ledger::SpoolLedger;
use weir_smtp::client::approach::Approach;
use weir_smtp::envelope::{MailFrom, RcptTo};
use weir_store::spool::{Options, Spool};

struct Sink(Child);

impl Drop for Sink {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn main() {
    let mut numbers = std::env::args().skip(1).map(|text| text.parse::<usize>().expect("a number"));
    let messages = numbers.next().unwrap_or(50_000);
    let octets = numbers.next().unwrap_or(4096);
    let connections = numbers.next().unwrap_or(20);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    runtime.block_on(run(messages, octets, connections));
}

async fn run(messages: usize, octets: usize, connections: usize) {
    let folder = tempfile::tempdir().expect("a folder");
    let (spool, _) = Spool::open(folder.path(), Options::default()).expect("the spool opens");
    let port =
        std::net::TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("a port").port();
    let _sink = sink(port);
    let before_kib = resident_kib();
    let jobs = spool_messages(&spool, messages, octets).await;
    let clock = || Instant(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64);
    let mut settings = Settings::new("bench.example", folder.path().join("mail"));
    let hosts = vec![Endpoint::Host("127.0.0.1".into(), port)];
    settings.routes =
        Routes::new(Route::Smarthost(Smarthost { hosts, order: HostOrder::Failover, approach: Approach::default() }));
    settings.queue.window.initial = connections as u32;
    settings.queue.window.most = connections as u32;
    let ledger = SpoolLedger::new(spool.clone());
    let delivery = Delivery::start(settings, ledger, Arc::new(clock)).expect("delivery starts");
    let start = Moment::now();
    jobs.into_iter().for_each(|job| delivery.enqueue(job));
    let enqueued = start.elapsed();
    let queue_kib = resident_kib().saturating_sub(before_kib);
    while delivery.stats().queue.messages > 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let took = start.elapsed();
    spool.flush().await.expect("the spool writes");
    let stats = delivery.stats();
    println!(
        "{messages} messages of {octets} octets in {:.2} s: {:.0} messages/s",
        took.as_secs_f64(),
        messages as f64 / took.as_secs_f64()
    );
    println!(
        "enqueued in {:.2} s; {} sessions; {} delivered, {} failed, {} deferred; queue {} KiB resident, {:.2} s of CPU in all",
        enqueued.as_secs_f64(),
        stats.sessions_opened,
        stats.queue.totals.delivered,
        stats.queue.totals.failed,
        stats.queue.totals.deferred,
        queue_kib,
        cpu_s(),
    );
    delivery.shutdown(Duration::from_secs(1)).await;
}

fn sink(port: u16) -> Sink {
    let mut command = Command::new("/usr/sbin/smtp-sink");
    command.args(["-u", "root", &format!("127.0.0.1:{port}"), "1000"]).stdout(Stdio::null());
    let sink = Sink(command.spawn().expect("smtp-sink is installed (Debian package postfix)"));
    let deadline = Moment::now() + Duration::from_secs(10);
    while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(Moment::now() < deadline, "smtp-sink does not listen");
        std::thread::sleep(Duration::from_millis(10));
    }
    sink
}

async fn spool_messages(spool: &Spool, messages: usize, octets: usize) -> Vec<OutgoingMessage> {
    let line = format!("{}\r\n", "x".repeat(70));
    let mut text = b"From: a@example.org\r\nTo: b@example.net\r\nSubject: speed\r\n\r\n".to_vec();
    while text.len() + line.len() <= octets {
        text.extend_from_slice(line.as_bytes());
    }
    let text = Arc::new(text);
    let mut jobs = Vec::with_capacity(messages);
    for batch in (0..messages).collect::<Vec<_>>().chunks(500) {
        let tasks: Vec<_> =
            batch.iter().map(|number| tokio::spawn(one(spool.clone(), Arc::clone(&text), *number))).collect();
        for task in tasks {
            jobs.push(task.await.expect("no panic"));
        }
    }
    jobs
}

async fn one(spool: Spool, text: Arc<Vec<u8>>, number: usize) -> OutgoingMessage {
    let mut draft = spool.draft().expect("room");
    draft.write(&text).await.expect("written");
    let to = RcptTo::parse(&format!("<user{number}@example.net>"), false).expect("a path");
    let message = OutgoingMessage {
        id: draft.id(),
        owner: format!("owner{}", number % 10).into(),
        sender: MailFrom::parse("<a@example.org>").expect("a path"),
        recipients: Box::new([Recipient { index: 0, to }]),
        size_bytes: text.len() as u64,
        accepted_at: Instant(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64),
        sign: false,
        added: "".into(),
        hand_back: false,
        long_lines: false,
    };
    draft.commit(message.to_bytes()).await.expect("committed");
    message
}

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|text| text.parse().ok()).unwrap_or(0)
}

fn cpu_s() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let ticks: Vec<f64> = stat.split_whitespace().skip(13).take(2).filter_map(|text| text.parse().ok()).collect();
    ticks.iter().sum::<f64>() / 100.0
}
