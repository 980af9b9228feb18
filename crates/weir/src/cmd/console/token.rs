//! `weir console token`: API tokens, which programs use instead of a password.

use crate::answer::{print_answer, time, time_or_dash};
use crate::control::Asking;
use std::io::Write;
use weir_console::api::tokens;
use weir_foundation::api_tokens::{NewToken, Scope};

#[derive(clap::Subcommand)]
pub(crate) enum Token {
    /// Make a token, and print it this one time
    Add(TokenAddArgs),
    /// List all tokens
    List(TokenListArgs),
    /// Revoke a token, so that it no longer works
    Revoke(RevokeArgs),
}

impl Token {
    pub(crate) fn run(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        match self {
            Token::Add(args) => args.run(out),
            Token::List(args) => args.run(out),
            Token::Revoke(args) => args.run(out),
        }
    }
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum ScopeName {
    /// Read figures and whether everything is all right, but nothing about any message
    Metrics,
    /// Read everything except accounts and tokens
    Read,
    /// Do what an operator may do
    Operate,
    /// Everything
    Admin,
}

#[derive(clap::Args)]
pub(crate) struct TokenAddArgs {
    /// What the token is for; the audit shows it under this name
    name: String,
    /// What the token may do
    #[arg(long, value_enum, default_value = "read")]
    scope: ScopeName,
    /// How many days the token is valid; 0 for ever
    #[arg(long, value_name = "DAYS", default_value_t = 365)]
    days: u32,
    #[command(flatten)]
    asking: Asking,
}

impl TokenAddArgs {
    fn run(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        let scope = match self.scope {
            ScopeName::Metrics => Scope::Metrics,
            ScopeName::Read => Scope::Read,
            ScopeName::Operate => Scope::Operate,
            ScopeName::Admin => Scope::Admin,
        };
        let new = NewToken { name: self.name.clone(), scope, days: self.days };
        let made = self.asking.reach()?.ask(&tokens::ADD, &new)?;
        if self.asking.json {
            return print_answer(out, &made);
        }
        let until = match &made.view.expires {
            None => "for ever".to_owned(),
            Some(until) => format!("until {} UTC", time(until)),
        };
        writeln!(out, "Made a token with the scope {}, valid {until}.", scope.as_str())?;
        writeln!(out, "token: {}   (shown only this once)", made.token)?;
        Ok(())
    }
}

#[derive(clap::Args)]
pub(crate) struct TokenListArgs {
    #[command(flatten)]
    asking: Asking,
}

impl TokenListArgs {
    fn run(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        let tokens = self.asking.reach()?.ask(&tokens::LIST, &())?;
        if self.asking.json {
            return print_answer(out, &tokens);
        }
        writeln!(out, "Tokens that programs can use instead of a password.\n")?;
        writeln!(out, "  {:<20} {:<8} {:<20} {:<20} {:<20} by", "name", "scope", "created", "expires", "last used")?;
        for token in tokens {
            let (name, scope, by) = (token.name, token.scope.as_str(), token.by);
            let [ends, used] = [token.expires, token.used].map(|at| time_or_dash(at.as_deref()));
            let made = time(&token.created);
            writeln!(out, "  {name:<20} {scope:<8} {made:<20} {ends:<20} {used:<20} {by}")?;
        }
        Ok(())
    }
}

#[derive(clap::Args)]
pub(crate) struct RevokeArgs {
    /// The name of the token
    name: String,
    #[command(flatten)]
    asking: Asking,
}

impl RevokeArgs {
    fn run(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        let left = self.asking.reach()?.ask_of(&tokens::REVOKE, &self.name, &())?;
        if self.asking.json {
            return print_answer(out, &left);
        }
        writeln!(out, "The token {} is no longer valid.", self.name)?;
        Ok(())
    }
}
