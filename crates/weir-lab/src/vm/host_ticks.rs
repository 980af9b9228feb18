//! How fast this machine counts its cycles: without KVM, QEMU hands that counter to its guest as it is.
//!
//! A guest finds out the speed by itself when it boots, by comparing with another timer. On a busy machine QEMU is put aside in the midst of
//! that: the guest's clock then runs ten times too fast, and its ticks leave hardly any time to boot in. So it is told.
#![allow(unsafe_code)]

use std::time::{Duration, Instant};

/// How long is measured; what it takes to read both clocks is one part in thousands of it.
const APART: Duration = Duration::from_millis(100);
/// Whoever is put aside between two readings tries again.
const TRIES: u32 = 64;

/// Thousands of cycles a second; none where the counter cannot be read.
pub(super) async fn khz() -> Option<u64> {
    let first = reading()?;
    tokio::time::sleep(APART).await;
    rate(first, reading()?)
}

/// The counter, and when it was read: the quickest of several readings.
fn reading() -> Option<(Instant, u64)> {
    let read = |_| {
        let before = Instant::now();
        let ticks = ticks()?;
        Some((before.elapsed(), before, ticks))
    };
    let quickest = (0..TRIES).filter_map(read).min_by_key(|(took, ..)| *took)?;
    Some((quickest.1, quickest.2))
}

fn rate(first: (Instant, u64), second: (Instant, u64)) -> Option<u64> {
    let nanoseconds = second.0.checked_duration_since(first.0)?.as_nanos();
    let ticks = u128::from(second.1.checked_sub(first.1)?);
    let khz = (ticks * 1_000_000).checked_div(nanoseconds)?;
    u64::try_from(khz).ok().filter(|khz| *khz > 0)
}

#[cfg(target_arch = "x86_64")]
fn ticks() -> Option<u64> {
    // SAFETY: it reads a register and touches no memory; every processor of this kind has it.
    Some(unsafe { std::arch::x86_64::_rdtsc() })
}

#[cfg(not(target_arch = "x86_64"))]
fn ticks() -> Option<u64> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_over_time_are_a_rate() {
        let begun = Instant::now();
        let later = |ms| begun + Duration::from_millis(ms);
        assert_eq!(rate((begun, 1_000), (later(100), 250_001_000)), Some(2_500_000));
        assert_eq!(rate((begun, 7), (begun, 9)), None);
        assert_eq!(rate((begun, 9), (later(1), 7)), None);
        assert_eq!(rate((later(1), 7), (begun, 9)), None);
        assert_eq!(rate((begun, 7), (later(1), 7)), None);
    }

    #[cfg(target_arch = "x86_64")]
    #[tokio::test]
    async fn what_is_measured_is_the_same_every_time() {
        let (one, other) = (khz().await.unwrap(), khz().await.unwrap());
        assert!(one.abs_diff(other) * 100 < one, "{one} kHz and {other} kHz");
    }
}
