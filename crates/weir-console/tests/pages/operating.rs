//! What is operated from pages: users, sessions, bans, the outgoing queue; and pages that are kept current.

use super::house::{House, encoded, house};
use axum::http::{Method, StatusCode};

/// Sends a form of the page at `from`, and reads what the next page says.
async fn said(house: &House, session: &str, (from, to): (&str, &str), fields: &str) -> String {
    let token = house.get(from, session).await.token();
    let answer = house.post(to, session, &format!("token={token}&back={}&{fields}", encoded(from))).await;
    assert_eq!(answer.status, StatusCode::SEE_OTHER, "{to}: {}", answer.text);
    house.get(answer.location(), session).await.text
}

#[tokio::test]
async fn users_are_made_changed_and_removed_on_pages() {
    let house = house().await;
    let (root, olga) = (house.as_role("root").await, house.as_role("olga").await);
    let add = ("/throttle", "/users/add");
    let fields = "name=carl@example.org&addresses=&contact=carl@elsewhere.example&profile=person&password=make&reads=info@example.org";
    let made = said(&house, &root, add, fields).await;
    assert!(made.contains("carl@example.org is a user. The password is "), "{made}");
    let mailboxes = house.mail.users.show("carl@example.org").await.unwrap().reads;
    assert_eq!(mailboxes, ["carl@example.org", "info@example.org"]);
    assert!(said(&house, &root, add, fields).await.contains("already a user carl@example.org"));
    let page = "/throttle/users/carl@example.org";
    let to = |what: &str| format!("/users/carl@example.org/{what}");
    let changed = said(
        &house,
        &root,
        (page, &to("change")),
        "addresses=carl@example.org,+@lists.example.org&contact=&profile=list&trusted=bob@example.net&reads=",
    )
    .await;
    assert!(changed.contains("@lists.example.org") && changed.contains("bob@example.net"), "{changed}");
    let changed =
        said(&house, &root, (page, &to("change")), "addresses=carl@example.org&contact=&profile=list&trusted=&reads=")
            .await;
    assert!(changed.contains("<dd>nobody</dd></dl>"), "nobody is trusted any more: {changed}");
    let limited = said(&house, &root, (page, &to("limits")), "stop_at=7&rate=0.5").await;
    assert!(limited.contains("The limits of carl@example.org are changed"), "{limited}");
    assert_eq!(house.mail.users.show("carl@example.org").await.unwrap().throttle.params.0.stop_at, 7);
    assert!(said(&house, &root, (page, &to("limits")), "stop_at=many").await.contains("needs a number"));
    assert!(said(&house, &root, (page, &to("limits")), "reset=on").await.contains("are changed"));
    assert!(house.mail.users.show("carl@example.org").await.unwrap().own_parameters.is_empty());
    assert!(said(&house, &root, (page, &to("password")), "").await.contains("shown only this once"));
    // All of it is an administrator's.
    let token = house.get("/throttle", &olga).await.token();
    for what in ["/users/add", "/users/carl@example.org/remove", "/users/carl@example.org/password"] {
        let refused = house.post(what, &olga, &format!("token={token}")).await;
        assert_eq!(refused.status, StatusCode::FORBIDDEN, "{what}");
    }
    assert!(!house.get(page, &olga).await.text.contains("Change this user"));
    let removed = said(&house, &root, (page, &to("remove")), "").await;
    assert!(removed.contains("The user carl@example.org is removed"), "{removed}");
    assert!(house.mail.users.show("carl@example.org").await.is_err());
    let trail = house.administration.audit.newest("carl@example.org", 20).await.unwrap();
    let did: Vec<&str> = trail.iter().map(|line| line.action.as_str()).collect();
    assert_eq!(
        did,
        ["user.remove", "user.passwd", "user.set", "user.set", "user.set", "user.set", "user.add"],
        "every change has its line"
    );
}

#[tokio::test]
async fn somebody_else_is_logged_out_from_the_settings_and_the_secret_of_a_session_is_nowhere() {
    let house = house().await;
    let (root, olga) = (house.as_role("root").await, house.as_role("olga").await);
    assert_eq!(house.get("/", &olga).await.status, StatusCode::OK);
    let page = house.get("/settings", &root).await.text;
    let secret = olga.split_once('=').unwrap().1;
    assert!(page.contains("Who is logged in") && page.contains("this one") && !page.contains(secret), "{page}");
    let listed = house.get("/api/v1/console/sessions", &root).await;
    let lines: serde_json::Value = serde_json::from_str(&listed.text).unwrap();
    let line = lines.as_array().unwrap().iter().find(|line| line["name"] == "olga").unwrap();
    assert!(!listed.text.contains(secret));
    assert_eq!(house.get("/api/v1/console/sessions", &olga).await.status, StatusCode::FORBIDDEN);
    let ended =
        said(&house, &root, ("/settings", "/settings/sessions/end"), &format!("number={}", line["number"])).await;
    assert!(ended.contains("olga is logged out"), "{ended}");
    assert_eq!(house.get("/", &olga).await.status, StatusCode::SEE_OTHER, "to the login");
    assert!(said(&house, &root, ("/settings", "/settings/sessions/end"), "number=99").await.contains("is over"));
    let trail = house.administration.audit.newest("olga", 1).await.unwrap();
    assert_eq!((trail[0].action.as_str(), trail[0].actor.as_str()), ("console.session.end", "console:root"));
}

#[tokio::test]
async fn what_cannot_be_operated_here_says_so() {
    let house = house().await;
    let root = house.as_role("root").await;
    let bans = house.get("/bans", &root).await;
    assert!(bans.status == StatusCode::CONFLICT && bans.text.contains("No mail server runs here"), "{}", bans.text);
    assert!(house.get("/queue", &root).await.text.contains("Nothing waits for delivery"));
    let token = house.get("/", &root).await.token();
    let with_token =
        [("cookie", root.as_str()), ("content-type", "application/json"), ("x-weir-token", token.as_str())];
    let lifted = house.send(Method::POST, "/api/v1/bans/lift", &with_token, "{\"address\":\"192.0.2.7\"}").await;
    assert_eq!(lifted.status, StatusCode::CONFLICT);
    let health = house.get("/api/v1/health", &root).await;
    let health: serde_json::Value = serde_json::from_str(&health.text).unwrap();
    assert_eq!((&health["verdict"], &health["problems"][0]["says"]), (&"failing".into(), &"Weir does not run".into()));
}

#[tokio::test]
async fn a_change_on_a_page_that_fails_half_way_has_its_line() {
    let house = house().await;
    let root = house.as_role("root").await;
    // The account is made, and then its line cannot be written.
    house.in_records(
        "create trigger planted before insert on audit when new.action = 'console.add' begin select raise(abort, 'planted'); end",
    );
    let add = ("/settings", "/settings/accounts/add");
    let fields = "name=carl&role=operator";
    let told = said(&house, &root, add, fields).await;
    assert!(told.contains("said not") && !told.contains("carl may log in"), "{told}");
    assert!(house.administration.accounts.list().await.unwrap().iter().any(|account| account.name == "carl"));
    let lines = house.administration.audit.newest("", 20).await.unwrap();
    let doubted: Vec<_> = lines.iter().filter(|line| line.action == "interrupted").collect();
    assert_eq!(doubted.len(), 1, "{lines:?}");
    assert_eq!(
        (doubted[0].actor.as_str(), doubted[0].subject.as_str()),
        ("console:root", "POST /settings/accounts/add")
    );
    // What somebody got wrong is no error of Weir.
    assert!(said(&house, &root, add, fields).await.contains("already an account carl"));
    let lines = house.administration.audit.newest("", 20).await.unwrap();
    assert_eq!(lines.iter().filter(|line| line.action == "interrupted").count(), 1, "{lines:?}");
}
