//! What the gates of a configuration need of this machine before they can start: the addresses they listen on, and their certificate files.

use super::mail_is_wanted;
use crate::config::Loaded;
use std::net::SocketAddr;
use weir_tls::CertificateFiles;

/// An address at which something would listen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Listener {
    /// The setting that names it.
    pub(crate) setting: &'static str,
    pub(crate) address: SocketAddr,
}

/// The setting for the port at which Weir answers the certificate authority. It belongs to no gate, and if the port is taken it is simply
/// tried again.
const AUTHORITY: &str = "certificates.listen";

/// All addresses at which the gates would listen, except ports that the system chooses.
pub(crate) fn listeners(loaded: &Loaded) -> Vec<Listener> {
    let config = &loaded.config;
    let mail = mail_is_wanted(config, loaded, false);
    let web = config.web.enabled && !config.web.backends.is_empty();
    let lists = [
        (mail, "submission.listen", &config.submission.listen),
        (mail, "submission.listen_tls", &config.submission.listen_tls),
        (mail, "inbound.listen", &config.inbound.listen),
        (mail, "inbound.listen_lmtp", &config.inbound.listen_lmtp),
        (mail, "scan.clamd_door.listen", &config.clamd_door.listen),
        (mail, "milter.listen", &config.milter.listen),
        (mail, "policy_service.listen", &config.policy_service.listen),
        (web, "web.listen", &config.web.listen),
        (web, "web.listen_tls", &config.web.listen_tls),
        (web, "web.forward_auth.listen", &config.web_forward_auth.listen),
        (config.certificates.is_on(), AUTHORITY, &config.certificates.listen),
        (config.console.enabled, "console.listen", &config.console.listen),
    ];
    let wanted = lists.into_iter().filter(|(wanted, ..)| *wanted);
    let listeners =
        wanted.flat_map(|(_, setting, list)| list.iter().map(move |address| Listener { setting, address: *address }));
    listeners.filter(|listener| listener.address.port() != 0).collect()
}

/// The addresses without which a gate would not start.
pub(crate) fn addresses(loaded: &Loaded) -> Vec<SocketAddr> {
    let of_gates = listeners(loaded).into_iter().filter(|listener| listener.setting != AUTHORITY);
    of_gates.map(|listener| listener.address).collect()
}

/// The certificate files that the gates would use.
pub(crate) fn certificates(loaded: &Loaded) -> Vec<CertificateFiles> {
    let config = &loaded.config;
    let mail = config.submission.certificate().filter(|_| config.submission.enabled);
    let web = config.web.certificate().filter(|_| config.web.enabled);
    let others = config.web.certificates.iter().map(|rule| rule.0.clone());
    mail.into_iter().chain(web).chain(others).collect()
}
