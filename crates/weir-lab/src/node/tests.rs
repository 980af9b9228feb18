use super::*;
use crate::choices::Choices;
use crate::cluster::alone::with_lease;
use crate::dispatcher::DispatcherSettings;
use crate::operations::Wishes;
use std::os::unix::fs::PermissionsExt;
use weir_core::election::{ProcessingIndex, Settings};

const SCRIPT: &str =
    "#!/bin/sh\nprintf '{\"success\":true,\"full\":\"%s\"}' \"$(cat input/attachment)\" > output/output.json\n";

fn plugin(home: &std::path::Path) -> Plugin {
    let folder = home.join("plugins/echo");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("run"), SCRIPT).unwrap();
    std::fs::set_permissions(folder.join("run"), std::fs::Permissions::from_mode(0o755)).unwrap();
    let manifest = "name = \"echo\"\nversion = \"1\"\nexec = [\"./run\"]\naccepts = [\"text/*\"]";
    std::fs::write(folder.join("plugin.toml"), manifest).unwrap();
    Plugin::read(&folder).unwrap()
}

async fn node(home: &std::path::Path) -> (Node, Records) {
    let records = Records::sqlite(&home.join("records.db")).await.unwrap();
    let samples = Samples::open(&home.join("samples")).unwrap();
    let settings = NodeSettings {
        node: "n1".into(),
        analysis: home.join("analysis"),
        intake: IntakeSettings { settle: Duration::ZERO, ..IntakeSettings::default() },
        scheduling: runq::Settings::default(),
        plugins: vec![plugin(home)].into(),
        keep: None,
        depth_max: 4,
        memory_free_min: 0,
        children: ChildLimits { count: 100, bytes: 1 << 20 },
    };
    (Node::new(settings, records.clone(), samples), records)
}

fn start(node: &Node, home: &std::path::Path) -> tokio::task::JoinHandle<()> {
    let (elector, ends) = with_lease("n1", ProcessingIndex(1), Settings::default(), node.records.clone());
    let plugins = node.settings.plugins.to_vec();
    let dispatcher =
        DispatcherSettings { jobs: home.join("jobs"), plugins, slots: 2, tags: Vec::new(), processing_index: 1 };
    let dispatcher = Dispatcher::new(dispatcher, node.samples.clone(), None).unwrap();
    let serve = node.clone().serve(ends, Some(dispatcher));
    tokio::spawn(async move { tokio::join!(elector.run(), serve).1 })
}

/// A sample of Ann's with this name, for this directory.
fn handed(name: &str, directory: u64) -> Submitted {
    let directory = runq::Directory::new(directory).unwrap();
    Submitted {
        name: name.into(),
        submitter: "ann".into(),
        directory,
        forced: false,
        tags: Vec::new(),
        choices: Choices::default(),
    }
}

async fn done(records: &Records, wanted: usize) -> Vec<weir_store::records::SampleRow> {
    loop {
        let filter = weir_store::records::SampleFilter { state: "done".into(), ..Default::default() };
        let rows = records.lab_samples().list(&filter, 100).await.unwrap();
        if rows.len() >= wanted {
            return rows;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_in_a_directory_and_one_handed_in_are_analysed() {
    let home = tempfile::tempdir().unwrap();
    let (node, records) = node(home.path()).await;
    let _task = start(&node, home.path());
    std::fs::create_dir_all(home.path().join("analysis/32")).unwrap();
    std::fs::write(home.path().join("analysis/32/dropped"), "one").unwrap();
    let handed = handed("two.txt", 3);
    let (number, _) = node.submit(std::io::Cursor::new(b"two".to_vec()), handed.clone()).await.unwrap();
    let rows = done(&records, 2).await;
    let mut names: Vec<_> = rows.iter().map(|row| (row.given.name.as_str(), row.given.directory)).collect();
    names.sort_unstable();
    assert_eq!(names, [("dropped", 32), ("two.txt", 3)]);
    assert!(records.lab_attempts().results(number).await.unwrap()[0].report.contains("two"));
    assert!(!home.path().join("analysis/32/dropped").exists());
    let zip = b"PK\x03\x04....";
    let refused = node.submit(std::io::Cursor::new(zip.to_vec()), handed).await.unwrap_err();
    assert_eq!(refused.to_string(), "no plugin of this lab takes files of the type application/zip");
    assert!(!node.samples.put(&mut &zip[..], 100).unwrap().known, "what is not taken is not stored");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lab_of_one_machine_that_is_drained_leads_and_runs_nothing() {
    let home = tempfile::tempdir().unwrap();
    let (node, records) = node(home.path()).await;
    node.drain("n1", true).await.unwrap();
    assert!(matches!(node.drain("n2", true).await, Err(crate::operations::LabError::NoMachine(_))));
    let _task = start(&node, home.path());
    let handed = handed("waits.txt", 3);
    let (number, _) = node.submit(std::io::Cursor::new(b"waits".to_vec()), handed).await.unwrap();
    while !node.page(&number.to_string()).await.unwrap().now.contains("no machine is plugged in") {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(records.lab_attempts().of_sample(number).await.unwrap().is_empty());
    node.drain("n1", false).await.unwrap();
    assert_eq!(done(&records, 1).await[0].id, number);
    assert_eq!(node.nodes().await.unwrap(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sample_with_a_tag_runs_only_where_the_tag_is() {
    let home = tempfile::tempdir().unwrap();
    let (node, records) = node(home.path()).await;
    let _task = start(&node, home.path());
    let hand_in = async |tags: &[&str]| {
        let tags: Vec<String> = tags.iter().map(|tag| (*tag).to_owned()).collect();
        node.hand_in(b"x".to_vec(), "a.txt", Wishes { priority: 32, tags, ..Wishes::default() }, "ann").await
    };
    for wrong in [&["no tag"][..], &["t"; 9]] {
        assert!(matches!(hand_in(wrong).await, Err(crate::operations::LabError::Tag(_))), "{wrong:?}");
    }
    let tagged = hand_in(&["windows"]).await.unwrap().sample;
    while !node.page(&tagged.to_string()).await.unwrap().now.contains("has the tag windows") {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(records.lab_attempts().of_sample(tagged).await.unwrap().is_empty());
    let again = node.rerun(&tagged.to_string(), "ann").await.unwrap().sample;
    assert_eq!(records.lab_samples().find(again).await.unwrap().unwrap().given.tags, r#"["windows"]"#);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_found_again_is_the_same_sample() {
    let home = tempfile::tempdir().unwrap();
    let (node, records) = node(home.path()).await;
    let mut intake = Intake::open(&node.settings.analysis, node.settings.intake).unwrap();
    std::fs::write(home.path().join("analysis/32/a"), "one").unwrap();
    let mut look = || intake.look(crate::cluster::elector::now(), SystemTime::now()).ready.pop().unwrap();
    for found in [look(), look()] {
        assert_eq!(node.take_some(vec![found]).await.1.len(), 0);
    }
    assert_eq!(records.lab_samples().list(&Default::default(), 10).await.unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_handed_in_before_a_restart_is_analysed_after_it() {
    let home = tempfile::tempdir().unwrap();
    let (node, records) = node(home.path()).await;
    let handed = handed("a", 32);
    node.submit(std::io::Cursor::new(b"x".to_vec()), handed).await.unwrap();
    let task = start(&node, home.path());
    done(&records, 1).await;
    task.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_ends_by_itself_holds_office_again() {
    let home = tempfile::tempdir().unwrap();
    let (node, records) = node(home.path()).await;
    let (post, posted) = watch::channel(Post::Leaderless);
    let (frames, _frames) = mpsc::channel(1);
    let (orders, mut ordered) = mpsc::channel(4);
    let ends = Ends { frames, orders, post: posted, vacancy: Vacancy::default() };
    let serving = tokio::spawn(node.clone().serve(ends, None));
    let weir_store::records::LeaseReply::Granted { epoch } = records.lab_leader().acquire("n1", 60_000).await.unwrap()
    else {
        panic!("no lease")
    };
    // An epoch that the database does not know: the first commit finds that out.
    let handed = handed("a\u{202e}b\n", 32);
    let handed_in = node.submit(std::io::Cursor::new(b"PK\x03\x04".to_vec()), handed.clone()).await;
    assert!(handed_in.is_err(), "nothing takes a zip file");
    std::fs::create_dir_all(home.path().join("analysis/32")).unwrap();
    std::fs::write(home.path().join("analysis/32/a\u{202e}b\n"), b"PK\x03\x04").unwrap();
    post.send_replace(Post::Acting(Fence { epoch: epoch + 7, holder: "n1".into() }));
    assert_eq!(ordered.recv().await, Some(Order::FencedOut(epoch + 7)), "it has a sample to end and may not");
    assert!(records.lab_leader().current().await.unwrap().1 > 0, "the lease of another term stands");
    // The next term follows at once, while nobody looks.
    post.send_replace(Post::Acting(Fence { epoch, holder: "n1".into() }));
    let row = loop {
        if let [row] = &records.lab_samples().list(&Default::default(), 1).await.unwrap()[..]
            && row.state == "unserviceable"
        {
            break row.clone();
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert_eq!(row.given.name, "a\u{fffd}b\u{fffd}");
    post.send_replace(Post::Leaderless);
    drop(post);
    serving.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn old_content_without_a_sample_is_removed_on_machines_that_do_not_lead_too() {
    let home = tempfile::tempdir().unwrap();
    let (node, _records) = node(home.path()).await;
    let settings = NodeSettings { keep: Some(YOUNG), ..(*node.settings).clone() };
    let node = Node { settings: settings.into(), ..node };
    let handed = handed("a", 32);
    let (_, row) = node.submit(std::io::Cursor::new(b"row".to_vec()), handed).await.unwrap();
    let put = |content: &str| node.samples.put(&mut content.as_bytes(), 100).unwrap().hash;
    let (stray, young) = (put("stray"), put("young"));
    for hash in [row, stray] {
        let hours_ago = SystemTime::now() - 2 * YOUNG;
        std::fs::File::open(node.samples.path(hash)).unwrap().set_modified(hours_ago).unwrap();
    }
    let (post, posted) = watch::channel(Post::Leaderless);
    let ((frames, _frames), (orders, _ordered)) = (mpsc::channel(1), mpsc::channel(4));
    let ends = Ends { frames, orders, post: posted, vacancy: Vacancy::default() };
    let serving = tokio::spawn(node.clone().serve(ends, None));
    while node.samples.path(stray).exists() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    drop(post);
    serving.await.unwrap();
    assert!(node.samples.path(row).exists() && node.samples.path(young).exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn old_samples_are_forgotten_and_their_content_too() {
    let home = tempfile::tempdir().unwrap();
    let (node, records) = node(home.path()).await;
    let settings = NodeSettings { keep: Some(Duration::ZERO), ..(*node.settings).clone() };
    let node = Node { settings: settings.into(), ..node };
    let handed = handed("a", 32);
    let (number, hash) = node.submit(std::io::Cursor::new(b"x".to_vec()), handed).await.unwrap();
    let hours_ago = SystemTime::now() - 2 * YOUNG;
    std::fs::File::open(node.samples.path(hash)).unwrap().set_modified(hours_ago).unwrap();
    let fence = match records.lab_leader().acquire("n1", 60_000).await.unwrap() {
        weir_store::records::LeaseReply::Granted { epoch } => Fence { epoch, holder: "n1".into() },
        refused => panic!("{refused:?}"),
    };
    // More than are forgotten at a time: the rest does not wait for the next minute.
    let old: Vec<NewSample> = (0..PRUNE_MAX)
        .map(|i| NewSample { ticket: i.to_string(), hash: "ab".into(), ..NewSample::default() })
        .collect();
    let mut numbers = records.lab_samples().submit(&old).await.unwrap();
    numbers.push(number);
    let done = |(at, id)| weir_store::records::SampleChange {
        id,
        state: "done".into(),
        why: String::new(),
        ended_at: Some(at),
        ..Default::default()
    };
    let changes = (1..).zip(numbers).map(done).collect();
    assert!(
        records
            .lab_attempts()
            .commit(&fence, &weir_store::records::LabBatch { changes, ..Default::default() })
            .await
            .unwrap()
    );
    let pruning = tokio::spawn(async move { node.prune(&fence).await });
    while records.lab_samples().find(number).await.unwrap().is_some()
        || home.path().join("samples").join(&hash.to_string()[..2]).join(hash.to_string()).exists()
    {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    pruning.abort();
}
