//! Read buffers that are borrowed only while there is something in them.
//!
//! An idle connection holds no buffer: one is taken when the socket is polled, and given back if nothing was there. Each thread keeps a few
//! buffers; the rest is freed.

use std::cell::RefCell;
use std::ops::{Deref, DerefMut};

/// The longest TLS record, and enough for four messages of 4 KiB.
pub(crate) const BUFFER_BYTES: usize = 16 << 10;
/// How many buffers a thread keeps for reuse.
const SPARE_MAX: usize = 16;

thread_local! {
    static SPARE: RefCell<Vec<Box<[u8]>>> = const { RefCell::new(Vec::new()) };
}

/// A read buffer. Dropping it gives it back to the thread.
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
        // A thread that is ending no longer has a store. Then the buffer is simply freed.
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
