//! The records on both databases: every test runs on SQLite and on a real PostgreSQL.
#![allow(missing_docs)]

mod alike;
mod correspondents;
mod incidents;
mod lab;
mod lab_verdicts;
mod past;
mod quarantine;
mod tracking;

use weir_peers::Postgres;
use weir_store::records::*;

use alike::in_other_letters;
use correspondents::{many_relays, packs};
use incidents::{bounded, kept_until_over, taken_over};
use lab::{
    abandoned, drained_alone, dropped, fenced, interrupted, many_candidates, nodes, one_leader, one_result, pruned,
    queue, samples,
};
use lab_verdicts::{children, doubts, opinions};

use past::kept_and_bounded;
use quarantine::{quarantined, quarantined_crowds, viruses};
use tracking::{forgotten, found_by_all, mails_to_many_are_bounded, pages, relays_find_each_other};

/// Runs a test on both databases.
macro_rules! on_both {
    ($($name:ident => $test:ident),* $(,)?) => {
        mod sqlite {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $name() {
                let folder = tempfile::tempdir().unwrap();
                super::$test(super::Records::sqlite(&folder.path().join("records.db")).await.unwrap()).await;
            })*
        }
        mod postgres {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $name() {
                let url = super::Postgres::shared().database();
                super::$test(super::Records::postgres(&url).await.unwrap()).await;
            })*
        }
    };
}

on_both! {
    users_are_kept => users,
    many_who_change_a_user_lose_no_change => changed_users,
    names_are_alike_in_letters_outside_ascii_too => in_other_letters,
    a_message_is_found_by_all_that_is_known_of_it => found_by_all,
    the_past_is_kept_and_bounded => kept_and_bounded,
    an_incident_is_open_once_and_kept => kept_until_over,
    incidents_are_bounded => bounded,
    a_relay_takes_over_from_one_that_is_silent => taken_over,
    viruses_are_counted_by_name => viruses,
    every_page_of_messages_has_others => pages,
    messages_that_are_too_old_are_forgotten => forgotten,
    tracked_mails_to_many_stay_within_the_bound => mails_to_many_are_bounded,
    a_relay_finds_what_shares_its_tables => relays_find_each_other,
    decisions_are_all_or_nothing => decisions,
    a_decision_that_nobody_waits_for_takes_nothing_along => given_up,
    many_writers_lose_no_decision => many_writers,
    held_mail_is_listed_decided_and_forgotten => held,
    correspondents_are_kept_in_packs => packs,
    many_relays_lose_no_correspondent => many_relays,
    a_token_is_good_once => tokens,
    the_audit_is_in_order => audit,
    relays_that_fall_silent_are_known => relays,
    notices_that_were_not_written_are_known => untold,
    learned_days_add_up => learned,
    a_secret_is_made_once => secrets,
    totals_count_everything => totals,
    quarantined_mail_is_listed_decided_and_forgotten => quarantined,
    lists_of_quarantined_mail_are_bounded => quarantined_crowds,
    a_relay_keeps_values => kept,
    a_value_is_replaced_only_as_it_was_read => replaced,
    rules_have_numbers_of_their_own => rules,
    a_lab_has_one_leader => one_leader,
    of_many_candidates_one_gets_the_lease => many_candidates,
    a_leader_whose_lease_is_over_writes_nothing => fenced,
    what_a_term_left_running_is_ended_by_the_next => abandoned,
    a_sample_is_charged_only_for_what_it_may_have_done => interrupted,
    a_commit_that_nobody_waits_for_leaves_nothing_open => dropped,
    one_result_counts => one_result,
    samples_are_kept_and_found => samples,
    old_samples_are_forgotten => pruned,
    machines_are_registered_once => nodes,
    the_machine_of_a_lab_of_one_is_drained_without_being_registered => drained_alone,
    children_and_verdicts => children,
    what_was_not_seen_in_a_sample_is_a_doubt => doubts,
    what_waits_is_counted => queue,
    a_content_is_known_when_all_that_is_in_it_is => opinions,
}

fn user(name: &str) -> UserRow {
    UserRow {
        name: name.into(),
        password: "$argon2id$…".into(),
        addresses: vec![format!("{name}@example.org"), "@example.net".into()],
        contact: String::new(),
        profile: "person".into(),
        params: "{}".into(),
        locked_at: None,
        locked_reason: String::new(),
        created_at: 7,
    }
}

async fn users(records: Records) {
    assert!(records.users().add(&user("ann")).await.unwrap());
    assert!(!records.users().add(&user("ann")).await.unwrap(), "the name is taken");
    records.users().add(&user("bob'; drop table users; --")).await.unwrap();
    let mut ann = records.users().find("ann").await.unwrap().unwrap();
    assert_eq!(ann, user("ann"));
    ann.locked_at = Some(99);
    ann.contact = "ann@elsewhere.example".into();
    assert!(records.users().update(&ann).await.unwrap());
    assert_eq!(records.users().find("ann").await.unwrap().unwrap(), ann);
    assert!(!records.users().update(&user("eve")).await.unwrap());
    let names: Vec<String> = records.users().after("").await.unwrap().into_iter().map(|u| u.name).collect();
    assert_eq!(names, ["ann", "bob'; drop table users; --"]);
}

fn held_row(identity: &str, entry: i64, message: &str) -> HeldRow {
    HeldRow {
        identity: identity.into(),
        entry,
        message: message.into(),
        relay: "r1".into(),
        recipient: format!("to{entry}@example.org"),
        place: entry,
        sender: "ann@example.org".into(),
        subject: "caf\u{e9} \"quoted\" \\ \u{1f600}".into(),
        source: "192.0.2.1".into(),
        size: 4096,
        held_at: 5,
        ..HeldRow::default()
    }
}

async fn given_up(records: Records) {
    let (names, throttles, values) = (["ann".to_owned()], records.throttles(), records.values());
    let decide = || {
        throttles.decide(&names, |rows| {
            rows[0].state.push('x');
            (Changes::default(), ())
        })
    };
    for polls in 1..40 {
        give_up_after(polls, decide()).await;
        values.set("relay", &polls.to_string(), "kept").await.unwrap();
        // If the first left its transaction open and the write went into it, one of these takes the connection and rolls it back.
        for polls in 1..12 {
            give_up_after(polls, decide()).await;
        }
    }
    for polls in 1..40 {
        assert_eq!(values.get("relay", &polls.to_string()).await.unwrap().as_deref(), Some("kept"), "{polls}");
    }
}

/// Drops a future the moment it has been polled so often and still waits. A timeout would not do: its clock counts whole
/// milliseconds, in which a database answers several questions.
async fn give_up_after<T>(mut polls: u32, future: impl Future<Output = T>) {
    let mut future = std::pin::pin!(future);
    std::future::poll_fn(|context| {
        polls = polls.saturating_sub(1);
        let polled = future.as_mut().poll(context).map(drop);
        if polls == 0 { std::task::Poll::Ready(()) } else { polled }
    })
    .await;
}

async fn decisions(records: Records) {
    let names = ["bob".to_owned(), "ann".to_owned()];
    let throttles = records.throttles();
    let order = throttles.decide(&names, |rows| {
        let order: Vec<String> = rows.iter().map(|r| r.identity.clone()).collect();
        assert!(rows.iter().all(|r| r.state.is_empty()), "never seen");
        rows[0].state = "{\"slack\":1}".into();
        rows[1].state = "ann's \u{1f600} 'state'".into();
        rows[1].next_deadline = Some(60);
        rows[1].held = 1;
        (Changes { hold: vec![held_row("ann", 0, "m1")], ..Changes::default() }, order)
    });
    assert_eq!(order.await.unwrap(), ["bob", "ann"], "in the order of the call");
    let ann = throttles.find("ann").await.unwrap().unwrap();
    assert_eq!((ann.state.as_str(), ann.next_deadline, ann.held), ("ann's \u{1f600} 'state'", Some(60), 1));
    assert_eq!(throttles.due(59, 9).await.unwrap(), Vec::<String>::new());
    assert_eq!(throttles.due(60, 9).await.unwrap(), ["ann"]);
    assert_eq!(throttles.next_deadline().await.unwrap(), Some(60));
    // The same entry twice breaks the primary key: nothing of the decision may stay.
    let only_ann = ["ann".to_owned()];
    let broken = throttles.decide(&only_ann, |rows| {
        rows[0].state = "lost".into();
        (Changes { hold: vec![held_row("ann", 0, "m2")], ..Changes::default() }, ())
    });
    assert!(broken.await.is_err());
    assert_eq!(throttles.find("ann").await.unwrap().unwrap().state, "ann's \u{1f600} 'state'");
    assert_eq!(throttles.busy(9).await.unwrap().len(), 1);
    // Who is stopped stands before who has more held.
    let names = ["stopped".to_owned(), "waiting".to_owned()];
    let busy = throttles.decide(&names, |rows| {
        for row in rows.iter_mut() {
            (row.held, row.stopped_at) = if row.identity == "stopped" { (1, Some(5)) } else { (50, None) };
        }
        (Changes::default(), ())
    });
    busy.await.unwrap();
    let busy = throttles.busy(9).await.unwrap();
    let names: Vec<&str> = busy.iter().map(|row| row.identity.as_str()).collect();
    assert_eq!(names, ["stopped", "waiting", "ann"]);
}

async fn many_writers(records: Records) {
    let mut tasks = Vec::new();
    for writer in 0..8 {
        let records = records.clone();
        tasks.push(tokio::spawn(async move {
            for round in 0..20 {
                // Different orders in different tasks: no deadlock may come of it.
                let mut names = vec!["a".to_owned(), "b".to_owned(), "c".to_owned()];
                names.rotate_left((writer + round) % 3);
                let count = |rows: &mut [ThrottleRow]| {
                    for row in rows {
                        row.state = (row.state.parse::<u32>().unwrap_or(0) + 1).to_string();
                    }
                    (Changes::default(), ())
                };
                records.throttles().decide(&names, count).await.unwrap();
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    for name in ["a", "b", "c"] {
        assert_eq!(records.throttles().find(name).await.unwrap().unwrap().state, "160");
    }
}

async fn held(records: Records) {
    let rows = vec![held_row("ann", 0, "m1"), held_row("ann", 1, "m1"), held_row("bob", 0, "m2")];
    let hold = Changes { hold: rows.clone(), ..Changes::default() };
    records.throttles().decide(&["ann".to_owned(), "bob".to_owned()], |_| (hold, ())).await.unwrap();
    let all = records.held().list(&HeldFilter::default(), 9).await.unwrap();
    assert_eq!(all, rows);
    let one = HeldFilter { message: "m1".into(), recipient: "to1@example.org".into(), ..HeldFilter::default() };
    assert_eq!(records.held().list(&one, 9).await.unwrap(), rows[1..2]);
    let decide =
        Changes { decide: vec![("ann".into(), 0, Fate::Go), ("bob".into(), 0, Fate::Drop)], ..Changes::default() };
    records.throttles().decide(&[], |_| (decide, ())).await.unwrap();
    let again = Changes { decide: vec![("ann".into(), 0, Fate::Drop)], ..Changes::default() };
    records.throttles().decide(&[], |_| (again, ())).await.unwrap();
    let decided = records.held().decided("r1", "", 9).await.unwrap();
    let fates: Vec<Fate> = decided.iter().map(|row| row.fate).collect();
    assert_eq!(fates, [Fate::Go, Fate::Drop], "a fate is decided once");
    assert_eq!(records.held().decided("r2", "", 9).await.unwrap(), []);
    records.held().done(&[("ann".into(), 0), ("ann".into(), 1), ("bob".into(), 0)]).await.unwrap();
    assert_eq!(records.held().of_message("m1").await.unwrap(), 1, "what is still held is not done");
    assert_eq!(records.held().messages_since("r1", 0).await.unwrap(), ["m1"]);
    assert!(records.held().messages_since("r1", i64::MAX).await.unwrap().is_empty());
    let named = ["m0".to_owned(), "m1".to_owned()];
    assert_eq!(records.held().strays("r1", &named).await.unwrap(), ["m0"]);
    assert_eq!(records.held().strays("r2", &named).await.unwrap(), named, "another relay's rows need no files here");
}

async fn tokens(records: Records) {
    records.tokens().add("d1", "release ann 3", 100, 1).await.unwrap();
    records.tokens().add("d2", "late", 100, 1).await.unwrap();
    assert_eq!(records.tokens().purpose("d1", 50).await.unwrap().as_deref(), Some("release ann 3"), "looked at only");
    assert_eq!(records.tokens().purpose("d2", 101).await.unwrap(), None, "expired");
    assert_eq!(records.tokens().redeem("d1", 50).await.unwrap().as_deref(), Some("release ann 3"));
    assert_eq!(records.tokens().redeem("d1", 51).await.unwrap(), None);
    assert_eq!(records.tokens().purpose("d1", 51).await.unwrap(), None);
    assert_eq!(records.tokens().redeem("d2", 101).await.unwrap(), None, "expired");
    assert_eq!(records.tokens().redeem("d3", 1).await.unwrap(), None);
}

async fn audit(records: Records) {
    let line = |at, subject: &str| AuditLine {
        at,
        actor: "cli:root".into(),
        action: "held.release".into(),
        subject: subject.into(),
        detail: String::new(),
    };
    for at in 1..=3 {
        records.audit().write(&line(at, if at == 2 { "bob" } else { "ann" })).await.unwrap();
    }
    assert_eq!(records.audit().trail("ann", 9).await.unwrap(), [line(3, "ann"), line(1, "ann")]);
    assert_eq!(records.audit().trail("", 2).await.unwrap().len(), 2);
    let found = async |filter: AuditFilter| {
        let lines = records.audit().filtered(&filter, 9).await.unwrap();
        lines.into_iter().map(|line| line.at).collect::<Vec<_>>()
    };
    assert_eq!(found(AuditFilter::default()).await, [3, 2, 1]);
    assert_eq!(found(AuditFilter { since: Some(2), until: Some(3), ..AuditFilter::default() }).await, [2]);
    assert_eq!(
        found(AuditFilter { subject: "ann".into(), who: "ROOT".into(), ..AuditFilter::default() }).await,
        [3, 1]
    );
    assert_eq!(found(AuditFilter { what: "held.".into(), who: "%".into(), ..AuditFilter::default() }).await, [0; 0]);
    assert_eq!(found(AuditFilter { what: "user".into(), ..AuditFilter::default() }).await, [0; 0]);
    records.audit().write_all(&[line(4, "eve"), line(5, "eve")]).await.unwrap();
    assert_eq!(records.audit().trail("eve", 9).await.unwrap(), [line(5, "eve"), line(4, "eve")]);
    let odd = AuditLine { detail: "a\0b \u{1f4e7} '; drop".to_owned(), ..line(6, "odd") };
    let writers: Vec<_> = (0..8).map(|_| (records.audit(), odd.clone())).collect();
    let writers = writers.into_iter().map(|(trail, odd)| tokio::spawn(async move { trail.write(&odd).await }));
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap().unwrap();
    }
    let check = records.audit().check().await.unwrap();
    assert_eq!((check.sealed, check.older, check.broken), (13, 0, None));
    let begun = BegunChange { at: 7, actor: "ann".to_owned(), what: "POST /x".to_owned() };
    let number = records.audit().begun("relay", &begun).await.unwrap();
    assert_eq!(records.audit().interrupted("another").await.unwrap(), []);
    assert_eq!(records.audit().interrupted("relay").await.unwrap(), [(number, begun)]);
    records.audit().ended(number).await.unwrap();
    assert_eq!(records.audit().interrupted("relay").await.unwrap(), []);
}

async fn relays(records: Records) {
    records.relays().alive("r1", 10).await.unwrap();
    records.relays().alive("r2", 10).await.unwrap();
    records.relays().alive("r1", 20).await.unwrap();
    assert_eq!(records.relays().silent_since(15).await.unwrap(), ["r2"]);
}

async fn learned(records: Records) {
    let day =
        |day, would_hold| Learned { identity: "ann".into(), day, mails: 1, recipients: 2, would_hold, would_stop: 0 };
    for learned in [day(1, 1), day(2, 1), day(2, 4)] {
        let changes = Changes { learned: vec![learned], ..Changes::default() };
        records.throttles().decide(&[], |_| (changes, ())).await.unwrap();
    }
    let sum = Learned { identity: "ann".into(), day: 2, mails: 2, recipients: 4, would_hold: 5, would_stop: 0 };
    assert_eq!(records.throttles().learned(2).await.unwrap(), [sum]);
}

#[tokio::test]
async fn a_newer_schema_is_refused_and_an_older_one_reopened() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("records.db");
    let records = Records::sqlite(&path).await.unwrap();
    records.users().add(&user("ann")).await.unwrap();
    let copy = folder.path().join("copy.db");
    records.backup(&copy).await.unwrap();
    records.close().await;
    assert!(Records::sqlite(&path).await.unwrap().users().find("ann").await.unwrap().is_some());
    assert!(Records::sqlite(&copy).await.unwrap().users().find("ann").await.unwrap().is_some());
    let newer = sqlx::SqlitePool::connect(&format!("sqlite://{}", path.display())).await.unwrap();
    sqlx::query("insert into weir_schema values (99)").execute(&newer).await.unwrap();
    newer.close().await;
    let refused = Records::sqlite(&path).await.unwrap_err().to_string();
    assert!(refused.contains("schema 99"), "{refused}");
}

async fn kept(records: Records) {
    assert_eq!(records.values().get("r1", "limits").await.unwrap(), None);
    records.values().set("r1", "limits", "one").await.unwrap();
    records.values().set("r1", "limits", "two").await.unwrap();
    records.values().set("r2", "limits", "three").await.unwrap();
    assert_eq!(records.values().get("r1", "limits").await.unwrap().as_deref(), Some("two"));
    let turn = async |relay: &str, before, now| records.values().take_turn(relay, "digest", before, now).await.unwrap();
    assert_eq!(turn("", 0, 100).await, None, "the first one begins the while");
    assert_eq!((turn("", 99, 101).await, turn("", 100, 102).await, turn("", 100, 103).await), (None, Some(100), None));
    assert_eq!((turn("r1", 999, 500).await, turn("r1", 999, 501).await), (None, Some(500)), "each has its own");
    records.values().set("r2", "digest", "nonsense").await.unwrap();
    assert_eq!(
        (turn("r2", 999, 500).await, turn("r2", 999, 501).await),
        (None, Some(500)),
        "what is no time begins anew"
    );
}

async fn changed_users(records: Records) {
    records.users().add(&user("ann")).await.unwrap();
    let changing = |task: usize| {
        let users = records.users();
        tokio::spawn(async move {
            for round in 0..10 {
                let change = |user: &mut UserRow| {
                    user.addresses.push(format!("ann{task}-{round}@example.org"));
                    Ok::<_, RecordsError>(user.locked_at.replace(round))
                };
                assert!(users.change("ann", change).await.unwrap().is_some());
            }
        })
    };
    for changed in (0..4).map(changing).collect::<Vec<_>>() {
        changed.await.unwrap();
    }
    let ann = records.users().find("ann").await.unwrap().unwrap();
    assert_eq!((ann.addresses.len(), ann.locked_at), (2 + 40, Some(9)));
    let refuse = |user: &mut UserRow| {
        user.addresses.clear();
        Err::<(), _>(RecordsError::Corrupt("refused".into()))
    };
    assert!(records.users().change("ann", refuse).await.is_err());
    assert_eq!(records.users().find("ann").await.unwrap(), Some(ann), "nothing was written");
    assert_eq!(records.users().change("eve", |_| Ok::<_, RecordsError>(())).await.unwrap(), None);
}

async fn replaced(records: Records) {
    let replace = async |was, value| records.values().replace("", "document", was, value).await.unwrap();
    assert!(!replace(Some(""), "no").await, "there is none");
    assert!(replace(None, "one").await);
    assert!(!replace(None, "no").await, "there is one already");
    assert!(replace(Some("one"), "two").await && !replace(Some("one"), "no").await, "it is another now");
    assert!(replace(Some("two"), "two").await, "nothing has changed");
    assert!(!records.values().replace("r1", "document", Some("two"), "no").await.unwrap(), "each relay has its own");
    assert_eq!(records.values().get("", "document").await.unwrap().as_deref(), Some("two"));
    // Many who read, change and write at the same time.
    let counting = |_| {
        let values = records.values();
        tokio::spawn(async move {
            for _ in 0..10 {
                loop {
                    let was = values.get("", "count").await.unwrap();
                    let count = was.as_deref().map_or(0, |was| was.parse::<u32>().unwrap()) + 1;
                    if values.replace("", "count", was.as_deref(), &count.to_string()).await.unwrap() {
                        break;
                    }
                }
            }
        })
    };
    for counted in (0..4).map(counting).collect::<Vec<_>>() {
        counted.await.unwrap();
    }
    assert_eq!(records.values().get("", "count").await.unwrap().as_deref(), Some("40"));
}

async fn rules(records: Records) {
    let rule = |kind: &str, content: &str| NewRule {
        kind: kind.into(),
        content: content.into(),
        bytes: Some(5),
        severity: "infected".into(),
        sample: Some(34),
        about: "a 'reason'".into(),
        made_by: "ann".into(),
        made_at: 7,
    };
    let empty = records.rules().revision().await.unwrap();
    let one = records.rules().add(&rule("hash", "ab")).await.unwrap().unwrap();
    assert_eq!(records.rules().add(&rule("hash", "ab")).await.unwrap(), None, "one rule a content");
    let text = "rule x { condition: true }".repeat(2_000);
    let two = records.rules().add(&rule("yara", &text)).await.unwrap().unwrap();
    let three = records.rules().add(&rule("yara", &text)).await.unwrap().unwrap();
    let all = records.rules().all().await.unwrap();
    assert_eq!(all.iter().map(|row| row.id).collect::<Vec<_>>(), [one, two, three]);
    assert_eq!(all[1].rule, rule("yara", &text));
    // Every change shows in the revision, also one that makes up for another.
    let mut seen = vec![empty, records.rules().revision().await.unwrap()];
    assert!(records.rules().remove(three).await.unwrap() && !records.rules().remove(three).await.unwrap());
    seen.push(records.rules().revision().await.unwrap());
    let four = records.rules().add(&rule("hash", "cd")).await.unwrap().unwrap();
    assert!(four > three, "no number is given twice");
    seen.push(records.rules().revision().await.unwrap());
    let different: std::collections::BTreeSet<_> = seen.iter().collect();
    assert_eq!(different.len(), seen.len(), "{seen:?}");
    // What was removed by mistake comes back as it was.
    let row = all[0].clone();
    records.rules().remove(one).await.unwrap();
    records.rules().restore(&row).await.unwrap();
    assert_eq!(records.rules().all().await.unwrap()[0], row);
}

async fn secrets(records: Records) {
    assert_eq!(records.secrets().find_or_set("recipients", "first").await.unwrap(), "first");
    assert_eq!(records.secrets().find_or_set("recipients", "second").await.unwrap(), "first");
    assert_eq!(records.secrets().find_or_set("tickets", "second").await.unwrap(), "second");
}

async fn totals(records: Records) {
    assert_eq!(records.totals().await.unwrap(), Totals::default());
    let locked = UserRow { locked_at: Some(5), ..user("bob") };
    records.users().add(&user("ann")).await.unwrap();
    records.users().add(&locked).await.unwrap();
    let totals = records.totals().await.unwrap();
    assert_eq!((totals.users, totals.locked, totals.held_recipients), (2, 1, 0));
}

async fn untold(records: Records) {
    let due = async |notice: i64| {
        let note = |row: &mut ThrottleRow| row.notified = notice;
        records
            .throttles()
            .decide(&["ann".to_owned()], |rows| (Changes::default(), rows.iter_mut().for_each(note)))
            .await
            .unwrap();
        records.throttles().untold(9).await.unwrap()
    };
    assert_eq!(due(0).await, []);
    assert_eq!(due(2).await, [("ann".to_owned(), 2)]);
    records.throttles().told("ann", 1).await.unwrap();
    assert_eq!(due(2).await, [("ann".to_owned(), 2)]);
    records.throttles().told("ann", 2).await.unwrap();
    assert_eq!(due(2).await, []);
    assert_eq!(due(3).await, [("ann".to_owned(), 3)]);
    records.throttles().told("ann", 3).await.unwrap();
    assert_eq!(due(0).await, [], "the episode is over");
    records.throttles().told("ann", 3).await.unwrap();
    assert_eq!(due(1).await, [("ann".to_owned(), 1)], "and the next one begins anew");
}

/// SQLite rolls a transaction back by itself when the disk is full; the next one must not suffer from it.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_passes() {
    let disk = tempfile::tempdir().unwrap();
    let mounted = std::process::Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=2m", "weir-test"])
        .arg(disk.path())
        .output();
    let mounted = mounted.expect("the command `mount`");
    assert!(
        mounted.status.success(),
        "this test needs root: it mounts a tmpfs: {}",
        String::from_utf8_lossy(&mounted.stderr)
    );
    let outcome = tokio::spawn(fill_and_free(disk.path().to_owned())).await;
    let _ = std::process::Command::new("umount").arg("-l").arg(disk.path()).status();
    outcome.unwrap();
}

async fn fill_and_free(disk: std::path::PathBuf) {
    let records = Records::sqlite(&disk.join("records.db")).await.unwrap();
    let write = async |size: usize| {
        let state = |row: &mut ThrottleRow| row.state = "x".repeat(size);
        records
            .throttles()
            .decide(&["ann".to_owned()], |rows| (Changes::default(), rows.iter_mut().for_each(state)))
            .await
    };
    for size in [10_000, 30_000, 100_000] {
        write(10).await.unwrap();
        let filler = disk.join("filler");
        let mut file = std::fs::File::create(&filler).unwrap();
        while std::io::Write::write_all(&mut file, &[0; 4096]).is_ok() {}
        let mut refused = 0;
        for _ in 0..20 {
            if let Err(error) = write(size).await {
                assert!(error.is_about_the_disk(), "{error}");
                refused += 1;
            }
        }
        assert!(refused > 0, "the disk was full");
        std::fs::remove_file(&filler).unwrap();
        write(10).await.unwrap();
    }
}
