//! Files that a plugin found in a sample. Each is stored under its hash before the report names it.
//!
//! The leader makes samples of them when it stores the report. A file that cannot be taken (too many, too large, no file)
//! is named in the report with the reason. Hashes that a plugin claims itself are removed: only files that were stored have one.

use crate::file_type;
use crate::job::{Artifact, Job, Report};
use crate::wire::ChildLimits;
use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use weir_store::samples::{SampleError, SampleHash, Samples};

/// Stores the children of a report, and returns the report with their names in it.
pub async fn kept(samples: &Samples, job: Job, mut report: Report, limits: ChildLimits) -> Result<Report, String> {
    let samples = samples.clone();
    let kept = tokio::task::spawn_blocking(move || {
        store(&samples, &job, &mut report.artifacts, limits)?;
        Ok::<_, SampleError>(report)
    });
    let kept = kept.await.map_err(|error| error.to_string())?;
    kept.map_err(|error| format!("a file that was found cannot be stored: {error}"))
}

/// An error means that this machine's store failed: the report would lack its children.
fn store(samples: &Samples, job: &Job, artifacts: &mut [Artifact], limits: ChildLimits) -> Result<(), SampleError> {
    let (mut left, mut stored) = (limits.bytes, BTreeSet::new());
    for artifact in artifacts {
        (artifact.sha256, artifact.bytes, artifact.content_type, artifact.left_out) = (None, None, None, None);
        let Some(name) = artifact.file.clone().filter(|_| artifact.data_type == "file") else { continue };
        if stored.len() >= limits.count as usize {
            artifact.left_out = Some(match limits.count {
                0 => "it is as deep as children may be, or the sample has as many as it may".into(),
                count => format!("one plugin may bring {count} files"),
            });
            continue;
        }
        match one(samples, job, &name, left)? {
            Ok((hash, bytes, kind)) => {
                if stored.insert(hash) {
                    left = left.saturating_sub(bytes);
                }
                artifact.sha256 = Some(hash.to_string());
                artifact.bytes = Some(bytes);
                let shown = artifact.filename.as_deref().unwrap_or(&name);
                artifact.content_type = Some(file_type::named(kind, shown).to_owned());
            }
            Err(why) => artifact.left_out = Some(why),
        }
    }
    Ok(())
}

/// A file as it was stored, or why it is left out.
type Kept = Result<(SampleHash, u64, &'static str), String>;

fn one(samples: &Samples, job: &Job, name: &str, most: u64) -> Result<Kept, SampleError> {
    let (mut file, kind) = match opened(job, name) {
        Ok(opened) => opened,
        Err(why) => return Ok(Err(why)),
    };
    match samples.put(&mut file, most) {
        Ok(stored) => Ok(Ok((stored.hash, stored.size, kind))),
        Err(SampleError::TooLarge(_)) => Ok(Err("the files that one plugin may bring are larger than allowed".into())),
        Err(error) => Err(error),
    }
}

fn opened(job: &Job, name: &str) -> Result<(File, &'static str), String> {
    let unreadable = |error: io::Error| format!("it cannot be read: {error}");
    let mut file = job.open_output(name).map_err(unreadable)?;
    if file.metadata().is_ok_and(|meta| meta.len() == 0) {
        return Err("it is empty".into());
    }
    let kind = file_type::of_source(&mut file).map_err(unreadable)?;
    Ok((file, kind))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::Input;

    fn file(name: &str) -> Artifact {
        Artifact { data_type: "file".into(), file: Some(name.into()), sha256: Some("ff".into()), ..Artifact::default() }
    }

    #[test]
    fn children_are_stored_within_their_limits_and_nothing_else_is() {
        let home = tempfile::tempdir().unwrap();
        let samples = Samples::open(&home.path().join("samples")).unwrap();
        let job = Job::prepare(&home.path().join("job"), &Input::new("a", "text/plain"), &mut &b"x"[..]).unwrap();
        let output = job.folder().join("output");
        for (name, content) in [
            ("one", "#!/bin/sh\n"),
            ("same", "#!/bin/sh\n"),
            ("two", "hello"),
            ("large", "0123456789012345"),
            ("empty", ""),
        ] {
            std::fs::write(output.join(name), content).unwrap();
        }
        std::os::unix::fs::symlink("/etc/passwd", output.join("link")).unwrap();
        let names = ["one", "same", "large", "link", "../input/attachment", "gone", "empty", "two", "two"];
        let mut artifacts: Vec<Artifact> = names.into_iter().map(file).collect();
        artifacts.push(Artifact { data_type: "url".into(), sha256: Some("ff".into()), ..Artifact::default() });
        store(&samples, &job, &mut artifacts, ChildLimits { count: 2, bytes: 20 }).unwrap();
        let stored: Vec<bool> = artifacts.iter().map(|artifact| artifact.sha256.is_some()).collect();
        assert_eq!(stored, [true, true, false, false, false, false, false, true, false, false]);
        assert!(artifacts[2..7].iter().all(|artifact| artifact.left_out.is_some()), "{artifacts:?}");
        assert_eq!((artifacts[0].bytes, artifacts[0].content_type.as_deref()), (Some(10), Some("text/x-shellscript")));
        let hash: SampleHash = artifacts[7].sha256.as_deref().unwrap().parse().unwrap();
        assert!(samples.open_verified(hash).is_ok());
        let mut none = vec![file("one")];
        store(&samples, &job, &mut none, ChildLimits::default()).unwrap();
        assert!(none[0].sha256.is_none() && none[0].left_out.as_deref().unwrap().contains("deep"));
        // If the store fails, it is not the plugin's fault.
        std::fs::remove_dir_all(home.path().join("samples")).unwrap();
        std::fs::write(home.path().join("samples"), "").unwrap();
        assert!(store(&samples, &job, &mut [file("one")], ChildLimits { count: 2, bytes: 20 }).is_err());
    }
}
