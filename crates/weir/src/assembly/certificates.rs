//! Sets up the keeper that gets certificates from an authority, from the section `[certificates]`.

use super::machine_name;
use crate::config::Config;
use anyhow::Context;
use serde_json::json;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::net::{TcpListener, TcpSocket};
use tokio::task::JoinHandle;
use weir_acme::shared::Sharing;
use weir_acme::{Alarm, CertificateFolder, CertificateKeeper, respond};
use weir_foundation::random::random;
use weir_foundation::supervision::keep_running;
use weir_foundation::webhook::Calls;
use weir_store::records::Records;
use weir_tls::NamedCertificates;

/// How long to wait before an address that is taken is tried again.
const REST: Duration = Duration::from_secs(60);
const BACKLOG: u32 = 128;

/// The certificates of this process. All gates serve from them.
#[derive(Clone)]
pub(crate) struct Certificates {
    pub(crate) named: Arc<NamedCertificates>,
    sharing: Arc<Sharing>,
    folder: Option<CertificateFolder>,
}

impl Certificates {
    /// Reads the certificates that were obtained before. No authority is asked yet.
    pub(crate) fn open(config: &Config, data: &Path) -> anyhow::Result<Certificates> {
        let settings = &config.certificates;
        if !settings.is_on() {
            let named = Arc::default();
            return Ok(Certificates { named, sharing: Arc::new(Sharing::Alone), folder: None });
        }
        let path = data.join("tls").join("acme");
        let folder = CertificateFolder::open(&path).with_context(|| format!("{} cannot be made", path.display()))?;
        let owner = || format!("{} {}", machine_name(), weir_store::hex(&random::<8>()));
        let shared = config.store.records.is_some();
        let sharing = if shared { Sharing::with_others(owner()) } else { Sharing::Alone };
        let named = Arc::new(folder.load(&settings.names));
        Ok(Certificates { named, sharing: Arc::new(sharing), folder: Some(folder) })
    }

    /// Called when the records are open: other machines may have obtained certificates since.
    pub(crate) fn records_opened(&self, records: &Records) {
        self.sharing.opened(records);
    }

    /// Starts the tasks that obtain and renew certificates, if certificates are configured.
    pub(crate) fn start(&self, config: &Config) -> Vec<JoinHandle<()>> {
        let Some(folder) = self.folder.clone() else { return Vec::new() };
        let listen = &config.certificates.listen;
        let answer = |address: &SocketAddr| {
            // A socket on `[::]` would also take the port of 0.0.0.0.
            let only_v6 = listen.iter().any(|other| other.is_ipv4() && other.port() == address.port());
            let (address, named) = (*address, Arc::clone(&self.named));
            keep_running("certificate answers", move || answer_at(address, only_v6, Arc::clone(&named)))
        };
        let mut tasks: Vec<_> = listen.iter().map(answer).collect();
        let calls = config.notices.webhook.clone().map(Calls::start);
        let (settings, this) = (config.certificates.clone(), self.clone());
        tasks.push(keep_running("certificates", move || {
            let (named, sharing, calls) = (Arc::clone(&this.named), Arc::clone(&this.sharing), calls.clone());
            let raise = move |alarm: Alarm| raise(&alarm, calls.as_ref());
            CertificateKeeper::new(settings.clone(), folder.clone(), named, sharing, raise).run()
        }));
        tasks
    }
}

/// Answers the authority at this address. If the port is taken, this is tried again; the gates run anyway.
async fn answer_at(address: SocketAddr, only_v6: bool, named: Arc<NamedCertificates>) {
    loop {
        match listen(address, only_v6) {
            Ok(listener) => respond(listener, Arc::clone(&named)).await,
            Err(error) => {
                tracing::error!(%address, %error, "certificates.listen: Weir cannot listen at this address; it will be tried again");
            }
        }
        tokio::time::sleep(REST).await;
    }
}

/// The port may be used again at once, because the program that we replaced may not have closed it yet.
fn listen(address: SocketAddr, only_v6: bool) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    if only_v6 && address.is_ipv6() {
        rustix::net::sockopt::set_ipv6_v6only(&socket, true)?;
    }
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

fn raise(alarm: &Alarm, calls: Option<&Calls>) {
    let Alarm { name, until, problem } = alarm;
    let left = until.and_then(|until| until.duration_since(SystemTime::now()).ok());
    let hours_left = left.map(|left| left.as_secs() / 3600);
    tracing::error!(name, ?hours_left, problem, "a certificate expires soon, and no new one can be obtained");
    if let Some(calls) = calls {
        let until = until.and_then(|until| until.duration_since(UNIX_EPOCH).ok()).map(|since| since.as_secs());
        let id = format!("certificate-{name}-{}", until.unwrap_or_default());
        calls.add(json!({ "id": id, "event": "certificate", "name": name, "until": until, "problem": problem }));
    }
}
