//! Settings, each declared once.
//!
//! A gate declares its settings in its own crate with [`settings!`]: one line gives the TOML key, the default, the bounds and the typed
//! field, and the doc comment above it is the text that `weir config show` and `docs/config.md` print. The binary lists the sections and
//! hands each to a [`Reader`], which reports all problems of a file at once, each with its key path and line. This crate depends on no gate
//! and opens no file.

mod declare;
mod declared;
mod group;
pub mod problem;
mod reader;
mod section;
mod setting;
#[cfg(test)]
mod tests;
pub mod units;
mod value;

pub use declared::{Declare, Declared, kinds};
pub use group::{Group, Settings, defaults};
pub use problem::{Problem, Problems};
pub use reader::{ReadDocument, Reader};
pub use section::Section;
pub use setting::{Setting, one_line};
pub use value::{Net, Value, Word};

/// What [`text_value!`] needs of `toml`.
#[doc(hidden)]
pub use toml::de::DeValue;
