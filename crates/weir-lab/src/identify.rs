//! The plugin that Weir brings itself: what a file is, its SHA-256 and how random it looks.
//!
//! It runs like any other plugin, as a process of its own (`weir plugin identify JOB`).

use crate::file_type;
use crate::job::{Artifact, Level, Report, Summary, Taxonomy};
use crate::plugin::{Plugin, PluginError};
use serde_json::value::to_raw_value;
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

const MANIFEST: &str = r#"
name = "identify"
version = "1"
description = "What a file is, its SHA-256 and how random it looks"
exec = ["weir", "plugin", "identify"]
"#;

/// The plugin. Its program is this one.
pub fn plugin() -> Result<Plugin, PluginError> {
    Plugin::parse(MANIFEST, Path::new(""))
}

/// Looks at the sample of a job and leaves the report.
pub fn run(job: &Path) -> io::Result<()> {
    let report = look(&mut File::open(job.join("input/attachment"))?)?;
    std::fs::write(job.join("output/output.json"), serde_json::to_vec(&report)?)
}

fn look(sample: &mut impl Read) -> io::Result<Report> {
    let (mut hash, mut counts, mut size) = (Sha256::new(), [0_u64; 256], 0_u64);
    let (mut head, mut piece) = (Vec::new(), vec![0; 128 * 1024]);
    loop {
        let length = sample.read(&mut piece)?;
        if length == 0 {
            break;
        }
        let bytes = &piece[..length];
        hash.update(bytes);
        bytes.iter().for_each(|byte| counts[usize::from(*byte)] += 1);
        head.extend_from_slice(&bytes[..length.min(file_type::HEAD.saturating_sub(head.len()))]);
        size += length as u64;
    }
    let sha256 = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let (kind, entropy) = (file_type::of(&head), entropy(&counts, size));
    let finding = |predicate: &str, value: String| Taxonomy {
        level: Level::Info,
        namespace: "identify".into(),
        predicate: predicate.into(),
        value,
    };
    let hash = Artifact { data_type: "hash".into(), data: Some(sha256.clone()), ..Artifact::default() };
    let full = serde_json::json!({ "type": kind, "size": size, "sha256": sha256, "entropy_bits_per_byte": entropy });
    Ok(Report {
        success: true,
        error_message: String::new(),
        full: to_raw_value(&full)?,
        summary: Summary {
            taxonomies: vec![finding("type", kind.into()), finding("entropy", format!("{entropy:.2}"))],
        },
        artifacts: vec![hash],
    })
}

/// Shannon's, in bits a byte.
fn entropy(counts: &[u64; 256], size: u64) -> f64 {
    let part = |count: &u64| *count as f64 / size as f64;
    counts.iter().filter(|count| **count > 0).map(part).map(|p| -p * p.log2()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_of_a_file() {
        let full = |sample: &[u8]| -> serde_json::Value {
            serde_json::from_str(look(&mut &*sample).unwrap().full.get()).unwrap()
        };
        let abc = full(b"abc");
        assert_eq!(abc["sha256"], "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        assert_eq!((&abc["type"], &abc["size"]), (&"text/plain".into(), &3.into()));
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(full(&all)["entropy_bits_per_byte"], 8.0);
        assert_eq!(full(&[0; 4096])["entropy_bits_per_byte"], 0.0);
    }
}
