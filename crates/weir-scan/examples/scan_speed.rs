//! How many messages a second the panel looks at: `scan_speed [ADDRESS of a clamd]`. Without one, YARA and attachments alone.
#![allow(clippy::print_stdout)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use weir_scan::content::Content;
use weir_scan::inspect::{About, Inspect};
use weir_scan::panel::{Panel, Settings};
use weir_scan::worker::scanner::Workers;
use weir_scan::{clamd, worker};

/// As in the real binary.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|verb| verb == "scan-worker") {
        worker::serve(worker::pool::MEMORY).expect("a worker");
        return;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    runtime.block_on(measure(arguments.first().map(String::as_str)));
}

async fn measure(address: Option<&str>) {
    let only_clamd = std::env::var_os("ONLY_CLAMD").is_some();
    let clamd = address.map(|text| clamd::Settings {
        addresses: vec![text.parse().expect("an address")],
        ..clamd::Settings::default()
    });
    let workers = (!only_clamd).then(Workers::default);
    let mut settings = Settings::default();
    if let Some(workers) = workers {
        settings = settings.with(workers);
    }
    if let Some(clamd) = clamd {
        settings = settings.with(clamd);
    }
    let panel = Panel::start(settings).await.expect("a panel");
    for (size, at_once) in [(4 << 10, 1), (4 << 10, 8), (4 << 10, 32), (50 << 10, 8), (10 << 20, 2)] {
        let (done, number) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let begun = Instant::now();
        let tasks: Vec<_> = (0..at_once)
            .map(|_| {
                let (panel, done, number) = (panel.clone(), done.clone(), number.clone());
                tokio::spawn(async move {
                    while begun.elapsed() < Duration::from_secs(3) {
                        let content =
                            Content::of(&message(number.fetch_add(1, Ordering::Relaxed), size)).expect("content");
                        let verdict = panel.inspect(&content, &Arc::new(About::default())).await;
                        assert!(verdict.is_clean(), "{verdict:?}");
                        done.fetch_add(1, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.expect("a task");
        }
        let rate = done.load(Ordering::Relaxed) as f64 / begun.elapsed().as_secs_f64();
        println!("{size:>9} bytes, {at_once:>2} at once: {rate:>8.0} messages/s");
    }
}

/// Each is another message, so that nothing is known already.
fn message(number: u64, size: usize) -> Vec<u8> {
    let mut message = format!(
        "From: ann@example.org\r\nTo: bob@example.org\r\nSubject: number {number}\r\nMIME-Version: 1.0\r\n\
         Content-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\n\r\nHello, {number}.\r\n--b\r\nContent-Type: text/plain; name=notes.txt\r\n\
         Content-Transfer-Encoding: base64\r\n\r\n"
    )
    .into_bytes();
    while message.len() < size {
        message.extend_from_slice(b"VGhlIHF1aWNrIGJyb3duIGZveCBqdW1wcyBvdmVyIHRoZSBsYXp5IGRvZy4K\r\n");
    }
    message.extend_from_slice(b"--b--\r\n");
    message
}
