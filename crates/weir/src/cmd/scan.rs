//! `weir scan FILE…`: what the scanners say about messages and files, without a gate. `weir scan rules`: what people have blocked. And
//! the hidden verb of the scanners' workers.

mod rules;

use crate::answer;
use crate::config::ConfigArg;
use anyhow::Context;
use serde_json::json;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weir_scan::content::Content;
use weir_scan::inspect::{About, Inspect};
use weir_scan::panel::Panel;
use weir_scan::verdict::Verdict;

#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    more: Option<More>,
    /// Messages as they were received (.eml); any other file is scanned as if it were attached to a message
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Treat all files as messages, or all as attachments, whatever they look like
    #[arg(long = "as", value_enum, value_name = "WHAT", default_value = "auto")]
    kind: InputKind,
    #[command(flatten)]
    config: ConfigArg,
    /// Print the verdicts as JSON
    #[arg(long)]
    json: bool,
}

#[derive(clap::Subcommand)]
enum More {
    /// List, add or remove rules that people have made to block files in mail
    #[command(subcommand)]
    Rules(rules::Rules),
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum InputKind {
    /// Decide by the file's name and first line
    Auto,
    /// A message
    Message,
    /// An attachment
    File,
}

/// A larger file cannot be mail.
const FILE_BYTES_MAX: u64 = 4 << 30;

impl Args {
    pub(crate) fn run(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        if let Some(More::Rules(rules)) = &self.more {
            return rules.run(out);
        }
        let settings = self.config.load()?.config.scanners;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let verdicts = runtime.block_on(async {
            let panel = Panel::start(settings).await?;
            let mut verdicts = Vec::new();
            for file in &self.files {
                let content = self.content(file).with_context(|| format!("{} cannot be scanned", file.display()))?;
                let about = Arc::new(About { id: file.display().to_string(), ..About::default() });
                verdicts.push((file, panel.inspect(&content, &about).await));
            }
            anyhow::Ok(verdicts)
        })?;
        if self.json {
            print_json(out, &verdicts)?;
        } else {
            print(out, &verdicts)?;
        }
        out.flush()?;
        match verdicts.iter().filter(|(_, verdict)| !verdict.is_clean()).count() {
            0 => Ok(()),
            some => anyhow::bail!("{some} of {} would not pass", verdicts.len()),
        }
    }

    fn content(&self, path: &Path) -> anyhow::Result<Content> {
        let file = std::fs::File::open(path)?;
        let mut bytes = Vec::new();
        file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
        anyhow::ensure!(bytes.len() as u64 <= FILE_BYTES_MAX, "it is larger than 4 GiB");
        let message = match self.kind {
            InputKind::Auto => is_message(path, &bytes),
            kind => kind == InputKind::Message,
        };
        Ok(Content::of(if message { bytes } else { attached(path, &bytes) }.as_slice())?)
    }
}

/// Recognises a message by its extension, or by a first line that only a message has.
fn is_message(path: &Path, bytes: &[u8]) -> bool {
    let line = bytes.split(|byte| *byte == b'\n').next().unwrap_or(&[]);
    let name = line.split(|byte| *byte == b':').next().unwrap_or(&[]);
    let field =
        name.len() < line.len() && !name.is_empty() && name.iter().all(|c| c.is_ascii_alphanumeric() || *c == b'-');
    path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("eml"))
        || field
        || line.starts_with(b"From ")
}

/// A message with this file as its attachment.
fn attached(path: &Path, bytes: &[u8]) -> Vec<u8> {
    use base64::Engine;
    let name = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    let name: String = name.bytes().map(|byte| format!("%{byte:02X}")).collect();
    let head = format!(
        "Subject: a file\r\nMIME-Version: 1.0\r\nContent-Type: application/octet-stream\r\nContent-Transfer-Encoding: base64\r\n\
         Content-Disposition: attachment; filename*=UTF-8''{name}\r\n\r\n"
    );
    let mut message = head.into_bytes();
    // 57 is a multiple of three, so only the last line is padded.
    for line in bytes.chunks(57) {
        message.extend(base64::engine::general_purpose::STANDARD.encode(line).bytes());
        message.extend_from_slice(b"\r\n");
    }
    message
}

fn print(out: &mut dyn Write, verdicts: &[(&PathBuf, Verdict)]) -> std::io::Result<()> {
    for (file, verdict) in verdicts {
        writeln!(out, "{}: {}", file.display(), if verdict.is_clean() { "would pass" } else { "would not pass" })?;
        for finding in &verdict.findings {
            let place = if finding.place.is_empty() { String::new() } else { format!("  in {}", finding.place) };
            writeln!(out, "  {:<12}  {}{place}", finding.scanner, finding.outcome)?;
        }
        for why in &verdict.suspicious {
            writeln!(out, "  {:<12}  {why}", "suspicious")?;
        }
    }
    Ok(())
}

fn print_json(out: &mut dyn Write, verdicts: &[(&PathBuf, Verdict)]) -> anyhow::Result<()> {
    let file = |(path, verdict): &(&PathBuf, Verdict)| json!({ "file": path, "passes": verdict.is_clean(), "verdict": verdict });
    answer::print_json(out, &json!({ "files": verdicts.iter().map(file).collect::<Vec<_>>() }))
}

#[derive(clap::Args)]
pub(crate) struct WorkerArgs {
    /// How much address space it may use, in bytes
    #[arg(long, value_name = "BYTES", default_value_t = weir_scan::worker::pool::MEMORY)]
    memory: u64,
}

impl WorkerArgs {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        Ok(weir_scan::worker::serve(self.memory)?)
    }
}
