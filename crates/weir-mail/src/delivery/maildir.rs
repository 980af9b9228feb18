//! Delivery into Maildirs: `FOLDER/<recipient>/Maildir/{tmp,new,cur}`.
//!
//! A message is written in `tmp`, synced and renamed to `new`, and the folder is synced. So a file in `new` is complete and survives a
//! power cut. The folder's name is the recipient in lower case with everything unusual as `%XX`, so no recipient can name a place outside;
//! a name too long for the file system ends in a hash. Lines end in LF there, as other programs expect it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use super::ledger::StoredBody;
use super::message::{OutgoingMessage, Recipient};
use super::replaced::WithoutReplaced;
use weir_smtp::client::content::BodySource;
use weir_smtp::outcome::{DeliveryOutcome, Status};

/// What is gathered before it goes to the disk.
const WRITE_BYTES: usize = 1 << 20;
const NAME_MAX: usize = 200;

static COUNTER: AtomicU64 = AtomicU64::new(0);

/// Delivers to one recipient.
pub async fn deliver<B: StoredBody>(
    folder: &Path,
    host: &str,
    message: &OutgoingMessage,
    recipient: &Recipient,
    body: B,
) -> DeliveryOutcome {
    match write(folder, host, message, recipient, body).await {
        Ok(()) => DeliveryOutcome { status: Status(2, 1, 5), ..DeliveryOutcome::delivered("delivered to the Maildir") },
        Err(outcome) => outcome,
    }
}

async fn write<B: StoredBody>(
    folder: &Path,
    host: &str,
    message: &OutgoingMessage,
    recipient: &Recipient,
    body: B,
) -> Result<(), DeliveryOutcome> {
    let maildir = folder.join(folder_name(recipient.to.mailbox.as_str())).join("Maildir");
    let name = file_name(host, message, recipient);
    let mut file = blocking(move || Unfinished::create(maildir, name)).await?;
    let mut text = trace_headers(message, recipient);
    let mut line_ends = LineEnds::default();
    let mut body = WithoutReplaced::new(body, &message.added);
    while let Some(piece) = body.next().await.map_err(DeliveryOutcome::from)? {
        line_ends.convert(&piece, &mut text);
        if text.len() >= WRITE_BYTES {
            let full = std::mem::take(&mut text);
            file = blocking(move || file.write(&full)).await?;
        }
    }
    line_ends.finish(&mut text);
    blocking(move || file.write(&text)?.finish()).await
}

fn trace_headers(message: &OutgoingMessage, recipient: &Recipient) -> Vec<u8> {
    let sender = message.sender.mailbox.as_ref().map(ToString::to_string).unwrap_or_default();
    let added = message.added.replace("\r\n", "\n");
    format!("Return-Path: <{sender}>\nDelivered-To: {}\n{added}", recipient.to.mailbox).into_bytes()
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, DeliveryOutcome> {
    match tokio::task::spawn_blocking(work).await {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(error)) => {
            Err(DeliveryOutcome::temporary(status(&error), &format!("the Maildir cannot be written: {error}")))
        }
        Err(_) => Err(DeliveryOutcome::temporary(Status(4, 3, 0), "the server is ending")),
    }
}

fn status(error: &io::Error) -> Status {
    match error.kind() {
        io::ErrorKind::StorageFull => Status(4, 3, 1),
        io::ErrorKind::QuotaExceeded => Status(4, 2, 2),
        _ => Status(4, 3, 0),
    }
}

/// A file in `tmp`; removed when dropped unfinished.
struct Unfinished {
    file: File,
    maildir: PathBuf,
    name: String,
    finished: bool,
}

impl Unfinished {
    fn create(maildir: PathBuf, name: String) -> io::Result<Unfinished> {
        for part in ["tmp", "new", "cur"] {
            make_folder(&maildir.join(part))?;
        }
        let path = maildir.join("tmp").join(&name);
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        Ok(Unfinished { file, maildir, name, finished: false })
    }

    fn write(mut self, text: &[u8]) -> io::Result<Unfinished> {
        self.file.write_all(text)?;
        Ok(self)
    }

    fn finish(mut self) -> io::Result<()> {
        self.file.sync_all()?;
        fs::rename(self.maildir.join("tmp").join(&self.name), self.maildir.join("new").join(&self.name))?;
        self.finished = true;
        sync_folder(&self.maildir.join("new"))
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if !self.finished {
            let _ = fs::remove_file(self.maildir.join("tmp").join(&self.name));
        }
    }
}

/// Makes a folder and the missing ones above it, and syncs up to the first that existed.
fn make_folder(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    let Some(parent) = path.parent() else { return Err(io::ErrorKind::NotFound.into()) };
    make_folder(parent)?;
    match fs::DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => sync_folder(parent),
    }
}

fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// The folder of a recipient.
pub fn folder_name(address: &str) -> String {
    let mut name = String::new();
    for byte in address.to_lowercase().bytes() {
        let plain = byte.is_ascii_alphanumeric() || matches!(byte, b'@' | b'-' | b'_' | b'+' | b'=');
        // A dot is plain inside a name, but must not begin it: `..` and hidden folders.
        if plain || (byte == b'.' && !name.is_empty()) {
            name.push(char::from(byte));
        } else {
            name.push_str(&format!("%{byte:02X}"));
        }
    }
    if name.len() <= NAME_MAX {
        return name;
    }
    let digest = ring::digest::digest(&ring::digest::SHA256, name.as_bytes());
    let hash: String = digest.as_ref().iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    name.truncate(NAME_MAX - hash.len() - 1);
    format!("{name}%{hash}")
}

/// A name that no other delivery has, now or later, on this machine or another.
fn file_name(host: &str, message: &OutgoingMessage, recipient: &Recipient) -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let host: String =
        host.chars().map(|c| if c.is_ascii_alphanumeric() || c == '.' || c == '-' { c } else { '_' }).collect();
    let count = COUNTER.fetch_add(1, Ordering::Relaxed);
    let (process, index) = (std::process::id(), recipient.index);
    format!("{}.M{}P{process}Q{count}I{}R{index}.{host}", since.as_secs(), since.subsec_micros(), message.id)
}

/// CR LF becomes LF.
#[derive(Default)]
struct LineEnds {
    after_cr: bool,
}

impl LineEnds {
    fn convert(&mut self, piece: &[u8], out: &mut Vec<u8>) {
        let mut rest = piece;
        while let Some(first) = rest.first() {
            if std::mem::take(&mut self.after_cr) && *first != b'\n' {
                out.push(b'\r');
            }
            let (run, behind) = rest.split_at(memchr::memchr(b'\r', rest).unwrap_or(rest.len()));
            out.extend_from_slice(run);
            self.after_cr = !behind.is_empty();
            rest = behind.get(1..).unwrap_or_default();
        }
    }

    fn finish(&mut self, out: &mut Vec<u8>) {
        if std::mem::take(&mut self.after_cr) {
            out.push(b'\r');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn no_recipient_names_a_place_outside() {
        for (address, name) in [
            ("Ann@Example.org", "ann@example.org"),
            ("../../etc/passwd@x", "%2E.%2F..%2Fetc%2Fpasswd@x"),
            ("\"a/../b\"@x", "%22a%2F..%2Fb%22@x"),
            (".hidden@x", "%2Ehidden@x"),
            ("..", "%2E."),
            ("a\0b@x", "a%00b@x"),
            ("ü@x", "%C3%BC@x"),
            ("a%2fb@x", "a%252fb@x"),
        ] {
            assert_eq!(folder_name(address), name);
        }
        let (long, longer) = (format!("{}@x", "a".repeat(300)), format!("{}@x", "a".repeat(301)));
        assert!(folder_name(&long).len() <= NAME_MAX && folder_name(&long) != folder_name(&longer));
    }

    proptest! {
        #[test]
        fn names_are_always_one_safe_component(address in "\\PC{1,80}") {
            let name = folder_name(&address);
            prop_assert!(!name.is_empty() && name.len() <= NAME_MAX && !name.starts_with('.') && !name.contains(['/', '\0']));
        }

        #[test]
        fn line_ends_in_any_pieces(body in proptest::collection::vec(prop_oneof![Just(b'\r'), Just(b'\n'), Just(b'a')], 0..30), cut in 0usize..30) {
            let cut = cut.min(body.len());
            let (mut line_ends, mut out) = (LineEnds::default(), Vec::new());
            line_ends.convert(&body[..cut], &mut out);
            line_ends.convert(&body[cut..], &mut out);
            line_ends.finish(&mut out);
            let expected = String::from_utf8(body).unwrap().replace("\r\n", "\n");
            prop_assert_eq!(String::from_utf8(out).unwrap(), expected);
        }
    }
}
