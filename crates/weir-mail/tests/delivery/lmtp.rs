//! LMTP: one last reply a recipient.

use weir_mail::delivery::route::{Endpoint, HostOrder, Route, Smarthost};
use weir_smtp::client::approach::Approach;

use super::memory_ledger::{MemoryLedger, settings_for, start};
use super::server::{Say, Server, Step};

#[tokio::test]
async fn each_recipient_has_its_own_end() {
    let server = Server::start(|_, step, _| match step {
        Step::Rcpt | Step::Hello => Say::Usual,
        Step::End => Say::Raw("250 2.1.5 stored\r\n550 5.2.2 over quota\r\n250 2.1.5 stored\r\n".into()),
        _ => Say::Usual,
    })
    .await;
    let ledger = MemoryLedger::default();
    let approach = Approach { lmtp: true, ..Approach::default() };
    let hosts = vec![Endpoint::Host("127.0.0.1".into(), server.port)];
    let route = Route::Lmtp(Smarthost { hosts, order: HostOrder::Failover, approach });
    let delivery = start(settings_for(route), &ledger);
    let message = ledger.message(
        "<a@sender.example>",
        &["<b@x.example>", "<c@x.example>", "<d@x.example> NOTIFY=SUCCESS"],
        "x\r\n",
    );
    let id = message.id;
    delivery.enqueue(message);
    ledger.finished(id).await;
    assert!(server.commands()[0].starts_with("LHLO client.example"));
    let report = ledger.report().await;
    assert!(report.contains("Final-Recipient: rfc822; c@x.example\r\nAction: failed\r\nStatus: 5.2.2"), "{report}");
    assert!(!report.contains("b@x.example"), "{report}");
}
