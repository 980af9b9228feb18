//! Mail as it is handed to the throttle, for the tests of several test programs.

use std::time::Duration;
use weir_core::throttle::{Class, Params, RecipientKey};
use weir_mail::throttle::Submission;
use weir_store::records::HeldRow;

/// Recipients that nobody has written to yet: `to{first}@example.org` and those that follow.
pub(crate) struct Recipients {
    pub(crate) first: u64,
    pub(crate) count: u64,
}

/// One mail of `identity` to these recipients.
pub(crate) fn mail(identity: &str, recipients: &Recipients, message: &str, relay: &str) -> Submission {
    let numbers = recipients.first..recipients.first + recipients.count;
    let template = HeldRow {
        message: message.into(),
        relay: relay.into(),
        sender: "ann@example.org".into(),
        subject: "hello".into(),
        source: "192.0.2.1".into(),
        size: 100,
        ..HeldRow::default()
    };
    Submission {
        identity: identity.into(),
        params: Params::default(),
        recipients: numbers.clone().map(RecipientKey).collect(),
        classes: numbers.clone().map(|_| Class::Stranger).collect(),
        network: None,
        sent_as: String::new(),
        addresses: numbers.map(|n| format!("to{n}@example.org")).collect(),
        places: (0..recipients.count as usize).collect(),
        template,
        learn_only: false,
        tell_delays_over: Duration::ZERO,
        taken_before: false,
    }
}
