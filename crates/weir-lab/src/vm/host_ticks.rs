//! How fast this machine's processor counts its cycles: without KVM, QEMU hands that counter to its guest as it is.
//!
//! A guest normally measures the speed when it boots, by comparing it with another timer. On a busy machine QEMU may be suspended in the
//! middle of the measurement. Then the guest's clock runs ten times too fast, and its timer interrupts leave hardly any time for booting.
//! So the guest is told the speed.
//!
//! The kernel of this machine has measured it already, and shows it as `bogomips`: its delay loops count cycles of this counter, twice as
//! many "instructions" as cycles, unless somebody has set `lpj=` on its command line. What it shows is rounded to 5 kHz.

/// The first entry, which is about a processor like all others, is well within this length.
const ENTRY_MAX: u64 = 16 * 1024;
/// No processor counts slower or faster: a value outside of this must be about something else.
const SANE_KHZ: std::ops::RangeInclusive<u64> = 200_000..=20_000_000;

/// The speed of the counter in kHz; None if our kernel does not report it.
pub(super) fn khz() -> Option<u64> {
    use std::io::Read;
    let mut entry = Vec::new();
    std::fs::File::open("/proc/cpuinfo").ok()?.take(ENTRY_MAX).read_to_end(&mut entry).ok()?;
    of_entry(&String::from_utf8_lossy(&entry)).filter(|_| cfg!(target_arch = "x86_64"))
}

fn of_entry(text: &str) -> Option<u64> {
    let value = |name: &str| {
        let mut fields = text.lines().filter_map(|line| line.split_once(':'));
        fields.find(|(field, _)| field.trim() == name).map(|(_, value)| value.trim())
    };
    // Without the counter, delay loops measure something else.
    let counts = value("flags")?.split_whitespace().any(|flag| flag == "tsc");
    let (whole, hundredths) = value("bogomips")?.split_once('.')?;
    let hundredths = whole.parse::<u64>().ok()?.checked_mul(100)?.checked_add(hundredths.parse().ok()?)?;
    hundredths.checked_mul(5).filter(|khz| counts && SANE_KHZ.contains(khz))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_shows_is_half_of_its_bogomips() {
        let entry = |flags: &str, shown: &str| {
            of_entry(&format!(
                "processor\t: 0\ncpu MHz\t\t: 800.012\nflags\t\t: fpu {flags} sse\nbogomips\t: {shown}\n"
            ))
        };
        assert_eq!(entry("vme tsc msr", "4999.99"), Some(2_499_995));
        assert_eq!(entry("tsc", "5999.42"), Some(2_999_710));
        assert_eq!(entry("constant_tsc_not", "4999.99"), None, "no counter");
        for shown in ["", "4999", "x.99", "0.00", "2.50", "99999999.00", "99999999999999999999.00"] {
            assert_eq!(entry("tsc", shown), None, "{shown}");
        }
        assert_eq!(of_entry("BogoMIPS\t: 50.00\n"), None, "another kind of processor");
    }
}
