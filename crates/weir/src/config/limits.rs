//! `[limits]`: what one client, one user, one session and one message may use of the SMTP server.

use super::calls::Calls;
use std::time::Duration;
use weir_settings::Section;
use weir_settings::units::{Size, Span};
use weir_smtp::limits::Limits;

const HOUR: u64 = 3600;
const WEEK: u64 = 7 * 24 * HOUR;

/// Reads all limits; their defaults are the server's own.
pub(super) fn read(s: &mut Section<'_, '_>) -> Limits {
    let limits = counts(s, &Limits::default());
    let limits = sizes(s, &limits);
    let limits = times(s, &limits);
    logins(s, &limits)
}

fn counts(s: &mut Section<'_, '_>, d: &Limits) -> Limits {
    let most = 1_000_000;
    Limits {
        connections: s.bounded("connections", d.connections, 1..=most, "Connections at once, in all"),
        connections_per_address: s.bounded(
            "connections_per_address",
            d.connections_per_address,
            1..=most,
            "Connections at once from one address",
        ),
        connections_per_user: s.bounded(
            "connections_per_user",
            d.connections_per_user,
            1..=most,
            "Sessions at once that are logged in as one user",
        ),
        ipv6_prefix_bits: s.bounded(
            "ipv6_prefix_bits",
            u32::from(d.ipv6_prefix_bits),
            16..=128,
            "How many leading bits of an IPv6 address stand for one client",
        ) as u8,
        recipients: s.bounded("recipients", d.recipients, 1..=Limits::RECIPIENTS_MAX, "Recipients of one message"),
        errors: s.bounded("errors", d.errors, 1..=10_000, "Wrong commands before a session ends"),
        junk_commands: s.bounded(
            "junk_commands",
            d.junk_commands,
            4..=100_000,
            "Commands that bring no mail, between two messages, before a session ends",
        ),
        commands: s.bounded("commands", d.commands, 10..=u32::MAX, "Commands of one session in all"),
        refused_recipients: s.bounded(
            "refused_recipients",
            d.refused_recipients,
            1..=100_000,
            "Refused recipients before a session ends",
        ),
        ..d.clone()
    }
}

fn sizes(s: &mut Section<'_, '_>, d: &Limits) -> Limits {
    let size = |bytes: u32| Size(u64::from(bytes));
    Limits {
        message_bytes: s
            .bounded(
                "message_size",
                Size(d.message_bytes),
                Size(1 << 10)..=Size(Limits::MESSAGE_BYTES_MAX),
                "The largest message",
            )
            .0,
        command_line_bytes: s
            .bounded("command_line", size(d.command_line_bytes), Size(512)..=Size(65_536), "The longest command line")
            .0 as u32,
        body_line_bytes: s.bounded(
            "body_line",
            d.body_line_bytes,
            0..=1_000_000_000,
            "The longest line of a message in bytes; RFC 5321 has 998, 0 is no limit",
        ),
        discard_bytes: s
            .bounded(
                "discard",
                Size(d.discard_bytes),
                Size(4 << 10)..=Size(4 << 30),
                "How much of a refused message is read and thrown away to give it its honest reply",
            )
            .0,
        ..d.clone()
    }
}

fn times(s: &mut Section<'_, '_>, d: &Limits) -> Limits {
    let mut short = |key, default, about| s.bounded(key, Span(default), spans(HOUR), about).0;
    let limits = Limits {
        first_command: short("first_command", d.first_command, "From the connection to the first command"),
        command: short("command", d.command, "From a reply to the next command"),
        data_block: short("data_block", d.data_block, "Between two pieces of a message"),
        tls_handshake: short("tls_handshake", d.tls_handshake, "A TLS handshake"),
        ..d.clone()
    };
    let mut long = |key, default, about| s.bounded(key, Span(default), spans(WEEK), about).0;
    Limits {
        data_total: long("data_total", limits.data_total, "A whole message"),
        session_total: long("session_total", limits.session_total, "A whole session, between messages"),
        ..limits
    }
}

fn logins(s: &mut Section<'_, '_>, d: &Limits) -> Limits {
    let limits = Limits {
        failed_logins_per_session: s.bounded(
            "failed_logins_per_session",
            d.failed_logins_per_session,
            1..=100,
            "Failed logins before a session ends",
        ),
        failed_logins_per_address: s.bounded(
            "failed_logins_per_address",
            d.failed_logins_per_address,
            1..=100_000,
            "Failed logins from one address within the window before it is banned",
        ),
        ban_table: s.bounded("ban_table", d.ban_table, 16..=10_000_000, "Addresses remembered for failed logins"),
        ..d.clone()
    };
    let mut long = |key, default, about| s.bounded(key, Span(default), spans(WEEK), about).0;
    let limits = Limits {
        failed_login_window: long("failed_login_window", limits.failed_login_window, "How long a failed login counts"),
        ban_first: long(
            "ban_first",
            limits.ban_first,
            "The first ban of an address; each further one is twice as long",
        ),
        ban_longest: long("ban_longest", limits.ban_longest, "The longest ban"),
        ..limits
    };
    if limits.ban_first > limits.ban_longest {
        let what = "the longest ban is shorter than the first".to_owned();
        s.blame("ban_longest", what, "make it at least as long as ban_first");
    }
    limits
}

fn spans(most_secs: u64) -> std::ops::RangeInclusive<Span> {
    Span(Duration::from_millis(10))..=Span(Duration::from_secs(most_secs))
}
