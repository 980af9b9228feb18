use super::*;
use crate::dispatcher::{Dispatcher, DispatcherSettings};
use crate::job::Report;
use crate::plugin::Plugin;
use crate::wire::Assignment;
use sha2::{Digest, Sha256};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use weir_core::election::Epoch;
use weir_store::records::{LeaseReply, NewSample};
use weir_store::samples::{SampleHash, Samples};

struct Lab {
    home: tempfile::TempDir,
    records: Records,
    samples: Samples,
}

impl Lab {
    async fn new() -> Lab {
        let home = tempfile::tempdir().unwrap();
        let records = Records::sqlite(&home.path().join("records.db")).await.unwrap();
        let samples = Samples::open(&home.path().join("samples")).unwrap();
        Lab { home, records, samples }
    }

    fn plugin(&self, name: &str, script: &str) -> Plugin {
        let folder = self.home.path().join("plugins").join(name);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("run"), format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(folder.join("run"), std::fs::Permissions::from_mode(0o755)).unwrap();
        let manifest = format!("name = \"{name}\"\nversion = \"1\"\nexec = [\"./run\"]");
        std::fs::write(folder.join("plugin.toml"), manifest).unwrap();
        Plugin::read(&folder).unwrap()
    }

    async fn submit(&self, content: &str, plugins: &[&str]) -> i64 {
        let stored = self.samples.put(&mut content.as_bytes(), 1 << 20).unwrap();
        let needs: Vec<_> = plugins.iter().map(|name| (*name, "1")).collect();
        let sample = NewSample {
            ticket: format!("{content} {plugins:?}"),
            hash: stored.hash.to_string(),
            size: stored.size.cast_signed(),
            name: "a".into(),
            submitter: "ann".into(),
            directory: 32,
            needs: serde_json::json!(needs).to_string(),
            tags: "[]".into(),
            ..NewSample::default()
        };
        self.records.lab_samples().submit(&[sample]).await.unwrap()[0]
    }

    async fn lead(&self) -> (Fence, LeaderHandle, tokio::task::JoinHandle<Result<(), LeaderEnd>>) {
        let LeaseReply::Granted { epoch } = self.records.lab_leader().acquire("n1", 60_000).await.unwrap() else {
            panic!("no lease")
        };
        let fence = Fence { epoch, holder: "n1".into() };
        let (leader, handle) = Leader::new(Settings::default(), Rules::default(), self.records.clone(), fence.clone());
        (fence, handle, tokio::spawn(leader.run()))
    }

    fn dispatcher(&self, plugins: Vec<Plugin>) -> Dispatcher {
        let jobs = self.home.path().join("jobs");
        Dispatcher::new(
            DispatcherSettings { jobs, plugins, slots: 2, tags: Vec::new(), processing_index: 1 },
            self.samples.clone(),
            None,
        )
        .unwrap()
    }

    async fn state(&self, sample: i64, wanted: &str) {
        for _ in 0..1000 {
            if self.records.lab_samples().find(sample).await.unwrap().unwrap().state == wanted {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("sample {sample} is {:?}", self.records.lab_samples().find(sample).await.unwrap());
    }
}

/// Connects a dispatcher and a leader in one process.
fn join(dispatcher: &Dispatcher, fence: &Fence, leader: &LeaderHandle) -> tokio::task::JoinHandle<()> {
    let (dispatcher, fence, leader) = (dispatcher.clone(), fence.clone(), leader.clone());
    tokio::spawn(async move { attend_here("n1", &fence, &dispatcher, &leader).await })
}

const REPORT: &str = r#"printf '{"success":true,"full":"%s"}' "$(cat input/attachment)" > output/output.json"#;

fn is_empty(folder: &Path) -> bool {
    std::fs::read_dir(folder).unwrap().next().is_none()
}

#[tokio::test(flavor = "multi_thread")]
async fn samples_are_analysed_and_their_reports_kept() {
    let lab = Lab::new().await;
    let before = lab.submit("before", &["echo"]).await;
    let (fence, leader, _task) = lab.lead().await;
    let dispatcher = lab.dispatcher(vec![lab.plugin("echo", REPORT)]);
    let _machine = join(&dispatcher, &fence, &leader);
    let after = lab.submit("after", &["echo"]).await;
    leader.new_samples();
    for (sample, content) in [(before, "before"), (after, "after")] {
        lab.state(sample, "done").await;
        let results = lab.records.lab_attempts().results(sample).await.unwrap();
        assert_eq!(
            Report::read(results[0].report.as_bytes()).unwrap().full.get(),
            serde_json::json!(content).to_string()
        );
    }
    assert!(is_empty(&lab.home.path().join("jobs")));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_leader_asks_what_a_machine_has() {
    let lab = Lab::new().await;
    let (fence, leader, _task) = lab.lead().await;
    let dispatcher = lab.dispatcher(vec![lab.plugin("echo", REPORT)]);
    let _machine = join(&dispatcher, &fence, &leader);
    let has = loop {
        let has = leader.equipment().await.unwrap().get("n1").copied().unwrap_or_default();
        // It is the last thing that is asked for.
        if has.slots.is_some() {
            break has;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    assert!(has.memory > has.memory_free && has.memory_free > Some(0) && has.cores > Some(0), "{has:?}");
    assert_eq!((has.index, has.slots), (Some(1), Some(2)));
    let places = leader.places().await.unwrap();
    assert!(places.len() == 2 && places.iter().all(|place| place.memory > Some(0)), "{places:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_that_fails_is_tried_again_and_then_the_sample_is_set_aside() {
    let lab = Lab::new().await;
    let (fence, leader, _task) = lab.lead().await;
    let dispatcher = lab.dispatcher(vec![lab.plugin("echo", REPORT), lab.plugin("bad", "exit 1")]);
    let _machine = join(&dispatcher, &fence, &leader);
    let sample = lab.submit("x", &["bad"]).await;
    let good = lab.submit("y", &["echo"]).await;
    leader.new_samples();
    lab.state(sample, "quarantined").await;
    lab.state(good, "done").await;
    assert_eq!(lab.records.lab_attempts().of_sample(sample).await.unwrap().len(), 3);
    let results = lab.records.lab_attempts().results(sample).await.unwrap();
    assert!(results.iter().all(|row| row.accepted == 0) && results[0].report.contains("exit status: 1"), "{results:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_a_machines_fault_is_not_charged_to_the_sample() {
    let lab = Lab::new().await;
    let (fence, leader, _task) = lab.lead().await;
    let dispatcher = lab.dispatcher(vec![lab.plugin("echo", REPORT)]);
    let _machine = join(&dispatcher, &fence, &leader);
    let outcomes = async |sample: i64, wanted: usize| loop {
        let attempts = lab.records.lab_attempts().of_sample(sample).await.unwrap();
        let ended: Vec<String> = attempts.into_iter().map(|row| row.outcome).filter(|o| !o.is_empty()).collect();
        if ended.len() >= wanted {
            return ended;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    let program = lab.home.path().join("plugins/echo/run");
    std::fs::rename(&program, program.with_extension("away")).unwrap();
    let sample = lab.submit("x", &["echo"]).await;
    leader.new_samples();
    assert!(outcomes(sample, 2).await.iter().all(|outcome| outcome.starts_with("refused: echo: ")));
    std::fs::rename(program.with_extension("away"), &program).unwrap();
    lab.state(sample, "done").await;
    // Its content cannot be read for a moment.
    let sample = lab.submit("y", &["echo"]).await;
    let content =
        lab.samples.path(lab.records.lab_samples().find(sample).await.unwrap().unwrap().given.hash.parse().unwrap());
    std::fs::remove_file(&content).unwrap();
    leader.new_samples();
    assert!(outcomes(sample, 1).await[0].starts_with("lacks: "));
    std::fs::write(&content, "y").unwrap();
    lab.state(sample, "done").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_result_outlives_the_leader_that_asked_for_it() {
    let lab = Lab::new().await;
    // A plugin sees its own folder, and nothing beside it.
    let gate = lab.home.path().join("plugins/slow/gate");
    let script = format!("while [ ! -e {} ]; do sleep 0.02; done\n{REPORT}", gate.display());
    let dispatcher = lab.dispatcher(vec![lab.plugin("slow", &script)]);
    let (fence, leader, task) = lab.lead().await;
    let machine = join(&dispatcher, &fence, &leader);
    let sample = lab.submit("x", &["slow"]).await;
    leader.new_samples();
    while lab.records.lab_attempts().of_sample(sample).await.unwrap().is_empty() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    machine.abort();
    task.abort();
    lab.records.lab_leader().release(&fence).await.unwrap();
    std::fs::write(&gate, "").unwrap();
    let (next, leader, _task) = lab.lead().await;
    assert!(next.epoch > fence.epoch);
    let _machine = join(&dispatcher, &next, &leader);
    lab.state(sample, "done").await;
    let accepted: Vec<_> =
        lab.records.lab_attempts().results(sample).await.unwrap().into_iter().filter(|row| row.accepted == 1).collect();
    assert_eq!(accepted.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_that_is_stopped_in_order_charges_nobody() {
    let lab = Lab::new().await;
    let dispatcher = lab.dispatcher(vec![lab.plugin("slow", "sleep 600")]);
    let (fence, leader, _task) = lab.lead().await;
    let _machine = join(&dispatcher, &fence, &leader);
    let sample = lab.submit("x", &["slow"]).await;
    leader.new_samples();
    let attempts = async || lab.records.lab_attempts().of_sample(sample).await.unwrap();
    while attempts().await.is_empty() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    dispatcher.stop();
    // Its other slot is tried as well.
    while attempts().await.iter().any(|attempt| attempt.outcome.is_empty()) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(attempts().await.iter().all(|attempt| attempt.outcome == "refused: this machine is being stopped"));
    assert_eq!(lab.records.lab_samples().open(0, 10).await.unwrap()[0].charged, "[]");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_whose_lease_is_taken_stops_and_an_old_one_is_not_obeyed() {
    let lab = Lab::new().await;
    let dispatcher = lab.dispatcher(vec![lab.plugin("echo", REPORT)]);
    let (fence, leader, task) = lab.lead().await;
    let _machine = join(&dispatcher, &fence, &leader);
    lab.records.lab_leader().release(&fence).await.unwrap();
    let (next, _other, _task) = lab.lead().await;
    let sample = lab.submit("x", &["echo"]).await;
    leader.new_samples();
    let end = task.await.unwrap().unwrap_err();
    assert!(matches!(end, LeaderEnd::FencedOut(epoch) if epoch == fence.epoch), "{end}");
    assert!(lab.records.lab_attempts().of_sample(sample).await.unwrap().is_empty());
    let (out, mut said) = mpsc::unbounded_channel();
    assert!(dispatcher.connect(Epoch(next.epoch.cast_unsigned()), out.clone()));
    assert!(!dispatcher.connect(Epoch(fence.epoch.cast_unsigned()), out), "an older epoch");
    dispatcher.hear(&Message::parse(&old_assignment(fence.epoch)).unwrap());
    let refused = said.recv().await.unwrap().message.to_string();
    assert!(refused.starts_with("refused 1 epoch"), "{refused}");
    let free = said.recv().await.unwrap().message;
    assert_eq!(free, Message::VmStatus("slot_1".into(), VmStatus::default()), "or the VM would be lost");
}

fn old_assignment(epoch: i64) -> String {
    let hash = "ab".repeat(32);
    format!(
        r#"assign {{"attempt":1,"epoch":{epoch},"sample":"{hash}","size":1,"name":"a","vm":"slot_1","plugins":[],"threshold":{{"secs":1,"nanos":0}}}}"#
    )
}

/// A leader with one running sample, and a machine that this test plays.
async fn at_work(lab: &Lab) -> (LeaderHandle, MachineId, mpsc::UnboundedReceiver<Message>, Assignment, i64) {
    let sample = lab.submit("x", &["echo"]).await;
    let (_, leader, _task) = lab.lead().await;
    let (out, mut letters) = mpsc::unbounded_channel();
    let (answer, joined) = oneshot::channel();
    let vms = vec![VmOffer { name: "a".into(), plugins: vec![("echo".into(), "1".into())], tags: Vec::new() }];
    leader.inputs.send(Input::Joined { node: "n1".into(), vms, out, answer }).await.unwrap();
    let machine = joined.await.unwrap().unwrap();
    leader.inputs.send(Input::Status(machine, "a".into(), VmStatus::default())).await.unwrap();
    let Some(Message::Assign(assignment)) = letters.recv().await else { panic!("no assignment") };
    (leader, machine, letters, *assignment, sample)
}

fn good(attempt: u64) -> PluginResult {
    let report = r#"{"success":true}"#.into();
    PluginResult {
        attempt: attempt.cast_signed(),
        plugin: ("echo".into(), "1".into()),
        outcome: crate::wire::PluginOutcome::Done,
        report,
        brief: Default::default(),
    }
}

#[tokio::test]
async fn what_a_leader_left_running_is_ended_by_the_next_and_its_result_counts() {
    let lab = Lab::new().await;
    let (leader, _machine, _letters, assignment, sample) = at_work(&lab).await;
    assert_eq!(lab.records.lab_samples().queue().await.unwrap()[0].running, 1);
    lab.records.lab_leader().release(&Fence { epoch: leader.epoch(), holder: "n1".into() }).await.unwrap();
    let (_, next, _task) = lab.lead().await;
    while lab.records.lab_attempts().of_sample(sample).await.unwrap()[0].ended_at.is_none() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(lab.records.lab_attempts().of_sample(sample).await.unwrap()[0].outcome, "abandoned");
    let waiting: Vec<i64> = lab.records.lab_samples().waiting(10).await.unwrap().iter().map(|row| row.id).collect();
    assert_eq!((lab.records.lab_samples().queue().await.unwrap()[0].running, waiting), (0, vec![sample]));
    // The machine is still running it, and sends the result to the new leader.
    let (out, mut letters) = mpsc::unbounded_channel();
    let (answer, joined) = oneshot::channel();
    let vms = vec![VmOffer { name: "a".into(), plugins: vec![("echo".into(), "1".into())], tags: Vec::new() }];
    next.inputs.send(Input::Joined { node: "n1".into(), vms, out, answer }).await.unwrap();
    let machine = joined.await.unwrap().unwrap();
    next.inputs.send(Input::Result(machine, good(assignment.attempt), None)).await.unwrap();
    assert!(matches!(letters.recv().await, Some(Message::Stored(..))));
    lab.state(sample, "done").await;
}

#[tokio::test]
async fn a_sample_that_ends_in_a_turn_with_a_look_is_not_taken_in_again() {
    let lab = Lab::new().await;
    let (leader, machine, mut letters, assignment, sample) = at_work(&lab).await;
    // Everything is there before the leader's next turn begins.
    leader.inputs.try_send(Input::Result(machine, good(assignment.attempt), None)).unwrap();
    leader.inputs.try_send(Input::Over(machine, assignment.attempt.cast_signed())).unwrap();
    leader.inputs.try_send(Input::Status(machine, "a".into(), VmStatus::default())).unwrap();
    leader.new_samples();
    assert!(matches!(letters.recv().await, Some(Message::Stored(..))));
    lab.state(sample, "done").await;
    assert_eq!(leader.open().await, Some(0));
    assert_eq!(lab.records.lab_attempts().of_sample(sample).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_machine_cannot_bring_the_result_of_another() {
    let lab = Lab::new().await;
    let (leader, machine, mut letters, assignment, sample) = at_work(&lab).await;
    let (out, mut other_letters) = mpsc::unbounded_channel();
    let (answer, joined) = oneshot::channel();
    let vms = vec![VmOffer { name: "a".into(), ..VmOffer::default() }];
    leader.inputs.send(Input::Joined { node: "n2".into(), vms, out, answer }).await.unwrap();
    let other = joined.await.unwrap().unwrap();
    for attempt in [assignment.attempt, assignment.attempt + 1] {
        leader.inputs.send(Input::Result(other, good(attempt), None)).await.unwrap();
        assert!(matches!(other_letters.recv().await, Some(Message::Stored(..))));
    }
    // Neither while it runs nor when it is over.
    leader.inputs.send(Input::Over(machine, assignment.attempt.cast_signed())).await.unwrap();
    leader.inputs.send(Input::Result(other, good(assignment.attempt), None)).await.unwrap();
    assert!(matches!(other_letters.recv().await, Some(Message::Stored(..))));
    assert_eq!(lab.records.lab_attempts().results(sample).await.unwrap(), []);
    leader.inputs.send(Input::Result(machine, good(assignment.attempt), None)).await.unwrap();
    while !matches!(letters.recv().await, Some(Message::Stored(..))) {}
    lab.state(sample, "done").await;
}

#[tokio::test]
async fn a_machine_brings_only_what_was_asked_of_the_attempt() {
    let lab = Lab::new().await;
    // Nobody has the second plugin yet: the sample waits for it.
    let sample = lab.submit("x", &["echo", "yara"]).await;
    let (_, leader, _task) = lab.lead().await;
    let (out, mut letters) = mpsc::unbounded_channel();
    let (answer, joined) = oneshot::channel();
    let vms = vec![VmOffer { name: "a".into(), plugins: vec![("echo".into(), "1".into())], tags: Vec::new() }];
    leader.inputs.send(Input::Joined { node: "x1".into(), vms, out, answer }).await.unwrap();
    let machine = joined.await.unwrap().unwrap();
    leader.inputs.send(Input::Status(machine, "a".into(), VmStatus::default())).await.unwrap();
    let Some(Message::Assign(assignment)) = letters.recv().await else { panic!("no assignment") };
    assert_eq!(assignment.plugins.len(), 1);
    let other = || PluginResult { plugin: ("yara".into(), "1".into()), ..good(assignment.attempt) };
    // Neither while it runs, nor when it has brought what it was asked for, nor when it is over.
    leader.inputs.send(Input::Result(machine, other(), None)).await.unwrap();
    leader.inputs.send(Input::Result(machine, good(assignment.attempt), None)).await.unwrap();
    leader.inputs.send(Input::Result(machine, other(), None)).await.unwrap();
    leader.inputs.send(Input::Over(machine, assignment.attempt.cast_signed())).await.unwrap();
    leader.inputs.send(Input::Result(machine, other(), None)).await.unwrap();
    for _ in 0..4 {
        while !matches!(letters.recv().await, Some(Message::Stored(..))) {}
    }
    let results = lab.records.lab_attempts().results(sample).await.unwrap();
    assert_eq!(results.iter().map(|row| row.plugin.as_str()).collect::<Vec<_>>(), ["echo"]);
    assert_eq!(leader.open().await, Some(1));
}

#[tokio::test]
async fn a_result_that_a_machine_brings_after_it_called_again_counts() {
    let lab = Lab::new().await;
    let (leader, machine, mut letters, assignment, sample) = at_work(&lab).await;
    // Its old connection is not known to be dead yet.
    let (out, mut new_letters) = mpsc::unbounded_channel();
    let (answer, joined) = oneshot::channel();
    let vms = vec![VmOffer { name: "a".into(), plugins: vec![("echo".into(), "1".into())], tags: Vec::new() }];
    leader.inputs.send(Input::Joined { node: "n1".into(), vms, out, answer }).await.unwrap();
    let again = joined.await.unwrap().unwrap();
    assert_ne!(again, machine);
    assert!(matches!(letters.recv().await, Some(Message::Bye(_))), "the old connection ends");
    leader.inputs.send(Input::Result(again, good(assignment.attempt), None)).await.unwrap();
    assert!(matches!(new_letters.recv().await, Some(Message::Stored(..))));
    lab.state(sample, "done").await;
    leader.inputs.send(Input::Left(machine)).await.unwrap();
    assert_eq!(leader.open().await, Some(0));
}

#[tokio::test]
async fn a_row_that_is_committed_late_is_found() {
    let lab = Lab::new().await;
    let (fence, ..) = lab.lead().await;
    let (mut leader, _handle) = Leader::new(Settings::default(), Rules::default(), lab.records.clone(), fence);
    // Its number is far below those that the leader knows.
    lab.submit("x", &["echo"]).await;
    leader.highest = 1_000_000;
    leader.look(leader.highest - LOOK_BACK);
    leader.read_on().await.unwrap();
    assert_eq!(leader.decision.open(), 0);
    leader.count().await.unwrap();
    leader.read_on().await.unwrap();
    assert_eq!(leader.decision.open(), 1);
}

#[tokio::test]
async fn a_sample_is_taken_back_when_the_database_knows_it() {
    let lab = Lab::new().await;
    let (leader, _machine, _letters, _assignment, sample) = at_work(&lab).await;
    assert!(leader.cancel(sample).await);
    assert_eq!(lab.records.lab_samples().find(sample).await.unwrap().unwrap().state, "cancelled");
    assert!(!leader.cancel(sample).await);
    let other = lab.submit("y", &["echo"]).await;
    leader.new_samples();
    while leader.open().await != Some(1) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    lab.records.lab_leader().release(&Fence { epoch: leader.epoch(), holder: "n1".into() }).await.unwrap();
    assert!(!leader.cancel(other).await, "another may lead");
}

#[tokio::test]
async fn work_begins_and_old_results_count_before_everything_is_read() {
    let lab = Lab::new().await;
    let (old, ..) = lab.lead().await;
    let rows = |count: i64| -> Vec<NewSample> {
        let row = |number| NewSample {
            ticket: format!("many {number}"),
            hash: "ab".repeat(32),
            directory: 32,
            needs: r#"[["echo","1"]]"#.into(),
            tags: "[]".into(),
            forced: 1,
            ..NewSample::default()
        };
        (0..count).map(row).collect()
    };
    let samples = lab.records.lab_samples().submit(&rows(PAGE + 10)).await.unwrap();
    let last = *samples.last().unwrap();
    let attempt = weir_store::records::AttemptRow {
        id: 7,
        sample: last,
        epoch: old.epoch,
        node: "n1".into(),
        vm: "a".into(),
        plugins: r#"[["echo","1"]]"#.into(),
        started_at: 1,
        ended_at: None,
        outcome: String::new(),
    };
    let batch = weir_store::records::LabBatch { attempts: vec![attempt], ..Default::default() };
    assert!(lab.records.lab_attempts().commit(&old, &batch).await.unwrap());
    let (mut leader, _handle) = Leader::new(Settings::default(), Rules::default(), lab.records.clone(), old);
    leader.look(0);
    leader.read_on().await.unwrap();
    assert_eq!((leader.decision.open(), leader.decision.knows(last)), (PAGE as usize, false));
    let vms = [VmOffer { name: "a".into(), plugins: vec![("echo".into(), "1".into())], tags: Vec::new() }];
    let machine = leader.decision.plug(leader.now(), "n1", &vms).unwrap();
    leader.result(leader.now(), machine, good(7), None).await;
    leader.carry_out().await.unwrap();
    lab.state(last, "done").await;
    leader.read_on().await.unwrap();
    assert_eq!((leader.decision.open(), leader.reading), (samples.len() - 1, None));
}

/// A machine outside of the lab that is lost while its files are fetched: its report counts when it brings both.
#[tokio::test]
async fn a_report_counts_only_with_the_files_that_it_names() {
    let lab = Lab::new().await;
    let sample = lab.submit("x", &["echo"]).await;
    let (_, leader, _task) = lab.lead().await;
    let file = b"what was in it";
    let stored = SampleHash(Sha256::digest(file).into());
    let report = serde_json::json!({ "success": true, "artifacts": [{ "dataType": "file", "file": "a", "filename": "a.txt",
        "sha256": stored.to_string(), "bytes": file.len(), "contentType": "text/plain" }] });
    let outside = Outside::new(lab.samples.clone(), crate::wire::ChildLimits { count: 9, bytes: 1 << 20 });
    let mut attempt = None;
    for is_lost in [true, false] {
        let (out, mut letters) = mpsc::unbounded_channel();
        let (to_leader, from) = mpsc::channel(64);
        let (handle, link) = (leader.clone(), Link { out, from, outside: Some(outside.clone()) });
        let session = tokio::spawn(async move { attend("x1", link, &handle).await });
        let say = async |message: Message, payload: &[u8]| {
            let envelope = crate::dispatcher::Envelope { message, payload: payload.into() };
            to_leader.send(Received { envelope, share: None }).await.unwrap();
        };
        // It has one VM, which may take a sample the first time only.
        say(Message::Vm("a".into()), b"").await;
        say(Message::VmListEnd(1), b"").await;
        say(Message::VmPlugins("a".into(), vec![("echo".into(), "1".into())]), b"").await;
        say(Message::VmTags("a".into(), Vec::new()), b"").await;
        if is_lost {
            say(Message::VmStatus("a".into(), VmStatus::default()), b"").await;
        }
        while attempt.is_none() {
            if let Some(Message::Assign(assignment)) = letters.recv().await {
                attempt = Some(assignment.attempt);
            }
        }
        let (attempt, length) = (attempt.unwrap(), report.to_string().len() as u64);
        let (plugin, version, outcome) = ("echo".into(), "1".into(), crate::wire::PluginOutcome::Done);
        say(Message::Result { attempt, plugin, version, outcome, length }, report.to_string().as_bytes()).await;
        while !matches!(letters.recv().await, Some(Message::Fetch(hash)) if hash == stored) {}
        if is_lost {
            drop(to_leader);
            session.await.unwrap();
            assert_eq!(lab.records.lab_attempts().results(sample).await.unwrap(), [], "not without its files");
            continue;
        }
        lab.samples.put(&mut &file[..], 1 << 20).unwrap();
        say(Message::Sample(stored, file.len() as u64), b"").await;
        while !matches!(letters.recv().await, Some(Message::Stored(..))) {}
    }
    lab.state(sample, "done").await;
    let children = lab.records.lab_samples().children(sample, 9).await.unwrap();
    assert_eq!(children.iter().map(|row| row.given.name.as_str()).collect::<Vec<_>>(), ["a.txt"]);
}
