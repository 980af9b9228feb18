//! Tests of what the owner of a site can configure: which visitors are known, who is refused, what a key is worth, and which server gets no
//! requests.

use super::Up;
use super::floods::{Site, rest_of, run};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::io::AsyncWriteExt;
use weir_peers::Gunicorn;

/// An application that answers with one word, or with an error.
fn app(word: &str, status: &str) -> String {
    format!(
        "def app(environ, start):\n    start({status:?}, [('Content-Length', '{}')])\n    return [b'{word}']\n",
        word.len()
    )
}

#[test]
fn networks_that_are_refused_hear_403_and_networks_that_are_known_are_not_crowded_out() {
    run(async {
        let folder = tempfile::tempdir().unwrap();
        let bots = folder.path().join("bots.json");
        std::fs::write(&bots, r#"{"prefixes": [{"ipv4Prefix": "127.1.0.0/16"}]}"#).unwrap();
        let more = format!("denied_networks = [\"127.66.0.0/16\"]\nknown_network_files = [\"{}\"]\n", bots.display());
        let site = Arc::new(Site::new(&more));
        let said = site.ask([127, 66, 1, 1], "/page?1").await;
        assert!(said.starts_with("HTTP/1.1 403 "), "{said}");
        super::floods::play_new_networks(site, &vec![String::from("a=b"); 6]).await;
    });
}

#[test]
fn a_server_that_is_drained_gets_no_new_requests_until_it_is_undone() {
    run(async {
        let (one, two) = (Gunicorn::start(&app("one", "200 OK"), 1), Gunicorn::start(&app("two", "200 OK"), 1));
        let up = Up::new(&format!("backends = [\"app {} {}\"]\n", one.place(), two.place()));
        let ask = || up.ask("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        let both = || {
            let said: Vec<String> = (0..20).map(|_| ask()).collect();
            (said.iter().any(|said| said.ends_with("one")), said.iter().any(|said| said.ends_with("two")))
        };
        assert_eq!(both(), (true, true));
        let said = up.weir(&["web", "drain", one.place()]).ok();
        assert!(said.contains("gets no new requests"), "{said}");
        assert_eq!(both(), (false, true));
        let status = super::json(up.weir(&["web", "status", "--json"]));
        assert_eq!(status["backends"][0]["servers"][0]["draining"], true, "{status}");
        up.weir(&["web", "drain", one.place(), "--undo"]).ok();
        assert_eq!(both(), (true, true));
        let refused = up.weir(&["web", "drain", "192.0.2.1:1"]);
        assert_ne!(refused.code, Some(0));
        assert!(refused.stderr.contains("no backend has the server"), "{}", refused.stderr);
    });
}

#[test]
fn a_server_that_answers_everybody_with_errors_is_left_alone() {
    run(async {
        let bad = Gunicorn::start(&app("broken", "500 Oops"), 1);
        let good = Gunicorn::start(&app("fine", "200 OK"), 1);
        let site = Site::with_servers(&format!("{} {}", bad.place(), good.place()), "rest = \"1h\"\n");
        let mut broken = 0;
        for number in 0..60 {
            let said = site.ask([127, 1, number, 1], "/").await;
            broken += usize::from(said.ends_with("broken"));
        }
        let status = super::json(site.up.weir(&["web", "status", "--json"]));
        assert_eq!(status["backends"][0]["servers"][0]["broken"], true, "{status}");
        assert!((1..40).contains(&broken), "{broken} of 60 were sent to it");
        for number in 0..20 {
            let said = site.ask([127, 1, number, 1], "/").await;
            assert!(said.ends_with("fine"), "{said}");
        }
    });
}

/// Sends an answer in pieces, like a language model. Each answer keeps a worker busy.
const STREAM: &str = r#"
import time
def app(environ, start):
    start("200 OK", [("Content-Type", "text/plain"), ("X-Accel-Buffering", "no")])
    def pieces():
        for _ in range(4):
            time.sleep(0.02)
            yield b"token "
    return pieces()
"#;

#[test]
fn keys_share_a_streaming_server_by_their_weights() {
    run(async {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("keys");
        std::fs::write(&file, "large 6 large-key-0123456789\nsmall 2 small-key-0123456789\n").unwrap();
        let more = format!("key_header = \"authorization\"\nkeys_file = \"{}\"\n", file.display());
        let site = Arc::new(Site::before(Gunicorn::start(STREAM, 4), &more));
        let counts: [Arc<AtomicUsize>; 2] = Default::default();
        let mut tasks = Vec::new();
        for (key, count) in ["large-key-0123456789", "small-key-0123456789"].iter().zip(&counts) {
            for number in 0..16 {
                let (site, count) = (Arc::clone(&site), Arc::clone(count));
                tasks.push(tokio::spawn(async move {
                    loop {
                        let mut stream = site.connect([127, 3, number, 1]).await;
                        let ask = format!(
                            "GET / HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {key}\r\nConnection: close\r\n\r\n"
                        );
                        let _ = stream.write_all(ask.as_bytes()).await;
                        let said = rest_of(&mut stream).await;
                        assert!(said.starts_with("HTTP/1.1 200 OK") && !said.contains("set-cookie"), "{said}");
                        count.fetch_add(1, Ordering::Relaxed);
                    }
                }));
            }
        }
        let begun = Instant::now();
        while counts[1].load(Ordering::Relaxed) < 60 {
            assert!(begun.elapsed() < Duration::from_secs(120), "the small one gets too little");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        tasks.iter().for_each(tokio::task::JoinHandle::abort);
        let [large, small] = counts.map(|count| count.load(Ordering::Relaxed));
        let ratio = large as f64 / small as f64;
        assert!((2.0..=4.5).contains(&ratio), "{large} of the large key, {small} of the small one");
    });
}
