//! The Received header of a message that we take (RFC 5321, section 4.4).

use weir_smtp::envelope::Envelope;
use weir_smtp::peer::SmtpPeer;
use weir_store::spool::MessageId;

/// What stands in each of our own Received fields behind our name.
const BRAND: &str = "(Weir)";

/// The field, with its line end.
pub(crate) fn received(hostname: &str, peer: &SmtpPeer, envelope: &Envelope, id: MessageId, date: &str) -> String {
    let helo = peer.helo.as_deref().unwrap_or("unknown");
    let name = peer.name.as_deref().unwrap_or("unknown");
    let tls =
        peer.tls.map_or_else(String::new, |tls| format!("\r\n\t(using {} with cipher {})", tls.version, tls.cipher));
    let login = peer.user.as_deref().map_or_else(String::new, |user| format!("\r\n\t(Authenticated sender: {user})"));
    let by = taken_by(hostname, peer, envelope, id, date);
    format!("Received: from {helo} ({name} [{}]){tls}{login}\r\n\t{by}", peer.client)
}

/// The field without a word about the client: recipients need not know where the user sits and what the login is called.
pub(crate) fn received_from_nobody(
    hostname: &str,
    peer: &SmtpPeer,
    envelope: &Envelope,
    id: MessageId,
    date: &str,
) -> String {
    format!("Received: {}", taken_by(hostname, peer, envelope, id, date))
}

/// The second half of the field.
fn taken_by(hostname: &str, peer: &SmtpPeer, envelope: &Envelope, id: MessageId, date: &str) -> String {
    let to = match envelope.recipients.as_slice() {
        [one] => format!("\r\n\tfor <{}>", one.mailbox),
        _ => String::new(),
    };
    let with = peer.with_keyword(envelope.sender.smtputf8);
    format!("by {hostname} {BRAND} with {with} id {id}{to};\r\n\t{date}\r\n")
}

/// How long the field is that we put before a message which begins so; 0 if there is none of this server's, or if the message
/// goes on with the field: that part is the sender's.
pub(crate) fn own_length(hostname: &str, start: &[u8]) -> usize {
    let find = |from: usize, what: &[u8]| memchr::memmem::find(&start[from..], what).map(|at| from + at + what.len());
    // The date stands alone on the last line.
    let end = find(0, b";\r\n\t").and_then(|date| find(date, b"\r\n")).unwrap_or(0);
    let goes_on = start.get(end).is_none_or(|next| matches!(next, b' ' | b'\t'));
    let ours = [&b"Received: from "[..], b"Received: by "].iter().any(|word| start.starts_with(word))
        && times_through(hostname, &start[..end]) == 1;
    if ours && !goes_on { end } else { 0 }
}

/// How often a message has been through a server of this name, as its Received fields have it.
pub(crate) fn times_through(hostname: &str, header: &[u8]) -> usize {
    let ours = format!("by {hostname} {BRAND} with ");
    memchr::memmem::find_iter(header, ours.as_bytes()).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_field_is_told_from_those_of_others() {
        let ours = "Received: from client.example (unknown [192.0.2.1])\r\n\tby mx.example (Weir) with ESMTP id 38ex\r\n\tfor <ann@x.example>;\r\n\tMon, 1 Jan 2024 00:00:00 +0000\r\n";
        let rest = "Received: from a by b.example with ESMTP id 1;\r\n\tMon\r\nSubject: x\r\n\r\nhello\r\n";
        let length = |text: &str| own_length("mx.example", text.as_bytes());
        assert_eq!(length(&format!("{ours}{rest}")), ours.len());
        assert_eq!(length(&format!("{ours}\r\nhello")), ours.len(), "a message without a header");
        assert_eq!(own_length("other.example", format!("{ours}{rest}").as_bytes()), 0);
        for other in ["", "Received: from x;\r\n\t", ours, rest, &format!("X: y\r\n{ours}{rest}")] {
            assert_eq!(length(other), 0, "{other:?}");
        }
        assert_eq!(length(&format!("{ours} what the sender folds into it\r\n{rest}")), 0);
    }
}
