//! Tests of the console behind the web gate, with TLS and a host name, as somebody on another machine reaches it.

use super::INBOUND;
use super::visitor::Visitor;
use crate::control::gate::{Site, wait_for};
use std::process::Command;
use weir_peers::free_port;

const NAME: &str = "console.example.org";

#[test]
fn the_console_works_through_the_web_gate() {
    let site = Site::new("");
    let console = free_port();
    let config = format!(
        "[submission]\nlisten = [\"127.0.0.1:0\"]\nlisten_tls = [\"127.0.0.1:0\"]\nhostname = \"mail.example\"\n{INBOUND}\
         [web]\nlisten = []\nlisten_tls = [\"127.0.0.1:0\"]\nbackends = [\"console 127.0.0.1:{console}\"]\n\
         [console]\nlisten = [\"127.0.0.1:{console}\"]\nhosts = [\"{NAME}\"]\n"
    );
    std::fs::write(site.home().join("weir.toml"), config).expect("a configuration");
    let up = site.up_with(&["--demo"]);
    let gate = up.listener("web");
    let (_, port) = gate.rsplit_once(':').expect("a port");
    let base = format!("https://{NAME}:{port}");
    let resolved = format!("{NAME}:{port}:127.0.0.1");
    let curl = ["-k", "--resolve", resolved.as_str()];
    let password = up.admin_password();
    let visitor = Visitor::log_in(&base, &curl, ("admin", &password));
    // On a slow machine, the console does not listen yet when the web gate first checks its server.
    wait_for("a page on which all is well", || visitor.get("/").contains("Nothing needs you").then_some(()));

    // The stream must arrive while it is written, not when it ends.
    let mut live = visitor.live("/live?page=%2F");
    live.until("gate-throttle");
    site.weir(&["user", "add", "eve", "--address", "eve@localhost", "--generate"]).ok();

    // A change needs the token of the session; without it, nothing is done.
    let page = "/throttle/users/eve";
    assert_eq!(visitor.status_of("/throttle/users/eve/lock", &[("reason", "no token")]), "403");
    let done = visitor.post(page, "/throttle/users/eve/lock", &[("reason", "your password was found in a leak")]);
    assert!(done.contains("<b>Done. </b>"), "{done}");
    assert_eq!(site.json(&["user", "show", "eve"])["state"], "locked");
    // Events that happen while the stream is open must arrive in it.
    let mut client = crate::control::gate::Client::login(&up.plain, "demo", &up.password()).expect("the demo user");
    for number in 0..30 {
        let to = format!("stranger{number}@localhost");
        client.mail("demo@localhost", &[to.as_str()], "hello");
    }
    live.until("One account is stopped");

    // Neither its own address through the gate nor a foreign host name gives access.
    for host in [format!("127.0.0.1:{console}"), "evil.example".to_owned()] {
        let asked = Command::new("curl")
            .args(["-sk", "-o", "/dev/null", "-w", "%{http_code}", "-H", &format!("Host: {host}")])
            .arg(format!("https://{gate}/login"))
            .output()
            .expect("curl runs");
        assert_eq!(String::from_utf8_lossy(&asked.stdout), "421", "{host}");
    }
    // The audit trail must name the address that the gate saw, not the address of the gate.
    let trail = wait_for("the login in the audit", || {
        let trail = site.weir(&["audit"]).ok();
        trail.contains("console").then_some(trail)
    });
    assert!(trail.contains("127.0.0.1"), "{trail}");
}
