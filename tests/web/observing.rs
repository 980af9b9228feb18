//! What observe mode says, beside what enforcing does on the same traffic.

use super::floods::{Site, rest_of, run};
use serde_json::Value;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::AsyncWriteExt;

/// Half more than four workers of 40 ms can do, for three seconds, at fixed times, from twenty networks.
async fn play(site: &Arc<Site>) -> Value {
    let asked: Vec<_> = (0..450_u32)
        .map(|number| {
            let site = Arc::clone(site);
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_micros(6_667) * number).await;
                let mut stream = site.connect([127, 1, (number % 20) as u8, 1]).await;
                let ask = "GET /page?40 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
                let _ = stream.write_all(ask.as_bytes()).await;
                rest_of(&mut stream).await;
            })
        })
        .collect();
    for one in asked {
        one.await.unwrap();
    }
    // The last ends of the shadow are played by the next tick.
    let begun = Instant::now();
    loop {
        let queue = super::json(site.up.weir(&["web", "status", "--json"]))["backends"][0]["queue"].clone();
        let counters = &queue["counters"];
        if counters["finished"].as_u64() == counters["asked"].as_u64() || begun.elapsed() > Duration::from_secs(60) {
            return queue;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Two and a half times what four workers of 40 ms can do, for four seconds, each request from a new network. Who is not served in time goes away, as people do.
async fn flood(site: &Arc<Site>) -> Value {
    let asked: Vec<_> = (0..1_000_u32)
        .map(|number| {
            let site = Arc::clone(site);
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_micros(4_000) * number).await;
                let mut stream = site.connect([127, 20 + (number / 250) as u8, (number % 250) as u8, 1]).await;
                let ask = "GET /page?40 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
                let _ = stream.write_all(ask.as_bytes()).await;
                rest_of(&mut stream).await;
            })
        })
        .collect();
    for one in asked {
        one.await.unwrap();
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    super::json(site.up.weir(&["web", "status", "--json"]))["backends"][0]["queue"].clone()
}

fn refused(queue: &Value) -> u64 {
    queue["counters"]["refused"].as_array().unwrap().iter().map(|count| count.as_u64().unwrap()).sum()
}

#[test]
fn observing_says_what_enforcing_does() {
    run(async {
        // Both at once, so that a busy machine is busy for both.
        let (enforcing, observing) =
            (Arc::new(Site::new("strangers = 0.0\n")), Arc::new(Site::new("strangers = 0.0\nobserve = true\n")));
        let (enforced, observed) = tokio::join!(play(&enforcing), play(&observing));
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

/// Enforcing, most of a flood is refused. Observing, all of it reaches the server, and what is said of it is what enforcing would have done.
#[test]
fn observing_a_flood_tells_how_many_enforcing_would_refuse() {
    run(async {
        let site = |more: &str| Arc::new(Site::new(&format!("queue = 60\nwaiting_page_after = \"1s\"\n{more}")));
        let (enforcing, observing) = (site(""), site("observe = true\n"));
        let (enforced, observed) = tokio::join!(flood(&enforcing), flood(&observing));
        eprintln!("{enforced}\n{observed}");
        let (real, said) = (refused(&enforced), refused(&observed));
        assert!(real > 200, "it is a flood: {enforced}");
        // What a request costs is known only when the server has ended it, and in a flood that is late.
        assert!(said * 2 >= real && said <= real * 2, "{real} are refused, and observing says {said}");
    });
}
