//! Whose mail somebody may decide about.

use super::house::{MESSAGES, PASSWORD, encoded, house, quarantined};
use axum::http::{Method, StatusCode};
use weir_store::records::{Changes, HeldFilter, HeldRow, QuarantineFilter, QuarantineRow};

#[tokio::test]
async fn an_operator_releases_no_infected_mail_in_any_way() {
    let house = house().await;
    let rows = [quarantined(MESSAGES[0], "virus"), quarantined(MESSAGES[1], "spam"), quarantined(MESSAGES[2], "spam")];
    house.records.quarantine().add(&rows).await.unwrap();
    let session = house.as_role("olga").await;
    let page = house.get(&format!("/quarantine/{}", MESSAGES[0]), &session).await;
    assert!(page.text.contains("released by administrators only"), "{}", page.text);
    let token = page.token();
    let reason = format!("token={token}&action=release&reason=because+I+can");
    for chosen in [format!("&message={}", MESSAGES[0]), format!("&message={}&message={}", MESSAGES[1], MESSAGES[0])] {
        house.post("/quarantine/decide", &session, &format!("{reason}{chosen}")).await;
        assert!(house.get("/quarantine", &session).await.text.contains("Not done."), "{chosen}");
    }
    let json = ("content-type", "application/json");
    let with_token = [("cookie", session.as_str()), json, ("x-weir-token", token.as_str())];
    for selection in [format!("{{\"messages\":[\"{}\"]}}", MESSAGES[0]), "{\"queue\":\"virus\"}".into()] {
        let body = format!("{{\"selection\":{selection}}}");
        let answer = house.send(Method::POST, "/api/v1/quarantine/release", &with_token, &body).await;
        assert_eq!(answer.status, StatusCode::CONFLICT, "{}", answer.text);
    }
    // Over the API an operator may release the rest.
    let body = "{\"selection\":{\"all\":true}}";
    let answer = house.send(Method::POST, "/api/v1/quarantine/release", &with_token, body).await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text);
    let left = house.records.quarantine().list(&QuarantineFilter::default(), 9).await.unwrap().rows;
    assert_eq!(left.iter().map(|row| row.queue.as_str()).collect::<Vec<_>>(), ["virus"], "and that one stays");
}

#[tokio::test]
async fn nobody_deletes_the_mail_of_another() {
    let house = house().await;
    let bob = ["<b>bob</b>".to_owned()];
    let row = HeldRow {
        identity: bob[0].clone(),
        message: MESSAGES[0].into(),
        relay: "here".into(),
        recipient: "eve@example.net".into(),
        sender: "x@example.org".into(),
        subject: "secret".into(),
        source: "192.0.2.1".into(),
        size: 10,
        held_at: 5,
        ..HeldRow::default()
    };
    let hold = Changes { hold: vec![row], ..Changes::default() };
    house.records.throttles().decide(&bob, |_| (hold, ())).await.unwrap();
    let session = house.as_role("ann@example.org").await;
    let page = house.get("/me", &session).await;
    assert!(page.text.contains("None of your mail is held") && !page.text.contains("secret"), "{}", page.text);
    let body = format!("token={}&message={}&user={}", page.token(), MESSAGES[0], encoded(&bob[0]));
    let answer = house.post("/me/delete", &session, &body).await;
    assert_eq!((answer.status, answer.location()), (StatusCode::SEE_OTHER, "/me"));
    assert!(house.get("/me", &session).await.text.contains("Not done."));
    assert_eq!(
        house.post("/me/release", &session, &body).await.status,
        StatusCode::FORBIDDEN,
        "a password is not enough"
    );
    let filter = HeldFilter { identity: bob[0].clone(), ..HeldFilter::default() };
    assert_eq!(house.records.held().list(&filter, 9).await.unwrap().len(), 1, "it is still there");
}

#[tokio::test]
async fn a_user_decides_about_spam_to_themselves_and_nothing_else() {
    let house = house().await;
    let to = |recipient: &str, row: QuarantineRow| QuarantineRow { recipient: recipient.into(), ..row };
    // Ann may send as x@example.org, and does not read what comes for it.
    let rows = [
        to("ann@example.org", quarantined(MESSAGES[0], "spam")),
        to("ann@example.org", quarantined(MESSAGES[1], "virus")),
        to("x@example.org", quarantined(MESSAGES[2], "spam")),
    ];
    house.records.quarantine().add(&rows).await.unwrap();
    let (_, ann) = house.log_in("ann@example.org", PASSWORD, "").await;
    let list = house.get("/me/quarantine", &ann).await;
    assert!(list.text.contains(MESSAGES[0]), "{}", list.text);
    assert!(list.text.contains("This is about ann@example.org."), "{}", list.text);
    assert!(!list.text.contains(MESSAGES[1]) && !list.text.contains(MESSAGES[2]), "{}", list.text);
    let page = house.get(&format!("/me/quarantine/{}", MESSAGES[0]), &ann).await;
    assert!(page.status == StatusCode::OK && page.text.contains("Deliver it to me"), "{}", page.text);
    for other in [MESSAGES[1], MESSAGES[2], "nothing"] {
        let page = house.get(&format!("/me/quarantine/{other}"), &ann).await;
        assert!(page.status.is_client_error(), "{other}: {}", page.text);
        let body = format!("token={}&action=release&message={other}", list.token());
        house.post("/me/quarantine", &ann, &body).await;
    }
    let body = format!("token={}&action=delete&message={}", list.token(), MESSAGES[0]);
    let done = house.post("/me/quarantine", &ann, &body).await;
    assert_eq!((done.status, done.location()), (StatusCode::SEE_OTHER, "/me/quarantine"));
    let left = house.records.quarantine().list(&QuarantineFilter::default(), 10).await.unwrap().rows;
    let left: Vec<&str> = left.iter().map(|row| row.message.as_str()).collect();
    assert_eq!(left.len(), 2, "{left:?}");
    assert!(!left.contains(&MESSAGES[0]));
    // An administrator names a mailbox that she reads besides.
    let reads = weir_mail::operations::Change { reads: Some(vec!["x@example.org".into()]), ..Default::default() };
    house.mail.users.set("ann@example.org", &reads, &weir_foundation::Actor::new("test")).await.unwrap();
    assert!(house.get("/me/quarantine", &ann).await.text.contains(MESSAGES[2]));
    // Who is in charge of everything has another page for it.
    let root = house.as_role("root").await;
    assert_eq!(house.get("/me/quarantine", &root).await.status, StatusCode::FORBIDDEN);
}
