//! Where the sample of an attempt comes from: the store of this machine, or another machine of the lab.
//!
//! A sample that was fetched is kept beside the jobs and is gone with its attempt: only machines that took it in store it.

use std::fs::File;
use std::io::Seek;
use std::path::{Path, PathBuf};
use tokio::sync::{mpsc, oneshot};
use weir_store::samples::{SampleError, SampleHash, Samples};

/// A sample that is wanted in a file of this machine.
#[derive(Debug)]
pub struct Fetch {
    /// The sample.
    pub hash: SampleHash,
    /// The file, which is not there yet.
    pub to: PathBuf,
    /// Whether it is there, verified, or why not.
    pub answer: oneshot::Sender<Result<(), String>>,
}

#[derive(Debug)]
pub(super) struct Source {
    jobs: PathBuf,
    samples: Samples,
    fetch: Option<mpsc::Sender<Fetch>>,
}

impl Source {
    pub(super) fn new(jobs: PathBuf, samples: Samples, fetch: Option<mpsc::Sender<Fetch>>) -> Source {
        Source { jobs, samples, fetch }
    }

    /// The sample of an attempt, verified.
    pub(super) async fn sample(&self, attempt: u64, hash: SampleHash) -> Result<Sample, String> {
        let samples = self.samples.clone();
        let opened = tokio::task::spawn_blocking(move || samples.open_verified(hash));
        match (opened.await.map_err(|error| error.to_string())?, &self.fetch) {
            (Ok(file), _) => Ok(Sample { file, fetched: None, store: self.samples.clone() }),
            (Err(SampleError::Io(error)), Some(fetch)) if error.kind() == std::io::ErrorKind::NotFound => {
                self.fetched(attempt, hash, fetch).await
            }
            (Err(error), _) => Err(format!("the sample cannot be read: {error}")),
        }
    }

    async fn fetched(&self, attempt: u64, hash: SampleHash, fetch: &mpsc::Sender<Fetch>) -> Result<Sample, String> {
        let to = self.jobs.join(format!("{attempt}.sample"));
        let fetched = Fetched(to.clone());
        let (answer, asked) = oneshot::channel();
        let gone = |_| "the lab's network is gone".to_owned();
        fetch.send(Fetch { hash, to, answer }).await.map_err(|_| gone(()))?;
        asked.await.map_err(|_| gone(()))??;
        let file = File::open(&fetched.0).map_err(|error| format!("the sample cannot be read: {error}"))?;
        Ok(Sample { file, fetched: Some(fetched), store: self.samples.clone() })
    }
}

/// The sample of an attempt.
#[derive(Debug)]
pub(super) struct Sample {
    file: File,
    fetched: Option<Fetched>,
    store: Samples,
}

impl Sample {
    /// Where this machine keeps samples: what is found inside goes there too.
    pub(super) fn store(&self) -> &Samples {
        &self.store
    }

    /// To be read from its beginning.
    pub(super) fn open(&self) -> std::io::Result<File> {
        // Two that are open share one place to read from, unless they were opened apart.
        match &self.fetched {
            Some(Fetched(path)) => File::open(path),
            None => {
                let mut file = self.file.try_clone()?;
                file.rewind()?;
                Ok(file)
            }
        }
    }
}

/// Removed when it is done with.
#[derive(Debug)]
struct Fetched(PathBuf);

impl Drop for Fetched {
    fn drop(&mut self) {
        let remove = |path: &Path| match std::fs::remove_file(path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                tracing::warn!(path = %path.display(), %error, "a fetched sample cannot be removed");
            }
            _ => {}
        };
        remove(&self.0);
    }
}
