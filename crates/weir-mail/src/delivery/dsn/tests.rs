use super::*;
use crate::delivery::ledger::DeliveryProgress;
use crate::delivery::queue::{Attempt, DueTask, Queue, QueueSettings};
use crate::delivery::route::Target;
use crate::delivery::window::Feedback;
use std::time::Duration;
use weir_smtp::client::content::BodySource;
use weir_smtp::outcome::Status;
use weir_store::spool::Piece;

const ORIGINAL: &str = "From: a@b\r\nMessage-ID: <x@y>\r\nSubject: hi\r\n\r\nbody\r\n";

struct Text(Option<Piece>);

impl BodySource for Text {
    type Piece = Piece;
    type Error = LedgerError;

    async fn next(&mut self) -> Result<Option<Piece>, LedgerError> {
        Ok(self.0.take())
    }
}

fn settings() -> ReportSettings {
    ReportSettings { hostname: "mail.example".into(), postmaster: "postmaster@mail.example".into(), returned_max: 1000 }
}

fn message(sender: &str, to: &str) -> OutgoingMessage {
    OutgoingMessage {
        id: "0dh3k9w2m1c8t0qzx4pn".parse().unwrap(),
        owner: "ann".into(),
        sender: MailFrom::parse(sender).unwrap(),
        recipients: Box::new([Recipient { index: 0, to: RcptTo::parse(to, true).unwrap() }]),
        size_bytes: ORIGINAL.len() as u64,
        accepted_at: Instant(1_794_798_240_000_000_000),
        sign: true,
        added: "".into(),
        hand_back: false,
        long_lines: false,
    }
}

/// The report that the queue asks for after this outcome.
fn report(message: OutgoingMessage, outcome: DeliveryOutcome) -> SenderReport {
    let now = message.accepted_at;
    let mut queue = Queue::new(QueueSettings::default());
    queue.enqueue(message.into(), |_| Target { route: 0, domain: "".into() }, now);
    let assignment = queue.next(now).unwrap();
    let attempt = Attempt {
        outcomes: vec![outcome],
        feedback: Feedback::Reached,
        untried: false,
        reports_itself: false,
        arrived: true,
    };
    let settled = queue.settle(assignment.parcel, &attempt, now);
    assert!(settled.is_none_or(|settled| settled.progress.iter().all(|p| !matches!(p, DeliveryProgress::Failed(_)))));
    let later = now + Duration::from_secs(5 * 3600);
    loop {
        match queue.due_task(later).expect("a report") {
            DueTask::Report(report) => return report,
            DueTask::Settle(_) => {}
        }
    }
}

async fn composed(report: &SenderReport) -> (OwnMail, String) {
    let body = Text(Some(ORIGINAL.as_bytes().to_vec().into()));
    let returned = Returned::read(report, &settings(), Ok(body)).await;
    let mail = compose(report, &settings(), &returned, Instant(1_794_800_000_000_000_000)).unwrap();
    let text = String::from_utf8(mail.text.clone()).unwrap();
    assert!(text.replace("\r\n", "").bytes().all(|byte| byte != b'\r' && byte != b'\n'), "CR LF only");
    assert!(text.lines().all(|line| line.len() < 1100));
    (mail, text)
}

fn refused(text: &str) -> DeliveryOutcome {
    let outcome = DeliveryOutcome::permanent(Status(5, 1, 1), text).by(&"mx.example[192.0.2.1:25]".into());
    DeliveryOutcome { code: Some(550), ..outcome }
}

#[tokio::test]
async fn a_failure_is_told_to_people_and_programs() {
    let message = message("<a@b> ENVID=Q+2B7", "<c@d> ORCPT=rfc822;old+2Bc@d");
    let (mail, text) = composed(&report(message, refused("no such user"))).await;
    assert_eq!(mail.envelope.sender, MailFrom::default());
    assert_eq!(mail.envelope.recipients[0].to.mailbox.as_str(), "a@b");
    for expected in [
        "Content-Type: multipart/report; report-type=delivery-status;",
        "Subject: Your mail could not be delivered\r\n",
        "In-Reply-To: <x@y>\r\n",
        "Auto-Submitted: auto-replied\r\n",
        "The server mx.example[192.0.2.1:25] says:\r\n    550 5.1.1 no such user\r\n    Check the address",
        "Reporting-MTA: dns; mail.example\r\nOriginal-Envelope-Id: Q+7\r\nArrival-Date: ",
        "Original-Recipient: rfc822; old+c@d\r\nFinal-Recipient: rfc822; c@d\r\nAction: failed\r\nStatus: 5.1.1\r\n",
        "Remote-MTA: dns; mx.example[192.0.2.1:25]\r\nDiagnostic-Code: smtp; 550 5.1.1 no such user\r\n",
        "Content-Type: text/rfc822-headers\r\n",
        "\r\n\r\nFrom: a@b\r\nMessage-ID: <x@y>\r\nSubject: hi\r\n\r\n--",
    ] {
        assert!(text.contains(expected), "{expected:?} is missing in\n{text}");
    }
    assert!(!text.contains("body\r\n") && text.is_ascii());
}

#[tokio::test]
async fn all_of_it_goes_back_if_asked_for_and_short() {
    let (_, text) = composed(&report(message("<a@b> RET=FULL", "<c@d>"), refused("no"))).await;
    assert!(text.contains("message/rfc822\r\n") && text.contains("\r\n\r\nbody\r\n"));
    let mut large = message("<a@b> RET=FULL", "<c@d>");
    large.size_bytes = 1001;
    let (_, text) = composed(&report(large, refused("no"))).await;
    assert!(text.contains("text/rfc822-headers") && !text.contains("body\r\n"));
}

#[tokio::test]
async fn a_delay_says_that_nothing_need_be_done() {
    let outcome = DeliveryOutcome::temporary(Status(4, 4, 1), "cannot connect: no answer in time");
    let (_, text) = composed(&report(message("<a@b> RET=FULL", "<c@d>"), outcome)).await;
    for expected in [
        "Your mail is delayed",
        "You need not do anything",
        "Action: delayed",
        "Will-Retry-Until: ",
        "text/rfc822-headers",
    ] {
        assert!(text.contains(expected), "{expected:?} is missing in\n{text}");
    }
}

#[tokio::test]
async fn success_is_told_as_such() {
    let (_, text) = composed(&report(message("<a@b>", "<c@d> NOTIFY=SUCCESS"), DeliveryOutcome::delivered("ok"))).await;
    assert!(
        text.contains("Subject: Your mail was delivered") && text.contains("Action: delivered\r\nStatus: 2.0.0"),
        "{text}"
    );
}

#[tokio::test]
async fn what_arrived_does_not_go_back() {
    let asked = message("<a@b> RET=FULL", "<c@d> NOTIFY=SUCCESS");
    let (_, text) = composed(&report(asked, DeliveryOutcome::delivered("ok"))).await;
    assert!(text.contains("text/rfc822-headers") && !text.contains("body\r\n"), "{text}");
}

#[tokio::test]
async fn a_report_names_who_caused_it_unless_that_was_a_stranger() {
    let owner = async |sign| {
        let (mail, _) = composed(&report(OutgoingMessage { sign, ..message("<a@b>", "<c@d>") }, refused("no"))).await;
        mail.envelope.owner.to_string()
    };
    assert_eq!((owner(true).await.as_str(), owner(false).await.as_str()), ("ann", ""));
}

#[tokio::test]
async fn nothing_from_outside_forges_a_field_or_a_part() {
    let hostile = refused("x\r\nAction: delivered\r\n\r\n--weir-\u{7f}é");
    let (_, text) = composed(&report(message("<a@b>", "<\"x y\"@d>"), hostile)).await;
    assert_eq!(text.matches("Action: delivered\r\n").count(), 0);
    assert!(text.is_ascii() && text.contains("Final-Recipient: rfc822; \"x y\"@d\r\n"));
}

#[tokio::test]
async fn an_international_address_makes_an_international_report() {
    let (mail, text) = composed(&report(message("<ü@b> SMTPUTF8", "<ä@d>"), refused("nein, ö"))).await;
    assert!(mail.envelope.sender.smtputf8 && mail.envelope.sender.eight_bit);
    for expected in
        ["message/global-delivery-status", "Final-Recipient: utf-8; ä@d", "message/global-headers", "nein, ö"]
    {
        assert!(text.contains(expected), "{expected:?} is missing in\n{text}");
    }
}

#[tokio::test]
async fn a_huge_header_is_cut_at_a_line() {
    let report = report(message("<a@b>", "<c@d>"), refused("no"));
    let header = "X: y\r\n".repeat(10_000);
    let returned = Returned::read(&report, &settings(), Ok(Text(Some(header.into_bytes().into())))).await;
    assert!(returned.text.len() <= HEADER_MAX && returned.text.ends_with(b"X: y\r\n"));
    let nothing = Returned::read(&report, &settings(), Err::<Text, _>(LedgerError::Unknown)).await;
    assert_eq!(nothing, Returned::default());
    assert!(compose(&report, &settings(), &nothing, Instant(0)).is_some());
}
