//! Asking the processor to fetch a value that will be needed soon.
//!
//! With a million samples queued, the first sample of a lane is not in any cache when its turn comes, and waiting
//! for it would cost more than the whole decision. So it is asked for when the sample before it leaves. The only
//! `unsafe` of this crate: the instruction has no effect but on caches, and the address is that of a live value.

/// Asks for `value` and goes on.
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
#[inline(always)]
pub(super) fn prefetch<T>(value: &T) {
    use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: a prefetch reads and writes nothing that a program could see.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(core::ptr::from_ref(value).cast()) };
}

/// Elsewhere the processor is left to itself.
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
pub(super) fn prefetch<T>(_value: &T) {}
