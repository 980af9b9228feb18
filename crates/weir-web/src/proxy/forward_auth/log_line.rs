//! A line of a proxy's access log that says which request is over, read without I/O.
//!
//! Two kinds: syslog (RFC 3164) as nginx and HAProxy send it, whose text begins with the name of the request; and the JSON of Caddy, where
//! the name is a field of the response. Whatever clients can write into a log line comes after that name or in other fields, and is not
//! read.

use std::collections::HashMap;

use serde::Deserialize;

use super::question::RequestId;

/// A longer line is cut off; a line of Caddy's that was cut cannot be read.
pub const LINE_BYTES_MAX: usize = 64 << 10;

/// The field of the response in Caddy's log, as Caddy writes it.
const FIELD: &str = "X-Weir-Request";

/// What one line says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RequestEnd {
    pub id: RequestId,
    /// Whether the client left before its answer. The application may work on then.
    pub early: bool,
}

#[derive(Deserialize)]
struct CaddyLine {
    #[serde(default)]
    status: u16,
    resp_headers: HashMap<String, Vec<String>>,
}

/// Status of a request whose client left: what nginx writes, and what Caddy writes if it has sent nothing. HAProxy has a word of its own for it.
const LEFT: [u16; 2] = [499, 0];

/// The request that is over, by one datagram.
pub fn ended(line: &[u8]) -> Option<RequestEnd> {
    let line = line.trim_ascii();
    if line.starts_with(b"{") { of_caddy(line) } else { of_syslog(line) }
}

fn of_caddy(line: &[u8]) -> Option<RequestEnd> {
    let CaddyLine { status, mut resp_headers } = serde_json::from_slice(line).ok()?;
    match &resp_headers.remove(FIELD)?[..] {
        [id] => Some(RequestEnd { id: RequestId::read(id.as_bytes())?, early: LEFT.contains(&status) }),
        _ => None,
    }
}

/// `<190>Nov 17 21:06:34 machine nginx: ID STATUS …`; the machine and what follows the name may be left out. After the status HAProxy
/// writes how the request ended: `--` if it was complete, a leading `C` if the client left.
fn of_syslog(line: &[u8]) -> Option<RequestEnd> {
    let behind = line.strip_prefix(b"<")?;
    let priority = behind.iter().position(|octet| *octet == b'>').filter(|at| (1..=3).contains(at))?;
    let text = behind.get(priority + 1..)?;
    let colon = text.windows(2).position(|pair| pair == b": ")?;
    let message = text.get(colon + 2..)?;
    let mut words = message.split(|octet| *octet == b' ');
    let id = RequestId::read(words.next()?)?;
    let status = words.next().and_then(|word| std::str::from_utf8(word).ok()).and_then(|word| word.parse().ok());
    let ended = words.next().filter(|word| word.len() == 2).is_some_and(|word| word.starts_with(b"C"));
    Some(RequestEnd { id, early: ended || status.is_some_and(|status| LEFT.contains(&status)) })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "0123456789abcdef0123456789abcdef";

    fn end(early: bool) -> Option<RequestEnd> {
        RequestId::read(ID.as_bytes()).map(|id| RequestEnd { id, early })
    }

    #[test]
    fn nginx_haproxy_and_caddy_say_which_request_is_over() {
        for line in [
            format!("<190>Nov 17 21:06:34 nginx: {ID}"),
            format!("<190>Nov  7 21:06:34 my-host nginx: {ID} 200 /x\n"),
            format!("<134>Nov 17 21:06:34 haproxy[123]: {ID}"),
            format!("<134>Nov 17 21:06:34 localhost haproxy[123]: {ID} 200 --\n"),
            format!("<134>Nov 17 21:06:34 haproxy[123]: {ID} 503 SC"),
            format!(
                r#"{{"level":"info","ts":1.5,"status":200,"resp_headers":{{"Server":["Caddy"],"X-Weir-Request":["{ID}"]}}}}"#
            ),
        ] {
            assert_eq!(ended(line.as_bytes()), end(false), "{line}");
        }
    }

    #[test]
    fn a_client_that_left_early_is_told_from_one_that_was_answered() {
        for line in [
            format!("<190>Nov 17 21:06:34 nginx: {ID} 499"),
            format!("<134>Nov 17 21:06:34 haproxy[123]: {ID} -1 CH"),
            format!("<134>Nov 17 21:06:34 localhost haproxy[123]: {ID} 200 CD\n"),
            format!(r#"{{"status":0,"resp_headers":{{"X-Weir-Request":["{ID}"]}}}}"#),
        ] {
            assert_eq!(ended(line.as_bytes()), end(true), "{line}");
        }
    }

    #[test]
    fn what_a_client_can_write_into_a_line_ends_nothing() {
        for line in [
            format!("<190>Nov 17 21:06:34 nginx: GET /{ID}"),
            format!("<190>Nov 17 21:06:34 nginx: - {ID}"),
            format!("<190>Nov 17 21:06:34 nginx:  {ID}"),
            format!("nginx: {ID}"),
            format!("<1900>x: {ID}"),
            format!("<190>{ID}"),
            format!(r#"{{"request":{{"headers":{{"X-Weir-Request":["{ID}"]}}}},"resp_headers":{{}}}}"#),
            format!(r#"{{"request":{{"resp_headers":{{"X-Weir-Request":["{ID}"]}}}}}}"#),
            format!(r#"{{"resp_headers":{{"X-Weir-Request":["{ID}","{ID}"]}}}}"#),
            format!(r#"{{"resp_headers":{{}},"resp_headers":{{"X-Weir-Request":["{ID}"]}}}}"#),
            format!(r#"{{"resp_headers":{{"X-Weir-Request":["{ID}"]}}"#),
            String::new(),
            "<".into(),
            "{".repeat(10_000),
        ] {
            assert_eq!(ended(line.as_bytes()), None, "{line}");
        }
    }
}
