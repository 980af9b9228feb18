//! Tests of how samples end: verdicts, child samples, several samples with the same content, and samples that crash their guest.

use super::*;

#[test]
fn a_verdict_is_written_with_the_end_and_a_failure_makes_nothing_clean() {
    let (mut lab, machine) = lab(&[&["strings", "yara"]]);
    let verdicts = |work: &Work| -> Vec<(i64, String)> {
        work.batch.changes.iter().map(|change| (change.verdict, change.reasons.clone())).collect()
    };
    lab.admit(at(1), &sample(11, &["strings", "yara"])).unwrap();
    let attempt = assigned(&lab.take())[0].attempt;
    let with = |name: &str, level| PluginResult {
        brief: Brief { findings: vec![finding(level)], ..Brief::default() },
        ..brought(attempt, name, true)
    };
    lab.result(at(2), machine, with("strings", Level::Safe));
    lab.result(at(2), machine, with("yara", Level::Malicious));
    assert_eq!(verdicts(&lab.take()), [(3, r#"["Malicious"]"#.to_owned())]);
    // A twin that is known, and one of which only half is.
    let safe = Brief { findings: vec![finding(Level::Safe)], ..Brief::default() };
    let twin = OpenSample { cached: results_of("a.exe", &["strings"], &safe), ..sample(12, &["strings"]) };
    lab.admit(at(3), &twin).unwrap();
    assert_eq!(verdicts(&lab.take()), [(1, r#"["Safe"]"#.to_owned())]);
    let half = OpenSample { have: results(&["strings"], &safe), ..sample(13, &["strings", "yara"]) };
    lab.admit(at(3), &half).unwrap();
    assert!(lab.cancel(at(4), 13));
    let (verdict, reasons) = verdicts(&lab.take()).remove(0);
    assert_eq!((verdict, reasons.contains("did not end well")), (0, true), "{reasons}");
}

/// A lab's own plugin can call a program safe that did not run here; a scanner that finds no signature cannot. Which of the two a plugin is
/// stands in its manifest, and its words decide nothing.
#[test]
fn that_a_scanner_has_no_signature_is_not_enough_for_what_would_run() {
    let (program, text) = ("application/x-executable", "text/plain");
    for (plugin, file_type, words, expected) in [
        ("signatures", program, "signatures: clean: OK", 0),
        ("signatures", program, "strings: known: ls", 0),
        ("signatures", text, "signatures: clean: OK", 1),
        ("strings", program, "strings: known: ls", 1),
        ("strings", program, "clamav: clean: OK", 1),
        ("of-another-lab", program, "of-another-lab: known: ls", 0),
    ] {
        let (mut lab, machine) = lab(&[&[plugin]]);
        let found = crate::verdict::Finding { level: Level::Safe, text: words.into() };
        let brief = Brief { findings: vec![found], ..Brief::default() };
        let of_type = |row| {
            let mut open = sample(row, &[plugin]);
            (open.sample.given.file_type, open.sample.given.name) = (file_type.into(), "letter".into());
            open.sample.given.hash = SampleHash([1; 32]).to_string();
            open
        };
        // A result that is there, one that comes, and one that came for the same content.
        lab.admit(at(1), &OpenSample { have: results(&[plugin], &brief), ..of_type(11) }).unwrap();
        lab.admit(at(1), &of_type(12)).unwrap();
        lab.admit(at(1), &of_type(13)).unwrap();
        let first = lab.take();
        let attempt = assigned(&first)[0].attempt;
        lab.result(at(2), machine, PluginResult { brief, ..brought(attempt, plugin, true) });
        lab.ended(at(2), machine, attempt.cast_signed());
        lab.vm_status(at(3), machine, "vm_0", wire::VmStatus::default());
        let second = lab.take();
        let changes = || first.batch.changes.iter().chain(&second.batch.changes);
        assert_eq!(changes().map(|change| change.id).collect::<Vec<_>>(), [11, 12, 13], "{plugin}");
        for change in changes() {
            assert_eq!(change.verdict, expected, "{plugin} on {file_type}, {words}: {}", change.reasons);
        }
    }
}

/// What a guest ran by its bytes, and what opens it elsewhere by its name, are two things.
#[test]
fn what_was_run_as_something_else_than_its_name_says_is_not_clean() {
    let runs = "name = \"run\"\nversion = \"1\"\nrun = \"vm\"";
    let vouches = "name = \"strings\"\nversion = \"1\"\nexec = [\"x\"]";
    let plugins = [runs, vouches].map(|text| crate::plugin::Plugin::parse(text, std::path::Path::new("")).unwrap());
    let (script, program) = ("text/x-shellscript", "application/vnd.microsoft.portable-executable");
    for (file_type, name, by, expected) in [
        (script, "setup.sh", "run", 1),
        (script, "setup", "run", 1),
        (script, "server.js", "run", 1),
        (script, "setup.bat", "run", 0),
        (script, "disc.iso", "run", 0),
        (script, "tool.jar", "run", 0),
        ("application/x-executable", "tool.jar", "run", 0),
        ("application/x-executable", "tool", "run", 1),
        (program, "page.hta", "run", 0),
        (program, "setup.exe", "run", 1),
        // A plugin of the lab's own that knows the whole file.
        (script, "setup.bat", "strings", 1),
    ] {
        let rules = Rules { plugins: plugins.to_vec().into(), ..Rules::default() };
        let mut lab = Decision::new(Settings::default(), EPOCH, rules);
        let mut open = sample(11, &["run", "strings"]);
        (open.sample.given.file_type, open.sample.given.name) = (file_type.into(), name.into());
        let safe = Brief { findings: vec![finding(Level::Safe)], ..Brief::default() };
        let briefs = ["run", "strings"].map(|plugin| if plugin == by { safe.clone() } else { Brief::default() });
        let rows = ["run", "strings"].iter().zip(&briefs);
        let rows: Vec<_> = rows.map(|(plugin, brief)| (plugin, "1", serde_json::to_string(brief).unwrap())).collect();
        open.have = serde_json::json!(rows).to_string();
        lab.admit(at(1), &open).unwrap();
        let change = lab.take().batch.changes.remove(0);
        assert_eq!(change.verdict, expected, "{name} is {file_type}, {by} calls it safe: {}", change.reasons);
        assert_eq!(change.reasons.contains("by its name something else opens it"), expected == 0, "{}", change.reasons);
    }
}

#[test]
fn files_in_a_sample_become_samples_with_the_result_that_brings_them() {
    let (mut lab, machine) = lab(&[&["unpack"]]);
    let mut open = sample(11, &["unpack"]);
    open.sample.given.directory = 3;
    lab.admit(at(1), &open).unwrap();
    let assignment = assigned(&lab.take()).remove(0);
    assert_eq!(assignment.children, ChildLimits { count: 100, bytes: 256 << 20 });
    let brief = Brief {
        children: vec![child(1, "../a\n.txt", "text/plain"), child(2, "b.zip", "application/zip")],
        ..Brief::default()
    };
    lab.result(at(2), machine, PluginResult { brief: brief.clone(), ..brought(assignment.attempt, "unpack", true) });
    let work = lab.take();
    let [text, zip] = &work.batch.children[..] else { panic!("{work:?}") };
    assert_eq!(
        (text.parent, text.root, text.depth, text.directory, text.submitter.as_str()),
        (Some(11), Some(11), 1, 3, "ann")
    );
    assert_eq!((text.name.as_str(), text.needs.as_str()), ("../a\u{fffd}.txt", r#"[["strings","1"],["late","1"]]"#));
    assert_eq!(zip.needs, r#"[["unpack","1"],["strings","1"]]"#);
    assert_eq!((ended(&work), work.batch.children_max), (vec![(11, "done")], 100));
    // One that is known brings the same children; one that is as deep as may be brings none.
    let twin = OpenSample { cached: results_of("a.exe", &["unpack"], &brief), ..sample(12, &["unpack"]) };
    lab.admit(at(3), &twin).unwrap();
    let children = lab.take().batch.children;
    assert_eq!(children.iter().map(|child| child.parent).collect::<Vec<_>>(), [Some(12), Some(12)]);
    let mut deep = sample(13, &["unpack"]);
    (deep.sample.given.depth, deep.sample.given.root) = (2, Some(11));
    lab.admit(at(4), &deep).unwrap();
    lab.vm_status(at(4), machine, "vm_0", wire::VmStatus::default());
    let assignment = assigned(&lab.take()).remove(0);
    assert_eq!(assignment.children.count, 0);
    lab.result(at(5), machine, PluginResult { brief: brief.clone(), ..brought(assignment.attempt, "unpack", true) });
    assert!(lab.take().batch.children.is_empty());
    // What another has brought elsewhere would be left out there without a word, and what had no room there may have some here.
    let mut deep_twin = OpenSample { cached: results_of("a.exe", &["unpack"], &brief), ..sample(14, &["unpack"]) };
    (deep_twin.sample.given.depth, deep_twin.sample.given.root) = (2, Some(11));
    let partial = Brief { partial: true, ..Brief::default() };
    for again in
        [deep_twin, OpenSample { cached: results_of("a.exe", &["unpack"], &partial), ..sample(15, &["unpack"]) }]
    {
        lab.admit(at(6), &again).unwrap();
        lab.vm_status(at(6), machine, "vm_0", wire::VmStatus::default());
        let assignment = assigned(&lab.take()).remove(0);
        lab.result(
            at(7),
            machine,
            PluginResult { brief: Brief::default(), ..brought(assignment.attempt, "unpack", true) },
        );
    }
}

#[test]
fn a_file_that_two_plugins_find_takes_one_place_in_its_family() {
    let (mut lab, machine) = lab(&[&["unpack", "strings"], &["unpack"]]);
    lab.admit(at(1), &sample(11, &["unpack", "strings"])).unwrap();
    let assignment = assigned(&lab.take()).remove(0);
    let brief =
        Brief { children: vec![child(1, "a.zip", "application/zip"), child(2, "b", "text/plain")], ..Brief::default() };
    for plugin in ["unpack", "strings"] {
        lab.result(at(2), machine, PluginResult { brief: brief.clone(), ..brought(assignment.attempt, plugin, true) });
    }
    lab.take();
    let mut inner = sample(12, &["unpack"]);
    (inner.sample.given.depth, inner.sample.given.root) = (1, Some(11));
    lab.admit(at(3), &inner).unwrap();
    assert_eq!(assigned(&lab.take()).remove(0).children.count, 98, "two of a hundred are there");
}

/// A page is read with its families, and its samples are accepted one after the other: none of them is counted from nothing meanwhile.
#[test]
fn a_family_is_known_until_its_samples_are_accepted() {
    let (mut lab, _) = lab(&[&["unpack"]]);
    let most = i64::try_from(children::FAMILIES_MAX).unwrap();
    (1000..1000 + most).for_each(|root| lab.learn_family(root, &["child-1".into()]));
    let of_family = |id: i64, root: i64| {
        let mut inner = sample(id, &["unpack"]);
        (inner.sample.given.depth, inner.sample.given.root) = (1, Some(root));
        inner
    };
    let brief = Brief { children: vec![child(1, "a", "text/plain")], ..Brief::default() };
    let known = OpenSample { cached: results_of("b.exe", &["unpack"], &brief), ..of_family(11, 1000) };
    lab.admit(at(1), &known).unwrap();
    lab.admit(at(1), &of_family(12, 1001)).unwrap();
    assert_eq!(assigned(&lab.take()).remove(0).children.count, 99, "one of a hundred is there");
    // Later those are forgotten of which no sample is open.
    lab.forget_families();
    assert_eq!([1000, 1001, 1002].map(|root| lab.knows_family(root)), [false, true, false]);
    // Where all are open, they are not looked through for each file.
    (1..=most).for_each(|id| lab.admit(at(2), &of_family(id << 16, id << 16)).unwrap());
    (1..=most).for_each(|id| lab.learn_family(id << 16, &[]));
    lab.forget_families();
    assert!(lab.families_next_look > 2 * children::FAMILIES_MAX);
    assert!(lab.knows_family(1 << 16) && lab.knows_family(most << 16) && lab.knows_family(1001));
}

/// Two attempts fill a family at once, each within the limits that it was given: what finds no room is a doubt, also under the next leader.
#[test]
fn files_without_room_in_their_family_are_a_doubt() {
    let few = || Rules { children: ChildLimits { count: 3, bytes: 1 << 20 }, ..rules() };
    let (mut lab, machine) = lab_of(few(), &[&["unpack"], &["unpack"]]);
    let inner = || {
        let mut inner = sample(12, &["unpack"]);
        (inner.sample.given.depth, inner.sample.given.root) = (1, Some(11));
        inner
    };
    lab.admit(at(1), &sample(11, &["unpack"])).unwrap();
    lab.admit(at(1), &inner()).unwrap();
    let attempts = assigned(&lab.take());
    assert_eq!(attempts.iter().map(|assignment| assignment.children.count).collect::<Vec<_>>(), [3, 3]);
    let of = |sample: i64| SampleHash([sample as u8; 32]);
    let attempt = |sample: i64| attempts.iter().find(|given| given.sample == of(sample)).unwrap().attempt;
    let brief = |hashes: [u8; 2]| Brief {
        findings: vec![finding(Level::Safe)],
        children: hashes.map(|hash| child(hash, "a", "text/plain")).to_vec(),
        ..Brief::default()
    };
    lab.result(at(2), machine, PluginResult { brief: brief([1, 2]), ..brought(attempt(11), "unpack", true) });
    lab.result(at(2), machine, PluginResult { brief: brief([3, 4]), ..brought(attempt(12), "unpack", true) });
    let work = lab.take();
    assert_eq!(work.batch.children.len(), 3);
    let verdicts: Vec<(i64, i64)> = work.batch.changes.iter().map(|change| (change.id, change.verdict)).collect();
    assert_eq!(verdicts, [(11, 1), (12, 0)]);
    assert!(work.batch.changes[1].reasons.contains("files that are not analysed: 1"), "{work:?}");
    // As it is written down, the next leader finds the doubt in it, and nobody else uses it.
    let (mut next, _) = lab_of(few(), &[&["unpack"]]);
    let written: Brief = serde_json::from_str(&work.batch.results[1].brief).unwrap();
    assert_eq!((written.partial, written.children.len()), (true, 1));
    next.admit(at(3), &OpenSample { have: results(&["unpack"], &written), ..inner() }).unwrap();
    assert_eq!(next.take().batch.changes[0].verdict, 0);
    // The next leader knows how many there are.
    assert!(!next.knows_family(11));
    let tickets: Vec<String> = work.batch.children.iter().map(|child| child.ticket.clone()).collect();
    next.learn_family(11, &tickets);
    let mut third = sample(13, &["unpack"]);
    (third.sample.given.depth, third.sample.given.root) = (1, Some(11));
    next.admit(at(4), &third).unwrap();
    let given = assigned(&next.take()).remove(0);
    assert_eq!(given.children.count, 0);
    // What a twin has brought elsewhere finds no room here either.
    let twin = OpenSample { cached: results_of("a.exe", &["unpack"], &brief([5, 6])), ..inner() };
    next.admit(at(5), &twin).unwrap();
    let work = next.take();
    assert_eq!((work.batch.children.len(), work.batch.changes[0].verdict), (0, 0));
    assert!(work.batch.changes[0].reasons.contains("files that are not analysed: 2"), "{work:?}");
}

#[test]
fn why_names_what_is_missing_and_what_goes_first() {
    let (mut lab, _) = lab(&[&["strings"]]);
    lab.admit(at(1_000), &sample(1, &["strings"])).unwrap();
    lab.admit(at(1_000), &sample(2, &["strings", "absent"])).unwrap();
    lab.admit(at(1_000), &sample(3, &["absent"])).unwrap();
    let mut tagged = sample(4, &["strings"]);
    tagged.sample.given.tags = r#"["windows"]"#.into();
    lab.admit(at(1_000), &tagged).unwrap();
    let why = |lab: &Decision, sample| lab.why_in_words(at(3_000), sample);
    assert!(why(&lab, 1).starts_with("it runs on n1 vm_0 since 2.0 s ago"), "{}", why(&lab, 1));
    let busy = why(&lab, 2);
    assert!(busy.starts_with("all 1 VMs that could run it are in use (0 on revert) until about"), "{busy}");
    assert!(busy.ends_with("no machine has the plugin absent 1"), "{busy}");
    assert!(why(&lab, 3).starts_with("no machine has the plugin absent 1; it is given up in"), "{}", why(&lab, 3));
    assert!(why(&lab, 4).starts_with("no VM with its plugins has the tag windows;"), "{}", why(&lab, 4));
    assert_eq!(why(&lab, 99), "the leader has not read it from the database yet");
}

#[test]
fn twins_that_wait_end_with_the_first_of_them() {
    let (mut lab, machine) = lab(&[&["unpack"], &["strings"]]);
    let twin = |id, plugins: &[&str]| {
        let mut twin = sample(id, plugins);
        twin.sample.given.hash = SampleHash([9; 32]).to_string();
        twin
    };
    for id in 1..=40 {
        lab.admit(at(1), &twin(id, &["unpack"])).unwrap();
    }
    let mut forced = twin(41, &["unpack"]);
    forced.sample.given.forced = 1;
    lab.admit(at(1), &forced).unwrap();
    lab.admit(at(1), &twin(42, &["unpack", "strings"])).unwrap();
    let on = |work: &Work, vm: &str| assigned(work).into_iter().find(|assignment| assignment.vm == vm);
    let work = lab.take();
    let (first, other) = (on(&work, "vm_0").unwrap(), on(&work, "vm_1").unwrap());
    let brief = Brief { children: vec![child(1, "a", "text/plain")], ..Brief::default() };
    lab.result(at(2), machine, PluginResult { brief, ..brought(first.attempt, "unpack", true) });
    lab.ended(at(2), machine, first.attempt.cast_signed());
    lab.vm_status(at(2), machine, "vm_0", wire::VmStatus::default());
    let work = lab.take();
    assert_eq!(ended(&work).iter().filter(|(id, state)| *id <= 40 && *state == "done").count(), 40);
    assert_eq!(work.batch.children.len(), 40, "each has what was found in it");
    assert_eq!(assigned(&work).len(), 1, "only the one that is to be analysed again");
    let forced = on(&work, "vm_0").unwrap();
    lab.result(at(3), machine, brought(forced.attempt, "unpack", true));
    assert_eq!(ended(&lab.take()), [(41, "done")]);
    lab.vm_status(at(3), machine, "vm_0", wire::VmStatus::default());
    // One that wants something else besides has only that analysed.
    lab.result(at(4), machine, brought(other.attempt, "strings", true));
    lab.ended(at(4), machine, other.attempt.cast_signed());
    let work = lab.take();
    assert_eq!((ended(&work), assigned(&work).len()), (vec![(42, "done")], 0));
    assert_eq!(lab.open(), 0);
}

/// A twin that waits is as deep in another sample, or lies where there is more room: it is analysed itself if the result says less, or too much.
#[test]
fn a_twin_takes_no_result_that_is_not_its_own() {
    for (partial, first_depth, then_depth, is_run) in
        [(false, 0, 0, false), (false, 2, 0, false), (true, 0, 0, true), (false, 0, 2, true), (false, 1, 1, false)]
    {
        let (mut lab, machine) = lab(&[&["unpack"]]);
        let twin = |id: i64, depth: i64| {
            let mut twin = sample(id, &["unpack"]);
            twin.sample.given.hash = SampleHash([9; 32]).to_string();
            (twin.sample.given.depth, twin.sample.given.root) = (depth, Some(1000 + id));
            twin
        };
        lab.admit(at(1), &twin(1, first_depth)).unwrap();
        let first = assigned(&lab.take()).remove(0);
        lab.admit(at(1), &twin(2, then_depth)).unwrap();
        // As deep as may be, the machine keeps nothing, and says so.
        let children = if first_depth < 2 { vec![child(1, "a", "text/plain")] } else { Vec::new() };
        let brief = Brief { children, partial, ..Brief::default() };
        lab.result(at(2), machine, PluginResult { brief, ..brought(first.attempt, "unpack", true) });
        lab.ended(at(2), machine, first.attempt.cast_signed());
        lab.vm_status(at(2), machine, "vm_0", wire::VmStatus::default());
        let work = lab.take();
        assert_eq!(assigned(&work).len(), usize::from(is_run), "{partial}, {first_depth} and {then_depth}");
        assert_eq!(ended(&work).len(), if is_run { 1 } else { 2 });
    }
}

#[test]
fn submitters_without_a_sample_are_forgotten() {
    let (mut lab, _) = lab(&[&["strings"]]);
    for id in 1..=3_000 {
        let mut one = sample(id, &["unpack"]);
        one.sample.given.submitter = format!("person {id}");
        lab.admit(at(1), &one).unwrap();
        assert!(lab.cancel(at(1), id));
        lab.take();
    }
    assert_eq!(lab.open(), 0);
    assert!(lab.people.len() <= PEOPLE_MAX + 1, "{}", lab.people.len());
}

#[test]
fn a_sample_that_brings_its_guest_down_is_suspicious_unless_a_later_attempt_goes_well() {
    for (works_at_last, expected) in [(false, 2), (true, 0)] {
        let (mut lab, machine) = lab(&[&["run"]]);
        lab.admit(at(1), &sample(11, &["run"])).unwrap();
        let mut verdict = None;
        for attempts in 1..10 {
            let work = lab.take();
            if let Some(change) = work.batch.changes.first() {
                verdict = Some((change.verdict, change.reasons.clone()));
                break;
            }
            let attempt = assigned(&work)[0].attempt;
            let brief = Brief { findings: vec![finding(Level::Suspicious)], ..Brief::default() };
            let works = works_at_last && attempts > 1;
            let result =
                PluginResult { brief: if works { Brief::default() } else { brief }, ..brought(attempt, "run", works) };
            lab.result(at(2), machine, result);
            lab.ended(at(2), machine, attempt.cast_signed());
            lab.vm_status(at(2), machine, "vm_0", wire::VmStatus::default());
        }
        let (verdict, reasons) = verdict.unwrap();
        assert_eq!(verdict, expected, "{reasons}");
        assert!(reasons.contains("Suspicious"), "{reasons}");
    }
}
