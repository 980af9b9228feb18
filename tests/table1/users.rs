//! Tests with many users at the same time: every decision is the core's, and an idle user costs almost nothing.
//!
//! Here, a user is a client address of 127/8, so no passwords are needed. The allowed rate is so low that no period ends during the test,
//! so the core's answer does not depend on when it is asked.

use crate::control::gate::{Client, Site, Up, wait_for};
use crate::hostile::crowd::{Conversation, loopback, raise_open_files, resident_kib};
use std::sync::Arc;
use tokio::sync::Barrier;
use weir_core::throttle::{Decision, Params, RecipientKey, Throttle};
use weir_core::time::Instant as At;
use weir_sim::rng::Rng;

const CONFIGURATION: &str = "[throttle]\nrecipients = \"alike\"\nrate = \"1/day\"\nmulti_rate = \"1/day\"\nmax_slack = 1\nmax_multi_slack = 3\n\
     stop_at = 2\nworking_set = 2\n[limits]\nconnections = 11000\ncommand = \"10m\"\nfirst_command = \"10m\"\n";
const MAILS_EACH: usize = 5;

/// The result for a user's mail, from the gate or from the core.
#[derive(Debug, PartialEq, Eq)]
enum Fared {
    Accepted { held: usize, stopped: bool },
    Refused,
}

#[test]
fn many_users_at_once_are_each_judged_as_if_alone() {
    let users = crate::hostile::full_or(10_000, 300);
    raise_open_files();
    let site = Site::with_submission(
        "identity = \"client-address\"\nclients = [\"127.0.0.0/8\", \"10.0.0.0/8\"]\n",
        CONFIGURATION,
    );
    let up = site.up();
    warm_up(&up);
    let before_kib = resident_kib(up.pid());
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    let counts = runtime.block_on(async {
        let everybody_is_here = Arc::new(Barrier::new(users));
        let running: Vec<_> = (0..users)
            .map(|user| tokio::spawn(one_user(user, up.plain.clone(), Arc::clone(&everybody_is_here))))
            .collect();
        let mut counts = [0; 3];
        for run in running {
            for (sum, count) in counts.iter_mut().zip(run.await.expect("no panic")) {
                *sum += count;
            }
        }
        counts
    });
    let [accepted, held, refused] = counts;
    assert!(held > users && refused > users / 10, "{counts:?}: something of everything");
    wait_for("all sessions to end", || {
        // Many users are stopped by now, so the exit code says that somebody is needed.
        let status: serde_json::Value = serde_json::from_str(&site.weir(&["status", "--json"]).stdout).ok()?;
        (status["gate"]["sessions"] == 0).then_some(())
    });
    // Some memory is allowed for what the allocator and the database's cache keep after the rush. The users themselves may need 2 KiB each.
    let allowed_kib = before_kib + 64 * 1024 + 2 * users as u64;
    let within = || Some(resident_kib(up.pid())).filter(|resident| *resident < allowed_kib);
    let after_kib = wait_for(&format!("memory to fall from {} to {allowed_kib} KiB", resident_kib(up.pid())), within);
    eprintln!(
        "{users} users at once: {accepted} mails accepted, of which {held} held, {refused} refused, all as the core says; \
         resident {before_kib} KiB before, {after_kib} KiB after"
    );
}

/// The first mails fill caches whose size does not depend on the number of users.
fn warm_up(up: &Up) {
    let mut client = Client::greeted(&up.plain);
    for _ in 0..50 {
        assert!(client.mail("a@b.example", &["to-0@localhost"], "warm").contains("250 2.0.0"));
    }
}

/// Sends the mails of one user and compares each result with the core's. Returns how many were accepted, held and refused.
async fn one_user(number: usize, server: String, everybody: Arc<Barrier>) -> [usize; 3] {
    let mut rng = Rng::new(number as u64);
    let mut conversation = Conversation::open(&server, loopback(1, number)).await.expect("a connection");
    conversation.greet().await;
    everybody.wait().await;
    let params = Params {
        rate_period: std::time::Duration::from_secs(86_400),
        multi_rate_period: std::time::Duration::from_secs(86_400),
        max_slack: 1,
        max_multi_slack: 3,
        stop_at: 2,
        working_set: 2,
        ..Params::default()
    };
    let mut core = Throttle::new(params, At::ZERO).expect("good parameters");
    let mut counts = [0; 3];
    for mail in 0..MAILS_EACH {
        // Distinct recipients from a small set, so that some are known already and some are not.
        let (first, count) = (rng.below(20), [1, 1, 1, 2, 3][rng.below(5) as usize]);
        let to: Vec<u64> = (0..count).map(|n| (first + n * 7) % 20).collect();
        let keys: Vec<RecipientKey> = to.iter().map(|n| RecipientKey(*n)).collect();
        let expected = match core.submit(At::ZERO, &keys) {
            Decision::Accepted { held, stopped, .. } => {
                Fared::Accepted { held: held.len(), stopped: stopped.is_some() }
            }
            Decision::Refused => Fared::Refused,
        };
        let addresses: Vec<String> = to.iter().map(|n| format!("to-{n}@localhost")).collect();
        let mut reply = conversation.mail("user@clients.example", &addresses).await;
        while reply.starts_with("451 ") {
            // So many users at once that the records were not available for half a minute. Nothing was decided, so it is tried again.
            conversation.say("RSET").await;
            reply = conversation.mail("user@clients.example", &addresses).await;
        }
        assert_eq!(fared(&reply), Some(expected), "user {number}, mail {mail} to {to:?}: {reply}");
        match fared(&reply) {
            Some(Fared::Accepted { held, .. }) => {
                counts[0] += 1;
                counts[1] += usize::from(held > 0);
            }
            _ => counts[2] += 1,
        }
    }
    conversation.say("QUIT").await;
    counts
}

fn fared(reply: &str) -> Option<Fared> {
    if reply.starts_with("550 5.7.1 ") && reply.contains("is stopped") {
        return Some(Fared::Refused);
    }
    let text = reply.strip_prefix("250 2.0.0 ")?;
    let held = match text.split_once(" held: ") {
        Some((_, rest)) => rest.split(' ').next()?.parse().ok()?,
        None => 0,
    };
    Some(Fared::Accepted { held, stopped: text.contains("you are stopped") })
}

#[test]
fn a_known_user_who_is_idle_costs_no_memory() {
    let resident: Vec<u64> = [10_000, 100_000].into_iter().map(resident_with).collect();
    let each = resident[1].saturating_sub(resident[0]) * 1024 / 90_000;
    eprintln!("{} KiB with 10 000 known users, {} KiB with 100 000: {each} octets a user", resident[0], resident[1]);
    assert!(each <= 2048, "{each} octets a user");
}

/// The gate's memory with this many known users, after one of them has sent.
fn resident_with(users: u32) -> u64 {
    let site = Site::new("");
    let up = site.up();
    let password = up.password();
    let mut client = Client::login(&up.plain, "demo", &password).expect("a login");
    assert!(client.mail("demo@localhost", &["ann@localhost"], "hello").contains("accepted"));
    drop(client);
    up.signal("TERM");
    assert_eq!(up.ended(), Some(0));
    // Every user is a copy of demo, with the same password and throttle.
    let statements = [
        format!(
            "with recursive n(i) as (select 1 union all select i + 1 from n where i < {users}) insert into users \
             select 'user' || i, password, addresses, contact, profile, params, locked_at, locked_reason, created_at \
             from users, n where name = 'demo'"
        ),
        "insert into throttles (identity, state, next_deadline, held, stopped_at, notified, updated_at) select u.name, t.state, t.next_deadline, t.held, t.stopped_at, t.notified, t.updated_at \
         from users u, throttles t where t.identity = 'demo' and u.name <> 'demo'"
            .to_owned(),
    ];
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let options = sqlx::sqlite::SqliteConnectOptions::new().filename(site.data().join("records.db"));
        let pool = sqlx::SqlitePool::connect_with(options).await.expect("the records");
        for statement in statements {
            sqlx::query(sqlx::AssertSqlSafe(statement)).execute(&pool).await.expect("more users");
        }
        pool.close().await;
    });
    let up = site.up();
    for user in ["user1", "user777", &format!("user{users}")] {
        let mut client = Client::login(&up.plain, user, &password).expect("a login");
        assert!(client.mail("demo@localhost", &["ann@localhost"], "hello").contains("accepted"));
    }
    site.weir(&["user", "show", "user777"]).ok();
    resident_kib(up.pid())
}
