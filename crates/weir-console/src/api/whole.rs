//! Operations that belong to no single gate: whether the process is alive, status, audit trail, DKIM keys, backup.

use super::call::Call;
use super::operation::{Operation, administer, look, measure};
use super::problem::Problem;
use super::table::Table;
use crate::gates::Gates;
use crate::health::Health;
use crate::pulse::Pulse;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::UNIX_EPOCH;
use weir_foundation::OperationError;
use weir_foundation::audit::{AuditCheckView, AuditView};
use weir_foundation::backup::{BackupDone, Passphrase};
use weir_foundation::clock::wall_clock;
use weir_foundation::date::asked_time;
use weir_foundation::supervision::GateView;
use weir_mail::operations::{KeyView, MailStatus, NewKey};
use weir_store::records::AuditFilter;
use weir_tls::CertificateState;

/// Whether the process answers.
pub const ALIVE: Operation<(), Alive> = measure("/alive", "Whether somebody is there, whatever the store is doing");
/// The state of the whole.
pub const STATUS: Operation<(), WholeStatus> = look("/status", "How the whole is doing");
/// Whether everything works, and what needs a person.
pub const HEALTH: Operation<(), Health> =
    measure("/health", "Is all well? One verdict over all gates, the backup, the certificates and the disk");
/// Who did what.
pub const AUDIT: Operation<Trail, Vec<AuditView>> = look("/audit", "Who did what, the newest first");
/// Whether the audit trail is unchanged.
pub const CHECK_AUDIT: Operation<(), AuditCheckView> =
    look("/audit/check", "Whether every line of the audit trail is as it was written, and none is missing");
/// Copies the data folder.
pub const BACKUP: Operation<BackupTo, BackupDone> =
    administer("/backup", "Copies the data folder; only over the control socket");
/// Keys that outgoing mail is signed with.
pub const KEYS: Operation<(), Vec<KeyView>> = look("/dkim", "Keys that outgoing mail is signed with");
/// Makes a key.
pub const ADD_KEY: Operation<NewKey, KeyView> = administer("/dkim", "Makes a key").makes();

pub(super) fn operations(table: Table<Gates>) -> Table<Gates> {
    table
        .with(ALIVE, alive)
        .with(STATUS, status)
        .with(HEALTH, health)
        .with(AUDIT, audit)
        .with(CHECK_AUDIT, check_audit)
        .with(BACKUP, backup)
        .with(KEYS, keys)
        .with(ADD_KEY, add_key)
}

/// Which lines of the audit trail.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Trail {
    /// About this user or thing; empty for all.
    #[serde(default)]
    pub subject: String,
    /// By people whose name contains this, such as `olga` for `web:olga`.
    #[serde(default)]
    pub who: String,
    /// Whose action begins like this, such as `held` or `held.release`.
    #[serde(default)]
    pub what: String,
    /// Not before this time, or an age such as `2h`.
    #[serde(default)]
    pub since: String,
    /// Before this time or age.
    #[serde(default)]
    pub until: String,
    /// This many at most.
    #[serde(default = "hundred")]
    pub lines: i64,
}

impl Trail {
    /// The filter for the records.
    fn filter(&self) -> Result<AuditFilter, OperationError> {
        Ok(AuditFilter {
            subject: self.subject.clone(),
            who: self.who.clone(),
            what: self.what.clone(),
            since: asked_time(&self.since)?,
            until: asked_time(&self.until)?,
        })
    }
}

fn hundred() -> i64 {
    100
}

/// Where a backup goes.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BackupTo {
    /// A new or empty folder on this machine.
    pub folder: PathBuf,
    /// The folder holds several backups: this one is put into a folder of its own there, named by its time, and shares unchanged files
    /// with the newest one.
    #[serde(default)]
    pub into: bool,
    /// If it holds several, this many are kept; 0 for all.
    #[serde(default)]
    pub keep: u32,
    /// Encrypts it with this passphrase; if it is empty, `store.backup_passphrase_file` decides.
    #[serde(default)]
    pub passphrase: String,
}

/// The process answers.
#[derive(Serialize, Deserialize, JsonSchema)]
pub struct Alive {
    /// The version of Weir.
    pub version: String,
    /// The id of the process.
    pub pid: u32,
}

/// The state of the whole, and of each gate.
#[derive(Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Status")]
pub struct WholeStatus {
    /// The mail gate, and what all gates share.
    #[serde(flatten)]
    pub status: MailStatus,
    /// None if nothing runs.
    pub gates: Vec<GateView>,
    /// Whether it was started to be tried out (`weir up --demo`).
    #[serde(default)]
    pub demo: bool,
    /// Certificates that Weir gets from an authority.
    #[serde(default)]
    pub certificates: Vec<CertificateView>,
}

/// The state of a certificate that Weir gets from an authority.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct CertificateView {
    /// The host name.
    pub name: String,
    /// When it expires, in seconds since 1970; missing if there is none yet.
    pub until: Option<u64>,
    /// Why the last attempt to get one failed; missing if it did not.
    pub problem: Option<String>,
}

impl CertificateView {
    pub(crate) fn of(state: CertificateState) -> CertificateView {
        let until = state.validity.and_then(|validity| validity.until.duration_since(UNIX_EPOCH).ok());
        CertificateView { name: state.name, until: until.map(|since| since.as_secs()), problem: state.problem }
    }
}

/// Answers at once, whatever the state of the store.
async fn alive(_: Call<Gates>, (): ()) -> Result<Alive, Problem> {
    Ok(Alive { version: env!("CARGO_PKG_VERSION").to_owned(), pid: std::process::id() })
}

async fn status(call: Call<Gates>, (): ()) -> Result<WholeStatus, Problem> {
    let gates = call.state.states.view(wall_clock()).into_iter().filter(GateView::is_wanted).collect();
    let certificates = call.state.certificates.states().into_iter().map(CertificateView::of).collect();
    Ok(WholeStatus { status: call.state.mail.status.show().await?, gates, demo: call.state.demo, certificates })
}

async fn health(call: Call<Gates>, (): ()) -> Result<Health, Problem> {
    Ok(match call.state.states.view(wall_clock()).iter().any(GateView::is_wanted) {
        true => Health::of(&Pulse::take(&call.state).await),
        false => Health::of_nothing(),
    })
}

async fn audit(call: Call<Gates>, trail: Trail) -> Result<Vec<AuditView>, Problem> {
    Ok(call.state.administration.audit.filtered(&trail.filter()?, trail.lines).await?)
}

async fn check_audit(call: Call<Gates>, (): ()) -> Result<AuditCheckView, Problem> {
    Ok(call.state.administration.audit.check().await?)
}

async fn backup(call: Call<Gates>, to: BackupTo) -> Result<BackupDone, Problem> {
    let backup = &call.state.administration.backup;
    let passphrase = match to.passphrase.as_str() {
        "" => None,
        text => Some(Passphrase::new(text)?),
    };
    Ok(match to.into {
        true => backup.make_into(&to.folder, to.keep as usize, passphrase, &call.actor).await?,
        false => backup.make(&to.folder, passphrase, &call.actor).await?,
    })
}

async fn keys(call: Call<Gates>, (): ()) -> Result<Vec<KeyView>, Problem> {
    Ok(call.state.mail.dkim.list()?)
}

async fn add_key(call: Call<Gates>, new: NewKey) -> Result<KeyView, Problem> {
    Ok(call.state.mail.dkim.add(new, &call.actor).await?)
}
