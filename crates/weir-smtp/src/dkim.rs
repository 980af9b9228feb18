//! DKIM signatures (RFC 6376, RFC 8463): rsa-sha256 and ed25519-sha256, relaxed/relaxed, one key per domain.
//!
//! A [`Signing`] takes the message piece by piece. It keeps the header in memory (at most [`HEADER_MAX`] octets; a message with a longer
//! header is not signed) and hashes the rest, so a body of any length costs no memory. The domain of the From header signs, or the nearest
//! domain above it that has a key. We sign with code of our own over ring, which TLS needs anyway: mail-auth would add fourteen crates, and
//! would keep a whole message in memory if it has no empty line. The tests verify our signatures with mail-auth.

mod canonical;
mod from;
mod key;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::digest::{Context, SHA256};

use self::canonical::{BodyCanon, canonical_header, fields};

pub use key::{Algorithm, DnsRecord, KeyError, SigningKey, generate};

/// The longest header that is signed.
pub const HEADER_MAX: usize = 256 << 10;

/// Headers that are signed if they occur.
const SIGNED: &[&str] = &[
    "from",
    "sender",
    "reply-to",
    "to",
    "cc",
    "subject",
    "date",
    "message-id",
    "in-reply-to",
    "references",
    "mime-version",
    "content-type",
    "content-transfer-encoding",
    "list-id",
    "list-unsubscribe",
    "list-unsubscribe-post",
];
/// These are signed once more than they occur, so that none can be added later.
const SEALED: &[&str] = &["from", "reply-to", "to", "cc", "subject", "date"];

/// For fuzzers: what is read of a header to sign it, and the relaxed form of the body if it comes in pieces of these sizes.
pub(crate) fn read_for_fuzz(message: &[u8], sizes: impl Iterator<Item = usize>) -> (Option<String>, Vec<u8>) {
    let (header, body) = header_end(message, 0).map_or((message, &[][..]), |(header, body)| {
        (message.get(..header).unwrap_or_default(), message.get(body..).unwrap_or_default())
    });
    for field in fields(header) {
        canonical_header(&field, &mut Vec::new());
    }
    signed_text(header, &signed_names(header), "x");
    let (mut canon, mut out, mut rest) = (BodyCanon::default(), Vec::new(), body);
    for size in sizes {
        let (piece, behind) = rest.split_at(size.clamp(1, rest.len().max(1)).min(rest.len()));
        canon.write(piece, &mut out, &mut |_| {});
        rest = behind;
    }
    canon.write(rest, &mut out, &mut |_| {});
    canon.finish(&mut out);
    (from::domain(header), out)
}

/// The keys of all domains.
#[derive(Clone, Debug, Default)]
pub struct Keyring {
    keys: BTreeMap<String, Arc<SigningKey>>,
}

impl Keyring {
    /// Adds a key. A domain has only one key, so this replaces an earlier one.
    pub fn add(&mut self, key: SigningKey) {
        self.keys.insert(key.domain().to_owned(), Arc::new(key));
    }

    /// Reads all keys in a folder. If a domain has several, the one with the alphabetically last selector signs.
    pub fn load(folder: &Path) -> Result<Keyring, KeyError> {
        let mut keyring = Keyring::default();
        for file in key_files(folder)? {
            keyring.add(file.read()?);
        }
        Ok(keyring)
    }

    /// Whether there is no key at all.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// The key that signs for a domain.
    pub fn key_for(&self, domain: &str) -> Option<&Arc<SigningKey>> {
        let domain = domain.to_ascii_lowercase();
        let above = domain.match_indices('.').filter_map(|(dot, _)| domain.get(dot + 1..));
        std::iter::once(domain.as_str()).chain(above).find_map(|name| self.keys.get(name))
    }
}

/// A file with a key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeyFile {
    /// The domain for which the key signs.
    pub domain: String,
    /// The name under which it is published.
    pub selector: String,
    path: PathBuf,
}

impl KeyFile {
    /// The key in it.
    pub fn read(&self) -> Result<SigningKey, KeyError> {
        SigningKey::read(&self.path, &self.domain, &self.selector)
    }
}

/// All files `DOMAIN/SELECTOR.pem` in a folder, in alphabetical order.
pub fn key_files(folder: &Path) -> Result<Vec<KeyFile>, KeyError> {
    let name = |path: &Path| path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
    let mut files = Vec::new();
    for domain in entries(folder)? {
        let pem = |file: &PathBuf| file.extension().is_some_and(|kind| kind == "pem");
        files.extend(entries(&domain)?.into_iter().filter(pem).map(|path| KeyFile {
            domain: name(&domain),
            selector: name(&path.with_extension("")),
            path,
        }));
    }
    Ok(files)
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>, KeyError> {
    let unreadable = |error: std::io::Error| KeyError::File { path: folder.to_owned(), problem: error.to_string() };
    match fs::read_dir(folder) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(unreadable(error)),
        Ok(all) => {
            let mut paths =
                all.map(|entry| entry.map(|entry| entry.path())).collect::<Result<Vec<_>, _>>().map_err(unreadable)?;
            paths.sort();
            Ok(paths)
        }
    }
}

/// A signature that is being made.
#[derive(Debug)]
pub struct Signing {
    header: Vec<u8>,
    body: Option<BodyHash>,
}

/// The hash of a body in its relaxed form.
pub struct BodyHash {
    canon: BodyCanon,
    context: Context,
    scratch: Vec<u8>,
}

impl std::fmt::Debug for BodyHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BodyHash").field("canon", &self.canon).finish_non_exhaustive()
    }
}

impl Default for Signing {
    fn default() -> Signing {
        Signing { header: Vec::with_capacity(2048), body: None }
    }
}

impl Signing {
    /// Takes the next piece of the message.
    pub fn write(&mut self, piece: &[u8]) {
        if let Some(body) = &mut self.body {
            return body.write(piece);
        }
        if self.header.len() > HEADER_MAX {
            return;
        }
        let looked = self.header.len().saturating_sub(3);
        self.header.extend_from_slice(piece);
        let Some((header, body)) = header_end(&self.header, looked) else { return };
        let mut hash = BodyHash::default();
        hash.write(self.header.get(body..).unwrap_or_default());
        self.body = Some(hash);
        self.header.truncate(header);
    }

    /// The header field to put in front of the message; none if no key fits.
    pub fn finish(self, keyring: &Keyring, unix_s: u64) -> Option<String> {
        if self.header.len() > HEADER_MAX {
            return None;
        }
        let key = keyring.key_for(&from::domain(&self.header)?)?;
        let body_hash = self.body.map_or_else(|| ring::digest::digest(&SHA256, b""), BodyHash::finish);
        let names = signed_names(&self.header);
        let mut field = unsigned_field(key, &names, &STANDARD.encode(body_hash), unix_s);
        let signature = key.sign(&signed_text(&self.header, &names, &field))?;
        let encoded = STANDARD.encode(signature);
        for (place, part) in encoded.as_bytes().chunks(72).enumerate() {
            field.push_str(if place == 0 { "" } else { "\r\n\t" });
            field.push_str(std::str::from_utf8(part).unwrap_or_default());
        }
        field.push_str("\r\n");
        Some(field)
    }
}

impl Default for BodyHash {
    fn default() -> BodyHash {
        BodyHash { canon: BodyCanon::default(), context: Context::new(&SHA256), scratch: Vec::new() }
    }
}

impl BodyHash {
    /// Takes the next piece of the body.
    pub fn write(&mut self, piece: &[u8]) {
        self.scratch.clear();
        let context = &mut self.context;
        let mut relieve = |scratch: &mut Vec<u8>| {
            context.update(scratch);
            scratch.clear();
        };
        self.canon.write(piece, &mut self.scratch, &mut relieve);
        relieve(&mut self.scratch);
    }

    /// The hash.
    pub fn finish(mut self) -> ring::digest::Digest {
        self.scratch.clear();
        self.canon.finish(&mut self.scratch);
        self.context.update(&self.scratch);
        self.context.finish()
    }
}

/// Where the header ends, and where the body begins.
fn header_end(text: &[u8], from: usize) -> Option<(usize, usize)> {
    if text.starts_with(b"\r\n") {
        return Some((0, 2));
    }
    let rest = text.get(from..)?;
    memchr::memmem::find(rest, b"\r\n\r\n").map(|at| (from + at + 2, from + at + 4))
}

/// The names for `h=`: those that occur, as often as they occur, and the sealed ones once more.
fn signed_names(header: &[u8]) -> Vec<&'static str> {
    let mut names = Vec::new();
    for name in SIGNED {
        let count = fields(header).filter(|field| field.name.eq_ignore_ascii_case(name.as_bytes())).count();
        // A message with a thousand To headers must not get a signature with a thousand names.
        names.extend(std::iter::repeat_n(*name, count.min(10) + usize::from(SEALED.contains(name))));
    }
    names
}

fn unsigned_field(key: &SigningKey, names: &[&str], body_hash: &str, unix_s: u64) -> String {
    let mut list = String::new();
    let mut width = 0;
    for name in names {
        if width > 60 {
            list.push_str("\r\n\t");
            width = 0;
        }
        if !list.is_empty() {
            list.push(':');
        }
        list.push_str(name);
        width += name.len() + 1;
    }
    let (algorithm, domain, selector) = (key.algorithm().name(), key.domain(), key.selector());
    format!(
        "DKIM-Signature: v=1; a={algorithm}; c=relaxed/relaxed; d={domain};\r\n\ts={selector}; t={unix_s};\r\n\th={list};\r\n\t\
         bh={body_hash};\r\n\tb="
    )
}

/// The text that is signed: the named fields, those of the same name from the bottom up, and our own field without its value.
fn signed_text(header: &[u8], names: &[&str], field: &str) -> Vec<u8> {
    let mut text = Vec::with_capacity(header.len());
    let mut used: BTreeMap<&str, usize> = BTreeMap::new();
    for name in names {
        let skip = used.entry(name).or_default();
        let mut same: Vec<_> =
            fields(header).filter(|field| field.name.eq_ignore_ascii_case(name.as_bytes())).collect();
        same.reverse();
        if let Some(field) = same.get(*skip) {
            canonical_header(field, &mut text);
        }
        *skip += 1;
    }
    if let Some(own) = fields(field.as_bytes()).next() {
        canonical_header(&own, &mut text);
    }
    text.truncate(text.len().saturating_sub(2));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const MESSAGE: &[u8] = b"From: Ann <ann@sub.example.org>\r\nTo: b@c\r\nSubject: x\r\n\r\nHello  world \r\n\r\n\r\n";

    fn keyring() -> Keyring {
        let mut keyring = Keyring::default();
        let (pem, _) = generate("example.org", "s1", Algorithm::Ed25519).unwrap();
        keyring.add(SigningKey::from_pem(&pem, "example.org", "s1").unwrap());
        keyring
    }

    #[test]
    fn any_cuts_give_the_same_signature() {
        let keyring = keyring();
        let sign = |cut: usize| {
            let mut signing = Signing::default();
            signing.write(&MESSAGE[..cut]);
            signing.write(&MESSAGE[cut..]);
            signing.finish(&keyring, 1_700_000_000).unwrap()
        };
        let whole = sign(0);
        assert!((0..MESSAGE.len()).all(|cut| sign(cut) == whole));
        assert!(whole.contains("d=example.org") && whole.contains("h=from:from:reply-to:to:to:cc"), "{whole}");
        assert!(whole.split("\r\n").all(|line| line.len() < 100), "{whole}");
    }

    #[test]
    fn who_has_no_key_is_not_signed_for() {
        for message in [
            "From: a@other.example\r\n\r\nx",
            "To: a@example.org\r\n\r\nx",
            "",
            "From: nonsense\r\n\r\n",
            "\r\nFrom: a@example.org",
        ] {
            let mut signing = Signing::default();
            signing.write(message.as_bytes());
            assert_eq!(signing.finish(&keyring(), 1), None, "{message:?}");
        }
    }

    #[test]
    fn a_header_without_end_is_bounded_and_not_signed() {
        let mut signing = Signing::default();
        signing.write(b"From: a@example.org\r\n");
        for _ in 0..1000 {
            signing.write(&[b'x'; 4096]);
        }
        assert!(signing.header.len() <= HEADER_MAX + 4096);
        assert_eq!(signing.finish(&keyring(), 1), None);
    }
}
