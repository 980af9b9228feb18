//! Tests of the server over real sockets with hostile clients: what they use stays bounded, and others are still served.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::TcpStream;
use weir_smtp::limits::SmtpLimits;
use weir_smtp::reception::Alarm;
use weir_smtp::server::{SmtpServer, TlsMode};
use weir_smtp::settings::Settings;

use crate::client::{Client, LOCALHOST, certificate, serve};
use crate::shell::{Memory, settings};

const SOON: Duration = Duration::from_millis(150);
const HOUR: Duration = Duration::from_secs(3600);
const WRONG: &str = "AUTH PLAIN AGJvYgB4";

#[tokio::test]
async fn what_is_injected_before_the_handshake_is_dropped() {
    let (_folder, tls) = certificate();
    let (server, address) = serve(SmtpLimits::default(), |_| {}, TlsMode::StartTls(tls.clone()));
    let mut client = Client::greeted(address).await;
    client.send(b"STARTTLS\r\nEHLO evil\r\nMAIL FROM:<evil@a>\r\nRCPT TO:<evil@b>\r\n").await;
    assert!(client.reply().await.starts_with("220 2.0.0 ready"));
    let mut client = client.encrypted(&tls.files().chain).await;
    // The first reply under TLS answers the first command under TLS.
    assert!(client.say("RCPT TO:<b@b>").await.starts_with("503 5.5.1 say MAIL"));
    assert!(client.say("EHLO me").await.starts_with("250-"));
    assert!(client.send_message("b@b").await.starts_with("250 "));
    let kept = server.reception().kept.lock().unwrap().clone();
    assert_eq!((kept.len(), kept[0].peer.helo.as_deref()), (1, Some("me")));
}

#[tokio::test]
async fn a_handshake_that_does_not_come_or_is_nonsense_ends() {
    let (_folder, tls) = certificate();
    let limits = SmtpLimits { tls_handshake: SOON, ..SmtpLimits::default() };
    let (server, address) = serve(limits, |_| {}, TlsMode::Implicit(tls));
    let mut silent = Client::connect(address).await;
    let mut plain = Client::connect(address).await;
    plain.send(b"EHLO me\r\nMAIL FROM:<a@a>\r\n").await;
    silent.rest().await;
    server.registry().empty().await;
    assert_eq!((server.counters().tls_failures, server.counters().tls_handshakes), (2, 0));
}

#[tokio::test]
async fn slow_clients_hear_why_they_are_left() {
    let limits = SmtpLimits { first_command: SOON, command: SOON, data_block: SOON, ..SmtpLimits::default() };
    let (server, address) = serve(limits, |_| {}, TlsMode::Off);
    let mut silent = Client::connect(address).await;
    let mut idle = Client::greeted(address).await;
    let mut halfway = Client::greeted(address).await;
    for line in ["MAIL FROM:<a@a>", "RCPT TO:<b@b>", "DATA"] {
        halfway.say(line).await;
    }
    assert!(silent.rest().await.ends_with("421 4.4.2 no command for too long; closing\r\n"));
    assert!(idle.rest().await.starts_with("421 4.4.2"));
    assert!(halfway.rest().await.starts_with("421 4.4.2 the message came too slowly"));
    drop((silent, idle, halfway));
    server.registry().empty().await;
    assert_eq!(server.counters().timeouts, 3);
}

#[tokio::test]
async fn octets_that_trickle_do_not_keep_a_session() {
    let limits = SmtpLimits { first_command: 2 * SOON, ..SmtpLimits::default() };
    let (server, address) = serve(limits, |_| {}, TlsMode::Off);
    let mut client = Client::connect(address).await;
    assert!(client.reply().await.starts_with("220 "));
    let mut pace = tokio::time::interval(SOON / 30);
    while server.counters().timeouts == 0 && client.send_if_possible(b"x").await {
        pace.tick().await;
    }
    assert_eq!(server.counters().timeouts, 1);
}

#[tokio::test]
async fn a_client_that_does_not_read_holds_back_itself_alone() {
    let limits = SmtpLimits { junk_commands: 100_000, commands: 1_000_000, command: 2 * SOON, ..SmtpLimits::default() };
    let (server, address) = serve(limits, |_| {}, TlsMode::Off);
    let mut deaf = Client::greeted(address).await;
    // About 9 MB of replies, more than the sockets can hold. It is sent until the server no longer reads.
    let flood = "HELP\r\n".repeat(1_000);
    let flooding = tokio::spawn(async move {
        for _ in 0..100 {
            if !deaf.send_if_possible(flood.as_bytes()).await {
                break;
            }
        }
        deaf
    });
    let mut other = Client::greeted(address).await;
    assert!(other.send_message("b@b").await.starts_with("250 "));
    assert!(other.say("QUIT").await.starts_with("221"));
    server.registry().empty().await;
    drop(flooding.await.unwrap());
}

#[tokio::test]
async fn endless_lines_and_messages_are_cut() {
    let limits = SmtpLimits { discard_bytes: 100_000, message_bytes: 50_000, ..SmtpLimits::default() };
    let (server, address) = serve(limits, |_| {}, TlsMode::Off);
    let mut line = Client::greeted(address).await;
    let mut message = Client::greeted(address).await;
    for command in ["MAIL FROM:<a@a>", "RCPT TO:<b@b>", "DATA"] {
        message.say(command).await;
    }
    let (mut line_octets, mut message_octets) = (0, 0);
    while line.send_if_possible(&[b'x'; 10_000]).await && line_octets < 100_000_000 {
        line_octets += 10_000;
    }
    while message.send_if_possible(&b"some text\r\n".repeat(1_000)).await && message_octets < 100_000_000 {
        message_octets += 11_000;
    }
    // The sockets hold some octets more than the server has read.
    assert!(line_octets < 20_000_000 && message_octets < 20_000_000, "{line_octets} {message_octets}");
    drop((line, message));
    server.registry().empty().await;
    assert_eq!((server.counters().abuses, server.counters().messages), (2, 0));
}

#[tokio::test]
async fn an_honest_reply_reaches_a_client_that_is_still_sending() {
    let limits = SmtpLimits { errors: 3, ..SmtpLimits::default() };
    let (_server, address) = serve(limits, |_| {}, TlsMode::Off);
    let mut client = Client::greeted(address).await;
    client.send(&b"nonsense\r\n".repeat(5_000)).await;
    let said = client.rest().await;
    assert!(said.ends_with("421 4.7.0 too many errors; closing\r\n"), "{said}");
    assert_eq!(said.matches("500 5.5.2").count(), 3);
}

#[tokio::test]
async fn connections_are_bounded_in_all_and_by_address() {
    let limits =
        SmtpLimits { connections: 10, connections_per_address: 5, idle_makes_room: HOUR, ..SmtpLimits::default() };
    let (server, address) = serve(limits.clone(), |_| {}, TlsMode::Off);
    let trusted = |s: &mut Settings| s.trusted = vec!["127.0.0.0/8".parse().unwrap()];
    let mut for_listed = Settings { limits, ..settings() };
    trusted(&mut for_listed);
    let listed = server.listen(LOCALHOST, for_listed, TlsMode::Off).unwrap();
    let mut clients = Vec::new();
    for _ in 0..5 {
        clients.push(Client::greeted(address).await);
    }
    assert_eq!(Client::connect(address).await.rest().await, "421 4.7.0 too many connections from your address\r\n");
    for _ in 0..5 {
        clients.push(Client::greeted(listed).await);
    }
    // A session that has handed in mail need not make room.
    for client in &mut clients {
        assert!(client.send_message("b@b").await.starts_with("250 "));
    }
    assert_eq!(Client::connect(listed).await.rest().await, "421 4.3.2 too many connections; please try again soon\r\n");
    assert_eq!(server.counters().connections_refused, 2);
    // Admitted clients are served, and a place that becomes free is given to the next client.
    assert!(clients[0].send_message("b@b").await.starts_with("250 "));
    assert!(clients[0].say("QUIT").await.starts_with("221"));
    assert_eq!(clients[0].rest().await, "");
    clients.remove(0);
    let mut admitted = false;
    while !admitted {
        admitted = Client::connect(address).await.reply().await.starts_with("220");
    }
}

#[tokio::test]
async fn whoever_only_sits_there_makes_room_for_others() {
    let (_folder, tls) = certificate();
    let limits = SmtpLimits { connections: 6, ..SmtpLimits::default() };
    let (server, address) = serve(limits, |_| {}, TlsMode::StartTls(tls));
    let mut idle = Vec::new();
    for number in 0..6 {
        let mut client = Client::greeted(address).await;
        if number == 0 {
            // One of them is in the middle of a handshake.
            assert!(client.say("STARTTLS").await.starts_with("220 "));
        }
        idle.push(client);
    }
    let mut honest = Vec::new();
    for _ in 0..3 {
        // There is a next place only when a session that was told to leave has ended.
        let mut client = Client::connect(address).await;
        while !client.reply().await.starts_with("220 ") {
            client = Client::connect(address).await;
        }
        assert!(client.say("EHLO honest").await.starts_with("250-"));
        assert!(client.send_message("b@b").await.starts_with("250 "));
        honest.push(client);
    }
    assert_eq!(server.counters().messages, 3);
    assert_eq!(idle[0].rest().await, "");
    let said = idle[1].rest().await;
    assert_eq!(said, "421 4.3.2 others need the place, and you have not logged in; try again\r\n");
}

#[tokio::test]
async fn a_client_that_the_shell_does_not_want_hears_why() {
    let (_folder, tls) = certificate();
    let server = SmtpServer::new(Memory { aloof: true, ..Memory::default() }, SmtpLimits::default());
    let plain = server.listen(LOCALHOST, settings(), TlsMode::Off).unwrap();
    assert_eq!(Client::connect(plain).await.rest().await, "554 5.7.1 not you\r\n");
    let implicit = server.listen(LOCALHOST, settings(), TlsMode::Implicit(tls.clone())).unwrap();
    let mut client = Client::connect(implicit).await.encrypted(&tls.files().chain).await;
    assert_eq!(client.rest().await, "554 5.7.1 not you\r\n");
}

#[tokio::test]
async fn shutdown_does_not_wait_for_a_client_that_does_not_read() {
    let limits = SmtpLimits { junk_commands: 100_000, commands: 1_000_000, ..SmtpLimits::default() };
    let (server, address) = serve(limits, |_| {}, TlsMode::Off);
    let mut deaf = Client::greeted(address).await;
    let flood = "HELP\r\n".repeat(1_000);
    let flooding = async { while deaf.send_if_possible(flood.as_bytes()).await {} };
    // When the client can send no more, the server is stuck in sending to it.
    let _ = tokio::time::timeout(2 * SOON, flooding).await;
    server.shutdown(SOON).await;
    assert_eq!(server.registry().open(), 0);
}

#[tokio::test]
async fn a_listed_peer_is_not_banned_for_its_users() {
    let limits = SmtpLimits { failed_logins_per_address: 2, ..SmtpLimits::default() };
    let trusted = |s: &mut Settings| s.trusted = vec!["127.0.0.1".parse().unwrap()];
    let (server, address) = serve(limits, trusted, TlsMode::Off);
    for _ in 0..5 {
        assert!(Client::greeted(address).await.say(WRONG).await.starts_with("535 5.7.8"));
    }
    assert!(Client::greeted(address).await.say("AUTH PLAIN AGFubgBzZWNyZXQ=").await.starts_with("235"));
    assert_eq!((server.counters().bans, server.counters().logins_failed), (0, 5));
}

#[tokio::test]
async fn sessions_of_one_user_are_bounded() {
    let limits = SmtpLimits { connections_per_user: 2, idle_makes_room: HOUR, ..SmtpLimits::default() };
    let (server, address) = serve(limits, |_| {}, TlsMode::Off);
    let mut clients = Vec::new();
    for expected in ["235 2.7.0", "235 2.7.0", "454 4.7.0 too many sessions of this user"] {
        let mut client = Client::greeted(address).await;
        let said = client.say("AUTH PLAIN AGFubgBzZWNyZXQ=").await;
        assert!(said.starts_with(expected), "{said}");
        clients.push(client);
    }
    assert_eq!(clients[2].rest().await, "");
    assert_eq!((server.registry().open_of_user("ann"), server.counters().logins), (2, 2));
}

/// Clients that do nothing, at one address or as one user, keep nobody else out.
#[tokio::test]
async fn an_idle_session_makes_room_for_a_neighbour_and_for_its_user() {
    let limits = SmtpLimits {
        connections_per_address: 5,
        connections_per_user: 2,
        idle_makes_room: Duration::from_millis(10),
        ..SmtpLimits::default()
    };
    let (server, address) = serve(limits, |_| {}, TlsMode::Off);
    let mut sessions = Vec::new();
    for _ in 0..6 {
        sessions.push(logged_in(address).await);
    }
    let said = sessions[0].rest().await;
    assert_eq!(said, "421 4.7.0 idle, and the user has logged in elsewhere; try again\r\n");
    assert_eq!(server.registry().open_of_user("ann"), 2);
    let mut idle = Vec::new();
    for _ in 0..7 {
        idle.push(let_in(address).await);
    }
    let said = idle[0].rest().await;
    assert_eq!(said, "421 4.7.0 idle, and another client at your address needs the place; try again\r\n");
}

/// A client that connects again and again until it is admitted.
async fn let_in(address: SocketAddr) -> Client<TcpStream> {
    loop {
        let mut client = Client::connect(address).await;
        match client.reply().await {
            greeting if greeting.starts_with("220 ") => {
                assert!(client.say("EHLO me").await.starts_with("250-"));
                return client;
            }
            refused => assert!(refused.starts_with("421 4.7.0 too many connections"), "{refused}"),
        }
    }
}

async fn logged_in(address: SocketAddr) -> Client<TcpStream> {
    loop {
        let mut client = let_in(address).await;
        match client.say("AUTH PLAIN AGFubgBzZWNyZXQ=").await {
            said if said.starts_with("235 ") => return client,
            refused => assert!(refused.starts_with("454 4.7.0 too many sessions"), "{refused}"),
        }
    }
}

#[tokio::test]
async fn a_flood_of_logins_bans_the_address_and_raises_the_alarm() {
    let limits = SmtpLimits { failed_logins_per_address: 7, ..SmtpLimits::default() };
    let (server, address) = serve(limits, |_| {}, TlsMode::Off);
    let mut witness = Client::greeted(address).await;
    let mut failures = 0;
    while server.counters().bans == 0 {
        let mut client = Client::greeted(address).await;
        for _ in 0..3 {
            // Each password is a new one; the same one again would not count as a guess.
            failures += usize::from(client.say(&guess(failures)).await.starts_with("535 5.7.8"));
        }
        client.rest().await;
    }
    assert_eq!(failures, 7, "the session that brought the ban hears it at the next login");
    let said = Client::connect(address).await.rest().await;
    assert_eq!(said, "421 4.7.0 too many failed logins from your address; wait 5 min\r\n");
    // A session that began before the ban may send, but may not try passwords.
    assert!(witness.send_message("b@b").await.starts_with("250 "));
    assert!(witness.say("AUTH PLAIN AGFubgBzZWNyZXQ=").await.starts_with("421 4.7.0"));
    let alarms = server.reception().alarms.lock().unwrap().clone();
    let [Alarm::Banned { address: banned, user, length, offence }] = &alarms[..] else { panic!("{alarms:?}") };
    assert_eq!((banned.to_string().as_str(), &**user, *offence), ("127.0.0.1", "bob", 1));
    assert_eq!(*length, SmtpLimits::default().ban_first);
    assert!(server.registry().pardon(*banned));
    assert!(Client::connect(address).await.reply().await.starts_with("220"));
}

/// A login of `bob` with a password that was not tried before.
fn guess(number: usize) -> String {
    use base64::Engine;
    format!("AUTH PLAIN {}", base64::engine::general_purpose::STANDARD.encode(format!("\0bob\0guess{number}")))
}

#[tokio::test]
async fn an_old_password_tried_again_and_again_bans_nobody() {
    let limits = SmtpLimits { failed_logins_per_address: 3, ..SmtpLimits::default() };
    let (server, address) = serve(limits, |_| {}, TlsMode::Off);
    for _ in 0..10 {
        assert!(Client::greeted(address).await.say(WRONG).await.starts_with("535 5.7.8"));
    }
    assert!(Client::greeted(address).await.say("AUTH PLAIN AGFubgBzZWNyZXQ=").await.starts_with("235"));
    assert_eq!((server.counters().bans, server.counters().logins_failed), (0, 10));
}

#[tokio::test]
async fn behind_a_proxy_the_client_is_banned_and_not_the_proxy() {
    let limits = SmtpLimits {
        failed_logins_per_address: 2,
        connections_per_address: 1,
        idle_makes_room: HOUR,
        ..SmtpLimits::default()
    };
    let trusted = |s: &mut Settings| {
        s.trusted = vec!["127.0.0.1".parse().unwrap()];
        s.auth_without_tls = weir_smtp::settings::AuthWithoutTls::Everywhere;
    };
    let (server, address) = serve(limits, trusted, TlsMode::Off);
    let mut bad = Client::greeted(address).await;
    assert!(bad.say("XCLIENT ADDR=192.0.2.66").await.starts_with("220 "));
    bad.say("EHLO bad").await;
    for number in 0..2 {
        assert!(bad.say(&guess(number)).await.starts_with("535"));
    }
    let mut again = Client::greeted(address).await;
    assert!(again.say("XCLIENT ADDR=192.0.2.66").await.starts_with("421 4.7.0 too many failed logins"));
    let mut good = Client::greeted(address).await;
    assert!(good.say("XCLIENT ADDR=192.0.2.1 LOGIN=ann").await.starts_with("220 "));
    good.say("EHLO good").await;
    assert!(good.send_message("b@b").await.starts_with("250 "));
    let mut second = Client::greeted(address).await;
    assert!(second.say("XCLIENT ADDR=192.0.2.1").await.starts_with("421 4.7.0 too many connections"));
    assert_eq!(server.reception().kept.lock().unwrap()[0].peer.user.as_deref(), Some("ann"));
}

#[tokio::test]
async fn thousands_of_idle_connections_while_another_client_is_served() {
    const IDLE: u64 = 2_000;
    raise_open_files();
    let limits = SmtpLimits { connections_per_address: 10_000, ..SmtpLimits::default() };
    let (server, address) = serve(limits, |_| {}, TlsMode::Off);
    let before = resident_bytes();
    let mut idle = Vec::new();
    for _ in 0..IDLE {
        idle.push(Client::greeted(address).await);
    }
    let grown = resident_bytes().saturating_sub(before);
    let mut client = Client::greeted(address).await;
    for _ in 0..50 {
        assert!(client.send_message("b@b").await.starts_with("250 "));
    }
    assert_eq!((server.counters().connections, server.counters().messages), (IDLE + 1, 50));
    // Both ends of every connection are in this process, and other tests use memory too, so the bound is coarse.
    assert!(grown < IDLE * 32 * 1024, "{} octets a connection", grown / IDLE);
    assert!(idle[IDLE as usize / 2].send_message("b@b").await.starts_with("250 "));
}

fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

/// Raises the limit of open files, because this process has both ends of thousands of connections.
fn raise_open_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
}
