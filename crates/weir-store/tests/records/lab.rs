//! The lab's records on both databases.

use weir_store::records::*;

fn sample(ticket: &str, hash: &str) -> NewSample {
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
        depth: 0,
        forced: 0,
        arrived_at: 5,
    }
}

fn attempt(id: i64, sample: i64, epoch: i64) -> AttemptRow {
    let (node, vm, plugins) = ("n1".into(), "vm_1".into(), r#"[["strings","1.0"]]"#.into());
    AttemptRow { id, sample, epoch, node, vm, plugins, started_at: 7, ended_at: None, outcome: String::new() }
}

fn result(attempt: i64, sample: i64, accepted: i64) -> ResultRow {
    let (plugin, version, outcome) = ("strings".into(), "1.0".into(), "done".into());
    let report = r#"{"success":true,"full":"\u0001"}"#.into();
    ResultRow { attempt, plugin, version, sample, hash: "ab01".into(), accepted, outcome, report, at: 9 }
}

async fn granted(records: &Records, holder: &str, lease_ms: i64) -> Fence {
    match records.lab_acquire(holder, lease_ms).await.unwrap() {
        LeaseReply::Granted { epoch } => Fence { epoch, holder: holder.into() },
        LeaseReply::Refused { .. } => panic!("{holder} does not get the lease"),
    }
}

pub(crate) async fn one_leader(records: Records) {
    let first = granted(&records, "n1", 60_000).await;
    let refused = records.lab_acquire("n2", 60_000).await.unwrap();
    assert!(matches!(refused, LeaseReply::Refused { free_in_ms } if (1..=60_000).contains(&free_in_ms)), "{refused:?}");
    assert!(records.lab_renew(&first, 60_000).await.unwrap());
    records.lab_release(&Fence { epoch: first.epoch, holder: "n2".into() }).await.unwrap();
    assert!(records.lab_renew(&first, 60_000).await.unwrap(), "only the holder can release");
    records.lab_release(&first).await.unwrap();
    assert!(!records.lab_renew(&first, 60_000).await.unwrap(), "a lease that is over is not renewed");
    let second = granted(&records, "n2", 60_000).await;
    assert!(second.epoch > first.epoch);
    let (leader, left) = records.lab_leader().await.unwrap();
    assert_eq!((leader, left > 0), (second.clone(), true));
    let history: Vec<_> =
        records.lab_history(10).await.unwrap().into_iter().map(|(epoch, who, _)| (epoch, who)).collect();
    assert_eq!(history, [(second.epoch, "n2".into()), (first.epoch, "n1".into())]);
    records.lab_probe().await.unwrap();
}

pub(crate) async fn many_candidates(records: Records) {
    let asks = (0..16).map(|i| {
        let records = records.clone();
        tokio::spawn(async move { records.lab_acquire(&format!("n{i}"), 60_000).await.unwrap() })
    });
    let mut winners = 0;
    for ask in asks.collect::<Vec<_>>() {
        winners += usize::from(matches!(ask.await.unwrap(), LeaseReply::Granted { .. }));
    }
    assert_eq!(winners, 1);
}

pub(crate) async fn fenced(records: Records) {
    let ids = records.lab_submit(&[sample("t1", "ab01"), sample("t2", "cd02")]).await.unwrap();
    let old = granted(&records, "n1", 60_000).await;
    let batch = LabBatch { attempts: vec![attempt(1, ids[0], old.epoch)], ..LabBatch::default() };
    assert!(records.lab_commit(&old, &batch).await.unwrap());
    let charged = async || records.lab_open(0, 10).await.unwrap().iter().map(|open| open.charged).collect::<Vec<_>>();
    assert_eq!(charged().await, [1, 0], "an attempt that has brought nothing");
    records.lab_release(&old).await.unwrap();
    let late = LabBatch {
        attempts: vec![attempt(2, ids[1], old.epoch)],
        ends: vec![AttemptEnd { id: 1, outcome: "done".into(), ended_at: 8 }],
        results: vec![result(1, ids[0], 1)],
        changes: vec![SampleChange { id: ids[0], state: "done".into(), why: String::new(), ended_at: Some(8) }],
    };
    assert!(!records.lab_commit(&old, &late).await.unwrap(), "its lease is over");
    let new = granted(&records, "n2", 60_000).await;
    assert!(!records.lab_commit(&old, &late).await.unwrap(), "another leads");
    assert!(!records.lab_commit(&Fence { holder: "n1".into(), ..new.clone() }, &late).await.unwrap(), "not its epoch");
    assert_eq!(records.lab_attempts(ids[1]).await.unwrap(), []);
    assert_eq!(records.lab_results(ids[0]).await.unwrap(), []);
    assert_eq!(records.lab_open(0, 10).await.unwrap().len(), 2);
    assert!(records.lab_commit(&new, &late).await.unwrap());
    let ended = AttemptRow { ended_at: Some(8), outcome: "done".into(), ..attempt(1, ids[0], old.epoch) };
    assert_eq!(records.lab_attempts(ids[0]).await.unwrap(), [ended]);
    assert_eq!(records.lab_results(ids[0]).await.unwrap(), [result(1, ids[0], 1)]);
    let open = records.lab_open(0, 10).await.unwrap();
    assert_eq!(open.iter().map(|open| open.sample.id).collect::<Vec<_>>(), [ids[1]]);
}

pub(crate) async fn one_result(records: Records) {
    let id = records.lab_submit(&[sample("t", "ab01")]).await.unwrap()[0];
    let fence = granted(&records, "n1", 60_000).await;
    let batch = LabBatch { results: vec![result(1, id, 1), result(2, id, 1), result(3, id, 0)], ..LabBatch::default() };
    assert!(records.lab_commit(&fence, &batch).await.unwrap());
    assert!(records.lab_commit(&fence, &batch).await.unwrap(), "sent twice is stored once");
    let stored: Vec<_> = records.lab_results(id).await.unwrap().iter().map(|row| (row.attempt, row.accepted)).collect();
    assert_eq!(stored, [(1, 1), (3, 0)], "the first accepted one counts, and one that is not is kept beside it");
    let cached = records.lab_cached(&["ab01".into(), "ffff".into()]).await.unwrap();
    assert_eq!(cached, [result(1, id, 1)]);
    let twins = [sample("twin", "ab01"), NewSample { forced: 1, ..sample("forced", "ab01") }];
    let twins = records.lab_submit(&twins).await.unwrap();
    let (strings, nothing) = (r#"[["strings","1.0"]]"#, "[]");
    let open: Vec<_> = records.lab_open(0, 10).await.unwrap();
    let known: Vec<_> =
        open.iter().map(|open| (open.sample.id, open.have.replace(' ', ""), open.cached.replace(' ', ""))).collect();
    let expected = [(id, strings, nothing), (twins[0], nothing, strings), (twins[1], nothing, nothing)];
    assert_eq!(known, expected.map(|(id, have, cached)| (id, have.to_owned(), cached.to_owned())));
    assert_eq!(records.lab_attempt_place(1).await.unwrap(), None);
}

/// Whoever asks for a commit may be dropped at any point of it.
pub(crate) async fn dropped(records: Records) {
    let ids =
        records.lab_submit(&(0..500).map(|i| sample(&format!("t{i}"), "ab01")).collect::<Vec<_>>()).await.unwrap();
    let fence = granted(&records, "n1", 60_000).await;
    let change = |id: &i64| SampleChange { id: *id, state: "done".into(), why: String::new(), ended_at: Some(8) };
    let batch = LabBatch { changes: ids.iter().map(change).collect(), ..LabBatch::default() };
    for micros in (0..3_000).step_by(60) {
        let _ =
            tokio::time::timeout(std::time::Duration::from_micros(micros), records.lab_commit(&fence, &batch)).await;
        assert!(
            records
                .lab_commit(&fence, &LabBatch { changes: vec![change(&ids[0])], ..LabBatch::default() })
                .await
                .unwrap()
        );
    }
}

pub(crate) async fn samples(records: Records) {
    let given: Vec<NewSample> = (0..5).map(|i| sample(&format!("t{i}"), &format!("a{i}"))).collect();
    let ids = records.lab_submit(&given).await.unwrap();
    assert_eq!(records.lab_submit(&given).await.unwrap(), ids, "the same tickets are the same samples");
    let row = records.lab_sample(ids[2]).await.unwrap().unwrap();
    assert_eq!((&row.given, row.state.as_str()), (&given[2], "queued"));
    assert_eq!(records.lab_sample(i64::MAX).await.unwrap(), None);
    let by = |hash: &str, state: &str| SampleFilter { hash: hash.into(), state: state.into(), before: None };
    let numbers = async |filter: SampleFilter, most| -> Vec<i64> {
        records.lab_samples(&filter, most).await.unwrap().into_iter().map(|row| row.id).collect()
    };
    assert_eq!(numbers(by("a3", ""), 10).await, [ids[3]]);
    assert_eq!(numbers(by("", "queued"), 2).await, [ids[4], ids[3]]);
    assert_eq!(numbers(SampleFilter { before: Some(ids[3]), ..by("a", "") }, 2).await, [ids[2], ids[1]]);
    assert_eq!(numbers(by("", "done"), 10).await, [] as [i64; 0]);
    assert_eq!(records.lab_states().await.unwrap(), [("queued".to_owned(), 5)]);
    assert_eq!(records.lab_open(ids[3], 10).await.unwrap().len(), 1);
}

pub(crate) async fn pruned(records: Records) {
    let mut given = vec![sample("t0", "aa"), sample("t1", "bb"), sample("t2", "bb")];
    given[1].arrived_at = 6;
    let ids = records.lab_submit(&given).await.unwrap();
    let fence = granted(&records, "n1", 60_000).await;
    let change = |id, at| SampleChange { id, state: "done".into(), why: String::new(), ended_at: Some(at) };
    let batch =
        LabBatch { changes: vec![change(ids[0], 10), change(ids[1], 11), change(ids[2], 50)], ..LabBatch::default() };
    assert!(records.lab_commit(&fence, &batch).await.unwrap());
    let strings = [result(1, ids[1], 1), result(2, ids[1], 0), result(3, ids[0], 1)];
    let strings = strings.map(|row| ResultRow { hash: if row.sample == ids[0] { "aa" } else { "bb" }.into(), ..row });
    assert!(records.lab_commit(&fence, &LabBatch { results: strings.to_vec(), ..LabBatch::default() }).await.unwrap());
    assert_eq!(records.lab_prune(20, 100).await.unwrap(), ["aa"], "the other content is still somebody's");
    let kept = records.lab_cached(&["aa".into(), "bb".into()]).await.unwrap();
    assert_eq!(kept, [strings[0].clone()], "the twin stands on it");
    assert_eq!(records.lab_prune(20, 100).await.unwrap(), [] as [String; 0]);
    assert_eq!(records.lab_states().await.unwrap(), [("done".to_owned(), 1)]);
}

pub(crate) async fn nodes(records: Records) {
    let node = |node: &str, key: &str| NodeRow {
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
    };
    assert!(records.lab_register(&node("n1", "k1")).await.unwrap());
    assert!(!records.lab_register(&node("n1", "k2")).await.unwrap(), "the id is taken");
    assert!(!records.lab_register(&node("n2", "k1")).await.unwrap(), "the key is taken");
    assert!(records.lab_register(&node("n2", "k2")).await.unwrap());
    assert!(records.lab_seen("n2", "192.0.2.8", Some(12)).await.unwrap());
    assert!(records.lab_seen("n2", "192.0.2.9", None).await.unwrap());
    assert!(!records.lab_seen("n9", "", None).await.unwrap());
    assert_eq!(records.lab_others("n1", 60_000).await.unwrap(), 1);
    assert_eq!(records.lab_others("n2", 60_000).await.unwrap(), 0);
    assert!(records.lab_drain("n2", true).await.unwrap());
    let stored = records.lab_nodes().await.unwrap();
    let (address, seen_at) = ("192.0.2.9".into(), stored[1].seen_at);
    let expected = NodeRow { processing_index: Some(12), drained: true, address, seen_at, ..node("n2", "k2") };
    assert_eq!(stored, [node("n1", "k1"), expected]);
    assert!(stored[1].seen_at > 1_700_000_000_000_000_000);

    // A machine outside does not count among those that can be heard, and sees what it works on.
    let outside = NodeRow { role: "external".into(), ..node("x1", "k3") };
    assert!(records.lab_register(&outside).await.unwrap());
    assert!(records.lab_seen("x1", "", None).await.unwrap());
    assert_eq!(records.lab_others("n1", 60_000).await.unwrap(), 1);
    let refused = records.lab_acquire("stranger", 60_000).await.unwrap();
    assert_eq!(refused, LeaseReply::Refused { free_in_ms: 0 }, "where machines are registered, only one of them leads");
    let fence = granted(&records, "n1", 60_000).await;
    let sample = records.lab_submit(&[sample("t1", "ab01")]).await.unwrap()[0];
    let given = AttemptRow { node: "x1".into(), ..attempt(1, sample, fence.epoch) };
    assert!(!records.lab_works_on("x1", "ab01").await.unwrap());
    assert!(records.lab_commit(&fence, &LabBatch { attempts: vec![given], ..LabBatch::default() }).await.unwrap());
    assert!(records.lab_works_on("x1", "ab01").await.unwrap());
    assert!(!records.lab_works_on("x1", "ab02").await.unwrap() && !records.lab_works_on("n2", "ab01").await.unwrap());
    let ends = vec![AttemptEnd { id: 1, outcome: "done".into(), ended_at: 8 }];
    assert!(records.lab_commit(&fence, &LabBatch { ends, ..LabBatch::default() }).await.unwrap());
    assert!(!records.lab_works_on("x1", "ab01").await.unwrap(), "it is over");
    assert!(records.lab_remove("x1").await.unwrap() && !records.lab_remove("x1").await.unwrap());
    assert!(!records.lab_remove("n1").await.unwrap(), "it leads");
}
