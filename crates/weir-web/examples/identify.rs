//! What one `identify` costs: with a cookie seen before, with one to check, with none, with a forged one.
//!
//! `cargo run --release -p weir-web --example identify`

use http::{HeaderMap, HeaderValue};
use std::hint::black_box;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, SystemTime};
use weir_web::identity::{Identities, Secret, Settings};

fn main() -> std::io::Result<()> {
    let secret = Secret::from_text("the secret of this cluster").expect("long enough");
    let identities = Identities::new(&Settings::default(), &secret).expect("random bytes");
    let peer = |i: u32| IpAddr::V4(Ipv4Addr::from_bits(0x0a00_0000 + i * 97));
    let now = SystemTime::now();
    let with = |cookie: &[u8]| {
        let mut headers = HeaderMap::new();
        for (name, value) in [("host", "example.org"), ("user-agent", "Mozilla/5.0"), ("accept", "*/*")] {
            headers.insert(name, HeaderValue::from_static(value));
        }
        headers.insert("cookie", HeaderValue::from_bytes(cookie).expect("a header value"));
        headers
    };
    let cookies: Vec<HeaderMap> = (0..200_000)
        .map(|i| {
            let made = identities.identify(peer(i), &HeaderMap::new(), now).new_cookie.expect("a cookie");
            with(&[b"theme=dark; ", made.as_bytes().split(|byte| *byte == b';').next().unwrap_or_default()].concat())
        })
        .collect();
    let none = with(b"theme=dark");
    let forged = with(&[b"weir=AQ", &b"A".repeat(37)[..]].concat());
    let old: u32 = 1000;
    let mut out = std::io::stdout().lock();
    let mut time = |what: &str, count: u32, ask: &dyn Fn(u32)| {
        let start = processor_time();
        (0..count).for_each(ask);
        writeln!(out, "{:5.0} ns  {what}", (processor_time() - start).as_nanos() as f64 / f64::from(count))
    };
    let known = |i: u32| {
        black_box(identities.identify(peer(i % old), &cookies[(i % old) as usize], now));
    };
    (0..old).for_each(known);
    time("a cookie seen before", 1_000_000, &known)?;
    time("a good cookie seen for the first time", 199_000, &|i| {
        black_box(identities.identify(peer(i + old), &cookies[(i + old) as usize], now));
    })?;
    time("no cookie", 200_000, &|i| {
        black_box(identities.identify(peer(i), &none, now));
    })?;
    time("a forged cookie", 200_000, &|i| {
        black_box(identities.identify(peer(i), &forged, now));
    })
}

/// Time that this thread has had of a processor. What others take of a shared machine is not our cost.
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}
