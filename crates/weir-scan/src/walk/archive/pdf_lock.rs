//! Whether a PDF opens without a password, and how its streams are decrypted then.
//!
//! Many PDFs are encrypted with an empty password: it only says what may be printed or copied, and every reader opens them. Only one that
//! wants a password from people counts as encrypted. Sources: ISO 32000-1, section 7.6; ISO 32000-2, section 7.6.4.

use super::pdf_text::string;
use super::rc4::rc4;
use aes::cipher::{BlockCipherDecrypt, BlockCipherEncrypt, KeyInit};
use aes::{Aes128, Aes256};
use md5::{Digest, Md5};
use sha2::{Sha256, Sha384, Sha512};

/// What an empty password is filled up with.
const PADDING: [u8; 32] = [
    0x28, 0xbf, 0x4e, 0x5e, 0x4e, 0x75, 0x8a, 0x41, 0x64, 0x00, 0x4e, 0x56, 0xff, 0xfa, 0x01, 0x08, 0x2e, 0x2e, 0x00,
    0xb6, 0xd0, 0x68, 0x3e, 0x80, 0x2f, 0x0c, 0xa9, 0xfe, 0x64, 0x53, 0x69, 0x7a,
];

/// Whether its strings and streams are encrypted, with or without a password.
pub(super) fn is_locked(data: &[u8]) -> bool {
    memchr::memmem::find_iter(data, b"/Encrypt").any(|at| !data[at + 8..].starts_with(b"Metadata"))
}

/// Whether only somebody who has the password can read it. An encryption that we do not understand counts as one with a password.
pub(super) fn needs_password(data: &[u8]) -> bool {
    is_locked(data) && !Lock::read(data).is_some_and(|lock| lock.opens_empty())
}

/// What opens the streams of a document whose password is empty.
pub(super) struct PdfKey {
    file: Vec<u8>,
    cipher: Cipher,
    /// What strings are encrypted with.
    of_text: Cipher,
    /// Whether files that the document carries have another cipher.
    pub(super) has_other_for_files: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cipher {
    /// They are not encrypted, only strings are.
    None,
    Rc4,
    /// With a key of its own for each object.
    Aes,
    /// With one key for all.
    Aes256,
}

impl Cipher {
    /// Whether a key of the file is as long as this one needs it.
    fn fits(self, file: &[u8]) -> bool {
        match self {
            Cipher::None | Cipher::Rc4 => true,
            Cipher::Aes => file.len() + 5 >= 16,
            Cipher::Aes256 => file.len() == 32,
        }
    }
}

impl PdfKey {
    /// The key of a document that opens with an empty password; none if we do not understand its encryption.
    pub(super) fn of(data: &[u8]) -> Option<PdfKey> {
        let lock = Lock::read(data)?;
        let Lock { cipher, of_text, of_files, .. } = lock;
        let has_other_for_files = of_files != cipher;
        let key = PdfKey { file: lock.key()?, cipher: cipher?, of_text: of_text?, has_other_for_files };
        // A key that does not fit its cipher would open every stream or text as nothing, and nothing is clean.
        [key.cipher, key.of_text].iter().all(|cipher| cipher.fits(&key.file)).then_some(key)
    }

    /// A stream of an object as it was before it was encrypted (ISO 32000-1, section 7.6.2).
    pub(super) fn opened(&self, object: (u32, u16), body: &[u8]) -> Vec<u8> {
        self.opened_by(self.cipher, object, body)
    }

    /// A string of an object.
    pub(super) fn opened_text(&self, object: (u32, u16), text: &[u8]) -> Vec<u8> {
        self.opened_by(self.of_text, object, text)
    }

    fn opened_by(&self, cipher: Cipher, (number, generation): (u32, u16), body: &[u8]) -> Vec<u8> {
        let own = |salt: &[u8]| {
            let parts = [&self.file, &number.to_le_bytes()[..3], &generation.to_le_bytes(), salt].concat();
            Md5::digest(parts)[..(self.file.len() + 5).min(16)].to_vec()
        };
        match cipher {
            Cipher::None => body.to_vec(),
            Cipher::Rc4 => rc4(&own(b""), body),
            Cipher::Aes => unfilled(chained(&own(b"sAlT"), body)),
            Cipher::Aes256 => unfilled(chained(&self.file, body)),
        }
    }
}

/// AES-CBC, with the initialisation vector as the first block. An incomplete block at the end is ignored.
fn chained(key: &[u8], data: &[u8]) -> Vec<u8> {
    let decrypt: Box<dyn Fn(&mut aes::Block)> = match key.len() {
        16 => match Aes128::new_from_slice(key) {
            Ok(cipher) => Box::new(move |block| cipher.decrypt_block(block)),
            Err(_) => return Vec::new(),
        },
        _ => match Aes256::new_from_slice(key) {
            Ok(cipher) => Box::new(move |block| cipher.decrypt_block(block)),
            Err(_) => return Vec::new(),
        },
    };
    let blocks: Vec<&[u8]> = data.chunks_exact(16).collect();
    let mut out = Vec::with_capacity(data.len());
    for pair in blocks.windows(2) {
        let mut block = aes::Block::from(std::array::from_fn::<u8, 16, _>(|at| pair[1][at]));
        decrypt(&mut block);
        out.extend(block.iter().zip(pair[0]).map(|(octet, before)| octet ^ before));
    }
    out
}

/// Without what fills up the last block: so many octets, each of which says how many.
fn unfilled(mut data: Vec<u8>) -> Vec<u8> {
    let count = data.last().map_or(0, |last| usize::from(*last));
    let begin = data.len().saturating_sub(count);
    if (1..=16).contains(&count) && data[begin..].iter().all(|octet| usize::from(*octet) == count) {
        data.truncate(begin);
    }
    data
}

struct Lock {
    cipher: Option<Cipher>,
    of_text: Option<Cipher>,
    of_files: Option<Cipher>,
    /// The key of the file, encrypted for its reader (revisions 5 and 6).
    user_key: Vec<u8>,
    revision: i64,
    owner: Vec<u8>,
    user: Vec<u8>,
    permissions: i64,
    lengths: Vec<usize>,
    metadata: bool,
    id: Vec<u8>,
}

impl Lock {
    fn read(data: &[u8]) -> Option<Lock> {
        let at = memchr::memmem::rfind_iter(data, b"/Encrypt").find(|at| !data[at + 8..].starts_with(b"Metadata"))?;
        let dictionary = dictionary(data, data[at + 8..].trim_ascii_start())?;
        let text = |key: &str| string(value(dictionary, key)?);
        let mut lengths = vec![5, 16];
        lengths.extend(
            number(dictionary, "/Length")
                .and_then(|bits| usize::try_from(bits / 8).ok())
                .filter(|length| (5..=16).contains(length)),
        );
        let id =
            value(data, "/ID").and_then(|list| string(list.strip_prefix(b"[")?.trim_ascii_start())).unwrap_or_default();
        let metadata = !value(dictionary, "/EncryptMetadata").is_some_and(|value| value.starts_with(b"false"));
        Some(Lock {
            cipher: cipher(dictionary, "/StmF"),
            of_text: cipher(dictionary, "/StrF"),
            // As other streams, unless it says otherwise.
            of_files: cipher(dictionary, if value(dictionary, "/EFF").is_some() { "/EFF" } else { "/StmF" }),
            user_key: text("/UE").unwrap_or_default(),
            revision: number(dictionary, "/R")?,
            owner: text("/O")?,
            user: text("/U")?,
            permissions: number(dictionary, "/P")?,
            lengths,
            metadata,
            id,
        })
    }

    /// The key of the file, if the empty password opens it.
    fn key(&self) -> Option<Vec<u8>> {
        if self.revision <= 4 {
            return self.lengths.iter().find_map(|length| self.fitting(*length));
        }
        let salt = self.user.get(40..48).filter(|_| self.opens_empty())?;
        let own = if self.revision == 5 { Sha256::digest(salt).to_vec() } else { hardened(salt) };
        let file = self.user_key.get(..32)?;
        Some(chained(&own, &[&[0; 16], file].concat()))
    }

    fn opens_empty(&self) -> bool {
        match self.revision {
            2..=4 => self.lengths.iter().any(|length| self.fitting(*length).is_some()),
            5 => self.user.get(32..40).is_some_and(|salt| Sha256::digest(salt)[..] == self.user[..32]),
            6 => self.user.get(32..40).is_some_and(|salt| hardened(salt) == self.user[..32]),
            _ => false,
        }
    }

    /// Revisions 2 to 4: the key that the empty password makes, if the document was locked with it.
    fn fitting(&self, length: usize) -> Option<Vec<u8>> {
        let mut hash = Md5::new();
        hash.update(PADDING);
        hash.update(self.owner.get(..32).unwrap_or(&self.owner));
        hash.update((self.permissions as i32).to_le_bytes());
        hash.update(&self.id);
        if self.revision == 4 && !self.metadata {
            hash.update([0xff; 4]);
        }
        let mut key = hash.finalize().to_vec();
        if self.revision >= 3 {
            for _ in 0..50 {
                key = Md5::digest(&key[..length]).to_vec();
            }
        }
        key.truncate(length);
        if self.revision == 2 {
            return (rc4(&key, &PADDING) == self.user).then_some(key);
        }
        let mut check = Md5::digest([&PADDING[..], &self.id].concat()).to_vec();
        for round in 0..20u8 {
            let turned: Vec<u8> = key.iter().map(|octet| octet ^ round).collect();
            check = rc4(&turned, &check);
        }
        self.user.starts_with(&check).then_some(key)
    }
}

/// What encrypts streams, strings or files: up to version 2 always the same, then what the filter does that is named for them.
fn cipher(dictionary: &[u8], wanted: &str) -> Option<Cipher> {
    match number(dictionary, "/V").unwrap_or(0) {
        1 | 2 => return Some(Cipher::Rc4),
        4 | 5 => {}
        _ => return None,
    }
    let Some(name) = value(dictionary, wanted).filter(|name| !name.starts_with(b"/Identity")) else {
        return Some(Cipher::None);
    };
    let length = name.iter().skip(1).take_while(|byte| byte.is_ascii_alphanumeric()).count() + 1;
    let named = std::str::from_utf8(&name[..length.min(name.len())]).ok()?;
    let filters = value(dictionary, "/CF")?;
    let method = value(value(filters, named)?, "/CFM")?;
    [("/V2", Cipher::Rc4), ("/AESV2", Cipher::Aes), ("/AESV3", Cipher::Aes256), ("/None", Cipher::None)]
        .into_iter()
        .find_map(|(word, cipher)| method.starts_with(word.as_bytes()).then_some(cipher))
}

/// The hash of revision 6 for an empty password.
fn hardened(salt: &[u8]) -> Vec<u8> {
    let mut key = Sha256::digest(salt).to_vec();
    for round in 0..1024u32 {
        let mut text = key.repeat(64);
        let Ok(cipher) = Aes128::new_from_slice(&key[..16]) else { return Vec::new() };
        let mut before: [u8; 16] = std::array::from_fn(|at| key[16 + at]);
        for chunk in text.chunks_exact_mut(16) {
            let mut block = aes::Block::from(std::array::from_fn::<u8, 16, _>(|at| chunk[at] ^ before[at]));
            cipher.encrypt_block(&mut block);
            chunk.copy_from_slice(&block);
            before.copy_from_slice(&block);
        }
        let last = text.last().copied().unwrap_or_default();
        key = match text[..16].iter().map(|octet| u32::from(*octet)).sum::<u32>() % 3 {
            0 => Sha256::digest(&text).to_vec(),
            1 => Sha384::digest(&text).to_vec(),
            _ => Sha512::digest(&text).to_vec(),
        };
        if round >= 63 && u32::from(last) + 32 <= round {
            break;
        }
    }
    key.truncate(32);
    key
}

/// The dictionary that stands here, or that a reference (`12 0 R`) points to.
fn dictionary<'d>(data: &'d [u8], text: &'d [u8]) -> Option<&'d [u8]> {
    let end = |from: &'d [u8]| &from[..memchr::memmem::find(from, b"endobj").unwrap_or(from.len()).min(8192)];
    if text.starts_with(b"<<") {
        return Some(end(text));
    }
    let number: Vec<u8> = text.iter().take_while(|byte| byte.is_ascii_digit()).copied().collect();
    let mark = [number.as_slice(), b" 0 obj"].concat();
    let starts = |at: &usize| *at == 0 || !data[at - 1].is_ascii_digit();
    memchr::memmem::find_iter(data, &mark).find(starts).map(|at| end(&data[at + mark.len()..]))
}

/// What stands behind a key.
fn value<'d>(dictionary: &'d [u8], key: &str) -> Option<&'d [u8]> {
    let ends = |at: &usize| !dictionary.get(at + key.len()).is_some_and(|byte| byte.is_ascii_alphanumeric());
    let at = memchr::memmem::find_iter(dictionary, key.as_bytes()).find(ends)?;
    Some(dictionary[at + key.len()..].trim_ascii_start())
}

fn number(dictionary: &[u8], key: &str) -> Option<i64> {
    let text = value(dictionary, key)?;
    let length = text.iter().take_while(|byte| byte.is_ascii_digit() || **byte == b'-').count();
    std::str::from_utf8(&text[..length]).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A document locked by revision 3 with this password for its reader.
    fn locked(password: &[u8]) -> Vec<u8> {
        let filled: Vec<u8> = password.iter().chain(&PADDING).take(32).copied().collect();
        let (owner, id) = ([7u8; 32], b"0123456789abcdef");
        let mut hash = Md5::new();
        hash.update(&filled);
        hash.update(owner);
        hash.update((-44i32).to_le_bytes());
        hash.update(id);
        let mut key = hash.finalize().to_vec();
        for _ in 0..50 {
            key = Md5::digest(&key).to_vec();
        }
        let mut check = Md5::digest([&PADDING[..], id].concat()).to_vec();
        for round in 0..20u8 {
            check = rc4(&key.iter().map(|octet| octet ^ round).collect::<Vec<u8>>(), &check);
        }
        check.resize(32, 0);
        let hex = |octets: &[u8]| octets.iter().map(|octet| format!("{octet:02x}")).collect::<String>();
        format!(
            "%PDF-1.4\n5 0 obj <</Filter/Standard/V 2/R 3/Length 128/P -44/O<{}>/U<{}>>> endobj trailer <</Encrypt 5 0 R/ID[<{}><00>]>>",
            hex(&owner),
            hex(&check),
            hex(id)
        )
        .into_bytes()
    }

    #[test]
    fn a_lock_with_an_empty_password_is_none() {
        assert!(!needs_password(&locked(b"")));
        assert!(needs_password(&locked(b"secret")));
        assert!(!needs_password(b"%PDF-1.4 /EncryptMetadata false"));
        assert!(needs_password(b"%PDF-1.4 trailer <</Encrypt 5 0 R>>"), "what we cannot make out counts");
    }

    #[test]
    fn a_key_fits_the_ciphers_of_streams_and_of_texts() {
        let with = |streams: &str, texts: &str| {
            let filters = "/CF<</A<</CFM/V2>>/B<</CFM/AESV3>>>>";
            let document = String::from_utf8(locked(b"")).unwrap();
            let document = document.replace("/V 2/", &format!("/V 4{filters}/StmF/{streams}/StrF/{texts}/"));
            PdfKey::of(document.as_bytes()).is_some()
        };
        assert!(with("A", "A") && with("A", "Identity"));
        assert!(!with("B", "A") && !with("A", "B"), "a key of 16 octets is too short for AES with 256 bits");
    }
}
