//! Where the sample of an attempt comes from: the store of this machine, or another machine of the lab.
//!
//! A fetched sample is kept beside the jobs and removed with its attempt: only machines at which it was handed in store it.

use std::fs::File;
use std::io::{Read, Seek};
use std::path::{Path, PathBuf};
use tokio::sync::{mpsc, oneshot};
use weir_store::samples::{SampleError, SampleHash, Samples};

/// A request for a sample, to be written to a file of this machine.
#[derive(Debug)]
pub struct Fetch {
    pub hash: SampleHash,
    /// Its size: content of another length is not this sample.
    pub size: u64,
    /// The file, which does not exist yet.
    pub to: PathBuf,
    /// Whether it was written and verified, or why not. Closed when it is no longer needed.
    pub answer: oneshot::Sender<Result<(), NoSample>>,
}

/// Why the content of a sample is not available.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoSample {
    /// No machine that could be reached has it.
    Absent(String),
    /// This machine cannot read or store it.
    Here(String),
}

impl From<std::io::Error> for NoSample {
    fn from(error: std::io::Error) -> NoSample {
        NoSample::Absent(error.to_string())
    }
}

#[derive(Debug)]
pub(super) struct SampleSource {
    jobs: PathBuf,
    samples: Samples,
    fetch: Option<mpsc::Sender<Fetch>>,
}

impl SampleSource {
    pub(super) fn new(jobs: PathBuf, samples: Samples, fetch: Option<mpsc::Sender<Fetch>>) -> SampleSource {
        SampleSource { jobs, samples, fetch }
    }

    /// The sample of an attempt, verified.
    pub(super) async fn sample(&self, attempt: u64, (hash, size): (SampleHash, u64)) -> Result<Sample, NoSample> {
        let samples = self.samples.clone();
        let opened = tokio::task::spawn_blocking(move || samples.open_verified(hash));
        let opened = opened.await.map_err(|error| NoSample::Here(error.to_string()))?;
        let unreadable = |error: &SampleError| format!("the sample cannot be read: {error}");
        match (opened, &self.fetch) {
            (Ok(file), _) => Ok(Sample { file, fetched: None, store: self.samples.clone() }),
            (Err(error), Some(fetch)) if is_absent(&error) => self.fetched(attempt, (hash, size), fetch).await,
            (Err(error), None) if is_absent(&error) => Err(NoSample::Absent(unreadable(&error))),
            (Err(error), _) => Err(NoSample::Here(unreadable(&error))),
        }
    }

    /// Content of this machine's store; None if it is not there.
    pub(super) fn read(&self, hash: SampleHash) -> Option<Vec<u8>> {
        let mut content = Vec::new();
        self.samples.open_verified(hash).ok()?.read_to_end(&mut content).ok()?;
        Some(content)
    }

    async fn fetched(
        &self,
        attempt: u64,
        (hash, size): (SampleHash, u64),
        fetch: &mpsc::Sender<Fetch>,
    ) -> Result<Sample, NoSample> {
        let to = self.jobs.join(format!("{attempt}.sample"));
        let fetched = Fetched(to.clone());
        let (answer, asked) = oneshot::channel();
        let gone = || NoSample::Here("the lab's network is gone".to_owned());
        fetch.send(Fetch { hash, size, to, answer }).await.map_err(|_| gone())?;
        asked.await.map_err(|_| gone())??;
        let unreadable = |error| NoSample::Here(format!("the sample cannot be read: {error}"));
        let file = File::open(&fetched.0).map_err(unreadable)?;
        Ok(Sample { file, fetched: Some(fetched), store: self.samples.clone() })
    }
}

/// Whether a copy is missing or damaged, so that another machine may have a good one.
fn is_absent(error: &SampleError) -> bool {
    match error {
        SampleError::Io(error) => error.kind() == std::io::ErrorKind::NotFound,
        SampleError::Damaged(..) => true,
        SampleError::TooLarge(_) => false,
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
    /// Where this machine stores samples; children go there too.
    pub(super) fn store(&self) -> &Samples {
        &self.store
    }

    /// To be read from its beginning.
    pub(super) fn open(&self) -> std::io::Result<File> {
        // Two handles on the same open file share their position, so it is opened twice.
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
