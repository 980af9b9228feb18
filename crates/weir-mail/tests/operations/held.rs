//! Mail that somebody decides about: held, in the queue, in quarantine.

use super::*;

on_both! {
    what_goes_from_the_queue_is_in_the_trail_before_it_goes,
    held_mail_is_listed_by_message_and_decided_in_every_way,
    a_missing_file_is_shown_and_can_be_given_up,
    what_was_held_while_the_clock_was_ahead_can_be_decided_on,
    trust_is_remembered_with_the_user,
    own_parameters_count_for_what_waits_already,
    users_decide_on_their_spam_and_administrators_on_everything,
}

async fn users_decide_on_their_spam_and_administrators_on_everything(fixture: Fixture) {
    let row = |message: &str, place: i64, queue: &str, recipient: &str| QuarantineRow {
        message: message.into(),
        place,
        relay: "here".into(),
        queue: queue.into(),
        fate: Fate::Held,
        recipient: recipient.into(),
        sender: "eve@example.net".into(),
        subject: "win".into(),
        source: "192.0.2.1".into(),
        owner: String::new(),
        origin: "received".into(),
        size: 100,
        at: START as i64,
        reason: "why".into(),
        decided_by: String::new(),
        release_to: String::new(),
    };
    let rows = [
        row(MESSAGES[0], 0, "virus", "ann@example.org"),
        row(MESSAGES[1], 0, "spam", "Ann+x@Example.org"),
        row(MESSAGES[1], 1, "spam", "bob@example.org"),
        row(MESSAGES[1], 2, "spam", "postmaster"),
    ];
    fixture.records.quarantine().add(&rows).await.unwrap();
    let list = fixture.operations.quarantine.list(&QuarantineSelection::default()).await.unwrap();
    let entries: Vec<_> = list.entries.iter().map(|e| (e.message.as_str(), e.recipients.len())).collect();
    assert_eq!(entries, [(MESSAGES[0], 1), (MESSAGES[1], 3)], "one entry a message");
    // Neither has a canonical address, which does not make them the same.
    let of_domain = Authority::User { addresses: vec!["@example.org".into()] };
    let bare = QuarantineSelection { recipient: "postmaster".into(), ..Default::default() };
    let bare =
        fixture.operations.quarantine.decide(&bare, &QuarantineDecision::Release, &of_domain, &Actor::new("ann")).await;
    assert!(bare.is_err(), "{bare:?}");
    let user = Authority::User { addresses: vec!["Ann@example.org".into()] };
    let actor = Actor::new("ann");
    let of = |message: &str| QuarantineSelection { messages: vec![message.to_owned()], ..Default::default() };
    let release = &QuarantineDecision::Release;
    let refused = fixture.operations.quarantine.decide(&of(MESSAGES[0]), release, &user, &actor).await.unwrap_err();
    assert!(refused.to_string().contains("only an administrator"), "{refused}");
    let done = fixture.operations.quarantine.decide(&of(MESSAGES[1]), release, &user, &actor).await.unwrap();
    assert_eq!(done.recipients, 1, "for themselves, not for Bob");
    let all = QuarantineSelection { all: true, ..Default::default() };
    // An operator releases no infected mail, however it is named.
    let operator = Authority::Operator;
    for selection in [of(MESSAGES[0]), QuarantineSelection { queue: "virus".into(), ..Default::default() }] {
        let refused = fixture.operations.quarantine.decide(&selection, release, &operator, &actor).await.unwrap_err();
        assert!(refused.to_string().contains("only an administrator"), "{refused}");
    }
    let found = QuarantineSelection { text: "BOB@exam".into(), ..Default::default() };
    let found = fixture.operations.quarantine.list(&found).await.unwrap();
    assert_eq!(found.entries.iter().map(|e| e.message.as_str()).collect::<Vec<_>>(), [MESSAGES[1]]);
    let nothing = QuarantineSelection::default();
    let admin = Authority::Administrator { reason: String::new() };
    let reasoned = Authority::Administrator { reason: "the sender rang".into() };
    for (selection, who, said) in
        [(of(MESSAGES[0]), &admin, "say why"), (all.clone(), &reasoned, "a message at a time")]
    {
        let refused = fixture.operations.quarantine.decide(&selection, release, who, &actor).await.unwrap_err();
        assert!(refused.to_string().contains(said), "{refused}");
    }
    assert!(fixture.operations.quarantine.decide(&nothing, release, &admin, &Actor::new("cli:root")).await.is_err());
    let deleted =
        fixture.operations.quarantine.decide(&all, &QuarantineDecision::Delete, &admin, &Actor::new("cli:root")).await;
    assert_eq!(deleted.unwrap().recipients, 3);
    let decided = fixture.records.quarantine().decided("here", "", 9).await.unwrap();
    let fates: Vec<_> = decided.iter().map(|row| (row.place, row.fate, row.decided_by.as_str())).collect();
    assert_eq!(
        fates,
        [(0, Fate::Drop, "cli:root"), (0, Fate::Go, "ann"), (1, Fate::Drop, "cli:root"), (2, Fate::Drop, "cli:root")]
    );
    let trail = fixture.audit.newest(MESSAGES[1], 9).await.unwrap();
    let who: Vec<_> = trail.iter().map(|line| (line.actor.as_str(), line.action.as_str())).collect();
    assert_eq!(who, [("cli:root", "quarantine.delete"), ("ann", "quarantine.release")]);
    assert!(fixture.behind.woken.load(Ordering::SeqCst) >= 2);
    assert!(fixture.operations.feeds.status().is_err(), "nothing is scanned behind these operations");
}

async fn what_goes_from_the_queue_is_in_the_trail_before_it_goes(fixture: Fixture) {
    fixture.ann().await;
    let outgoing = |is| *fixture.behind.outgoing.lock().unwrap() = is;
    let deleted = async || {
        let trail = fixture.audit.newest("ann", 100).await.unwrap();
        trail.into_iter().filter(|line| line.action == "queue.delete").map(|line| line.detail).collect::<Vec<_>>()
    };
    let of_ann = QueueSelection { user: "ann".into(), ..QueueSelection::default() };
    assert!(fixture.operations.queue.delete(&of_ann, &me()).await.is_err() && deleted().await.is_empty());
    outgoing(Outgoing::Stays);
    assert!(fixture.operations.queue.delete(&of_ann, &me()).await.is_err());
    assert_eq!(deleted().await, [format!("2 messages: {} …", MESSAGES[0])]);
    outgoing(Outgoing::Half);
    let problem = fixture.operations.queue.delete(&of_ann, &me()).await.unwrap_err().to_string();
    assert!(problem.starts_with("1 message was deleted, but") && problem.contains("the disk is full"), "{problem}");
    let done = fixture.operations.secure("ann", None, &me()).await.unwrap();
    assert_eq!((done.queued_deleted, done.queue_problem.as_deref()), (1, Some("the disk is full")));
    assert_eq!(deleted().await.len(), 3);
}

async fn held_mail_is_listed_by_message_and_decided_in_every_way(fixture: Fixture) {
    fixture.ann().await;
    fixture.mail(MESSAGES[0], "ann", 18).await;
    fixture.mail(MESSAGES[1], "ann", 3).await;
    fixture.mail(MESSAGES[2], "bob", 40).await;
    let list = fixture.operations.held.list(&HeldSelection::default()).await.unwrap();
    let counts: Vec<_> = list.messages.iter().map(|held| (held.user.as_str(), held.recipients.len())).collect();
    assert_eq!(counts, [("ann", 3), ("ann", 3), ("bob", 25)]);
    let expected = list.messages[0].recipients[0].expected.as_deref();
    assert_eq!(expected, Some("2026-11-15T04:01:01Z"), "the end of the first period");
    assert!(list.messages[2].stopped && list.messages[2].recipients[0].expected.is_none());
    for most in 1..=3 {
        let first = fixture.operations.held.first(&HeldSelection::default(), most).await.unwrap();
        assert_eq!((first.more, &first.messages[..]), (most < 3, &list.messages[..most]), "no message is cut");
    }

    let page = fixture.operations.held.show(MESSAGES[0]).await.unwrap();
    assert!(page.why.contains("allowance for new recipients (1 a minute)") && page.choices.len() == 3, "{page:?}");
    assert!(page.attachments.is_empty() && page.attachments_unseen.is_none(), "{page:?}");
    let invoice = "MIME-Version: 1.0\r\nContent-Type: application/pdf; name=invoice.pdf\r\n\r\n%PDF-1.7";
    std::fs::write(fixture.file(MESSAGES[0]), invoice).unwrap();
    let page = fixture.operations.held.show(MESSAGES[0]).await.unwrap();
    let attachment = Attachment { name: "invoice.pdf".into(), media_type: "application/pdf".into(), size_bytes: 8 };
    assert_eq!((page.attachments, page.size_bytes), (vec![attachment], Some(invoice.len() as u64)));
    assert!(fixture.operations.held.show(MESSAGES[2]).await.unwrap().why.contains("more than 20 recipients waited"));

    let one = HeldSelection {
        messages: vec![MESSAGES[0].into()],
        recipient: "to15@example.org".into(),
        ..Default::default()
    };
    let done = fixture.operations.held.decide(&one, Decision::Release, &me()).await.unwrap();
    assert_eq!((done.recipients, done.users.as_slice()), (1, ["ann".to_owned()].as_slice()));
    let recipient = HeldSelection { recipient: "to2@example.org".into(), ..Default::default() };
    assert_eq!(fixture.operations.held.decide(&recipient, Decision::Delete, &me()).await.unwrap().recipients, 1);
    let message = HeldSelection { messages: vec![MESSAGES[0].into()], ..Default::default() };
    assert_eq!(fixture.operations.held.decide(&message, Decision::Delete, &me()).await.unwrap().recipients, 2);
    let done = fixture.operations.held.decide(&by_user("bob"), Decision::Release, &me()).await.unwrap();
    assert_eq!((done.recipients, done.stops_ended.as_slice()), (25, ["bob".to_owned()].as_slice()));
    let all = HeldSelection { all: true, ..Default::default() };
    assert_eq!(fixture.operations.held.decide(&all, Decision::Release, &me()).await.unwrap().recipients, 2);
    assert_eq!(fixture.held().await, 0);
    assert!(fixture.behind.woken.load(Ordering::SeqCst) >= 5);
    let decided = fixture.records.held().decided("here", "", 1000).await.unwrap();
    assert_eq!(decided.iter().filter(|row| row.fate == Fate::Drop).count(), 3);
    assert_eq!(decided.iter().filter(|row| row.fate == Fate::Go).count(), 28);
}

async fn a_missing_file_is_shown_and_can_be_given_up(fixture: Fixture) {
    fixture.ann().await;
    fixture.mail(MESSAGES[0], "ann", 17).await;
    let shown = async || fixture.operations.held.list(&HeldSelection::default()).await.unwrap().messages;
    assert!(!shown().await[0].file_missing);
    std::fs::remove_file(fixture.file(MESSAGES[0])).unwrap();
    let letter = fixture.file(MESSAGES[0]).with_extension("json");
    std::fs::write(&letter, b"{}").unwrap();
    assert!(shown().await[0].file_missing);
    fixture.operations.held.decide(&by_user("ann"), Decision::Release, &me()).await.unwrap();
    let stuck = shown().await;
    assert!(stuck.len() == 1 && stuck[0].file_missing && stuck[0].recipients.len() == 2, "released, and cannot go");
    assert!(fixture.operations.held.show(MESSAGES[0]).await.unwrap().why.contains("its file is missing"));
    assert_eq!(fixture.operations.held.decide(&by_user("ann"), Decision::Delete, &me()).await.unwrap().recipients, 2);
    assert!(shown().await.is_empty() && fixture.records.held().decided("here", "", 9).await.unwrap().is_empty());
    assert!(!letter.exists(), "nothing is left of it");
}

async fn what_was_held_while_the_clock_was_ahead_can_be_decided_on(fixture: Fixture) {
    fixture.ann().await;
    let month = 30 * 86_400 * SECOND;
    fixture.now.fetch_add(month, Ordering::SeqCst);
    fixture.mail(MESSAGES[0], "ann", 17).await;
    fixture.now.fetch_sub(month, Ordering::SeqCst);
    let done = fixture.operations.held.decide(&by_user("ann"), Decision::Release, &me()).await.unwrap();
    assert_eq!(done.recipients, 2);
}

async fn trust_is_remembered_with_the_user(fixture: Fixture) {
    fixture.ann().await;
    fixture.mail(MESSAGES[0], "ann", 17).await;
    let done = fixture.operations.held.decide(&by_user("ann"), Decision::Trust, &me()).await.unwrap();
    assert_eq!(done.trusted, ["to15@example.org", "to16@example.org"]);
    assert_eq!(fixture.operations.users.show("ann").await.unwrap().trusted, done.trusted);
    fixture.mail(MESSAGES[1], "ghost", 17).await;
    let refused = fixture.operations.held.decide(&by_user("ghost"), Decision::Trust, &me()).await.unwrap_err();
    assert!(refused.to_string().contains("there is no user ghost"), "trust belongs to a user: {refused}");
    assert_eq!(fixture.held().await, 2, "and nothing was released");
    let change =
        Change { distrust: vec!["TO15@example.org".into()], trust: vec!["x@y.org".into()], ..Change::default() };
    let page = fixture.operations.users.set("ann", &change, &me()).await.unwrap();
    assert_eq!(page.trusted, ["to15@example.org", "to16@example.org", "x@y.org"], "local parts have case");
}

async fn own_parameters_count_for_what_waits_already(fixture: Fixture) {
    fixture.ann().await;
    fixture.mail(MESSAGES[0], "ann", 17).await;
    let rate =
        OwnThrottle::default().with("rate", ParamValue::PerMin(60.0)).with("multi_rate", ParamValue::PerMin(60.0));
    let page =
        fixture.operations.users.set("ann", &Change { throttle: rate, ..Change::default() }, &me()).await.unwrap();
    assert_eq!(page.throttle.params.0.rate_period.as_secs(), 1);
    let last = page.throttle.last_at.unwrap();
    assert!(last.as_str() <= "2026-11-15T04:00:05Z", "two seconds instead of two minutes: {last}");
    let rows = fixture.records.held().list(&HeldFilter::default(), 10).await.unwrap();
    assert_eq!(rows.len(), 2);
}
