mod choices;
mod endings;

use super::*;
use crate::job::Level;
use crate::wire::{ChildLimits, PluginOutcome};
use weir_store::records::{NewSample, SampleRow};
use weir_store::samples::SampleHash;

const EPOCH: i64 = 5;

fn at(millis: u64) -> Now {
    Now { clock: Instant(millis * 1_000_000), wall: i64::try_from(millis).unwrap() }
}

fn plugin(name: &str) -> PluginName {
    (name.to_owned(), "1".to_owned())
}

fn sample(id: i64, plugins: &[&str]) -> OpenSample {
    let needs: Vec<PluginName> = plugins.iter().map(|name| plugin(name)).collect();
    let given = NewSample {
        hash: SampleHash([id as u8; 32]).to_string(),
        size: 68,
        name: "a.exe".into(),
        submitter: "ann".into(),
        directory: 32,
        needs: serde_json::json!(needs).to_string(),
        tags: "[]".into(),
        ..NewSample::default()
    };
    let row = SampleRow {
        id,
        given,
        state: "queued".into(),
        why: String::new(),
        ended_at: None,
        verdict: 0,
        reasons: "[]".into(),
    };
    OpenSample { sample: row, have: "[]".into(), charged: "[]".into(), cached: "[]".into() }
}

/// Results in the form of the database.
fn results(names: &[&str], brief: &Brief) -> String {
    let brief = serde_json::to_string(brief).unwrap();
    let rows: Vec<_> = names.iter().map(|name| (name, "1", &brief)).collect();
    serde_json::json!(rows).to_string()
}

/// The same for results of another sample of the same content, which came by this name.
fn results_of(name: &str, plugins: &[&str], brief: &Brief) -> String {
    let brief = serde_json::to_string(brief).unwrap();
    let rows: Vec<_> = plugins.iter().map(|plugin| (plugin, "1", &brief, name)).collect();
    serde_json::json!(rows).to_string()
}

/// Failed attempts in the form of the database, each with one plugin.
fn attempts(names: &[&str]) -> String {
    let each: Vec<String> = names.iter().map(|name| serde_json::json!([plugin(name)]).to_string()).collect();
    serde_json::json!(each).to_string()
}

fn rules() -> Rules {
    let plugin = |name: &str, more: &str| {
        let text = format!("name = \"{name}\"\nversion = \"1\"\nexec = [\"x\"]\n{more}");
        crate::plugin::Plugin::parse(&text, std::path::Path::new("")).unwrap()
    };
    let plugins = [
        plugin("weather", "cache = false\naccepts = [\"none\"]"),
        plugin("unpack", "accepts = [\"application/zip\"]"),
        plugin("strings", ""),
        plugin("signatures", "accepts = [\"none\"]\nvouches = false"),
        plugin("late", "requires = [\"strings\"]\naccepts = [\"text/*\"]"),
    ];
    Rules { plugins: plugins.into(), depth_max: 2, ..Rules::default() }
}

fn child(hash: u8, name: &str, file_type: &str) -> crate::verdict::Child {
    let sha256 = SampleHash([hash; 32]).to_string();
    crate::verdict::Child { sha256, bytes: 5, name: name.into(), file_type: file_type.into() }
}

fn finding(level: Level) -> crate::verdict::Finding {
    crate::verdict::Finding { level, text: format!("{level:?}") }
}

/// A decision with one machine whose VMs run these plugins and are ready.
fn lab(vms: &[&[&str]]) -> (Decision, MachineId) {
    lab_of(rules(), vms)
}

fn lab_of(rules: Rules, vms: &[&[&str]]) -> (Decision, MachineId) {
    let mut lab = Decision::new(Settings::default(), EPOCH, rules);
    let offer = |(number, plugins): (usize, &&[&str])| VmOffer {
        name: format!("vm_{number}"),
        plugins: plugins.iter().map(|name| plugin(name)).collect(),
        tags: Vec::new(),
    };
    let offers: Vec<VmOffer> = vms.iter().enumerate().map(offer).collect();
    let machine = lab.plug(at(0), "n1", &offers).unwrap();
    (0..vms.len()).for_each(|number| lab.vm_status(at(0), machine, &format!("vm_{number}"), wire::VmStatus::default()));
    (lab, machine)
}

fn assigned(work: &Work) -> Vec<wire::Assignment> {
    let assignment = |(_, message): &(MachineId, Message)| match message {
        Message::Assign(assignment) => Some((**assignment).clone()),
        _ => None,
    };
    work.letters.iter().filter_map(assignment).collect()
}

/// Samples that have ended, and how.
fn ended(work: &Work) -> Vec<(i64, &str)> {
    work.batch.changes.iter().map(|change| (change.id, change.state.as_str())).collect()
}

fn brought(attempt: u64, name: &str, valid: bool) -> PluginResult {
    PluginResult {
        attempt: attempt.cast_signed(),
        plugin: plugin(name),
        outcome: if valid { PluginOutcome::Done } else { PluginOutcome::Failed },
        report: "{}".into(),
        brief: Brief::default(),
    }
}

#[test]
fn a_sample_is_written_down_then_sent_then_done() {
    let (mut lab, machine) = lab(&[&["strings", "yara"]]);
    lab.admit(at(1), &sample(11, &["strings", "yara"])).unwrap();
    let work = lab.take();
    let [assignment] = &assigned(&work)[..] else { panic!("{work:?}") };
    let row = &work.batch.attempts[0];
    assert_eq!(
        (row.sample, row.id, row.epoch, row.node.as_str(), row.vm.as_str()),
        (11, EPOCH << 32 | 1, EPOCH, "n1", "vm_0")
    );
    assert_eq!((assignment.attempt.cast_signed(), assignment.epoch), (row.id, 5));
    assert_eq!(lab.result(at(2), machine, brought(assignment.attempt, "yara", true)), ResultStatus::Accepted);
    assert_eq!(lab.result(at(2), machine, brought(assignment.attempt, "yara", true)), ResultStatus::Duplicate);
    assert!(ended(&lab.take()).is_empty());
    assert_eq!(lab.result(at(3), machine, brought(assignment.attempt, "strings", true)), ResultStatus::Accepted);
    let work = lab.take();
    assert_eq!(ended(&work), [(11, "done")]);
    assert_eq!(lab.open(), 0);
}

#[test]
fn what_a_machine_may_not_bring_changes_nothing() {
    let (mut lab, machine) = lab(&[&["strings"]]);
    let other = lab.plug(at(0), "n2", &[VmOffer { name: "vm_0".into(), ..VmOffer::default() }]).unwrap();
    lab.admit(at(1), &sample(11, &["strings"])).unwrap();
    let attempt = assigned(&lab.take())[0].attempt;
    for (machine, brought) in [
        (other, brought(attempt, "strings", true)),
        (machine, brought(attempt + 1, "strings", true)),
        (machine, brought(attempt, "moon", true)),
    ] {
        assert_eq!(lab.result(at(2), machine, brought), ResultStatus::Unknown);
    }
    lab.ended(at(2), other, attempt.cast_signed());
    let work = lab.take();
    assert!(work.batch.is_empty() && work.letters.is_empty(), "{work:?}");
}

#[test]
fn a_machine_that_goes_gives_its_samples_back_and_the_cap_holds() {
    let (mut lab, mut machine) = lab(&[&["strings"]]);
    lab.admit(at(1), &sample(11, &["strings"])).unwrap();
    for life in 0..3 {
        assert_eq!(assigned(&lab.take()).len(), 1, "life {life}");
        lab.unplug(at(2), machine);
        let offer = VmOffer { name: "vm_0".into(), plugins: vec![plugin("strings")], tags: Vec::new() };
        machine = lab.plug(at(3), "n1", &[offer]).unwrap();
        lab.vm_status(at(3), machine, "vm_0", wire::VmStatus::default());
    }
    let work = lab.take();
    assert_eq!(ended(&work), [(11, "quarantined")]);
    assert!(work.batch.ends.iter().all(|end| end.outcome == "lost"));
}

#[test]
fn a_new_leader_goes_on_with_what_the_old_one_had() {
    let (mut lab, _) = lab(&[&["strings", "yara"]]);
    let mut open = sample(11, &["strings", "yara"]);
    open.have = results(&["strings"], &Brief::default());
    lab.admit(at(1), &open).unwrap();
    lab.admit(at(1), &open).unwrap();
    let work = lab.take();
    let calls: Vec<String> = assigned(&work).last().unwrap().plugins.iter().map(|call| call.name.clone()).collect();
    assert!(calls.contains(&"yara".to_owned()), "{calls:?}");
    assert_eq!(lab.open(), 1);
    // The old leader's attempt was not lost after all.
    assert_eq!(lab.late_result(at(2), 11, brought(3 << 32 | 9, "yara", true)), ResultStatus::Accepted);
    let work = lab.take();
    assert_eq!(ended(&work), [(11, "done")]);
    assert_eq!((work.batch.results[0].attempt, work.batch.results[0].accepted), (3 << 32 | 9, 1));
}

#[test]
fn attempts_under_earlier_leaders_count() {
    let (mut lab, machine) = lab(&[&["strings"]]);
    lab.admit(at(1), &OpenSample { charged: attempts(&["strings"; 2]), ..sample(11, &["strings"]) }).unwrap();
    let attempt = assigned(&lab.take())[0].attempt;
    lab.ended(at(2), machine, attempt.cast_signed());
    let work = lab.take();
    assert_eq!(ended(&work), [(11, "quarantined")], "the third that brought nothing");
    assert_eq!(work.batch.ends[0].outcome, "failed");
}

#[test]
fn a_second_turn_has_as_many_attempts_under_the_next_leader_too() {
    let (mut lab, machine) = lab(&[&["strings", "late"]]);
    // Two attempts at the first turn failed, then one succeeded; the leader fell when one at the second had failed.
    let charged = attempts(&["strings", "strings", "late"]);
    let have = results(&["strings"], &Brief::default());
    lab.admit(at(1), &OpenSample { charged, have, ..sample(11, &["strings", "late"]) }).unwrap();
    for life in 0..2 {
        let work = lab.take();
        assert!(ended(&work).is_empty(), "life {life}: {work:?}");
        let attempt = assigned(&work)[0].attempt;
        lab.ended(at(2), machine, attempt.cast_signed());
        lab.vm_status(at(2), machine, "vm_0", wire::VmStatus::default());
    }
    assert_eq!(ended(&lab.take()), [(11, "quarantined")], "the third that brought nothing");
}

#[test]
fn a_machine_that_refuses_charges_nobody_and_rests() {
    let (mut lab, machine) = lab(&[&["strings"]]);
    lab.admit(at(0), &sample(11, &["strings"])).unwrap();
    let mut clock = 0;
    for refusal in 0..8 {
        let work = lab.take();
        let [assignment] = &assigned(&work)[..] else { panic!("{refusal}: {work:?}") };
        lab.refused(at(clock), machine, assignment.attempt.cast_signed(), "the disk is full");
        lab.vm_status(at(clock), machine, "vm_0", wire::VmStatus::default());
        while assigned(&lab.work).is_empty() {
            clock = lab.next_deadline().unwrap().0 / 1_000_000;
            lab.tick(at(clock));
        }
    }
    assert!((100_000..400_000).contains(&clock), "each time it waits longer: {clock}");
    assert!(lab.take().batch.changes.is_empty(), "and is not quarantined");
}

#[test]
fn a_machine_that_refused_by_chance_does_not_rest() {
    let (mut lab, machine) = lab(&[&["strings"]]);
    for id in 1..20 {
        lab.admit(at(0), &sample(id, &["strings"])).unwrap();
        let attempt = assigned(&lab.take())[0].attempt.cast_signed();
        lab.refused(at(0), machine, attempt, "busy");
        lab.vm_status(at(0), machine, "vm_0", wire::VmStatus::default());
        let attempt = assigned(&lab.take())[0].attempt;
        assert_eq!(lab.result(at(0), machine, brought(attempt, "strings", true)), ResultStatus::Accepted);
        lab.ended(at(0), machine, attempt.cast_signed());
        lab.vm_status(at(0), machine, "vm_0", wire::VmStatus::default());
    }
}

#[test]
fn a_sample_without_content_waits_and_its_machine_goes_on() {
    let (mut lab, machine) = lab(&[&["strings"]]);
    lab.admit(at(0), &sample(11, &["strings"])).unwrap();
    for round in 0..5 {
        let attempt = assigned(&lab.take())[0].attempt.cast_signed();
        lab.lacks(at(round * 1_000_000), machine, attempt, "nobody has it");
        assert_eq!(lab.why(11), Why::PutOff);
        lab.vm_status(at(round * 1_000_000), machine, "vm_0", wire::VmStatus::default());
        assert!(assigned(&lab.work).is_empty(), "not at once");
        lab.tick(at((round + 1) * 1_000_000));
    }
    let work = lab.take();
    assert_eq!((assigned(&work).len(), work.batch.changes.len()), (1, 0), "tried again, not quarantined");
}

#[test]
fn threshold_and_cancel_reach_the_machine() {
    let (mut lab, _) = lab(&[&["strings"]]);
    lab.admit(at(0), &sample(11, &["strings"])).unwrap();
    let attempt = assigned(&lab.take())[0].attempt;
    let threshold = Settings::default().threshold;
    lab.tick(at(threshold.as_millis() as u64));
    let work = lab.take();
    assert_eq!(work.letters[0].1, Message::Cancel { attempt, epoch: 5 });
    assert_eq!(work.batch.ends[0].outcome, "expired");
    assert!(lab.cancel(at(700_000), 11) && !lab.cancel(at(700_000), 11));
    assert_eq!(ended(&lab.take()), [(11, "cancelled")]);
}

#[test]
fn rows_that_make_no_sense_are_told_and_not_taken() {
    let (mut lab, _) = lab(&[&["strings"]]);
    for spoil in [
        |row: &mut NewSample| row.needs = "strings".into(),
        |row: &mut NewSample| row.tags = "{".into(),
        |row: &mut NewSample| row.hash = "abc".into(),
        |row: &mut NewSample| row.directory = 128,
        |row: &mut NewSample| row.directory = -1,
        |row: &mut NewSample| row.needs = "[]".into(),
    ] {
        let mut bad = sample(11, &["strings"]);
        spoil(&mut bad.sample.given);
        assert!(lab.admit(at(1), &bad).is_err(), "{bad:?}");
    }
    assert_eq!(lab.open(), 0);
}

#[test]
fn what_the_same_content_has_is_not_run_again() {
    let (mut lab, _) = lab(&[&["strings", "weather"]]);
    let cached = |names: &[&str]| results_of("a.exe", names, &Brief::default());
    lab.admit(at(1), &OpenSample { cached: cached(&["strings"]), ..sample(11, &["strings"]) }).unwrap();
    let work = lab.take();
    assert_eq!((ended(&work), assigned(&work).len()), (vec![(11, "done")], 0));
    // A plugin may say that its results do not last.
    lab.admit(at(1), &OpenSample { cached: cached(&["strings", "weather"]), ..sample(12, &["strings", "weather"]) })
        .unwrap();
    let calls: Vec<String> = assigned(&lab.take())[0].plugins.iter().map(|call| call.name.clone()).collect();
    assert_eq!(calls, ["weather"]);
}

#[test]
fn a_scheduler_without_room_takes_the_sample_later() {
    let settings = Settings { samples_max: 1, classes_max: 1, ..Settings::default() };
    let mut lab = Decision::new(settings, EPOCH, Rules::default());
    lab.admit(at(0), &sample(11, &["strings"])).unwrap();
    let full = lab.admit(at(0), &sample(12, &["strings"])).unwrap_err();
    assert!(full.is_for_now(), "{full}");
    assert!(lab.cancel(at(1), 11));
    lab.admit(at(1), &sample(12, &["strings"])).unwrap();
    assert!(!Unschedulable::NothingToRun.is_for_now());
}

#[test]
fn what_machines_offer_uses_up_no_numbers() {
    let junk: Vec<String> = (0..300).map(|i| format!("junk_{i}")).collect();
    let mut names: Vec<&str> = junk.iter().map(String::as_str).collect();
    names.push("strings");
    let (mut lab, _) = lab(&[&names[..]]);
    lab.admit(at(1), &sample(11, &["strings"])).unwrap();
    assert_eq!(assigned(&lab.take()).len(), 1);
    // A lab that has used up all its names accepts the sample of another later.
    for (id, name) in (12..).zip(&junk[..127]) {
        lab.admit(at(1), &sample(id, &[name.as_str()])).unwrap();
    }
    let full = lab.admit(at(1), &sample(999, &["another"])).unwrap_err();
    assert!(full == Unschedulable::TooMany("plugins") && full.is_for_now());
}

#[test]
fn a_drained_machine_ends_its_work_and_gets_no_more() {
    let (mut lab, machine) = lab(&[&["strings"], &["strings"]]);
    lab.admit(at(1), &sample(11, &["strings"])).unwrap();
    let attempt = assigned(&lab.take())[0].attempt;
    lab.drain_node(at(2), "n1");
    lab.drain_node(at(2), "n1");
    lab.admit(at(3), &sample(12, &["strings"])).unwrap();
    assert!(assigned(&lab.take()).is_empty(), "the other VM is idle, but drained");
    assert_eq!(lab.result(at(4), machine, brought(attempt, "strings", true)), ResultStatus::Accepted);
    lab.vm_status(at(4), machine, "vm_0", wire::VmStatus::default());
    lab.ended(at(5), machine, attempt.cast_signed());
    let work = lab.take();
    assert_eq!(ended(&work), [(11, "done")]);
    assert!(matches!(&work.letters[..], [(id, Message::Bye(_))] if *id == machine), "{:?}", work.letters);
    assert_eq!(lab.node(machine), None);
    let next =
        lab.plug(at(6), "n2", &[VmOffer { name: "vm_0".into(), plugins: vec![plugin("strings")], tags: Vec::new() }]);
    lab.vm_status(at(6), next.unwrap(), "vm_0", wire::VmStatus::default());
    assert_eq!(assigned(&lab.take()).len(), 1, "what waited goes to another");
}

#[test]
fn figures_say_what_waits_what_runs_and_what_came_of_it() {
    let (mut lab, machine) = lab(&[&["strings"], &["strings"]]);
    for id in 1..=8 {
        lab.admit(at(1_000), &sample(id, &["strings"])).unwrap();
    }
    lab.admit(at(2_000), &sample(9, &["absent"])).unwrap();
    let attempt = assigned(&lab.take())[0].attempt;
    let figures = lab.figures(at(5_000));
    assert_eq!((figures.machines, figures.vms_in_use, figures.attempts), (1, 2, 2));
    // Four are fetched ahead; the others are in the run queue of directory 32.
    assert_eq!(figures.queues, [QueueFigures { queue: 40, samples: 3, oldest_wait_ms: 4_000 }]);
    lab.result(at(6_000), machine, brought(attempt, "strings", true));
    lab.ended(at(6_000), machine, attempt.cast_signed());
    assert!(lab.cancel(at(6_000), 9));
    let figures = lab.figures(at(6_000));
    assert_eq!(figures.ended, EndedCounts { done: 1, cancelled: 1, ..EndedCounts::default() });
    assert_eq!((figures.vms_in_use, figures.vms_on_revert, figures.attempts_lost), (1, 1, 0));
    lab.unplug(at(7_000), machine);
    let figures = lab.figures(at(7_000));
    assert_eq!((figures.machines, figures.vms_in_use, figures.attempts_lost), (0, 0, 1));
}

#[test]
fn what_waits_at_a_machine_that_is_drained_goes_to_another() {
    let (mut lab, _) = lab(&[&["strings"]]);
    for id in [11, 12, 13] {
        lab.admit(at(1), &sample(id, &["strings"])).unwrap();
    }
    assert_eq!(assigned(&lab.take()).len(), 1, "the others wait there");
    let offers =
        ["vm_0", "vm_1"].map(|name| VmOffer { name: name.into(), plugins: vec![plugin("strings")], tags: Vec::new() });
    lab.drain_node(at(2), "n1");
    lab.admit(at(2), &sample(14, &["strings"])).unwrap();
    let other = lab.plug(at(3), "n2", &offers).unwrap();
    for vm in &offers {
        lab.vm_status(at(3), other, &vm.name, wire::VmStatus::default());
    }
    assert_eq!(assigned(&lab.take()).len(), 2, "they do not wait until it is gone");
}

#[test]
fn what_is_required_ends_well_before_the_next_begins_on_whatever_machine() {
    let (mut lab, machine) = lab(&[&["strings"], &["late"]]);
    lab.admit(at(1), &sample(11, &["late", "strings"])).unwrap();
    let first = assigned(&lab.take());
    assert_eq!(first.iter().map(|assignment| assignment.vm.as_str()).collect::<Vec<_>>(), ["vm_0"]);
    assert_eq!(lab.result(at(2), machine, brought(first[0].attempt, "strings", true)), ResultStatus::Accepted);
    let work = lab.take();
    assert!(ended(&work).is_empty(), "one plugin is left");
    let next = assigned(&work);
    assert_eq!((next.len(), next[0].vm.as_str(), next[0].plugins[0].name.as_str()), (1, "vm_1", "late"));
    assert_eq!(lab.open(), 1);
    lab.result(at(3), machine, brought(next[0].attempt, "late", true));
    assert_eq!(ended(&lab.take()), [(11, "done")]);
}

#[test]
fn what_requires_a_plugin_that_failed_never_runs() {
    let (mut lab, machine) = lab(&[&["strings", "late"]]);
    lab.admit(at(1), &sample(11, &["late", "strings"])).unwrap();
    for life in 0..3 {
        let assigned = assigned(&lab.take());
        assert_eq!(assigned[0].plugins.len(), 1, "life {life}");
        lab.result(at(2), machine, brought(assigned[0].attempt, "strings", false));
        lab.ended(at(2), machine, assigned[0].attempt.cast_signed());
        lab.vm_status(at(2), machine, "vm_0", wire::VmStatus::default());
    }
    let work = lab.take();
    assert_eq!(ended(&work), [(11, "quarantined")]);
}

#[test]
fn a_sample_goes_to_the_machine_that_is_least_strained_and_never_to_one_without_memory() {
    let (mut lab, first) = lab(&[&["strings"]]);
    let offer = VmOffer { name: "vm_0".into(), plugins: vec![plugin("strings")], tags: Vec::new() };
    let second = lab.plug(at(0), "n2", &[offer]).unwrap();
    lab.vm_status(at(0), second, "vm_0", wire::VmStatus::default());
    let says = |lab: &mut Decision, machine, words: &[Message]| {
        words.iter().for_each(|message| lab.has(at(1), machine, message));
    };
    let node = |lab: &mut Decision, id: i64| {
        lab.admit(at(2), &sample(id, &["strings"])).unwrap();
        lab.take().batch.attempts.first().map(|attempt| attempt.node.clone())
    };
    says(&mut lab, first, &[Message::Cores(2), Message::Load(900)]);
    says(&mut lab, second, &[Message::Cores(2), Message::Load(100)]);
    assert_eq!(node(&mut lab, 1).as_deref(), Some("n2"), "the other would be first");

    let (mut lab, machine) = self::lab(&[&["strings"]]);
    says(&mut lab, machine, &[Message::Memory(1 << 30), Message::MemoryFree(1 << 20)]);
    assert_eq!(node(&mut lab, 1), None);
    assert!(lab.why_in_words(at(3), 1).contains("n1 gets no samples because its memory is used up"));
    says(&mut lab, machine, &[Message::MemoryFree(1 << 29)]);
    assert_eq!(lab.take().batch.attempts.len(), 1, "it has memory again");
}
