//! A worker for the tests of this crate, as `weir scan-worker` is one for Weir; with `--try`, a worker that breaks its rules.
#![allow(clippy::print_stdout)]

use std::process::ExitCode;
use weir_scan::worker;

/// As in the real binary, so that the tests see how it lives with the fence.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let memory = words.iter().rev().find_map(|word| word.parse().ok()).unwrap_or(worker::pool::MEMORY);
    match words[..] {
        ["--try", what, ..] => attempt(what, memory),
        _ => match worker::serve(memory) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("error: {error}");
                ExitCode::FAILURE
            }
        },
    }
}

/// Says what came of something that a worker must not be able to do.
fn attempt(what: &str, memory: u64) -> ExitCode {
    worker::fence::raise(memory).expect("the fence stands");
    let refused = match what {
        "nothing" => false,
        "open" => std::fs::read("/etc/hostname").is_err(),
        "write" => std::fs::write("/tmp/weir-worker-was-here", "x").is_err(),
        "thread" => std::thread::Builder::new().spawn(|| ()).is_err(),
        "program" => std::process::Command::new("/bin/true").status().is_err(),
        "socket" => std::net::TcpStream::connect("127.0.0.1:9").is_err(),
        "memory" => Vec::<u8>::new().try_reserve_exact(2 << 30).is_err(),
        "stack" => overflow(0) == 1,
        other => panic!("what is {other}?"),
    };
    println!("{what}: {}", if refused { "refused" } else { "done" });
    ExitCode::SUCCESS
}

#[allow(unconditional_recursion)]
fn overflow(depth: u64) -> u64 {
    let space = std::hint::black_box([depth; 512]);
    overflow(depth + 1).wrapping_add(space[0])
}
