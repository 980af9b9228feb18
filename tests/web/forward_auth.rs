//! Tests with nginx, Caddy and HAProxy, unmodified and set up as docs/doors.md says: they carry the requests, and ask the web gate whose
//! turn it is.

use super::floods::{APP, Site, WORKERS, get, rest_of, run};
use super::recipes::{Process, free_address, start, until};
use super::waiting::{Browser, flood, refresh};
use super::{PATIENCE, Up, json};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use weir_peers::Gunicorn;

const DOORS: &str = include_str!("../../docs/doors.md");

/// The recipe in this language, with addresses of the page replaced by those of this test.
fn recipe(language: &str, changed: &[(&str, &str)]) -> String {
    let block = DOORS.split(&format!("```{language}\n")).nth(1).and_then(|rest| rest.split("```").next());
    let mut text = block.expect("the page has a recipe").to_owned();
    for (written, here) in changed {
        assert!(text.contains(written), "{written} is not in the recipe");
        text = text.replace(written, here);
    }
    text
}

/// A gate that other proxies ask about one application.
fn gate(more: &str, door: &str) -> Up {
    Up::new(&format!(
        "backends = [\"shop forward_auth slots={WORKERS}\"]\nstanding_after = \"1s\"\nqueue = 60\nwaiting_page_after = \"1s\"\n{more}\
         [web.forward_auth]\nlisten = [\"127.0.0.1:0\"]\n{door}"
    ))
}

fn door(up: &Up) -> Value {
    json(up.weir(&["web", "status", "--json"]))["forward_auth"].clone()
}

fn running(up: &Up) -> u64 {
    json(up.weir(&["web", "status", "--json"]))["backends"][0]["queue"]["running"].as_u64().unwrap()
}

fn address(door: &Value, which: &str) -> String {
    door[which][0].as_str().expect("an address").to_owned()
}

/// A site with its proxy. Both end when this is dropped.
struct Carried {
    site: Arc<Site>,
    _proxy: Process,
    _folder: tempfile::TempDir,
}

impl Carried {
    fn by_nginx() -> Carried {
        let (up, app, folder, at) = parts();
        let door = door(&up);
        let inner = folder.path().join("inner.sock").display().to_string();
        let recipe = recipe(
            "nginx",
            &[
                ("listen 80;", &format!("listen {at};")),
                ("server_name shop.example;", ""),
                ("/run/nginx-weir.sock", &inner),
                ("127.0.0.1:2481", &address(&door, "listeners")),
                ("127.0.0.1:2482", &address(&door, "logs")),
                ("127.0.0.1:8000", app.place()),
            ],
        );
        let text = format!(
            "daemon off; master_process off; pid nginx.pid; error_log error.log; events {{ worker_connections 8192; }} http {{ \
             client_body_temp_path t1; proxy_temp_path t2; fastcgi_temp_path t3; uwsgi_temp_path t4; scgi_temp_path t5; access_log off;\n{recipe} }}"
        );
        std::fs::write(folder.path().join("nginx.conf"), text).unwrap();
        let mut nginx = Command::new("nginx");
        nginx.arg("-p").arg(folder.path()).args(["-c", "nginx.conf", "-e", "error.log"]);
        Carried::start("nginx", &mut nginx, (up, app, folder, at))
    }

    fn by_caddy() -> Carried {
        let (up, app, folder, at) = parts();
        let door = door(&up);
        let recipe = recipe(
            "caddy",
            &[
                ("http://shop.example {", &format!("http://:{} {{\n\tbind 127.0.0.1", at.port())),
                ("127.0.0.1:2481", &address(&door, "listeners")),
                ("127.0.0.1:2482", &address(&door, "logs")),
                ("127.0.0.1:8000", app.place()),
            ],
        );
        let text = format!("{{\n\tadmin off\n\tauto_https off\n}}\n{recipe}");
        std::fs::write(folder.path().join("Caddyfile"), text).unwrap();
        let mut caddy = Command::new("caddy");
        caddy.args(["run", "--adapter", "caddyfile", "--config"]).arg(folder.path().join("Caddyfile"));
        caddy.env("XDG_DATA_HOME", folder.path()).env("XDG_CONFIG_HOME", folder.path()).env("HOME", folder.path());
        Carried::start("caddy", &mut caddy, (up, app, folder, at))
    }

    fn by_haproxy() -> Carried {
        Carried::by_haproxy_with("", |script| script)
    }

    /// With further settings of the gate, and a function that changes the recipe's script.
    fn by_haproxy_with(more: &str, change: fn(String) -> String) -> Carried {
        let (up, app, folder, at) = parts_with(more);
        let door = door(&up);
        let script = folder.path().join("weir.lua");
        let lua = recipe("lua", &[("127.0.0.1:2481", &address(&door, "listeners"))]);
        std::fs::write(&script, change(lua)).unwrap();
        let recipe = recipe(
            "haproxy",
            &[
                ("bind :80", &format!("bind {at}")),
                ("/etc/haproxy/weir.lua", &script.display().to_string()),
                ("127.0.0.1:2482", &address(&door, "logs")),
                ("127.0.0.1:8000", app.place()),
            ],
        );
        std::fs::write(folder.path().join("haproxy.cfg"), recipe).unwrap();
        let mut haproxy = Command::new("haproxy");
        haproxy.arg("-db").arg("-f").arg(folder.path().join("haproxy.cfg"));
        Carried::start("haproxy", &mut haproxy, (up, app, folder, at))
    }

    fn start(name: &str, command: &mut Command, (up, app, folder, at): Parts) -> Carried {
        let proxy = start(name, command);
        until(name, || TcpStream::connect(at).is_ok());
        Carried { site: Arc::new(Site::carried(up, at, app)), _proxy: proxy, _folder: folder }
    }

    fn up(&self) -> &Up {
        &self.site.up
    }

    /// Checks that all slots have ended, and that the proxy's log ended them.
    fn slots_end_by_the_log(&self) {
        until("no slot to be held", || running(self.up()) == 0);
        let door = door(self.up());
        let (log, time) = (door["ended_by_log"].as_u64().unwrap(), door["ended_by_time"].as_u64().unwrap());
        assert!(log > 0 && time * 10 <= log && door["trouble"].is_null() && door["held"] == 0, "{door}");
    }
}

type Parts = (Up, Gunicorn, tempfile::TempDir, SocketAddr);

fn parts() -> Parts {
    parts_with("")
}

fn parts_with(more: &str) -> Parts {
    let up = gate(more, "log_listen = [\"127.0.0.1:0\"]\n");
    (up, Gunicorn::start(APP, WORKERS), tempfile::tempdir().unwrap(), free_address())
}

/// Known visitors are served during a flood of strangers from new networks, newcomers get a page with a place that they keep, and the flood
/// is bounded.
async fn holds_off_a_flood(carried: &Carried) {
    let site = &carried.site;
    let mut known = Browser::at([127, 1, 1, 1]);
    let said = known.ask(site).await;
    assert!(said.starts_with("HTTP/1.1 200 ") && known.cookie.is_some(), "{said}");
    // The cookie must be a second old, by a clock that counts whole seconds.
    tokio::time::sleep(Duration::from_millis(2_200)).await;
    let flood = flood(site, 120, false, "*/*");
    flood.begun().await;
    until("more to wait than there is room for", || {
        let status = json(site.up.weir(&["web", "status", "--json"]));
        status["backends"][0]["queue"]["counters"]["refused"].as_array().unwrap().iter().any(|count| *count != 0)
    });
    for _ in 0..20 {
        let said = known.ask(site).await;
        assert!(said.starts_with("HTTP/1.1 200 ") && said.ends_with("page"), "{said}");
    }
    let mut newcomer = Browser::at([127, 9, 9, 1]);
    let said = newcomer.ask(site).await;
    if !said.starts_with("HTTP/1.1 200 ") {
        assert!(newcomer.cookie.is_some() && said.contains("retry-after: "), "its place is in the cookie: {said}");
        tokio::time::sleep(Duration::from_secs(refresh(&said))).await;
        newcomer.get_in(site).await;
    }
    assert!(running(&site.up) <= u64::from(WORKERS));
    drop(flood);
    carried.slots_end_by_the_log();
}

/// A cache gives what it stores to everybody, but a cookie is for one visitor.
async fn gives_no_cookie_to_caches(carried: &Carried) {
    for (number, (path, cookie)) in [("/page", true), ("/kept", false), ("/login", true)].into_iter().enumerate() {
        let mut stream = carried.site.connect([127, 6, number as u8, 1]).await;
        stream.write_all(get(path).as_bytes()).await.unwrap();
        let said = rest_of(&mut stream).await.to_ascii_lowercase();
        assert!(said.starts_with("http/1.1 200 "), "{said}");
        assert_eq!(said.contains("set-cookie: weir="), cookie, "{path}: {said}");
    }
}

/// Header fields that a visitor sends itself have no effect: it is served as the visitor that it is, and ends no slot but its own.
async fn believes_only_the_proxy(carried: &Carried) {
    let site = &carried.site;
    let id = "0123456789abcdef0123456789abcdef";
    for number in 0..3 {
        let mut stream = site.connect([127, 3, number, 1]).await;
        let ask = format!(
            "GET /page?1 HTTP/1.1\r\nHost: a\r\nX-Weir-Request: {id}\r\nX-Weir-Cookie: weir=mine\r\nX-Forwarded-For: 192.0.2.1\r\n\
             X-Forwarded-Uri: http://x/\r\nX-Forwarded-Method: TRACE\r\nConnection: close\r\n\r\n"
        );
        stream.write_all(ask.as_bytes()).await.unwrap();
        let said = rest_of(&mut stream).await;
        assert!(said.starts_with("HTTP/1.1 200 ") && !said.contains("weir=mine"), "{said}");
    }
    // A running request is not ended by another one that has the name of its slot in its fields and its address.
    let mut slow = site.connect([127, 3, 9, 1]).await;
    slow.write_all(get("/page?3000").as_bytes()).await.unwrap();
    until("a slot to be held", || running(&site.up) == 1);
    let sessions = json(site.up.weir(&["web", "sessions", "--json"]));
    assert_eq!(sessions[0]["client"], "127.3.9.1", "{sessions}");
    site.ask([127, 3, 8, 1], &format!("/page?1#<190>x: {id}")).await;
    assert!(rest_of(&mut slow).await.ends_with("page"));
    carried.slots_end_by_the_log();
}

#[test]
fn nginx_asks_whose_turn_it_is() {
    let carried = Carried::by_nginx();
    run(async {
        holds_off_a_flood(&carried).await;
        believes_only_the_proxy(&carried).await;
        gives_no_cookie_to_caches(&carried).await;
        slow_visitors_hold_no_slot(&carried).await;
        who_leaves_keeps_the_slot_while_the_application_works(&carried).await;
    });
    // Without Weir nobody is served, and nginx reports that.
    let Carried { site, _proxy, .. } = carried;
    let at = site.up.at[0];
    drop(site);
    assert!(ask(at, &get("/page")).starts_with("HTTP/1.1 500 "), "nginx without Weir");
}

/// Eight visitors read a large answer slowly and eight send a body slowly. The first server of the recipe buffers both, so the application
/// is free.
async fn slow_visitors_hold_no_slot(carried: &Carried) {
    let site = &carried.site;
    let mut slow = Vec::new();
    for number in 0..8 {
        let mut reader = site.connect([127, 2, number, 1]).await;
        reader.write_all(get("/big").as_bytes()).await.unwrap();
        let mut sender = site.connect([127, 4, number, 1]).await;
        sender.write_all(b"POST /upload HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\nx").await.unwrap();
        slow.push((reader, sender));
    }
    for (reader, _) in &mut slow {
        let mut some = [0; 256];
        tokio::time::timeout(PATIENCE, reader.read_exact(&mut some)).await.expect("an answer begins").unwrap();
    }
    until("no slot to be held", || running(&site.up) == 0);
    for number in 0..10 {
        let said = site.ask([127, 1, number, 1], "/page").await;
        assert!(said.starts_with("HTTP/1.1 200 ") && said.ends_with("page"), "{said}");
    }
    drop(slow);
}

async fn who_leaves_keeps_the_slot_while_the_application_works(carried: &Carried) {
    let site = &carried.site;
    let begun = Instant::now();
    let mut gone = site.connect([127, 5, 1, 1]).await;
    gone.write_all(get("/page?2000").as_bytes()).await.unwrap();
    until("a slot to be held", || running(&site.up) == 1);
    drop(gone);
    until("no slot to be held", || running(&site.up) == 0);
    assert!(begun.elapsed() >= Duration::from_secs(2), "the application works for two seconds");
}

#[test]
fn caddy_asks_whose_turn_it_is() {
    let carried = Carried::by_caddy();
    run(async {
        holds_off_a_flood(&carried).await;
        believes_only_the_proxy(&carried).await;
    });
    let Carried { site, _proxy, .. } = carried;
    let at = site.up.at[0];
    drop(site);
    assert!(ask(at, &get("/page")).starts_with("HTTP/1.1 502 "), "Caddy without Weir");
}

#[test]
fn haproxy_asks_whose_turn_it_is() {
    let carried = Carried::by_haproxy();
    run(async {
        holds_off_a_flood(&carried).await;
        believes_only_the_proxy(&carried).await;
        gives_no_cookie_to_caches(&carried).await;
        takes_as_many_lines_as_haproxy_does(&carried).await;
        who_leaves_keeps_the_slot_while_the_application_works(&carried).await;
    });
    let Carried { site, _proxy, .. } = carried;
    let at = site.up.at[0];
    drop(site);
    assert!(ask(at, &get("/page")).starts_with("HTTP/1.1 503 "), "HAProxy without Weir");
}

/// HAProxy has room for 101 fields, minus those that its script sends.
async fn takes_as_many_lines_as_haproxy_does(carried: &Carried) {
    for (name, count) in [("Cookie: a=b", 95), ("Cookie: a=b", 97), ("Accept: text/html", 97), ("Authorization: x", 97)]
    {
        let mut stream = carried.site.connect([127, 7, 1, 1]).await;
        let lines = format!("{name}\r\n").repeat(count);
        stream
            .write_all(format!("GET /page HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{lines}\r\n").as_bytes())
            .await
            .unwrap();
        let said = rest_of(&mut stream).await;
        assert!(said.starts_with("HTTP/1.1 "), "{count} of {name}: {said:?}");
        assert!(
            carried.site.ask([127, 7, 2, 1], "/page").await.starts_with("HTTP/1.1 200 "),
            "after {count} of {name}"
        );
    }
}

#[test]
fn haproxy_serves_nobody_while_its_script_fails() {
    let carried = Carried::by_haproxy_with("", |script| {
        let call = "local answer = core.httpclient()";
        assert!(script.contains(call));
        script.replace(call, "error(\"out of memory\")\n    local answer = core.httpclient()")
    });
    run(async {
        let said = carried.site.ask([127, 1, 1, 1], "/page").await;
        assert!(said.starts_with("HTTP/1.1 503 "), "{said}");
    });
}

#[test]
fn keys_count_behind_haproxy() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("keys");
    std::fs::write(&file, "paying 6 paying-key-0123456789\n").unwrap();
    let more = format!("key_header = \"authorization\"\nkeys_file = \"{}\"\n", file.display());
    let carried = Carried::by_haproxy_with(&more, |script| script);
    run(async {
        let site = &carried.site;
        // With a key, somebody is one client from every address; without one, these are two clients.
        for (key, clients) in [("Authorization: Bearer paying-key-0123456789", 1), ("Authorization: Bearer unknown", 2)]
        {
            let mut asked = Vec::new();
            for network in [1, 2] {
                let mut stream = site.connect([127, 1, network, 1]).await;
                let ask = format!("GET /page?2000 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{key}\r\n\r\n");
                stream.write_all(ask.as_bytes()).await.unwrap();
                asked.push(stream);
            }
            until("two slots to be held", || running(&site.up) == 2);
            let sessions = json(site.up.weir(&["web", "sessions", "--json"]));
            let busy = sessions.as_array().unwrap().iter().filter(|session| session["running"] != 0);
            let of: std::collections::BTreeSet<&str> =
                busy.map(|session| session["subnet"].as_str().unwrap()).collect();
            assert_eq!(of.len(), clients, "{key}: {sessions}");
            for mut stream in asked {
                assert!(rest_of(&mut stream).await.starts_with("HTTP/1.1 200 "));
            }
            until("no slot to be held", || running(&site.up) == 0);
        }
    });
}

/// Sends one question or request. Returns everything that is answered.
fn ask(at: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(at).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut said = String::new();
    let _ = stream.read_to_string(&mut said);
    said
}

const FIELDS: [(&str, &str); 6] = [
    ("X-Forwarded-Method", "GET"),
    ("X-Forwarded-Host", "shop.example"),
    ("X-Forwarded-Uri", "/x"),
    ("X-Forwarded-For", "192.0.2.7"),
    ("X-Forwarded-Proto", "http"),
    ("X-Weir-Request", "0123456789abcdef0123456789abcdef"),
];

fn question(path: &str, fields: &[(&str, &str)]) -> String {
    let lines: String = fields.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    format!("GET {path} HTTP/1.1\r\nHost: weir\r\n{lines}Connection: close\r\n\r\n")
}

/// The same, with another name for the request.
fn named(path: &str, id: &str) -> String {
    let fields: Vec<_> =
        FIELDS.into_iter().map(|(name, value)| (name, if name == FIELDS[5].0 { id } else { value })).collect();
    question(path, &fields)
}

#[test]
fn a_question_must_be_clear_and_its_name_is_used_once() {
    let up = gate("routes = [\"shop.example shop\"]\n", "log_listen = [\"127.0.0.1:0\"]\n");
    let view = door(&up);
    let at: SocketAddr = address(&view, "listeners").parse().unwrap();
    for (index, (name, _)) in FIELDS.iter().enumerate() {
        let mut fields = FIELDS.to_vec();
        fields.push(FIELDS[index]);
        let said = ask(at, &question("/ask", &fields));
        assert!(
            said.starts_with("HTTP/1.1 400 ") && said.contains(&name.to_lowercase()) && said.contains("twice"),
            "{said}"
        );
        let mut fields = FIELDS.to_vec();
        fields.remove(index);
        let said = ask(at, &question("/ask/nginx", &fields));
        assert!(said.starts_with("HTTP/1.1 400 ") && said.contains(&name.to_lowercase()), "{said}");
    }
    let elsewhere: Vec<_> = FIELDS
        .into_iter()
        .map(|field| if field.0 == FIELDS[1].0 { (field.0, "other.example") } else { field })
        .collect();
    assert!(ask(at, &question("/ask", &elsewhere)).starts_with("HTTP/1.1 404 "));
    assert_eq!((running(&up), door(&up)["unclear_questions"].as_u64()), (0, Some(12)));

    let said = ask(at, &question("/ask", &FIELDS));
    assert!(said.starts_with("HTTP/1.1 204 ") && said.contains("x-weir-cookie: weir="), "{said}");
    assert!(ask(at, &question("/ask", &FIELDS)).starts_with("HTTP/1.1 204 "), "an internal redirect asks again");
    assert_eq!(running(&up), 1, "a name has one slot");
    // All workers are busy. The next client waits, and if it leaves, nothing of it remains.
    for number in 1..WORKERS {
        assert!(ask(at, &named("/ask", &format!("{number:032}"))).starts_with("HTTP/1.1 204 "));
    }
    let waiting = |count: u64| json(up.weir(&["web", "status", "--json"]))["backends"][0]["queue"]["waiting"] == count;
    let mut leaves = TcpStream::connect(at).unwrap();
    leaves.write_all(named("/ask", &format!("{:032}", 77)).as_bytes()).unwrap();
    until("it waits", || waiting(1));
    drop(leaves);
    until("it is forgotten", || waiting(0));
    // Another client waits when its proxy says that the request is over. It gets no slot any more.
    let log: SocketAddr = address(&view, "logs").parse().unwrap();
    let proxy = UdpSocket::bind("127.0.0.1:0").unwrap();
    let tell = |id: &str| proxy.send_to(format!("<190>Nov 17 21:06:34 nginx: {id} 200").as_bytes(), log).unwrap();
    let mut over = TcpStream::connect(at).unwrap();
    over.set_read_timeout(Some(PATIENCE)).unwrap();
    over.write_all(named("/ask", &format!("{:032}", 78)).as_bytes()).unwrap();
    until("it waits", || waiting(1));
    tell(&format!("{:032}", 78));
    tell("not-a-name");
    tell(FIELDS[5].1);
    let mut said = String::new();
    over.read_to_string(&mut said).unwrap();
    assert!(said.starts_with("HTTP/1.1 409 "), "{said}");
    until("one slot to be free", || running(&up) == u64::from(WORKERS) - 1);
    assert!(ask(at, &question("/ask", &FIELDS)).starts_with("HTTP/1.1 409 "), "a name is not used again");
    until("the other line to be counted", || door(&up)["unreadable_lines"] == 1);
    assert_eq!(door(&up)["ended_by_log"], 1);
    let metrics = up.metrics();
    assert!(metrics.contains("weir_web_forward_auth_ended_total{by=\"log\"} 1"), "{metrics}");
}

#[test]
fn one_weir_is_asked_about_many_sites_and_keeps_them_apart() {
    let up = Up::new(
        "backends = [\"shop forward_auth slots=2\", \"blog forward_auth slots=1\"]\n\
         routes = [\"shop.example shop\", \"shop.example/blog/ blog\", \"blog.example blog\"]\n\
         [web.forward_auth]\nlisten = [\"127.0.0.1:0\"]\nlog_listen = [\"127.0.0.1:0\"]\n",
    );
    let view = door(&up);
    let at: SocketAddr = address(&view, "listeners").parse().unwrap();
    let of = |host: &str, path: &str, number: usize| {
        let id = format!("{number:032}");
        let fields: Vec<_> = FIELDS
            .into_iter()
            .map(|(name, value)| match name {
                "X-Forwarded-Host" => (name, host),
                "X-Forwarded-Uri" => (name, path),
                "X-Weir-Request" => (name, id.as_str()),
                _ => (name, value),
            })
            .collect();
        question("/ask", &fields)
    };
    let queue = |backend: usize| json(up.weir(&["web", "status", "--json"]))["backends"][backend]["queue"].clone();
    for number in 0..2 {
        assert!(ask(at, &of("shop.example", "/x", number)).starts_with("HTTP/1.1 204 "));
    }
    // The shop has no free worker, so the next client has to wait for one.
    let mut third = TcpStream::connect(at).unwrap();
    third.set_read_timeout(Some(PATIENCE)).unwrap();
    third.write_all(of("shop.example", "/x", 2).as_bytes()).unwrap();
    until("it waits", || queue(0)["waiting"] == 1);
    // This does not affect the other application, on whichever way it is reached.
    assert!(ask(at, &of("shop.example", "/blog/today", 3)).starts_with("HTTP/1.1 204 "));
    assert_eq!((queue(0)["running"].as_u64(), queue(1)["running"].as_u64()), (Some(2), Some(1)));
    let mut fifth = TcpStream::connect(at).unwrap();
    fifth.set_read_timeout(Some(PATIENCE)).unwrap();
    fifth.write_all(of("blog.example", "/", 4).as_bytes()).unwrap();
    until("it waits, too", || queue(1)["waiting"] == 1);
    // The log of one proxy ends a slot of the site for which the request was, and of no other.
    let log: SocketAddr = address(&view, "logs").parse().unwrap();
    let proxy = UdpSocket::bind("127.0.0.1:0").unwrap();
    let end = |number: usize| proxy.send_to(format!("<190>nginx: {number:032} 200").as_bytes(), log).unwrap();
    let mut said = String::new();
    end(3);
    fifth.read_to_string(&mut said).unwrap();
    assert!(said.starts_with("HTTP/1.1 204 "), "{said}");
    assert_eq!(queue(0)["waiting"], 1, "the shop is as busy as before");
    said.clear();
    end(0);
    third.read_to_string(&mut said).unwrap();
    assert!(said.starts_with("HTTP/1.1 204 "), "{said}");
    assert!(ask(at, &of("elsewhere.example", "/", 5)).starts_with("HTTP/1.1 404 "));
}

#[test]
fn without_a_log_a_slot_ends_after_its_lease_and_where_one_is_missing_somebody_is_told() {
    let up = gate("", "lease = \"300ms\"\n");
    let at: SocketAddr = address(&door(&up), "listeners").parse().unwrap();
    for _ in 0..3 * WORKERS {
        assert!(ask(at, &question("/ask", &FIELDS[..5])).starts_with("HTTP/1.1 204 "));
    }
    until("all slots to end", || door(&up)["ended_by_time"].as_u64() == Some(u64::from(3 * WORKERS)));
    assert!(door(&up)["trouble"].is_null() && running(&up) == 0);
    drop(up);
    let up = gate("", "log_listen = [\"127.0.0.1:0\"]\nlongest = \"300ms\"\n");
    let at: SocketAddr = address(&door(&up), "listeners").parse().unwrap();
    assert!(ask(at, &question("/ask", &FIELDS)).starts_with("HTTP/1.1 204 "));
    until("the slot to end", || door(&up)["ended_by_time"].as_u64() == Some(1));
    assert!(door(&up)["trouble"].as_str().unwrap().contains("sends no log"), "{}", door(&up));
    let printed = up.weir(&["web", "status"]).ok();
    assert!(printed.contains("ALARM") && printed.contains("proxies ask"), "{printed}");
}
