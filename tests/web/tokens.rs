//! Tests of a gate in front of servers of language models: signed tokens identify the clients, and the tokens of the model are the cost of
//! a request. The server is a real Flask behind gunicorn that answers as such servers do, as a whole or as a stream of events.

use super::floods::{Site, rest_of, run};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::io::AsyncWriteExt;
use tokio::task::JoinHandle;
use weir_peers::Gunicorn;

/// Every answer keeps a worker busy for 20 ms, however many tokens it has, like an answer that is computed together with others.
const MODEL: &str = r#"
import gzip, json, time
from flask import Flask, Response, request
app = Flask(__name__)

@app.post("/<path:path>")
def answer(path):
    asked = request.get_json()
    tokens = asked["max_tokens"]
    usage = {"prompt_tokens": 1, "total_tokens": tokens}
    said = asked.get("say", "word")
    if not asked.get("stream"):
        time.sleep(0.02)
        text = json.dumps({"choices": [{"message": {"content": said}}], "usage": usage})
        if "gzip" in request.headers.get("Accept-Encoding", ""):
            return Response(gzip.compress(text.encode()), headers={"Content-Encoding": "gzip"})
        return Response(text, content_type="application/json")
    def events():
        for _ in range(4):
            time.sleep(0.005)
            yield "data: " + json.dumps({"choices": [{"delta": {"content": said}}]}) + "\n\n"
        yield "data: " + json.dumps({"choices": [], "usage": usage}) + "\n\ndata: [DONE]\n\n"
    return Response(events(), content_type="text/event-stream")
"#;

/// What a client might write so that its answer looks cheap.
const FORGED: &str = r#"\n\ndata: {\"usage\":{\"total_tokens\":1}}\n\n{\"usage\":{\"total_tokens\":1}}"#;

fn ask(path: &str, key: &str, tokens: u32, stream: bool) -> String {
    let body =
        format!(r#"{{"max_tokens": {tokens}, "stream": {stream}, "say": "{FORGED}", "usage": {{"total_tokens": 1}}}}"#);
    format!(
        "POST {path} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {key}\r\nContent-Type: application/json\r\nAccept-Encoding: gzip\r\n\
         Range: bytes=0-5\r\nX-Cost: 1\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// Clients that send the next request as soon as they are answered, and how often they were answered.
struct Asking {
    answered: Arc<AtomicUsize>,
    tasks: Vec<JoinHandle<()>>,
}

impl Asking {
    fn begin(site: &Arc<Site>, clients: u8, request: impl Fn(u8) -> String) -> Asking {
        let answered = Arc::<AtomicUsize>::default();
        let one = |number: u8| {
            let (site, answered, request) = (Arc::clone(site), Arc::clone(&answered), request(number));
            tokio::spawn(async move {
                loop {
                    let mut stream = site.connect([127, 3, number, 1]).await;
                    let _ = stream.write_all(request.as_bytes()).await;
                    let said = rest_of(&mut stream).await;
                    assert!(said.starts_with("HTTP/1.1 200 OK"), "{said}");
                    // If tokens are counted, nobody gets an answer in which they cannot be seen.
                    assert!(!request.contains(" /v1/") || said.contains("total_tokens"), "{said}");
                    answered.fetch_add(1, Ordering::Relaxed);
                }
            })
        };
        let tasks = (0..clients).map(one).collect();
        Asking { answered, tasks }
    }

    fn count(&self) -> usize {
        self.answered.load(Ordering::Relaxed)
    }

    /// Waits until this many more requests were answered.
    async fn more(&self, count: usize) {
        let (begun, before) = (Instant::now(), self.count());
        while self.count() < before + count {
            assert!(begun.elapsed() < Duration::from_secs(120), "{} of {count} were answered", self.count() - before);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

#[test]
fn tokens_of_a_model_are_the_price_and_nobody_talks_it_down() {
    run(async {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("keys");
        std::fs::write(&file, "dear 1 dear-key-0123456789\ncheap 1 cheap-key-0123456789\n").unwrap();
        let more = format!(
            "key_header = \"authorization\"\nkeys_file = \"{}\"\nroutes = [\"* app\", \"*/v1 app units=usage.total_tokens:1000/s\"]\n",
            file.display()
        );
        let site = Arc::new(Site::before(Gunicorn::start_flask(MODEL, 4), &more));
        // By time both are equal; by tokens one of them requests a hundred times as much. Each has the same number of requests waiting.
        for (path, by_tokens) in [("/plain", false), ("/v1/chat/completions", true)] {
            let dear = Asking::begin(&site, 12, |number| ask(path, "dear-key-0123456789", 1_000, number % 2 == 0));
            let cheap = Asking::begin(&site, 12, |number| ask(path, "cheap-key-0123456789", 10, number % 2 == 0));
            cheap.more(20).await;
            let before = (dear.count(), cheap.count());
            cheap.more(100).await;
            let served = (dear.count() - before.0, cheap.count() - before.1);
            match by_tokens {
                true => assert!(served.0 * 5 < served.1, "{served:?} by tokens"),
                false => assert!(served.0 * 2 > served.1, "{served:?} by time"),
            }
        }
    });
}

/// A token that openssl signs with the key in `folder`.
fn signed(folder: &Path, content: &str) -> String {
    let coded = |octets: &[u8]| {
        let coded = openssl(folder, &["base64", "-A"], octets);
        String::from_utf8(coded).unwrap().trim().replace('+', "-").replace('/', "_").replace('=', "")
    };
    let text = format!("{}.{}", coded(br#"{"alg":"RS256","typ":"JWT"}"#), coded(content.as_bytes()));
    let signature = openssl(folder, &["dgst", "-sha256", "-sign", "key.pem"], text.as_bytes());
    format!("{text}.{}", coded(&signature))
}

fn openssl(folder: &Path, arguments: &[&str], input: &[u8]) -> Vec<u8> {
    let mut command = Command::new("openssl");
    command.args(arguments).current_dir(folder).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut process = command.spawn().expect("openssl is not installed: run `make setup`");
    std::io::Write::write_all(&mut process.stdin.take().unwrap(), input).unwrap();
    let output = process.wait_with_output().unwrap();
    assert!(output.status.success(), "{arguments:?}");
    output.stdout
}

#[test]
fn clients_with_tokens_of_a_public_key_share_by_the_weight_in_them() {
    run(async {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path();
        openssl(at, &["genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048", "-out", "key.pem"], b"");
        openssl(at, &["pkey", "-in", "key.pem", "-pubout", "-out", "key.pub"], b"");
        let more = format!(
            "key_header = \"authorization\"\ntoken_keys_file = \"{}\"\ntoken_weight_claim = \"tier\"\ntoken_audience = \"models\"\n",
            at.join("key.pub").display()
        );
        let site = Arc::new(Site::before(Gunicorn::start_flask(MODEL, 4), &more));
        let token = |name: &str, tier: u32| {
            signed(at, &format!(r#"{{"sub":"{name}","tier":{tier},"aud":"models","exp":4000000000}}"#))
        };
        let (large, small) = (token("large", 6), token("small", 2));
        let large = Asking::begin(&site, 16, |_| ask("/chat", &large, 1, false));
        let small = Asking::begin(&site, 16, |_| ask("/chat", &small, 1, false));
        small.more(20).await;
        let before = (large.count(), small.count());
        small.more(60).await;
        let ratio = (large.count() - before.0) as f64 / (small.count() - before.1) as f64;
        assert!((2.0..=4.5).contains(&ratio), "{ratio}");
        drop((large, small));
        // A token for another audience is worth nothing: its client is a stranger, and gets a cookie like one.
        let other = signed(at, r#"{"sub":"large","tier":1000,"aud":"elsewhere","exp":4000000000}"#);
        let mut stream = site.connect([127, 4, 1, 1]).await;
        stream.write_all(ask("/chat", &other, 1, false).as_bytes()).await.unwrap();
        let said = rest_of(&mut stream).await.to_ascii_lowercase();
        assert!(said.starts_with("http/1.1 200 ok") && said.contains("set-cookie: weir="), "{said}");
    });
}

#[test]
fn a_path_with_its_own_slots_keeps_nobody_waiting_on_the_others() {
    run(async {
        let gunicorn = Gunicorn::start(super::floods::APP, 4);
        let more = format!(
            "backends = [\"app {0} slots=3\", \"reports {0} slots=1\"]\nroutes = [\"* app\", \"*/reports reports cost=2s\"]\nthreads = 1\n",
            gunicorn.place()
        );
        let site = Arc::new(Site::with_settings(&more, gunicorn));
        // Each takes two seconds, and there are more of them than workers.
        let mut reports = Vec::new();
        for number in 0..6 {
            let mut stream = site.connect([127, 5, number, 1]).await;
            stream.write_all(super::floods::get("/reports?2000").as_bytes()).await.unwrap();
            reports.push(stream);
        }
        let view = || super::json(site.up.weir(&["web", "status", "--json"]));
        let begun = Instant::now();
        while view()["backends"][1]["queue"]["waiting"].as_u64().is_none_or(|waiting| waiting < 5) {
            assert!(begun.elapsed() < Duration::from_secs(60), "{}", view());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        for number in 0..20 {
            let said = site.ask([127, 1, number, 1], "/page?1").await;
            assert!(said.starts_with("HTTP/1.1 200 OK"), "{said}");
        }
        assert!(
            view()["backends"][1]["queue"]["waiting"].as_u64().is_some_and(|waiting| waiting > 0),
            "they still wait"
        );
    });
}
