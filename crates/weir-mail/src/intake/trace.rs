//! The Received header of a message that we take (RFC 5321, section 4.4).

use crate::smtp::envelope::Envelope;
use crate::smtp::peer::Peer;
use weir_store::spool::MessageId;

/// What stands in each of our own Received fields behind our name.
const BRAND: &str = "(Weir)";

/// The field, with its line end.
pub(crate) fn received(hostname: &str, peer: &Peer, envelope: &Envelope, id: MessageId, date: &str) -> String {
    let helo = peer.helo.as_deref().unwrap_or("unknown");
    let name = peer.name.as_deref().unwrap_or("unknown");
    let tls =
        peer.tls.map_or_else(String::new, |tls| format!("\r\n\t(using {} with cipher {})", tls.version, tls.cipher));
    let login = peer.user.as_deref().map_or_else(String::new, |user| format!("\r\n\t(Authenticated sender: {user})"));
    let to = match envelope.recipients.as_slice() {
        [one] => format!("\r\n\tfor <{}>", one.mailbox),
        _ => String::new(),
    };
    format!(
        "Received: from {helo} ({name} [{}]){tls}{login}\r\n\tby {hostname} {BRAND} with {} id {id}{to};\r\n\t{date}\r\n",
        peer.client,
        peer.with_keyword(envelope.sender.smtputf8),
    )
}

/// How often a message has been through a server of this name, as its Received fields have it.
pub(crate) fn times_through(hostname: &str, header: &[u8]) -> usize {
    let ours = format!("by {hostname} {BRAND} with ");
    memchr::memmem::find_iter(header, ours.as_bytes()).count()
}
