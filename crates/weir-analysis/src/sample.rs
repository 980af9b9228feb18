//! The input of a plugin: the content of the sample, the name that it came with, and the plugin's settings.

use serde::Deserialize;
use serde_json::Value;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use weir_lab::file_type;

/// What is looked at of a sample; only hashes are made of more.
pub const LOOK_MAX: u64 = 128 << 20;
/// `input.json` is shorter.
const INPUT_MAX: u64 = 1 << 20;

/// A sample.
#[derive(Debug, Clone)]
pub struct Sample {
    /// The name that it came with: nothing to believe.
    pub name: String,
    /// Its type by content.
    pub file_type: String,
    /// Its content, or the beginning of it.
    pub data: Vec<u8>,
    /// How long it is.
    pub size: u64,
    /// Settings of the plugin.
    pub config: Value,
    /// Where the whole is, if it is a file.
    pub(crate) path: Option<PathBuf>,
}

/// What of `input.json` is read.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Input {
    filename: String,
    #[serde(rename = "contentType")]
    content_type: String,
    config: Value,
}

impl Sample {
    /// The sample of a job folder.
    pub fn of_job(job: &Path) -> io::Result<Sample> {
        let mut text = Vec::new();
        File::open(job.join("input/input.json"))?.take(INPUT_MAX).read_to_end(&mut text)?;
        let input: Input = serde_json::from_slice(&text)?;
        let path = job.join("input/attachment");
        let file = File::open(&path)?;
        let size = file.metadata()?.len();
        let mut data = Vec::with_capacity(usize::try_from(size.min(LOOK_MAX)).unwrap_or_default());
        file.take(LOOK_MAX).read_to_end(&mut data)?;
        let file_type = if input.content_type.is_empty() { type_of(&data) } else { input.content_type };
        Ok(Sample { name: input.filename, file_type, data, size, config: input.config, path: Some(path) })
    }

    /// A sample in memory.
    pub fn of_bytes(name: &str, data: &[u8]) -> Sample {
        Sample {
            name: name.into(),
            file_type: type_of(data),
            data: data.to_vec(),
            size: data.len() as u64,
            config: Value::Null,
            path: None,
        }
    }

    /// Whether all of it is in `data`.
    pub fn is_whole(&self) -> bool {
        self.data.len() as u64 == self.size
    }

    /// All of it, from its beginning.
    pub fn open(&self) -> io::Result<Box<dyn Read + '_>> {
        match &self.path {
            Some(path) => Ok(Box::new(File::open(path)?)),
            None => Ok(Box::new(&*self.data)),
        }
    }
}

fn type_of(data: &[u8]) -> String {
    file_type::of(&data[..data.len().min(file_type::HEAD)]).to_owned()
}
