//! [`Pulse`]: a snapshot of all gates at one moment, from which the overview, the charts and the metrics are drawn.

use crate::gates::Gates;
use std::path::PathBuf;
use std::time::Instant;
use weir_foundation::clock::wall_clock;
use weir_foundation::directory::Directory;
use weir_foundation::supervision::GateView;
use weir_foundation::upkeep::{BackupAge, Disk};
use weir_lab::operations::LabStatus;
use weir_mail::operations::{BusyView, MailStatus, QuarantineTotal};
use weir_mail::scan::FeedsStatus;
use weir_store::records::RecordsError;
use weir_tls::CertificateState;
use weir_web::admission::SessionView;

/// How many users an overview names.
const BUSY: i64 = 20;
/// How many open incidents an overview names.
const INCIDENTS: i64 = 5;
/// For how many sessions shares are computed: those with the most requests.
pub(crate) const SESSIONS: usize = 100;
/// How many sessions are counted.
const COUNTED: usize = 100_000;

/// The state of all gates at one moment. What could not be read is missing, and listed in `problems`.
#[derive(Debug)]
pub(crate) struct Pulse {
    /// When reading it began.
    pub(crate) begun: Instant,
    pub(crate) status: Option<MailStatus>,
    pub(crate) busy: Vec<BusyView>,
    pub(crate) quarantine: Vec<QuarantineTotal>,
    pub(crate) feeds: Option<FeedsStatus>,
    pub(crate) web: Option<weir_web::view::Status>,
    /// The sessions with the most requests.
    pub(crate) sessions: Vec<SessionView>,
    /// How many sessions have requests.
    pub(crate) asking: usize,
    pub(crate) lab: Option<LabStatus>,
    /// The state of each gate that should run; empty if no process runs.
    pub(crate) gates: Vec<GateView>,
    /// The disk under the data folder.
    pub(crate) disk: Option<Disk>,
    /// How old the last backup is.
    pub(crate) backup: Option<BackupAge>,
    /// Certificates that clients get.
    pub(crate) certificates: Vec<CertificateView>,
    /// Those that Weir gets from an authority.
    pub(crate) named: Vec<CertificateState>,
    /// Why the directory cannot be asked, if that is so.
    pub(crate) directory: Option<String>,
    /// Incidents that are open.
    pub(crate) incidents: OpenIncidents,
    /// What failed while reading: the part and the error.
    pub(crate) problems: Vec<(&'static str, String)>,
}

/// Incidents that are open: how many, and the first of them, each with its number and its headline.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct OpenIncidents {
    pub(crate) count: i64,
    pub(crate) first: Vec<(i64, String)>,
}

/// How long a certificate is valid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CertificateView {
    /// The gate that shows it.
    pub(crate) of: &'static str,
    /// In seconds since the Unix epoch; or why that is not known.
    pub(crate) ends: Result<i64, String>,
}

impl Pulse {
    pub(crate) async fn take(gates: &Gates) -> Pulse {
        let begun = Instant::now();
        let mut problems = Vec::new();
        let mut note = |part: &'static str, problem: String| problems.push((part, problem));
        let status = gates.mail.status.show().await.map_err(|error| note("mail", error.to_string())).ok();
        let busy = gates.mail.throttles.busy(BUSY).await.map_err(|error| note("mail", error.to_string()));
        let quarantine = gates.mail.quarantine.totals().await.map_err(|error| note("scan", error.to_string()));
        let lab = match &gates.lab {
            Some(node) => node.status().await.map_err(|error| note("lab", error.to_string())).ok(),
            None => None,
        };
        let upkeep = &gates.administration.upkeep;
        let backup = upkeep.backup().await.map_err(|error| note("backup", error.to_string())).ok();
        let incidents = open_incidents(gates).await.map_err(|error| note("incidents", error.to_string()));
        if let Err(error) = gates.administration.audit.try_write().await {
            note("audit", error.to_string());
        }
        let certificates = certificates(gates, status.as_ref()).await;
        let mut sessions = gates.web.as_ref().map(|gate| gate.sessions(COUNTED)).unwrap_or_default();
        let asking = sessions.len();
        sessions.sort_by_key(|session| std::cmp::Reverse(session.waiting + session.running));
        sessions.truncate(SESSIONS);
        Pulse {
            begun,
            status,
            busy: busy.unwrap_or_default(),
            quarantine: quarantine.unwrap_or_default(),
            feeds: gates.mail.feeds.status().ok().filter(|feeds| feeds.enabled),
            web: gates.web.as_ref().map(|gate| gate.status()),
            sessions,
            asking,
            lab,
            gates: gates.states.view(wall_clock()).into_iter().filter(GateView::is_wanted).collect(),
            disk: upkeep.disk(),
            backup,
            certificates,
            named: gates.certificates.states(),
            directory: gates.administration.directory.as_ref().and_then(Directory::problem),
            incidents: incidents.unwrap_or_default(),
            problems,
        }
    }

    /// Users whom the throttle or a person has stopped.
    pub(crate) fn stopped(&self) -> impl Iterator<Item = &BusyView> {
        self.busy.iter().filter(|busy| busy.throttle.state == "stopped")
    }

    /// Messages in a quarantine, or in all of them.
    pub(crate) fn quarantined(&self, queue: &str) -> i64 {
        let wanted = |total: &&QuarantineTotal| queue.is_empty() || total.queue == queue;
        self.quarantine.iter().filter(wanted).map(|total| total.messages).sum()
    }

    /// Requests that wait for a web server.
    pub(crate) fn web_waiting(&self) -> usize {
        self.web.iter().flat_map(|web| &web.backends).map(|backend| backend.queue.waiting).sum()
    }

    pub(crate) fn samples(&self, state: &str) -> i64 {
        let states = self.lab.iter().flat_map(|lab| &lab.states);
        states.filter(|count| count.state == state).map(|count| count.samples).sum()
    }

    /// Samples that have not ended.
    pub(crate) fn samples_open(&self) -> i64 {
        match self.lab.as_ref().and_then(|lab| lab.open) {
            Some(open) => open as i64,
            None => self.samples("queued") + self.samples("running"),
        }
    }

    /// A pulse without any information.
    #[cfg(test)]
    pub(crate) fn blind() -> Pulse {
        Pulse {
            begun: Instant::now(),
            status: None,
            busy: Vec::new(),
            quarantine: Vec::new(),
            feeds: None,
            web: None,
            sessions: Vec::new(),
            asking: 0,
            lab: None,
            gates: Vec::new(),
            disk: None,
            backup: None,
            certificates: Vec::new(),
            named: Vec::new(),
            directory: None,
            incidents: OpenIncidents::default(),
            problems: Vec::new(),
        }
    }
}

async fn open_incidents(gates: &Gates) -> Result<OpenIncidents, RecordsError> {
    let (rows, count) = gates.administration.foundation.records.incidents().open_now(INCIDENTS).await?;
    let first = rows.iter().map(|row| (row.id, row.headline())).collect();
    Ok(OpenIncidents { count, first })
}

/// The certificates of the gates that run. Their files are small, and are read each time because they are renewed while Weir runs.
async fn certificates(gates: &Gates, mail: Option<&MailStatus>) -> Vec<CertificateView> {
    let mail = mail.and_then(|status| status.gate.as_ref()?.certificate.clone()).map(|chain| ("mail", chain));
    let web = gates.web.as_ref().and_then(|gate| gate.settings().tls).map(|tls| ("web", tls.files().chain.clone()));
    let files: Vec<(&'static str, PathBuf)> = mail.into_iter().chain(web).collect();
    let read = |(of, chain): (&'static str, PathBuf)| CertificateView {
        of,
        ends: weir_tls::not_after(&chain).map_err(|error| error.to_string()),
    };
    tokio::task::spawn_blocking(move || files.into_iter().map(read).collect()).await.unwrap_or_default()
}
