//! Parses one line of an access log: who made the request, when, and with which result.
//!
//! Three formats are recognised, line by line: JSON objects (nginx, Apache, HAProxy, Caddy and others write them with their own field
//! names); Common and Combined of Apache and nginx, with or without a virtual host before the address; and HAProxy's HTTP log, with or
//! without syslog's prefix. Nothing of a line is kept.

use serde_json::{Map, Value};
use std::net::IpAddr;

/// What a line says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoggedVisit {
    pub client: IpAddr,
    /// When, in seconds since 1970.
    pub at_unix_s: Option<i64>,
    /// The status of the response.
    pub status: Option<u16>,
}

impl LoggedVisit {
    /// Reads a line without its end.
    pub fn parse(line: &str) -> Result<LoggedVisit, BadLine> {
        let line = line.trim();
        if line.starts_with('{') { json(line) } else { text(line) }
    }
}

/// Why a line cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadLine {
    /// None of the known formats.
    #[error("neither Common, Combined, HAProxy nor JSON")]
    Kind,
    /// JSON without an address in a field that we know.
    #[error("JSON without the client's address (remote_addr, client_ip, …)")]
    Nameless,
    /// A host name, a socket, or something that is not an address.
    #[error("the client is not an IP address")]
    Address,
    /// Not text, or too long.
    #[error("not a line of text")]
    Text,
}

/// Field names of the client's address, the likelier first; if one is an object, its fields are searched.
const ADDRESS_FIELDS: [&str; 14] = [
    "client_ip",
    "clientip",
    "remote_addr",
    "remote_ip",
    "remoteIp",
    "remoteAddress",
    "client_addr",
    "client",
    "ClientHost",
    "ci",
    "c-ip",
    "ip",
    "host",
    "request",
];
const TIME_FIELDS: [&str; 9] =
    ["time_iso8601", "msec", "time_local", "timestamp", "@timestamp", "time", "ts", "date", "datetime"];
const STATUS_FIELDS: [&str; 5] = ["status", "status_code", "response", "DownstreamStatus", "sc-status"];

fn json(line: &str) -> Result<LoggedVisit, BadLine> {
    let Ok(Value::Object(fields)) = serde_json::from_str(line) else { return Err(BadLine::Kind) };
    let client = json_address(&fields, 0)?;
    let at = TIME_FIELDS.iter().find_map(|name| json_time(fields.get(*name)?));
    let status = STATUS_FIELDS.iter().find_map(|name| match fields.get(*name)? {
        Value::Number(number) => number.as_u64(),
        Value::String(text) => text.parse().ok(),
        _ => None,
    });
    Ok(LoggedVisit { client, at_unix_s: at, status: status.and_then(|status| u16::try_from(status).ok()) })
}

fn json_address(fields: &Map<String, Value>, depth: u8) -> Result<IpAddr, BadLine> {
    let mut problem = BadLine::Nameless;
    for name in ADDRESS_FIELDS {
        match fields.get(name) {
            Some(Value::String(text)) => match address(text) {
                Some(client) => return Ok(client),
                None => problem = BadLine::Address,
            },
            Some(Value::Object(inner)) if depth == 0 => {
                if let Ok(client) = json_address(inner, 1) {
                    return Ok(client);
                }
            }
            _ => {}
        }
    }
    Err(problem)
}

fn json_time(value: &Value) -> Option<i64> {
    match value {
        Value::Number(number) => number.as_f64().and_then(unix),
        Value::String(text) => text.parse().ok().and_then(unix).or_else(|| iso_time(text)).or_else(|| log_time(text)),
        _ => None,
    }
}

/// Seconds, or milliseconds if as seconds they would lie far in the future.
fn unix(number: f64) -> Option<i64> {
    let seconds = if number > 1e11 { number / 1e3 } else { number };
    (seconds > 0.0 && seconds < 1e11).then_some(seconds as i64)
}

fn text(line: &str) -> Result<LoggedVisit, BadLine> {
    let (place, at) = line
        .match_indices('[')
        .find_map(|(place, _)| Some((place, log_time(line.get(place + 1..)?)?)))
        .ok_or(BadLine::Kind)?;
    let (before, dated) = line.split_at(place);
    let rest = dated.split_once(']').ok_or(BadLine::Kind)?.1.trim_start();
    let (client, status) = if rest.starts_with('"') {
        (combined_address(before), behind_quoted(rest).and_then(first_status))
    } else {
        (haproxy_address(before), rest.split(' ').nth(3).and_then(|word| word.parse().ok()))
    };
    Ok(LoggedVisit { client: client.ok_or(BadLine::Address)?, at_unix_s: Some(at), status })
}

/// What follows the text in quotes at the beginning of `rest`. It is read from the left, because a client chooses the content of its referer and its name;
/// inside the quotes a backslash escapes the next octet.
fn behind_quoted(rest: &str) -> Option<&str> {
    let mut octets = rest.bytes().enumerate().skip(1);
    while let Some((at, octet)) = octets.next() {
        match octet {
            b'"' => return rest.get(at + 1..),
            b'\\' => drop(octets.next()),
            _ => {}
        }
    }
    None
}

fn first_status(text: &str) -> Option<u16> {
    text.split_ascii_whitespace().next()?.parse().ok().filter(|status| (100..1000).contains(status))
}

/// `address ident user`, or a virtual host before the address.
fn combined_address(before: &str) -> Option<IpAddr> {
    before.split_ascii_whitespace().take(2).find_map(address)
}

/// The last word before the date, `address:port`; the address may have colons too.
fn haproxy_address(before: &str) -> Option<IpAddr> {
    let word = before.split_ascii_whitespace().next_back()?;
    let (host, port) = word.rsplit_once(':')?;
    port.parse::<u16>().ok()?;
    address(host)
}

fn address(text: &str) -> Option<IpAddr> {
    if text.len() > 64 {
        return None;
    }
    let bare = text.parse::<IpAddr>().ok();
    let with_port = || text.parse::<std::net::SocketAddr>().ok().map(|socket| socket.ip());
    bare.or_else(with_port).map(|address| address.to_canonical())
}

/// `10/Oct/2026:13:55:36` and a zone, or fractions of a second and no zone.
fn log_time(text: &str) -> Option<i64> {
    let text = text.as_bytes().first_chunk::<20>()?;
    let number = |from: usize, to: usize| digits(text.get(from..to)?);
    let marks = [(2, b'/'), (6, b'/'), (11, b':'), (14, b':'), (17, b':')];
    if !marks.iter().all(|(place, mark)| text.get(*place) == Some(mark)) {
        return None;
    }
    let months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let month = months.iter().position(|name| text.get(3..6) == Some(name.as_bytes()))? as i64 + 1;
    seconds([number(7, 11)?, month, number(0, 2)?, number(12, 14)?, number(15, 17)?, number(18, 20)?])
}

/// `2026-10-10T13:55:36`, or with a blank for the T.
fn iso_time(text: &str) -> Option<i64> {
    let text = text.as_bytes().first_chunk::<19>()?;
    let number = |from: usize, to: usize| digits(text.get(from..to)?);
    let marked = text[4] == b'-' && text[7] == b'-' && text[13] == b':' && text[16] == b':';
    let parts = [number(0, 4)?, number(5, 7)?, number(8, 10)?, number(11, 13)?, number(14, 16)?, number(17, 19)?];
    marked.then(|| seconds(parts))?
}

fn digits(text: &[u8]) -> Option<i64> {
    text.iter().try_fold(0, |number, byte| byte.is_ascii_digit().then(|| number * 10 + i64::from(byte - b'0')))
}

/// Since 1970, as if in UTC: only time spans are needed, and a log uses one zone.
fn seconds([year, month, day, hour, minute, second]: [i64; 6]) -> Option<i64> {
    let sound = (1970..10_000).contains(&year) && (1..=12).contains(&month) && (1..=31).contains(&day) && hour < 24;
    // Days since the first of March of year zero, where leap days come last (Hinnant's days_from_civil).
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = year * 365 + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 1 - 719_468;
    sound.then_some(days * 86_400 + hour * 3600 + minute * 60 + second)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(line: &str) -> (String, Option<i64>, Option<u16>) {
        let entry = LoggedVisit::parse(line).unwrap_or_else(|error| panic!("{line}: {error}"));
        (entry.client.to_string(), entry.at_unix_s, entry.status)
    }

    #[test]
    fn common_and_combined() {
        let at = Some(971_186_136);
        let common = r#"127.0.0.1 - frank [10/Oct/2000:13:55:36 -0700] "GET /apache_pb.gif HTTP/1.0" 200 2326"#;
        assert_eq!(read(common), ("127.0.0.1".into(), at, Some(200)));
        let combined = r#"2001:db8::7 - - [10/Oct/2000:13:55:36 +0000] "GET / HTTP/1.1" 503 190 "https://a/?[x]" "Mozilla/5.0 (X11)""#;
        assert_eq!(read(combined), ("2001:db8::7".into(), at, Some(503)));
        let vhost = r#"www.example.org:443 192.0.2.9 - - [10/Oct/2000:13:55:36 +0000] "-" 408 0 "-" "-""#;
        assert_eq!(read(vhost), ("192.0.2.9".into(), at, Some(408)));
        let user = r#"192.0.2.9 - a [b] [10/Oct/2000:13:55:36 +0000] "GET / HTTP/1.1" 200 1"#;
        assert_eq!(read(user).0, "192.0.2.9");
        let quoted = r#"192.0.2.9 - - [10/Oct/2000:13:55:36 +0000] "GET /\x22 HTTP/1.1" 404 1 "-" "say \"hi\"""#;
        assert_eq!(read(quoted), ("192.0.2.9".into(), at, Some(404)));
    }

    #[test]
    fn what_a_client_calls_itself_does_not_hide_the_status() {
        let start = r#"192.0.2.9 - - [10/Oct/2000:13:55:36 +0000] "GET /\"a\" HTTP/1.1" 503 190"#;
        for behind in ["", r#" "-" "a \"b\" \"c\"""#, r#" "say "hi"" "a""#, r#" "" 200 1 "" "x"#] {
            assert_eq!(read(&format!("{start}{behind}")).2, Some(503), "{behind}");
        }
        assert_eq!(read(r#"192.0.2.9 - - [10/Oct/2000:13:55:36 +0000] "GET /\"#).2, None);
    }

    #[test]
    fn haproxy() {
        let bare = r#"10.0.1.2:33317 [06/Feb/2009:12:14:14.655] http-in static/srv1 10/0/30/69/109 200 2750 - - ---- 1/1/1/1/0 0/0 {1wt.eu} {} "GET /index.html HTTP/1.1""#;
        assert_eq!(read(bare), ("10.0.1.2".into(), Some(1_233_922_454), Some(200)));
        assert_eq!(read(&format!("Feb  6 12:14:14 localhost haproxy[14389]: {bare}")), read(bare));
        assert_eq!(read(&bare.replace("10.0.1.2", "2001:db8::5")).0, "2001:db8::5");
        assert_eq!(read(&bare.replace("10.0.1.2", "::ffff:10.0.1.2")).0, "10.0.1.2");
    }

    #[test]
    fn json_of_several_makers() {
        let nginx = r#"{"time_iso8601":"2026-11-15T07:00:00+00:00","remote_addr":"192.0.2.1","status":"200","request":"GET / HTTP/1.1"}"#;
        assert_eq!(read(nginx), ("192.0.2.1".into(), Some(1_794_726_000), Some(200)));
        let caddy = r#"{"ts":1794726000.25,"request":{"remote_ip":"2001:db8::1","uri":"/"},"status":404}"#;
        assert_eq!(read(caddy), ("2001:db8::1".into(), Some(1_794_726_000), Some(404)));
        let traefik = r#"{"ClientHost":"198.51.100.4","DownstreamStatus":200,"time":"2026-11-15 07:00:00"}"#;
        assert_eq!(read(traefik), ("198.51.100.4".into(), Some(1_794_726_000), Some(200)));
        let port = r#"{"client":"192.0.2.1:5050","timestamp":1794726000000}"#;
        assert_eq!(read(port), ("192.0.2.1".into(), Some(1_794_726_000), None));
    }

    #[test]
    fn lines_that_say_nothing() {
        let bad = |line: &str| LoggedVisit::parse(line).unwrap_err();
        assert_eq!(bad("what is this"), BadLine::Kind);
        assert_eq!(bad(r#"{"remote_addr":"192.0.2.1""#), BadLine::Kind);
        assert_eq!(bad(r#"{"message":"started"}"#), BadLine::Nameless);
        assert_eq!(bad(r#"{"remote_addr":"unix:"}"#), BadLine::Address);
        assert_eq!(
            bad(r#"host.example.org - - [10/Oct/2000:13:55:36 -0700] "GET / HTTP/1.0" 200 1"#),
            BadLine::Address
        );
        assert_eq!(bad("Feb  6 12:14:14 localhost haproxy[14389]: Proxy http-in started."), BadLine::Kind);
    }

    proptest! {
        #[test]
        fn any_line_is_read_or_refused(line in "\\PC{0,120}", kind in 0usize..4) {
            let start = ["", "{\"remote_addr\":\"1.2.3.4\"", "1.2.3.4 - - [10/Oct/2000:13:55:36 ", "1.2.3.4:5 [06/Feb/2009:12:14:14.655]"];
            let _ = LoggedVisit::parse(&format!("{}{line}", start[kind]));
        }

        #[test]
        fn days_are_counted_right(days in 0i64..1_000_000) {
            // Walk from the known day by the calendar's own rule.
            let (mut year, mut left) = (1970, days);
            let length = |year: i64| if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) { 366 } else { 365 };
            while left >= length(year) {
                left -= length(year);
                year += 1;
            }
            let months = [31, if length(year) == 366 { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
            let mut month = 0;
            while left >= months[month] {
                left -= months[month];
                month += 1;
            }
            prop_assert_eq!(seconds([year, month as i64 + 1, left + 1, 0, 0, 0]), Some(days * 86_400));
        }
    }
}
