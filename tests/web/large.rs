//! Tests of large bodies in both directions: they pass through files, and memory does not grow. 96 MiB each in every test run, and as many
//! as `WEIR_LARGE_MIB` says in a soak.

use super::floods::{Site, run};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use weir_peers::Gunicorn;

const APP: &str = r#"
def app(environ, start):
    if environ["REQUEST_METHOD"] == "POST":
        octets, stream = 0, environ["wsgi.input"]
        while piece := stream.read(1 << 20):
            octets += len(piece)
        body = str(octets).encode()
        start("200 OK", [("Content-Length", str(len(body)))])
        return [body]
    mib = int(environ["QUERY_STRING"])
    start("200 OK", [("Content-Length", str(mib << 20))])
    return (b"x" * (1 << 20) for _ in range(mib))
"#;

/// How much a body may add to the memory of the process, whatever its size: the part that is kept in memory, and the pieces in which files
/// are written.
const GROWTH_MIB: u64 = 48;

fn resident_mib(site: &Site) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", site.up.process.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.split_whitespace().next().unwrap().parse::<u64>().unwrap() / 1_024
}

#[test]
fn large_bodies_pass_both_ways_and_memory_stays_flat() {
    let mib: u64 = std::env::var("WEIR_LARGE_MIB").ok().and_then(|mib| mib.parse().ok()).unwrap_or(96);
    run(async {
        let site = Site::before(Gunicorn::start(APP, 4), "[web.limits]\nbody_size = \"2GiB\"\n");
        let before = resident_mib(&site);
        let mut most = before;
        // Download: the client begins to read only after the server has sent everything.
        let mut stream = site.connect([127, 1, 1, 1]).await;
        let ask = format!("GET /?{mib} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        stream.write_all(ask.as_bytes()).await.unwrap();
        let view = || super::json(site.up.weir(&["web", "status", "--json"]));
        let begun = std::time::Instant::now();
        while view()["backends"][0]["queue"]["counters"]["finished"] != 1 {
            most = most.max(resident_mib(&site));
            assert!(begun.elapsed() < Duration::from_secs(300), "the server has to wait for its client");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let (mut octets, mut piece) = (0, vec![0; 1 << 20]);
        loop {
            let read = stream.read(&mut piece).await.unwrap();
            octets += read as u64;
            if read == 0 {
                break;
            }
            if octets % (8 << 20) < read as u64 {
                most = most.max(resident_mib(&site));
            }
        }
        assert!(octets > mib << 20, "{octets} octets came");
        // Upload.
        let mut stream = site.connect([127, 1, 1, 2]).await;
        let head = format!("POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", mib << 20);
        stream.write_all(head.as_bytes()).await.unwrap();
        for _ in 0..mib {
            stream.write_all(&piece).await.unwrap();
            most = most.max(resident_mib(&site));
        }
        let said = super::floods::rest_of(&mut stream).await;
        assert!(said.starts_with("HTTP/1.1 200 OK\r\n") && said.ends_with(&(mib << 20).to_string()), "{said}");
        most = most.max(resident_mib(&site));
        crate::kills::say(&format!("bodies of {mib} MiB both ways: {before} MiB resident before, {most} MiB at most"));
        assert!(most - before <= GROWTH_MIB, "{before} MiB before, {most} MiB with bodies of {mib} MiB");
    });
}
