//! Users: made, changed, locked and unlocked, under whatever name they are meant.

use super::*;

on_both! {
    users_are_made_changed_and_shown,
    a_contact_is_not_a_mailbox_of_the_account,
    who_is_made_anew_goes_on_with_the_figures_of_the_day,
    what_is_not_valid_is_refused_with_a_hint,
    a_lock_ends_sessions_and_stands_still_and_unlock_ends_it,
    who_is_known_elsewhere_only_can_be_locked,
    a_lock_of_somebody_known_elsewhere_forgets_nothing,
    who_is_spelled_in_other_capitals_is_the_same,
    an_account_is_meant_before_an_older_throttle_in_other_capitals,
    no_password_is_given_where_dovecot_checks_it,
    where_others_check_passwords_too_that_is_said,
    a_secured_account_has_another_password,
    a_lock_after_a_stop_ends_with_a_new_password_and_a_persons_does_not,
    everything_is_in_the_trail,
    relays_lose_no_change_of_each_other,
}

async fn users_are_made_changed_and_shown(fixture: Fixture) {
    let page = fixture.ann().await;
    assert_eq!(
        (page.user.name.as_str(), page.user.state.as_str(), page.has_password, page.sessions),
        ("ann", "active", true, 2)
    );
    assert_eq!(page.user.created, "2026-11-15T04:00:00Z");
    assert_eq!(page.throttle.state, "open");
    let change = Change {
        contact: Some("ann@elsewhere.example".into()),
        profile: Some(Profile::List),
        throttle: OwnThrottle::default().with("max_slack", ParamValue::Number(9)),
        ..Change::default()
    };
    let page = fixture.operations.users.set("ann", &change, &me()).await.unwrap();
    assert_eq!(
        (page.throttle.params.0.stop_at, page.throttle.params.0.max_slack),
        (500, 9),
        "the profile's and her own"
    );
    assert_eq!(page.own_parameters, ["max_slack"]);
    let mail_is_login = NewUser { name: "bob@example.org".into(), ..NewUser::default() };
    let bob = fixture.operations.users.add(mail_is_login, &me()).await.unwrap();
    assert_eq!((bob.user.addresses.as_slice(), bob.has_password), (["bob@example.org".to_owned()].as_slice(), false));
    let list = fixture.operations.users.list("").await.unwrap();
    assert_eq!(list.users.iter().map(|user| user.name.as_str()).collect::<Vec<_>>(), ["ann", "bob@example.org"]);
    assert_eq!(fixture.operations.users.list("ann").await.unwrap().users.len(), 1);
    let hash = fixture.records.users().find("ann").await.unwrap().unwrap().password;
    fixture.operations.users.set_password("ann", "another horse", &me()).await.unwrap();
    assert_ne!(fixture.records.users().find("ann").await.unwrap().unwrap().password, hash);
}

async fn a_contact_is_not_a_mailbox_of_the_account(fixture: Fixture) {
    fixture.ann().await;
    let users = &fixture.operations.users;
    let add = async |name: &str, contact: &str, reads: &[&str]| {
        let new = NewUser {
            name: name.into(),
            addresses: vec![format!("{}@example.org", name.split('@').next().unwrap_or_default())],
            contact: contact.into(),
            reads: reads.iter().map(|address| (*address).to_owned()).collect(),
            ..NewUser::default()
        };
        users.add(new, &me()).await.map_err(|error| error.to_string())
    };
    for (name, contact, reads) in [
        ("carl", "carl@example.org", &[][..]),
        ("carl", "Carl+home@EXAMPLE.org", &[]),
        ("carl@example.com", "carl@example.com", &[]),
        ("carl", "info@example.org", &["info@example.org"]),
    ] {
        let error = add(name, contact, reads).await.unwrap_err();
        assert!(error.contains("mailbox of this account"), "{error}");
    }
    add("carl", "carl@home.example", &["info@example.org"]).await.unwrap();
    let contact = |to: &str| Change { contact: Some(to.into()), ..Change::default() };
    assert!(users.set("ann", &contact("ann@example.org"), &me()).await.is_err());
    users.set("ann", &contact("ann@home.example"), &me()).await.unwrap();
    let more = Change { addresses: Some(vec!["ann@home.example".into()]), ..Change::default() };
    assert!(users.set("ann", &more, &me()).await.is_err(), "the contact would become the account's own");
}

async fn who_is_made_anew_goes_on_with_the_figures_of_the_day(fixture: Fixture) {
    fixture.ann().await;
    fixture.mail("m1", "ann", 40).await;
    let users = &fixture.operations.users;
    let before = users.show("ann").await.unwrap().throttle;
    assert!(before.stopped_since.is_some());
    fixture.operations.held.decide(&by_user("ann"), Decision::Delete, &me()).await.unwrap();
    let situation = async || fixture.records.throttles().find("ann").await.unwrap().map(|row| row.state);
    users.remove("ann", &me()).await.unwrap();
    let kept = situation().await;
    assert!(kept.as_ref().is_some_and(|state| state.contains("\"situation\":2")), "{kept:?}");
    assert!(users.show("ann").await.is_err() && users.lock("ann", "x", &me()).await.is_err(), "who is gone is gone");
    assert!(!users.exists("ann").await.unwrap(), "although the throttle is kept");
    fixture.ann().await;
    assert!(users.exists("ann").await.unwrap() && !users.exists("a\nb").await.unwrap());
    assert_eq!(situation().await, kept, "slack, counts and the number of stops are those of before");
    // After nine days nobody needs them.
    users.remove("ann", &me()).await.unwrap();
    fixture.now.fetch_add(9 * 86_400 * SECOND, Ordering::SeqCst);
    fixture.ann().await;
    assert_eq!(situation().await, None);
}

async fn what_is_not_valid_is_refused_with_a_hint(fixture: Fixture) {
    fixture.ann().await;
    let operations = &fixture.operations;
    let again = NewUser { name: "ann".into(), addresses: vec!["a@b".into()], ..NewUser::default() };
    let new = |name: &str, address: &str| NewUser {
        name: name.into(),
        addresses: vec![address.into()],
        ..NewUser::default()
    };
    let weak = NewUser { password: Some("short".into()), ..new("carl", "carl@example.org") };
    let homeless = NewUser { name: "carl".into(), ..NewUser::default() };
    let refusals = [
        operations.users.add(again, &me()).await.unwrap_err(),
        operations.users.add(new("a b", "a@b"), &me()).await.unwrap_err(),
        operations.users.add(new("carl", "nonsense"), &me()).await.unwrap_err(),
        operations.users.add(weak, &me()).await.unwrap_err(),
        operations.users.add(homeless, &me()).await.unwrap_err(),
        operations.users.show("nobody").await.unwrap_err(),
        operations.users.set("ann", &Change::default(), &me()).await.unwrap_err(),
        operations.users.lock("ann", "a\nb", &me()).await.unwrap_err(),
        operations.users.unlock("nobody", &me()).await.unwrap_err(),
        operations.held.decide(&HeldSelection::default(), Decision::Delete, &me()).await.unwrap_err(),
        operations.held.decide(&by_user("ann"), Decision::Delete, &me()).await.unwrap_err(),
        operations.held.show("nonsense").await.unwrap_err(),
        operations.held.show(MESSAGES[0]).await.unwrap_err(),
        operations.queue.retry(&QueueSelection::default(), &me()).await.unwrap_err(),
    ];
    for refused in refusals {
        assert!(!refused.hint().is_empty() && !matches!(refused, OperationError::Failed(_)), "{refused:?}");
    }
    let named = vec![MESSAGES[0].to_owned(); 1001];
    let too_many = HeldSelection { messages: named, ..HeldSelection::default() };
    assert!(operations.held.list(&too_many).await.unwrap_err().to_string().contains("at most 1000"));
    let too_many = Change { trust: (0..1001).map(|n| format!("to{n}@example.org")).collect(), ..Change::default() };
    assert!(operations.users.set("ann", &too_many, &me()).await.unwrap_err().to_string().contains("at most 1000"));
    assert_eq!(operations.users.show("ann").await.unwrap().trusted.len(), 0, "all or nothing");
}

async fn a_lock_ends_sessions_and_stands_still_and_unlock_ends_it(fixture: Fixture) {
    fixture.ann().await;
    fixture.mail(MESSAGES[0], "ann", 17).await;
    assert_eq!(fixture.held().await, 2);
    let locked = fixture.operations.users.lock("ann", "a leak", &me()).await.unwrap();
    assert_eq!((locked.sessions_ended, fixture.behind.ended.load(Ordering::SeqCst)), (1, 1));
    let page = fixture.operations.users.show("ann").await.unwrap();
    assert_eq!((page.user.state.as_str(), page.user.locked_reason.as_str()), ("locked", "a leak"));
    assert!(page.throttle.in_words.contains("a person locked the account"), "{}", page.throttle.in_words);
    fixture.now.fetch_add(3600 * SECOND, Ordering::SeqCst);
    assert_eq!(fixture.held().await, 2, "nothing goes by itself");
    let done = fixture.operations.users.unlock("ann", &me()).await.unwrap();
    assert_eq!((done.lock_ended, done.stop_ended, done.held), (true, true, 2));
    assert_eq!(fixture.operations.users.show("ann").await.unwrap().user.state, "active");
    let done = fixture.operations.users.unlock("ann", &me()).await.unwrap();
    assert_eq!((done.lock_ended, done.stop_ended), (false, false));
}

/// As people of a directory are, and machines that are known by their address.
async fn who_is_known_elsewhere_only_can_be_locked(fixture: Fixture) {
    let users = &fixture.operations.users;
    assert!(
        users.lock("lara@example.org", "a leak", &me()).await.unwrap_err().to_string().contains("there is no user")
    );
    assert!(!users.exists("lara@example.org").await.unwrap());
    fixture.mail(MESSAGES[0], "lara@example.org", 17).await;
    assert!(users.exists("lara@example.org").await.unwrap(), "without an account");
    users.lock("lara@example.org", "a leak", &me()).await.unwrap();
    let page = users.show("lara@example.org").await.unwrap();
    assert_eq!((page.user.state.as_str(), page.user.locked_reason.as_str()), ("locked", "a leak"));
    assert!(users.unlock("lara@example.org", &me()).await.unwrap().lock_ended);
    assert!(
        users.list("").await.unwrap().users.iter().all(|user| user.name != "lara@example.org"),
        "no account is left behind"
    );
}

async fn a_lock_of_somebody_known_elsewhere_forgets_nothing(fixture: Fixture) {
    let (users, lara) = (&fixture.operations.users, "lara@example.org");
    let correspondents = async || users.show(lara).await.unwrap().correspondents;
    let account = async || fixture.records.users().find(lara).await.unwrap();
    fixture.mail(MESSAGES[0], lara, 40).await;
    let sent = [(lara.to_owned(), (1..=5).map(RecipientKey).collect())];
    weir_mail::throttle::remember(&fixture.records.correspondents(), sent, 20_000).await.unwrap();
    // A stop that ends with a lock, because what waited was deleted.
    let done = fixture.operations.held.decide(&by_user(lara), Decision::Delete, &me()).await.unwrap();
    assert_eq!((done.locked.as_slice(), correspondents().await), ([lara.to_owned()].as_slice(), 5));
    let refused = users.set_password(lara, "another horse", &me()).await.unwrap_err();
    assert!(refused.to_string().contains("has no password here"), "{refused}");
    assert!(users.unlock(lara, &me()).await.unwrap().lock_ended);
    assert!(account().await.is_none(), "no account that says how they log in");
    // And a person's, with a new password that would open nothing.
    let done = fixture.operations.secure(lara, Some("another horse"), &me()).await.unwrap();
    assert!(!done.new_password && done.password_elsewhere.is_some(), "{done:?}");
    assert!(account().await.unwrap().password.is_empty());
    assert!(users.unlock(lara, &me()).await.unwrap().lock_ended);
    assert!(account().await.is_none());
    assert_eq!(correspondents().await, 5);
    assert!(fixture.records.throttles().find(lara).await.unwrap().is_some());
    // What a person has set for them is not forgotten either.
    users.lock(lara, "a leak", &me()).await.unwrap();
    let contact = Change { contact: Some("lara@home.example".into()), ..Change::default() };
    users.set(lara, &contact, &me()).await.unwrap();
    users.unlock(lara, &me()).await.unwrap();
    assert_eq!(account().await.unwrap().contact, "lara@home.example");
    // Once there was an account here; now the directory has them, and they go on sending.
    users.remove(lara, &me()).await.unwrap();
    fixture.mail(MESSAGES[1], lara, 1).await;
    fixture.now.fetch_add(9 * 86_400 * SECOND, Ordering::SeqCst);
    fixture.ann().await;
    assert!(fixture.records.throttles().find(lara).await.unwrap().is_some(), "who sends is not forgotten");
}

async fn who_is_spelled_in_other_capitals_is_the_same(fixture: Fixture) {
    let users = &fixture.operations.users;
    let anna =
        |name: &str| NewUser { name: name.into(), addresses: vec!["anna@example.org".into()], ..NewUser::default() };
    users.add(anna("Anna"), &me()).await.unwrap();
    let refused = users.add(anna("anna"), &me()).await.unwrap_err();
    assert!(refused.to_string().contains("there is already a user Anna"), "{refused}");
    assert_eq!(users.lock("ANNA", "a leak", &me()).await.unwrap().name, "Anna");
    assert_eq!(users.show("Anna").await.unwrap().user.state, "locked");
    assert!(users.unlock("anna", &me()).await.unwrap().lock_ended);
    // Without an account.
    fixture.mail(MESSAGES[0], "lara@example.org", 40).await;
    let done = users.unlock("Lara@Example.org", &me()).await.unwrap();
    assert_eq!((done.name.as_str(), done.stop_ended), ("lara@example.org", true));
    assert_eq!(users.called("LARA@example.org").await.unwrap(), "lara@example.org");
    assert_eq!(users.called("nobody").await.unwrap(), "nobody");
    assert_eq!(fixture.operations.secure("LARA@example.org", None, &me()).await.unwrap().recipients_deleted, 25);
}

async fn an_account_is_meant_before_an_older_throttle_in_other_capitals(fixture: Fixture) {
    let users = &fixture.operations.users;
    let anna = NewUser { name: "Anna".into(), addresses: vec!["anna@example.org".into()], ..NewUser::default() };
    fixture.mail(MESSAGES[0], "anna", 40).await;
    assert!(fixture.records.throttles().find("anna").await.unwrap().unwrap().stopped_at.is_some());
    users.add(anna, &me()).await.unwrap();
    assert_eq!(users.lock("anna", "a leak", &me()).await.unwrap().name, "Anna");
    assert!(fixture.records.users().find("anna").await.unwrap().is_none(), "no second account");
    // What waits is the throttle's, and can be decided about by its name.
    assert_eq!(users.called_in_queues("anna").await.unwrap(), "anna");
    assert_eq!(users.called_in_queues("ANNA").await.unwrap(), "Anna");
    let done = users.unlock("anna", &me()).await.unwrap();
    assert_eq!((done.name.as_str(), done.lock_ended, done.stop_ended, done.held), ("Anna", true, true, 25));
    assert!(fixture.records.throttles().find("anna").await.unwrap().unwrap().stopped_at.is_none());
    // A stop that ends because what waits is deleted leaves a lock, and that is the account's.
    fixture.mail(MESSAGES[1], "anna", 40).await;
    assert!(fixture.records.throttles().find("anna").await.unwrap().unwrap().stopped_at.is_some());
    fixture.operations.held.decide(&by_user("anna"), Decision::Delete, &me()).await.unwrap();
    assert!(fixture.records.users().find("anna").await.unwrap().is_none());
    assert_eq!(users.show("Anna").await.unwrap().user.state, "locked");
}

async fn no_password_is_given_where_dovecot_checks_it(fixture: Fixture) {
    let fixture = fixture.with(|settings| settings.dovecot = true);
    fixture.ann().await;
    let users = &fixture.operations.users;
    let password = async || fixture.records.users().find("ann").await.unwrap().unwrap().password;
    let before = password().await;
    let done = fixture.operations.secure("ann", Some("another horse"), &me()).await.unwrap();
    assert_eq!((done.new_password, done.password_elsewhere.as_deref()), (false, Some("Dovecot checks it")));
    assert_ne!(password().await, before, "the one for the console is void all the same");
    users.unlock("ann", &me()).await.unwrap();
    fixture.mail(MESSAGES[0], "ann", 40).await;
    fixture.operations.held.decide(&by_user("ann"), Decision::Delete, &me()).await.unwrap();
    users.set_password("ann", "a third horse", &me()).await.unwrap();
    assert_eq!(users.show("ann").await.unwrap().user.state, "locked", "whoever sent has Dovecot's password");
}

async fn where_others_check_passwords_too_that_is_said(fixture: Fixture) {
    let fixture = fixture.with(|settings| settings.asked_by_servers = true);
    fixture.ann().await;
    let done = fixture.operations.secure("ann", Some("another horse"), &me()).await.unwrap();
    assert!(done.new_password && done.password_elsewhere.is_some_and(|who| who.contains("mail servers")));
}

async fn a_secured_account_has_another_password(fixture: Fixture) {
    fixture.ann().await;
    let before = fixture.records.users().find("ann").await.unwrap().unwrap().password;
    let done = fixture.operations.secure("ann", None, &me()).await.unwrap();
    assert!(!done.new_password, "nobody was told one");
    assert_eq!(done.queue_problem.as_deref(), Some("the queue is away"), "and the rest is done all the same");
    let after = fixture.records.users().find("ann").await.unwrap().unwrap().password;
    assert!(!after.is_empty() && after != before, "the stolen password counts no more");
}

async fn a_lock_after_a_stop_ends_with_a_new_password_and_a_persons_does_not(fixture: Fixture) {
    fixture.ann().await;
    let users = &fixture.operations.users;
    assert!(!users.lock_if_stopped("ann", "", &me()).await.unwrap(), "she is not stopped");
    fixture.mail(MESSAGES[0], "ann", 40).await;
    let one = HeldSelection { recipient: "to30@example.org".into(), ..HeldSelection::default() };
    let done = fixture.operations.held.decide(&one, Decision::Delete, &me()).await.unwrap();
    assert_eq!((done.recipients, done.locked.len()), (1, 0), "the stop goes on");
    let all = HeldSelection { user: "ann".into(), ..HeldSelection::default() };
    let done = fixture.operations.held.decide(&all, Decision::Delete, &me()).await.unwrap();
    assert_eq!((done.stops_ended.len(), done.locked), (0, vec!["ann".to_owned()]), "whoever sent it would go on");
    let page = users.show("ann").await.unwrap();
    assert_eq!((page.user.state.as_str(), page.user.held), ("locked", 0));
    assert!(page.user.locked_reason.starts_with("stopped after unusual mail"), "{}", page.user.locked_reason);
    users.set_password("ann", "another horse", &me()).await.unwrap();
    assert_eq!(users.show("ann").await.unwrap().user.state, "active");
    users.lock("ann", "a leak", &me()).await.unwrap();
    users.set_password("ann", "a third horse", &me()).await.unwrap();
    assert_eq!(users.show("ann").await.unwrap().user.state, "locked");
}

async fn everything_is_in_the_trail(fixture: Fixture) {
    fixture.ann().await;
    fixture.mail(MESSAGES[0], "ann", 17).await;
    fixture.operations.users.set_password("ann", "another horse", &me()).await.unwrap();
    fixture.operations.users.lock("ann", "a leak", &me()).await.unwrap();
    fixture.operations.users.unlock("ann", &Actor::new("bob")).await.unwrap();
    fixture.operations.held.decide(&by_user("ann"), Decision::Release, &me()).await.unwrap();
    let trail = fixture.audit.newest("ann", 100).await.unwrap();
    let said: Vec<_> = trail.iter().map(|line| (line.actor.as_str(), line.action.as_str())).collect();
    let expected = [
        ("cli:root", "held.release"),
        ("bob", "user.unlock"),
        ("cli:root", "user.lock"),
        ("cli:root", "user.passwd"),
        ("cli:root", "user.add"),
    ];
    assert_eq!(said, expected);
    assert!(trail.iter().all(|line| !line.detail.contains("horse")), "no password in the trail");
    assert_eq!(fixture.audit.newest("", 2).await.unwrap().len(), 2);
}

async fn relays_lose_no_change_of_each_other(fixture: Fixture) {
    fixture.ann().await;
    let other = operations(&fixture.foundation, &fixture.throttling, &fixture.behind, settings());
    let ann = async || fixture.records.users().find("ann").await.unwrap().unwrap();
    for round in 0..8 {
        let before = ann().await.password;
        let (users, password) = (fixture.operations.users.clone(), format!("another horse {round}"));
        let changing = tokio::spawn(async move { users.set_password("ann", &password, &me()).await.unwrap() });
        other.users.lock("ann", "a leak", &me()).await.unwrap();
        changing.await.unwrap();
        let now = ann().await;
        assert_eq!((now.locked_at.is_some(), now.locked_reason.as_str()), (true, "a leak"), "round {round}");
        assert_ne!(now.password, before, "round {round}");
        other.users.unlock("ann", &me()).await.unwrap();
        let contact = Change { contact: Some(format!("ann{round}@elsewhere.example")), ..Change::default() };
        let profile = if round % 2 == 0 { Profile::List } else { Profile::Person };
        let profile = Change { profile: Some(profile), ..Change::default() };
        let (users, change) = (fixture.operations.users.clone(), contact.clone());
        let changing = tokio::spawn(async move { users.set("ann", &change, &me()).await.unwrap() });
        other.users.set("ann", &profile, &me()).await.unwrap();
        changing.await.unwrap();
        let now = ann().await;
        assert_eq!(
            (Some(now.contact), Some(now.profile.as_str())),
            (contact.contact, profile.profile.map(Profile::as_str))
        );
    }
}
