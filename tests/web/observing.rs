//! Tests that observe mode reports what enforcing would do, compared with a gate that enforces on the same traffic.

use super::floods::{Site, rest_of, run};
use serde_json::Value;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::AsyncWriteExt;

/// Requests for pages that take 40 ms, at fixed times, for four workers.
struct Traffic {
    requests: u32,
    every: Duration,
    /// The address from which each of them comes.
    from: fn(u32) -> [u8; 4],
}

/// One and a half times what the workers can handle, for three seconds, from twenty networks.
const BUSY: Traffic =
    Traffic { requests: 450, every: Duration::from_micros(6_667), from: |number| [127, 1, (number % 20) as u8, 1] };

/// Two and a half times what they can handle, for four seconds, each request from a new network. Clients that are not served in time leave,
/// as people do.
const FLOOD: Traffic = Traffic {
    requests: 1_000,
    every: Duration::from_millis(4),
    from: |number| [127, 20 + (number / 250) as u8, (number % 250) as u8, 1],
};

/// The queue of the site after this traffic.
async fn play(site: &Arc<Site>, traffic: &Traffic) -> Value {
    let ask = |number: u32| {
        let (site, after, from) = (Arc::clone(site), traffic.every * number, (traffic.from)(number));
        tokio::spawn(async move {
            tokio::time::sleep(after).await;
            let mut stream = site.connect(from).await;
            let _ = stream.write_all(b"GET /page?40 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await;
            rest_of(&mut stream).await;
        })
    };
    let asked: Vec<_> = (0..traffic.requests).map(ask).collect();
    for one in asked {
        one.await.unwrap();
    }
    // The next tick processes the last ends in the shadow.
    let begun = Instant::now();
    loop {
        let queue = super::json(site.up.weir(&["web", "status", "--json"]))["backends"][0]["queue"].clone();
        let count = |name: &str| queue["counters"][name].as_u64().unwrap();
        let ended = count("finished") + count("left") + refused(&queue);
        if ended >= count("asked") || begun.elapsed() > Duration::from_secs(60) {
            return queue;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn refused(queue: &Value) -> u64 {
    queue["counters"]["refused"].as_array().unwrap().iter().map(|count| count.as_u64().unwrap()).sum()
}

#[test]
fn observing_says_what_enforcing_does() {
    run(async {
        // Both run at the same time, so that other load on the machine affects both.
        let (enforcing, observing) =
            (Arc::new(Site::new("strangers = 0.0\n")), Arc::new(Site::new("strangers = 0.0\nobserve = true\n")));
        let (enforced, observed) = tokio::join!(play(&enforcing, &BUSY), play(&observing, &BUSY));
        let mean = |queue: &Value| {
            queue["counters"]["service_s"].as_f64().unwrap() / queue["counters"]["finished"].as_f64().unwrap()
        };
        assert_eq!((refused(&enforced), refused(&observed)), (0, 0), "{enforced} {observed}");
        let (real, said) = (mean(&enforced), mean(&observed));
        assert!(said < real * 2.0 && real < said * 2.0, "a request costs {real} s, and observing says {said} s");
        let waits = |queue: &Value| queue["counters"]["wait_s"].as_f64().unwrap();
        let (real, said) = (waits(&enforced), waits(&observed));
        assert!(
            said < real * 4.0 + 30.0 && real < said * 4.0 + 30.0,
            "waits are {real} s, and observing says {said} s"
        );
    });
}

/// When enforcing, most of a flood is refused. When observing, all of it reaches the server, and the report says what enforcing would have
/// done.
#[test]
fn observing_a_flood_tells_how_many_enforcing_would_refuse() {
    run(async {
        let site = |more: &str| Arc::new(Site::new(&format!("queue = 60\nwaiting_page_after = \"1s\"\n{more}")));
        let (enforcing, observing) = (site(""), site("observe = true\n"));
        let (enforced, observed) = tokio::join!(play(&enforcing, &FLOOD), play(&observing, &FLOOD));
        let (real, said) = (refused(&enforced), refused(&observed));
        assert!(real > 200, "it is a flood: {enforced}");
        // The cost of a request is known only when the server has finished it, and in a flood that is late.
        assert!(said * 2 >= real && said <= real * 2, "{real} are refused, and observing says {said}");
    });
}
