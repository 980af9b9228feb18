//! What a submitter may choose for a sample: with whom results may be shared (TLP), which plugins examine it, which guest runs it, for how
//! long and with which network.
//!
//! Files found in a sample are analysed with the same choices. Results that depend on a choice count only for samples with the same choice:
//! they are stored under a plugin version that includes it (`3+20s+offline`), which no manifest can have.

mod tlp;

pub use tlp::Tlp;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::str::FromStr;

/// The plugin that tries passwords.
pub(crate) const OPENS_ARCHIVES: &str = "archive";
/// Separates the version of a plugin from the choices on which its result depends.
const MARK: char = '+';
/// The largest number of passwords to try.
pub(crate) const PASSWORDS_MAX: usize = 32;
pub(crate) const PASSWORD_LENGTH_MAX: usize = 128;

/// The choices for one submission; by default there are none.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "SampleChoices")]
pub struct Choices {
    /// Who may be told about it: `clear`, `green`, `amber`, `amber+strict` or `red`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tlp: Option<Tlp>,
    /// Only these plugins, and those that they require; all if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub plugins: Vec<String>,
    /// The guest that runs it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guest: Option<GuestProfile>,
    /// For how many seconds it is watched.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub watch_s: Option<u32>,
    /// The network of its guest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<GuestNetwork>,
    /// Passwords to try, if it is an archive. The report says which of them opened it, and how many there were.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub passwords: Vec<String>,
}

/// Which guest runs a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum GuestProfile {
    /// A Linux guest.
    Linux,
    /// A Windows guest.
    Windows,
    /// None: it is examined, but not run.
    None,
}

/// The network of a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum GuestNetwork {
    /// A simulated internet inside the guest, which answers.
    Simulated,
    /// Nothing answers, as if the cable were unplugged.
    None,
}

/// Why choices cannot be followed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadChoice(pub(crate) String);

/// Choices as they are typed: in an address, on the command line. An empty field means no choice.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TypedChoices<'a> {
    /// `clear`, `green`, `amber`, `amber+strict` or `red`.
    pub tlp: &'a str,
    /// Separated by commas.
    pub plugins: &'a str,
    /// `linux`, `windows` or `none`.
    pub guest: &'a str,
    /// In seconds.
    pub watch_s: Option<u32>,
    /// `simulated` or `none`.
    pub network: &'a str,
    /// A password to try.
    pub password: &'a str,
}

impl TypedChoices<'_> {
    /// The choices, if all of them are valid.
    pub fn read(&self) -> Result<Choices, BadChoice> {
        let names = self.plugins.split(',').map(str::trim).filter(|name| !name.is_empty());
        Ok(Choices {
            tlp: chosen(self.tlp)?,
            plugins: names.map(str::to_owned).collect(),
            guest: chosen(self.guest)?,
            watch_s: self.watch_s,
            network: chosen(self.network)?,
            passwords: if self.password.is_empty() { Vec::new() } else { vec![self.password.to_owned()] },
        })
    }
}

/// None, or one of these.
fn chosen<T: FromStr<Err = BadChoice>>(text: &str) -> Result<Option<T>, BadChoice> {
    if text.is_empty() { Ok(None) } else { text.parse().map(Some) }
}

/// A word from a stranger, in a form that can be shown.
pub(crate) fn quoted(word: &str) -> String {
    format!("{:?}", word.chars().take(64).collect::<String>())
}

impl FromStr for GuestProfile {
    type Err = BadChoice;

    fn from_str(text: &str) -> Result<GuestProfile, BadChoice> {
        match text {
            "linux" => Ok(GuestProfile::Linux),
            "windows" => Ok(GuestProfile::Windows),
            "none" => Ok(GuestProfile::None),
            _ => Err(BadChoice(format!("{} is no guest: linux, windows or none", quoted(text)))),
        }
    }
}

impl FromStr for GuestNetwork {
    type Err = BadChoice;

    fn from_str(text: &str) -> Result<GuestNetwork, BadChoice> {
        match text {
            "simulated" => Ok(GuestNetwork::Simulated),
            "none" => Ok(GuestNetwork::None),
            _ => Err(BadChoice(format!("{} is no network: simulated or none", quoted(text)))),
        }
    }
}

impl GuestProfile {
    pub(crate) fn word(self) -> &'static str {
        match self {
            GuestProfile::Linux => "linux",
            GuestProfile::Windows => "windows",
            GuestProfile::None => "none",
        }
    }
}

impl Choices {
    /// No choices.
    pub const NONE: Choices =
        Choices { tlp: None, plugins: Vec::new(), guest: None, watch_s: None, network: None, passwords: Vec::new() };

    /// The same with these passwords to try, as far as they are valid: they come from a mail.
    #[must_use]
    pub fn with_passwords(self, words: Vec<String>) -> Choices {
        let passwords = words.into_iter().filter(|word| is_password(word)).take(PASSWORDS_MAX).collect();
        Choices { passwords, ..self }
    }

    /// Whether there are none.
    pub fn is_none(&self) -> bool {
        *self == Choices::default()
    }

    /// Whether somebody chose which plugins examine the sample.
    pub fn restrict(&self) -> bool {
        !self.plugins.is_empty() || self.guest.is_some()
    }

    /// Whether the sample is not analysed in the usual way, so that the result is not a verdict on its content.
    pub fn are_partial(&self) -> bool {
        self.restrict() || self.watch_s.is_some() || self.network == Some(GuestNetwork::None)
    }

    /// From a row of the database; text that cannot be read counts as no choice.
    pub fn stored(text: &str) -> Choices {
        serde_json::from_str(text).unwrap_or_default()
    }

    /// For a row of the database; empty if there are no choices.
    pub fn text(&self) -> String {
        if self.is_none() { String::new() } else { serde_json::json!(self).to_string() }
    }

    /// The version under which a result of a plugin is stored.
    pub fn version(&self, name: &str, version: &str, runs_it: bool) -> String {
        let mut text = version.to_owned();
        let mut depends = |on: String| {
            text.push(MARK);
            text.push_str(&on);
        };
        if runs_it {
            self.watch_s.into_iter().for_each(|watch| depends(format!("{watch}s")));
            self.network
                .filter(|network| *network == GuestNetwork::None)
                .into_iter()
                .for_each(|_| depends("offline".into()));
        }
        if name == OPENS_ARCHIVES && !self.passwords.is_empty() {
            let digest = Sha256::digest(self.passwords.join("\0").as_bytes());
            depends(digest.iter().take(4).map(|byte| format!("{byte:02x}")).collect());
        }
        text
    }

    /// The choices in words, for people; passwords are only counted.
    pub fn words(&self) -> Vec<(&'static str, String)> {
        let mut words = Vec::new();
        self.tlp.into_iter().for_each(|tlp| words.push(("TLP", tlp.label().to_owned())));
        if !self.plugins.is_empty() {
            words.push(("plugins", self.plugins.join(", ")));
        }
        self.guest.into_iter().for_each(|guest| words.push(("guest", guest.word().to_owned())));
        self.watch_s.into_iter().for_each(|watch| words.push(("watched for", format!("{watch} s at most"))));
        self.network.into_iter().for_each(|network| {
            let network = if network == GuestNetwork::None { "none" } else { "simulated" };
            words.push(("network", network.to_owned()));
        });
        match self.passwords.len() {
            0 => {}
            1 => words.push(("passwords", "one of its own".to_owned())),
            many => words.push(("passwords", format!("{many} of its own"))),
        }
        words
    }

    /// The same, for those who may see the report: without the passwords.
    #[must_use]
    pub fn told(self) -> Choices {
        let hidden = |_| "(not shown)".to_owned();
        Choices { passwords: self.passwords.into_iter().map(hidden).collect(), ..self }
    }
}

/// Whether a word can be tried.
pub(crate) fn is_password(word: &str) -> bool {
    word.chars().count() <= PASSWORD_LENGTH_MAX && !word.contains(char::is_control)
}

/// The version of a plugin as in its manifest.
pub fn plain_version(version: &str) -> &str {
    version.split(MARK).next().unwrap_or(version)
}
