//! Converts TOML values to typed ones, and back.

use crate::units::{Rate, Size, Span};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use toml::de::DeValue;

/// A type that a setting can have.
pub trait Value: Sized + Clone {
    /// Reads it, or says what was expected.
    fn from_toml(value: &DeValue<'_>) -> Result<Self, String>;
    /// Writes it as TOML.
    fn to_toml(&self) -> String;
}

macro_rules! integer_value {
    ($($integer:ty),*) => {$(
        impl Value for $integer {
            fn from_toml(value: &DeValue<'_>) -> Result<$integer, String> {
                let DeValue::Integer(integer) = value else {
                    return Err(format!("a whole number is expected, not {}", value.type_str()));
                };
                let parsed = i128::from_str_radix(&integer.as_str().replace('_', ""), integer.radix());
                let number = parsed.map_err(|_| format!("{} is too large a number", integer.as_str()))?;
                let most = <$integer>::MAX;
                <$integer>::try_from(number).map_err(|_| format!("{number} is not a whole number from 0 to {most}"))
            }

            fn to_toml(&self) -> String {
                self.to_string()
            }
        }
    )*};
}
integer_value!(u8, u16, u32, u64, usize);

impl Value for f64 {
    fn from_toml(value: &DeValue<'_>) -> Result<f64, String> {
        let text = match value {
            DeValue::Float(float) => float.as_str(),
            DeValue::Integer(integer) if integer.radix() == 10 => integer.as_str(),
            other => return Err(format!("a number is expected, not {}", other.type_str())),
        };
        let number: f64 = text.replace('_', "").parse().map_err(|_| format!("{text} is not a number"))?;
        if number.is_finite() { Ok(number) } else { Err(format!("{text} is not a finite number")) }
    }

    fn to_toml(&self) -> String {
        format!("{self:?}")
    }
}

impl Value for bool {
    fn from_toml(value: &DeValue<'_>) -> Result<bool, String> {
        value.as_bool().ok_or_else(|| format!("true or false is expected, not {}", value.type_str()))
    }

    fn to_toml(&self) -> String {
        self.to_string()
    }
}

/// Text of at most so many bytes; a path or a URL is shorter.
const TEXT_MAX: usize = 4096;

impl Value for String {
    fn from_toml(value: &DeValue<'_>) -> Result<String, String> {
        let text = value.as_str().ok_or_else(|| format!("text in quotes is expected, not {}", value.type_str()))?;
        if text.len() > TEXT_MAX || text.contains(char::is_control) {
            return Err(format!("text of at most {TEXT_MAX} bytes without control characters is expected"));
        }
        Ok(text.to_owned())
    }

    fn to_toml(&self) -> String {
        format!("\"{}\"", self.replace('\\', "\\\\").replace('"', "\\\""))
    }
}

impl<T: Value> Value for Vec<T> {
    fn from_toml(value: &DeValue<'_>) -> Result<Vec<T>, String> {
        let array = value.as_array().ok_or_else(|| format!("a list is expected, not {}", value.type_str()))?;
        array.iter().map(|item| T::from_toml(item.get_ref())).collect()
    }

    fn to_toml(&self) -> String {
        let items: Vec<String> = self.iter().map(T::to_toml).collect();
        format!("[{}]", items.join(", "))
    }
}

/// Lets a type be a setting that is written as text: it parses from text, with a `String` as its error, and prints text that parses to
/// the same. `text_value!(Size: "\"25MiB\"")` gives an example for whoever writes something else than text.
#[macro_export]
macro_rules! text_value {
    ($($type:ty: $example:literal),* $(,)?) => {$(
        impl $crate::Value for $type {
            fn from_toml(value: &$crate::DeValue<'_>) -> Result<$type, String> {
                let text = value.as_str();
                let text = text.ok_or_else(|| format!("text such as {} is expected, not {}", $example, value.type_str()))?;
                text.parse()
            }

            fn to_toml(&self) -> String {
                format!("\"{self}\"")
            }
        }
    )*};
}
// The units are written as text, so that "10s" needs no knowledge of what 10 would mean.
text_value!(Rate: "\"1/min\"", Span: "\"10s\"", Size: "\"25MiB\"");

/// The text inside, which must be a `$type`.
fn parsed<T: FromStr>(value: &DeValue<'_>, example: &str, what: &str) -> Result<T, String> {
    let text = value.as_str();
    let text = text.ok_or_else(|| format!("text such as {example} is expected, not {}", value.type_str()))?;
    text.parse().map_err(|_| format!("{text:?} is not {what}"))
}

/// An address with a port.
impl Value for SocketAddr {
    fn from_toml(value: &DeValue<'_>) -> Result<SocketAddr, String> {
        let what = "an address with a port: write \"127.0.0.1:2587\" or \"[::1]:2587\"";
        parsed(value, "\"127.0.0.1:2587\"", what)
    }

    fn to_toml(&self) -> String {
        format!("\"{self}\"")
    }
}

impl Value for IpAddr {
    fn from_toml(value: &DeValue<'_>) -> Result<IpAddr, String> {
        parsed(value, "\"10.7.0.1\"", "an address: write \"10.7.0.1\" or \"fd07::1\"")
    }

    fn to_toml(&self) -> String {
        format!("\"{self}\"")
    }
}

/// A network of whatever type, kept as it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Net<N> {
    written: String,
    /// The network.
    pub network: N,
}

impl<N: FromStr<Err: fmt::Display> + Clone> Value for Net<N> {
    fn from_toml(value: &DeValue<'_>) -> Result<Net<N>, String> {
        let text = value.as_str();
        let text =
            text.ok_or_else(|| format!("text such as \"192.0.2.0/24\" is expected, not {}", value.type_str()))?;
        let network = text.parse().map_err(|error| format!("{text:?} is not a network: {error}"))?;
        Ok(Net { written: text.to_owned(), network })
    }

    fn to_toml(&self) -> String {
        format!("\"{}\"", self.written)
    }
}

/// A bare word; only a choice has one.
#[derive(Debug, Clone)]
pub struct Word(pub String);

impl Value for Word {
    fn from_toml(value: &DeValue<'_>) -> Result<Word, String> {
        let text = value.as_str().ok_or_else(|| format!("text in quotes is expected, not {}", value.type_str()))?;
        Ok(Word(text.to_owned()))
    }

    fn to_toml(&self) -> String {
        format!("{:?}", self.0)
    }
}
