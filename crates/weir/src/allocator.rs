//! The allocator: small pages for small allocations, huge pages for large tables.
//!
//! The tables of a gate under attack are large and are accessed at random. With small pages the processor would have to look up a page for
//! almost every access (`docs/algorithms/fair.md` has the figures). For everything else huge pages are a waste: a huge page that holds a
//! single live octet takes two mebibytes. mimalloc asks for huge pages for all its memory. [`take_back`] undoes that, and each allocation
//! of [`LARGE`] octets or more asks for them again. The benchmarks use this allocator too.
//!
//! Unsafe code is allowed here because the trait of an allocator is unsafe. Apart from the copy in `realloc`, this code touches no memory
//! itself; it only gives advice to the kernel.
#![allow(unsafe_code)]

use mimalloc::MiMalloc;
use rustix::mm::{Advice, madvise};
use std::alloc::{GlobalAlloc, Layout};
use std::ffi::c_void;

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

/// From this size on, the processor's cache of page addresses no longer covers a table in small pages.
const LARGE: usize = 8 << 20;
const HUGE_PAGE: usize = 2 << 20;

struct Allocator;

// SAFETY: every call is passed on to mimalloc, which keeps the contract; the advice changes no content.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's contract is the same.
        let memory = unsafe { MiMalloc.alloc(layout) };
        ask_if_large(memory, layout.size());
        memory
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's contract is the same.
        let memory = unsafe { MiMalloc.alloc_zeroed(layout) };
        ask_if_large(memory, layout.size());
        memory
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller's contract is the same.
        unsafe { MiMalloc.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if size < LARGE {
            // SAFETY: the caller's contract is the same.
            return unsafe { MiMalloc.realloc(memory, layout, size) };
        }
        // The advice must come before the copy, which touches the pages.
        // SAFETY: the alignment is that of a valid layout and the caller vouches for the size; old and new memory do not overlap.
        unsafe {
            let grown = self.alloc(Layout::from_size_align_unchecked(size, layout.align()));
            if !grown.is_null() {
                std::ptr::copy_nonoverlapping(memory, grown, layout.size().min(size));
                self.dealloc(memory, layout);
            }
            grown
        }
    }
}

/// Asks for huge pages for those parts of a large allocation that fill whole huge pages.
fn ask_if_large(memory: *mut u8, size: usize) {
    if size < LARGE || memory.is_null() {
        return;
    }
    let before = memory.align_offset(HUGE_PAGE);
    let whole = size.saturating_sub(before) / HUGE_PAGE * HUGE_PAGE;
    // SAFETY: the range lies within memory that was just allocated. If the system has no huge pages, nothing changes.
    let _ = unsafe { madvise(memory.wrapping_add(before).cast::<c_void>(), whole, Advice::LinuxHugepage) };
}

/// Withdraws the request for huge pages for all memory so far. Called at the start, before much of the memory is used.
pub(crate) fn take_back() {
    let maps = std::fs::read_to_string("/proc/self/smaps").unwrap_or_default();
    let mut range = None;
    for line in maps.lines() {
        let first = line.split_ascii_whitespace().next().unwrap_or_default();
        if let Some(bounds) = bounds(first) {
            range = Some(bounds);
        } else if first == "VmFlags:"
            && line.split_ascii_whitespace().any(|flag| flag == "hg")
            && let Some((start, end)) = range
        {
            let start = std::ptr::with_exposed_provenance_mut::<c_void>(start);
            // SAFETY: advice on the size of pages for a mapping of our own; no content changes.
            let _ = unsafe { madvise(start, end - start.addr(), Advice::LinuxNoHugepage) };
        }
    }
}

/// The bounds of a mapping, from the first word of its line.
fn bounds(word: &str) -> Option<(usize, usize)> {
    let (start, end) = word.split_once('-')?;
    Some((usize::from_str_radix(start, 16).ok()?, usize::from_str_radix(end, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether huge pages were requested for the mapping that holds this address.
    fn asked_for(address: usize) -> bool {
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let mut here = false;
        maps.lines().any(|line| {
            let first = line.split_ascii_whitespace().next().unwrap_or_default();
            if let Some((start, end)) = bounds(first) {
                here = (start..end).contains(&address);
            }
            here && first == "VmFlags:" && line.split_ascii_whitespace().any(|flag| flag == "hg")
        })
    }

    #[test]
    fn large_tables_ask_for_huge_pages_and_nothing_else_does() {
        take_back();
        let small = vec![1_u8; 1 << 20];
        let mut large = vec![1_u8; LARGE + HUGE_PAGE];
        if std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled")
            .is_ok_and(|mode| !mode.contains("[never]"))
        {
            assert!(asked_for(large.as_ptr().addr() + HUGE_PAGE));
            assert!(!asked_for(small.as_ptr().addr()));
        }
        large.resize(3 * LARGE, 7);
        assert!(
            large[..LARGE].iter().all(|octet| *octet == 1) && large[3 * LARGE - 1] == 7,
            "what grows keeps its content"
        );
    }

    #[test]
    fn lines_without_bounds_are_none() {
        assert_eq!(bounds("7f00-7f10"), Some((0x7f00, 0x7f10)));
        for word in ["", "Rss:", "VmFlags:", "-", "x-y", "fffffffffffffffff-1"] {
            assert_eq!(bounds(word), None);
        }
    }
}
