//! RAR of every version, through `rars`.
//!
//! Members come out one after the other, as a solid archive needs it. What has a password, goes on in another volume, or stands beside a
//! file as a stream of it, is told by its name and not opened.

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

pub(super) fn open(walk: &mut Walk<'_>, data: &[u8], level: u32) -> Result<(), Exceeded> {
    // The reader keeps a copy.
    walk.budget.room(data.len())?;
    let limits = walk.budget.limits();
    let options = ArchiveReadOptions::new()
        .with_max_header_count(u64::from(limits.entries) + 16)
        .with_max_header_bytes(limits.header_bytes.saturating_mul(8));
    let archive = match ArchiveReader::read_with_options(data, options) {
        Ok(archive) => archive,
        Err(error) => {
            walk.odd_here(oddity(&error));
            return Ok(());
        }
    };
    if has_streams(&archive) {
        // WinRAR writes them to the disk, also to other places than beside the file.
        walk.odd_here(Oddity::Unreadable("a RAR archive with streams beside its files".into()));
    }
    if archive.sfx_offset() > 0 {
        walk.odd_here(Oddity::Inconsistent("a RAR archive behind something else".into()));
    }
    members(walk, &archive, data.len() as u64, level)
}

fn members(walk: &mut Walk<'_>, archive: &Archive, packed: u64, level: u32) -> Result<(), Exceeded> {
    let out = Rc::new(RefCell::new(Out::new(walk.budget, packed)));
    let options = ArchiveReadOptions::new()
        .with_max_reader_workspace_bytes(WORKSPACE_MAX)
        .with_rar50_dictionary_size_limit(DICTIONARY_MAX)
        .with_rar50_buffered_decode_limit(BUFFERED_MAX);
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
                Ok(ExtractionDecision::Extract(Box::new(Writer(out.clone()))))
            }
            Ok(false) => Ok(ExtractionDecision::Skip),
            Err(why) => {
                exceeded = Some(why);
                Ok(ExtractionDecision::Stop)
            }
        }
    };
    let problems = RefCell::new(Vec::new());
    let ended = archive.extract_with_control_and_errors(options, &mut decide, |member, error| {
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

fn is_closed(ArchiveMember { meta, .. }: &ArchiveMember) -> bool {
    meta.is_encrypted || meta.is_split_before || meta.is_split_after || meta.is_redirection
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

struct Writer(Rc<RefCell<Out>>);

impl Write for Writer {
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
