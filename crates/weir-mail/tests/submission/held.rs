//! Held mail: a worm is stopped, people or the time decide, and a disk that fails leaves nothing behind.

use crate::gate::{Gate, TEXT, letter_to};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use weir_mail::notices::crafted::{self, Action, Order};
use weir_mail::own_link::{self, Owner};
use weir_mail::submission::Settings;
use weir_mail::throttle::ThrottleCommand;
use weir_store::records::{Fate, HeldFilter};
use weir_store::spool::ShareLimits;
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
    // The contact hears of the delay, of the queue that fills and of the stop, the administrator of the stop; one mail went.
    tokio::time::timeout(Duration::from_secs(10), async {
        while gate.gone.letters.lock().unwrap().len() < 5 {
            tokio::task::yield_now().await;
        }
    })
    .await
    .expect("four notices");
    let text = notice_to(&gate, "ann@elsewhere.example", "stopped").await;
    assert!(text.contains("to new1@example.net  \"hello\"  from 127.0.0.1"), "{text}");
    // The contact gets a link of their own, the administrator the console's address.
    let link = text
        .split_whitespace()
        .find_map(|word| word.strip_prefix("https://console.example.org/link/"))
        .expect("a link");
    let secret = gate.records.secrets().find(own_link::SECRET).await.unwrap().expect("a secret");
    let who = Owner { identity: "ann", contact: "ann@elsewhere.example", situation: 1 };
    let now_s = gate.now.load(Ordering::SeqCst) / 1_000_000_000;
    assert!(own_link::is_good(&secret, link, who, now_s) && !own_link::is_good(&secret, link, who, now_s + 8 * 86_400));
    let to_admin = notice_to(&gate, "admin@example.org", "stopped").await;
    assert!(to_admin.contains("Look at each mail: https://console.example.org\r\n"), "{to_admin}");
    // The paper's crafted mail, from somebody who is not logged in. The contact is asked once more; then everything goes.
    let order = address_in(&text, "weir+release-");
    let mut stranger = gate.client().await;
    let other = stranger.mail("x@elsewhere.example", &letter_to(1), TEXT).await;
    assert!(other.starts_with("530 "), "an order is all that a stranger may send: {other}");
    let asked = stranger.mail("x@elsewhere.example", std::slice::from_ref(&order), TEXT).await;
    assert!(asked.contains("nothing has been sent, and ann@elsewhere.example is asked"), "{asked}");
    assert_eq!(gate.records.held().list(&HeldFilter::default(), 99).await.unwrap().len(), 21);
    let question = mail_to(&gate, "ann@elsewhere.example", "really be sent").await;
    assert!(question.contains("21 of the mails have the subject \"hello\""), "{question}");
    let confirm = address_in(&question, "weir+release-");
    let done = stranger.mail("x@elsewhere.example", std::slice::from_ref(&confirm), TEXT).await;
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

/// Whoever has the notice may delete what waits, and no more: a worm or a thief would go on sending.
#[tokio::test(flavor = "multi_thread")]
async fn deleting_by_a_notice_does_not_let_a_stopped_account_send_again() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::start(folder.path()).await;
    let mut client = gate.ann().await;
    for n in 0..22 {
        assert!(client.mail("ann@example.org", &letter_to(n), TEXT).await.starts_with("250 "));
    }
    let notice = notice_to(&gate, "ann@elsewhere.example", "21 recipients").await;
    let order = address_in(&notice, "weir+delete-");
    let done = gate.client().await.mail("x@elsewhere.example", std::slice::from_ref(&order), TEXT).await;
    assert!(done.contains("0 go, 21 deleted") && done.contains("the account is locked"), "{done}");
    let refused = client.mail("ann@example.org", &letter_to(99), TEXT).await;
    assert!(refused.starts_with("550 5.7.1 the account ann is locked: stopped after unusual mail"), "{refused}");
    let locked = gate.client().await.login("ann", "secret").await;
    assert!(locked.starts_with("535 5.7.1 the account is locked: stopped after unusual mail"), "{locked}");
}

/// One user cannot fill the disk for all others.
#[tokio::test(flavor = "multi_thread")]
async fn a_user_may_have_so_much_mail_here_and_no_more() {
    let folder = tempfile::tempdir().unwrap();
    let limits = |settings: &mut Settings| settings.share = ShareLimits { messages: 4, octets: 1_000_000 };
    let gate = Gate::start_as(folder.path(), None, limits).await;
    let mut client = gate.ann().await;
    // One goes, and is not delivered; three wait.
    for n in 0..4 {
        assert!(client.mail("ann@example.org", &letter_to(n), TEXT).await.starts_with("250 "));
    }
    let refused = client.mail("ann@example.org", &letter_to(4), TEXT).await;
    assert!(refused.starts_with("452 4.3.1 4 messages of ann (1 MiB) wait here"), "{refused}");
    gate.throttling.command("ann", ThrottleCommand::Delete(vec![0])).await.unwrap();
    gate.held.carry_out().await.unwrap();
    let large = format!("{TEXT}{}", "x\r\n".repeat(350_000));
    let refused = client.mail("ann@example.org", &letter_to(5), &large).await;
    assert!(refused.starts_with("452 4.3.1 3 messages of ann"), "{refused}");
    assert!(client.mail("ann@example.org", &letter_to(5), TEXT).await.starts_with("250 "));
    assert_eq!(gate.spool.shares().of("ann").messages, 4);
    assert!(client.mail("ann@example.org", &letter_to(6), TEXT).await.starts_with("452 4.3.1 "));
}

/// A mail that is refused uses no address up; its sender may come again.
#[tokio::test(flavor = "multi_thread")]
async fn an_order_is_good_until_its_mail_is_taken() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::start(folder.path()).await;
    let (token, now) = (crafted::new_token().unwrap(), gate.now.load(Ordering::SeqCst) as i64);
    let order = Order {
        action: Action::Delete,
        identity: "bob".into(),
        up_to: 9,
        situation: 0,
        told: "bob@x".into(),
        only: None,
    };
    gate.records.tokens().add(&crafted::digest(&token), &order.purpose(), now + 1, now).await.unwrap();
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

/// The notice of a stop to this address.
async fn notice_to(gate: &Gate, to: &str, word: &str) -> String {
    let text = mail_to(gate, to, "was stopped").await;
    assert!(text.contains(word), "{text}");
    text
}

/// The first mail to this address with these words, of those that have not been looked at yet.
pub(crate) async fn mail_to(gate: &Gate, to: &str, words: &str) -> String {
    let found = tokio::time::timeout(Duration::from_secs(60), async {
        loop {
            let letters = gate.gone.letters.lock().unwrap().clone();
            for (id, _) in letters.iter().filter(|(_, recipients)| recipients == &[to]) {
                let path = std::env::temp_dir().join(format!("weir-test-{id}.eml"));
                // One that was looked at is no longer in the spool.
                if gate.spool.move_out(*id, &path).await.is_ok() {
                    let text = std::fs::read_to_string(&path).unwrap();
                    std::fs::remove_file(&path).unwrap();
                    if text.contains(words) {
                        return text;
                    }
                }
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    found.await.unwrap_or_else(|_| panic!("no mail to {to} with {words:?}"))
}

fn address_in(text: &str, start: &str) -> String {
    text.split_whitespace().find(|word| word.starts_with(start)).expect("an address").to_owned()
}

/// What somebody allowed before the worm came does not let the worm's mail go.
#[tokio::test(flavor = "multi_thread")]
async fn the_address_of_an_old_notice_is_void_after_a_stop() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::start(folder.path()).await;
    let mut client = gate.ann().await;
    for n in 0..7 {
        assert!(client.mail("ann@example.org", &letter_to(n), TEXT).await.starts_with("250 "));
    }
    let old = mail_to(&gate, "ann@elsewhere.example", "is being delayed").await;
    let (release, delete) = (address_in(&old, "weir+release-"), address_in(&old, "weir+delete-"));
    for n in 7..22 {
        assert!(client.mail("ann@example.org", &letter_to(n), TEXT).await.starts_with("250 "));
    }
    let mut stranger = gate.client().await;
    for order in [&release, &delete] {
        let said = stranger.mail("x@elsewhere.example", std::slice::from_ref(order), TEXT).await;
        assert!(said.starts_with("550 5.7.1 this address was about another situation"), "{said}");
        assert_eq!(gate.records.held().list(&HeldFilter::default(), 99).await.unwrap().len(), 21);
    }
    // An unlock is another situation once more: the notice of the stop is over, too.
    let of_the_stop = address_in(&notice_to(&gate, "ann@elsewhere.example", "21 recipients").await, "weir+release-");
    gate.throttling.command("ann", ThrottleCommand::Unlock).await.unwrap();
    for order in [&release, &of_the_stop] {
        let said = stranger.mail("x@elsewhere.example", std::slice::from_ref(order), TEXT).await;
        assert!(said.starts_with("550 5.7.1 this address was about another situation"), "{said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_decides_only_about_what_its_notice_was_about() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::start(folder.path()).await;
    let mut client = gate.ann().await;
    for n in 0..7 {
        client.mail("ann@example.org", &letter_to(n), TEXT).await;
    }
    let notice = mail_to(&gate, "ann@elsewhere.example", "is being delayed").await;
    let shown = (1..7).filter(|n| notice.contains(&format!("to new{n}@example.net"))).count();
    for n in 7..10 {
        client.mail("ann@example.org", &letter_to(n), TEXT).await;
    }
    let order = address_in(&notice, "weir+release-");
    let done = gate.client().await.mail("x@elsewhere.example", std::slice::from_ref(&order), TEXT).await;
    assert!(done.contains(&format!("{shown} go, 0 deleted")), "{done}");
    let waiting =
        gate.records.held().list(&HeldFilter { identity: "ann".into(), ..HeldFilter::default() }, 99).await.unwrap();
    let still: Vec<_> = waiting.iter().filter(|row| row.fate == Fate::Held).map(|row| row.recipient.as_str()).collect();
    assert_eq!(still.len(), 9 - shown, "{still:?}");
    assert!(still.contains(&"new9@example.net"), "{still:?}");
}

/// A delay of a minute is nobody's concern: no mail is written for it.
#[tokio::test(flavor = "multi_thread")]
async fn a_short_delay_is_told_to_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::start(folder.path()).await;
    let mut client = gate.ann().await;
    for n in 0..5 {
        assert!(client.mail("ann@example.org", &letter_to(n), TEXT).await.starts_with("250 "));
    }
    for _ in 0..2 {
        client.mail("ann@example.org", &letter_to(5), TEXT).await;
    }
    // The notice that comes is the first one, and it is about the delay that became long.
    let first = mail_to(&gate, "ann@elsewhere.example", "Subject:").await;
    let waiting = first.contains("What waits: 5 recipients") || first.contains("What waits: 6 recipients");
    assert!(first.contains("is being delayed") && waiting, "{first}");
}

#[tokio::test(flavor = "multi_thread")]
async fn many_recipients_are_split_and_time_lets_them_go() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::start(folder.path()).await;
    let to: Vec<String> = (0..18).map(|n| format!("to{n}@example.net")).collect();
    let reply = gate.ann().await.mail("ann@example.org", &to, TEXT).await;
    assert!(reply.contains("3 of 18 recipients wait"), "{reply}");
    assert_eq!(gate.gone.recipients().iter().filter(|to| to.starts_with("to")).count(), 15);
    for _ in 0..3 {
        gate.now.fetch_add(60 * 1_000_000_000, Ordering::SeqCst);
        gate.throttling.command("ann", ThrottleCommand::Drain).await.unwrap();
    }
    gate.held.carry_out().await.unwrap();
    assert_eq!(gate.gone.recipients().iter().filter(|to| to.starts_with("to")).count(), 18);
}

/// Otherwise it would be thought to have come at a time that is still to come, and nobody would look after it until then.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_held_while_the_clock_was_ahead_is_held_since_it_was_set_right() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::start(folder.path()).await;
    let right = gate.now.fetch_add(30 * 86_400 * 1_000_000_000, Ordering::SeqCst);
    let to: Vec<String> = (0..100).map(|n| format!("to{n}@example.net")).collect();
    gate.ann().await.mail("ann@example.org", &to, TEXT).await;
    gate.now.store(right, Ordering::SeqCst);
    let now = Arc::clone(&gate.now);
    let clock = Arc::new(move || weir_core::time::Instant(now.load(Ordering::SeqCst)));
    let task = tokio::spawn(gate.held.clone().run(gate.throttling.clone(), clock));
    tokio::time::timeout(Duration::from_secs(60), async {
        let stopped = async || gate.records.throttles().find("ann").await.unwrap().unwrap().stopped_at;
        let right = Some(right as i64);
        while gate.records.held().newest().await.unwrap() != right || stopped().await != right {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await
    .expect("held and stopped since now");
    task.abort();
    assert_eq!(
        gate.records.held().list(&HeldFilter::default(), 999).await.unwrap().len(),
        85,
        "and nothing was let go"
    );
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

/// Neither does it end a stop: whoever makes the disk fail, by sending much for example, must not go on.
#[tokio::test(flavor = "multi_thread")]
async fn a_stop_does_not_end_because_a_disk_fails() {
    let folder = tempfile::tempdir().unwrap();
    let faults = Arc::new(Faults::default());
    let gate = Gate::start_on(folder.path(), Some(faults.clone())).await;
    let mut client = gate.ann().await;
    let to: Vec<String> = (0..100).map(|n| format!("to{n}@example.net")).collect();
    faults.fail(Call::Sync, 0, 5);
    let reply = client.mail("ann@example.org", &to, TEXT).await;
    assert!(reply.starts_with("452 4.3.1 the message could not be made safe"), "{reply}");
    while !gate.records.held().messages_since("r1", 0).await.unwrap().is_empty() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let row = gate.records.throttles().find("ann").await.unwrap().unwrap();
    assert_eq!((row.held, row.stopped_at), (0, None));
    let reply = client.mail("ann@example.org", &letter_to(0), TEXT).await;
    assert!(reply.starts_with("550 5.7.1 the account ann is locked: stopped after unusual mail, and"), "{reply}");
}
