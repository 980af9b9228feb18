//! Samples from their submission to their end, one rule per test.

use super::super::needs::{PluginId, Plugins, Tags};
use super::super::output::Assignment;
use super::super::why::{Unmet, Why};
use super::*;
use alloc::vec;

const NOW: Instant = Instant(1_000);

fn submission(directory: u64, submitter: u64, plugins: u128) -> Submission {
    Submission {
        directory: Directory::new(directory).unwrap(),
        submitter: SubmitterId(submitter),
        needs: Needs { plugins: Plugins(plugins), tags: Tags::NONE },
    }
}

fn lab(vms: &[u128]) -> (Scheduler, GroupId) {
    let mut lab = Scheduler::new(Settings::default());
    let offers: Vec<Offer> = vms.iter().map(|plugins| Offer { plugins: Plugins(*plugins), tags: Tags::NONE }).collect();
    let group = lab.plug(NOW, &offers).unwrap();
    (0..vms.len() as u8).for_each(|number| assert!(lab.ready(NOW, VmId { group, number })));
    (lab, group)
}

fn starts(lab: &mut Scheduler) -> Vec<Assignment> {
    let outputs = core::iter::from_fn(|| lab.poll());
    outputs.filter_map(|output| if let Output::Start(start) = output { Some(start) } else { None }).collect()
}

fn report_all(lab: &mut Scheduler, start: &Assignment) {
    for plugin in start.plugins.iter() {
        lab.result(NOW, start.attempt, plugin, true);
    }
}

/// The paper's example: VM1 has plugin 1, VM2 has plugins 1 and 2.
#[test]
fn what_ran_once_waits_in_next_while_current_has_work_for_the_vm() {
    let (mut lab, group) = lab(&[0b01, 0b11]);
    let vm2 = VmId { group, number: 1 };
    let [busy, first, other] = [0b11, 0b11, 0b10].map(|plugins| lab.submit(NOW, &submission(32, 0, plugins)).unwrap());
    let started = starts(&mut lab);
    assert_eq!(started.iter().map(|s| (s.attempt.sample, s.vm.number)).collect::<Vec<_>>(), [(busy, 1), (first, 0)]);
    report_all(&mut lab, &started[1]);
    report_all(&mut lab, &started[0]);
    assert_eq!((lab.waiting(group, Waiting::Current), lab.waiting(group, Waiting::Next)), (vec![other], vec![first]));
    for expected in [other, first] {
        lab.ready(NOW, vm2);
        let start = starts(&mut lab)[0];
        assert_eq!(start.attempt.sample, expected);
        report_all(&mut lab, &start);
    }
    assert_eq!(lab.why(first), Why::Ended(SampleEnd::Done));
}

#[test]
fn real_time_goes_back_to_the_tail_of_current() {
    let (mut lab, group) = lab(&[0b01, 0b10]);
    let a = lab.submit(NOW, &submission(0, 0, 0b11)).unwrap();
    starts(&mut lab);
    let normal = lab.submit(NOW, &submission(40, 0, 0b11)).unwrap();
    let started = starts(&mut lab);
    assert_eq!(started[0].attempt.sample, normal);
    report_all(&mut lab, &started[0]);
    lab.result(NOW, super::super::sample::AttemptId { sample: a, number: 1 }, PluginId::new(0).unwrap(), true);
    assert_eq!(lab.waiting(group, Waiting::Current), [a], "directory 0 returns to current");
    assert_eq!(lab.waiting(group, Waiting::Next), [normal], "directory 40 goes to next");
}

#[test]
fn a_sample_that_kills_its_vm_ends_in_quarantine() {
    let (mut lab, group) = lab(&[1]);
    let vm = VmId { group, number: 0 };
    let killer = lab.submit(NOW, &submission(32, 0, 1)).unwrap();
    for attempt in 1..=3 {
        assert_eq!(starts(&mut lab)[0].attempt.number, attempt);
        lab.vm_lost(NOW, vm);
        lab.ready(NOW, vm);
    }
    assert_eq!(lab.why(killer), Why::Ended(SampleEnd::Quarantined));
    assert!(starts(&mut lab).is_empty());
}

#[test]
fn what_is_put_off_is_not_charged_and_waits_in_no_queue() {
    let (mut lab, group) = lab(&[0b11]);
    let vm = VmId { group, number: 0 };
    let sample = lab.submit(NOW, &submission(32, 0, 0b11)).unwrap();
    for number in 1..=10 {
        let start = starts(&mut lab)[0];
        assert_eq!(start.attempt.number, number);
        assert!(lab.put_off(NOW, start.attempt) && !lab.put_off(NOW, start.attempt));
        lab.ready(NOW, vm);
        assert!(starts(&mut lab).is_empty(), "not before it is resumed");
        assert_eq!((lab.why(sample), lab.audit()), (Why::PutOff, Ok(())));
        assert!(lab.resume(NOW, sample) && !lab.resume(NOW, sample));
    }
    let start = starts(&mut lab)[0];
    lab.put_off(NOW, start.attempt);
    for plugin in [0, 1] {
        lab.known(NOW, sample, PluginId::new(plugin).unwrap());
    }
    assert_eq!(lab.why(sample), Why::Ended(SampleEnd::Done), "late results count meanwhile");
    assert!(!lab.resume(NOW, sample));
    let other = lab.submit(NOW, &submission(32, 0, 0b11)).unwrap();
    lab.ready(NOW, vm);
    let start = starts(&mut lab)[0];
    lab.put_off(NOW, start.attempt);
    assert!(lab.cancel(NOW, other));
}

#[test]
fn threshold_runs_from_the_start_and_a_late_first_result_counts() {
    let (mut lab, group) = lab(&[1]);
    let sample = lab.submit(NOW, &submission(32, 0, 1)).unwrap();
    let start = starts(&mut lab)[0];
    assert_eq!(lab.next_deadline(), Some(NOW + Duration::from_secs(600)));
    lab.tick(start.deadline);
    assert!(matches!(lab.poll(), Some(Output::Stop { reason: StopReason::Expired, .. })));
    lab.ready(start.deadline, VmId { group, number: 0 });
    assert_eq!(starts(&mut lab)[0].attempt.number, 2);
    use super::super::attempts::ResultStatus;
    let plugin = PluginId::new(0).unwrap();
    assert_eq!(lab.result(start.deadline, start.attempt, plugin, true), ResultStatus::Accepted);
    assert!(matches!(lab.poll(), Some(Output::Stop { reason: StopReason::Satisfied, .. })));
    assert_eq!(lab.why(sample), Why::Ended(SampleEnd::Done));
    assert_eq!(lab.result(start.deadline, start.attempt, plugin, true), ResultStatus::Duplicate);
    assert!(lab.forget(sample) && lab.is_empty());
    assert_eq!(lab.result(start.deadline, start.attempt, plugin, true), ResultStatus::Unknown);
}

#[test]
fn why_names_the_unmet_need() {
    let (mut lab, _) = lab(&[0b01]);
    let missing = lab.submit(NOW, &submission(32, 0, 0b100)).unwrap();
    let gives_up_at = NOW + Duration::from_secs(3600);
    assert_eq!(lab.why(missing), Why::NoMachine { unmet: Unmet::Plugins(Plugins(0b100)), gives_up_at });
    let mut tagged = submission(32, 0, 0b01);
    tagged.needs.tags = Tags(0b10);
    let tagged = lab.submit(NOW, &tagged).unwrap();
    assert_eq!(lab.why(tagged), Why::NoMachine { unmet: Unmet::Tags(Tags(0b10)), gives_up_at });
    let ids: Vec<SampleId> = (0..9).map(|_| lab.submit(NOW, &submission(32, 0, 0b101)).unwrap()).collect();
    let Why::Running { until, .. } = lab.why(ids[0]) else { panic!() };
    let behind = |id| match lab.why(id) {
        Why::Busy { vms: 1, on_revert: 0, until_about, behind, missing } => {
            assert_eq!((until_about, missing), (until, Plugins(0b100)));
            behind
        }
        other => panic!("{other:?}"),
    };
    assert_eq!([1, 2, 3, 8].map(|i| behind(ids[i])), [0, 1, 0, 5], "two wait in current, six in the run queue");
    lab.tick(gives_up_at);
    assert_eq!(lab.why(missing), Why::Ended(SampleEnd::Unserviceable));
}

#[test]
fn a_closed_machine_holds_nothing_back() {
    let (mut lab, group) = lab(&[1]);
    let ids: Vec<SampleId> = (0..4).map(|_| lab.submit(NOW, &submission(32, 0, 1)).unwrap()).collect();
    let running = starts(&mut lab)[0];
    assert_eq!(lab.waiting(group, Waiting::Current), [ids[1], ids[2]]);
    assert!(lab.close(NOW, group));
    assert!(lab.waiting(group, Waiting::Current).is_empty() && lab.audit().is_ok());
    let other = lab.plug(NOW, &[Offer { plugins: Plugins(1), tags: Tags::NONE }; 3]).unwrap();
    (0..3).for_each(|number| assert!(lab.ready(NOW, VmId { group: other, number })));
    assert_eq!(starts(&mut lab).len(), 3);
    report_all(&mut lab, &running);
    assert_eq!(lab.why(ids[0]), Why::Ended(SampleEnd::Done));
}

#[test]
fn what_a_machine_offers_later_is_used() {
    let (mut lab, group) = lab(&[0b01, 0b01]);
    let sample = lab.submit(NOW, &submission(32, 0, 0b10)).unwrap();
    let none = Offer { plugins: Plugins::NONE, tags: Tags::NONE };
    assert!(!lab.offer_more(NOW, group, &[none]), "it has two");
    assert!(lab.offer_more(NOW, group, &[none, none]) && starts(&mut lab).is_empty());
    assert!(lab.offer_more(NOW, group, &[none, Offer { plugins: Plugins(0b10), ..none }]));
    let start = starts(&mut lab)[0];
    assert_eq!((start.attempt.sample, start.vm.number, start.plugins), (sample, 1, Plugins(0b10)));
    assert_eq!((lab.next_deadline(), lab.audit()), (Some(start.deadline), Ok(())));
}

#[test]
fn a_queue_that_nobody_serves_ends_in_pieces() {
    let (mut lab, _) = lab(&[0b01]);
    let ids: Vec<SampleId> = (0..2_500).map(|_| lab.submit(NOW, &submission(32, 0, 0b10)).unwrap()).collect();
    let due = lab.next_deadline().unwrap();
    for left in [1_500, 500, 0] {
        lab.tick(due);
        let ended = ids.iter().filter(|id| lab.why(**id) == Why::Ended(SampleEnd::Unserviceable)).count();
        assert_eq!(ended, 2_500 - left);
        assert_eq!(lab.next_deadline(), (left > 0).then_some(due));
    }
    assert_eq!(lab.audit(), Ok(()));
}

#[test]
fn a_flood_of_one_submitter_delays_another_by_one_turn() {
    let (mut lab, group) = lab(&[1]);
    (0..1000).for_each(|_| assert!(lab.submit(NOW, &submission(32, 1, 1)).is_ok()));
    let late = lab.submit(NOW, &submission(32, 2, 1)).unwrap();
    let mut before = 0;
    while lab.why(late) != (Why::Ended(SampleEnd::Done)) {
        let start = starts(&mut lab)[0];
        report_all(&mut lab, &start);
        lab.ready(NOW, VmId { group, number: 0 });
        before += 1;
    }
    assert_eq!(before, 5, "one that ran, two in current, one turn of the other, itself");
}

#[test]
fn absurd_input_is_refused() {
    let (mut lab, group) = lab(&[1]);
    assert_eq!(lab.submit(NOW, &submission(32, 0, 0)), Err(RunqRefusal::NothingToRun));
    assert_eq!(lab.plug(NOW, &[]), Err(RunqRefusal::VmCount));
    assert_eq!(lab.plug(NOW, &[Offer { plugins: Plugins(1), tags: Tags::NONE }; 129]), Err(RunqRefusal::VmCount));
    assert!(!lab.ready(NOW, VmId { group, number: 200 }) && !lab.vm_lost(NOW, VmId { group, number: 1 }));
    assert!(lab.unplug(NOW, group) && !lab.unplug(NOW, group) && !lab.ready(NOW, VmId { group, number: 0 }));
}
