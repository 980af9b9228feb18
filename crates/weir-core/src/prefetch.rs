//! Tells the processor that an element will be needed soon, so that it can fetch it from memory early.
//!
//! With a hundred thousand sessions or a million samples, most of the cost of a decision is waiting for memory, and it is known early which
//! element the next decision will need. Unsafe code is allowed in this file for one instruction, which only warms the cache, whatever the
//! address. On processors other than x86-64 it does nothing.
#![allow(unsafe_code)]

/// Prefetches `items[index]`, if there is one, because it will be read soon.
#[inline(always)]
pub(crate) fn soon<T>(items: &[T], index: usize) {
    #[cfg(target_arch = "x86_64")]
    if let Some(item) = items.get(index) {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let address = core::ptr::from_ref(item).cast::<i8>();
        // SAFETY: a prefetch reads nothing and never faults; the addresses lie within a live reference.
        unsafe {
            _mm_prefetch::<_MM_HINT_T0>(address);
            if size_of::<T>() > 64 {
                _mm_prefetch::<_MM_HINT_T0>(address.wrapping_add(64));
            }
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (items, index);
}
