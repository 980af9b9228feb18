use super::*;
use crate::choices::{Choices, GuestProfile};
use crate::plugin::Plugin;
use std::sync::Arc;

/// A lab whose only plugin runs samples, on a machine with as many VMs as that.
fn running(vms: usize) -> (Decision, MachineId, Arc<[Plugin]>) {
    let text = "name = \"run\"\nversion = \"1\"\nrun = \"vm\"";
    let plugins: Arc<[Plugin]> = [Plugin::parse(text, std::path::Path::new("")).unwrap()].into();
    let rules = Rules { plugins: Arc::clone(&plugins), ..Rules::default() };
    let mut lab = Decision::new(Settings::default(), EPOCH, rules);
    let offer = |number| VmOffer { name: format!("vm_{number}"), plugins: vec![plugin("run")], tags: Vec::new() };
    let machine = lab.plug(at(0), "n1", &(0..vms).map(offer).collect::<Vec<_>>()).unwrap();
    (0..vms).for_each(|number| lab.vm_status(at(0), machine, &format!("vm_{number}"), wire::VmStatus::default()));
    (lab, machine, plugins)
}

fn chosen(id: i64, plugins: &[Plugin], choices: &Choices) -> OpenSample {
    let mut open = sample(id, &[]);
    open.sample.given.hash = SampleHash([7; 32]).to_string();
    open.sample.given.needs = crate::chosen::needs(choices, plugins, "text/plain");
    open.sample.given.choices = choices.text();
    open
}

#[test]
fn a_result_under_a_choice_is_stored_as_one_and_is_nobody_elses() {
    let (mut lab, machine, plugins) = running(1);
    let short = Choices { watch_s: Some(20), ..Choices::default() };
    lab.admit(at(1), &chosen(11, &plugins, &short)).unwrap();
    let [assignment] = &assigned(&lab.take())[..] else { panic!("it is assigned") };
    assert_eq!((assignment.plugins[0].version.as_str(), assignment.choices.watch_s), ("1", Some(20)));
    assert_eq!(lab.result(at(2), machine, brought(assignment.attempt, "run", true)), ResultStatus::Accepted);
    let work = lab.take();
    assert_eq!((work.batch.results[0].version.as_str(), &ended(&work)[..]), ("1+20s", &[(11, "done")][..]));
    lab.vm_status(at(3), machine, "vm_0", wire::VmStatus::default());
    // The same content without a choice is run, and its results are used for samples without a choice.
    lab.admit(at(4), &chosen(12, &plugins, &Choices::default())).unwrap();
    let [usual] = &assigned(&lab.take())[..] else { panic!("it is assigned") };
    assert!(usual.choices.is_none());
    assert_eq!(lab.result(at(5), machine, brought(usual.attempt, "run", true)), ResultStatus::Accepted);
    assert_eq!(lab.take().batch.results[0].version, "1");
    lab.vm_status(at(6), machine, "vm_0", wire::VmStatus::default());
    lab.admit(at(7), &chosen(13, &plugins, &short)).unwrap();
    assert_eq!(assigned(&lab.take()).len(), 1, "it is run again");
}

#[test]
fn thousands_of_different_choices_are_one_plugin() {
    let (mut lab, _, plugins) = running(1);
    for number in 1..1000 {
        let choices = Choices { watch_s: Some(number), ..Choices::default() };
        lab.admit(at(1), &chosen(number.into(), &plugins, &choices)).unwrap();
    }
    assert_eq!(lab.open(), 999);
}

#[test]
fn what_is_found_in_a_sample_has_its_choices() {
    let (mut lab, machine, plugins) = running(1);
    let choices = Choices { guest: Some(GuestProfile::Linux), watch_s: Some(9), ..Choices::default() };
    lab.admit(at(1), &chosen(11, &plugins, &choices)).unwrap();
    let attempt = assigned(&lab.take())[0].attempt;
    let brief = Brief { children: vec![child(9, "a.sh", "text/plain")], ..Brief::default() };
    lab.result(at(2), machine, PluginResult { brief, ..brought(attempt, "run", true) });
    let found = &lab.take().batch.children[0];
    assert_eq!((found.needs.as_str(), found.partial), (r#"[["run","1+9s"]]"#, 1));
    assert_eq!(Choices::stored(&found.choices), choices);
}

/// Also a plugin that runs nothing reads a content as what its name says: what it says of a text it does not say of the same octets as a script or
/// a letter.
#[test]
fn what_was_read_under_another_extension_is_read_again() {
    let (mut lab, machine) = lab(&[&["strings"]]);
    let named = |id: i64, name: &str| {
        let mut open = sample(id, &["strings"]);
        (open.sample.given.name, open.sample.given.hash) = (name.into(), SampleHash([7; 32]).to_string());
        open
    };
    for (number, (known, name, is_read)) in [
        ("notes.txt", "letter.TXT", false),
        ("notes.txt", "run.js", true),
        ("notes.txt", "letter.eml", true),
        ("notes.txt", "page.shtml", true),
        ("notes.txt", "a.js:b.txt", true),
        ("run.js", "notes.txt", true),
    ]
    .into_iter()
    .enumerate()
    {
        // Whether it is in the database, or comes just now.
        let id = 10 * number as i64;
        let cached = results_of(known, &["strings"], &Brief::default());
        lab.admit(at(1), &OpenSample { cached, ..named(id + 1, name) }).unwrap();
        let work = lab.take();
        assert_eq!(assigned(&work).len(), usize::from(is_read), "{known} {name}");
        for assignment in assigned(&work) {
            lab.cancel(at(1), id + 1);
            lab.ended(at(1), machine, assignment.attempt.cast_signed());
            lab.vm_status(at(1), machine, "vm_0", wire::VmStatus::default());
            lab.take();
        }
        let (mut fresh, machine) = super::lab(&[&["strings"]]);
        fresh.admit(at(1), &named(id + 2, known)).unwrap();
        let first = assigned(&fresh.take()).remove(0);
        fresh.admit(at(1), &named(id + 3, name)).unwrap();
        fresh.result(at(2), machine, brought(first.attempt, "strings", true));
        fresh.ended(at(2), machine, first.attempt.cast_signed());
        fresh.vm_status(at(2), machine, "vm_0", wire::VmStatus::default());
        assert_eq!(assigned(&fresh.take()).len(), usize::from(is_read), "{known} {name}, just now");
    }
}

/// A result of a run is nobody's whose name has the content run in another way: whether it is in the database, or came just now.
#[test]
fn a_run_under_another_name_is_another_run() {
    let (mut lab, machine, _) = running(1);
    let named = |id: i64, name: &str| {
        let mut open = sample(id, &["run"]);
        (open.sample.given.name, open.sample.given.hash) = (name.into(), SampleHash([7; 32]).to_string());
        open
    };
    let known = |id: i64, name: &str, of: serde_json::Value| OpenSample {
        cached: serde_json::json!([["run", "1", "{}", of]]).to_string(),
        ..named(id, name)
    };
    for (id, name, of) in [(1, "a.bat", serde_json::json!("b.BAT")), (2, "notes.txt", serde_json::json!("letter"))] {
        lab.admit(at(1), &known(id, name, of)).unwrap();
        assert_eq!(ended(&lab.take()), [(id, "done")], "{name}");
    }
    // What is known of it came by another name, or is forgotten; then one by the same name, and one by another.
    for (id, name, of, runs) in [
        (3, "a.js", serde_json::json!("a.bat"), true),
        (4, "b.js", serde_json::Value::Null, false),
        (5, "run.sh", serde_json::Value::Null, true),
    ] {
        lab.admit(at(2), &known(id, name, of)).unwrap();
        let work = lab.take();
        assert_eq!((assigned(&work).len(), ended(&work).len()), if runs { (1, 0) } else { (0, 1) }, "{name}");
        for assignment in assigned(&work) {
            lab.result(at(3), machine, brought(assignment.attempt, "run", true));
            lab.ended(at(3), machine, assignment.attempt.cast_signed());
            lab.vm_status(at(3), machine, "vm_0", wire::VmStatus::default());
            assert_eq!(ended(&lab.take()), [(id, "done")]);
        }
    }
}
