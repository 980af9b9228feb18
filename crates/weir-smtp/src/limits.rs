//! Every bound of the SMTP server in one place.
//!
//! Numbers outside sense are brought into it by [`Limits::bounded`], so that no setting turns a limit off by
//! accident. Sources of the defaults: RFC 5321 section 4.5.3, Postfix's postconf(5), and what we measured.

use std::time::Duration;

/// What one server, one address, one user, one session and one message may use.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Connections at once, in all.
    pub connections: u32,
    /// Connections at once from one address (an IPv6 address counts by its prefix).
    pub connections_per_address: u32,
    /// Sessions at once that are logged in as one user.
    pub connections_per_user: u32,
    /// How many leading bits of an IPv6 address stand for one client.
    pub ipv6_prefix_bits: u8,
    /// Recipients of one message.
    pub recipients: u32,
    /// Octets of one message, after dot-unstuffing.
    pub message_bytes: u64,
    /// Octets of one command line, with its CR LF.
    pub command_line_bytes: u32,
    /// Octets of one line of a message, without CR LF; 0 means no limit.
    pub body_line_bytes: u32,
    /// Octets that are read and thrown away to give a refused message or an endless line its honest reply.
    pub discard_bytes: u64,
    /// Commands that were wrong (unknown, bad syntax, out of sequence) before the session ends.
    pub errors: u32,
    /// Commands that bring no mail (NOOP, RSET, VRFY, EHLO and the like) between two accepted messages.
    pub junk_commands: u32,
    /// Commands of one session in all.
    pub commands: u32,
    /// Refused recipients of one session.
    pub refused_recipients: u32,
    /// From the connection to the first complete command.
    pub first_command: Duration,
    /// From a reply to the next complete command.
    pub command: Duration,
    /// Between two pieces of a message.
    pub data_block: Duration,
    /// A whole message.
    pub data_total: Duration,
    /// A whole session; checked between messages.
    pub session_total: Duration,
    /// A TLS handshake.
    pub tls_handshake: Duration,
    /// Failed logins before the session ends.
    pub failed_logins_per_session: u32,
    /// Failed logins from one address within the window before the address is banned.
    pub failed_logins_per_address: u32,
    /// How long a failed login counts against its address.
    pub failed_login_window: Duration,
    /// The first ban of an address; each further one is twice as long.
    pub ban_first: Duration,
    /// The longest ban, and how long an offence is remembered after its ban.
    pub ban_longest: Duration,
    /// Addresses remembered for failed logins and bans.
    pub ban_table: u32,
}

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);
const SECOND: Duration = Duration::from_secs(1);
const MILLISECOND: Duration = Duration::from_millis(1);
const DAY: Duration = Duration::from_secs(86_400);

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections: 10_000,
            connections_per_address: 100,
            connections_per_user: 50,
            ipv6_prefix_bits: 64,
            recipients: 1_000,
            message_bytes: 25 << 20,
            command_line_bytes: 2_048,
            body_line_bytes: 998,
            discard_bytes: 32 << 20,
            errors: 20,
            junk_commands: 100,
            commands: 100_000,
            refused_recipients: 100,
            first_command: MINUTE,
            command: 5 * MINUTE,
            data_block: 3 * MINUTE,
            data_total: 30 * MINUTE,
            session_total: 4 * HOUR,
            tls_handshake: 15 * SECOND,
            failed_logins_per_session: 3,
            failed_logins_per_address: 10,
            failed_login_window: 10 * MINUTE,
            ban_first: 5 * MINUTE,
            ban_longest: DAY,
            ban_table: 50_000,
        }
    }
}

impl Limits {
    /// No server takes larger messages: what the spool holds, less a mebibyte for what we write into the header.
    pub const MESSAGE_BYTES_MAX: u64 = (2 << 30) - (1 << 20);
    /// No server takes more recipients of one message: their addresses must fit into the spool's envelope.
    pub const RECIPIENTS_MAX: u32 = 10_000;

    /// The same limits with every number inside its bounds.
    pub fn bounded(self) -> Limits {
        self.counts_bounded().times_bounded()
    }

    fn counts_bounded(self) -> Limits {
        Limits {
            connections: self.connections.clamp(1, 1_000_000),
            connections_per_address: self.connections_per_address.clamp(1, 1_000_000),
            connections_per_user: self.connections_per_user.clamp(1, 1_000_000),
            ipv6_prefix_bits: self.ipv6_prefix_bits.clamp(16, 128),
            recipients: self.recipients.clamp(1, Limits::RECIPIENTS_MAX),
            message_bytes: self.message_bytes.clamp(1_024, Limits::MESSAGE_BYTES_MAX),
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

    fn times_bounded(self) -> Limits {
        let short = |time: Duration| time.clamp(MILLISECOND, HOUR);
        let long = |time: Duration| time.clamp(MILLISECOND, 7 * DAY);
        Limits {
            first_command: short(self.first_command),
            command: short(self.command),
            data_block: short(self.data_block),
            data_total: long(self.data_total),
            session_total: long(self.session_total),
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
        assert_eq!(Limits::default().bounded(), Limits::default());
    }

    #[test]
    fn absurd_numbers_are_brought_back() {
        let absurd = Limits {
            connections: 0,
            command_line_bytes: u32::MAX,
            errors: 0,
            message_bytes: u64::MAX,
            command: Duration::MAX,
            ban_longest: Duration::ZERO,
            ..Limits::default()
        };
        let sane = absurd.bounded();
        assert_eq!((sane.connections, sane.errors, sane.command_line_bytes), (1, 1, 65_536));
        assert_eq!((sane.message_bytes, sane.command), (Limits::MESSAGE_BYTES_MAX, HOUR));
        assert_eq!(sane.ban_longest, sane.ban_first);
    }
}
