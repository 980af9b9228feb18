//! Mail of users who log in and whose correspondents are remembered: 10 000 users with 2 000 correspondents each.
//!
//! The memory is written as the throttle writes it, in two halves with the users in no order, so that its packs grow in between as they do
//! in life. Weir runs as sites run it: users log in, the throttle decides and may hold. Each user writes to several correspondents within
//! a minute, which strangers' slack would not allow: if the memory were not asked, mail would be held and the benchmark would fail.
//!
//! Postfix takes the same mail after the same logins, which cost it nothing ([`crate::password_server`]). Passwords are hashed as
//! cheaply as argon2id can be: what a password costs is chosen by a site, and is not what is measured here.

use crate::disk::Disk;
use crate::mail_program::UsersMail;
use crate::people::{CORRESPONDENTS, PASSWORD_HASH, USERS, correspondent, user};
use crate::report::Report;
use crate::round::{Round, play};
use crate::server::{Server, weir_up};
use crate::sink::Sink;
use crate::{ROUNDS, password_server, postfix};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;
use weir_core::throttle::RecipientKey;
use weir_foundation::Foundation;
use weir_foundation::clock::wall_clock;
use weir_mail::submission::recipient_key;
use weir_mail::throttle::{correspondents_in, day_of, remember};
use weir_store::folder::DataFolder;
use weir_store::records::UserRow;

/// Users whose memories are written in one transaction.
const AT_ONCE: usize = 25;
/// Messages of a round, and before the first.
const MESSAGES: u32 = 4_000;
const WARM_UP: u32 = 1_000;
const LENGTH: usize = 4 << 10;
/// After a start, until memory is looked at.
const REST: Duration = Duration::from_secs(2);

/// Fills a memory, says what it takes, and lets Weir and Postfix take turns with mail to correspondents.
pub(crate) fn compete(weir: &Path, disk: &Disk, report: &mut Report) {
    let sink = Sink::start();
    let folder = disk.folder("weir-");
    std::fs::write(folder.path().join("weir.toml"), configuration(sink.port())).expect("a configuration");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(add_users(&folder));
    let (folder, without_mb) = idle_mb(weir, folder);
    let octets = runtime.block_on(fill(&folder));
    drop(runtime);
    let (folder, with_mb) = idle_mb(weir, folder);
    report.figure("mail_correspondent_bytes", octets);
    report.figure("mail_idle_users_memory_mb", with_mb - without_mb);
    let auth = format!(
        "smtpd_sasl_auth_enable = yes\nsmtpd_sasl_type = dovecot\nsmtpd_sasl_path = inet:127.0.0.1:{}\n",
        password_server::start()
    );
    let servers = [weir_up(weir, folder, "submission"), postfix::start_with(disk, sink.port(), (&auth, ""))];
    compare(&servers, &sink, report);
}

fn compare(servers: &[Server; 2], sink: &Sink, report: &mut Report) {
    for server in servers {
        play(server, &UsersMail { first: 0, messages: WARM_UP, length: LENGTH }, sink);
    }
    let mut rounds: [Vec<Round>; 2] = Default::default();
    let mut load = UsersMail { first: WARM_UP, messages: MESSAGES, length: LENGTH };
    for number in 1..=ROUNDS {
        for (server, rounds) in servers.iter().zip(&mut rounds) {
            let round = play(server, &load, sink);
            eprintln!("correspondents round {number} of {ROUNDS}, {}: {round}", server.name());
            rounds.push(round);
        }
        load.first += MESSAGES;
    }
    report.compared(("4k_correspondents", &load.about()), servers, &rounds, &[]);
}

/// What a Weir that has just started has in memory.
fn idle_mb(weir: &Path, folder: TempDir) -> (TempDir, f64) {
    let server = weir_up(weir, folder, "submission");
    std::thread::sleep(REST);
    let resident = server.usage().rss_mb();
    (server.stop(), resident)
}

async fn open(folder: &TempDir) -> Foundation {
    let data = DataFolder::open(data(folder)).expect("a data folder");
    Foundation::lay(data, None, "relay.example.org").await.expect("its records")
}

async fn add_users(folder: &TempDir) {
    let foundation = open(folder).await;
    let users = foundation.records.users();
    for number in 0..USERS {
        let name = user(number);
        let row = UserRow {
            addresses: vec![format!("{name}@example.org")],
            name,
            password: PASSWORD_HASH.to_owned(),
            contact: String::new(),
            profile: "person".to_owned(),
            params: "{}".to_owned(),
            locked_at: None,
            locked_reason: String::new(),
            created_at: 0,
        };
        assert!(users.add(&row).await.expect("a disk"), "the name is new");
    }
    foundation.records.close().await;
}

/// Fills the memory; how many octets one correspondent takes on the disk.
async fn fill(folder: &TempDir) -> f64 {
    let file = data(folder).join("records.db");
    let size = || std::fs::metadata(&file).expect("the records").len();
    let before = size();
    let foundation = open(folder).await;
    let (memory, today) = (foundation.records.correspondents(), day_of(wall_clock()));
    let users: Vec<u32> = (0..USERS).map(|number| number * 7_919 % USERS).collect();
    for half in [0..CORRESPONDENTS / 2, CORRESPONDENTS / 2..CORRESPONDENTS] {
        for some in users.chunks(AT_ONCE) {
            let key = |address: &str| recipient_key(&foundation.recipient_secret, address);
            let keys = |of: u32| -> BTreeSet<RecipientKey> {
                half.clone().map(|number| key(&correspondent(of, number))).collect()
            };
            remember(&memory, some.iter().map(|of| (user(*of), keys(*of))), today).await.expect("a disk");
        }
        eprintln!("{} correspondents of each of {USERS} users are written", half.end);
    }
    let mut known = 0;
    for number in 0..USERS {
        known += correspondents_in(memory.octets(&user(number)).await.expect("a disk"));
    }
    foundation.records.close().await;
    // A pack that happens to be full forgets one in a hundred.
    assert!(known > i64::from(USERS * CORRESPONDENTS) * 9 / 10, "{known} are known");
    (size() - before) as f64 / known as f64
}

fn data(folder: &TempDir) -> PathBuf {
    folder.path().join("data")
}

fn configuration(smarthost: u16) -> String {
    format!(
        r#"[submission]
hostname = "relay.example.org"
listen = ["127.0.0.1:0"]
listen_tls = []
user_messages = 0
[throttle]
own_domains = ["example.org"]
[notices]
admin = "postmaster@example.org"
[delivery]
way = "smarthost"
hosts = ["127.0.0.1:{smarthost}"]
tls = "off"
"#
    )
}
