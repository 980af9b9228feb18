//! What a sender can do about a failure, in plain words, by its status (RFC 3463).

use weir_smtp::outcome::{DeliveryOutcome, Status};

/// What the sender can do.
pub(super) fn advice(outcome: &DeliveryOutcome) -> &'static str {
    let Status(_, subject, detail) = outcome.status;
    match (subject, detail) {
        (1, 2 | 10) | (4, 4) => "Check the part of the address after the @: nobody takes mail there.",
        (1, _) => "Check the address for typing errors, or ask the person for the right one.",
        (2, 2) => "The mailbox is full. Tell the person by other means, or try again later.",
        (2, _) => "The mailbox does not take mail now. Reach the person by other means.",
        (3, 4) => "The mail is too large for the other server. Send it in parts, or share the file another way.",
        (4, 6) => "The mail would go in circles. This is a mistake in the settings of one of the servers.",
        (4, 7) => "The other server could not be reached or did not take it for days. Send it again later.",
        (6, 7) => "Use an address with plain letters, without accents or other scripts, for this recipient.",
        (6, _) => "The other server cannot take mail of this form. Send it as plain text.",
        (7, _) => {
            "The other server refuses this mail by its rules. The text above may say why; show it to your administrator."
        }
        _ => {
            "The text above is the answer of the other server. If it does not help you, show it to your administrator."
        }
    }
}
