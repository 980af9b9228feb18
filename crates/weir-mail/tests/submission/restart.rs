//! What a start finds: entries without a message, who is stopped, and a letter that nobody has decided on.

use crate::gate::{Gate, TEXT};
use std::sync::atomic::Ordering;
use std::time::Duration;
use weir_mail::letter::{Letter, LetterOrigin};
use weir_mail::throttle::ThrottleCommand;
use weir_smtp::envelope::{Envelope, MailFrom, RcptTo};
use weir_store::records::HeldFilter;

#[tokio::test(flavor = "multi_thread")]
async fn entries_without_a_message_are_dropped_at_start() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::start(folder.path()).await;
    let to: Vec<String> = (0..18).map(|n| format!("to{n}@example.net")).collect();
    gate.ann().await.mail("ann@example.org", &to, TEXT).await;
    let (filter, now) = (HeldFilter::default(), gate.now.load(Ordering::SeqCst) as i64);
    let drop_orphans = || gate.held.drop_orphans(&gate.throttling);
    gate.records.relays().alive("r1", now).await.unwrap();
    assert_eq!(drop_orphans().await.unwrap(), 0, "the message is here");
    // What went at once is delivered, what is held has lost its files.
    gate.gone.letters.lock().unwrap().iter().for_each(|(id, _)| gate.spool.finish(*id).unwrap());
    std::fs::rename(folder.path().join("held"), folder.path().join("elsewhere")).unwrap();
    std::fs::create_dir(folder.path().join("held")).unwrap();
    gate.records.relays().alive("r1", now + 60_000_000_000).await.unwrap();
    assert_eq!(drop_orphans().await.unwrap(), 0, "it was there for a minute: somebody has moved it");
    gate.records.relays().alive("r1", now - 1_000_000_000).await.unwrap();
    assert_eq!(drop_orphans().await.unwrap(), 3);
    assert_eq!(gate.records.held().list(&filter, 99).await.unwrap(), []);
    gate.held.carry_out().await.unwrap();
    assert_eq!(gate.records.held().messages_since("r1", 0).await.unwrap(), Vec::<String>::new());
}

/// The mail that stopped somebody was never acknowledged, so it is dropped. Whatever sent it must not go on for that.
#[tokio::test(flavor = "multi_thread")]
async fn a_stop_does_not_end_with_what_is_dropped_at_start() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::start(folder.path()).await;
    let to: Vec<String> = (0..100).map(|n| format!("to{n}@example.net")).collect();
    gate.ann().await.mail("ann@example.org", &to, TEXT).await;
    gate.gone.letters.lock().unwrap().iter().for_each(|(id, _)| gate.spool.finish(*id).unwrap());
    std::fs::rename(folder.path().join("held"), folder.path().join("elsewhere")).unwrap();
    std::fs::create_dir(folder.path().join("held")).unwrap();
    gate.records.relays().alive("r1", gate.now.load(Ordering::SeqCst) as i64).await.unwrap();
    assert_eq!(gate.held.drop_orphans(&gate.throttling).await.unwrap(), 85);
    let locked = gate.client().await.login("ann", "secret").await;
    assert!(locked.starts_with("535 5.7.1 the account is locked: stopped after unusual mail, and"), "{locked}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_finds_what_waits_and_who_is_stopped() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::start(folder.path()).await;
    let mut client = gate.ann().await;
    let to: Vec<String> = (0..100).map(|n| format!("to{n}@example.net")).collect();
    assert!(client.mail("ann@example.org", &to, TEXT).await.contains("85 of 100 recipients wait"));
    gate.server.shutdown(Duration::ZERO).await;
    gate.records.close().await;
    drop((gate, client));
    let gate = Gate::start(folder.path()).await;
    let goes = gate.gone.recipients();
    assert_eq!(
        goes.iter().filter(|to| to.starts_with("to")).count(),
        15,
        "what may go is sent again, no more: {goes:?}"
    );
    assert!(gate.client().await.login("ann", "secret").await.contains("85 recipients wait"));
}

#[tokio::test(flavor = "multi_thread")]
async fn where_the_throttle_only_learns_nobody_is_stopped_any_more() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::start(folder.path()).await;
    let to: Vec<String> = (0..100).map(|n| format!("to{n}@example.net")).collect();
    assert!(gate.ann().await.mail("ann@example.org", &to, TEXT).await.contains("85 of 100 recipients wait"));
    gate.server.shutdown(Duration::ZERO).await;
    gate.records.close().await;
    drop(gate);
    let gate = Gate::start_as(folder.path(), None, |settings| settings.learn_only = true).await;
    let reply = gate.ann().await.mail("ann@example.org", &to[..1], TEXT).await;
    assert!(reply.contains("accepted, on its way to 1 recipient"), "{reply}");
    let held = gate.records.held().list(&HeldFilter::default(), 99).await.unwrap();
    assert_eq!(held.len(), 85, "what waits for a decision still does");
    let release = ThrottleCommand::Release(held.iter().map(|row| row.entry).collect());
    assert_eq!(gate.throttling.command("ann", release).await.unwrap().going, 85);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_letter_that_may_have_been_acknowledged_waits_when_its_user_is_stopped() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::start(folder.path()).await;
    let to: Vec<String> = (0..100).map(|n| format!("to{n}@example.net")).collect();
    assert!(gate.ann().await.mail("ann@example.org", &to, TEXT).await.contains("85 of 100 recipients wait"));
    // The body is durable, the sender has heard 250, and the power goes before the decision is written down.
    let taken = RcptTo::parse("<last@example.net>", false).unwrap();
    let sender = MailFrom::parse("<ann@example.org>").unwrap();
    let envelope = Envelope { sender, recipients: vec![taken], ..Envelope::default() };
    let mut draft = gate.spool.draft().unwrap();
    draft.write(TEXT.as_bytes()).await.unwrap();
    let id =
        draft.commit(Letter::new(&envelope, LetterOrigin::Submitted, "ann", "192.0.2.1", 7).write()).await.unwrap();
    gate.server.shutdown(Duration::ZERO).await;
    gate.records.close().await;
    drop(gate);
    let gate = Gate::start(folder.path()).await;
    let filter = HeldFilter { message: id.to_string(), ..HeldFilter::default() };
    let rows = gate.records.held().list(&filter, 9).await.unwrap();
    assert_eq!(rows.iter().map(|row| row.recipient.as_str()).collect::<Vec<_>>(), ["last@example.net"]);
    assert!(gate.held.eml(id).exists() && !gate.gone.recipients().contains(&"last@example.net".to_owned()));
    let release = ThrottleCommand::Release(rows.iter().map(|row| row.entry).collect());
    gate.throttling.command("ann", release).await.unwrap();
    gate.held.carry_out().await.unwrap();
    assert!(gate.gone.recipients().contains(&"last@example.net".to_owned()));
}
