//! A simple browser for tests in which no page has to be drawn: curl with its cookies.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// Somebody who is logged in.
pub(crate) struct Visitor {
    home: tempfile::TempDir,
    base: String,
    more: Vec<String>,
}

impl Visitor {
    /// Logs in at `base`. `more` are further arguments for curl.
    #[track_caller]
    pub(crate) fn log_in(base: &str, more: &[&str], (name, password): (&str, &str)) -> Visitor {
        let more = more.iter().map(|&argument| argument.to_owned()).collect();
        let visitor = Visitor { home: tempfile::tempdir().expect("a folder"), base: base.to_owned(), more };
        let form = visitor.get("/login");
        let token = token_in(&form);
        let fields = [("token", token.as_str()), ("name", name), ("password", password)];
        let welcome = visitor.send("/login", &fields);
        assert!(welcome.contains("Log out"), "{welcome}");
        visitor
    }

    /// Tries to log in, and must be refused. Returns the page that says so.
    #[track_caller]
    pub(crate) fn refused(base: &str, (name, password): (&str, &str)) -> String {
        let visitor = Visitor { home: tempfile::tempdir().expect("a folder"), base: base.to_owned(), more: Vec::new() };
        let token = token_in(&visitor.get("/login"));
        let page = visitor.send("/login", &[("token", token.as_str()), ("name", name), ("password", password)]);
        assert!(!page.contains("Log out"), "{page}");
        page
    }

    /// Opens the link of a notice; none if the link is not valid.
    pub(crate) fn by_link(base: &str, key: &str) -> Option<Visitor> {
        let visitor = Visitor { home: tempfile::tempdir().expect("a folder"), base: base.to_owned(), more: Vec::new() };
        let form = visitor.get(&format!("/link/{key}"));
        if !form.contains("name=\"token\"") {
            return None;
        }
        let welcome = visitor.send("/link", &[("token", token_in(&form).as_str()), ("key", key)]);
        assert!(welcome.contains("Your mail"), "{welcome}");
        Some(visitor)
    }

    /// Fetches a page.
    pub(crate) fn get(&self, path: &str) -> String {
        self.ask(&["-L", &format!("{}{path}", self.base)])
    }

    /// Sends a form with the token of this page. Returns the page after it.
    #[track_caller]
    pub(crate) fn post(&self, page: &str, path: &str, fields: &[(&str, &str)]) -> String {
        let token = token_in(&self.get(page));
        let back = ("back", page);
        self.send(path, &[fields, &[("token", &token), back]].concat())
    }

    /// The status code of the answer to a form.
    pub(crate) fn status_of(&self, path: &str, fields: &[(&str, &str)]) -> String {
        let mut arguments = vec!["-o".to_owned(), "/dev/null".to_owned(), "-w".to_owned(), "%{http_code}".to_owned()];
        arguments.extend(fields.iter().flat_map(|(name, value)| field(name, value)));
        arguments.push(format!("{}{path}", self.base));
        self.ask(&arguments.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// How long a page takes, from the request to its last byte.
    pub(crate) fn seconds_of(&self, path: &str) -> f64 {
        let url = format!("{}{path}", self.base);
        let said = self.ask(&["-o", "/dev/null", "-w", "%{time_total}", &url]);
        said.parse().expect("a number")
    }

    /// Opens the stream that keeps this page current.
    pub(crate) fn live(&self, path: &str) -> Stream {
        let mut command = self.curl();
        command.args(["-N", &format!("{}{path}", self.base)]).stdout(Stdio::piped());
        let mut curl = command.spawn().expect("curl runs");
        let lines = BufReader::new(curl.stdout.take().expect("a pipe"));
        Stream { curl, lines }
    }

    fn send(&self, path: &str, fields: &[(&str, &str)]) -> String {
        let mut arguments: Vec<String> = fields.iter().flat_map(|(name, value)| field(name, value)).collect();
        arguments.extend(["-L".to_owned(), format!("{}{path}", self.base)]);
        self.ask(&arguments.iter().map(String::as_str).collect::<Vec<_>>())
    }

    fn ask(&self, arguments: &[&str]) -> String {
        let output = self.curl().args(["--max-time", "30"]).args(arguments).output().expect("curl runs");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn curl(&self) -> Command {
        let jar: PathBuf = self.home.path().join("cookies");
        let mut curl = Command::new("curl");
        curl.arg("-s").args(&self.more).arg("-b").arg(&jar).arg("-c").arg(&jar).stdin(Stdio::null());
        curl
    }
}

fn field(name: &str, value: &str) -> [String; 2] {
    ["--data-urlencode".to_owned(), format!("{name}={value}")]
}

#[track_caller]
fn token_in(page: &str) -> String {
    let (_, rest) = page.split_once("name=\"token\" value=\"").unwrap_or_else(|| panic!("no form in:\n{page}"));
    rest.split('"').next().expect("a value").to_owned()
}

/// A stream of server-sent events.
pub(crate) struct Stream {
    curl: Child,
    lines: BufReader<std::process::ChildStdout>,
}

impl Stream {
    /// Waits for data that contains this text.
    #[track_caller]
    pub(crate) fn until(&mut self, words: &str) -> String {
        loop {
            let mut line = String::new();
            assert_ne!(self.lines.read_line(&mut line).expect("text"), 0, "the stream ended before {words:?}");
            if line.starts_with("data:") && line.contains(words) {
                return line;
            }
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let _ = self.curl.kill();
        let _ = self.curl.wait();
    }
}
