//! RAR of every version, through `rars`.
//!
//! Members come out one after the other, as a solid archive needs it. Passwords from the text of the message are tried. Members with
//! another password, members that continue in another volume, and alternate streams of files are reported by name and not opened.

use super::super::{Oddity, Walk, bounded_name};
use crate::budget::{Budget, Exceeded, RATIO_FREE_BYTES};
use rars::{
    Archive, ArchiveMember, ArchiveReadOptions, ArchiveReader, Error, ErrorKind, ExtractionDecision,
    ExtractionErrorAction, rar15_40, rar50,
};
use std::cell::RefCell;
use std::io::{self, Write};
use std::rc::Rc;

/// What a dictionary, and the decoder around it, may take.
const DICTIONARY_MAX: u64 = 128 << 20;
const WORKSPACE_MAX: u64 = 384 << 20;
/// A member that is decoded as a whole.
const BUFFERED_MAX: u64 = 8 << 20;
/// Passwords are tried on archives up to this size, and so many of them.
const TRIED_MAX: usize = 32 << 20;
const PASSWORDS_MAX: usize = 4;
/// The key of RAR 5 is hashed two to the power of this; WinRAR writes 15, and an archive may ask for 24, which takes a minute.
const ROUNDS_MAX: u8 = 18;
/// What every archive of RAR 5 begins with.
const MARK_50: &[u8] = b"Rar!\x1a\x07\x01\0";
/// The block that says that the headers behind it have a password.
const ENCRYPTION_BLOCK: u64 = 4;

pub(super) fn open(walk: &mut Walk<'_>, data: &[u8], level: u32) -> Result<(), Exceeded> {
    // The reader keeps a copy.
    walk.budget.room(data.len())?;
    let (archive, password) = match read(walk, data, None) {
        Ok(archive) => {
            let password = if has_locked(&archive) { fitting(walk, &archive, data.len())? } else { None };
            (archive, password)
        }
        Err(error) => match unlocked(walk, data, &error)? {
            Some((archive, password)) => (archive, Some(password)),
            None => {
                walk.odd_here(oddity(&error));
                return Ok(());
            }
        },
    };
    if has_streams(&archive) {
        // WinRAR writes them to the disk, also to other places than beside the file.
        walk.odd_here(Oddity::Unreadable("a RAR archive with streams beside its files".into()));
    }
    if archive.sfx_offset() > 0 {
        walk.odd_here(Oddity::Inconsistent("a RAR archive behind something else".into()));
    }
    if password.is_some() {
        walk.odd_here(Oddity::PasswordInMail);
    }
    members(walk, &archive, password.as_deref(), data.len() as u64, level)
}

fn read(walk: &Walk<'_>, data: &[u8], password: Option<&str>) -> Result<Archive, Error> {
    let limits = walk.budget.limits();
    let options = ArchiveReadOptions::with_optional_password(password.map(str::as_bytes))
        .with_max_header_count(u64::from(limits.entries) + 16)
        .with_max_header_bytes(limits.header_bytes.saturating_mul(8));
    ArchiveReader::read_with_options(data, options)
}

/// An archive whose names have a password as well, and the one that opened it.
fn unlocked(walk: &Walk<'_>, data: &[u8], error: &Error) -> Result<Option<(Archive, String)>, Exceeded> {
    let is_locked = matches!(error.kind(), ErrorKind::PasswordRequired | ErrorKind::BadPassword);
    if !is_locked || data.len() > TRIED_MAX || header_rounds(data) > ROUNDS_MAX {
        return Ok(None);
    }
    for password in walk.passwords.iter().take(PASSWORDS_MAX) {
        walk.budget.time()?;
        let fits = |archive: &Archive| !has_locked(archive) || opens_with(walk, archive, password);
        if let Some(archive) = read(walk, data, Some(password)).ok().filter(fits) {
            return Ok(Some((archive, password.clone())));
        }
    }
    Ok(None)
}

/// The password in the message with which the first member that has one opens.
fn fitting(walk: &Walk<'_>, archive: &Archive, length: usize) -> Result<Option<String>, Exceeded> {
    if length > TRIED_MAX || rounds(archive) > ROUNDS_MAX {
        return Ok(None);
    }
    for password in walk.passwords.iter().take(PASSWORDS_MAX) {
        walk.budget.time()?;
        if opens_with(walk, archive, password) {
            return Ok(Some(password.clone()));
        }
    }
    Ok(None)
}

/// Whether the first member with a password comes out with this one. Octets come out of any password; their sum is right only with the
/// right one.
fn opens_with(walk: &Walk<'_>, archive: &Archive, password: &str) -> bool {
    let options = bounded(Some(password)).with_max_member_output_bytes(walk.budget.limits().held_bytes / 4);
    let (mut tried, mut right) = (false, true);
    let ended = archive.extract_with_control_and_errors(
        options,
        |member| {
            if tried {
                return Ok(ExtractionDecision::Stop);
            }
            tried = member.meta.is_encrypted && !member.meta.is_directory;
            // In a solid archive a member needs all that came before it.
            let needed = tried || member.is_solid() || !member.meta.is_directory;
            Ok(if needed { ExtractionDecision::Extract(Box::new(io::sink())) } else { ExtractionDecision::Skip })
        },
        |_, _| {
            right = false;
            Ok(ExtractionErrorAction::Continue)
        },
    );
    right && tried && ended.is_ok()
}

fn has_locked(archive: &Archive) -> bool {
    archive.members().any(|member| member.meta.is_encrypted && !member.meta.is_directory)
}

/// How often the most expensive key of an archive is hashed, as a power of two. Older versions than 5 do it as often as they like, which
/// is never long.
fn rounds(archive: &Archive) -> u8 {
    let Archive::Rar50Plus(archive) = archive else { return 0 };
    let encryption = |block: &rar50::Block| match block {
        rar50::Block::File(file) | rar50::Block::Service(file) => file.encryption.as_ref().map(|used| used.kdf_count),
        _ => None,
    };
    archive.blocks.iter().filter_map(encryption).max().unwrap_or_default()
}

/// The same for headers that have a password: the first block of RAR 5 says it (checksum, length, type, flags, version, flags, rounds).
fn header_rounds(data: &[u8]) -> u8 {
    let Some(at) = memchr::memmem::find(data, MARK_50) else { return 0 };
    let mut rest = data.get(at + MARK_50.len() + 4..).unwrap_or_default();
    let _length = number(&mut rest);
    if number(&mut rest) != Some(ENCRYPTION_BLOCK) {
        return u8::MAX;
    }
    let _three = [number(&mut rest), number(&mut rest), number(&mut rest)];
    rest.first().copied().unwrap_or(u8::MAX)
}

/// A number of seven bits an octet, the lowest first.
fn number(rest: &mut &[u8]) -> Option<u64> {
    let length = rest.iter().take(9).position(|octet| octet & 0x80 == 0)? + 1;
    let (octets, behind) = rest.split_at(length);
    *rest = behind;
    Some(octets.iter().rev().fold(0, |value, octet| value << 7 | u64::from(octet & 0x7f)))
}

/// Bounds of what a reader may take while it takes members out.
fn bounded(password: Option<&str>) -> ArchiveReadOptions<'_> {
    ArchiveReadOptions::with_optional_password(password.map(str::as_bytes))
        .with_max_reader_workspace_bytes(WORKSPACE_MAX)
        .with_rar50_dictionary_size_limit(DICTIONARY_MAX)
        .with_rar50_buffered_decode_limit(BUFFERED_MAX)
}

fn members(
    walk: &mut Walk<'_>,
    archive: &Archive,
    password: Option<&str>,
    packed: u64,
    level: u32,
) -> Result<(), Exceeded> {
    let out = Rc::new(RefCell::new(Out::new(walk.budget, packed)));
    let is_closed = |member: &ArchiveMember| is_closed(member, password);
    let locked = archive.members().any(|member| is_closed(&member) && !member.meta.is_directory);
    let solid = archive.members().any(|member| member.is_solid());
    if locked && solid {
        // Nothing behind a member that is not opened can be.
        return archive.members().try_for_each(|member| refused(walk, &member, level));
    }
    let (mut before, mut exceeded) = (None::<Vec<String>>, None);
    let mut decide = |member: &ArchiveMember| {
        let looked = finish(walk, &out, before.take(), level).and_then(|()| {
            if member.meta.is_directory || is_closed(member) {
                return refused(walk, member, level).map(|()| false);
            }
            walk.budget.entry().map(|()| true)
        });
        match looked {
            Ok(true) => {
                before = Some(names(member));
                Ok(ExtractionDecision::Extract(Box::new(SharedWriter(out.clone()))))
            }
            Ok(false) => Ok(ExtractionDecision::Skip),
            Err(why) => {
                exceeded = Some(why);
                Ok(ExtractionDecision::Stop)
            }
        }
    };
    let problems = RefCell::new(Vec::new());
    let ended = archive.extract_with_control_and_errors(bounded(password), &mut decide, |member, error| {
        problems.borrow_mut().push((names(member), oddity(error)));
        Ok(ExtractionErrorAction::Continue)
    });
    if let Some(exceeded) = exceeded.or(out.borrow().exceeded) {
        return Err(exceeded);
    }
    finish(walk, &out, before, level)?;
    for (names, problem) in problems.into_inner() {
        walk.odd(&names, problem);
    }
    if let Err(error) = ended {
        walk.odd_here(oddity(&error));
    }
    Ok(())
}

/// Looks at what came out of a member.
fn finish(walk: &mut Walk<'_>, out: &Rc<RefCell<Out>>, names: Option<Vec<String>>, level: u32) -> Result<(), Exceeded> {
    let Some(names) = names else { return Ok(()) };
    let data = std::mem::take(&mut out.borrow_mut().data);
    walk.holding(&data, |walk, data| walk.file(&names, "", data, level))?;
    let packed = out.borrow().packed;
    *out.borrow_mut() = Out::new(walk.budget, packed);
    Ok(())
}

/// A member that is not opened, with its name; a folder is nothing.
fn refused(walk: &mut Walk<'_>, member: &ArchiveMember, level: u32) -> Result<(), Exceeded> {
    let meta = &member.meta;
    let why = if meta.is_directory {
        if meta.packed_size > 0 {
            walk.odd(&names(member), Oddity::Inconsistent("a folder with content in a RAR archive".into()));
        }
        return Ok(());
    } else if meta.is_encrypted {
        Oddity::Encrypted
    } else if meta.is_split_before || meta.is_split_after {
        Oddity::Unreadable("a RAR archive whose other pieces come apart".into())
    } else {
        Oddity::Unreadable("a RAR archive with a link, or behind a member with a password".into())
    };
    walk.locked(&names(member), why, level)
}

fn is_closed(ArchiveMember { meta, .. }: &ArchiveMember, password: Option<&str>) -> bool {
    (meta.is_encrypted && password.is_none()) || meta.is_split_before || meta.is_split_after || meta.is_redirection
}

/// As it is written, and as it reads in Unicode.
fn names(member: &ArchiveMember) -> Vec<String> {
    let mut names = vec![bounded_name(&member.meta.name)];
    if let Ok(decoded) = member.decoded_name(None) {
        names.push(bounded_name(&decoded));
    }
    names.dedup();
    names
}

/// Whether something is kept beside a file that Windows would write as a stream of it.
fn has_streams(archive: &Archive) -> bool {
    match archive {
        Archive::Rar50Plus(archive) => archive.blocks.iter().any(|block| match block {
            rar50::Block::Service(service) => service.name == b"STM",
            _ => false,
        }),
        Archive::Rar15To40(archive) => archive.blocks.iter().any(|block| match block {
            rar15_40::Block::NewSub(service) => service.file.name == b"STM",
            _ => false,
        }),
        _ => false,
    }
}

fn oddity(error: &Error) -> Oddity {
    match error.kind() {
        ErrorKind::PasswordRequired | ErrorKind::BadPassword => Oddity::Encrypted,
        _ => Oddity::Unreadable(format!("a RAR archive: {}", error.root_cause())),
    }
}

/// What comes out of a member, within what the budget had left when it began.
struct Out {
    data: Vec<u8>,
    packed: u64,
    most: [(u64, Exceeded); 3],
    exceeded: Option<Exceeded>,
}

impl Out {
    fn new(budget: &Budget, packed: u64) -> Out {
        let limits = budget.limits();
        let ratio = packed.saturating_mul(u64::from(limits.ratio)).max(RATIO_FREE_BYTES);
        let most = [
            (ratio, Exceeded::Ratio(limits.ratio)),
            (limits.held_bytes.saturating_sub(budget.held()), Exceeded::Held(limits.held_bytes)),
            (limits.bytes, Exceeded::Bytes(limits.bytes)),
        ];
        Out { data: Vec::new(), packed, most, exceeded: None }
    }
}

struct SharedWriter(Rc<RefCell<Out>>);

impl Write for SharedWriter {
    fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
        let mut out = self.0.borrow_mut();
        let length = (out.data.len() + octets.len()) as u64;
        if let Some((_, exceeded)) = out.most.iter().find(|(most, _)| length > *most).copied() {
            out.exceeded = Some(exceeded);
            return Err(io::Error::other(exceeded.to_string()));
        }
        out.data.extend_from_slice(octets);
        Ok(octets.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
