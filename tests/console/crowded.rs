//! Measures how long pages take when the store is full, how long the start takes, and how much memory an idle Weir needs. Only `make soak`
//! runs it, because it fills a store with 100 000 held mails, a million samples and a million messages that can be found. It prints what it
//! measures in lines that begin with `figure`.

use super::visitor::Visitor;
use super::{INBOUND, outbreak};
use crate::control::gate::{PATIENCE, Site, Up, wait_for};
use sqlx::{Connection, SqliteConnection};
use std::fs::OpenOptions;
use std::io::{BufWriter, Write};
use std::time::{Duration, Instant};
use weir_store::diary::{DiaryLine, Facts};

/// How many held mails, samples and tracked messages; `WEIR_CROWD=1000,10000,10000` makes it fewer.
fn crowd() -> (u64, u64, u64) {
    let wanted = std::env::var("WEIR_CROWD").unwrap_or_default();
    let numbers: Vec<u64> = wanted.split(',').filter_map(|number| number.parse().ok()).collect();
    match numbers[..] {
        [held, samples, messages] => (held, samples, messages),
        _ => (100_000, 1_000_000, 1_000_000),
    }
}

/// Fills a site that is not running. Each user is a copy of the one who had an outbreak, with a hundred mails.
fn fill(site: &Site, held: u64, samples: u64) {
    let numbers =
        |count: u64| format!("with recursive n(n) as (select 1 union all select n + 1 from n where n < {count})");
    let id = "substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + n % 32, 1) || printf('%019d', n)";
    let users = held.div_ceil(100);
    let statements = [
        format!(
            "insert into throttles (identity, state, next_deadline, held, stopped_at, notified, updated_at)
             {} select 'user' || n, state, next_deadline, 100, case when n % 50 = 0 then stopped_at end, notified, updated_at
             from n, (select * from throttles where identity = 'demo')",
            numbers(users)
        ),
        format!(
            "insert into held (identity, entry, fate, message, relay, recipient, place, sender, subject, source, size, held_at)
             {} select 'user' || (1 + n / 100), n, 'held', {id}, (select relay from held limit 1), 'r' || n || '@example.org', 0,
               'u@example.org', 'an invoice for you, number ' || n, '192.0.2.7', 4000, 1794715200000000000 + n from n",
            numbers(held)
        ),
        format!(
            "insert into quarantine (message, place, relay, queue, fate, recipient, sender, subject, source, owner, origin, size, at, reason, decided_by)
             {} select {id}, 0, 'x', case n % 3 when 0 then 'virus' when 1 then 'spam' else 'ext' end, 'held', 'r@example.org', 's@example.net',
               'win', '192.0.2.8', '', 'received', 5000, 1794715200000000000 + n, 'why', '' from n",
            numbers(held / 5)
        ),
        format!(
            "insert into lab_samples (ticket, hash, size, name, submitter, directory, file_type, needs, tags, depth, forced, state, why,
               arrived_at, ended_at, verdict, reasons)
             {} select 't' || n, lower(hex(randomblob(32))), 40000, 'invoice-' || n || '.pdf.exe', 'console:admin', 32, 'application/x-dosexec',
               '[[\"identify\",\"1\"],[\"strings\",\"1\"]]', '[]', 0, 0, case when n % 1000 = 0 then 'quarantined' else 'done' end, '',
               1794715200000000000 + n, 1794715200000000000 + n, n % 4, '[]' from n",
            numbers(samples)
        ),
        format!(
            "insert into audit (at, actor, action, subject, detail) {} select n, 'console:admin', 'held.release', 'user' || n, 'x' from n",
            numbers(held)
        ),
    ];
    let url = format!("sqlite://{}", site.data().join("records.db").display());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let mut records = SqliteConnection::connect(&url).await.expect("the records");
        sqlx::raw_sql("pragma synchronous = off").execute(&mut records).await.expect("a pragma");
        for statement in statements {
            let text = statement.clone();
            let done = sqlx::raw_sql(sqlx::AssertSqlSafe(statement)).execute(&mut records).await;
            done.unwrap_or_else(|error| panic!("{error}: {text}"));
        }
        records.close().await.expect("in order");
    });
}

/// Writes messages into the diary that tracking has not read, as if Weir had been killed before it could.
fn write_diary(site: &Site, messages: u64) {
    let folder = site.data().join("diary");
    let mut files: Vec<_> =
        std::fs::read_dir(&folder).expect("a diary").map(|entry| entry.expect("a file").path()).collect();
    files.sort();
    let last = OpenOptions::new().append(true).open(files.last().expect("a file")).expect("it is ours");
    let mut out = BufWriter::with_capacity(1 << 20, last);
    let words = ["invoice", "meeting", "report", "offer", "order", "delivery", "minutes", "figures"];
    for number in 0..messages {
        let (id, at) = (format!("38exdmxn6h{number:010}"), 1_794_715_200_000_000_000 + number * 30_000_000);
        let word = |step: u64| words[(number / step % 8) as usize];
        let facts = Facts {
            from: format!("user{}@example.org", number % 2_000),
            to: vec![format!("person{}@customer{}.example", number % 40_000, number % 5_000)],
            recipients: 1,
            subject: format!("{} {} {} {number}", word(1), word(8), word(64)),
            size: 4_000 + number % 9_000,
            client: format!("192.0.2.{}", number % 250),
            login: format!("user{}", number % 2_000),
            gate: "submission".into(),
            ..Facts::default()
        };
        let mx = Facts { destination: format!("mx1.customer{}.example", number % 5_000), ..Facts::default() };
        for line in [
            DiaryLine::new(&id, "accepted", "").with(facts).about([format!("<{id}@example.org>")]).at(at),
            DiaryLine::new(&id, "delivered", "250 2.0.0 Ok: queued").with(mx).at(at + 300_000_000),
        ] {
            serde_json::to_writer(&mut out, &line).expect("room");
            out.write_all(b"\n").expect("room");
        }
    }
    out.flush().expect("room");
}

/// A line of `/proc/PID/status`, in MB.
fn memory_mb(up: &Up, line: &str) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", up.pid())).expect("it runs");
    let found = status.lines().find_map(|text| text.strip_prefix(line)).expect("a line");
    found.split_whitespace().nth(1).expect("a number").parse::<f64>().expect("a number") * 1024.0 / 1e6
}

fn told_memory(up: &Up, when: &str) -> f64 {
    let [all, own, file] = ["VmRSS", "RssAnon", "RssFile"].map(|line| memory_mb(up, line));
    eprintln!("figure memory {when}: {all:.1} MB resident, {own:.1} of its own, {file:.1} of the program's file");
    all
}

#[test]
#[ignore = "it fills a store with a million samples; make soak runs it"]
#[allow(clippy::print_stdout)]
fn a_full_store_is_shown_at_once() {
    let (held, samples, messages) = crowd();
    let site = Site::new(&format!("{INBOUND}[store]\ndiary_size = \"8GiB\"\ntracking_size = \"8GiB\"\n"));
    let up = site.up_with(&["--demo"]);
    std::thread::sleep(Duration::from_secs(15));
    let idle = told_memory(&up, "idle, with an empty store");
    outbreak(&up);
    drop(up);
    let begun = Instant::now();
    fill(&site, held, samples);
    write_diary(&site, messages);
    eprintln!(
        "{held} held mails, {samples} samples and {messages} messages are there after {:.1} s",
        begun.elapsed().as_secs_f64()
    );
    let begun = Instant::now();
    let up = site.up_with(&["--demo"]);
    let start = begun.elapsed();
    eprintln!("figure from start to ready: {:.0} ms", start.as_secs_f64() * 1e3);
    let console = format!("http://{}", up.listener("console"));
    let visitor = Visitor::log_in(&console, &[], ("admin", &up.admin_password()));
    wait_for("the first look", || visitor.get("/").contains("accounts are stopped").then_some(()));
    let newest = messages.saturating_sub(1).to_string();
    // A million lines of the diary must be read; a slow machine reads a few thousand per second.
    let patience = PATIENCE + Duration::from_millis(messages);
    let tracked =
        || site.json(&["find", "--subject", &newest])["messages"].as_array().is_some_and(|all| !all.is_empty());
    while !tracked() {
        assert!(begun.elapsed() < patience, "waited in vain for all messages to be tracked");
        std::thread::sleep(Duration::from_millis(200));
    }
    eprintln!("figure {messages} messages are tracked again after {:.1} s", begun.elapsed().as_secs_f64());
    let file = std::fs::metadata(site.data().join("tracking.db")).map_or(0, |facts| facts.len());
    eprintln!("figure {} octets a tracked message, with indexes", file / messages.max(1));
    let mut slowest = 0.0_f64;
    let mut slow = Vec::new();
    for page in [
        "/throttle",
        "/throttle/users/user1",
        "/quarantine",
        "/quarantine?queue=spam",
        "/senders",
        "/queue",
        "/bans",
        "/feeds",
        "/web",
        "/lab",
        "/lab?state=quarantined",
        "/search?q=r77@example.org",
        "/search?q=invoice",
        "/search?q=person77@customer77.example",
        "/incidents",
        "/audit",
        "/rules",
        "/settings",
        "/",
    ] {
        let mut times: Vec<f64> = (0..7)
            .map(|_| {
                // This is longer than the time between two polls of the gates.
                std::thread::sleep(Duration::from_millis(2_100));
                visitor.seconds_of(page) * 1e3
            })
            .collect();
        times.sort_by(f64::total_cmp);
        eprintln!("figure page {page:<40} median {:.1} ms, slowest {:.1} ms", times[3], times[6]);
        if times[3] >= 100.0 {
            slow.push(page);
        }
        if page == "/" {
            slowest = times[6];
        }
    }
    told_memory(&up, "with a full store");
    // The promises are only about the release build.
    if std::env::var_os("WEIR_BIN").is_some() {
        assert!(idle <= 80.0 && start <= Duration::from_secs(2) && slowest < 50.0, "{idle} {start:?} {slowest}");
        assert!(slow.is_empty(), "a page takes a tenth of a second or more: {slow:?}");
    }
}
