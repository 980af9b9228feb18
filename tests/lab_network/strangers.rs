//! Tests of machines that are not what they claim to be: strangers at the port, datagrams that are forged, truncated or repeated, a copied
//! disk, and a certificate that differs from the database.

use super::ONE_LAB;
use super::cables::Cables;
use super::history;
use super::machine::{Configured, Machine};
use crate::control::gate::{PATIENCE, wait_for};
use serde_json::json;
use std::io::{Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::process::Command;
use std::sync::PoisonError;
use std::time::{Duration, Instant};
use weir_peers::Postgres;
use weir_sim::rng::Rng;

const PORT: u16 = 7300;

/// What the lab's machines broadcast, as received by somebody in their network who has none of their secrets.
fn overheard(cables: &Cables, wanted: usize) -> Vec<Vec<u8>> {
    let ear = UdpSocket::bind((cables.broadcast().as_str(), PORT)).expect("a socket");
    ear.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let mut heard = Vec::new();
    while heard.len() < wanted {
        let mut piece = [0; 2048];
        let length = ear.recv(&mut piece).expect("a beat");
        heard.push(piece[..length].to_vec());
    }
    heard
}

/// Repeats these datagrams, and sends many that are similar.
fn shout(cables: &Cables, heard: &[Vec<u8>], seed: u64) {
    let (mut rng, mouth) = (Rng::new(seed), UdpSocket::bind((cables.bridge().as_str(), 0)).expect("a socket"));
    mouth.set_broadcast(true).expect("it may broadcast");
    let to = (cables.broadcast(), PORT);
    for round in 0..2_000 {
        let mut text = rng.pick(heard).clone();
        let at = rng.below(text.len() as u64) as usize;
        match round % 5 {
            0 => {}
            1 => text[at] ^= 1 << rng.below(8),
            2 => text.truncate(at),
            3 => text.extend(std::iter::repeat_n(b'x', rng.below(1_000) as usize)),
            _ => text = (0..rng.below(600)).map(|_| rng.next_u64() as u8).collect(),
        }
        let _ = mouth.send_to(&text, (to.0.as_str(), to.1));
    }
}

/// Connects without a certificate and says what only machines of the lab may say, or says nothing for a long time. So many connections stay
/// open that one host could fill the port.
fn call(address: &str, seed: u64) -> Vec<TcpStream> {
    let mut rng = Rng::new(seed);
    let victory = b"weir-lab 1 election\n7 0 99 stands victory 7.1 99\n".to_vec();
    let hello = [&b"\x16\x03\x01\xff\xff\x01\x00"[..], &vec![0; 20_000]].concat();
    let mut open = Vec::new();
    for round in 0..400 {
        let Ok(mut stream) = TcpStream::connect((address, PORT)) else { continue };
        stream.set_read_timeout(Some(Duration::from_millis(200))).expect("a timeout");
        match round % 8 {
            0 => drop(stream.write_all(&victory)),
            1 => drop(stream.write_all(&hello)),
            2 => drop(stream.write_all(&(0..400).map(|_| rng.next_u64() as u8).collect::<Vec<u8>>())),
            _ => {
                open.push(stream);
                continue;
            }
        }
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        let text = String::from_utf8_lossy(&answer);
        assert!(!text.contains("leader") && !text.contains("weir-lab"), "{text}");
    }
    open
}

fn logged(machine: &Machine, words: &str) -> bool {
    std::fs::read_to_string(machine.log()).unwrap_or_default().contains(words)
}

/// The leader and the epoch, as this machine sees them.
fn term(machine: &Machine) -> (Option<String>, Option<i64>) {
    let status = machine.json(&["lab", "status"]);
    (status["leader"].as_str().map(str::to_owned), status["epoch"].as_i64())
}

#[test]
fn strangers_change_nothing_and_a_copied_disk_is_refused_and_reported() {
    let _one = ONE_LAB.lock().unwrap_or_else(PoisonError::into_inner);
    let (cables, shared) = (Cables::new(4), tempfile::tempdir().expect("a folder"));
    let postgres = Postgres::start_on(&cables.bridge());
    let (records, more) = (postgres.database(), format!("samples = {:?}\n", shared.path()));
    let mut machines: Vec<Machine> = (1..=4)
        .map(|number| Machine::new(&cables, number, &records, Configured { steady: true, ..Configured::with(&more) }))
        .collect();
    machines[0].weir(&["lab", "init", "--name", "n1", "--priority", "1"]).ok();
    machines[0].up();
    for number in 2..=3 {
        let invited = machines[0].json(&["lab", "invite", "--priority", &number.to_string()]);
        let (token, name) = (invited["token"].as_str().expect("a token"), format!("n{number}"));
        machines[number - 1].weir(&["lab", "join", token, "--name", &name]).ok();
        machines[number - 1].up();
    }
    // A leader that hears no other machine while others are at work gives up. n3 only votes and does not work; n2 analyses everything.
    machines[0].weir(&["lab", "drain", "n3"]).ok();
    wait_for("n3 to be without work", || logged(&machines[2], "is drained").then_some(()));
    machines[1].led_by("n1");
    let page = machines[1].analysed("before");
    assert_eq!((&page["state"], &page["attempts"][0]["node"]), (&json!("done"), &json!("n2")), "{page}");
    let before = term(&machines[0]);
    assert_eq!(before.0.as_deref(), Some("n1"));

    let heard = overheard(&cables, 10);
    let begun = Instant::now();
    let mut open = Vec::new();
    for seed in 1..=3 {
        shout(&cables, &heard, seed);
        open.extend(call(&cables.address(1), seed));
        open.extend(call(&cables.address(2), seed));
        assert_eq!(machines[1].analysed(&format!("amid strangers {seed}"))["state"], "done");
    }
    eprintln!("strangers for {:?}", begun.elapsed());
    drop(open);
    assert_eq!(term(&machines[0]), before, "{}", machines[0].said());

    // A copied disk: the same name, key and certificate at another address.
    let copied = Command::new("cp")
        .arg("-a")
        .arg(machines[1].home.path().join("data"))
        .arg(machines[3].home.path().join("data"))
        .status();
    assert!(copied.expect("cp runs").success());
    machines[3].up();
    let words = "another machine has the name and the key";
    wait_for("a word about the copy", || (logged(&machines[1], words) || logged(&machines[3], words)).then_some(()));
    wait_for("its refusal", || logged(&machines[0], "two machines work under one name").then_some(()));
    assert_eq!(machines[0].analysed("beside a copy")["state"], "done");
    assert_eq!(term(&machines[0]), before, "{}", machines[0].said());
    machines[3].kill();

    // The database has another priority than the certificate, so the messages of that machine are ignored.
    let set = |priority: u8| {
        let statement = format!("update lab_nodes set priority = {priority} where node = 'n2'");
        let done = Command::new("psql").args([&records, "-q", "-c", &statement]).status();
        assert!(done.expect("psql runs").success());
    };
    set(0);
    wait_for("a word about the priority", || logged(&machines[0], "is not what is registered").then_some(()));
    wait_for("its own word", || logged(&machines[1], "is not registered in the lab with its key, role").then_some(()));
    let number = machines[0].submit("without n2");
    let without = || machines[0].weir(&["lab", "why", &number]).ok().contains("no machine is plugged in");
    wait_for("a reason", || without().then_some(()));
    // Nobody answers that machine. It looks for a leader, and nobody hears that either.
    wait_for("a word about its messages", || logged(&machines[0], "a machine is not what it says it is").then_some(()));
    assert!(without(), "it is not plugged in either");
    assert_eq!(term(&machines[0]), before, "{}", machines[0].said());
    set(2);
    let page = machines[0].ended(&number);
    assert_eq!((&page["state"], &page["attempts"][0]["node"]), (&json!("done"), &json!("n2")), "{page}");
    assert_eq!(term(&machines[0]), before, "one term of office all the time: {}", machines[0].said());
    history::holds(&records);
}
