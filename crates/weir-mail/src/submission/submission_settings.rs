//! The section `[submission]`: where users submit mail, how they log in, and which servers are trusted about their users.

use super::settings::Identity;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;
use weir_settings::{Section, settings};
use weir_smtp::network::{IpNetwork, let_in_everybody};
use weir_smtp::settings::{Auth, AuthWithoutTls};
use weir_tls::CertificateFiles;

settings! {
    /// Where users send their mail to, how they log in, and which peers are trusted
    #[section("submission")]
    #[check(SubmissionSettings::check)]
    pub struct SubmissionSettings {
        /// Whether mail is accepted and delivered at all; if this is not set, mail is off in a configuration with [web] backends or
        /// lab.enabled and without any setting about mail
        pub enabled: bool = flag(true),
        /// Our name in greetings and trace headers; empty for this machine's own
        pub hostname: Option<String> = text("", "a host name").valid(host_name).optional(),
        /// Where submission with STARTTLS listens; port 0 is any free one
        pub listen: Vec<SocketAddr> =
            list([SocketAddr::from((Ipv4Addr::LOCALHOST, 2587))], 64, "addresses with ports"),
        /// Where submission with implicit TLS listens
        pub listen_tls: Vec<SocketAddr> =
            list([SocketAddr::from((Ipv4Addr::LOCALHOST, 2465))], 64, "addresses with ports"),
        /// The certificate with its chain, as PEM; empty for a self-signed one made at first start
        pub certificate: Option<PathBuf> = path().optional(),
        /// The private key of the certificate, as PEM
        pub key: Option<PathBuf> = path().optional(),
        /// How users are told apart: by login, or by the address of their machine, and then nobody logs in
        pub identity: Identity = choice([("login", Identity::Login), ("client-address", Identity::ClientAddress)]),
        /// With client-address, the networks whose machines may send mail; empty for this machine alone
        pub clients: Vec<IpNetwork> = networks(256),
        /// Where a login without TLS is allowed: from this machine, nowhere, or from everywhere in the clear
        pub auth_without_tls: AuthWithoutTls = choice([
            ("loopback", AuthWithoutTls::Loopback),
            ("never", AuthWithoutTls::Never),
            ("everywhere", AuthWithoutTls::Everywhere),
        ]),
        /// Whether mail is taken only under TLS
        pub require_tls: bool = flag(false),
        /// Whether MAIL FROM and From must be addresses of the login
        pub sender_must_match: bool = flag(true),
        /// Whether users' mail with bare CR or LF, or with lines that are too long, is repaired instead of refused; mail from outside
        /// is always refused for it
        pub mend_text: bool = flag(true),
        /// Whether the Received field of users' mail names their login and the address of their machine, for everybody to read
        pub received_names_client: bool = flag(false),
        /// Whether users who log in to the console with their password may release their own delayed mail. A program that sends in
        /// their name may know the password too; a stopped user's mail is never released in this way
        pub users_release: bool = flag(false),
        /// How long mail of a stopped user waits for a decision; then it is deleted, its sender is told, and the account is locked
        pub keep_stopped: Duration = duration("7d", "1s"..="3650d"),
        /// Messages of one user that may wait on this relay, to be delivered or held; more are refused for now. 0 is no limit
        pub user_messages: u64 = number(20_000, 0..=1_000_000_000),
        /// The disk space that they may take. 0 is no limit
        pub user_size: u64 = size("10GiB", "0"..="1024GiB"),
        /// Peers that may use XCLIENT and XFORWARD
        pub trusted: Vec<IpNetwork> = networks(256),
        /// Peers whose topmost Received header names the user, as Postfix writes it
        pub received_from: Vec<IpNetwork> = networks(256),
        /// Dovecot's authentication socket, if the users are there; empty for our own
        pub dovecot_socket: Option<PathBuf> = path().optional(),
        /// How many passwords are checked at a time
        pub hashes_at_once: u32 = number(2, 1..=64),
        /// How long Weir waits for messages that are coming in when it stops
        pub grace: Duration = duration("10s", "100ms"..="10m"),
    }
}

impl SubmissionSettings {
    fn check(&self, section: &mut Section<'_, '_>) {
        if self.certificate.is_some() != self.key.is_some() {
            section.blame("certificate", "certificate and key belong together".into(), "set both, or neither");
        }
        let lists = [("clients", &self.clients), ("trusted", &self.trusted), ("received_from", &self.received_from)];
        for (key, _) in lists.into_iter().filter(|(_, networks)| let_in_everybody(networks)) {
            let what = "everybody could send mail through this relay: an open relay".to_owned();
            section.blame(key, what, "list the networks of your own machines only");
        }
        if self.identity == Identity::ClientAddress && self.clients.is_empty() && self.is_public() {
            let what = "nobody logs in with this, and it does not say whose machines may hand in mail".to_owned();
            section.blame("identity", what, "name their networks: clients = [\"192.0.2.0/24\"]");
        }
        if self.listen.is_empty() && self.listen_tls.is_empty() {
            section.blame("listen", "nothing would listen".into(), "give listen or listen_tls an address");
        }
    }

    /// Whether other machines reach it.
    pub fn is_public(&self) -> bool {
        self.enabled
            && self.listen.iter().chain(&self.listen_tls).any(|address| !address.ip().to_canonical().is_loopback())
    }

    /// The certificate's files, if there are any.
    pub fn certificate(&self) -> Option<CertificateFiles> {
        let (chain, key) = (self.certificate.clone(), self.key.clone());
        chain.zip(key).map(|(chain, key)| CertificateFiles { chain, key })
    }

    /// A login cannot be demanded of everybody: an order by mail comes from anybody who has its address, and some peers
    /// name the user in a header. Submission itself refuses recipients to those who are nobody.
    pub(crate) fn auth(&self) -> Auth {
        match self.identity {
            Identity::ClientAddress => Auth::Off,
            Identity::Login => Auth::Optional,
        }
    }
}

fn host_name(text: &str) -> Result<(), String> {
    let label = |label: &str| {
        (1..=63).contains(&label.len()) && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    match text.is_empty() || (text.len() <= 253 && text.split('.').all(label)) {
        true => Ok(()),
        false => Err(format!("{text:?} is not a host name: write letters, digits, hyphens and dots")),
    }
}
