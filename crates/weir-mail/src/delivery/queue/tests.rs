//! Tests of the queue in a small simulated world: whatever fails, every message ends exactly once, and every sender gets the reports that
//! are due.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use weir_smtp::envelope::{MailFrom, Notify, RcptTo};

fn at(seconds: u64) -> Instant {
    Instant::ZERO + Duration::from_secs(seconds)
}

fn id(number: usize) -> MessageId {
    format!("{:0>20}", number % 1_000_000).replace(['i', 'l', 'o', 'u'], "0").parse().unwrap()
}

fn message(number: usize, sender: &str, recipients: &[&str]) -> OutgoingMessage {
    let recipients = recipients.iter().enumerate();
    let recipients =
        recipients.map(|(index, to)| Recipient { index: index as u32, to: RcptTo::parse(to, false).unwrap() });
    OutgoingMessage {
        id: id(number),
        owner: format!("owner{}", number % 3).into(),
        sender: MailFrom::parse(sender).unwrap(),
        recipients: recipients.collect(),
        size_bytes: 100,
        accepted_at: at(1000),
        sign: false,
        added: "".into(),
        hand_back: false,
        long_lines: false,
    }
}

fn by_domain(recipient: &Recipient) -> Target {
    Target { route: 0, domain: recipient.to.mailbox.domain().into() }
}

fn reached(outcomes: Vec<DeliveryOutcome>) -> Attempt {
    Attempt { outcomes, feedback: Feedback::Reached, untried: false, reports_itself: false, arrived: false }
}

fn ok() -> DeliveryOutcome {
    DeliveryOutcome::delivered("ok")
}

fn later() -> DeliveryOutcome {
    DeliveryOutcome::temporary(Status(4, 2, 2), "full")
}

fn never() -> DeliveryOutcome {
    DeliveryOutcome::permanent(Status(5, 1, 1), "no such user")
}

#[test]
fn a_message_that_is_delivered_is_finished() {
    let mut queue = Queue::new(QueueSettings::default());
    assert_eq!(queue.enqueue(message(1, "<a@b>", &["<c@d>"]).into(), by_domain, at(1000)), None);
    let assignment = queue.next(at(1000)).unwrap();
    assert_eq!((&*assignment.target.domain, &assignment.places[..]), ("d", &[0][..]));
    assert!(queue.next(at(1000)).is_none());
    let settlement = queue.settle(assignment.parcel, &reached(vec![ok()]), at(1001)).unwrap();
    assert_eq!(settlement, Settlement { id: id(1), progress: vec![], finished: Some([0].into()) });
    assert!(queue.is_empty() && queue.next_deadline().is_none());
}

#[test]
fn recipients_of_one_destination_share_a_delivery_and_fail_alone() {
    let mut queue = Queue::new(QueueSettings { recipients_max: 2, ..QueueSettings::default() });
    let recipients = ["<a@x>", "<b@y>", "<c@x>", "<d@x>"];
    queue.enqueue(message(1, "<s@s>", &recipients).into(), by_domain, at(1000));
    let mut sizes = Vec::new();
    while let Some(assignment) = queue.next(at(1000)) {
        let outcomes =
            assignment.places.iter().enumerate().map(|(nth, _)| if nth == 0 { ok() } else { never() }).collect();
        sizes.push(assignment.places.len());
        let settlement = queue.settle(assignment.parcel, &reached(outcomes), at(1000)).unwrap();
        assert!(matches!(&settlement.progress[..], [DeliveryProgress::Delivered(one)] if one.len() == 1));
        assert_eq!(settlement.finished, None);
    }
    sizes.sort_unstable();
    assert_eq!(sizes, [1, 1, 2]);
    let Some(DueTask::Report(report)) = queue.due_task(at(1000)) else { panic!("the failure is reported") };
    assert_eq!((report.kind, report.recipients.len()), (ReportKind::Final, 1));
    let settlement = queue.reported(&report, true, at(1000)).unwrap();
    assert!(settlement.finished.is_some() && queue.is_empty());
}

#[test]
fn a_delay_is_told_once_and_the_end_is_told() {
    let mut queue = Queue::new(QueueSettings::default());
    queue.enqueue(message(1, "<a@b>", &["<c@d>"]).into(), by_domain, at(1000));
    let (mut delays, mut failures, mut attempts) = (0, 0, 0);
    let mut now = at(1000);
    while !queue.is_empty() {
        while let Some(assignment) = queue.next(now) {
            attempts += 1;
            queue.settle(assignment.parcel, &reached(vec![later()]), now);
        }
        while let Some(task) = queue.due_task(now) {
            let DueTask::Report(report) = task else { continue };
            match report.kind {
                ReportKind::Delay => delays += 1,
                ReportKind::Final => failures += 1,
            }
            assert_eq!(report.recipients.len(), 1);
            if report.kind == ReportKind::Final {
                assert!(report.recipients[0].outcome.text.contains("full"), "the last answer is in the report");
            }
            queue.reported(&report, true, now);
        }
        now = queue.next_deadline().unwrap_or(now).max(now);
    }
    assert_eq!((delays, failures), (1, 1));
    assert_eq!(now, at(1000 + 5 * 86400));
    assert!((30..60).contains(&attempts), "{attempts} attempts in five days");
}

#[test]
fn mail_that_never_left_expires_with_the_destinations_trouble() {
    let mut queue = Queue::new(QueueSettings::default());
    for number in 0..10 {
        queue.enqueue(message(number, "<a@b>", &["<c@d>"]).into(), by_domain, at(1000));
    }
    let (mut now, mut reports, mut tries) = (at(1000), 0, 0);
    while !queue.is_empty() {
        while let Some(assignment) = queue.next(now) {
            tries += 1;
            let outcome = DeliveryOutcome::temporary(Status(4, 4, 1), "cannot connect");
            let attempt = Attempt { feedback: Feedback::Unreachable, untried: true, ..reached(vec![outcome]) };
            queue.settle(assignment.parcel, &attempt, now);
        }
        while let Some(task) = queue.due_task(now) {
            if let DueTask::Report(report) = task {
                assert!(report.recipients[0].outcome.text.contains("cannot connect"), "{report:?}");
                reports += 1;
                queue.reported(&report, true, now);
            }
        }
        now = queue.next_deadline().unwrap_or(now).max(now);
    }
    assert_eq!(reports, 20, "a warning and a failure each");
    assert!(tries < 1000, "a dead host is tried every ten minutes, not for each message: {tries}");
}

#[test]
fn mail_that_is_too_old_at_the_start_has_one_attempt() {
    let (mut queue, late) = (Queue::new(QueueSettings::default()), at(1000 + 9 * 86400));
    for (number, to) in ["<c@d>", "<c@e>"].into_iter().enumerate() {
        queue.enqueue(message(number, "<a@b>", &[to]).into(), by_domain, late);
    }
    // The timer looks at what is due before anything is handed out.
    assert!(queue.due_task(late).is_none(), "nothing is given up untried");
    let (one, other) = (queue.next(late).unwrap(), queue.next(late).unwrap());
    assert!(queue.settle(one.parcel, &reached(vec![ok()]), late).unwrap().finished.is_some());
    assert!(queue.settle(other.parcel, &reached(vec![later()]), late).is_none());
    let Some(DueTask::Report(report)) = queue.due_task(late) else { panic!("the other comes back") };
    assert!(report.kind == ReportKind::Final && report.recipients[0].outcome.text.contains("full"));
    assert!(queue.reported(&report, true, late).unwrap().finished.is_some() && queue.is_empty());
}

#[test]
fn the_last_attempt_comes_before_the_end_is_told() {
    let mut queue = Queue::new(QueueSettings::default());
    queue.enqueue(message(1, "<a@b>", &["<c@d>"]).into(), by_domain, at(1000));
    let first = queue.next(at(1000)).unwrap();
    queue.settle(first.parcel, &reached(vec![later()]), at(1000));
    let end = at(1000 + 5 * 86400);
    while let Some(task) = queue.due_task(end) {
        let DueTask::Report(report) = task else { continue };
        assert_eq!(report.kind, ReportKind::Delay);
        queue.reported(&report, true, end);
    }
    let last = queue.next(end).expect("one more attempt");
    assert!(queue.settle(last.parcel, &reached(vec![ok()]), end).unwrap().finished.is_some());
}

#[test]
fn healthy_recipients_do_not_wait_for_a_sick_one_after_a_restart() {
    let mut queue = Queue::new(QueueSettings::default());
    let sent = message(1, "<a@b>", &["<a@sick>", "<b@well>"]);
    queue.enqueue(sent.clone().into(), by_domain, at(1000));
    // One of both is tried, and then the process ends.
    let sick = std::iter::from_fn(|| queue.next(at(1000))).find(|tried| &*tried.target.domain == "sick").unwrap();
    let settled = queue.settle(sick.parcel, &reached(vec![later()]), at(1000)).unwrap();
    let marks: Vec<_> = settled.progress.iter().flat_map(DeliveryProgress::to_marks).collect();
    let job = Job::resumed(sent, marks.iter().map(|mark| &**mark)).unwrap();
    let mut queue = Queue::new(QueueSettings::default());
    queue.enqueue(job, by_domain, at(1001));
    assert_eq!(&*queue.next(at(1001)).expect("the other goes at once").target.domain, "well");
    assert!(queue.next(at(1001)).is_none());
    assert_eq!(&*queue.next(at(1060)).expect("when its wait is over").target.domain, "sick");
}

#[test]
fn the_operator_can_hasten_and_delete() {
    let mut queue = Queue::new(QueueSettings::default());
    for number in 0..3 {
        queue.enqueue(message(number, "<a@b>", &["<c@d>", "<e@f>"]).into(), by_domain, at(1000));
    }
    while let Some(assignment) = queue.next(at(1000)) {
        queue.settle(assignment.parcel, &reached(vec![later(); assignment.places.len()]), at(1000));
    }
    let listed = queue.list(&Selection::all(), 1, 10);
    assert_eq!(listed.total, 3);
    let listed = listed.messages;
    assert_eq!(listed.len(), 2);
    assert_eq!(listed[0].recipients[0].state, "deferred");
    assert_eq!(listed[0].recipients[0].last_answer.as_deref(), Some("4.2.2 full"));
    assert_eq!(queue.retry(&Selection::messages([id(0)])), [id(0)]);
    let under_way = queue.next(at(1001)).unwrap();
    assert_eq!(under_way.message.id, id(0));
    assert_eq!(queue.list(&Selection::domain("d"), 0, 1).messages.len(), 1);

    // What is under way ends as it ends, and is not tried again.
    let (mut found, settlements) = queue.delete(&Selection::all(), at(1002));
    found.sort_unstable();
    assert_eq!(found, [(id(0), 2), (id(1), 2), (id(2), 2)]);
    assert_eq!(queue.delete(&Selection::all(), at(1002)).0, [(id(0), 0)], "each is lost once");
    assert_eq!(settlements.iter().filter(|settlement| settlement.finished.is_some()).count(), 2);
    let last = queue.settle(under_way.parcel, &reached(vec![later()]), at(1003)).unwrap();
    assert!(last.finished.is_some() && queue.is_empty());
    assert_eq!(queue.stats(|_| String::new()).messages, 0);
}

#[test]
fn a_bounce_makes_no_bounce() {
    let mut queue = Queue::new(QueueSettings::default());
    queue.enqueue(message(1, "<>", &["<c@d>"]).into(), by_domain, at(1000));
    queue.enqueue(message(2, "<a@b>", &["<c@d> NOTIFY=NEVER"]).into(), by_domain, at(1000));
    for _ in 0..2 {
        let assignment = queue.next(at(1000)).unwrap();
        let settlement = queue.settle(assignment.parcel, &reached(vec![never()]), at(1000)).unwrap();
        assert!(settlement.finished.is_some());
    }
    assert!(queue.due_task(at(1000)).is_none() && queue.is_empty());
}

#[test]
fn success_is_told_if_asked_for() {
    let mut queue = Queue::new(QueueSettings::default());
    queue.enqueue(message(1, "<a@b>", &["<c@d> NOTIFY=SUCCESS"]).into(), by_domain, at(1000));
    let assignment = queue.next(at(1000)).unwrap();
    queue.settle(assignment.parcel, &reached(vec![ok()]), at(1000));
    let Some(DueTask::Report(report)) = queue.due_task(at(1000)) else { panic!("a report") };
    assert_eq!(report.recipients[0].action, Action::Relayed);
    assert!(queue.reported(&report, true, at(1000)).unwrap().finished.is_some());

    queue.enqueue(message(2, "<a@b>", &["<c@d> NOTIFY=SUCCESS"]).into(), by_domain, at(1000));
    let assignment = queue.next(at(1000)).unwrap();
    let attempt = Attempt { reports_itself: true, ..reached(vec![ok()]) };
    assert!(queue.settle(assignment.parcel, &attempt, at(1000)).unwrap().finished.is_some());
}

/// What the world does next.
#[derive(Clone, Debug)]
struct Luck(Vec<u8>);

impl Luck {
    fn draw(&mut self, below: u8) -> u8 {
        let drawn = self.0.first().copied().unwrap_or(0);
        self.0.rotate_left(1);
        drawn % below
    }
}

proptest! {
    /// Recipients may be delivered, refused, put off or not reached; reports may fail; messages may be deleted. Then: each
    /// message ends exactly once, each recipient was delivered at most once, and each failure was told exactly once to
    /// the sender who wanted to hear of it.
    #[test]
    fn every_message_ends_once_and_every_failure_is_told_once(
        jobs in proptest::collection::vec((0u8..4, proptest::collection::vec(0u8..6, 1..6)), 1..12),
        luck in proptest::collection::vec(any::<u8>(), 40..120),
    ) {
        let mut luck = Luck(luck);
        let settings = QueueSettings { deliveries_max: 4, recipients_max: 2, ..QueueSettings::default() };
        let mut queue = Queue::new(settings);
        let (mut told, mut delivered, mut ended) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let mut wanted = BTreeMap::new();
        for (number, (sender, recipients)) in jobs.iter().enumerate() {
            let sender = if *sender == 0 { "<>".into() } else { format!("<s{sender}@s>") };
            let recipients: Vec<String> = recipients.iter().map(|r| match r {
                0 => "<n@x> NOTIFY=NEVER".to_owned(),
                1 => "<ok@y> NOTIFY=SUCCESS,FAILURE".to_owned(),
                r => format!("<r{r}@d{}>", r % 3),
            }).collect();
            let recipients: Vec<&str> = recipients.iter().map(String::as_str).collect();
            let message = message(number, &sender, &recipients);
            for recipient in &message.recipients {
                let tell = message.has_sender() && recipient.to.notify != Some(Notify::default());
                wanted.insert((message.id, recipient.index), tell);
            }
            queue.enqueue(message.into(), by_domain, at(1000));
        }
        let (mut now, mut failed, mut steps) = (at(1000), BTreeMap::new(), 0);
        let note = |settlement: Option<Settlement>, ended: &mut BTreeMap<MessageId, usize>| {
            if let Some(settlement) = settlement && settlement.finished.is_some() {
                *ended.entry(settlement.id).or_insert(0) += 1;
            }
        };
        while !queue.is_empty() {
            steps += 1;
            prop_assert!(steps < 20_000, "it never ends");
            let mut under_way = Vec::new();
            while let Some(assignment) = queue.next(now) {
                under_way.push(assignment);
            }
            if luck.draw(40) == 7 {
                let (_, deleted) = queue.delete(&Selection::owner("owner1"), now);
                deleted.into_iter().for_each(|settlement| note(Some(settlement), &mut ended));
            }
            for assignment in under_way {
                let untried = luck.draw(5) == 1;
                let outcomes: Vec<_> = assignment.places.iter().map(|_| match luck.draw(4) {
                    _ if untried => later(),
                    0 => ok(),
                    1 => never(),
                    _ => later(),
                }).collect();
                for (place, outcome) in assignment.places.iter().zip(&outcomes) {
                    let key = (assignment.message.id, assignment.message.recipients[*place].index);
                    match outcome.fate {
                        Fate::Delivered => *delivered.entry(key).or_insert(0) += 1,
                        Fate::Permanent => *failed.entry(key).or_insert(0) += 1,
                        Fate::Temporary => {}
                    }
                }
                let feedback = if untried { Feedback::Unreachable } else { Feedback::Reached };
                let attempt = Attempt { untried, feedback, ..reached(outcomes) };
                note(queue.settle(assignment.parcel, &attempt, now), &mut ended);
            }
            while let Some(task) = queue.due_task(now) {
                steps += 1;
                prop_assert!(steps < 20_000, "due tasks never end");
                match task {
                    DueTask::Settle(settlement) => note(Some(settlement), &mut ended),
                    DueTask::Report(report) => {
                        prop_assert!(report.message.has_sender());
                        let safe = luck.draw(3) != 0;
                        for reported in report.recipients.iter().filter(|r| safe && r.action == Action::Failed) {
                            let key = (report.message.id, report.message.recipients[reported.place].index);
                            *told.entry(key).or_insert(0) += 1;
                        }
                        note(queue.reported(&report, safe, now), &mut ended);
                    }
                }
            }
            let next = queue.next_deadline();
            prop_assert!(queue.is_empty() || next.is_some_and(|next| next > now), "no deadline, or one that has passed");
            now = next.unwrap_or(now);
        }
        prop_assert_eq!(ended.len(), jobs.len());
        prop_assert!(ended.values().chain(delivered.values()).chain(told.values()).all(|count| *count == 1));
        prop_assert!(told.keys().all(|key| !delivered.contains_key(key) && wanted[key]));
        prop_assert!(failed.keys().all(|key| !wanted[key] || told.contains_key(key)), "a failure was not told");
        prop_assert!(queue.senders.is_empty() && queue.targets.is_empty() && queue.alarms.is_empty() && queue.troubles.is_empty());
    }
}
