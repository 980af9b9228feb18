//! Runs one sample: starts it, watches it until all of it has ended or time is over, and ends it.

use crate::internet::Internet;
use crate::trace::Tracer;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use weir_guest::behaviour::{Behaviour, OUTPUT_MAX};
use weir_guest::frame::{self, Kind};
use weir_guest::words::Run;

/// The user that samples run as.
pub(crate) const USER: u32 = 1000;
/// How often the lab hears that the agent is alive.
const ALIVE_EVERY: Duration = Duration::from_millis(500);
/// When time is over, everything is killed this often, because processes may be started between two kills.
const KILL_EVERY: Duration = Duration::from_millis(20);

/// Runs a sample and tells what it did.
pub(crate) fn run(port: &File, order: &Run, sample: &Path, internet: &Internet) -> io::Result<Behaviour> {
    internet.record().take();
    internet.recorder().begin();
    let (user, home) = if order.root { (0, "/root") } else { (USER, "/home/user") };
    let (output, writer) = io::pipe()?;
    let child = Command::new("/agent")
        .arg("launch")
        .arg(user.to_string())
        .arg(sample)
        .current_dir(home)
        .env_clear()
        .env("HOME", home)
        .env("USER", if order.root { "root" } else { "user" })
        .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
        .env("TERM", "xterm")
        .env("LANG", "C.UTF-8")
        .stdin(Stdio::null())
        .stdout(writer.try_clone()?)
        .stderr(writer)
        .spawn()?;
    let reader = thread::spawn(move || first_words(output));
    let tracer = Tracer::new(internet, sample, child.id() as i32, user);
    let (over, expired) = (AtomicBool::new(false), AtomicBool::new(false));
    let watch = Duration::from_millis(order.watch_ms);
    let ended = thread::scope(|scope| {
        let clock = scope.spawn(|| keep_time(port, watch, &over, &expired));
        let ended = tracer.follow();
        over.store(true, Ordering::Release);
        clock.thread().unpark();
        ended
    });
    let mut behaviour = internet.record().take();
    behaviour.ended = if expired.load(Ordering::Acquire) { format!("watched {} s", watch.as_secs()) } else { ended };
    behaviour.capture = internet.recorder().end();
    behaviour.sample = sample.to_string_lossy().into_owned();
    behaviour.output = reader.join().unwrap_or_default();
    Ok(behaviour)
}

/// Runs a program here, in no sandbox, and prints the report.
pub(crate) fn follow(program: &str) {
    let internet = Internet::unplugged();
    let own = std::env::current_exe().unwrap_or_else(|_| "/agent".into());
    let child = Command::new(own).args(["launch", "0", program]).stdin(Stdio::null()).stdout(Stdio::null()).spawn();
    let Ok(child) = child else { return };
    internet.record().take();
    let ended = Tracer::new(&internet, Path::new(program), child.id() as i32, USER).follow();
    let behaviour = Behaviour { ended, sample: program.to_owned(), ..internet.record().take() };
    let _ = serde_json::to_writer(io::stdout(), &behaviour);
}

/// Says that the agent lives, and ends everything when time is over.
fn keep_time(port: &File, watch: Duration, over: &AtomicBool, expired: &AtomicBool) {
    let (begun, mut alive_at) = (Instant::now(), Instant::now() + ALIVE_EVERY);
    while !over.load(Ordering::Acquire) {
        let late = begun.elapsed() >= watch;
        if late {
            expired.store(true, Ordering::Release);
            // The first process is spared: that is us.
            let _ = kill(Pid::from_raw(-1), Signal::SIGKILL);
        }
        if Instant::now() >= alive_at {
            let _ = frame::write(&mut &*port, Kind::Alive, b"");
            alive_at += ALIVE_EVERY;
        }
        let next = alive_at.saturating_duration_since(Instant::now()).min(watch.saturating_sub(begun.elapsed()));
        thread::park_timeout(if late { KILL_EVERY } else { next.max(Duration::from_millis(1)) });
    }
}

/// The beginning of the output. The rest is read and dropped, so that the sample does not block.
pub(crate) fn first_words(mut output: io::PipeReader) -> String {
    let (mut kept, mut piece) = (Vec::new(), [0; 8192]);
    while let Ok(length @ 1..) = output.read(&mut piece) {
        kept.extend_from_slice(&piece[..length.min(OUTPUT_MAX - kept.len())]);
    }
    String::from_utf8_lossy(&kept).into_owned()
}
