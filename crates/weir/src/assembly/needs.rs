//! What the gates of a configuration need of this machine before they can start.

use super::mail_is_wanted;
use crate::config::Loaded;
use std::net::SocketAddr;
use weir_tls::CertificateFiles;

/// The addresses on which they would listen, except those whose port the system chooses.
pub(crate) fn addresses(loaded: &Loaded) -> Vec<SocketAddr> {
    let config = &loaded.config;
    let mail = mail_is_wanted(config, loaded, false);
    let web = config.web.enabled && !config.web.backends.is_empty();
    let lists = [
        (mail, &config.submission.listen),
        (mail, &config.submission.listen_tls),
        (mail, &config.inbound.listen),
        (web, &config.web.listen),
        (web, &config.web.listen_tls),
        (config.console.enabled, &config.console.listen),
    ];
    let wanted = lists.into_iter().filter(|(wanted, _)| *wanted).flat_map(|(_, list)| list.iter().copied());
    wanted.filter(|address| address.port() != 0).collect()
}

/// The certificates that they would show.
pub(crate) fn certificates(loaded: &Loaded) -> Vec<CertificateFiles> {
    let config = &loaded.config;
    let mail = config.submission.certificate().filter(|_| config.submission.enabled);
    let web = config.web.certificate().filter(|_| config.web.enabled);
    let others = config.web.certificates.iter().map(|rule| rule.0.clone());
    mail.into_iter().chain(web).chain(others).collect()
}
