//! What the lab asks of the agent, one thing after the other.

use crate::internet::Internet;
use crate::port::{self, PortLine};
use crate::windows::{self, Windows};
use crate::{dropped, sys, watch};
use rustix::fs::{Gid, Uid};
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use weir_guest::frame::{self, Kind};
use weir_guest::words::{Hello, Ready, Run};

/// The largest sample; the lab may allow less.
const SAMPLE_MAX: u64 = 64 << 20;

/// The longest name of a sample, and how much of the end of a longer one stays.
const NAME_MAX: usize = 100;
const END: usize = 40;

/// Serves the lab for as long as the guest lives.
pub(crate) fn serve() {
    let port = port::open();
    let internet = Internet::start();
    let windows = windows::is_here().then(Windows::start).and_then(Result::ok);
    if windows.is_some() {
        internet.answer_all();
    }
    loop {
        if let Err(error) = answer(&port, &internet, windows.as_ref()) {
            // The lab has left, or does not speak our language: what it says next counts.
            let _ = frame::write(&mut &port, Kind::Failed, error.to_string().as_bytes());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

fn answer(port: &File, internet: &Internet, windows: Option<&Windows>) -> io::Result<()> {
    match frame::read(&mut PortLine::new(port))? {
        (Kind::Hello, content) => {
            let hello: Hello = serde_json::from_slice(&content)?;
            refresh(&hello)?;
            let system = if windows.is_some() { "Wine and Linux" } else { "Linux" };
            let agent = format!("weir-guest {} on {system} {}", env!("CARGO_PKG_VERSION"), release());
            let ready = Ready { nonce: hello.nonce, agent, clock_ns: clock_ns() };
            frame::write(&mut &*port, Kind::Ready, &serde_json::to_vec(&ready)?)
        }
        (Kind::Run, content) => run(port, &serde_json::from_slice(&content)?, internet, windows),
        _ => Ok(()),
    }
}

/// A restored guest is a copy of others, and of the past.
fn refresh(hello: &Hello) -> io::Result<()> {
    let mut urandom = File::options().write(true).open("/dev/urandom")?;
    urandom.write_all(hello.seed.as_bytes())?;
    sys::reseed(&urandom);
    set_clock(hello.time_ns)
}

fn set_clock(time_ns: u64) -> io::Result<()> {
    let time = nix::sys::time::TimeSpec::from_duration(Duration::from_nanos(time_ns));
    nix::time::clock_settime(nix::time::ClockId::CLOCK_REALTIME, time).map_err(io::Error::from)
}

fn clock_ns() -> Option<u64> {
    let now = Duration::from(nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC).ok()?);
    u64::try_from(now.as_nanos()).ok()
}

fn release() -> String {
    fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned()
}

fn run(port: &File, order: &Run, internet: &Internet, windows: Option<&Windows>) -> io::Result<()> {
    let home = match windows {
        Some(_) => windows::DOWNLOADS,
        None if order.root => "/root",
        None => "/home/user",
    };
    let sample = receive(port, order, Path::new(home))?;
    set_clock(order.time_ns)?;
    if order.offline {
        unplug();
    }
    let (mut behaviour, at): (_, fn(&str) -> PathBuf) = match windows {
        Some(windows) => (windows.run(port, order, &sample, internet)?, windows::on_disk),
        None => (watch::run(port, order, &sample, internet)?, |path| path.into()),
    };
    let dropped = dropped::find(&mut behaviour, order, at);
    frame::write_pieces(&mut &*port, Kind::Report, &serde_json::to_vec(&behaviour)?)?;
    for file in dropped {
        file.send(port)?;
    }
    frame::write(&mut &*port, Kind::End, b"")
}

/// From now on no address leads to this machine, and there is no other: a program that calls one is told at once that it cannot be reached.
fn unplug() {
    for (family, all) in [("-4", "0.0.0.0/0"), ("-6", "::/0")] {
        let _ = Command::new("ip").args([family, "route", "del", "local", all, "dev", "lo", "table", "local"]).status();
    }
}

/// Takes the sample and makes it a program of the user.
fn receive(port: &File, order: &Run, home: &Path) -> io::Result<PathBuf> {
    if order.bytes > SAMPLE_MAX {
        return Err(io::Error::other("the sample is too large for this guest"));
    }
    let mut path = home.join(fit_name(&order.name));
    if path.is_dir() {
        path.as_mut_os_string().push(".sample");
    }
    let mut file = File::create(&path)?;
    let mut left = order.bytes;
    while left > 0 {
        let (Kind::Data, piece) = frame::read(&mut PortLine::new(port))? else {
            return Err(io::Error::other("the sample ended early"));
        };
        left =
            left.checked_sub(piece.len() as u64).ok_or_else(|| io::Error::other("the sample is longer than said"))?;
        file.write_all(&piece)?;
    }
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
    if !order.root {
        rustix::fs::chown(&path, Some(Uid::from_raw(watch::USER)), Some(Gid::from_raw(watch::USER)))?;
    }
    Ok(path)
}

/// A name without a path, and without what a shell would take for something else. Its end says what opens the file: it stays, without the dots and
/// spaces that Windows takes away.
fn fit_name(name: &str) -> String {
    let fit = |c: char| if c.is_ascii_alphanumeric() || "._-+".contains(c) { c } else { '_' };
    let name: Vec<char> = name.trim_end_matches(['.', ' ']).chars().map(fit).collect();
    let cut = name.len().saturating_sub(NAME_MAX);
    let begin = if cut > 0 { NAME_MAX - END } else { name.len() };
    let name: String = name[..begin].iter().chain(&name[begin + cut..]).collect();
    if name.is_empty() || name.starts_with('.') || name.starts_with('-') { format!("sample{name}") } else { name }
}

#[cfg(test)]
mod tests {
    use super::fit_name;

    #[test]
    fn names_are_tame() {
        for (name, tame) in [
            ("a.sh", "a.sh"),
            ("../../etc/passwd", "sample.._.._etc_passwd"),
            ("", "sample"),
            ("a b;c", "a_b_c"),
            ("-rf", "sample-rf"),
            ("a.bat. ", "a.bat"),
            ("...", "sample"),
        ] {
            assert_eq!(fit_name(name), tame);
        }
        let long = fit_name(&format!("begin{}.pdf.js", "\u{e9}".repeat(200)));
        assert!(long.len() == 100 && long.starts_with("begin_") && long.ends_with("_.pdf.js"), "{long}");
    }
}
