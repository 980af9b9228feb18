//! The gate alone in front of one server, with everything on and slots enough: to be counted and profiled.
//!
//! `cargo run --release -p weir-web --example gate -- 127.0.0.1:8080 127.0.0.1:8000`, then for instance `wrk` and `valgrind
//! --tool=callgrind` (which reads its names only if it was linked with `-Clinker-features=-lld`).

use std::net::SocketAddr;
use std::sync::Arc;
use weir_web::admission::{self, Slots};
use weir_web::identity::{self, Identities, Secret};
use weir_web::proxy::{Backend, Gate, Limits, Listener, Settings, WebSettings};
use weir_web::route::Rule;

/// The binary's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let listen: SocketAddr = arguments.next().ok_or("where to listen?")?.parse()?;
    let server = arguments.next().ok_or("where is the server?")?;
    let threads = arguments.next().map_or(Ok(1), |text| text.parse())?;
    let admission = admission::Settings { slots: Slots::Fixed(2048), ..admission::Settings::default() };
    let settings = Settings {
        listeners: vec![Listener::plain(listen)],
        web: WebSettings { threads, ..WebSettings::default() },
        tls: None,
        named: None,
        identities: Identities::new(&identity::Settings::default(), &Secret::random()?)?,
        limits: Limits { connections_per_address: 16_384, ..Limits::default() },
        backends: vec![Backend { admission, servers: vec![server], ..Backend::default() }],
        rules: vec![Rule::all_to("default")],
        tally: Some(Arc::default()),
        buffers: Some(std::env::temp_dir()),
        door: Default::default(),
    };
    let _gate = Gate::start(settings)?;
    loop {
        std::thread::park();
    }
}
