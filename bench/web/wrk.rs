//! wrk, the client of the speed bench, and what it prints.

use std::io;
use std::net::SocketAddr;
use std::process::Command;

/// What one round came to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Round {
    pub(crate) rps: f64,
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
    /// Socket errors and statuses other than 2xx and 3xx.
    pub(crate) errors: u64,
}

/// Asks for `path` with `connections` for some seconds.
pub(crate) fn run(at: SocketAddr, path: &str, connections: u32, seconds: u32, tls: bool) -> io::Result<Round> {
    let scheme = if tls { "https" } else { "http" };
    let output = Command::new("wrk")
        .args([
            "-t",
            "1",
            "-c",
            &connections.to_string(),
            "-d",
            &format!("{seconds}s"),
            "--latency",
            "--timeout",
            "10s",
        ])
        .arg(format!("{scheme}://{at}{path}"))
        .output()
        .map_err(|error| {
            io::Error::new(error.kind(), format!("wrk cannot be started: {error}; `make setup` installs it"))
        })?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    parse(&said)
        .ok_or_else(|| io::Error::other(format!("wrk said:\n{said}{}", String::from_utf8_lossy(&output.stderr))))
}

fn parse(said: &str) -> Option<Round> {
    let after = |name: &str| said.lines().find_map(|line| line.trim().strip_prefix(name)).map(str::trim);
    let sockets = after("Socket errors:").map_or(0, |line| {
        line.split(|c: char| !c.is_ascii_digit()).filter_map(|number| number.parse::<u64>().ok()).sum()
    });
    let statuses = after("Non-2xx or 3xx responses:").and_then(|count| count.parse::<u64>().ok()).unwrap_or(0);
    Some(Round {
        rps: after("Requests/sec:")?.parse().ok()?,
        p50_ms: millis(after("50%")?)?,
        p99_ms: millis(after("99%")?)?,
        errors: sockets + statuses,
    })
}

fn millis(text: &str) -> Option<f64> {
    let unit = text.find(|c: char| c.is_ascii_alphabetic())?;
    let number: f64 = text[..unit].parse().ok()?;
    Some(match &text[unit..] {
        "us" => number / 1e3,
        "ms" => number,
        "s" => number * 1e3,
        "m" => number * 60e3,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_wrk_prints() {
        let said = "  Latency Distribution\n     50%  512.00us\n     75%    1.00ms\n     90%    1.20ms\n     99%    2.35ms\n  1000 requests in \
                    5.00s, 1MB read\n  Socket errors: connect 0, read 2, write 1, timeout 3\n  Non-2xx or 3xx responses: 4\nRequests/sec:  \
                    51234.56\n";
        let round = parse(said).unwrap();
        assert_eq!((round.rps, round.p50_ms, round.p99_ms, round.errors), (51234.56, 0.512, 2.35, 10));
        assert!(parse("").is_none());
    }
}
