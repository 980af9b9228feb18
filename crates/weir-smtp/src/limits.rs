//! All limits of the SMTP server in one place.
//!
//! [`SmtpLimits::bounded`] corrects values that make no sense, so that no setting turns a limit off by accident. Sources of the defaults:
//! RFC 5321 section 4.5.3, Postfix's postconf(5), and what we measured.

use std::time::Duration;

use weir_settings::{Section, settings};

settings! {
    /// What clients of the SMTP server may use
    #[section("limits")]
    #[check(SmtpLimits::check)]
    #[derive(PartialEq, Eq)]
    pub struct SmtpLimits {
        /// Connections at once, in all
        pub connections: u32 = number(10_000, 1..=1_000_000),
        /// Connections at once from one address
        pub connections_per_address: u32 = number(100, 1..=1_000_000),
        /// Sessions at once that are logged in as one user
        pub connections_per_user: u32 = number(50, 1..=1_000_000),
        /// If an address or a user has reached the limit of connections, one that has been idle for this long is closed for the next (in the middle of a mail, four times as long)
        pub idle_makes_room: Duration = duration("3s", "10ms"..="1h"),
        /// How many leading bits of an IPv6 address stand for one client
        pub ipv6_prefix_bits: u8 = count(64, 16..=128),
        /// Recipients of one message
        pub recipients: u32 = number(1_000, 1..=SmtpLimits::RECIPIENTS_MAX),
        /// Wrong commands before a session ends
        pub errors: u32 = number(20, 1..=10_000),
        /// Commands that bring no mail, between two messages, before a session ends
        pub junk_commands: u32 = number(100, 4..=100_000),
        /// Commands of one session in all
        pub commands: u32 = number(100_000, 10..=u32::MAX),
        /// Refused recipients before a session ends
        pub refused_recipients: u32 = number(100, 1..=100_000),
        /// The largest message
        pub message_bytes as "message_size": u64 = size("25MiB", 1_024..=SmtpLimits::MESSAGE_BYTES_MAX),
        /// The longest command line
        pub command_line_bytes as "command_line": u32 = size("2KiB", "512"..="64KiB"),
        /// The longest line of a message in bytes; RFC 5321 has 998, 0 is no limit
        pub body_line_bytes as "body_line": u32 = number(998, 0..=1_000_000_000),
        /// How much of a refused message is read and thrown away, so that the client gets to read the reply
        pub discard_bytes as "discard": u64 = size("32MiB", "4KiB"..="4GiB"),
        /// From the connection to the first command
        pub first_command: Duration = duration("1m", "10ms"..="1h"),
        /// From a reply to the next command
        pub command: Duration = duration("5m", "10ms"..="1h"),
        /// Between two pieces of a message
        pub data_block: Duration = duration("3m", "10ms"..="1h"),
        /// A TLS handshake
        pub tls_handshake: Duration = duration("15s", "10ms"..="1h"),
        /// A whole message
        pub data_total: Duration = duration("30m", "10ms"..="7d"),
        /// A whole session, between messages
        pub session_total: Duration = duration("4h", "10ms"..="7d"),
        /// Failed logins before a session ends
        pub failed_logins_per_session: u32 = number(3, 1..=100),
        /// Failed logins from one address within the window before it is banned
        pub failed_logins_per_address: u32 = number(10, 1..=100_000),
        /// Addresses remembered for failed logins
        pub ban_table: u32 = number(50_000, 16..=10_000_000),
        /// How long a failed login counts
        pub failed_login_window: Duration = duration("10m", "10ms"..="7d"),
        /// The first ban of an address; each further one is twice as long
        pub ban_first: Duration = duration("5m", "10ms"..="7d"),
        /// The longest ban
        pub ban_longest: Duration = duration("1d", "10ms"..="7d"),
    }
}

const HOUR: Duration = Duration::from_secs(3600);
const MILLISECOND: Duration = Duration::from_millis(1);
const DAY: Duration = Duration::from_secs(86_400);

impl SmtpLimits {
    /// No server accepts larger messages. This is what the spool can hold, minus a mebibyte for what we add to the header.
    pub const MESSAGE_BYTES_MAX: u64 = (2 << 30) - (1 << 20);
    /// No server accepts more recipients for one message, because their addresses must fit into the spool's envelope.
    pub const RECIPIENTS_MAX: u32 = 10_000;

    fn check(&self, section: &mut Section<'_, '_>) {
        if self.ban_first > self.ban_longest {
            let what = "the longest ban is shorter than the first".to_owned();
            section.blame("ban_longest", what, "make it at least as long as ban_first");
        }
    }

    /// The same limits with every number inside its bounds.
    pub fn bounded(self) -> SmtpLimits {
        self.counts_bounded().times_bounded()
    }

    fn counts_bounded(self) -> SmtpLimits {
        SmtpLimits {
            connections: self.connections.clamp(1, 1_000_000),
            connections_per_address: self.connections_per_address.clamp(1, 1_000_000),
            connections_per_user: self.connections_per_user.clamp(1, 1_000_000),
            ipv6_prefix_bits: self.ipv6_prefix_bits.clamp(16, 128),
            recipients: self.recipients.clamp(1, SmtpLimits::RECIPIENTS_MAX),
            message_bytes: self.message_bytes.clamp(1_024, SmtpLimits::MESSAGE_BYTES_MAX),
            command_line_bytes: self.command_line_bytes.clamp(512, 65_536),
            body_line_bytes: if self.body_line_bytes == 0 { 0 } else { self.body_line_bytes.max(78) },
            discard_bytes: self.discard_bytes.clamp(4_096, 4 << 30),
            errors: self.errors.clamp(1, 10_000),
            junk_commands: self.junk_commands.clamp(4, 100_000),
            commands: self.commands.max(10),
            refused_recipients: self.refused_recipients.clamp(1, 100_000),
            failed_logins_per_session: self.failed_logins_per_session.clamp(1, 100),
            failed_logins_per_address: self.failed_logins_per_address.clamp(1, 100_000),
            ban_table: self.ban_table.clamp(16, 10_000_000),
            ..self
        }
    }

    fn times_bounded(self) -> SmtpLimits {
        let short = |time: Duration| time.clamp(MILLISECOND, HOUR);
        let long = |time: Duration| time.clamp(MILLISECOND, 7 * DAY);
        SmtpLimits {
            first_command: short(self.first_command),
            command: short(self.command),
            data_block: short(self.data_block),
            data_total: long(self.data_total),
            session_total: long(self.session_total),
            idle_makes_room: short(self.idle_makes_room),
            tls_handshake: short(self.tls_handshake),
            failed_login_window: long(self.failed_login_window),
            ban_first: long(self.ban_first),
            ban_longest: long(self.ban_longest).max(long(self.ban_first)),
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_inside_their_bounds() {
        assert_eq!(SmtpLimits::default().bounded(), SmtpLimits::default());
    }

    #[test]
    fn absurd_numbers_are_brought_back() {
        let absurd = SmtpLimits {
            connections: 0,
            command_line_bytes: u32::MAX,
            errors: 0,
            message_bytes: u64::MAX,
            command: Duration::MAX,
            ban_longest: Duration::ZERO,
            ..SmtpLimits::default()
        };
        let sane = absurd.bounded();
        assert_eq!((sane.connections, sane.errors, sane.command_line_bytes), (1, 1, 65_536));
        assert_eq!((sane.message_bytes, sane.command), (SmtpLimits::MESSAGE_BYTES_MAX, HOUR));
        assert_eq!(sane.ban_longest, sane.ban_first);
    }
}
