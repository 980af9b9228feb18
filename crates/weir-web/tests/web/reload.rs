//! Settings that change while requests wait and run.

use crate::harness::{PATIENCE, World, body_of, get, get1, saying, status_of, until};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use weir_web::admission::{Admission, Slots};
use weir_web::builtin::{self, BackendCounters};
use weir_web::proxy::{Backend, GateError, Settings, Trust};
use weir_web::route::Rule;

fn rule(path: &str, backend: &str) -> Rule {
    Rule { path: path.into(), ..Rule::all_to(backend) }
}

/// Another backend of this name.
fn backend(settings: &Settings, name: &str, server: &str) -> Backend {
    let mut backend = settings.backends[0].clone();
    backend.admission.name = name.into();
    backend.servers = vec![server.to_owned()];
    backend
}

impl World {
    fn reload(&self, change: impl FnOnce(&mut Settings)) -> Result<weir_web::proxy::Reloaded, GateError> {
        let mut settings = self.gate.settings();
        change(&mut settings);
        self.gate.reload(settings)
    }
}

async fn another() -> (String, Arc<BackendCounters>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let (address, seen) = (listener.local_addr().unwrap().to_string(), Arc::new(BackendCounters::default()));
    tokio::spawn(builtin::serve(listener, Arc::clone(&seen)));
    (address, seen)
}

/// Clients with kept connections ask without a pause while servers, slots, limits and routes change again and again: every request is answered, no
/// connection ends, and no slot is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reload_under_load_loses_nothing() {
    let world = Arc::new(World::new().await);
    let (other, seen) = another().await;
    let first = world.gate.settings().backends[0].servers[0].clone();
    let queue = Arc::clone(&world.gate.admissions()[0]);
    let (stop, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let mut clients = Vec::new();
    for number in 0..24 {
        let (world, stop, answered) = (Arc::clone(&world), Arc::clone(&stop), Arc::clone(&answered));
        clients.push(tokio::spawn(async move {
            let (mut one, mut two) = (world.http1().await, world.http2().await);
            while !stop.load(Ordering::Relaxed) {
                let response = if number % 3 == 0 {
                    two.send_request(get(world.at, "/slow?ms=3")).await
                } else {
                    one.send_request(get1("/slow?ms=3")).await
                };
                let response = response.expect("the connection goes on");
                assert_eq!(response.status(), 200);
                body_of(response).await;
                answered.fetch_add(1, Ordering::Relaxed);
                // The next may only be sent when the last is over.
                if number % 3 != 0 {
                    one.ready().await.expect("the connection goes on");
                }
            }
        }));
    }
    for round in 0..40 {
        let before = answered.load(Ordering::Relaxed);
        let reloaded = world.reload(|settings| {
            settings.backends.truncate(1);
            settings.rules.truncate(1);
            settings.backends[0].servers = match round % 3 {
                0 => vec![first.clone()],
                1 => vec![first.clone(), other.clone()],
                _ => vec![other.clone()],
            };
            settings.backends[0].admission.slots = Slots::Fixed(1 + round as u32 % 6);
            settings.limits.body_buffers = (1 + round as u64) << 20;
            if round % 2 == 0 {
                let extra = backend(settings, "extra", &other);
                settings.backends.push(extra);
                settings.rules.insert(0, rule("/extra", "extra"));
            }
            settings.rules.last_mut().unwrap().path = "/".into();
            settings.rules.last_mut().unwrap().backend = "default".into();
        });
        assert_eq!(reloaded.unwrap().kept[..1], ["default"]);
        until("requests after a reload", || answered.load(Ordering::Relaxed) > before + 24).await;
    }
    stop.store(true, Ordering::Relaxed);
    for client in clients {
        client.await.unwrap();
    }
    let (view, answered) = (queue.view(), answered.load(Ordering::Relaxed));
    assert!(Arc::ptr_eq(&queue, &world.gate.admissions()[0]), "the queue stays");
    assert_eq!((view.waiting, view.running, view.waiting_bytes), (0, 0, 0), "{view:?}");
    assert_eq!((view.counters.dispatched, view.counters.finished), (answered, answered), "{view:?}");
    assert_eq!(view.counters.refused.iter().sum::<u64>(), 0, "{view:?}");
    assert!(seen.requests.load(Ordering::Relaxed) > 100, "the other server has worked too");
    assert!(seen.working_most.load(Ordering::Relaxed) <= 6, "never more than there were slots");
}

#[tokio::test]
async fn who_waits_keeps_its_place_and_goes_to_the_servers_of_now() {
    let world = World::with(|settings| settings.backends[0].admission.slots = Slots::Fixed(1)).await;
    let mut running = world.connect().await;
    running.write_all(b"GET /slow?ms=500 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await.unwrap();
    world.wait_for(|view| view.running == 1).await;
    let mut waiting = world.connect().await;
    waiting.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await.unwrap();
    world.wait_for(|view| view.waiting == 1).await;
    let server = saying("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nthe other").await;
    world.reload(|settings| settings.backends[0].servers = vec![server]).unwrap();
    assert_eq!(world.gate.admissions()[0].view().waiting, 1);
    let mut said = String::new();
    running.read_to_string(&mut said).await.unwrap();
    assert!(status_of(&said) == 200 && said.ends_with("That took 500 ms.\n"), "it ends where it began: {said}");
    said.clear();
    waiting.read_to_string(&mut said).await.unwrap();
    assert!(status_of(&said) == 200 && said.ends_with("the other"), "{said}");
    world.settle().await;
}

#[tokio::test]
async fn a_backend_that_is_taken_out_runs_dry_and_may_come_back() {
    let world = World::with(|settings| settings.backends[0].admission.slots = Slots::Fixed(1)).await;
    let own = world.gate.settings().backends[0].servers[0].clone();
    let queue: Arc<Admission> = Arc::clone(&world.gate.admissions()[0]);
    let ask = |path: &'static str| {
        let connected = world.connect();
        async move {
            let mut stream = connected.await;
            stream
                .write_all(format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").as_bytes())
                .await
                .unwrap();
            stream
        }
    };
    let running = ask("/slow?ms=400").await;
    world.wait_for(|view| view.running == 1).await;
    let waiting = ask("/slow?ms=1").await;
    world.wait_for(|view| view.waiting == 1).await;
    let out = |settings: &mut Settings| {
        settings.backends = vec![backend(settings, "new", &own)];
        settings.rules = vec![rule("/", "new")];
    };
    let reloaded = world.reload(out).unwrap();
    assert_eq!((reloaded.added, reloaded.removed), (vec!["new".to_owned()], vec!["default".to_owned()]));
    // Those who come now do not wait for those who were there.
    let mut said = String::new();
    ask("/echo").await.read_to_string(&mut said).await.unwrap();
    assert_eq!(status_of(&said), 200);
    assert_eq!((queue.view().running, queue.view().waiting), (1, 1), "the old ones are still there");
    // It comes back while it runs dry, and has its queue.
    world
        .reload(|settings| {
            settings.backends.push(backend(settings, "default", &own));
            settings.rules = vec![rule("/", "default")];
        })
        .unwrap();
    assert!(world.gate.admissions().iter().any(|admission| Arc::ptr_eq(admission, &queue)));
    world.reload(out).unwrap();
    for mut stream in [running, waiting] {
        said.clear();
        tokio::time::timeout(PATIENCE, stream.read_to_string(&mut said)).await.unwrap().unwrap();
        assert_eq!(status_of(&said), 200, "{said}");
    }
    until("nothing to hold the queue any more", || queue.is_idle() && Arc::strong_count(&queue) == 1).await;
    assert_eq!(world.gate.status().backends.len(), 1);
}

#[tokio::test]
async fn what_cannot_be_used_changes_nothing() {
    let world = World::new().await;
    let before = world.gate.settings();
    let outcome = world.reload(|settings| {
        settings.rules = vec![rule("/", "nowhere")];
        settings.limits.body_bytes = 1;
    });
    assert!(matches!(outcome, Err(GateError::Route(_))), "{outcome:?}");
    let outcome = world.reload(|settings| settings.web.error_pages = Some("/no/such/folder".into()));
    assert!(matches!(outcome, Err(GateError::Pages { .. })), "{outcome:?}");
    let outcome = world.reload(|settings| {
        settings.backends[0].servers.push("https://127.0.0.1:9".into());
        settings.backends[0].trust = Trust { ca_file: Some("/no/such/file".into()), ..Trust::default() };
    });
    let said = outcome.unwrap_err().to_string();
    assert!(said.contains("backend default: cannot read the root certificates in /no/such/file"), "{said}");
    let now = world.gate.settings();
    assert_eq!((&now.rules, &now.limits), (&before.rules, &before.limits));
    assert_eq!(now.backends[0].servers, before.backends[0].servers);
    assert_eq!(world.status("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await, 200);
    world.settle().await;
}

#[tokio::test]
async fn limits_hold_at_once_and_what_needs_a_restart_stays() {
    let world = World::new().await;
    let mut one = world.http1().await;
    for status in [200, 413] {
        let request =
            http::Request::post("/echo").header("host", "a").body(http_body_util::Full::from("body")).unwrap();
        one.ready().await.unwrap();
        let response = one.send_request(request).await.unwrap();
        assert_eq!(response.status().as_u16(), status, "on the same connection");
        body_of(response).await;
        world
            .reload(|settings| {
                settings.limits.body_bytes = 3;
                settings.web.threads = 7;
                settings.listeners.clear();
            })
            .unwrap();
    }
    let settings = world.gate.settings();
    assert_eq!((settings.web.threads, settings.listeners.len(), settings.limits.body_bytes), (2, 1, 3));
    assert_eq!(world.gate.status().threads, 2);
    // Observe mode is another queue: the old one runs dry.
    let queue = Arc::clone(&world.gate.admissions()[0]);
    world.reload(|settings| settings.backends[0].admission.observe = true).unwrap();
    assert!(!Arc::ptr_eq(&queue, &world.gate.admissions()[0]) && world.gate.admissions()[0].view().observe);
    assert_eq!(world.status("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await, 200);
}
