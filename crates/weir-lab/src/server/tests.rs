use super::*;
use crate::cluster::clock::CalendarClock;
use crate::cluster::connection::{SILENCE, far_end};
use crate::cluster::credential_store::CredentialStore;
use crate::cluster::credentials::Credentials;
use crate::cluster::enrolment::found;
use crate::cluster::membership::Membership;
use crate::cluster::renewal::{self, Way};
use crate::dispatcher::{Dispatcher, DispatcherSettings};
use crate::intake::IntakeSettings;
use crate::node::NodeSettings;
use crate::site::{self, Parts, SiteSettings};
use crate::tasks::Running;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;
use tokio::io::AsyncReadExt;
use weir_core::election::{Priority, ProcessingIndex};
use weir_core::runq;
use weir_store::records::Records;
use weir_store::samples::Samples;

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const BEAT: &str = "7 3 5 stands leader alive 7.1 -\n";
const LIFE: Duration = Duration::from_secs(60);

struct Lab {
    home: tempfile::TempDir,
    samples: Samples,
    records: Records,
    credentials: Credentials,
    store: CredentialStore,
    /// The time of its clock, in seconds since the Unix epoch. It stands still unless it is set.
    now_s: Arc<AtomicU64>,
    frames: mpsc::Receiver<Frame>,
    at: std::net::SocketAddr,
}

fn time(now_s: &AtomicU64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(now_s.load(Ordering::Relaxed))
}

fn node(name: &str, home: &std::path::Path, records: &Records, samples: &Samples) -> Node {
    let settings = NodeSettings {
        node: name.into(),
        analysis: home.join("analysis"),
        intake: IntakeSettings::default(),
        scheduling: runq::Settings::default(),
        plugins: Vec::new().into(),
        keep: None,
        depth_max: 4,
        memory_free_min: 0,
        children: crate::wire::ChildLimits::default(),
    };
    Node::new(settings, records.clone(), samples.clone())
}

/// A lab with one machine, n1, whose server runs on this machine.
async fn lab() -> Lab {
    let home = tempfile::tempdir().unwrap();
    let records = Records::sqlite(&home.path().join("records.db")).await.unwrap();
    let samples = Samples::open(&home.path().join("samples")).unwrap();
    let node = node("n1", home.path(), &records, &samples);
    let first = Identity::new("n1", Role::Eligible, Priority(3)).unwrap();
    // A machine that joins has no clock of the lab yet: this one starts at the time of day.
    let today = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let now_s = Arc::new(AtomicU64::new(today.as_secs()));
    let issue = Issue { now: time(&now_s), life: LIFE };
    let credentials = found(&records, &first, HERE, issue).await.unwrap();
    let store = store(&home.path().join("n1"), &credentials, &now_s);
    let (heard, frames) = mpsc::channel(16);
    let listener = TcpListener::bind((HERE, 0)).await.unwrap();
    let at = listener.local_addr().unwrap();
    let caller = Caller { store: store.clone(), from: HERE, port: at.port(), silence: SILENCE };
    let claim = Claim { priority: Priority(3), index: ProcessingIndex(5), stands: true };
    let election_ends =
        ElectionEnds { frames: heard, post: watch::Sender::new(Post::Leaderless).subscribe(), boot: Boot(1), claim };
    let server = LabServer::new(node, caller, Registry::new(records.clone()), election_ends, LIFE);
    tokio::spawn(server.run(listener));
    Lab { home, samples, records, credentials, store, now_s, frames, at }
}

/// A machine's credentials in a folder of its own, by the lab's clock.
fn store(folder: &std::path::Path, credentials: &Credentials, now_s: &Arc<AtomicU64>) -> CredentialStore {
    credentials.write(folder).unwrap();
    let now_s = now_s.clone();
    let clock = CalendarClock::new(move || time(&now_s));
    CredentialStore::new(credentials.clone(), folder, clock).unwrap()
}

impl Lab {
    fn issue(&self) -> Issue {
        Issue { now: time(&self.now_s), life: LIFE }
    }

    fn caller(&self, credentials: &Credentials) -> Caller {
        let store = store(tempfile::tempdir().unwrap().path(), credentials, &self.now_s);
        Caller { store, from: HERE, port: self.at.port(), silence: SILENCE }
    }

    /// The answer to this context, up to its end.
    async fn answer(&self, credentials: &Credentials, context: &str, text: &[u8]) -> String {
        let call = self.caller(credentials).call(HERE, context, Duration::from_secs(5)).await;
        let Ok(mut stream) = call else { return String::new() };
        let _ = stream.write_all(text).await;
        let _ = stream.shutdown().await;
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer).await;
        answer
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_registered_machines_are_heard_and_what_does_not_read_ends_the_connection() {
    let mut lab = lab().await;
    // A machine of another lab, one of this lab's authority that is registered differently, and one that sends nonsense.
    let other = Records::sqlite(&lab.home.path().join("other.db")).await.unwrap();
    let first = Identity::new("n1", Role::Eligible, Priority(3)).unwrap();
    let stranger = found(&other, &first, HERE, lab.issue()).await.unwrap();
    let authority = Authority::open(&lab.records, &lab.credentials.seal.unwrap(), lab.issue()).await.unwrap();
    let thief = Identity::new("n1", Role::Eligible, Priority(0)).unwrap();
    let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
    let public = rcgen::PublicKeyData::der_bytes(&key).try_into().unwrap();
    let certificate = authority.certify(&thief, public).unwrap();
    let thief = Credentials { key: key.serialize_pem(), certificate, ..lab.credentials.clone() };
    for credentials in [&stranger, &thief] {
        assert_eq!(lab.answer(credentials, "election", BEAT.as_bytes()).await, "");
    }
    for nonsense in [&b"\xff\n"[..], b"leader alive\n", &[b'x'; 70_000], b"7 3 5 stands leader alive 7.1 - -\n"] {
        assert_eq!(lab.answer(&lab.credentials, "election", nonsense).await, "");
    }
    assert_eq!(lab.answer(&lab.credentials, "kingdom", BEAT.as_bytes()).await, "");
    assert!(lab.frames.try_recv().is_err());
    lab.answer(&lab.credentials, "election", format!("{BEAT}{BEAT}").as_bytes()).await;
    for _ in 0..2 {
        let frame = lab.frames.recv().await.unwrap();
        assert_eq!((frame.from.priority, frame.from.boot, frame.via), (Priority(3), Boot(7), Channel::Stream));
    }
    assert_eq!(lab.answer(&lab.credentials, "dispatcher", b"").await, "bye this machine does not lead\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_host_that_says_nothing_keeps_out_nobody() {
    let lab = lab().await;
    let mut silent = Vec::new();
    for _ in 0..200 {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
        silent.push(socket.connect(lab.at).await.unwrap());
    }
    assert_eq!(lab.answer(&lab.credentials, "leader", b"").await, "bye nobody leads at the moment\n");
    let may = (Role::Dispatcher, Priority(9));
    let token =
        enrolment::invite(&lab.records, &lab.credentials, lab.at, may, Duration::from_secs(60)).await.unwrap().token;
    assert!(enrolment::join(&token, "n2", [127, 0, 0, 3].into()).await.is_ok(), "nor one that is not known yet");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_caller_knows_who_answers_and_who_leads() {
    let lab = lab().await;
    let stream = lab.caller(&lab.credentials).call(HERE, "fetch", Duration::from_secs(5)).await.unwrap();
    let shown = far_end(&stream).unwrap();
    assert_eq!((shown.identity.clone(), shown.key), lab.credentials.identity().unwrap());
    let registry = Registry::new(lab.records.clone());
    assert!(registry.admits(&shown).await);
    lab.records.lab_leader().acquire("n1", 60_000).await.unwrap();
    assert!(registry.leads("n1", 1).await);
    assert!(!registry.leads("n1", 2).await && !registry.leads("n2", 1).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn samples_are_given_and_newcomers_admitted_by_a_token_only() {
    let lab = lab().await;
    let hash = lab.samples.put(&mut &b"sample"[..], 100).unwrap().hash;
    let wanted = format!("{}\n", Message::Fetch(hash));
    let given = lab.answer(&lab.credentials, "fetch", wanted.as_bytes()).await;
    assert_eq!(given, format!("sample {hash} 6\nsample"));
    std::fs::remove_file(lab.samples.path(hash)).unwrap();
    assert_eq!(lab.answer(&lab.credentials, "fetch", wanted.as_bytes()).await, format!("missing {hash}\n"));

    let may = (Role::Dispatcher, Priority(9));
    let token =
        enrolment::invite(&lab.records, &lab.credentials, lab.at, may, Duration::from_secs(60)).await.unwrap().token;
    let other = token.replace(&lab.credentials.fingerprint().unwrap(), &"ab".repeat(32));
    let refused = enrolment::join(&other, "n2", HERE).await.unwrap_err();
    assert!(matches!(refused, enrolment::JoinError::Call(..)), "another lab gets no secret: {refused}");
    assert!(matches!(enrolment::join("nonsense", "n2", HERE).await, Err(enrolment::JoinError::Token)));
    let second = enrolment::join(&token, "n2", HERE).await.unwrap();
    assert_eq!((second.identity().unwrap().0.role, second.seal), (Role::Dispatcher, None));
    assert!(matches!(enrolment::join(&token, "n3", HERE).await, Err(enrolment::JoinError::Refused(_))));
    // A machine that is not known yet makes the server read the database again, but at most once a second, so this may take a moment.
    let answer = loop {
        let answer = lab.answer(&second, "fetch", wanted.as_bytes()).await;
        if !answer.is_empty() {
            break answer;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    assert_eq!(answer, format!("missing {hash}\n"), "it is in");
}

/// A machine that joins as this; its store and a way to renew it.
async fn newcomer(lab: &Lab, name: &str, role: Role) -> (CredentialStore, Way) {
    let may = (role, Priority(3));
    let token =
        enrolment::invite(&lab.records, &lab.credentials, lab.at, may, Duration::from_secs(60)).await.unwrap().token;
    let credentials = enrolment::join(&token, name, HERE).await.unwrap();
    let store = store(&lab.home.path().join(name), &credentials, &lab.now_s);
    let caller = Caller { store: store.clone(), from: HERE, port: lab.at.port(), silence: SILENCE };
    let first = lab.store.identity().unwrap().0.id();
    let registry = if role == Role::External { Registry::outside() } else { Registry::new(lab.records.clone()) };
    registry.read().await;
    registry.heard(first, HERE);
    let post = watch::Sender::new(Post::Following(first)).subscribe();
    (store, Way::Ask { post, registry, caller })
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_and_authorities_follow_each_other_for_ten_lives_and_nobody_is_left_behind() {
    let mut lab = lab().await;
    let own = (lab.store.clone(), Way::Own { records: lab.records.clone(), life: LIFE });
    let inside = newcomer(&lab, "n2", Role::Dispatcher).await;
    let outside = newcomer(&lab, "n3", Role::External).await;
    let first = inside.0.active().credentials.clone();
    // A connection that stays open.
    let mut open = lab.caller(&first).call(HERE, "election", Duration::from_secs(5)).await.unwrap();
    let hash = lab.samples.put(&mut &b"sample"[..], 100).unwrap().hash;
    let wanted = format!("{}\n", Message::Fetch(hash));
    let mut fingerprints = std::collections::BTreeSet::new();
    let begun_s = lab.now_s.load(Ordering::Relaxed);
    for second in (0..600).step_by(10) {
        lab.now_s.store(begun_s + second, Ordering::Relaxed);
        for (store, way) in [&own, &inside, &outside] {
            if store.active().renew_at() <= store.clock.now() {
                renewal::renew(store, way).await.unwrap_or_else(|why| panic!("after {second} s: {why}"));
            }
            assert!(store.clock.now() < store.active().until(), "after {second} s");
        }
        fingerprints.insert(inside.0.active().credentials.fingerprint().unwrap());
        if second % 60 == 0 {
            let now = inside.0.active().credentials.clone();
            let answer = lab.answer(&now, "fetch", wanted.as_bytes()).await;
            assert!(answer.starts_with("sample "), "after {second} s: {answer:?}");
            let answer = lab.answer(&first, "fetch", wanted.as_bytes()).await;
            // Its last second is the one that it names as its end.
            assert_eq!(answer.is_empty(), second > 60, "after {second} s the first certificate: {answer:?}");
        }
    }
    assert!(fingerprints.len() >= 4, "authorities: {fingerprints:?}");
    let kept = Credentials::read(&lab.home.path().join("n2")).unwrap();
    assert_eq!(kept.certificate, inside.0.active().credentials.certificate, "on the disk as in use");
    assert_eq!(kept.identity().unwrap(), first.identity().unwrap());
    open.write_all(b"7 3 5 aside present stray -\n").await.unwrap();
    open.flush().await.unwrap();
    let heard = tokio::time::timeout(Duration::from_secs(10), lab.frames.recv()).await.unwrap().unwrap();
    assert_eq!(heard.from.role, Role::Dispatcher, "connections that are open go on");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_machine_outside_may_not_ask_is_not_answered_and_one_that_is_taken_out_is_cut_off() {
    let mut lab = lab().await;
    let (inside, _) = newcomer(&lab, "n2", Role::Dispatcher).await;
    let (outside, way) = newcomer(&lab, "n3", Role::External).await;
    let (inside, outside) = (inside.active().credentials.clone(), outside.active().credentials.clone());
    let hash = lab.samples.put(&mut &b"sample"[..], 100).unwrap().hash;
    let wanted = format!("{}\n", Message::Fetch(hash));
    let given = loop {
        let given = lab.answer(&inside, "fetch", wanted.as_bytes()).await;
        if !given.is_empty() {
            break given;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    assert!(given.starts_with("sample "));
    assert_eq!(lab.answer(&outside, "fetch", wanted.as_bytes()).await, format!("missing {hash}\n"), "not its sample");
    assert_eq!(lab.answer(&outside, "ask", b"why 1\n").await, "");
    assert_eq!(lab.answer(&inside, "ask", b"why 1\n").await, "bye this machine does not lead\n");
    assert_eq!(lab.answer(&outside, "leader", b"").await, "bye nobody leads at the moment\n");

    let mut open = lab.caller(&outside).call(HERE, "election", Duration::from_secs(5)).await.unwrap();
    open.write_all(b"7 3 5 aside present stray -\n").await.unwrap();
    open.flush().await.unwrap();
    lab.frames.recv().await.unwrap();
    assert!(lab.records.lab_nodes().remove("n3").await.unwrap());
    assert!(!lab.records.lab_nodes().remove("n3").await.unwrap());
    // A refused connection makes the server read the database again; that ends what is open.
    tokio::time::sleep(Duration::from_millis(1100)).await;
    let stranger = Identity::new("n9", Role::Dispatcher, Priority(3)).unwrap();
    let authority = Authority::open(&lab.records, &lab.credentials.seal.unwrap(), lab.issue()).await.unwrap();
    let shown = CertificateDer::from_pem_slice(outside.certificate.as_bytes()).unwrap();
    let certificate = authority.certify(&stranger, Identity::public_key(&shown).unwrap()).unwrap();
    let _ = lab.answer(&Credentials { certificate, ..outside.clone() }, "leader", b"").await;
    assert_eq!(lab.answer(&outside, "leader", b"").await, "");
    let mut rest = String::new();
    let ended = tokio::time::timeout(Duration::from_secs(10), open.read_to_string(&mut rest)).await;
    assert!(ended.is_ok(), "what was open is closed");
    assert!(renewal::renew(&lab.store, &way).await.is_err(), "and it gets no new certificate");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_that_is_started_again_has_seen_what_it_had_seen() {
    let lab = lab().await;
    newcomer(&lab, "n3", Role::External).await;
    let folder = lab.home.path().join("n3");
    std::fs::write(folder.join("epoch"), "9").unwrap();
    let settings = SiteSettings {
        folder: folder.clone(),
        address: HERE,
        port: 0,
        prefix: 8,
        wide: true,
        election: election::Settings::default(),
        index: ProcessingIndex(5),
        leader_analyses: false,
        life: LIFE,
        entry: Vec::new(),
    };
    let (jobs, plugins, tags) = (folder.join("jobs"), Vec::new(), Vec::new());
    let work = DispatcherSettings { jobs, plugins, slots: 1, tags, processing_index: 5 };
    let dispatcher = Dispatcher::new(work, lab.samples.clone(), None).unwrap();
    let node = node("n3", &folder, &lab.records, &lab.samples);
    let parts = Parts { node, dispatcher: dispatcher.clone(), wanted: mpsc::channel(1).1 };
    let membership = Membership::open(&settings.folder, settings.at()).unwrap();
    let _running = Running::start(site::tasks(&membership, settings, lab.records.clone(), parts).await.unwrap());
    assert!(!dispatcher.connect(Epoch(8), mpsc::unbounded_channel().0), "the term of epoch 8 is over");
    assert!(dispatcher.connect(Epoch(9), mpsc::unbounded_channel().0));
    let held = Credentials::read(&folder).unwrap();
    held.write(&folder).unwrap();
    assert!(!folder.join("epoch").exists(), "one that joins anew has seen nothing");
}
