//! Floods: connections that do nothing, and passwords that are guessed from everywhere.

use super::crowd::{Conversation, loopback, raise_open_files, resident_kib, runtime};
use super::full_or;
use super::honest::{Honest, PASSWORD, user};
use crate::control::gate::{Client, Site, wait_for};
use base64::Engine;
use std::time::{Duration, Instant};

/// All places are taken by clients that send EHLO and then do nothing. A client that logs in gets a place all the same.
#[test]
fn a_crowd_that_only_sits_there_does_not_keep_others_out() {
    let crowd = full_or(10_000, 1_000);
    raise_open_files();
    // The crowd takes all places, so that there is none free for the honest user.
    let site = Site::new(&format!("[limits]\nconnections = {crowd}\nfirst_command = \"10m\"\ncommand = \"10m\"\n"));
    let up = site.up();
    let honest = Honest::begin(&site, &up);
    let before_kib = resident_kib(up.pid());
    let runtime = runtime();
    let idle = runtime.block_on(async {
        let mut idle = Vec::new();
        for number in 0..crowd {
            // Each address has a hundred connections, as many as it may have. Every tenth is in the middle of a TLS handshake.
            let server = if number % 10 == 9 { &up.tls } else { &up.plain };
            let mut client = Conversation::open(server, loopback(2, number / 100)).await.expect("a connection");
            if number % 10 == 9 {
                client.send(b"\x16\x03\x01\x02\x00\x01\x00").await;
            } else {
                client.greet().await;
            }
            idle.push(client);
        }
        idle
    });
    let sessions = || site.json(&["status"])["gate"]["sessions"].as_u64().unwrap_or(0) as usize;
    assert!(sessions() >= crowd * 9 / 10, "{} sessions", sessions());
    let each = resident_kib(up.pid()).saturating_sub(before_kib) * 1024 / crowd as u64;
    eprintln!("{crowd} connections that sit there: {each} octets each");
    assert!(each < 32 * 1024);
    // Stays full for a while longer.
    std::thread::sleep(Duration::from_secs(2));
    assert!(honest.is_served());
    let refused = site.json(&["status"])["gate"]["counters"]["connections_refused"].clone();
    eprintln!("  {} sessions still open, {refused} connections were refused", sessions());
    honest.end(&site, &up, "a crowd of connections", 150 + crowd as u64 * 32 / 1024);
    drop(idle);
    wait_for("everybody to leave", || (sessions() == 0).then_some(()));
}

/// Passwords are guessed from many addresses. This brings bans and an alarm, and logins that were not cached still work.
#[test]
fn a_flood_of_logins_keeps_nobody_out() {
    const USERS: usize = 6;
    /// The default of `failed_logins_per_address`.
    const BAN_AT: usize = 10;
    let (addresses, sessions_each) = (full_or(400, 10), 5);
    let site = Site::new("[notices]\nadmin = \"admin@localhost\"\n");
    let up = site.up();
    (0..USERS).for_each(|n| user(&site, &format!("user{n}")));
    let honest = Honest::begin(&site, &up);
    let runtime = runtime();
    let flood: Vec<_> = (0..addresses * sessions_each)
        .map(|number| runtime.spawn(guess(up.plain.clone(), number / sessions_each, number)))
        .collect();
    wait_for("the flood to begin", || {
        (site.json(&["status"])["gate"]["counters"]["logins_failed"].as_u64()? >= 5).then_some(())
    });
    // Each of these logins needs a check of its password, in the middle of the flood.
    let mut waits = Vec::new();
    for n in 0..USERS {
        let begun = Instant::now();
        let name = format!("user{n}");
        let login = || Client::login_now(&up.plain, &name, PASSWORD);
        let mut client = wait_for("a login in the middle of the flood", login);
        waits.push(begun.elapsed().as_millis());
        let reply = client.mail(&format!("{name}@localhost"), &["ann@localhost"], "hello");
        assert!(reply.contains("accepted"), "{reply}");
    }
    let (mut wrong, mut banned, mut later) = (vec![0; addresses], 0, 0);
    runtime.block_on(async {
        for (number, run) in flood.into_iter().enumerate() {
            let (w, b, l) = run.await.expect("no panic");
            wrong[number / sessions_each] += w;
            (banned, later) = (banned + b, later + l);
        }
    });
    let bans = site.json(&["status"])["gate"]["counters"]["bans"].as_u64().expect("a number");
    eprintln!(
        "logins from {addresses} addresses: {} wrong, {banned} refused by {bans} bans, {later} told to try later; \
         first logins of others meanwhile took {waits:?} ms",
        wrong.iter().sum::<usize>()
    );
    // How many guesses are checked at all depends on the machine. But an address can guess at most ten times, apart from guesses that its
    // other sessions had under way.
    let guessers = wrong.iter().filter(|wrong| **wrong >= BAN_AT).count();
    assert_eq!(bans, guessers as u64, "{wrong:?}");
    assert!(guessers >= full_or(20, 5), "{wrong:?}");
    assert!(wrong.iter().all(|wrong| *wrong < BAN_AT + sessions_each), "{wrong:?}");
    site.arrived("ann@localhost", USERS);
    let alarm = std::fs::read_to_string(&site.arrived("admin@localhost", 1)[0]).expect("text");
    assert!(alarm.contains("guesses passwords and is banned") && alarm.contains("127.5."), "{alarm}");
    assert_eq!(site.arrived("admin@localhost", 1).len(), 1, "one alarm stands for all");
    honest.end(&site, &up, "a flood of logins", 250);
}

/// Many networks guess at one account at the same time. None of them is banned. Strangers are slowed down, and if many come at the same
/// time, most are told to come later; the owner does not notice.
#[test]
fn guesses_at_one_account_from_everywhere_slow_strangers_and_not_its_owner() {
    let site = Site::new("");
    let up = site.up();
    user(&site, "ann");
    let guess_once = |network: usize| {
        let server = up.plain.clone();
        async move {
            let login = base64::engine::general_purpose::STANDARD.encode(format!("\0ann\0guess {network}"));
            let mut client = Conversation::open(&server, loopback(7, network * 256)).await.expect("a connection");
            client.greet().await;
            client.say(&format!("AUTH PLAIN {login}")).await
        }
    };
    let owner = || Client::login(&up.plain, "ann", PASSWORD).is_ok();
    assert!(owner());
    let runtime = runtime();
    // Ten guesses a day are free; the next ones are already slow.
    for network in 0..12 {
        let said = runtime.block_on(guess_once(network));
        assert!(said.starts_with("535 5.7.8"), "{said}");
    }
    let mut crowd = tokio::task::JoinSet::new();
    (20..60).for_each(|network| drop(crowd.spawn_on(guess_once(network), runtime.handle())));
    assert!(owner(), "who has logged in from a network before is not concerned");
    // Eight logins may wait for a turn, which takes seconds; the others are told to come later.
    let mut later = 0;
    while later < 5 {
        let said = runtime.block_on(crowd.join_next()).expect("forty guess at once").expect("no panic");
        later += usize::from(said.starts_with("454 4.7.0 too many wrong passwords"));
    }
    assert!(owner());
    let bans = site.json(&["status"])["gate"]["counters"]["bans"].as_u64();
    assert_eq!(bans, Some(0), "each of them failed once");
}

/// Addresses that were banned before a restart are banned after it, and no others.
#[test]
fn a_restart_pardons_no_guesser() {
    let site = Site::new("[limits]\nfailed_logins_per_address = 3\n");
    let runtime = runtime();
    let up = site.up();
    let (wrong, banned, _) = runtime.block_on(guess(up.plain.clone(), 7, 0));
    assert!(wrong == 3 && banned > 0, "{wrong} wrong, {banned} refused");
    up.signal("TERM");
    assert_eq!(up.ended(), Some(0));
    let up = site.up();
    let greeted = |address| {
        runtime.block_on(async {
            let mut client = Conversation::open(&up.plain, loopback(5, address)).await.expect("a connection");
            client.greet().await
        })
    };
    let said = greeted(7);
    assert!(said.starts_with("421") && said.contains("too many failed logins from your address"), "{said}");
    assert!(greeted(8).starts_with("250"), "{}", greeted(8));
}

/// Guesses in three sessions until each ends. Returns how many guesses were wrong, how often it was banned, and how often it was told to
/// come later.
async fn guess(server: String, address: usize, number: usize) -> (usize, usize, usize) {
    let (mut wrong, mut banned, mut later) = (0, 0, 0);
    for session in 0..3 {
        let Ok(mut client) = Conversation::open(&server, loopback(5, address)).await else { continue };
        if client.greet().await.starts_with("421") {
            banned += 1;
            continue;
        }
        for attempt in 0..5 {
            // A new name each time, because guesses at a single account are slowed down anyway.
            let guess = format!("\0name{number}.{session}\0guess {attempt}");
            let token = base64::engine::general_purpose::STANDARD.encode(guess);
            match client.say(&format!("AUTH PLAIN {token}")).await {
                said if said.starts_with("535") => wrong += 1,
                said if said.starts_with("454") => later += 1,
                said if said.starts_with("421") && said.contains("from your address") => banned += 1,
                _ => break,
            }
        }
    }
    (wrong, banned, later)
}

/// A user who fills the spool keeps nobody else out, and a restart does not give them new space.
#[test]
fn one_user_cannot_fill_the_spool() {
    // No server listens there, so all mail stays here.
    let port = weir_peers::free_port();
    let delivery = format!("way = \"smarthost\"\nhosts = [\"127.0.0.1:{port}\"]\ntls = \"off\"\n");
    let throttle = "[throttle]\nrecipients = \"alike\"\n";
    let site = Site::with_submission("user_messages = 4\n", &format!("{delivery}{throttle}"));
    let up = site.up();
    user(&site, "bob");
    // After the next start the password is not printed any more.
    let password = up.password();
    let send = |up: &crate::control::gate::Up, to: &str| {
        let mut demo = Client::login(&up.plain, "demo", &password).expect("a login");
        demo.mail("demo@localhost", &[to], "hello")
    };
    for number in 0..4 {
        let said = send(&up, &format!("new{number}@elsewhere.example"));
        assert!(said.starts_with("250 "), "{said}");
    }
    let full = "452 4.3.1 4 messages of demo";
    assert!(send(&up, "one@more.example").starts_with(full));
    let mut bob = Client::login(&up.plain, "bob", PASSWORD).expect("a login");
    assert!(bob.mail("bob@localhost", &["new@elsewhere.example"], "hello").starts_with("250 "));
    drop(bob);
    up.signal("TERM");
    up.ended();
    let up = site.up();
    // The files of held mail are counted in the background after the start.
    wait_for("the mail of before to be counted", || send(&up, "one@more.example").starts_with(full).then_some(()));
    site.weir(&["held", "delete", "--user", "demo", "--yes"]).ok();
    wait_for("room", || send(&up, "one@more.example").starts_with("250 ").then_some(()));
}
