//! The pipe into which Wine's programs write what they do: it is always read, so that no program blocks, and noted while a sample runs.

use super::notes::TraceNotes;
use super::trace_line::{self, LINE_MAX};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const PIPE: &str = "/run/weir/trace";
/// What Wine's server says when it cannot write the registry down.
const UNSAVED: &str = "wineserver: could not save registry branch";

/// What is noted so far.
#[derive(Debug, Clone)]
pub(crate) struct Tracing(Arc<Mutex<TraceNotes>>);

impl Tracing {
    /// Reads for as long as the guest lives.
    pub(crate) fn start() -> io::Result<Tracing> {
        // Open for both, so that it does not end when nobody writes.
        let pipe = File::options().read(true).write(true).open(PIPE)?;
        // The shell that was here before has kept it open until now; a sample must not get that.
        let _ = nix::unistd::close(3);
        let tracing = Tracing(Arc::default());
        let notes = tracing.clone();
        std::thread::spawn(move || notes.read(BufReader::with_capacity(64 * 1024, pipe)));
        Ok(tracing)
    }

    /// The end that a sample gets.
    pub(crate) fn writer() -> io::Result<File> {
        File::options().write(true).open(PIPE)
    }

    pub(crate) fn notes(&self) -> MutexGuard<'_, TraceNotes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins anew; what was noted so far.
    pub(crate) fn take(&self) -> TraceNotes {
        std::mem::replace(&mut *self.notes(), TraceNotes::begin())
    }

    fn read(&self, mut pipe: impl BufRead) {
        let mut line = Vec::new();
        loop {
            line.clear();
            match pipe.by_ref().take(LINE_MAX as u64).read_until(b'\n', &mut line) {
                Ok(1..) => self.hear(&String::from_utf8_lossy(&line)),
                Ok(0) | Err(_) => std::thread::sleep(std::time::Duration::from_millis(20)),
            }
        }
    }

    fn hear(&self, line: &str) {
        let line = line.trim_end();
        if let Some(seconds) = line.strip_prefix("weir:sleeps ").and_then(|number| number.parse().ok()) {
            self.notes().sleeps(seconds);
        } else if line.starts_with(UNSAVED) {
            self.notes().is_unsaved = true;
        } else if let Some(line) = trace_line::read(line) {
            self.notes().note(line);
        }
    }
}
