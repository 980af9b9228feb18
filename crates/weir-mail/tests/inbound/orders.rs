//! Orders from outside: what a contact writes to the address in a notice comes by the MX.

use super::gate::{Client, Gate, Plan};
use super::submitted::{Recipients, mail};
use weir_mail::notices::crafted::{self, Action, Order};
use weir_store::records::HeldFilter;

const TEXT: &str = "Subject: yes\r\n\r\nplease";

/// An address of this gate that asks for something about ann's mail, of which two recipients wait.
async fn order(gate: &Gate, action: Action) -> String {
    gate.throttling.submit(mail("ann", &Recipients { first: 0, count: 17 }, "m1", "r1")).await.unwrap();
    let token = crafted::new_token().unwrap();
    let order = Order {
        action,
        identity: "ann".into(),
        up_to: 1,
        situation: 0,
        told: "ann@private.example".into(),
        only: None,
    };
    gate.records.tokens().add(&crafted::digest(&token), &order.purpose(), i64::MAX, 0).await.unwrap();
    action.address(&token, "mx.example.org")
}

async fn waiting(gate: &Gate) -> usize {
    gate.records.held().list(&HeldFilter::default(), 99).await.unwrap().len()
}

#[tokio::test]
async fn a_contact_decides_from_outside() {
    let gate = Gate::start(Plan::default()).await;
    let order = order(&gate, Action::Release).await;
    assert_eq!(waiting(&gate).await, 2);
    let mut stranger = gate.client().await;
    let other = stranger.rcpt("<weir+release-aaaaaaaaaaaaaaaaaaaaaaaaaa@mx.example.org>").await;
    assert!(other.starts_with("550 5.7.1 this address has been used"), "{other}");
    let relayed = stranger.rcpt("<weir@mx.example.org>").await;
    assert!(relayed.starts_with("550 5.7.1 relaying denied"), "{relayed}");
    let done = stranger.mail("ann@private.example", &[&order], TEXT).await;
    assert!(done.starts_with("250 2.0.0 done for ann: 2 go, 0 deleted"), "{done}");
    assert_eq!((waiting(&gate).await, gate.gone.ids().len()), (0, 0), "the order itself goes nowhere");
    let again = stranger.mail("ann@private.example", &[&order], TEXT).await;
    assert!(again.starts_with("550 ") && again.contains("has been used"), "{again}");
}

#[tokio::test]
async fn a_listed_peer_brings_orders_among_other_mail() {
    let gate = Gate::start(Plan { trusted: &["127.0.0.1"], hand_back: true, ..Plan::default() }).await;
    let order = order(&gate, Action::Delete).await;
    let mut postfix = gate.client().await;
    let taken = postfix.mail("ann@private.example", &[&order, "bob@elsewhere.example"], TEXT).await;
    assert!(taken.starts_with("250 ") && taken.contains("accepted"), "{taken}");
    assert_eq!((waiting(&gate).await, gate.gone.recipients()), (0, vec!["bob@elsewhere.example".to_owned()]));
    let mut lmtp = Client::connect(gate.lmtp).await;
    lmtp.say("LHLO client.example").await;
    let again = lmtp.rcpt(&format!("<{order}>")).await;
    assert!(again.starts_with("550 ") && again.contains("has been used"), "{again}");
}
