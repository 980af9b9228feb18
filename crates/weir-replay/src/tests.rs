use super::*;
use proptest::prelude::*;
use std::io::Read;

fn read(kind: Option<SourceKind>, bytes: &[u8]) -> Result<PastMail, InputError> {
    let mut reader = Reader::new(kind, Some(2024), Wanted::default());
    reader.stream(Path::new("file"), bytes, Wall::from_unix_seconds(1_709_294_400).unwrap())?;
    reader.finish()
}

#[test]
fn sources_share_one_clock() {
    let mut reader = Reader::new(None, Some(2024), Wanted::default());
    let written = now();
    let mbox = b"From a Fri Mar  1 12:30:05 2024\nFrom: ann@x.org\nTo: bob@y.org\n\n";
    let log = b"Mar  1 12:30:00 m postfix/smtpd[1]: AAAAA1: client=pc[1.1.1.1], sasl_username=ben\n\
                Mar  1 12:30:01 m postfix/smtp[1]: AAAAA1: to=<bob@y.org>, relay=mx, status=sent (ok)\n";
    reader.stream(Path::new("mbox"), &mbox[..], written).unwrap();
    reader.stream(Path::new("log"), &log[..], written).unwrap();
    reader.stream(Path::new("empty"), &b""[..], written).unwrap();
    let past = reader.finish().unwrap();
    assert_eq!(past.start.to_rfc3339(), "2024-03-01T12:30:00Z");
    let mails: Vec<(f64, &str)> = past.mails.iter().map(|mail| (mail.at.as_secs_f64(), mail.user.as_str())).collect();
    assert_eq!(mails, [(0.0, "ben"), (5.0, "ann@x.org")]);
    assert_eq!(past.wall(past.mails[1].at).to_string(), "2024-03-01 12:30:05");
    assert_eq!(past.origins[1], MailOrigin { source: 0, name: "line 1".into() });
    assert_eq!(past.skipped.count_of(Reason::EmptyFile), 1);
}

#[test]
fn one_user_and_without_the_archive() {
    let wanted =
        Wanted { user: Some("ann".into()), ignored_recipients: vec!["Archive@X.ORG".into()], ..Wanted::default() };
    let wanted = Wanted { ignored_recipients: vec!["Archive@X.ORG".into(), "archive@x.org".into()], ..wanted };
    let mut reader = Reader::new(None, None, wanted);
    let mbox = b"From a Fri Mar  1 12:30:05 2024\nTo: bob@y.org, archive@x.org\n\n";
    reader.stream(Path::new("mbox"), &mbox[..], now()).unwrap();
    let past = reader.finish().unwrap();
    assert_eq!((past.mails[0].user.as_str(), past.mails[0].to.as_slice()), ("ann", &["bob@y.org".to_string()][..]));
}

#[test]
fn refusals_say_what_to_do() {
    let error = read(None, b"\x1f\x8b\x08\0").unwrap_err();
    assert!(error.problem.contains("gzip") && error.hint.contains("zcat"), "{error}");
    assert!(read(None, b"").unwrap_err().problem.contains("1 × empty file"));
    assert!(read(Some(SourceKind::Maildir), b"x").unwrap_err().problem.contains("folder"));
    let mut reader = Reader::new(None, None, Wanted::default());
    assert!(reader.path(Path::new("/no/such/file")).unwrap_err().problem.contains("cannot be read"));
    assert!(reader.path(Path::new("/dev/zero")).unwrap_err().problem.contains("device"));
    let folder = tempfile::tempdir().unwrap();
    assert!(reader.path(folder.path()).unwrap_err().problem.contains("no Maildir"));
}

/// Bytes that look enough like mail to reach every branch.
fn fragments() -> impl Strategy<Value = Vec<u8>> {
    let words: Vec<&'static [u8]> = vec![
        b"From ",
        b"From: ",
        b"To: ",
        b"Cc:",
        b"Bcc:",
        b"Date: ",
        b"\n",
        b"\n\n",
        b"\r\n",
        b" ",
        b",",
        b"<",
        b">",
        b"\"",
        b"(",
        b")",
        b":",
        b";",
        b"@",
        b"=?utf-8?q?",
        b"?=",
        b"\\",
        b"\0",
        b"\xff\xfe",
        b"ann@x.org",
        b"Fri Mar  1 12:30:05 2024",
        b"Fri, 1 Mar 2024 12:30:05 +0100",
        b"Mar  1 12:30:05 m postfix/smtpd[1]: ABCDE1: client=p[1.1.1.1], sasl_username=u\n",
        b"Mar  1 12:30:05 m postfix/qmgr[1]: ABCDE1: from=<a@x>, size=1, nrcpt=1 (queue active)\n",
        b"Dec 31 23:59:60 ",
        b"Jan  1 00:00:00 m postfix/smtp[1]: ABCDE1: to=<b@y>, orig_to=<",
        b">, relay=x, status=sent (queued as ABCDE1)\n",
        b"m postfix/qmgr[1]: ABCDE1: removed\n",
        b"2024-02-30T99:99:99Z ",
        b"postfix/pickup[1]: ABCDE2: uid=1 from=<a> orig_id=ABCDE1\n",
    ];
    let piece = prop_oneof![
        4 => proptest::sample::select(words).prop_map(<[u8]>::to_vec),
        1 => proptest::collection::vec(any::<u8>(), 0..20),
    ];
    proptest::collection::vec(piece, 0..60).prop_map(|pieces| pieces.concat())
}

const LOG: &[u8] = include_bytes!("../../../tests/fixtures/replay/mail.log");
const MBOX: &[u8] = include_bytes!("../../../tests/fixtures/replay/sent.mbox");

#[test]
fn what_a_real_postfix_wrote() {
    for (bytes, recipients) in [(LOG, 75), (MBOX, 40)] {
        let past = read(None, bytes).unwrap();
        let found: usize = past.mails.iter().map(|mail| mail.to.len()).sum();
        assert_eq!((past.mails.len(), found), (35, recipients), "always_bcc adds one to each mail of the log");
        assert_eq!(past.skipped.count_of(Reason::QueuedAgain), 1);
    }
}

proptest! {
    #[test]
    fn damaged_files_are_read_to_the_end(
        log in any::<bool>(),
        cuts in proptest::collection::vec((0usize..40_000, 0usize..200, proptest::collection::vec(any::<u8>(), 0..8)), 1..20),
    ) {
        let mut bytes = if log { LOG } else { MBOX }.to_vec();
        for (from, length, other) in cuts {
            let from = from.min(bytes.len());
            let to = (from + length).min(bytes.len());
            bytes.splice(from..to, other);
        }
        for kind in [SourceKind::Mbox, SourceKind::Postfix] {
            let found = read(Some(kind), &bytes).map_or(0, |past| past.mails.len());
            prop_assert!(found <= 200, "{found} mails out of 36");
        }
    }

    #[test]
    fn hostile_bytes_are_read_to_the_end(bytes in prop_oneof![fragments(), proptest::collection::vec(any::<u8>(), 0..400)]) {
        for kind in [None, Some(SourceKind::Mbox), Some(SourceKind::Postfix)] {
            if let Ok(past) = read(kind, &bytes) {
                prop_assert_eq!(past.mails.len(), past.origins.len());
                prop_assert!(past.mails.is_sorted_by_key(|mail| mail.at));
                for mail in &past.mails {
                    let mut once = mail.to.clone();
                    once.sort();
                    once.dedup();
                    prop_assert!(!mail.to.is_empty() && once.len() == mail.to.len(), "{:?}", mail.to);
                }
            }
        }
    }
}

#[test]
fn endless_lines_take_bounded_memory() {
    let endless = || std::io::repeat(b'x').take(50_000_000);
    let sources: [(&[u8], SourceKind); 2] = [
        (b"From a Fri Mar  1 12:30:05 2024\nFrom: a@x.org\nTo: b@y.org,", SourceKind::Mbox),
        (b"Mar  1 12:30:05 m postfix/smtp[1]: AAAAA1: to=<", SourceKind::Postfix),
    ];
    for (beginning, kind) in sources {
        let mut reader = Reader::new(Some(kind), None, Wanted::default());
        reader.stream(Path::new("f"), BufReader::new(beginning.chain(endless())), now()).unwrap();
        let long =
            reader.collected.skipped.count_of(Reason::LongHeader) + reader.collected.skipped.count_of(Reason::LongLine);
        assert_eq!(long, 1);
        if kind == SourceKind::Mbox {
            assert_eq!(reader.finish().unwrap().mails[0].to, ["b@y.org"]);
        }
    }
}
