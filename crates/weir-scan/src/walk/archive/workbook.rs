//! Workbooks of Excel up to 2003: their records, and whether they open without a password.
//!
//! Excel encrypts a workbook of which only the structure is protected with a password of its own, and opens it without asking. Such a one is
//! decrypted and shown as it is to Excel; so is one whose password stands in the mail. All others count as encrypted.
//! Cost: linear in the workbook, and four hashes for each password. Sources: Microsoft, *[MS-XLS]*, sections 2.2.10 and 2.4.117;
//! *[MS-OFFCRYPTO]*, sections 2.3.5 to 2.3.7.

use super::super::{File, Oddity, Walk};
use super::rc4::rc4;
use crate::budget::Exceeded;
use crate::little_endian::{u16_at, u32_at};
use md5::{Digest, Md5};
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};

/// What Excel itself uses.
const OWN_PASSWORD: &str = "VelvetSweatshop";
const FILE_PASS: u16 = 0x2f;
const BOUND_SHEET: u16 = 0x85;
const BEGIN: u16 = 0x809;
const END: u16 = 0x0a;
/// Records that are never encrypted, besides those two: who has the file open, what is shown first, and three of shared workbooks.
const NEVER_ENCRYPTED: [u16; 6] = [BEGIN, FILE_PASS, 0x194, 0x195, 0xe1, 0x196];
const SHARED_HEAD: u16 = 0x138;
/// A new key begins after so many octets.
const BLOCK: usize = 1024;

/// A record: its kind, and where its content begins and ends.
struct Record {
    kind: u16,
    begin: usize,
    end: usize,
}

fn records(data: &[u8]) -> impl Iterator<Item = Record> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let (kind, length) = (u16_at(data, at)?, u16_at(data, at + 2)?);
        let begin = at + 4;
        at = begin + usize::from(length);
        Some(Record { kind, begin, end: at.min(data.len()) })
    })
}

/// Whether a file is the records of a workbook or a sheet without a compound file around them, as the oldest versions and some other programs
/// write them: it begins with the record that every sheet begins with, of a known version of it, for a known kind of sheet.
pub(crate) fn is_bare(data: &[u8]) -> bool {
    let begins = matches!(u16_at(data, 0), Some(0x09 | 0x209 | 0x409 | 0x809));
    let length = matches!(u16_at(data, 2), Some(4 | 6 | 8 | 16));
    begins && length && matches!(u16_at(data, 6), Some(0x05 | 0x06 | 0x10 | 0x20 | 0x40 | 0x100))
}

/// Whether it has a sheet with macros of Excel 4: the list of sheets says so, or the sheet itself does.
pub(crate) fn has_macro_sheet(data: &[u8]) -> bool {
    let encrypted = encrypted_from(data);
    records(data).any(|Record { kind, begin, .. }| match kind {
        BOUND_SHEET => begin < encrypted && data.get(begin + 5) == Some(&1),
        // Where a sheet begins is never encrypted.
        0x09 | 0x209 | 0x409 | BEGIN => u16_at(data, begin + 2) == Some(0x40),
        _ => false,
    })
}

/// The same for a module with a program, which the version of 1993 keeps as a sheet.
fn has_module(data: &[u8]) -> bool {
    let mut readable = records(&data[..encrypted_from(data)]);
    readable.any(|Record { kind, begin, .. }| kind == BOUND_SHEET && data.get(begin + 5) == Some(&6))
}

/// The record that says how it is encrypted: it stands among what is about all sheets, and behind the last sheet there may be anything.
fn lock(data: &[u8]) -> Option<Record> {
    records(data).take_while(|record| record.kind != END).find(|record| record.kind == FILE_PASS)
}

impl Record {
    fn content<'d>(&self, data: &'d [u8]) -> &'d [u8] {
        &data[self.begin.min(self.end)..self.end]
    }
}

/// Where its records begin to be encrypted, in a way that is known; its end if they are not. What they say from there on is chance, except those that
/// are never encrypted.
pub(crate) fn encrypted_from(data: &[u8]) -> usize {
    lock(data).filter(|told| Lock::read(told.content(data)).is_some()).map_or(data.len(), |told| told.end)
}

/// The main stream of a compound file, unless it is looked at as records anyhow.
pub(super) fn of_compound(walk: &mut Walk<'_>, names: &[String], data: &[u8], level: u32) -> Result<(), Exceeded> {
    if is_bare(data) { Ok(()) } else { open(walk, names, data, level) }
}

/// The records without a compound file around them, and as a stream of one.
pub(super) fn bare(walk: &mut Walk<'_>, file: &File<'_>, level: u32) -> Result<(), Exceeded> {
    if is_bare(file.data) { open(walk, file.names, file.data, level) } else { Ok(()) }
}

/// Shows what is in a workbook that is encrypted, or says that nobody can.
fn open(walk: &mut Walk<'_>, names: &[String], data: &[u8], level: u32) -> Result<(), Exceeded> {
    if has_module(data) {
        walk.odd_here(Oddity::Macros);
    }
    let Some(told) = lock(data) else { return Ok(()) };
    let lock = Lock::read(told.content(data));
    let Some(key) = lock.as_ref().and_then(|lock| lock.key(OWN_PASSWORD)) else {
        let from_mail = |lock: &Lock| walk.passwords.iter().find_map(|password| lock.key(password));
        return match lock.as_ref().and_then(from_mail) {
            Some(key) => {
                walk.odd_here(Oddity::PasswordInMail);
                decrypted(walk, &key, names, (data, told.end), level)
            }
            None => {
                walk.odd_here(Oddity::Encrypted);
                Ok(())
            }
        };
    };
    decrypted(walk, &key, names, (data, told.end), level)
}

fn decrypted(
    walk: &mut Walk<'_>,
    key: &WorkbookKey,
    names: &[String],
    (data, from): (&[u8], usize),
    level: u32,
) -> Result<(), Exceeded> {
    walk.budget.entry()?;
    walk.budget.time()?;
    walk.budget.room(data.len())?;
    let plain = key.opened(data, from);
    walk.holding(&plain, |walk, plain| {
        walk.file(names, "", plain, level)?;
        of_compound(walk, names, plain, level)
    })
}

/// How a workbook is encrypted, and what tells whether a password fits.
#[derive(Debug)]
enum Lock<'d> {
    /// Obfuscated: a key, and a sum of the password.
    Xor { key: u16, sum: u16 },
    /// RC4 with MD5.
    Old { salt: &'d [u8], check: &'d [u8] },
    /// RC4 with SHA-1, and so many octets of a key.
    New { salt: &'d [u8], check: &'d [u8], length: usize },
}

impl<'d> Lock<'d> {
    fn read(told: &'d [u8]) -> Option<Lock<'d>> {
        // Before Excel 97 there was only one way, and nothing said so.
        if told.len() == 4 {
            return Some(Lock::Xor { key: u16_at(told, 0)?, sum: u16_at(told, 2)? });
        }
        match (u16_at(told, 0)?, u16_at(told, 2)?, u16_at(told, 4)?) {
            (0, key, sum) => Some(Lock::Xor { key, sum }),
            (1, 1, 1) => Some(Lock::Old { salt: told.get(6..22)?, check: told.get(22..54)? }),
            (1, 2..=4, 2) => {
                let header = told.get(14..)?.get(..u32_at(told, 10)? as usize)?;
                let rest = &told[14 + header.len()..];
                let bits = u32_at(header, 16).filter(|bits| *bits > 0).unwrap_or(40);
                let length = usize::try_from(bits / 8).ok().filter(|length| (5..=16).contains(length))?;
                let check = rest.get(20..60)?;
                (u32_at(rest, 0) == Some(16)).then_some(Lock::New { salt: &rest[4..20], check, length })
            }
            _ => None,
        }
    }

    /// The key, if the password fits.
    fn key(&self, password: &str) -> Option<WorkbookKey> {
        let wide: Vec<u8> = password.encode_utf16().flat_map(u16::to_le_bytes).collect();
        match *self {
            Lock::Xor { key, sum } => {
                let narrow = &password.as_bytes()[..password.len().min(15)];
                let fits = !narrow.is_empty() && xor_key(narrow) == key && xor_sum(narrow) == sum;
                fits.then(|| WorkbookKey::Xor(xor_octets(narrow, key)))
            }
            Lock::Old { salt, check } => {
                let short = [&Md5::digest(&wide)[..5], salt].concat().repeat(16);
                let key = WorkbookKey::Old(Md5::digest(short)[..5].to_vec());
                let plain = rc4(&key.of_block(0), check);
                (Md5::digest(&plain[..16])[..] == plain[16..]).then_some(key)
            }
            Lock::New { salt, check, length } => {
                let hash = digest(&SHA1_FOR_LEGACY_USE_ONLY, &[salt, &wide].concat());
                let key = WorkbookKey::New(hash.as_ref().to_vec(), length);
                // The length of the hash stands between the two in the open.
                let plain = rc4(&key.of_block(0), &[&check[..16], &check[20..]].concat());
                let told = digest(&SHA1_FOR_LEGACY_USE_ONLY, &plain[..16]);
                (told.as_ref() == &plain[16..]).then_some(key)
            }
        }
    }
}

enum WorkbookKey {
    Xor([u8; 16]),
    Old(Vec<u8>),
    New(Vec<u8>, usize),
}

impl WorkbookKey {
    /// That of a block, for RC4.
    fn of_block(&self, block: u32) -> Vec<u8> {
        match self {
            WorkbookKey::Xor(_) => vec![0],
            WorkbookKey::Old(base) => Md5::digest([base, &block.to_le_bytes()[..]].concat()).to_vec(),
            WorkbookKey::New(base, length) => {
                let hash = digest(&SHA1_FOR_LEGACY_USE_ONLY, &[base, &block.to_le_bytes()[..]].concat());
                let mut key = hash.as_ref()[..*length].to_vec();
                // The shortest one is filled up with zeros.
                key.resize(if *length == 5 { 16 } else { *length }, 0);
                key
            }
        }
    }

    /// The workbook as Excel reads it; what stands before `from` is not encrypted.
    fn opened(&self, data: &[u8], from: usize) -> Vec<u8> {
        let mut out = match self {
            WorkbookKey::Xor(_) => data.to_vec(),
            // Octets that are not encrypted move the key on all the same.
            _ => data.chunks(BLOCK).zip(0..).flat_map(|(block, number)| rc4(&self.of_block(number), block)).collect(),
        };
        let mut behind = 0;
        for Record { kind, begin, end } in records(data) {
            let whole = end < from || NEVER_ENCRYPTED.contains(&kind) || kind == SHARED_HEAD;
            // Where a sheet begins in the workbook is never encrypted.
            let open = if whole { end } else { begin + if kind == BOUND_SHEET { 4 } else { 0 } }.min(data.len());
            out[behind..open].copy_from_slice(&data[behind..open]);
            if let WorkbookKey::Xor(octets) = self {
                for at in open..end {
                    out[at] = data[at].rotate_left(3) ^ octets[(end + at - begin) % 16];
                }
            }
            if kind == FILE_PASS {
                // What is decrypted is not encrypted any more.
                out[begin - 4..begin - 2].fill(0);
            }
            behind = end;
        }
        out[behind..].copy_from_slice(&data[behind..]);
        out
    }
}

/// The key of a password of up to 15 octets ([MS-OFFCRYPTO], section 2.3.7.2; its table is the states of this shift register).
fn xor_key(password: &[u8]) -> u16 {
    let turned = |state: u16| {
        let state = state.rotate_left(1);
        if state & 1 == 1 { state ^ 0x1020 } else { state }
    };
    let (mut key, mut base, mut end) = (0, 0x8000, 0xffff);
    for octet in password.iter().rev() {
        for bit in 0..8 {
            (base, end) = (turned(base), turned(end));
            if octet & 0x7f & (1 << bit) != 0 {
                key ^= base;
            }
        }
    }
    key ^ end
}

/// The sum of a password (section 2.3.7.1).
fn xor_sum(password: &[u8]) -> u16 {
    let sum = password.iter().zip(1..).fold(0u16, |sum, (octet, place)| {
        let (octet, turn) = (u16::from(*octet), place % 15);
        sum ^ ((octet << turn | octet >> (15 - turn)) & 0x7fff)
    });
    sum ^ password.len() as u16 ^ 0xce4b
}

/// What the octets of a record are combined with.
fn xor_octets(password: &[u8], key: u16) -> [u8; 16] {
    const FILLING: [u8; 15] = [0xbb, 0xff, 0xff, 0xba, 0xff, 0xff, 0xb9, 0x80, 0, 0xbe, 0x0f, 0, 0xbf, 0x0f, 0];
    let key = key.to_le_bytes();
    std::array::from_fn(|at| {
        let octet = password.get(at).or_else(|| FILLING.get(at - password.len())).copied().unwrap_or_default();
        (octet ^ key[at % 2]).rotate_left(2)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_files::compound;
    use crate::walk::seen::Seen;

    fn record(kind: u16, content: &[u8]) -> Vec<u8> {
        [&kind.to_le_bytes()[..], &(content.len() as u16).to_le_bytes(), content].concat()
    }

    /// A workbook with sheets of these kinds, and what says how it is encrypted.
    fn workbook(told: &[u8], sheets: &[u8]) -> Vec<u8> {
        let mut out = record(BEGIN, b"\0\x06\x05\0\0\0\0\0\0\0\0\0\0\0\0\0");
        out.extend(record(FILE_PASS, told));
        out.extend(record(0xe1, b"\xb0\x04"));
        out.extend(record(0x42, &[7; 2000]));
        for kind in sheets {
            out.extend(record(BOUND_SHEET, &[1, 2, 3, 4, 0, *kind, 2, 0, b'a', b'b']));
        }
        out.extend(record(0x0a, b""));
        out
    }

    /// How a workbook with this password begins, and its key.
    fn locked(password: &str, way: usize) -> (Vec<u8>, WorkbookKey) {
        let wide: Vec<u8> = password.encode_utf16().flat_map(u16::to_le_bytes).collect();
        let (salt, verifier) = ([0x5a; 16], [0x33; 16]);
        match way {
            0 => {
                let (key, sum) = (xor_key(password.as_bytes()), xor_sum(password.as_bytes()));
                let told = [[0; 2], key.to_le_bytes(), sum.to_le_bytes()].concat();
                (told, WorkbookKey::Xor(xor_octets(password.as_bytes(), key)))
            }
            1 => {
                let short = [&Md5::digest(&wide)[..5], &salt].concat().repeat(16);
                let key = WorkbookKey::Old(Md5::digest(short)[..5].to_vec());
                let check = rc4(&key.of_block(0), &[&verifier[..], &Md5::digest(verifier)].concat());
                ([b"\x01\0\x01\0\x01\0".as_slice(), &salt, &check].concat(), key)
            }
            _ => {
                let length = if way == 2 { 5 } else { 16 };
                let base = digest(&SHA1_FOR_LEGACY_USE_ONLY, &[&salt[..], &wide].concat());
                let key = WorkbookKey::New(base.as_ref().to_vec(), length);
                let hash = digest(&SHA1_FOR_LEGACY_USE_ONLY, &verifier);
                let check = rc4(&key.of_block(0), &[&verifier[..], hash.as_ref()].concat());
                let header = [[4, 0x68, 1, 0, length as u32 * 8].map(u32::to_le_bytes).concat(), vec![0; 14]].concat();
                let told = [
                    b"\x01\0\x02\0\x02\0\x04\0\0\0".as_slice(),
                    &(header.len() as u32).to_le_bytes(),
                    &header,
                    &16u32.to_le_bytes(),
                    &salt,
                    &check[..16],
                    &20u32.to_le_bytes(),
                    &check[16..],
                ];
                (told.concat(), key)
            }
        }
    }

    fn encrypted(password: &str, way: usize, sheets: &[u8]) -> (Vec<u8>, Vec<u8>) {
        let (told, key) = locked(password, way);
        let plain = workbook(&told, sheets);
        let from = 20 + 4 + told.len();
        let mut out = key.opened(&plain, from);
        if let WorkbookKey::Xor(octets) = key {
            // Only this way is not its own inverse.
            for Record { kind, begin, end } in records(&plain) {
                let open = if kind == BOUND_SHEET { begin + 4 } else { begin };
                for at in (open..end).filter(|_| end >= from && !NEVER_ENCRYPTED.contains(&kind)) {
                    out[at] = (plain[at] ^ octets[(end + at - begin) % 16]).rotate_right(3);
                }
            }
        }
        // Both without what says that it is encrypted.
        let mut shown = plain;
        shown[20..22].fill(0);
        out[20..22].copy_from_slice(&FILE_PASS.to_le_bytes());
        (shown, out)
    }

    fn seen(data: &[u8], passwords: &[&str]) -> Seen {
        Seen::with_passwords("a.dat", data, passwords)
    }

    #[test]
    fn what_excel_opens_without_asking_is_opened() {
        for way in 0..4 {
            let (plain, data) = encrypted(OWN_PASSWORD, way, &[0, 1]);
            assert!(plain[50..] != data[50..], "{way}");
            for file in [compound(&[("WORKBOOK", &data)]), data] {
                let seen = seen(&file, &[]);
                assert!(seen.odd.is_empty() && seen.holds(&plain), "{way}: {:?}", seen.odd);
            }
        }
    }

    #[test]
    fn a_workbook_with_a_password_of_somebody_is_encrypted() {
        for way in 0..4 {
            let (plain, data) = encrypted("Inv-2026", way, &[0]);
            let file = compound(&[("Workbook", &data)]);
            assert_eq!(seen(&file, &["Inv-2025"]).odd, [Oddity::Encrypted], "{way}");
            assert_eq!(seen(&data, &[]).odd, [Oddity::Encrypted], "{way}");
            let opened = seen(&file, &["is", "Inv-2026"]);
            assert!(opened.odd == [Oddity::PasswordInMail] && opened.holds(&plain), "{way}: {:?}", opened.odd);
        }
        for told in [
            b"".as_slice(),
            b"\x01",
            b"\x01\0\x01\0\x01\0",
            b"\x01\0\x04\0\x02\0\0\0\0\0\xff\xff\xff\xff",
            b"\x09\0\0\0\0\0",
        ] {
            assert_eq!(seen(&compound(&[("Book", &workbook(told, &[0]))]), &[]).odd, [Oddity::Encrypted], "{told:x?}");
        }
        let plain = [record(BEGIN, &[0, 6, 5, 0]), record(BOUND_SHEET, &[0; 10]), record(END, b"")].concat();
        let plain = [plain, record(FILE_PASS, b"anything")].concat();
        assert_eq!(seen(&compound(&[("Workbook", &plain)]), &[]).odd, []);
    }

    #[test]
    fn what_is_encrypted_is_judged_as_it_is_decrypted() {
        let decrypt = |told: &[u8], file: Vec<u8>| -> Vec<u8> {
            let mut plain = file;
            assert_eq!(&plain[20..22], FILE_PASS.to_le_bytes());
            assert_eq!(plain[24..24 + told.len()], *told);
            plain[20..22].fill(0);
            plain
        };
        for way in 0..4 {
            let (told, _) = locked(OWN_PASSWORD, way);
            // As it is kept, it would have each kind of sheet.
            let file = workbook(&told, &[1, 6]);
            assert!(!has_macro_sheet(&file) && !has_module(&file), "{way}");
            let plain = decrypt(&told, file);
            assert!(has_macro_sheet(&plain) && has_module(&plain), "{way}");
            // The sheet itself says what it is in the open.
            let sheet = record(BEGIN, &[&[0, 6, 0x40][..], &[0; 13]].concat());
            assert!(has_macro_sheet(&[workbook(&told, &[0]), sheet].concat()), "{way}");
            // A module is told of what is decrypted, whether it begins as records do or not.
            let (_, module) = encrypted(OWN_PASSWORD, way, &[0, 6]);
            let behind = [record(0x42, &[0; 12]), module.clone()].concat();
            assert_eq!(seen(&compound(&[("Workbook", &module)]), &[]).odd, [Oddity::Macros], "{way}");
            if way == 0 {
                assert_eq!(seen(&compound(&[("Workbook", &behind)]), &[]).odd, [Oddity::Macros]);
            }
        }
        // Nobody opens one with such a lock, so nothing in it is by chance.
        assert!(has_macro_sheet(&workbook(b"\x09\0\0\0\0\0", &[1])));
    }

    #[test]
    fn the_password_of_excel_has_the_known_key() {
        assert_eq!((xor_key(OWN_PASSWORD.as_bytes()), xor_sum(OWN_PASSWORD.as_bytes())), (0xb359, 0x9a0a));
    }

    #[test]
    fn sheets_with_macros_are_told() {
        assert!(has_macro_sheet(&workbook(b"", &[0, 1])) && !has_macro_sheet(&workbook(b"", &[0, 2, 6])));
        let many = [record(0x42, b"").repeat(5000), record(BOUND_SHEET, &[0, 0, 0, 0, 2, 1, 0, 0])].concat();
        assert!(has_macro_sheet(&many));
        for (kind, length) in [(0x09, 4), (0x209, 6), (0x409, 6), (0x809, 16)] {
            let begin = |sheet: u8| record(kind, &[&[2, 0, sheet, 0][..], &vec![0; length - 4]].concat());
            assert!(is_bare(&begin(0x40)) && has_macro_sheet(&begin(0x40)), "{kind:x}");
            assert!(is_bare(&begin(0x10)) && !has_macro_sheet(&begin(0x10)), "{kind:x}");
        }
        assert!(!is_bare(b"\t\0hello") && !is_bare(b"") && !has_macro_sheet(b"\x85\0"));
        let book = [record(BEGIN, &[0, 5, 5, 0]), record(BOUND_SHEET, &[0, 0, 0, 0, 0, 6])].concat();
        assert_eq!(seen(&compound(&[("Book", &book)]), &[]).odd, [Oddity::Macros]);
    }
}
