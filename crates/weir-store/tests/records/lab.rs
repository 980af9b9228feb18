//! The lab's records on both databases.

use std::time::{Duration, SystemTime};
use weir_store::records::*;

pub(crate) fn sample(ticket: &str, hash: &str) -> NewSample {
    NewSample {
        ticket: ticket.into(),
        hash: hash.into(),
        size: 68,
        name: "in\"voice\u{1f600}.exe".into(),
        submitter: "ann".into(),
        directory: 32,
        file_type: "application/x-dosexec".into(),
        needs: r#"[["strings","1.0"]]"#.into(),
        tags: "[]".into(),
        parent: None,
        root: None,
        depth: 0,
        forced: 0,
        arrived_at: 5,
        choices: String::new(),
        partial: 0,
    }
}

fn attempt(id: i64, sample: i64, epoch: i64) -> AttemptRow {
    let (node, vm, plugins) = ("n1".into(), "vm_1".into(), r#"[["strings","1.0"]]"#.into());
    AttemptRow { id, sample, epoch, node, vm, plugins, started_at: 7, ended_at: None, outcome: String::new() }
}

fn result(attempt: i64, sample: i64, accepted: i64) -> ResultRow {
    let (plugin, version, outcome) = ("strings".into(), "1.0".into(), "done".into());
    let report = r#"{"success":true,"full":"\u0001"}"#.into();
    ResultRow {
        attempt,
        plugin,
        version,
        sample,
        hash: "ab01".into(),
        accepted,
        outcome,
        report,
        brief: "{}".into(),
        at: 9,
    }
}

pub(crate) fn now() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    i64::try_from(since.as_nanos()).unwrap()
}

pub(crate) async fn granted(records: &Records, holder: &str, lease_ms: i64) -> Fence {
    match records.lab_leader().acquire(holder, lease_ms).await.unwrap() {
        LeaseReply::Granted { epoch } => Fence { epoch, holder: holder.into() },
        LeaseReply::Refused { .. } => panic!("{holder} does not get the lease"),
    }
}

pub(crate) async fn one_leader(records: Records) {
    let first = granted(&records, "n1", 60_000).await;
    let refused = records.lab_leader().acquire("n2", 60_000).await.unwrap();
    assert!(matches!(refused, LeaseReply::Refused { free_in_ms } if (1..=60_000).contains(&free_in_ms)), "{refused:?}");
    assert!(records.lab_leader().renew(&first, 60_000).await.unwrap());
    records.lab_leader().release(&Fence { epoch: first.epoch, holder: "n2".into() }).await.unwrap();
    assert!(records.lab_leader().renew(&first, 60_000).await.unwrap(), "only the holder can release");
    records.lab_leader().release(&first).await.unwrap();
    assert!(!records.lab_leader().renew(&first, 60_000).await.unwrap(), "a lease that is over is not renewed");
    let second = granted(&records, "n2", 60_000).await;
    assert!(second.epoch > first.epoch);
    let (leader, left) = records.lab_leader().current().await.unwrap();
    assert_eq!((leader, left > 0), (second.clone(), true));
    let history: Vec<_> =
        records.lab_leader().history(10).await.unwrap().into_iter().map(|(epoch, who, _)| (epoch, who)).collect();
    assert_eq!(history, [(second.epoch, "n2".into()), (first.epoch, "n1".into())]);
    records.lab_leader().probe().await.unwrap();
    // A lease from before the database's clock stepped back.
    records.lab_leader().release(&second).await.unwrap();
    let early = granted(&records, "n2", 3_600_000).await;
    assert!(granted(&records, "n1", 60_000).await.epoch > early.epoch);
    assert!(!records.lab_leader().renew(&early, 60_000).await.unwrap(), "its epoch is over");
    // Machines are registered, and this one is not any more.
    let first = Fence { epoch: early.epoch + 1, holder: "n1".into() };
    assert!(records.lab_nodes().register(&registered("n2", "k2")).await.unwrap());
    assert!(!records.lab_leader().renew(&first, 60_000).await.unwrap());
    records.lab_leader().release(&first).await.unwrap();
    assert!(matches!(records.lab_leader().acquire("n1", 60_000).await.unwrap(), LeaseReply::Refused { .. }));
    granted(&records, "n2", 60_000).await;
}

pub(crate) async fn many_candidates(records: Records) {
    let asks = (0..16).map(|i| {
        let records = records.clone();
        tokio::spawn(async move { records.lab_leader().acquire(&format!("n{i}"), 60_000).await.unwrap() })
    });
    let mut winners = 0;
    for ask in asks.collect::<Vec<_>>() {
        winners += usize::from(matches!(ask.await.unwrap(), LeaseReply::Granted { .. }));
    }
    assert_eq!(winners, 1);
}

pub(crate) async fn fenced(records: Records) {
    let ids = records.lab_samples().submit(&[sample("t1", "ab01"), sample("t2", "cd02")]).await.unwrap();
    let old = granted(&records, "n1", 60_000).await;
    let batch = LabBatch { attempts: vec![attempt(1, ids[0], old.epoch)], ..LabBatch::default() };
    assert!(records.lab_attempts().commit(&old, &batch).await.unwrap());
    let place = (ids[0], "n1".to_owned(), attempt(1, ids[0], old.epoch).plugins);
    assert_eq!(records.lab_attempts().place(1).await.unwrap(), Some(place));
    let charges = |open: &OpenSample| serde_json::from_str::<Vec<String>>(&open.charged).unwrap().len();
    let charged = async || records.lab_samples().open(0, 10).await.unwrap().iter().map(charges).collect::<Vec<_>>();
    assert_eq!(charged().await, [1, 0], "an attempt that has brought nothing");
    let outcomes = ["failed", "expired", "lost", "done", "cancelled", "satisfied", "refused: no", "lacks: nobody"];
    let ended = (11..).zip(outcomes);
    let batch = LabBatch {
        attempts: (11..19).map(|id| attempt(id, ids[1], old.epoch)).collect(),
        ends: ended.map(|(id, outcome)| AttemptEnd { id, outcome: outcome.into(), ended_at: 8 }).collect(),
        ..LabBatch::default()
    };
    let begun = LabBatch { ends: Vec::new(), ..batch.clone() };
    let ended = LabBatch { attempts: Vec::new(), ..batch };
    assert!(
        records.lab_attempts().commit(&old, &begun).await.unwrap()
            && records.lab_attempts().commit(&old, &ended).await.unwrap()
    );
    assert_eq!(charged().await, [1, 3], "nobody else's fault is charged");
    records.lab_leader().release(&old).await.unwrap();
    let late = LabBatch {
        attempts: vec![attempt(2, ids[1], old.epoch)],
        ends: vec![AttemptEnd { id: 1, outcome: "done".into(), ended_at: 8 }],
        results: vec![result(1, ids[0], 1)],
        changes: vec![SampleChange {
            id: ids[0],
            state: "done".into(),
            why: String::new(),
            ended_at: Some(8),
            ..SampleChange::default()
        }],
        ..LabBatch::default()
    };
    assert!(!records.lab_attempts().commit(&old, &late).await.unwrap(), "its lease is over");
    let new = granted(&records, "n2", 60_000).await;
    assert!(!records.lab_attempts().commit(&old, &late).await.unwrap(), "another leads");
    assert!(
        !records.lab_attempts().commit(&Fence { holder: "n1".into(), ..new.clone() }, &late).await.unwrap(),
        "not its epoch"
    );
    assert_eq!(records.lab_attempts().of_sample(ids[1]).await.unwrap().len(), 8);
    assert_eq!(records.lab_attempts().results(ids[0]).await.unwrap(), []);
    assert_eq!(records.lab_samples().open(0, 10).await.unwrap().len(), 2);
    assert!(records.lab_attempts().commit(&new, &late).await.unwrap());
    let stored = records.lab_attempts().of_sample(ids[0]).await.unwrap();
    let started_at = stored[0].started_at;
    let ended = AttemptRow { started_at, ended_at: Some(8), outcome: "done".into(), ..attempt(1, ids[0], old.epoch) };
    assert_eq!(stored, [ended]);
    // The clock is the lease's, whatever the leader says.
    let terms = records.lab_leader().history(10).await.unwrap();
    let began = |epoch| terms.iter().find(|(term, ..)| *term == epoch).map(|(_, _, at)| *at).unwrap();
    // A term's beginning is rounded.
    assert!((began(old.epoch) - 1..=began(new.epoch)).contains(&(started_at / 1_000_000)), "{started_at} in {terms:?}");
    assert_eq!(records.lab_attempts().results(ids[0]).await.unwrap(), [result(1, ids[0], 1)]);
    let open = records.lab_samples().open(0, 10).await.unwrap();
    assert_eq!(open.iter().map(|open| open.sample.id).collect::<Vec<_>>(), [ids[1]]);
}

/// What a term left running is ended by the next, and by no other.
pub(crate) async fn abandoned(records: Records) {
    let ids = records.lab_samples().submit(&[sample("t1", "ab01"), sample("t2", "cd02")]).await.unwrap();
    let old = granted(&records, "n1", 60_000).await;
    let attempts = vec![attempt(1, ids[0], old.epoch), attempt(2, ids[0], old.epoch)];
    assert!(records.lab_attempts().commit(&old, &LabBatch { attempts, ..LabBatch::default() }).await.unwrap());
    let ends = vec![AttemptEnd { id: 1, outcome: "done".into(), ended_at: 8 }];
    assert!(records.lab_attempts().commit(&old, &LabBatch { ends, ..LabBatch::default() }).await.unwrap());
    assert_eq!(records.lab_attempts().abandon(&old, 0).await.unwrap(), Some(0), "they are its own");
    let charged = records.lab_samples().open(0, 1).await.unwrap()[0].charged.clone();
    records.lab_leader().release(&old).await.unwrap();
    assert_eq!(records.lab_attempts().abandon(&old, 0).await.unwrap(), None, "its lease is over");
    let new = granted(&records, "n2", 60_000).await;
    let own = LabBatch { attempts: vec![attempt(3, ids[1], new.epoch)], ..LabBatch::default() };
    assert!(records.lab_attempts().commit(&new, &own).await.unwrap());
    assert_eq!(records.lab_attempts().abandon(&old, 0).await.unwrap(), None, "another leads");
    assert!(records.lab_nodes().works_on("n1", "ab01").await.unwrap().is_some());
    assert_eq!(records.lab_attempts().abandon(&new, new.epoch).await.unwrap(), Some(1));
    assert_eq!(records.lab_attempts().abandon(&new, new.epoch).await.unwrap(), Some(0));
    let outcome =
        |row: &AttemptRow| (row.outcome.clone(), row.ended_at.is_some_and(|at| at > 1_700_000_000_000_000_000));
    let first = records.lab_attempts().of_sample(ids[0]).await.unwrap();
    assert_eq!(first.iter().map(outcome).collect::<Vec<_>>(), [("done".into(), false), ("abandoned".into(), true)]);
    assert_eq!(records.lab_attempts().of_sample(ids[1]).await.unwrap()[0].ended_at, None);
    assert_eq!(records.lab_samples().open(0, 1).await.unwrap()[0].charged, charged, "it is charged as before");
    assert_eq!(records.lab_nodes().works_on("n1", "ab01").await.unwrap(), None);
    assert_eq!(records.lab_samples().queue().await.unwrap()[0].running, 1);
    assert!(records.lab_attempts().place(2).await.unwrap().is_some(), "what it brings can be placed");
}

/// A sample is charged for a machine that it may have brought down, and for nothing else, but not without end.
pub(crate) async fn interrupted(records: Records) {
    let ids = records.lab_samples().submit(&[sample("t1", "ab01")]).await.unwrap();
    let outcome = async |id: i64| {
        let rows = records.lab_attempts().of_sample(ids[0]).await.unwrap();
        rows.into_iter().find(|row| row.id == id).map(|row| row.outcome).unwrap()
    };
    let mut fence = granted(&records, "n1", 60_000).await;
    let first = fence.epoch;
    // Where it ran, whether this process led then, and what becomes of it.
    for (id, (node, own_since, expected)) in (1..).zip([
        ("n1", i64::MAX, "abandoned"),
        ("n1", first, "interrupted"),
        ("n2", i64::MAX, "interrupted"),
        ("n2", i64::MAX, "interrupted"),
        ("n2", i64::MAX, "abandoned"),
        ("n1", first, "abandoned"),
    ]) {
        let under_way = AttemptRow { node: node.into(), ..attempt(id, ids[0], fence.epoch) };
        let batch = LabBatch { attempts: vec![under_way], ..LabBatch::default() };
        assert!(records.lab_attempts().commit(&fence, &batch).await.unwrap());
        records.lab_leader().release(&fence).await.unwrap();
        fence = granted(&records, "n1", 60_000).await;
        assert_eq!(records.lab_attempts().abandon(&fence, own_since).await.unwrap(), Some(1));
        assert_eq!(outcome(id).await, expected, "attempt {id} on {node}");
    }
    let charged = records.lab_samples().open(0, 1).await.unwrap()[0].charged.clone();
    let charged: Vec<serde_json::Value> = serde_json::from_str(&charged).unwrap();
    assert_eq!(charged.len(), 3, "{charged:?}");
}

pub(crate) async fn one_result(records: Records) {
    let id = records.lab_samples().submit(&[sample("t", "ab01")]).await.unwrap()[0];
    let fence = granted(&records, "n1", 60_000).await;
    let batch = LabBatch { results: vec![result(1, id, 1), result(2, id, 1), result(3, id, 0)], ..LabBatch::default() };
    assert!(records.lab_attempts().commit(&fence, &batch).await.unwrap());
    assert!(records.lab_attempts().commit(&fence, &batch).await.unwrap(), "sent twice is stored once");
    let stored: Vec<_> =
        records.lab_attempts().results(id).await.unwrap().iter().map(|row| (row.attempt, row.accepted)).collect();
    assert_eq!(stored, [(1, 1), (3, 0)], "the first accepted one counts, and one that is not is kept beside it");
    assert_eq!(records.lab_attempts().known("ffff", 9).await.unwrap(), []);
    let known = records.lab_attempts().known("ab01", 9).await.unwrap();
    let told = |known: &KnownResult| (known.attempt, known.plugin.clone(), known.sample, known.name.clone());
    assert_eq!(known.iter().map(told).collect::<Vec<_>>(), [(1, "strings".into(), id, Some(sample("t", "ab01").name))]);
    let twins = [sample("twin", "ab01"), NewSample { forced: 1, ..sample("forced", "ab01") }];
    let twins = records.lab_samples().submit(&twins).await.unwrap();
    let (strings, nothing) = (r#"[["strings","1.0","{}"]]"#, "[]");
    let of_the_first = format!(r#"[["strings","1.0","{{}}",{}]]"#, serde_json::json!(sample("t", "ab01").name));
    let open: Vec<_> = records.lab_samples().open(0, 10).await.unwrap();
    let known: Vec<_> =
        open.iter().map(|open| (open.sample.id, open.have.replace(' ', ""), open.cached.replace(' ', ""))).collect();
    let expected = [(id, strings, nothing), (twins[0], nothing, &*of_the_first), (twins[1], nothing, nothing)];
    assert_eq!(known, expected.map(|(id, have, cached)| (id, have.to_owned(), cached.to_owned())));
    assert_eq!(records.lab_attempts().place(1).await.unwrap(), None);
}

/// Whoever asks for a commit may be dropped at any point of it.
pub(crate) async fn dropped(records: Records) {
    let ids = records
        .lab_samples()
        .submit(&(0..500).map(|i| sample(&format!("t{i}"), "ab01")).collect::<Vec<_>>())
        .await
        .unwrap();
    let fence = granted(&records, "n1", 60_000).await;
    let change = |id: &i64| SampleChange {
        id: *id,
        state: "done".into(),
        why: String::new(),
        ended_at: Some(8),
        ..SampleChange::default()
    };
    let batch = LabBatch { changes: ids.iter().map(change).collect(), ..LabBatch::default() };
    for micros in (0..3_000).step_by(60) {
        let _ =
            tokio::time::timeout(Duration::from_micros(micros), records.lab_attempts().commit(&fence, &batch)).await;
        assert!(
            records
                .lab_attempts()
                .commit(&fence, &LabBatch { changes: vec![change(&ids[0])], ..LabBatch::default() })
                .await
                .unwrap()
        );
    }
}

pub(crate) async fn samples(records: Records) {
    let given: Vec<NewSample> = (0..5).map(|i| sample(&format!("t{i}"), &format!("a{i}"))).collect();
    let ids = records.lab_samples().submit(&given).await.unwrap();
    assert_eq!(records.lab_samples().submit(&given).await.unwrap(), ids, "the same tickets are the same samples");
    let row = records.lab_samples().find(ids[2]).await.unwrap().unwrap();
    assert_eq!((&row.given, row.state.as_str()), (&given[2], "queued"));
    assert_eq!(records.lab_samples().find(i64::MAX).await.unwrap(), None);
    let by =
        |hash: &str, state: &str| SampleFilter { hash: hash.into(), state: state.into(), ..SampleFilter::default() };
    let numbers = async |filter: SampleFilter, most| -> Vec<i64> {
        records.lab_samples().list(&filter, most).await.unwrap().into_iter().map(|row| row.id).collect()
    };
    assert_eq!(numbers(by("a3", ""), 10).await, [ids[3]]);
    assert_eq!(numbers(by("", "queued"), 2).await, [ids[4], ids[3]]);
    assert_eq!(numbers(SampleFilter { before: Some(ids[3]), ..by("a", "") }, 2).await, [ids[2], ids[1]]);
    assert_eq!(numbers(by("", "done"), 10).await, [] as [i64; 0]);
    assert_eq!(records.lab_samples().states().await.unwrap(), [("queued".to_owned(), 5)]);
    assert_eq!(records.lab_samples().open(ids[3], 10).await.unwrap().len(), 1);
    assert_eq!(records.lab_samples().open_count(ids[3]).await.unwrap(), 4);
    assert_eq!(records.lab_samples().strays(&["a1".into(), "b1".into(), "a9".into()]).await.unwrap(), ["b1", "a9"]);
}

pub(crate) async fn pruned(records: Records) {
    let mut given = vec![sample("t0", "aa"), sample("t1", "bb"), sample("t2", "bb")];
    given[1].arrived_at = 6;
    let ids = records.lab_samples().submit(&given).await.unwrap();
    let fence = granted(&records, "n1", 60_000).await;
    let change = |id, at| SampleChange {
        id,
        state: "done".into(),
        why: String::new(),
        ended_at: Some(at),
        ..SampleChange::default()
    };
    let batch = LabBatch {
        changes: vec![change(ids[0], 10), change(ids[1], 11), change(ids[2], now())],
        ..LabBatch::default()
    };
    assert!(records.lab_attempts().commit(&fence, &batch).await.unwrap());
    let strings = [result(1, ids[1], 1), result(2, ids[1], 0), result(3, ids[0], 1)];
    let strings = strings.map(|row| ResultRow { hash: if row.sample == ids[0] { "aa" } else { "bb" }.into(), ..row });
    assert!(
        records
            .lab_attempts()
            .commit(&fence, &LabBatch { results: strings.to_vec(), ..LabBatch::default() })
            .await
            .unwrap()
    );
    let (hour, stale) = (Duration::from_secs(3600), Fence { epoch: fence.epoch - 1, ..fence.clone() });
    assert_eq!(records.lab_samples().prune(&stale, hour, 100).await.unwrap(), None, "only who leads forgets");
    let pruned = records.lab_samples().prune(&fence, hour, 100).await.unwrap().unwrap();
    assert_eq!(pruned, Pruned { samples: 2, hashes: vec!["aa".into()] }, "the other content is still somebody's");
    assert_eq!(records.lab_attempts().known("aa", 9).await.unwrap(), []);
    let kept = records.lab_attempts().known("bb", 9).await.unwrap();
    assert_eq!(kept.iter().map(|known| (known.sample, known.name.clone())).collect::<Vec<_>>(), [(ids[1], None)]);
    let kept = records.lab_attempts().results(ids[1]).await.unwrap();
    assert_eq!(kept, [strings[0].clone()], "the twin stands on it, and what does not count is gone");
    assert_eq!(records.lab_samples().prune(&fence, hour, 100).await.unwrap(), Some(Pruned::default()));
    assert_eq!(records.lab_samples().states().await.unwrap(), [("done".to_owned(), 1)]);
}

fn registered(node: &str, key: &str) -> NodeRow {
    NodeRow {
        node: node.into(),
        name: "rack 3".into(),
        role: "eligible".into(),
        priority: 10,
        address: "192.0.2.7:7300".into(),
        fingerprint: key.into(),
        processing_index: None,
        drained: false,
        registered_at: 1,
        seen_at: 0,
    }
}

pub(crate) async fn nodes(records: Records) {
    let node = registered;
    assert!(records.lab_nodes().register(&node("n1", "k1")).await.unwrap());
    assert!(!records.lab_nodes().register(&node("n1", "k2")).await.unwrap(), "the id is taken");
    assert!(!records.lab_nodes().register(&node("n2", "k1")).await.unwrap(), "the key is taken");
    assert!(records.lab_nodes().register(&node("n2", "k2")).await.unwrap());
    let at = |address: &str| NodeRow { address: address.into(), ..node("n2", "k2") };
    for false_one in [
        node("n9", "k2"),
        node("n2", "k1"),
        NodeRow { priority: 9, ..node("n2", "k2") },
        NodeRow { role: "external".into(), ..node("n2", "k2") },
    ] {
        assert!(!records.lab_nodes().seen(&false_one).await.unwrap(), "{false_one:?}");
    }
    assert_eq!(records.lab_nodes().others("n1", 60_000).await.unwrap(), 0, "what is not as registered is not there");
    assert!(records.lab_nodes().seen(&NodeRow { processing_index: Some(12), ..at("192.0.2.8") }).await.unwrap());
    assert!(records.lab_nodes().seen(&at("192.0.2.9")).await.unwrap());
    assert_eq!(records.lab_nodes().others("n1", 60_000).await.unwrap(), 1);
    assert_eq!(records.lab_nodes().others("n2", 60_000).await.unwrap(), 0);
    assert!(records.lab_nodes().register(&NodeRow { seen_at: i64::MAX, ..node("n3", "k3") }).await.unwrap());
    assert_eq!(records.lab_nodes().others("n1", 60_000).await.unwrap(), 1, "the clock stepped back");
    assert!(records.lab_nodes().drain("n2", true).await.unwrap());
    let stored = records.lab_nodes().all().await.unwrap();
    let (address, seen_at) = ("192.0.2.9".into(), stored[1].seen_at);
    let expected = NodeRow { processing_index: Some(12), drained: true, address, seen_at, ..node("n2", "k2") };
    assert_eq!(stored[..2], [node("n1", "k1"), expected]);
    assert!(stored[1].seen_at > 1_700_000_000_000_000_000);

    // A machine outside does not count among those that can be heard, and sees what it works on.
    let outside = NodeRow { role: "external".into(), ..node("x1", "k4") };
    assert!(records.lab_nodes().register(&outside).await.unwrap());
    assert!(records.lab_nodes().seen(&outside).await.unwrap());
    assert_eq!(records.lab_nodes().others("n1", 60_000).await.unwrap(), 1);
    let refused = records.lab_leader().acquire("stranger", 60_000).await.unwrap();
    assert_eq!(refused, LeaseReply::Refused { free_in_ms: 0 }, "where machines are registered, only one of them leads");
    let fence = granted(&records, "n1", 60_000).await;
    let number = records.lab_samples().submit(&[sample("t1", "ab01")]).await.unwrap()[0];
    let given = AttemptRow { node: "x1".into(), ..attempt(1, number, fence.epoch) };
    assert_eq!(records.lab_nodes().works_on("x1", "ab01").await.unwrap(), None);
    assert!(
        records
            .lab_attempts()
            .commit(&fence, &LabBatch { attempts: vec![given], ..LabBatch::default() })
            .await
            .unwrap()
    );
    assert_eq!(records.lab_nodes().works_on("x1", "ab01").await.unwrap(), Some(sample("t1", "ab01").size));
    for (node, hash) in [("x1", "ab02"), ("n2", "ab01")] {
        assert_eq!(records.lab_nodes().works_on(node, hash).await.unwrap(), None);
    }
    let ends = vec![AttemptEnd { id: 1, outcome: "done".into(), ended_at: 8 }];
    assert!(records.lab_attempts().commit(&fence, &LabBatch { ends, ..LabBatch::default() }).await.unwrap());
    assert_eq!(records.lab_nodes().works_on("x1", "ab01").await.unwrap(), None, "it is over");
    assert!(records.lab_nodes().remove("x1").await.unwrap() && !records.lab_nodes().remove("x1").await.unwrap());
    assert!(!records.lab_nodes().remove("n1").await.unwrap(), "it leads");
}

/// The machine of a lab of one is in the records while it is drained, and keeps no other from leading or from being registered.
pub(crate) async fn drained_alone(records: Records) {
    records.lab_nodes().drain_alone("one", false).await.unwrap();
    assert!(!records.lab_nodes().drain("one", true).await.unwrap(), "it is not there");
    for _ in 0..2 {
        records.lab_nodes().drain_alone("one", true).await.unwrap();
        let stored = records.lab_nodes().all().await.unwrap();
        let found: Vec<_> =
            stored.iter().map(|row| (row.node.as_str(), row.drained, row.fingerprint.as_str())).collect();
        assert_eq!(found, [("one", true, "")]);
        assert!(stored[0].seen_at > 1_700_000_000_000_000_000 && stored[0].registered_at == stored[0].seen_at);
    }
    assert_eq!(records.lab_nodes().others("two", 60_000).await.unwrap(), 0, "nobody can hear it");
    let other = granted(&records, "two", 60_000).await;
    assert!(records.lab_leader().renew(&other, 60_000).await.unwrap(), "the machine may have got another name");
    records.lab_leader().release(&other).await.unwrap();
    granted(&records, "one", 60_000).await;
    records.lab_nodes().drain_alone("one", false).await.unwrap();
    assert_eq!(records.lab_nodes().all().await.unwrap(), []);

    records.lab_nodes().drain_alone("n1", true).await.unwrap();
    assert!(records.lab_nodes().register(&registered("n1", "k1")).await.unwrap(), "it becomes one of several");
    for drained in [true, false] {
        records.lab_nodes().drain_alone("n1", drained).await.unwrap();
        assert_eq!(records.lab_nodes().all().await.unwrap(), [registered("n1", "k1")], "and is drained as those are");
    }
}

pub(crate) async fn queue(records: Records) {
    let urgent = NewSample { directory: 3, arrived_at: 9, ..sample("u", "ab02") };
    let ids = records.lab_samples().submit(&[sample("t1", "ab01"), sample("t2", "ab01"), urgent]).await.unwrap();
    let fence = granted(&records, "n1", 60_000).await;
    let batch = LabBatch { attempts: vec![attempt(1, ids[0], fence.epoch)], ..LabBatch::default() };
    assert!(records.lab_attempts().commit(&fence, &batch).await.unwrap());
    let row = |directory, samples, running, oldest_at| QueueRow { directory, samples, running, oldest_at };
    assert_eq!(records.lab_samples().queue().await.unwrap(), [row(3, 1, 0, 9), row(32, 2, 1, 5)]);
    let waiting: Vec<i64> = records.lab_samples().waiting(10).await.unwrap().into_iter().map(|row| row.id).collect();
    assert_eq!(waiting, [ids[2], ids[1]]);
}
