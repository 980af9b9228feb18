//! Who may use a relay or a NATS server, and what becomes of strangers.

use crate::cluster::{Carriers, FrontEnd, TestRelay, wait_for};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;
use weir_core::fair::{SessionKey, SubnetKey, Work};
use weir_peers::Nats;
use weir_web::exchange::nats::NatsSettings;
use weir_web::exchange::relay::RelaySettings;
use weir_web::identity::Secret;
use weir_web::profile::{Document, Remainder};

fn over(relay: &TestRelay) -> Carriers {
    Carriers { relays: vec![relay.settings()], ..Carriers::default() }
}

fn peers(front_end: &FrontEnd) -> usize {
    front_end.exchange.status().peers.iter().filter(|peer| peer.whole).count()
}

fn problem(front_end: &FrontEnd) -> String {
    front_end.exchange.status().carriers[0].problem.clone().unwrap_or_default()
}

#[test]
fn a_relay_lets_nobody_in_without_the_key() {
    let relay = TestRelay::start(0.0);
    let wrong = RelaySettings { key: Secret::new(b"some other key for it").unwrap(), ..relay.settings() };
    let stranger = FrontEnd::new("stranger", &Carriers { relays: vec![wrong], ..Carriers::default() });
    wait_for("a reason", || problem(&stranger).contains("key"));
    let (one, two) = (FrontEnd::new("one", &over(&relay)), FrontEnd::new("two", &over(&relay)));
    wait_for("the two to meet", || peers(&one) == 1 && peers(&two) == 1);
    assert!(stranger.exchange.status().peers.is_empty());
}

#[test]
fn noise_and_idlers_do_not_keep_front_ends_out() {
    let relay = TestRelay::start(0.0);
    let mut noise: Vec<TcpStream> = (0..100).filter_map(|_| TcpStream::connect(relay.address).ok()).collect();
    for (place, socket) in noise.iter_mut().enumerate() {
        let _ = match place % 3 {
            0 => socket.write_all(b"GET / HTTP/1.1\r\n\r\n"),
            1 => socket.write_all(&[255; 4096]),
            _ => Ok(()),
        };
    }
    let (one, two) = (FrontEnd::new("one", &over(&relay)), FrontEnd::new("two", &over(&relay)));
    wait_for("the two to meet", || peers(&one) == 1 && peers(&two) == 1);
    let mut answer = Vec::new();
    noise[0].set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let _ = noise[0].read_to_end(&mut answer);
    assert!(answer.len() < 100, "an alert at most: {answer:?}");
}

#[test]
fn a_stranger_takes_no_front_ends_place() {
    // On a machine that stands still for seconds the strangers may be gone before: then it says nothing.
    let came_beside_strangers = || {
        let relay = TestRelay::start_for(1, 0.0);
        let mut strangers: Vec<TcpStream> = (0..5).map(|_| TcpStream::connect(relay.address).unwrap()).collect();
        let one = FrontEnd::new("one", &over(&relay));
        wait_for("a connection", || one.exchange.status().carriers[0].connected);
        let other = FrontEnd::new("other", &over(&relay));
        wait_for("a reason", || !problem(&other).is_empty());
        strangers.iter_mut().all(|stranger| {
            stranger.set_nonblocking(true).unwrap();
            stranger.read(&mut [0]).is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
        })
    };
    assert!((0..3).any(|_| came_beside_strangers()));
}

#[test]
fn a_front_end_that_dies_takes_its_sessions_along() {
    let relay = TestRelay::start(0.0);
    let (one, two) = (FrontEnd::new("one", &over(&relay)), FrontEnd::new("two", &over(&relay)));
    wait_for("the two to meet", || peers(&one) == 1 && peers(&two) == 1);
    two.board.with(|fair| fair.arrive(SessionKey(5), SubnetKey(6), Work(1)).unwrap());
    let active = || one.board.with(|fair| fair.active(SubnetKey(6)));
    wait_for("the session to be known", || active() == 1);
    drop(two);
    wait_for("it to be forgotten", || active() == 0);
}

#[test]
fn a_password_of_nats_is_wanted_and_given() {
    let nats = Nats::with(&["--user", "weir", "--pass", "a pass"]);
    let with = |login: &str| {
        let url = format!("nats://{login}{}", nats.address()).parse().unwrap();
        let settings = NatsSettings { url, subject: "weir.login".into(), ca_file: None };
        Carriers { nats: vec![settings], ..Carriers::default() }
    };
    let stranger = FrontEnd::new("stranger", &with(""));
    wait_for("a reason", || problem(&stranger).contains("Authorization"));
    let (one, two) = (FrontEnd::new("one", &with("weir:a pass@")), FrontEnd::new("two", &with("weir:a pass@")));
    wait_for("the two to meet", || peers(&one) == 1 && peers(&two) == 1);
}

#[test]
fn a_document_reaches_all_through_relay_and_nats_together() {
    let (relay, nats) = (TestRelay::start(0.2), Nats::start());
    let settings = NatsSettings { url: nats.address().parse().unwrap(), subject: "weir.both".into(), ca_file: None };
    let both = Carriers { nats: vec![settings.clone()], ..over(&relay) };
    let only_nats = Carriers { nats: vec![settings], ..Carriers::default() };
    let all = [("one", both), ("two", over(&relay)), ("three", only_nats)].map(|(name, by)| FrontEnd::new(name, &by));
    // The first hears both others; these two hear only the first, for frames are not passed on between carriers.
    wait_for("the three to meet", || peers(&all[0]) == 2 && peers(&all[1]) == 1 && peers(&all[2]) == 1);
    let counts = (0..5000u32).map(|i| {
        let address = std::net::Ipv4Addr::from_bits(i << 8);
        (weir_web::identity::Network::new(address.into(), 24), f64::from(i + 1))
    });
    let document = Document::new(3, 0, counts.collect(), Remainder::default());
    all[0].exchange.put_document(document.text().as_bytes()).unwrap();
    wait_for("all to adopt it", || {
        all.iter().all(|one| one.exchange.document().borrow().as_deref() == Some(&document))
    });
}
