//! The traffic light protocol, version 2.0: with whom a sample and its results may be shared.

use super::{BadChoice, quoted};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::str::FromStr;

/// Who may be told what is known of a sample (the traffic light protocol).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Tlp {
    /// Everybody.
    Clear,
    /// The community.
    Green,
    /// One's own organisation and its clients: the default.
    #[default]
    Amber,
    /// One's own organisation only.
    #[serde(rename = "amber+strict")]
    AmberStrict,
    /// Only those who are named.
    Red,
}

impl Tlp {
    const ALL: [Tlp; 5] = [Tlp::Clear, Tlp::Green, Tlp::Amber, Tlp::AmberStrict, Tlp::Red];

    /// As it is typed, and as it is in MISP's taxonomy after `tlp:`.
    pub fn word(self) -> &'static str {
        match self {
            Tlp::Clear => "clear",
            Tlp::Green => "green",
            Tlp::Amber => "amber",
            Tlp::AmberStrict => "amber+strict",
            Tlp::Red => "red",
        }
    }

    /// As it is written for people.
    pub fn label(self) -> &'static str {
        match self {
            Tlp::Clear => "TLP:CLEAR",
            Tlp::Green => "TLP:GREEN",
            Tlp::Amber => "TLP:AMBER",
            Tlp::AmberStrict => "TLP:AMBER+STRICT",
            Tlp::Red => "TLP:RED",
        }
    }

    /// The id of the object that marks this in STIX; it is the same everywhere.
    pub fn marking(self) -> &'static str {
        match self {
            Tlp::Clear => "marking-definition--94868c89-83c2-464b-929b-a1a8aa3c8487",
            Tlp::Green => "marking-definition--bab4a63c-aed9-4cf5-a766-dfca5abac2bb",
            Tlp::Amber => "marking-definition--55d920b0-5e8b-4f79-9ee9-91f868d9b421",
            Tlp::AmberStrict => "marking-definition--939a9414-2ddd-4d32-a0cd-375ea402b003",
            Tlp::Red => "marking-definition--e828b379-4e03-4974-9ac4-e53a884c97c1",
        }
    }
}

impl FromStr for Tlp {
    type Err = BadChoice;

    /// With or without `TLP:` before it, in upper or lower case.
    fn from_str(text: &str) -> Result<Tlp, BadChoice> {
        let lower = text.to_ascii_lowercase();
        let word = lower.strip_prefix("tlp:").unwrap_or(&lower);
        let known = Tlp::ALL.into_iter().find(|tlp| tlp.word() == word);
        known.ok_or_else(|| BadChoice(format!("{} is no TLP: clear, green, amber, amber+strict or red", quoted(text))))
    }
}
