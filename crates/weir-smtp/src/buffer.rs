//! Read buffers, borrowed only while there is something in them.
//!
//! An idle connection holds none: a buffer is taken when the socket is polled and given back when nothing was there.
//! Each thread keeps a few; the rest goes back to the allocator.

use std::cell::RefCell;
use std::ops::{Deref, DerefMut};

/// A TLS record is at most this long; four messages of 4 KiB fit.
pub(crate) const BUFFER_BYTES: usize = 16 << 10;
/// Buffers that a thread keeps for reuse.
const SPARE_MAX: usize = 16;

thread_local! {
    static SPARE: RefCell<Vec<Box<[u8]>>> = const { RefCell::new(Vec::new()) };
}

/// A read buffer; dropping it gives it back.
#[derive(Debug)]
pub(crate) struct Buffer(Box<[u8]>);

impl Buffer {
    /// A buffer with arbitrary content.
    pub(crate) fn take() -> Buffer {
        let spare = SPARE.with(|spare| spare.borrow_mut().pop());
        Buffer(spare.unwrap_or_else(|| vec![0; BUFFER_BYTES].into_boxed_slice()))
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let bytes = std::mem::take(&mut self.0);
        // A thread that is ending has no store any more: then the buffer is simply freed.
        let _ = SPARE.try_with(|spare| {
            let mut spare = spare.borrow_mut();
            if spare.len() < SPARE_MAX {
                spare.push(bytes);
            }
        });
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_comes_back() {
        let first = Buffer::take();
        let place = first.as_ptr();
        drop(first);
        let second = Buffer::take();
        assert_eq!((second.as_ptr(), second.len()), (place, BUFFER_BYTES));
    }
}
