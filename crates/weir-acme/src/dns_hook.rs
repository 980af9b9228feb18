//! The challenge DNS-01: runs the operator's program (the *hook*), which sets a TXT record and removes it again.

use std::io;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;
use tokio::time::{sleep, timeout};

/// A call that takes longer is ended.
const PATIENCE: Duration = Duration::from_secs(120);

/// The program, and how long a new record takes until the authority sees it.
#[derive(Debug, Clone)]
pub(crate) struct DnsHook {
    pub(crate) program: PathBuf,
    pub(crate) wait: Duration,
}

impl DnsHook {
    /// Sets the record that proves `name`, and waits until the authority should see it.
    pub(crate) async fn set(&self, name: &str, value: &str) -> io::Result<()> {
        self.call("set", name, value).await?;
        sleep(self.wait).await;
        Ok(())
    }

    /// [`DnsHook::set`] takes no longer than this.
    pub(crate) fn set_max(&self) -> Duration {
        PATIENCE + self.wait
    }

    /// Removes the record.
    pub(crate) async fn unset(&self, name: &str, value: &str) {
        if let Err(error) = self.call("unset", name, value).await {
            tracing::warn!(name, %error, "the DNS hook did not take its record away");
        }
    }

    async fn call(&self, what: &str, name: &str, value: &str) -> io::Result<()> {
        let record = format!("_acme-challenge.{}", name.strip_prefix("*.").unwrap_or(name));
        let mut command = Command::new(&self.program);
        command.args([what, &record, value]).stdin(Stdio::null()).stdout(Stdio::null()).kill_on_drop(true);
        let failed = |why: String| io::Error::other(format!("{} {what}: {why}", self.program.display()));
        match timeout(PATIENCE, command.status()).await {
            Ok(Ok(status)) if status.success() => Ok(()),
            Ok(Ok(status)) => Err(failed(status.to_string())),
            Ok(Err(error)) => Err(failed(error.to_string())),
            Err(_) => Err(failed("it takes too long".to_owned())),
        }
    }
}
