//! All changes that the API can make: the request, how one sees that the change was made, and what the audit trail says about it.

use super::hang_ups::{Names, Prepared, Seen, gone, those};
use serde_json::{Value, json};

/// One kind of change.
pub(super) struct Change {
    /// Its method and path, as in the API's document.
    pub(super) operation: &'static str,
    /// What the trail calls it.
    pub(super) action: &'static str,
    /// The path and the body for one client.
    pub(super) ask: fn(&Prepared, usize) -> (String, Value),
    /// The things that were changed, by the names that the trail uses.
    pub(super) changed: fn(&Prepared, &Seen) -> Names,
    /// The same names from the lines of the trail with this action.
    pub(super) told: fn(&[&Value]) -> Names,
}

/// Changes that no client requests here, and why.
pub(super) const LEFT_OUT: [(&str, &str); 2] = [
    ("post /lab/invite", "a lab of one machine invites nobody; tests/lab_network.rs has labs of several"),
    ("post /lab/priority", "a lab of one machine elects nobody; tests/lab_network.rs has labs of several"),
];

/// A password that is never checked against anything.
pub(super) const PASSWORD: &str = "correct horse";

fn to(path: impl Into<String>, body: Value) -> (String, Value) {
    (path.into(), body)
}

/// One text of each line.
fn field(lines: &[&Value], name: &str) -> Names {
    lines.iter().filter_map(|line| line[name].as_str()).map(str::to_owned).collect()
}

fn subjects(lines: &[&Value]) -> Names {
    field(lines, "subject")
}

fn details(lines: &[&Value]) -> Names {
    field(lines, "detail")
}

/// The message ids in the details: `1 recipient of 1 message: 38exjmr5c8wmgwtgr3zn` ends with one.
fn messages(lines: &[&Value]) -> Names {
    details(lines).iter().filter_map(|detail| detail.split(' ').next_back()).map(str::to_owned).collect()
}

/// Names for changes that have none, neither themselves nor in their lines: then there must be as many lines as changes.
fn numbered(count: usize) -> Names {
    (1..=count).map(|number| number.to_string()).collect()
}

fn begin(list: &Value, field: &str, with: &str) -> Names {
    those(list, field, |_| true).into_iter().filter(|name| name.starts_with(with)).collect()
}

/// The users or accounts whose password has changed.
fn with_another_password(prepared: &Prepared, seen: &Seen, kind: &str, password: fn(&Value, &str) -> Value) -> Names {
    let changed = |name: &&String| password(&prepared.stored, name) != password(&seen.stored, name);
    prepared.of(kind).iter().filter(changed).cloned().collect()
}

pub(super) const CHANGES: &[Change] = &[
    Change {
        operation: "post /backup",
        action: "backup",
        ask: |prepared, n| to("/backup", json!({ "folder": prepared.backup(n) })),
        changed: |_, seen| seen.backups.clone(),
        told: subjects,
    },
    Change {
        operation: "post /bans",
        action: "ban.add",
        ask: |_, n| to("/bans", json!({ "address": format!("198.51.100.{n}") })),
        changed: |_, seen| begin(seen.at("/bans"), "address", "198.51.100."),
        told: subjects,
    },
    Change {
        operation: "post /bans/lift",
        action: "ban.lift",
        ask: |prepared, n| to("/bans/lift", json!({ "address": prepared.of("banned")[n] })),
        changed: |prepared, seen| gone(prepared, "banned", seen.at("/bans"), "address"),
        told: subjects,
    },
    Change {
        operation: "post /console/accounts",
        action: "console.add",
        ask: |_, n| {
            let name = format!("made{n}");
            to("/console/accounts", json!({ "name": name, "role": "operator", "password": PASSWORD }))
        },
        changed: |_, seen| begin(seen.at("/console/accounts"), "name", "made"),
        told: subjects,
    },
    Change {
        operation: "post /console/accounts/{name}/codes-off",
        action: "console.codes.off",
        ask: |prepared, n| to(format!("/console/accounts/{}/codes-off", prepared.of("coded")[n]), json!(null)),
        changed: |prepared, seen| {
            let plain = |name: &&String| seen.stored["accounts"][name.as_str()]["second_factor"].is_null();
            prepared.of("coded").iter().filter(plain).cloned().collect()
        },
        told: subjects,
    },
    Change {
        operation: "post /console/accounts/{name}/password",
        action: "console.passwd",
        ask: |prepared, n| {
            let path = format!("/console/accounts/{}/password", prepared.of("known")[n]);
            to(path, json!({ "password": "another horse" }))
        },
        changed: |prepared, seen| {
            with_another_password(prepared, seen, "known", |stored, name| stored["accounts"][name]["password"].clone())
        },
        told: subjects,
    },
    Change {
        operation: "post /console/accounts/{name}/remove",
        action: "console.remove",
        ask: |prepared, n| to(format!("/console/accounts/{}/remove", prepared.of("former")[n]), json!(null)),
        changed: |prepared, seen| gone(prepared, "former", seen.at("/console/accounts"), "name"),
        told: subjects,
    },
    Change {
        operation: "post /console/sessions/{number}/end",
        action: "console.session.end",
        ask: |prepared, n| to(format!("/console/sessions/{}/end", prepared.of("session")[n]), json!(null)),
        changed: |prepared, seen| gone(prepared, "session", seen.at("/console/sessions"), "number"),
        told: details,
    },
    Change {
        operation: "post /console/tokens",
        action: "token.add",
        ask: |_, n| to("/console/tokens", json!({ "name": format!("new{n}"), "scope": "read", "days": 1 })),
        changed: |_, seen| begin(seen.at("/console/tokens"), "name", "new"),
        told: subjects,
    },
    Change {
        operation: "post /console/tokens/{name}/revoke",
        action: "token.revoke",
        ask: |prepared, n| to(format!("/console/tokens/{}/revoke", prepared.of("old")[n]), json!(null)),
        changed: |prepared, seen| gone(prepared, "old", seen.at("/console/tokens"), "name"),
        told: subjects,
    },
    Change {
        operation: "post /dkim",
        action: "dkim.add",
        ask: |_, n| to("/dkim", json!({ "domain": format!("signed{n}.example"), "kind": "ed25519" })),
        changed: |_, seen| begin(seen.at("/dkim"), "domain", "signed"),
        told: subjects,
    },
    Change {
        operation: "post /feeds/tune",
        action: "feeds.tune",
        ask: |_, _| to("/feeds/tune", json!({ "apply": true })),
        changed: |_, seen| numbered(usize::from(seen.stored["limits"] == true)),
        told: |lines| numbered(lines.len().min(1)),
    },
    Change {
        operation: "post /held/analyse",
        action: "held.analyse",
        ask: |prepared, n| {
            to("/held/analyse", json!({ "selection": { "messages": [prepared.of("held-with-file")[n]] } }))
        },
        changed: |_, seen| numbered(begin(seen.at("/lab/samples?most=1000"), "name", "held").len()),
        told: |lines| numbered(lines.len()),
    },
    Change {
        operation: "post /held/delete",
        action: "held.delete",
        ask: |prepared, n| {
            to("/held/delete", json!({ "selection": { "messages": [prepared.of("held-for-nothing")[n]] } }))
        },
        changed: |prepared, seen| gone(prepared, "held-for-nothing", &seen.at("/held")["messages"], "message"),
        told: messages,
    },
    Change {
        operation: "post /held/release",
        action: "held.release",
        ask: |prepared, n| to("/held/release", json!({ "selection": { "messages": [prepared.of("held")[n]] } })),
        changed: |prepared, seen| gone(prepared, "held", &seen.at("/held")["messages"], "message"),
        told: messages,
    },
    Change {
        operation: "post /lab/cancel",
        action: "lab.cancel",
        ask: |prepared, n| to("/lab/cancel", json!({ "sample": prepared.of("waits")[n] })),
        changed: |prepared, seen| {
            let ended = those(seen.at("/lab/samples?most=1000"), "sample", |sample| sample["state"] != "queued");
            prepared
                .of("waits")
                .iter()
                .filter(|number| ended.contains(*number))
                .map(|n| format!("sample-{n}"))
                .collect()
        },
        told: subjects,
    },
    Change {
        operation: "post /lab/drain",
        action: "lab.drain",
        ask: |prepared, _| to("/lab/drain", json!({ "node": prepared.machine, "drained": true })),
        changed: |_, seen| those(seen.at("/lab/nodes"), "name", |node| node["drained"] == true),
        told: subjects,
    },
    Change {
        operation: "post /lab/remove",
        action: "lab.remove",
        ask: |prepared, n| to("/lab/remove", json!({ "node": prepared.of("machine")[n] })),
        changed: |prepared, seen| gone(prepared, "machine", seen.at("/lab/nodes"), "name"),
        told: subjects,
    },
    Change {
        operation: "post /lab/rerun",
        action: "lab.rerun",
        ask: |prepared, n| to("/lab/rerun", json!({ "sample": prepared.of("again")[n] })),
        changed: |prepared, seen| {
            let samples = seen.at("/lab/samples?most=1000").as_array().map(Vec::as_slice).unwrap_or_default();
            let twice =
                |n: usize| samples.iter().filter(|sample| sample["name"] == format!("again{n}.txt")).count() > 1;
            let numbers = prepared.of("again").iter().enumerate().filter(|(n, _)| twice(*n));
            numbers.map(|(_, number)| format!("sample-{number}")).collect()
        },
        told: subjects,
    },
    Change {
        operation: "post /lab/samples",
        action: "lab.submit",
        ask: |_, n| to(format!("/lab/samples?name=given{n}.txt"), json!(format!("given {n}"))),
        changed: |_, seen| begin(seen.at("/lab/samples?most=1000"), "name", "given"),
        told: details,
    },
    Change {
        operation: "post /quarantine/delete",
        action: "quarantine.delete",
        ask: |prepared, n| {
            to("/quarantine/delete", json!({ "selection": { "messages": [prepared.of("kept-for-nothing")[n]] } }))
        },
        changed: |prepared, seen| gone(prepared, "kept-for-nothing", &seen.at("/quarantine")["entries"], "message"),
        told: subjects,
    },
    Change {
        operation: "post /quarantine/release",
        action: "quarantine.release",
        ask: |prepared, n| to("/quarantine/release", json!({ "selection": { "messages": [prepared.of("kept")[n]] } })),
        changed: |prepared, seen| gone(prepared, "kept", &seen.at("/quarantine")["entries"], "message"),
        told: subjects,
    },
    Change {
        operation: "post /queue/delete",
        action: "queue.delete",
        ask: |prepared, n| to("/queue/delete", json!({ "messages": [prepared.of("queued-for-nothing")[n]] })),
        changed: |prepared, seen| gone(prepared, "queued-for-nothing", &seen.at("/queue")["messages"], "message"),
        told: messages,
    },
    Change {
        operation: "post /queue/retry",
        action: "queue.retry",
        ask: |prepared, n| to("/queue/retry", json!({ "messages": [prepared.of("queued")[n]] })),
        changed: |prepared, seen| {
            let again = those(&seen.at("/queue")["messages"], "message", |mail| mail["attempts"].as_u64() > Some(1));
            prepared.of("queued").iter().filter(|id| again.contains(*id)).cloned().collect()
        },
        told: messages,
    },
    Change {
        operation: "post /scan/rules",
        action: "rule.add",
        ask: |_, n| to("/scan/rules", json!({ "sha256": format!("{n:064x}"), "about": "new" })),
        changed: |_, seen| {
            let new = those(seen.at("/scan/rules"), "rule", |rule| rule["about"] == "new");
            new.iter().map(|number| format!("rule-{number}")).collect()
        },
        told: subjects,
    },
    Change {
        operation: "post /scan/rules/{rule}/remove",
        action: "rule.remove",
        ask: |prepared, n| to(format!("/scan/rules/{}/remove", prepared.of("rule")[n]), json!(null)),
        changed: |prepared, seen| {
            gone(prepared, "rule", seen.at("/scan/rules"), "rule").iter().map(|n| format!("rule-{n}")).collect()
        },
        told: subjects,
    },
    Change {
        operation: "post /senders",
        action: "sender.block",
        ask: |_, n| to("/senders", json!({ "who": format!("new{n}.example"), "rule": "block" })),
        changed: |_, seen| begin(seen.at("/senders"), "who", "new"),
        told: subjects,
    },
    Change {
        operation: "post /senders/remove",
        action: "sender.remove",
        ask: |prepared, n| to("/senders/remove", json!({ "who": prepared.of("sender")[n] })),
        changed: |prepared, seen| gone(prepared, "sender", seen.at("/senders"), "who"),
        told: subjects,
    },
    Change {
        operation: "post /users",
        action: "user.add",
        ask: |_, n| to("/users", json!({ "name": format!("made{n}"), "addresses": [format!("made{n}@localhost")] })),
        changed: |_, seen| begin(&seen.users, "name", "made"),
        told: subjects,
    },
    Change {
        operation: "patch /users/{name}",
        action: "user.set",
        ask: |prepared, n| {
            to(format!("/users/{}", prepared.of("set")[n]), json!({ "contact": "elsewhere@example.org" }))
        },
        changed: |_, seen| those(&seen.users, "name", |user| user["contact"] == "elsewhere@example.org"),
        told: subjects,
    },
    Change {
        operation: "post /users/{name}/lock",
        action: "user.lock",
        ask: |prepared, n| to(format!("/users/{}/lock", prepared.of("lock")[n]), json!({ "reason": "a test" })),
        changed: |prepared, seen| {
            let locked = those(&seen.users, "name", |user| user["state"] == "locked");
            prepared.of("lock").iter().filter(|name| locked.contains(*name)).cloned().collect()
        },
        told: subjects,
    },
    Change {
        operation: "post /users/{name}/password",
        action: "user.passwd",
        ask: |prepared, n| to(format!("/users/{}/password", prepared.of("pass")[n]), json!({ "password": PASSWORD })),
        changed: |prepared, seen| {
            with_another_password(prepared, seen, "pass", |stored, name| stored["users"][name].clone())
        },
        told: subjects,
    },
    Change {
        operation: "post /users/{name}/remove",
        action: "user.remove",
        ask: |prepared, n| to(format!("/users/{}/remove", prepared.of("gone")[n]), json!(null)),
        changed: |prepared, seen| gone(prepared, "gone", &seen.users, "name"),
        told: subjects,
    },
    Change {
        operation: "post /users/{name}/secure",
        action: "user.lock",
        ask: |prepared, n| to(format!("/users/{}/secure", prepared.of("stolen")[n]), json!({})),
        changed: |prepared, seen| {
            let locked = those(&seen.users, "name", |user| user["state"] == "locked");
            prepared.of("stolen").iter().filter(|name| locked.contains(*name)).cloned().collect()
        },
        told: subjects,
    },
    Change {
        operation: "post /users/{name}/unlock",
        action: "user.unlock",
        ask: |prepared, n| to(format!("/users/{}/unlock", prepared.of("free")[n]), json!(null)),
        changed: |prepared, seen| {
            let locked = those(&seen.users, "name", |user| user["state"] == "locked");
            prepared.of("free").iter().filter(|name| !locked.contains(*name)).cloned().collect()
        },
        told: subjects,
    },
    Change {
        operation: "post /web/blocks",
        action: "web.block",
        ask: |_, n| to("/web/blocks", json!({ "network": format!("203.0.113.{n}") })),
        changed: |_, seen| begin(seen.at("/web/blocks"), "network", "203.0.113."),
        told: subjects,
    },
    Change {
        operation: "post /web/blocks/lift",
        action: "web.unblock",
        ask: |prepared, n| to("/web/blocks/lift", json!({ "network": prepared.of("blocked")[n] })),
        changed: |prepared, seen| gone(prepared, "blocked", seen.at("/web/blocks"), "network"),
        told: subjects,
    },
    Change {
        operation: "post /web/drain",
        action: "web.drain",
        ask: |prepared, _| to("/web/drain", json!({ "server": prepared.server })),
        changed: |_, seen| {
            those(&seen.at("/web")["backends"][0]["servers"], "address", |server| server["draining"] == true)
        },
        told: subjects,
    },
    Change {
        operation: "post /web/weight",
        action: "web.weight",
        ask: |prepared, n| to("/web/weight", json!({ "server": prepared.server, "weight": 2 + n % 90 })),
        changed: |_, seen| those(&seen.at("/web")["backends"][0]["servers"], "weight", |server| server["weight"] != 1),
        told: details,
    },
];
