//! Reads what a person types at the terminal: a password without echo, or a confirmation.

use anyhow::{Context, bail};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, IsTerminal, Read, Write};

/// No password is longer. If the file is not a password at all, it is not read into memory as a whole.
const LINE_MAX: u64 = 4096;

/// Asks twice on the terminal, without showing what is typed.
pub(crate) fn new_password(name: &str) -> anyhow::Result<String> {
    let mut terminal =
        terminal().context("there is no terminal to ask on\n  hint: use --password-stdin or --generate")?;
    let first = hidden(&mut terminal, &format!("New password for {name}: "))?;
    if first != hidden(&mut terminal, "The same password again: ")? {
        bail!("the two passwords differ; nothing was changed");
    }
    Ok(first)
}

/// The first line of standard input.
pub(crate) fn password_from_stdin() -> anyhow::Result<String> {
    let line = line_of(&mut BufReader::new(io::stdin().lock().take(LINE_MAX)))?;
    if line.is_empty() {
        bail!(
            "no password on standard input\n  hint: pipe it in, for example: pass show weir/ann | weir user passwd ann \
             --password-stdin"
        );
    }
    Ok(line)
}

/// Asks for confirmation; an error if there is no terminal.
pub(crate) fn confirmed(question: &str) -> anyhow::Result<bool> {
    if !io::stdin().is_terminal() {
        bail!("nothing was done, because there is nobody to ask: {question}\n  hint: give --yes if you mean it");
    }
    let mut terminal = terminal().context("there is no terminal to ask on\n  hint: give --yes if you mean it")?;
    write!(terminal, "{question} [y/N] ")?;
    terminal.flush()?;
    let answer = line_of(&mut BufReader::new((&terminal).take(LINE_MAX)))?;
    Ok(matches!(answer.trim().to_lowercase().as_str(), "y" | "yes"))
}

fn terminal() -> io::Result<File> {
    OpenOptions::new().read(true).write(true).open("/dev/tty")
}

fn hidden(terminal: &mut File, question: &str) -> anyhow::Result<String> {
    write!(terminal, "{question}")?;
    terminal.flush()?;
    let quiet = Quiet::new(terminal.try_clone()?)?;
    let line = line_of(&mut BufReader::new((&*terminal).take(LINE_MAX)));
    drop(quiet);
    writeln!(terminal)?;
    line
}

/// The terminal shows nothing that is typed as long as this exists.
struct Quiet {
    terminal: File,
    before: Termios,
}

impl Quiet {
    fn new(terminal: File) -> io::Result<Quiet> {
        let before = tcgetattr(&terminal)?;
        let mut quiet = before.clone();
        quiet.local_modes.remove(LocalModes::ECHO);
        tcsetattr(&terminal, OptionalActions::Flush, &quiet)?;
        Ok(Quiet { terminal, before })
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        let _ = tcsetattr(&self.terminal, OptionalActions::Flush, &self.before);
    }
}

fn line_of(input: &mut impl BufRead) -> anyhow::Result<String> {
    let mut line = String::new();
    input.read_line(&mut line).context("what was typed is not text")?;
    Ok(line.trim_end_matches(['\n', '\r']).to_owned())
}
