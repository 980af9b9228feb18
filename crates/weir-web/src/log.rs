//! The access log, written off the hot path.
//!
//! A proxy thread formats a line into its own buffer when a response ends, and hands full buffers to one writer thread. If the
//! disk is slower than the traffic, or full, lines are dropped and counted; nobody waits. Formats: combined (nginx's and
//! Apache's) and JSON lines. What clients send is escaped.

use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use serde::Serialize;
use weir_settings::settings;

settings! {
    /// Where and how requests are written down.
    #[derive(PartialEq, Eq)]
    pub struct LogSettings {
        /// The file of the access log; empty for none, - for standard error
        pub path as "access_log": PathBuf = path(),
        /// How a line of the access log looks
        pub format as "log_format": Format = choice([("combined", Format::Combined), ("json", Format::Json)]),
    }
}

/// The format of a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// As nginx and Apache write it.
    Combined,
    /// One JSON object on each line, with the wait and the session.
    Json,
}

/// One request, when it is over.
#[derive(Clone, Debug, Serialize)]
pub struct LoggedRequest {
    #[serde(serialize_with = "as_time")]
    pub time: SystemTime,
    pub client: IpAddr,
    pub method: String,
    pub target: String,
    /// `HTTP/1.1`, `HTTP/2.0`.
    pub protocol: &'static str,
    /// The host that was asked for.
    pub host: String,
    pub status: u16,
    /// Octets of the response body.
    pub bytes: u64,
    pub referer: String,
    pub agent: String,
    pub backend: String,
    pub session: String,
    /// How long it waited for a slot, in milliseconds.
    pub wait_ms: f64,
    /// How long it took in all, in milliseconds.
    pub took_ms: f64,
}

/// The log, shared by all threads.
#[derive(Debug)]
pub struct AccessLog {
    format: Format,
    full: Mutex<Option<SyncSender<LogMessage>>>,
    writer: Mutex<Option<JoinHandle<()>>>,
    shared: Arc<LogSignals>,
}

/// What the threads and the writer tell each other beside the lines.
#[derive(Debug, Default)]
struct LogSignals {
    /// Lines that were not written.
    dropped: AtomicU64,
    /// The file is to be opened again before the next line.
    reopen: AtomicBool,
}

impl LogSignals {
    /// These octets are not written, or only the rest of a line of them was left.
    fn drop_lines(&self, lines: &[u8]) {
        let lost = memchr::memchr_iter(b'\n', lines).count();
        self.dropped.fetch_add(lost as u64, Ordering::Relaxed);
    }
}

/// The buffer of one thread.
#[derive(Debug)]
pub struct LogBuffer {
    log: Arc<AccessLog>,
    lines: Mutex<Vec<u8>>,
}

#[derive(Debug)]
enum LogMessage {
    Lines(Vec<u8>),
    /// There are no lines, and something else to do.
    Look,
}

/// A buffer is passed to the writer when it is this full, or once a second.
const BUFFER_BYTES: usize = 32 << 10;
/// Buffers that may wait for the disk: 32 MiB.
const BUFFERS_MAX: usize = 1_024;

impl AccessLog {
    /// Opens the file and starts the writer.
    pub fn open(settings: &LogSettings) -> io::Result<Arc<AccessLog>> {
        let file = Sink::open(&settings.path)?;
        let (full, messages) = sync_channel(BUFFERS_MAX);
        let shared = Arc::new(LogSignals::default());
        let writer = LogWriter { path: settings.path.clone(), sink: file, torn: false, shared: Arc::clone(&shared) };
        let writer = std::thread::Builder::new().name("web-log".into()).spawn(move || writer.run(&messages))?;
        Ok(Arc::new(AccessLog {
            format: settings.format,
            full: Mutex::new(Some(full)),
            writer: Mutex::new(Some(writer)),
            shared,
        }))
    }

    /// Opens the file again, because it may have been renamed.
    pub fn reopen(&self) {
        self.shared.reopen.store(true, Ordering::Release);
        // If so much waits for the disk that this finds no room, the writer looks before it writes that.
        self.send(LogMessage::Look);
    }

    /// Lines that were dropped because the disk was too slow, or could not be written.
    pub fn dropped(&self) -> u64 {
        self.shared.dropped.load(Ordering::Relaxed)
    }

    /// Writes what is buffered and ends the writer.
    pub fn close(&self) {
        lock(&self.full).take();
        if let Some(writer) = lock(&self.writer).take() {
            let _ = writer.join();
        }
    }

    fn send(&self, message: LogMessage) {
        let full = lock(&self.full);
        let Some(full) = full.as_ref() else { return };
        if let Err(TrySendError::Full(LogMessage::Lines(lines))) = full.try_send(message) {
            self.shared.drop_lines(&lines);
        }
    }
}

impl LogBuffer {
    /// A buffer for one thread.
    pub fn new(log: Arc<AccessLog>) -> LogBuffer {
        LogBuffer { log, lines: Mutex::new(Vec::with_capacity(BUFFER_BYTES + 4_096)) }
    }

    /// Adds a line for this request.
    pub fn add(&self, entry: &LoggedRequest) {
        let mut lines = lock(&self.lines);
        match self.log.format {
            Format::Combined => combined(&mut lines, entry),
            Format::Json => json(&mut lines, entry),
        }
        if lines.len() >= BUFFER_BYTES {
            self.hand_over(&mut lines);
        }
    }

    /// Passes the buffered lines to the writer.
    pub fn flush(&self) {
        let mut lines = lock(&self.lines);
        if !lines.is_empty() {
            self.hand_over(&mut lines);
        }
    }

    fn hand_over(&self, lines: &mut Vec<u8>) {
        self.log.send(LogMessage::Lines(std::mem::replace(lines, Vec::with_capacity(BUFFER_BYTES + 4_096))));
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Debug)]
enum Sink {
    File(File),
    Error,
}

impl Sink {
    fn open(path: &Path) -> io::Result<Sink> {
        if path == Path::new("-") {
            return Ok(Sink::Error);
        }
        OpenOptions::new().create(true).append(true).open(path).map(Sink::File)
    }

    fn write(&mut self, lines: &[u8]) -> io::Result<usize> {
        match self {
            Sink::File(file) => file.write(lines),
            Sink::Error => io::stderr().write(lines),
        }
    }
}

/// The thread that writes.
#[derive(Debug)]
struct LogWriter {
    path: PathBuf,
    sink: Sink,
    /// The last line in the file has no end, because the disk was full.
    torn: bool,
    shared: Arc<LogSignals>,
}

impl LogWriter {
    fn run(mut self, messages: &Receiver<LogMessage>) {
        let mut complained = false;
        while let Ok(message) = messages.recv() {
            let reopened = self.reopen_if_asked();
            let written = match message {
                LogMessage::Lines(lines) => self.write(&lines),
                LogMessage::Look => Ok(()),
            };
            match reopened.and(written) {
                Ok(()) => complained = false,
                Err(error) => {
                    if !std::mem::replace(&mut complained, true) {
                        tracing::warn!(%error, path = %self.path.display(), "the access log cannot be written");
                    }
                }
            }
        }
    }

    /// If the file cannot be opened the old one is used, and the next lines try again.
    fn reopen_if_asked(&mut self) -> io::Result<()> {
        if self.shared.reopen.swap(false, Ordering::Acquire) {
            let opened = Sink::open(&self.path).inspect_err(|_| self.shared.reopen.store(true, Ordering::Release))?;
            (self.sink, self.torn) = (opened, false);
        }
        Ok(())
    }

    /// Writes all lines, or counts those that are lost.
    fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        let mut rest = lines;
        let outcome = self.write_rest(&mut rest);
        if outcome.is_err() {
            self.shared.drop_lines(rest);
        }
        outcome
    }

    /// Leaves in `rest` what could not be written.
    fn write_rest(&mut self, rest: &mut &[u8]) -> io::Result<()> {
        if self.torn {
            self.sink.write(b"\n")?;
            self.torn = false;
        }
        while !rest.is_empty() {
            match self.sink.write(rest) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(octets) => {
                    let (written, left) = rest.split_at(octets);
                    self.torn = !written.ends_with(b"\n");
                    *rest = left;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

fn combined(out: &mut Vec<u8>, entry: &LoggedRequest) {
    let _ = write!(out, "{} - - [{}] \"", entry.client, clf_time(entry.time));
    escape(out, &entry.method);
    out.push(b' ');
    escape(out, &entry.target);
    let _ = write!(out, " {}\" {} {} \"", entry.protocol, entry.status, entry.bytes);
    escape(out, or_dash(&entry.referer));
    out.extend_from_slice(b"\" \"");
    escape(out, or_dash(&entry.agent));
    out.extend_from_slice(b"\"\n");
}

fn or_dash(text: &str) -> &str {
    if text.is_empty() { "-" } else { text }
}

/// As nginx does: quotes, backslashes, controls and what is not ASCII become `\xHH`.
fn escape(out: &mut Vec<u8>, text: &str) {
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' | 0..=31 | 127.. => {
                let _ = write!(out, "\\x{byte:02X}");
            }
            plain => out.push(plain),
        }
    }
}

fn json(out: &mut Vec<u8>, entry: &LoggedRequest) {
    if serde_json::to_writer(&mut *out, entry).is_ok() {
        out.push(b'\n');
    }
}

fn as_time<S: serde::Serializer>(time: &SystemTime, serializer: S) -> Result<S::Ok, S::Error> {
    let (date, clock) = civil(*time);
    let (year, month, day) = date;
    let text = format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{:03}Z", clock.0, clock.1, clock.2, clock.3);
    serializer.serialize_str(&text)
}

const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

fn clf_time(time: SystemTime) -> String {
    let ((year, month, day), (hour, minute, second, _)) = civil(time);
    let month = MONTHS.get(month as usize - 1).unwrap_or(&"Jan");
    let mut text = String::with_capacity(26);
    let _ = write!(text, "{day:02}/{month}/{year:04}:{hour:02}:{minute:02}:{second:02} +0000");
    text
}

/// As HTTP writes it (RFC 9110 section 5.6.7).
pub(crate) fn http_date(time: SystemTime) -> String {
    let ((year, month, day), (hour, minute, second, _)) = civil(time);
    let month = MONTHS.get(month as usize - 1).unwrap_or(&"Jan");
    let days = time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs() / 86_400);
    // The first day of 1970 was a Thursday.
    let weekday = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"][(days % 7) as usize];
    format!("{weekday}, {day:02} {month} {year:04} {hour:02}:{minute:02}:{second:02} GMT")
}

type Date = (i64, u32, u32);
type DayTime = (u64, u64, u64, u32);

/// Date and time of day in UTC (days from civil, by Howard Hinnant's method).
fn civil(time: SystemTime) -> (Date, DayTime) {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
    let (days, seconds) = ((since.as_secs() / 86_400) as i64, since.as_secs() % 86_400);
    let shifted = days + 719_468;
    let (era, of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * of_year + 2) / 153;
    let day = (of_year - (153 * shifted_month + 2) / 5 + 1) as u32;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 } as u32;
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    ((year, month, day), (seconds / 3_600, seconds / 60 % 60, seconds % 60, since.subsec_millis()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_of_http() {
        let at = |seconds| http_date(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(at(784_111_777), "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(at(0), "Thu, 01 Jan 1970 00:00:00 GMT");
    }

    fn entry() -> LoggedRequest {
        LoggedRequest {
            time: SystemTime::UNIX_EPOCH + Duration::from_millis(1_709_210_096_250),
            client: "192.0.2.7".parse().unwrap(),
            method: "GET".into(),
            target: "/a?b=\"c\\\u{e9}".into(),
            protocol: "HTTP/1.1",
            host: "example.org".into(),
            status: 200,
            bytes: 512,
            referer: String::new(),
            agent: "curl/8".into(),
            backend: "app".into(),
            session: "0011".into(),
            wait_ms: 1.5,
            took_ms: 3.25,
        }
    }

    #[test]
    fn combined_is_what_others_read_and_nothing_breaks_out() {
        let mut out = Vec::new();
        combined(&mut out, &entry());
        let expected =
            r#"192.0.2.7 - - [29/Feb/2024:12:34:56 +0000] "GET /a?b=\x22c\x5C\xC3\xA9 HTTP/1.1" 200 512 "-" "curl/8""#;
        assert_eq!(String::from_utf8(out).unwrap().trim_end(), expected);
    }

    #[test]
    fn json_is_one_object_a_line() {
        let mut out = Vec::new();
        json(&mut out, &entry());
        let value: serde_json::Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(value["time"], "2024-02-29T12:34:56.250Z");
        assert_eq!((value["status"].as_u64(), value["wait_ms"].as_f64()), (Some(200), Some(1.5)));
        assert_eq!(out.iter().filter(|byte| **byte == b'\n').count(), 1);
    }

    #[test]
    fn lines_reach_the_file_and_a_renamed_file_is_left_behind() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("access.log");
        let log = AccessLog::open(&LogSettings { path: path.clone(), format: Format::Combined }).unwrap();
        let buffer = LogBuffer::new(Arc::clone(&log));
        buffer.add(&entry());
        buffer.flush();
        // Messages are taken in order, so the first line is in the first file.
        let moved = folder.path().join("access.log.1");
        while std::fs::metadata(&path).unwrap().len() == 0 {
            std::thread::yield_now();
        }
        std::fs::rename(&path, &moved).unwrap();
        log.reopen();
        buffer.add(&entry());
        buffer.flush();
        log.close();
        for file in [path, moved] {
            assert_eq!(std::fs::read_to_string(file).unwrap().lines().count(), 1);
        }
        assert_eq!(log.dropped(), 0);
    }

    #[test]
    fn lines_that_a_full_disk_does_not_take_are_counted() {
        let settings = LogSettings { path: "/dev/full".into(), format: Format::Combined };
        let log = AccessLog::open(&settings).unwrap();
        let buffer = LogBuffer::new(Arc::clone(&log));
        for _ in 0..3 {
            buffer.add(&entry());
        }
        buffer.flush();
        log.close();
        assert_eq!(log.dropped(), 3);
    }

    #[test]
    fn a_line_that_a_full_disk_has_cut_does_not_run_into_the_next() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("access.log");
        std::fs::write(&path, "one\nhalf of").unwrap();
        let sink = Sink::open(&path).unwrap();
        let mut writer = LogWriter { path: path.clone(), sink, torn: true, shared: Arc::default() };
        writer.write(b"two\n").unwrap();
        writer.write(b"three\n").unwrap();
        assert_eq!(std::fs::read_to_string(path).unwrap(), "one\nhalf of\ntwo\nthree\n");
    }

    #[test]
    fn a_file_is_opened_again_however_many_lines_wait_for_the_disk() {
        let folder = tempfile::tempdir().unwrap();
        let (path, moved) = (folder.path().join("access.log"), folder.path().join("access.log.1"));
        // A pipe that nobody reads is a disk that takes nothing more.
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        let both = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        let log = AccessLog::open(&LogSettings { path: path.clone(), format: Format::Combined }).unwrap();
        let mut slow = File::open(&path).unwrap();
        drop(both);
        log.send(LogMessage::Lines(vec![b'\n'; 1 << 20]));
        // The second time it is certain that the writer has taken the first message and waits.
        for times in 1..=2 {
            while log.dropped() < times {
                log.send(LogMessage::Lines(b"line\n".to_vec()));
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        std::fs::rename(&path, &moved).unwrap();
        log.reopen();
        let reading = std::thread::spawn(move || io::copy(&mut slow, &mut io::sink()));
        log.close();
        reading.join().unwrap().unwrap();
        let lines = std::fs::read_to_string(&path).expect("there is a new file").lines().count();
        assert_eq!(lines, BUFFERS_MAX, "all that waited is in it");
    }
}
