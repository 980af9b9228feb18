//! The faults that can happen in the simulated lab.

use crate::input::InputError;

/// One kind of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// A VM dies in the middle of an attempt, or while it is free.
    VmDeath,
    /// A result never arrives.
    LostResult,
    /// A result arrives after THRESHOLD, when its sample may be running elsewhere.
    LateResult,
    /// A result arrives twice.
    DuplicateResult,
    /// A result is not valid.
    InvalidResult,
    /// Results of attempts that never were, or for plugins that were not asked for.
    ForgedResult,
    /// A machine is unplugged with all it holds, and plugged in again.
    Unplug,
    /// Some samples kill every VM they run on.
    Killer,
    /// A revert takes very long.
    SlowRevert,
    /// Samples are cancelled on their way.
    Cancel,
    /// Some samples need a plugin that no machine has.
    Unserviceable,
}

/// Every kind with its name on the command line.
pub const NAMES: [(Fault, &str); 11] = [
    (Fault::VmDeath, "vm-death"),
    (Fault::LostResult, "lost-result"),
    (Fault::LateResult, "late-result"),
    (Fault::DuplicateResult, "duplicate-result"),
    (Fault::InvalidResult, "invalid-result"),
    (Fault::ForgedResult, "forged-result"),
    (Fault::Unplug, "unplug"),
    (Fault::Killer, "killer"),
    (Fault::SlowRevert, "slow-revert"),
    (Fault::Cancel, "cancel"),
    (Fault::Unserviceable, "unserviceable"),
];

/// A set of faults.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Faults(Vec<Fault>);

impl Faults {
    /// Every kind.
    pub fn all() -> Faults {
        Faults(NAMES.map(|(fault, _)| fault).into())
    }

    /// Whether this kind is in it.
    pub fn has(&self, fault: Fault) -> bool {
        self.0.contains(&fault)
    }

    /// Their names.
    pub fn names(&self) -> Vec<&'static str> {
        NAMES.iter().filter(|(fault, _)| self.has(*fault)).map(|(_, name)| *name).collect()
    }

    /// As it is typed: `none`, `all`, or names with commas between.
    pub fn parse(text: &str) -> Result<Faults, InputError> {
        match text.trim() {
            "none" => return Ok(Faults::default()),
            "all" => return Ok(Faults::all()),
            _ => {}
        }
        let one = |name: &str| NAMES.iter().find(|(_, known)| *known == name.trim()).map(|(fault, _)| *fault);
        let faults: Option<Vec<Fault>> = text.split(',').map(one).collect();
        faults.map(Faults).ok_or_else(|| {
            let known = NAMES.map(|(_, name)| name).join(", ");
            InputError::new(
                "--faults",
                format!("{text:?} names an unknown fault"),
                format!("none, all, or some of {known}"),
            )
        })
    }
}

/// As it would be typed.
impl std::fmt::Display for Faults {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0.len() {
            0 => f.write_str("none"),
            n if n == NAMES.len() => f.write_str("all"),
            _ => f.write_str(&self.names().join(",")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_parses_to_the_same() {
        for text in ["none", "all", "vm-death", "lost-result,unplug"] {
            assert_eq!(Faults::parse(text).unwrap().to_string(), text);
        }
        assert!(Faults::parse("vm-death,gremlins").unwrap_err().to_string().contains("unknown fault"));
        assert!(Faults::parse("").is_err());
    }
}
