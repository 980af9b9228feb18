//! Gets the password for an account: typed, piped, or generated and shown once.

use crate::prompt;
use serde::Serialize;
use std::io::{self, Write};
use weir_foundation::secret::fresh_password;

/// Where a password comes from; never from an argument, which others on the machine can see.
#[derive(clap::Args)]
#[group(multiple = false)]
pub(crate) struct PasswordSource {
    /// Read the password from the first line of standard input instead of asking for it
    #[arg(long)]
    password_stdin: bool,
    /// Generate a random password, and print it this one time
    #[arg(long)]
    generate: bool,
}

impl PasswordSource {
    /// The password for the account of this name.
    pub(crate) fn read(&self, name: &str) -> anyhow::Result<Password> {
        let text = match (self.generate, self.password_stdin) {
            (true, _) => fresh_password(),
            (_, true) => prompt::password_from_stdin()?,
            _ => prompt::new_password(name)?,
        };
        Ok(Password { text, made: self.generate })
    }
}

/// A password, and whether anybody knows it yet.
pub(crate) struct Password {
    pub(crate) text: String,
    made: bool,
}

impl Password {
    /// Prints the password if it was generated here.
    pub(crate) fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        if self.made {
            writeln!(out, "password: {}   (shown only this once)", self.text)?;
        }
        Ok(())
    }
}

/// An answer as JSON, with the password if it was generated here.
#[derive(Serialize)]
pub(crate) struct WithPassword<'a, A> {
    #[serde(flatten)]
    answer: &'a A,
    #[serde(skip_serializing_if = "Option::is_none")]
    password: Option<&'a str>,
}

impl<'a, A> WithPassword<'a, A> {
    pub(crate) fn new(answer: &'a A, password: Option<&'a Password>) -> WithPassword<'a, A> {
        let made = password.filter(|password| password.made);
        WithPassword { answer, password: made.map(|password| password.text.as_str()) }
    }
}
