//! A million recipients, a thousand in each message. All of them get their mail, and memory does not grow with their number.

use super::crowd::{Conversation, loopback, resident_kib, runtime};
use super::full_or;
use super::honest::{Honest, PASSWORD, mallory};
use crate::control::gate::{Site, wait_for};
use base64::Engine;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

const EACH: usize = 1_000;

#[test]
fn a_million_recipients_over_time() {
    let messages = full_or(1_000, 12);
    let runtime = runtime();
    let sink = runtime.block_on(Sink::open());
    let delivery = format!("routes = [\"far.example smtp:{}\"]\n", sink.address);
    let site = Site::new(&delivery);
    let up = site.up();
    mallory(&site);
    let honest = Honest::begin(&site, &up);
    let token = base64::engine::general_purpose::STANDARD.encode(format!("\0mallory\0{PASSWORD}"));
    runtime.block_on(async {
        let mut client = Conversation::open(&up.plain, loopback(7, 0)).await.expect("a connection");
        client.greet().await;
        assert!(client.say(&format!("AUTH PLAIN {token}")).await.starts_with("235"));
        for message in 0..messages {
            if message % 50 == 49 {
                // A session has a limit on its commands.
                client.say("QUIT").await;
                client = Conversation::open(&up.plain, loopback(7, 0)).await.expect("a connection");
                client.greet().await;
                assert!(client.say(&format!("AUTH PLAIN {token}")).await.starts_with("235"));
            }
            let to: Vec<String> = (0..EACH).map(|n| format!("r{message}-{n}@far.example")).collect();
            let reply = client.mail("mallory@localhost", &to).await;
            assert!(reply.contains("on its way to 1000 recipients"), "{reply}");
            if message * 10 % messages == 0 {
                eprintln!("  {} recipients: {} KiB resident", message * EACH, resident_kib(up.pid()));
            }
        }
        // The first recipient above the limit is refused. The client then gives this mail up, so it does not count below.
        let to: Vec<String> = (0..=EACH).map(|n| format!("r{n}@far.example")).collect();
        let reply = client.mail("mallory@localhost", &to).await;
        assert!(reply.starts_with("452 4.5.3 too many recipients"), "{reply}");
    });
    let all = (messages * EACH) as u64;
    wait_for("all of them to be delivered", || (sink.recipients.load(Ordering::Relaxed) >= all).then_some(()));
    assert_eq!(sink.recipients.load(Ordering::Relaxed), all);
    honest.end(&site, &up, &format!("{all} recipients"), 300);
}

/// A mail server that accepts everything and counts recipients.
struct Sink {
    address: String,
    recipients: Arc<AtomicU64>,
}

impl Sink {
    async fn open() -> Sink {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        let recipients = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&recipients);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(take(stream, Arc::clone(&counted)));
            }
        });
        Sink { address, recipients }
    }
}

async fn take(stream: TcpStream, recipients: Arc<AtomicU64>) -> Option<()> {
    let mut stream = BufReader::new(stream);
    stream.write_all(b"220 sink.example\r\n").await.ok()?;
    let (mut line, mut envelope) = (String::new(), 0);
    loop {
        line.clear();
        if stream.read_line(&mut line).await.ok()? == 0 {
            return None;
        }
        let answer: &[u8] = match line.get(..4) {
            Some("EHLO") => b"250-sink.example\r\n250 PIPELINING\r\n",
            Some("RCPT") => {
                envelope += 1;
                b"250 ok\r\n"
            }
            Some("DATA") => {
                stream.write_all(b"354 go on\r\n").await.ok()?;
                while line != ".\r\n" {
                    line.clear();
                    stream.read_line(&mut line).await.ok().filter(|read| *read > 0)?;
                }
                recipients.fetch_add(std::mem::take(&mut envelope), Ordering::Relaxed);
                b"250 taken\r\n"
            }
            _ => b"250 ok\r\n",
        };
        stream.write_all(answer).await.ok()?;
    }
}
