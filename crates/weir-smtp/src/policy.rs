//! The service's side of Postfix's policy protocol, without I/O: octets go in, requests come out.
//!
//! A request consists of lines `name=value` up to an empty line. The reply is `action=…` and an empty line. Only the attributes that Weir
//! uses are kept. At most one request and the data of the last read are buffered.

/// The longest request. Postfix sends about forty attributes; the longest are addresses and the names in a certificate.
const REQUEST_MAX: usize = 64 << 10;

/// A request: what Postfix asks about.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Request {
    /// The stage of the SMTP dialogue: `RCPT`, `DATA`, `END-OF-MESSAGE` and others.
    pub state: String,
    /// Identifies the message: the same in all requests about it.
    pub instance: String,
    /// The user who is logged in; empty if none is.
    pub login: String,
    /// The sender of the envelope.
    pub sender: String,
    /// The recipient; empty after RCPT if there are several.
    pub recipient: String,
    /// How many recipients there are so far; only known after RCPT.
    pub recipient_count: u32,
    /// The client's address.
    pub client_address: String,
    /// The message's id in Postfix's queue, if it has one already.
    pub queue_id: String,
}

/// Why the connection of a client is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Garbled {
    /// A request is too long.
    #[error("a request of more than {REQUEST_MAX} octets")]
    Long,
    /// A line is not an attribute.
    #[error("a line that is no attribute")]
    Line,
    /// The request is not about an access policy.
    #[error("a request that is not smtpd_access_policy")]
    Kind,
}

/// The requests of one connection.
#[derive(Debug, Default)]
pub struct Requests {
    octets: Vec<u8>,
    looked_at: usize,
}

impl Requests {
    /// Adds octets from the client. Afterwards, call [`Requests::next_request`] until it returns none.
    pub fn feed(&mut self, octets: &[u8]) {
        self.octets.extend_from_slice(octets);
    }

    /// The next request; none until more octets arrive.
    pub fn next_request(&mut self) -> Result<Option<Request>, Garbled> {
        let from = self.looked_at.saturating_sub(1);
        let Some(end) = memchr::memmem::find(&self.octets[from..], b"\n\n").map(|at| from + at) else {
            self.looked_at = self.octets.len();
            return if self.octets.len() > REQUEST_MAX { Err(Garbled::Long) } else { Ok(None) };
        };
        if end > REQUEST_MAX {
            return Err(Garbled::Long);
        }
        let lines: Vec<u8> = self.octets.drain(..end + 2).collect();
        self.looked_at = 0;
        Request::read(&lines[..end]).map(Some)
    }

    /// How many octets are not parsed yet.
    pub fn waiting(&self) -> usize {
        self.octets.len()
    }
}

impl Request {
    fn read(lines: &[u8]) -> Result<Request, Garbled> {
        let (mut request, mut kind) = (Request::default(), false);
        for line in lines.split(|byte| *byte == b'\n') {
            let line = String::from_utf8_lossy(line);
            let (name, value) = line.split_once('=').ok_or(Garbled::Line)?;
            let kept = match name {
                "request" => {
                    kind = value == "smtpd_access_policy";
                    continue;
                }
                "recipient_count" => {
                    request.recipient_count = value.parse().unwrap_or(0);
                    continue;
                }
                "protocol_state" => &mut request.state,
                "instance" => &mut request.instance,
                "sasl_username" => &mut request.login,
                "sender" => &mut request.sender,
                "recipient" => &mut request.recipient,
                "client_address" => &mut request.client_address,
                "queue_id" => &mut request.queue_id,
                _ => continue,
            };
            value.clone_into(kept);
        }
        if kind { Ok(request) } else { Err(Garbled::Kind) }
    }
}

/// Writes an answer, in the form of an access table: `DUNNO`, `REJECT text` and others.
pub fn write(action: &str) -> Vec<u8> {
    let line = action.chars().filter(|c| !c.is_control()).take(1_000).collect::<String>();
    format!("action={line}\n\n").into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(octets: &[u8], piece: usize) -> Result<Vec<Request>, Garbled> {
        let (mut requests, mut found) = (Requests::default(), Vec::new());
        for octets in octets.chunks(piece) {
            requests.feed(octets);
            while let Some(request) = requests.next_request()? {
                found.push(request);
            }
        }
        Ok(found)
    }

    #[test]
    fn requests_are_understood_however_they_are_cut() {
        let one = "request=smtpd_access_policy\nprotocol_state=RCPT\ninstance=1.2.0\nsasl_username=ann\nsender=a@b=c\n\
                   recipient=bob@y.example\nrecipient_count=0\nclient_address=192.0.2.7\nccert_subject=\n\n";
        for piece in [1, 7, 10_000] {
            let found = all(one.repeat(2).as_bytes(), piece).unwrap();
            assert_eq!(found.len(), 2);
            let Request { state, login, sender, recipient, .. } = &found[1];
            assert_eq!([state, login, sender, recipient], ["RCPT", "ann", "a@b=c", "bob@y.example"]);
        }
    }

    #[test]
    fn what_is_no_request_is_refused() {
        assert_eq!(all(b"GET / HTTP/1.1\n\n", 5), Err(Garbled::Line));
        assert_eq!(all(b"request=other\n\n", 5), Err(Garbled::Kind));
        assert_eq!(all(b"sender=x\n\n", 5), Err(Garbled::Kind));
        assert_eq!(all(b"\n\n", 5), Err(Garbled::Line));
        assert_eq!(all(&[b'x'; REQUEST_MAX + 10], 1_000), Err(Garbled::Long));
        assert_eq!(write("REJECT no\r\n\naction=OK"), b"action=REJECT noaction=OK\n\n");
    }
}
