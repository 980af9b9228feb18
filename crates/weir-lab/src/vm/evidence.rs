//! Lists what is missing before a sample may be called clean, as reasons in words. That nothing bad was seen is not enough; for example, a
//! sample that did not run at all is not clean.
//!
//! A sample is clean only if it ran, found everything that it looked for, did not check what machine it is on, ended by itself, did
//! something that can be seen, and did only things that are harmless: printing, reading, writing files that do not run, starting programs
//! of the guest. Cost: linear in what is listed, which is bounded.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use weir_guest::behaviour::{Behaviour, Network};
use weir_guest::secret::{self, Secret};
use weir_guest::windows_paths;

/// How many reasons are given.
const DOUBTS_MAX: usize = 12;
/// How many names one reason has.
const NAMES_MAX: usize = 6;

/// Why a sample that did this cannot be called clean; empty if it can. `programs` are the files that it left and that could run.
pub(super) fn doubts(seen: &Behaviour, programs: &[String]) -> Vec<String> {
    let mut doubts = Vec::new();
    doubts.extend(not_run(seen));
    doubts.extend(several(&acts(seen, "missing"), |names| format!("{names} was not there")));
    doubts.extend(several(&looks(seen), |paths| {
        format!("it looked what machine it is on ({paths}), and may do more elsewhere")
    }));
    doubts.extend(several(&acts(seen, "remounts"), |how| {
        format!(
            "it changed what names of files mean ({how}), and what it did there may be something else than it seems"
        )
    }));
    doubts.extend(not_ended(seen));
    doubts.extend(several(&calls(seen), |whom| {
        format!("it called {whom}, and what would really be answered there is not known")
    }));
    doubts
        .extend(several(&programs.iter().map(String::as_str).collect(), |names| format!("it left programs: {names}")));
    if seen.left_out > 0 {
        doubts.push("more happened than was written down".into());
    }
    if doubts.is_empty() && is_silent(seen) {
        doubts.push("it did nothing that can be seen".into());
    }
    doubts.truncate(DOUBTS_MAX);
    doubts
}

/// Why it did not run, if it did not.
fn not_run(seen: &Behaviour) -> Option<String> {
    if let Some(what) = acts(seen, "not-run").first() {
        return Some(format!("it did not run: {what}"));
    }
    let is_there = seen.processes.first().is_some_and(|first| !first.path.is_empty());
    (!is_there).then(|| "it did not run".into())
}

fn not_ended(seen: &Behaviour) -> Option<String> {
    let words = match seen.ended.split_once(' ') {
        Some(("exit", "0")) => return None,
        Some(("exit", code)) => format!("it ended with the code {code}"),
        Some(("signal", number)) => format!("it was ended by signal {number}"),
        Some(("watched", time)) => format!("it was still running after {time}"),
        _ => "how it ended is not known".into(),
    };
    Some(words)
}

/// Files and values by which a sample can find out on which machine it is, or who watches.
fn looks(seen: &Behaviour) -> BTreeSet<&str> {
    let kept = |path: &str| secret::of(path).or_else(|| windows_paths::secret(path));
    let tells = |path: &&str| matches!(kept(path), Some(Secret::Machine | Secret::Hardware | Secret::Tracer));
    // For Windows the agent says which calls and keys are of this kind.
    acts(seen, "reads").into_iter().filter(tells).chain(acts(seen, "looks")).collect()
}

/// Which machines it called, by name if there is one.
fn calls(seen: &Behaviour) -> BTreeSet<&str> {
    let address = |call: &Network| call.to.parse::<SocketAddr>().ok();
    let own: BTreeSet<u16> = seen
        .network
        .iter()
        .filter(|call| call.what == "listen")
        .filter_map(|call| Some(address(call)?.port()))
        .collect();
    // A sample that calls itself knows the answer. Port 0 stands for any free one, and those are high.
    let is_own_port = |port: u16| own.contains(&port) || port >= 32_768 && own.contains(&0);
    let is_own = |call: &&Network| address(call).is_some_and(|to| to.ip().is_loopback() && is_own_port(to.port()));
    let calls = seen.network.iter().filter(|call| call.what != "listen" && !is_own(call));
    calls.map(|call| if call.host.is_empty() { call.to.as_str() } else { call.host.as_str() }).collect()
}

fn is_silent(seen: &Behaviour) -> bool {
    seen.output.trim().is_empty()
        && seen.files.is_empty()
        && seen.registry.is_empty()
        && seen.windows.is_empty()
        && seen.processes.len() < 2
        && acts(seen, "becomes").is_empty()
}

fn acts<'a>(seen: &'a Behaviour, what: &str) -> BTreeSet<&'a str> {
    seen.acts.iter().filter(|act| act.what == what).map(|act| act.detail.as_str()).collect()
}

/// One reason for all of them.
fn several(all: &BTreeSet<&str>, say: impl Fn(&str) -> String) -> Option<String> {
    let first: Vec<&str> = all.iter().take(NAMES_MAX).copied().collect();
    let more = if all.len() > NAMES_MAX { " and others" } else { "" };
    (!all.is_empty()).then(|| say(&format!("{}{more}", first.join(", "))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_guest::behaviour::{Act, Process};

    fn honest() -> Behaviour {
        let process = Process { pid: 6, path: "/home/user/s".into(), ended: "exit 0".into(), ..Process::default() };
        Behaviour { ended: "exit 0".into(), processes: vec![process], output: "hello".into(), ..Behaviour::default() }
    }

    fn act(what: &str, detail: &str) -> Behaviour {
        let act = Act { pid: 6, what: what.into(), detail: detail.into(), at_ms: None };
        Behaviour { acts: vec![act], ..honest() }
    }

    #[test]
    fn everything_that_was_not_seen_is_a_reason_in_words() {
        assert_eq!(doubts(&honest(), &[]), [] as [&str; 0]);
        let calls = |to: &str, host: &str| Behaviour {
            network: vec![Network { what: "connect".into(), to: to.into(), host: host.into(), ..Network::default() }],
            ..honest()
        };
        let ended = |ended: &str| Behaviour { ended: ended.into(), ..honest() };
        for (seen, expected) in [
            (act("missing", "curl"), "curl was not there"),
            (
                act("reads", "/sys/class/dmi/id/product_name"),
                "it looked what machine it is on (/sys/class/dmi/id/product_name), and may do more elsewhere",
            ),
            (
                act("reads", "/proc/cpuinfo"),
                "it looked what machine it is on (/proc/cpuinfo), and may do more elsewhere",
            ),
            (
                act("remounts", "unshare"),
                "it changed what names of files mean (unshare), and what it did there may be something else than it seems",
            ),
            (act("not-run", "a program for ARM"), "it did not run: a program for ARM"),
            (ended("exit 127"), "it ended with the code 127"),
            (ended("signal 11"), "it was ended by signal 11"),
            (ended("watched 60 s"), "it was still running after 60 s"),
            (ended(""), "how it ended is not known"),
            (
                calls("198.18.1.2:80", "evil.example"),
                "it called evil.example, and what would really be answered there is not known",
            ),
            (Behaviour { left_out: 1, ..honest() }, "more happened than was written down"),
            (Behaviour { output: " ".into(), ..honest() }, "it did nothing that can be seen"),
            (Behaviour { processes: Vec::new(), ..honest() }, "it did not run"),
        ] {
            assert_eq!(doubts(&seen, &[]), [expected]);
        }
        let call = |what: &str, to: &str| Network { what: what.into(), to: to.into(), ..Network::default() };
        let own = [call("listen", "127.0.0.1:8099"), call("connect", "127.0.0.1:8099")];
        assert_eq!(doubts(&Behaviour { network: own.to_vec(), ..honest() }, &[]), [] as [&str; 0]);
        let any = vec![call("listen", "127.0.0.1:0"), call("connect", "127.0.0.1:44859")];
        assert_eq!(doubts(&Behaviour { network: any, ..honest() }, &[]), [] as [&str; 0]);
        let other = Behaviour { network: vec![own[0].clone(), call("connect", "127.0.0.1:631")], ..honest() };
        assert!(doubts(&other, &[])[0].contains("127.0.0.1:631"));
        assert_eq!(doubts(&honest(), &["x.exe".into()]), ["it left programs: x.exe"]);
        let many: Vec<String> = (0..9).map(|n| format!("p{n}")).collect();
        assert_eq!(doubts(&honest(), &many), ["it left programs: p0, p1, p2, p3, p4, p5 and others"]);
    }
}
