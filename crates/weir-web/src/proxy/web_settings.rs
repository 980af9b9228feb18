//! The section `[web]`: settings of the whole gate, and defaults for all backends.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

use weir_settings::{Group, Section, settings};
use weir_tls::CertificateFiles;

use super::backend::{Backend, BackendRule, Trust};
use super::listener::Listener;
use crate::identity::{Network, holds_all_ipv4, names_everybody};
use crate::keys::{KeySettings, Keys};
use crate::log::LogSettings;
use crate::network_lists::{ListError, NetworkLists};
use crate::route::Rule;
use crate::waiting_page::WaitingPage;

settings! {
    /// The web gate: HTTP servers and who may use them next
    #[section("web")]
    #[check(WebSettings::check)]
    pub struct WebSettings {
        /// Whether the web gate runs; it needs a backend
        pub enabled: bool = flag(true),
        /// Where plain HTTP (1.1 and 2) is spoken; port 0 is any free one
        pub listen: Vec<SocketAddr> =
            list([SocketAddr::from((Ipv4Addr::LOCALHOST, 2480))], 64, "addresses with ports"),
        /// Where HTTPS is spoken
        pub listen_tls: Vec<SocketAddr> = list([], 64, "addresses with ports"),
        /// The certificate with its chain, as PEM; empty for a self-signed one made at first start
        pub certificate: Option<PathBuf> = path().optional(),
        /// The private key of the certificate, as PEM
        pub key: Option<PathBuf> = path().optional(),
        /// Further certificates for other host names, each "chain.pem key.pem"; a client is shown the one for the name that it asks for
        pub certificates: Vec<CertificateRule> = list([], 256, "certificates"),
        /// Send every plain request to https at this port; 0 is off
        pub redirect as "redirect_port": Option<u16> = count(0, 0..=65_535).optional(),
        /// Threads that carry traffic; 0 is one for each processor
        pub threads: usize = count(0, 0..=256),
        /// Who does the work: a name, servers, and what differs from below, such as "app 10.0.0.1:8080 10.0.0.2:8080 slots=8
        /// health=/alive"; unbuffered passes bodies on as they come, streams=slots lets WebSockets and event streams hold a slot;
        /// unix:/path is a Unix socket; https://host:port is spoken to over TLS (sni=NAME for another name than the host's, unverified for
        /// any certificate); forward_auth in place of servers is for sites that another proxy carries (see web.forward_auth); `weir up
        /// --demo` has a small one of its own if there is none
        pub backends: Vec<BackendRule> = list([], 256, "backends"),
        /// Certificates of authorities to trust for servers with https://, as PEM; empty for those that the machine trusts
        pub server_ca_file: Option<PathBuf> = path().optional(),
        /// Which requests go where, by host and path: "example.org/api app", "*.example.org app", "* site"; none is all to the first
        /// backend; "example.org/live app unbuffered" passes bodies on as they come; cost=400ms is what a request is taken to cost until
        /// one was measured; units=usage.total_tokens:500/s charges what the response's JSON says, 500 of it for a second of a slot
        /// (units_header=x-cost:500/s for a header)
        pub routes: Vec<Rule> = list([], 10_000, "routes"),
        /// The cookie that your application sets when somebody signs in: that visitor is then known; empty for none
        pub sign_in_cookie: String = text("", "a cookie name").valid(|name| {
            let known = |octet: u8| octet.is_ascii_alphanumeric() || b"_-.".contains(&octet);
            if name.bytes().all(known) { Ok(()) } else { Err(format!("{name:?} is no name of a cookie")) }
        }),
        /// Networks that are served as known visitors, such as those of search engines that may look at the site
        pub known_networks: Vec<Network> = networks(10_000),
        /// Files of such networks: one network on each line, or the JSON that search engines publish
        pub known_network_files: Vec<String> = list([], 64, "files"),
        /// Networks that are refused with 403
        pub denied_networks: Vec<Network> = networks(10_000),
        /// Files of such networks
        pub denied_network_files: Vec<String> = list([], 64, "files"),
        /// Clients that are known by a key.
        pub keys: KeySettings = part(),
        /// None for none.
        pub log: Option<LogSettings> = part_by(log),
        /// What a browser sees that has to wait.
        pub waiting: WaitingPage = part(),
        /// A folder with pages such as 503.html; empty for the built-in ones
        pub error_pages: Option<PathBuf> = path().optional(),
        /// Whether responses say how long the request waited
        pub server_timing: bool = flag(false),
        /// What a backend is like whose rule says nothing else.
        pub usual: Backend = part(),
    }
}

/// Cookies that frameworks set at the first request, in small letters.
const FOR_EVERYBODY: [&str; 8] = [
    "phpsessid",
    "jsessionid",
    "asp.net_sessionid",
    "connect.sid",
    "laravel_session",
    "csrftoken",
    "xsrf-token",
    "_csrf",
];

/// A certificate and its key, written as two paths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateRule(pub CertificateFiles);

weir_settings::text_value!(CertificateRule: "\"/etc/ssl/shop.pem /etc/ssl/shop.key\"");

impl FromStr for CertificateRule {
    type Err = String;

    fn from_str(text: &str) -> Result<CertificateRule, String> {
        match text.split_whitespace().collect::<Vec<_>>()[..] {
            [chain, key] => Ok(CertificateRule(CertificateFiles { chain: chain.into(), key: key.into() })),
            _ => Err(format!("{text:?} is not a certificate: write the path of its chain and that of its key")),
        }
    }
}

impl fmt::Display for CertificateRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.0.chain.display(), self.0.key.display())
    }
}

/// Whether who connects to this server comes to our own listener.
fn is_reached(own: &SocketAddr, server: &SocketAddr) -> bool {
    let (at, to) = (own.ip().to_canonical(), server.ip().to_canonical());
    own.port() == server.port() && (at == to || to.is_unspecified() || (at.is_unspecified() && to.is_loopback()))
}

fn log(section: &mut Section<'_, '_>) -> Option<LogSettings> {
    Some(LogSettings::read(section)).filter(|log| !log.path.as_os_str().is_empty())
}

impl WebSettings {
    fn check(&self, section: &mut Section<'_, '_>) {
        if self.certificate.is_some() != self.key.is_some() {
            section.blame("certificate", "certificate and key belong together".into(), "set both, or neither");
        }
        if self.enabled && self.listen.is_empty() && self.listen_tls.is_empty() {
            section.blame("listen", "nothing would listen".into(), "give listen or listen_tls an address");
        }
        let names: Vec<&str> = self.backends.iter().map(|backend| backend.name.as_str()).collect();
        if let Some(twice) = names.iter().enumerate().find(|(at, name)| names[..*at].contains(name)) {
            section.blame("backends", format!("{:?} is there twice", twice.1), "give every backend its own name");
        }
        for route in self.routes.iter().filter(|route| !names.contains(&route.backend.as_str())) {
            section.blame("routes", format!("{:?} leads to no backend", route.to_string()), "name it in backends");
        }
        self.check_circles(section);
        self.check_lists(section);
        self.check_keys(section);
    }

    /// A gate that is its own server passes one request round until every slot is taken.
    fn check_circles(&self, section: &mut Section<'_, '_>) {
        let own = self.listen.iter().chain(&self.listen_tls).filter(|own| own.port() != 0);
        let own: Vec<&SocketAddr> = own.collect();
        for backend in &self.backends {
            let servers = backend.servers.iter().filter_map(|server| {
                server.strip_prefix("https://").unwrap_or(server).replace("localhost:", "127.0.0.1:").parse().ok()
            });
            let mut servers = servers.filter(|server: &SocketAddr| own.iter().any(|own| is_reached(own, server)));
            if let Some(server) = servers.next() {
                let what = format!("{:?} leads to {server}, which is our own port", backend.name);
                section.blame("backends", what, "name the server that does the work");
            }
        }
    }

    fn check_lists(&self, section: &mut Section<'_, '_>) {
        if names_everybody(&self.known_networks) {
            section.blame(
                "known_networks",
                ListError::AllKnown.to_string(),
                "name the networks of those whom you know",
            );
        }
        let nobody_known = self.known_networks.is_empty() && self.known_network_files.is_empty();
        if nobody_known && holds_all_ipv4(&self.denied_networks) {
            let hint = "deny less, or name in known_networks who may come";
            section.blame("denied_networks", ListError::AllDenied.to_string(), hint);
        }
    }

    fn check_keys(&self, section: &mut Section<'_, '_>) {
        let (named, brings) = (!self.keys.header.is_empty(), self.keys.has_keys());
        match (named, brings) {
            (false, true) => section.blame(
                "key_header",
                "there are keys, and no header is named that clients bring them in".into(),
                "write key_header = \"authorization\"",
            ),
            (true, false) => section.blame(
                "key_header",
                "there are no keys to compare with".into(),
                "name keys_file, token_secret_file or token_keys_file",
            ),
            _ => {}
        }
    }

    /// What is wrong with the files that are named here: lists of networks, and keys. They may be there for the gate alone, so they are not looked at
    /// wherever the configuration is read.
    pub fn file_problems(&self) -> Vec<String> {
        let lists = self.lists().err().map(|error| error.to_string());
        lists.into_iter().chain(Keys::read(&self.keys).err().map(|error| error.to_string())).collect()
    }

    /// A cookie that frameworks set for everybody would make everybody known.
    pub fn sign_in_warning(&self) -> Option<String> {
        let name = self.sign_in_cookie.to_ascii_lowercase();
        FOR_EVERYBODY.contains(&name.as_str()).then(|| {
            format!(
                "web.sign_in_cookie: many applications set {:?} for everybody who comes, and then nobody is a stranger; name a cookie that is set at \
                 the sign-in alone",
                self.sign_in_cookie
            )
        })
    }

    /// Who is known, and who is refused, by network.
    pub(super) fn lists(&self) -> Result<NetworkLists, ListError> {
        NetworkLists::read(
            (&self.known_networks, &self.known_network_files),
            (&self.denied_networks, &self.denied_network_files),
        )
    }

    /// The certificate's files, if there are any.
    pub fn certificate(&self) -> Option<CertificateFiles> {
        let (chain, key) = (self.certificate.clone(), self.key.clone());
        chain.zip(key).map(|(chain, key)| CertificateFiles { chain, key })
    }

    /// Where to listen, and for what.
    pub fn listeners(&self, proxy_protocol: bool) -> Vec<Listener> {
        let listener = |tls| move |at: &SocketAddr| Listener { tls, proxy_protocol, ..Listener::plain(*at) };
        let plain = self.listen.iter().map(listener(false)).map(|plain| Listener { redirect: self.redirect, ..plain });
        plain.chain(self.listen_tls.iter().map(listener(true))).collect()
    }

    pub fn backend(&self, rule: &BackendRule) -> Backend {
        let trust = Trust { ca_file: self.server_ca_file.clone(), ..Trust::default() };
        rule.over(Backend { trust, ..self.usual.clone() })
    }

    /// Which requests go to which of these backends.
    pub fn rules(&self, backends: &[Backend]) -> Vec<Rule> {
        match (self.routes.is_empty(), backends.first()) {
            (true, Some(first)) => {
                vec![Rule::all_to(&first.admission.name)]
            }
            _ => self.routes.clone(),
        }
    }

    /// How many threads carry traffic.
    pub(super) fn thread_count(&self) -> usize {
        match self.threads {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            number => number,
        }
        .clamp(1, 256)
    }
}
