//! What is in a sample decides about it, and what is known of a content, on both databases.

use crate::lab::{granted, now, sample};
use weir_store::records::*;

/// Children are made once and bounded, and a sample is as bad as the worst of what is in it.
pub(crate) async fn children(records: Records) {
    let root = records.lab_samples().submit(&[sample("t", "ab01")]).await.unwrap()[0];
    let fence = granted(&records, "n1", 60_000).await;
    let child = |ticket: &str, parent, depth| NewSample {
        parent: Some(parent),
        root: Some(root),
        depth,
        ..sample(ticket, "cd02")
    };
    let batch = |children: Vec<NewSample>| LabBatch { children, children_max: 3, ..LabBatch::default() };
    assert!(
        records.lab_attempts().commit(&fence, &batch(vec![child("c1", root, 1), child("c2", root, 1)])).await.unwrap()
    );
    assert!(records.lab_attempts().commit(&fence, &batch(vec![child("c1", root, 1)])).await.unwrap(), "brought twice");
    let first = records.lab_samples().children(root, 10).await.unwrap();
    assert_eq!(first.iter().map(|row| row.given.ticket.as_str()).collect::<Vec<_>>(), ["c1", "c2"]);
    assert_eq!((first[0].given.parent, first[0].given.root, first[0].given.depth), (Some(root), Some(root), 1));
    // What is there already, and what two plugins bring at once, takes no second place of the three.
    let (again, once) = (child("c2", root, 1), child("g1", first[0].id, 2));
    let more = vec![again, once.clone(), once, child("g2", first[0].id, 2)];
    assert!(records.lab_attempts().commit(&fence, &batch(more)).await.unwrap());
    let grand = records.lab_samples().children(first[0].id, 10).await.unwrap();
    assert_eq!(grand.len(), 1, "three of one root are allowed");
    let mut family = records.lab_samples().families(&[root, 4711]).await.unwrap();
    family.sort();
    assert_eq!(family, ["c1", "c2", "g1"].map(|ticket| (root, ticket.to_owned())));
    let verdict = async |id: i64| records.lab_samples().find(id).await.unwrap().unwrap().verdict;
    let end = |id, verdict| SampleChange {
        id,
        state: "done".into(),
        ended_at: Some(8),
        verdict,
        reasons: r#"["because"]"#.into(),
        ..SampleChange::default()
    };
    let ends = |changes| LabBatch { changes, ..LabBatch::default() };
    assert!(records.lab_attempts().commit(&fence, &ends(vec![end(first[1].id, 1)])).await.unwrap());
    assert_eq!(verdict(root).await, 0, "what is clean in it says nothing of it");
    assert!(records.lab_attempts().commit(&fence, &ends(vec![end(root, 1), end(first[1].id, 2)])).await.unwrap());
    assert_eq!(verdict(root).await, 2, "both ended at once, and the child is worse");
    assert!(records.lab_attempts().commit(&fence, &ends(vec![end(grand[0].id, 3)])).await.unwrap());
    assert_eq!((verdict(root).await, verdict(first[0].id).await, verdict(first[1].id).await), (3, 3, 2));
    assert!(records.lab_attempts().commit(&fence, &ends(vec![end(first[0].id, 1)])).await.unwrap());
    assert_eq!(verdict(first[0].id).await, 3, "it is known already that something bad is in it");
    let row = records.lab_samples().find(root).await.unwrap().unwrap();
    assert_eq!((row.state.as_str(), row.reasons.as_str()), ("done", r#"["because"]"#));
    let bad = SampleFilter { verdict: Some(3), ..SampleFilter::default() };
    let bad: Vec<i64> = records.lab_samples().list(&bad, 10).await.unwrap().into_iter().map(|row| row.id).collect();
    assert_eq!(bad, [grand[0].id, first[0].id, root]);
}

pub(crate) async fn opinions(records: Records) {
    let fence = granted(&records, "n1", 60_000).await;
    let known = async |hash: &str| records.lab_samples().opinions(&[hash.to_owned(), "none".to_owned()]).await.unwrap();
    assert!(known("ab01").await.is_empty());
    let first = records.lab_samples().submit(&[sample("t1", "ab01")]).await.unwrap()[0];
    let open = known("ab01").await;
    assert_eq!((open.len(), open[0].sample, open[0].state.as_str(), open[0].ended_at), (1, first, "queued", None));
    // It ends, but something that was found in it has not.
    let ended = |id: i64, verdict: i64| SampleChange {
        id,
        state: "done".into(),
        ended_at: Some(now()),
        verdict,
        reasons: "[]".into(),
        ..SampleChange::default()
    };
    let child = NewSample { parent: Some(first), root: Some(first), depth: 1, ..sample("t2", "cd02") };
    let (changes, children) = (vec![ended(first, 0)], vec![child]);
    let batch = LabBatch { changes, children, children_max: 10, ..LabBatch::default() };
    assert!(records.lab_attempts().commit(&fence, &batch).await.unwrap());
    assert_eq!(known("ab01").await[0].ended_at, None, "its child is open");
    let child = records.lab_samples().children(first, 10).await.unwrap()[0].id;
    let batch = LabBatch { changes: vec![ended(child, 3)], children_max: 10, ..LabBatch::default() };
    assert!(records.lab_attempts().commit(&fence, &batch).await.unwrap());
    let opinion = known("ab01").await.remove(0);
    assert_eq!((opinion.verdict, opinion.ended_at.is_some()), (3, true), "what the child is counts for it");
    // Somebody has it analysed in another way: that is no opinion on the content.
    let partial = NewSample { choices: r#"{"guest":"none"}"#.into(), partial: 1, ..sample("t9", "ab01") };
    let other = records.lab_samples().submit(std::slice::from_ref(&partial)).await.unwrap()[0];
    assert_eq!(records.lab_samples().find(other).await.unwrap().map(|row| row.given), Some(partial));
    assert_eq!(known("ab01").await[0].sample, first);
    assert!(known("cd02").await[0].ended_at.is_some());
    // Malware stays malware, whatever comes later and by whatever name.
    let end = async |id: i64, verdict: i64| {
        let batch = LabBatch { changes: vec![ended(id, verdict)], ..LabBatch::default() };
        assert!(records.lab_attempts().commit(&fence, &batch).await.unwrap());
    };
    let order = async |hash: &str| -> Vec<(i64, bool)> {
        known(hash).await.iter().map(|row| (row.sample, row.stands)).collect()
    };
    let other = NewSample { name: "other.bat".into(), ..sample("t3", "ab01") };
    let later = records.lab_samples().submit(&[other]).await.unwrap()[0];
    assert_eq!(order("ab01").await, [(first, true), (later, false)], "one that is open says nothing yet");
    end(later, 1).await;
    assert_eq!(order("ab01").await, [(first, true), (later, false)]);
    assert_eq!(known("ab01").await[1].name, "other.bat");
    // Somebody has it analysed again: when that has ended, it counts.
    let again = NewSample { forced: 1, ..sample("t4", "ab01") };
    let again = records.lab_samples().submit(&[again]).await.unwrap()[0];
    assert_eq!(order("ab01").await, [(first, true), (again, false), (later, false)]);
    end(again, 1).await;
    assert_eq!(order("ab01").await, [(again, false), (later, false), (first, false)]);
    // What is found to be malicious after that counts again, also behind many others.
    let worse = records.lab_samples().submit(&[sample("t5", "ab01")]).await.unwrap()[0];
    end(worse, 3).await;
    let many: Vec<NewSample> = (0..300).map(|number| sample(&format!("many {number}"), "ab01")).collect();
    let many = records.lab_samples().submit(&many).await.unwrap();
    let told = order("ab01").await;
    assert!(told.contains(&(later, false)), "its name ends in another way, and somebody may wait for it");
    assert_eq!((told.len(), told[0], told[1]), (257, (worse, true), (many[299], false)));
    // An analysis that failed says nothing, and neither does one that was made again and failed.
    let failed = SampleChange { state: "quarantined".into(), ..ended(many[299], 3) };
    let forced = records.lab_samples().submit(&[NewSample { forced: 1, ..sample("t6", "ab01") }]).await.unwrap()[0];
    let forced = SampleChange { state: "quarantined".into(), ..ended(forced, 0) };
    let batch = LabBatch { changes: vec![failed, forced], ..LabBatch::default() };
    assert!(records.lab_attempts().commit(&fence, &batch).await.unwrap());
    assert_eq!(order("ab01").await[0], (worse, true));
}

/// Nothing is clean that has something in it which nobody could look at: whichever of the two ends first, and however deep it is.
pub(crate) async fn doubts(records: Records) {
    let fence = granted(&records, "n1", 60_000).await;
    let end = |id: i64, state: &str, verdict: i64, why: &str| SampleChange {
        id,
        state: state.into(),
        ended_at: Some(8),
        verdict,
        reasons: serde_json::json!([why]).to_string(),
        ..SampleChange::default()
    };
    let commit = async |changes: Vec<SampleChange>| {
        let batch = LabBatch { changes, ..LabBatch::default() };
        assert!(records.lab_attempts().commit(&fence, &batch).await.unwrap());
    };
    let verdict = async |id: i64| records.lab_samples().find(id).await.unwrap().unwrap().verdict;
    // Each has a child, and that has one.
    let family = async |name: &str| {
        let root = records.lab_samples().submit(&[sample(name, "ab01")]).await.unwrap()[0];
        let mut ids = vec![root];
        for depth in 1..3 {
            let parent = ids[ids.len() - 1];
            let of = NewSample {
                parent: Some(parent),
                root: Some(root),
                depth,
                ..sample(&format!("{name} {depth}"), "cd02")
            };
            let batch = LabBatch { children: vec![of], children_max: 9, ..LabBatch::default() };
            assert!(records.lab_attempts().commit(&fence, &batch).await.unwrap());
            let made = records.lab_samples().children(parent, 1).await.unwrap()[0].id;
            ids.push(made);
        }
        ids
    };
    let (clean, doubt) = ("nothing was found", "no guest runs such files");
    for (number, (state, inner, why, expected)) in [
        ("done", 1, clean, 1),
        ("done", 0, NOBODY_KNOWS, 1),
        ("done", 0, doubt, 0),
        ("quarantined", 0, doubt, 0),
        ("unserviceable", 0, NOBODY_KNOWS, 0),
        ("cancelled", 0, doubt, 0),
        ("done", 2, doubt, 2),
    ]
    .into_iter()
    .enumerate()
    {
        for (order, steps) in [vec![0, 1, 2], vec![2, 1, 0], vec![1, 2, 0], vec![2, 0, 1]].into_iter().enumerate() {
            let ids = family(&format!("{number} {order}")).await;
            let change = |step: usize| match step {
                2 => end(ids[2], state, inner, why),
                other => end(ids[other], "done", 1, clean),
            };
            for step in steps {
                commit(vec![change(step)]).await;
            }
            let found = [verdict(ids[0]).await, verdict(ids[1]).await];
            assert_eq!(found, [expected; 2], "{state} {inner}, in order {order}");
        }
        let ids = family(&format!("{number} at once")).await;
        commit(vec![end(ids[1], "done", 1, clean), end(ids[2], state, inner, why), end(ids[0], "done", 1, clean)])
            .await;
        assert_eq!([verdict(ids[0]).await, verdict(ids[1]).await], [expected; 2], "{state} {inner}, at once");
    }
    // Of the one between them nothing is known but that nothing speaks against it.
    for order in [[2, 1, 0], [0, 1, 2]] {
        let ids = family(&format!("between {order:?}")).await;
        for step in order {
            let (verdict, why) = [(1, clean), (0, NOBODY_KNOWS), (0, doubt)][step];
            commit(vec![end(ids[step], "done", verdict, why)]).await;
        }
        assert_eq!(verdict(ids[0]).await, 0, "{order:?}");
    }
    // A doubt about one of two files is none about the other.
    let root = records.lab_samples().submit(&[sample("two", "ab01")]).await.unwrap()[0];
    let child = |ticket: &str| NewSample { parent: Some(root), root: Some(root), depth: 1, ..sample(ticket, "cd02") };
    let batch = LabBatch { children: vec![child("two a"), child("two b")], children_max: 9, ..LabBatch::default() };
    assert!(records.lab_attempts().commit(&fence, &batch).await.unwrap());
    let two: Vec<i64> = records.lab_samples().children(root, 9).await.unwrap().iter().map(|row| row.id).collect();
    commit(vec![end(two[0], "done", 0, doubt)]).await;
    commit(vec![end(two[1], "done", 1, clean), end(root, "done", 1, clean)]).await;
    assert_eq!([verdict(root).await, verdict(two[1]).await], [0, 1]);
    let row = records.lab_samples().find(root).await.unwrap().unwrap();
    assert_eq!((row.state.as_str(), row.ended_at), ("done", Some(8)));
}
