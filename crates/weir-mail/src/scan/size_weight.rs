//! The weight of waiting for messages up to a size, in the notation of the configuration: `10kB:5`.

use std::fmt;
use std::str::FromStr;
use weir_settings::text_value;
use weir_settings::units::Size;

text_value!(SizeWeight: "\"10kB:5\"");

/// One step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct SizeWeight {
    /// For messages of at most so many bytes.
    pub(super) up_to: u64,
    /// What their waiting counts.
    pub(super) weight: f64,
}

impl FromStr for SizeWeight {
    type Err = String;

    fn from_str(text: &str) -> Result<SizeWeight, String> {
        let (size, weight) = text.split_once(':').ok_or_else(|| format!("{text:?} is not SIZE:WEIGHT"))?;
        let Size(up_to) = size.trim().parse()?;
        let weight: Option<f64> = weight.trim().parse().ok().filter(|weight| (1e-3..=1e6).contains(weight));
        let weight = weight.ok_or_else(|| format!("{text:?}: the weight is a number from 0.001 to 1000000"))?;
        Ok(SizeWeight { up_to, weight })
    }
}

impl fmt::Display for SizeWeight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", Size(self.up_to), self.weight)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_weight_is_read_as_it_is_written() {
        let step: SizeWeight = "10kB:5".parse().unwrap();
        assert_eq!((step.up_to, step.weight), (10_000, 5.0));
        assert_eq!(step.to_string().parse::<SizeWeight>(), Ok(step));
        for wrong in ["10kB", "10kB:", "ten:5", "10kB:-1", "10kB:0", "10kB:NaN", "10kB:1e9"] {
            assert!(wrong.parse::<SizeWeight>().is_err(), "{wrong}");
        }
    }
}
