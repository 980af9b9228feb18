//! Held mail: a worm is stopped, people or the time decide, and a disk that fails leaves nothing behind.

use crate::gate::{Gate, TEXT, letter_to};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use weir_mail::notices::crafted::{self, Action};
use weir_mail::own_link::{self, Owner};
use weir_mail::throttle::ThrottleCommand;
use weir_store::records::HeldFilter;
use weir_store::spool::faults::{Call, Faults};

#[tokio::test(flavor = "multi_thread")]
async fn a_worm_is_stopped_and_people_decide() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::start(folder.path()).await;
    let mut client = gate.ann().await;
    let first = client.mail("ann@example.org", &letter_to(0), TEXT).await;
    assert!(first.contains("accepted, on its way to 1 recipient"), "{first}");
    let second = client.mail("ann@example.org", &letter_to(1), TEXT).await;
    assert!(
        second.starts_with("250 2.0.0 ") && second.contains("1 of 1 recipient waits in the delay queue (1 in all)"),
        "{second}"
    );
    assert!(second.contains("expected to go at 03:05 UTC, see https://console.example.org\r\n"), "{second}");
    for n in 2..22 {
        let reply = client.mail("ann@example.org", &letter_to(n), TEXT).await;
        assert!(reply.starts_with("250 "), "{n}: {reply}");
        let stopped = "you are stopped, see the notice and https://console.example.org\r\n";
        assert_eq!(n == 21, reply.contains(stopped), "{n}: {reply}");
    }
    let refused = client.mail("ann@example.org", &letter_to(99), TEXT).await;
    assert!(refused.starts_with("550 5.7.1 ann is stopped"), "{refused}");
    let locked = gate.client().await.login("ann", "secret").await;
    assert!(locked.starts_with("535 5.7.1 the account is stopped: 21 recipients wait"), "{locked}");
    assert_eq!(gate.records.held().list(&HeldFilter::default(), 99).await.unwrap().len(), 21);
    assert_eq!(std::fs::read_dir(folder.path().join("held")).unwrap().count(), 42, "an .eml and a .json each");
    // Three notices to two people, besides the one mail that went.
    tokio::time::timeout(Duration::from_secs(10), async {
        while gate.gone.letters.lock().unwrap().len() < 7 {
            tokio::task::yield_now().await;
        }
    })
    .await
    .expect("six notices");
    let text = notice_to(&gate, "ann@elsewhere.example", "stopped").await;
    assert!(text.contains("to new1@example.net  \"hello\"  from 127.0.0.1"), "{text}");
    // The contact gets a link of their own, the administrator the console's address.
    let link = text
        .split_whitespace()
        .find_map(|word| word.strip_prefix("https://console.example.org/link/"))
        .expect("a link");
    let secret = gate.records.secrets().find(own_link::SECRET).await.unwrap().expect("a secret");
    let who = Owner { identity: "ann", contact: "ann@elsewhere.example" };
    let now_s = gate.now.load(Ordering::SeqCst) / 1_000_000_000;
    assert!(own_link::is_good(&secret, link, who, now_s) && !own_link::is_good(&secret, link, who, now_s + 8 * 86_400));
    let to_admin = notice_to(&gate, "admin@example.org", "stopped").await;
    assert!(to_admin.contains("Look at each mail: https://console.example.org\r\n"), "{to_admin}");
    // The paper's crafted mail, from somebody who is not logged in: everything goes.
    let order = text.split_whitespace().find(|word| word.starts_with("weir+release-")).expect("an address").to_owned();
    let mut stranger = gate.client().await;
    let other = stranger.mail("x@elsewhere.example", &letter_to(1), TEXT).await;
    assert!(other.starts_with("530 "), "an order is all that a stranger may send: {other}");
    let done = stranger.mail("x@elsewhere.example", std::slice::from_ref(&order), TEXT).await;
    assert!(done.contains("21 go, 0 deleted"), "{done}");
    let again = stranger.mail("x@elsewhere.example", std::slice::from_ref(&order), TEXT).await;
    assert!(again.starts_with("550 ") && again.contains("has been used"), "{again}");
    gate.held.carry_out().await.unwrap();
    assert!(gate.gone.recipients().contains(&"new21@example.net".to_owned()));
    assert_eq!(std::fs::read_dir(folder.path().join("held")).unwrap().count(), 0);
    assert!(
        gate.client().await.login("ann", "secret").await.starts_with("235 "),
        "the stop ended with the last decision"
    );
}

/// A mail that is refused uses no address up; its sender may come again.
#[tokio::test(flavor = "multi_thread")]
async fn an_order_is_good_until_its_mail_is_taken() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::start(folder.path()).await;
    let (token, now) = (crafted::new_token().unwrap(), gate.now.load(Ordering::SeqCst) as i64);
    gate.records.tokens().add(&crafted::digest(&token), &Action::Delete.purpose("bob"), now + 1, now).await.unwrap();
    let order = Action::Delete.address(&token, "mail.example.org");
    let mut client = gate.ann().await;
    for n in 1..3 {
        assert!(client.mail("ann@example.org", &letter_to(n), TEXT).await.starts_with("250 "));
    }
    // Of the two one waits, so there is something to stop.
    gate.throttling.command("ann", ThrottleCommand::Stop).await.unwrap();
    let refused = client.mail("ann@example.org", &[order.clone(), "new0@example.net".into()], TEXT).await;
    assert!(refused.starts_with("550 5.7.1 ann is stopped"), "{refused}");
    let alone = std::slice::from_ref(&order);
    let again = client.mail("ann@example.org", alone, TEXT).await;
    assert!(again.starts_with("250 2.0.0 done for bob: 0 go, 0 deleted"), "{again}");
    let used = client.mail("ann@example.org", alone, TEXT).await;
    assert!(used.starts_with("550 ") && used.contains("has been used"), "{used}");
}

async fn notice_to(gate: &Gate, to: &str, word: &str) -> String {
    let letters = gate.gone.letters.lock().unwrap().clone();
    for (id, recipients) in letters {
        if recipients == [to] {
            let path = std::env::temp_dir().join(format!("weir-test-{id}.eml"));
            gate.spool.move_out(id, &path).await.unwrap();
            let text = std::fs::read_to_string(&path).unwrap();
            std::fs::remove_file(&path).unwrap();
            if text.contains(word) && text.contains("was stopped") {
                return text;
            }
        }
    }
    panic!("no notice to {to}")
}

#[tokio::test(flavor = "multi_thread")]
async fn many_recipients_are_split_and_time_lets_them_go() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::start(folder.path()).await;
    let to: Vec<String> = (0..18).map(|n| format!("to{n}@example.net")).collect();
    let reply = gate.ann().await.mail("ann@example.org", &to, TEXT).await;
    assert!(reply.contains("3 of 18 recipients wait"), "{reply}");
    assert_eq!(gate.gone.recipients().iter().filter(|to| to.starts_with("to")).count(), 15);
    gate.now.fetch_add(3 * 60 * 1_000_000_000, Ordering::SeqCst);
    gate.throttling.command("ann", ThrottleCommand::Drain).await.unwrap();
    gate.held.carry_out().await.unwrap();
    assert_eq!(gate.gone.recipients().iter().filter(|to| to.starts_with("to")).count(), 18);
}

/// Whoever releases everything keeps no queue from draining.
#[tokio::test(flavor = "multi_thread")]
async fn decisions_are_carried_out_a_few_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::start(folder.path()).await;
    let mut client = gate.ann().await;
    for n in 0..4 {
        assert!(client.mail("ann@example.org", &letter_to(n), TEXT).await.starts_with("250 "));
    }
    gate.throttling.command("ann", ThrottleCommand::Release((0..3).collect())).await.unwrap();
    let over = std::time::Instant::now();
    let (mut after, mut gone) = (String::new(), Vec::new());
    while let Some(last) = gate.held.carry_out_until(&after, over).await.unwrap() {
        assert!(last > after);
        after = last;
        gone.push(gate.gone.recipients().iter().filter(|to| to.starts_with("new")).count());
    }
    assert_eq!(gone, [2, 3, 4], "one message each time, and none is left out");
}

/// The throttle decides while the spool still waits for the disk. If that fails, what was decided is taken back.
#[tokio::test(flavor = "multi_thread")]
async fn a_disk_that_fails_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let faults = Arc::new(Faults::default());
    let gate = Gate::start_on(folder.path(), Some(faults.clone())).await;
    let mut client = gate.ann().await;
    let to: Vec<String> = (0..18).map(|n| format!("to{n}@example.net")).collect();
    faults.fail(Call::Sync, 0, 5);
    let reply = client.mail("ann@example.org", &to, TEXT).await;
    assert!(reply.starts_with("452 4.3.1 the message could not be made safe"), "{reply}");
    // The refusal does not wait for it.
    while !gate.records.held().messages_since("r1", 0).await.unwrap().is_empty() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(gate.records.throttles().find("ann").await.unwrap().unwrap().held, 0);
    assert_eq!(gate.spool.stats().messages, gate.gone.letters.lock().unwrap().len(), "only the notice");
    assert!(client.mail("ann@example.org", &letter_to(0), TEXT).await.starts_with("250 "), "the next one is taken");
}
