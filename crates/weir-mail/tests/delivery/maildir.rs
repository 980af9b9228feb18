//! Maildir, the embedded default.

use std::fs;

use weir_mail::delivery::settings::Settings;

use super::memory_ledger::{MemoryLedger, start};

#[tokio::test]
async fn mail_arrives_whole_and_only_inside_the_folder() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("deep/mail");
    let ledger = MemoryLedger::default();
    let delivery = start(Settings::new("host.example", root.clone()), &ledger);
    let to = ["<Bob@Example.org>", "<\"../../../evil\"@x.example>", "<\"a/b\"@x.example>"];
    let message = ledger.message("<a@sender.example>", &to, "Subject: x\r\n\r\n.hello\r\n");
    let id = message.id;
    delivery.enqueue(message);
    ledger.finished(id).await;
    let mut names: Vec<_> =
        fs::read_dir(&root).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    assert_eq!(names, ["%22..%2F..%2F..%2Fevil%22@x.example", "a%2Fb@x.example", "bob@example.org"]);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    let maildir = root.join("bob@example.org/Maildir");
    let files: Vec<_> = fs::read_dir(maildir.join("new")).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(files.len(), 1);
    let text = fs::read_to_string(&files[0]).unwrap();
    assert_eq!(text, "Return-Path: <a@sender.example>\nDelivered-To: Bob@Example.org\nSubject: x\n\n.hello\n");
    assert_eq!(fs::read_dir(maildir.join("tmp")).unwrap().count(), 0);
    assert!(ledger.state().reports.is_empty());
}

#[tokio::test]
async fn lines_added_on_the_way_stand_before_the_body() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = MemoryLedger::default();
    let delivery = start(Settings::new("host.example", folder.path().to_owned()), &ledger);
    let mut message = ledger.message("<a@sender.example>", &["<bob@x.example>"], "Subject: x\r\n\r\nhello\r\n");
    message.added = "X-One: 1\r\nX-Two: 2\r\n".into();
    let id = message.id;
    delivery.enqueue(message);
    ledger.finished(id).await;
    let new = fs::read_dir(folder.path().join("bob@x.example/Maildir/new")).unwrap();
    let text = fs::read_to_string(new.last().unwrap().unwrap().path()).unwrap();
    assert!(text.ends_with("\nX-One: 1\nX-Two: 2\nSubject: x\n\nhello\n"), "{text}");
}

#[tokio::test]
async fn a_folder_that_cannot_be_written_keeps_the_mail() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("mail");
    fs::write(&root, "in the way").unwrap();
    let ledger = MemoryLedger::default();
    let mut settings = Settings::new("host.example", root.clone());
    settings.queue.retry.waits = [std::time::Duration::from_millis(20)].into();
    let delivery = start(settings, &ledger);
    let message = ledger.message("<a@sender.example>", &["<b@x.example>"], "x\r\n");
    let id = message.id;
    delivery.enqueue(message);
    ledger.until("it is deferred", |state| (!state.progress.is_empty()).then_some(())).await;
    fs::remove_file(&root).unwrap();
    ledger.finished(id).await;
    assert_eq!(fs::read_dir(root.join("b@x.example/Maildir/new")).unwrap().count(), 1);
}

#[tokio::test]
async fn a_large_mail_goes_in_pieces() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = MemoryLedger::default();
    let delivery = start(Settings::new("host.example", folder.path().into()), &ledger);
    let body = "0123456789abcdef\r\n".repeat(200_000);
    let message = ledger.message("<a@sender.example>", &["<b@x.example>"], &body);
    let id = message.id;
    delivery.enqueue(message);
    ledger.finished(id).await;
    let file = fs::read_dir(folder.path().join("b@x.example/Maildir/new")).unwrap().next().unwrap().unwrap().path();
    let text = fs::read_to_string(file).unwrap();
    assert!(text.ends_with(&body.replace("\r\n", "\n")));
}
