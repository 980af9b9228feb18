//! Drives Chromium through ChromeDriver's HTTP interface (W3C WebDriver): the few commands that the tests need.

use base64::Engine;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a page or an element may take to appear.
const PATIENCE: Duration = Duration::from_secs(30);
/// The key under which WebDriver names an element.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// A browser window of its own; it is closed when dropped.
pub(crate) struct Browser {
    driver: Child,
    address: String,
    session: String,
    profile: tempfile::TempDir,
}

/// An element of a page.
pub(crate) struct Element<'a> {
    browser: &'a Browser,
    id: String,
}

impl Browser {
    pub(crate) fn start() -> Browser {
        let port = weir_peers::free_port();
        let mut command = Command::new("chromedriver");
        command.arg(format!("--port={port}")).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let driver = command.spawn().expect("chromedriver starts: tools/setup installs chromium-driver");
        let profile = tempfile::tempdir().expect("a folder");
        let mut browser = Browser { driver, address: format!("127.0.0.1:{port}"), session: String::new(), profile };
        browser.session = browser.open();
        browser
    }

    fn open(&self) -> String {
        let arguments = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--hide-scrollbars",
            "--window-size=1280,900",
            // The pages under test need no other machine.
            "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",
        ];
        let mut arguments: Vec<String> = arguments.map(str::to_owned).into();
        arguments.push(format!("--user-data-dir={}", self.profile.path().display()));
        let wanted = json!({ "capabilities": { "alwaysMatch": {
            "browserName": "chrome",
            // No browser knows the authority that signs the certificates of a test.
            "acceptInsecureCerts": true,
            // If a page opens a dialog, the test must see it, so the driver must not close it.
            "unhandledPromptBehavior": "ignore",
            // axe looks at every element of a page, which takes long on a busy machine.
            "timeouts": { "script": 240_000 },
            "goog:chromeOptions": { "args": arguments },
        } } });
        let begun = Instant::now();
        loop {
            match self.ask("POST", "/session", &wanted) {
                Ok(answer) => return answer["sessionId"].as_str().expect("a session").to_owned(),
                Err(error) => {
                    assert!(begun.elapsed() < PATIENCE, "the browser does not start: {error}");
                    std::thread::sleep(Duration::from_millis(100));
                }
            }
        }
    }

    /// Sends one command. Returns its value, or the error.
    fn ask(&self, method: &str, path: &str, body: &Value) -> Result<Value, String> {
        let body = if method == "GET" { String::new() } else { body.to_string() };
        let mut stream = TcpStream::connect(&self.address).map_err(|error| error.to_string())?;
        stream.set_read_timeout(Some(Duration::from_secs(300))).map_err(|error| error.to_string())?;
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
            self.address,
            body.len()
        );
        stream.write_all(format!("{head}{body}").as_bytes()).map_err(|error| error.to_string())?;
        let mut answer = Vec::new();
        // ChromeDriver may keep the connection open for a moment, so the length decides when the answer is complete.
        let mut piece = [0; 16 * 1024];
        while !is_whole(&answer) {
            match stream.read(&mut piece) {
                Ok(0) => break,
                Ok(read) => answer.extend_from_slice(&piece[..read]),
                Err(error) => return Err(error.to_string()),
            }
        }
        let text = String::from_utf8_lossy(&answer);
        let (_, json) = text.split_once("\r\n\r\n").ok_or("half an answer")?;
        let answer: Value = serde_json::from_str(json).map_err(|error| format!("{error}: {json}"))?;
        match answer["value"]["error"].as_str() {
            Some(error) => Err(format!("{error}: {}", answer["value"]["message"].as_str().unwrap_or_default())),
            None => Ok(answer["value"].clone()),
        }
    }

    fn command(&self, method: &str, path: &str, body: &Value) -> Result<Value, String> {
        self.ask(method, &format!("/session/{}{path}", self.session), body)
    }

    #[track_caller]
    pub(crate) fn goto(&self, url: &str) {
        self.command("POST", "/url", &json!({ "url": url })).unwrap_or_else(|error| panic!("{url}: {error}"));
    }

    #[track_caller]
    pub(crate) fn url(&self) -> String {
        self.command("GET", "/url", &Value::Null).expect("an address").as_str().expect("text").to_owned()
    }

    /// Waits for the element.
    #[track_caller]
    pub(crate) fn find(&self, css: &str) -> Element<'_> {
        let begun = Instant::now();
        loop {
            let found = self.command("POST", "/element", &json!({ "using": "css selector", "value": css }));
            match found {
                Ok(found) => {
                    let id = found[ELEMENT].as_str().expect("an element").to_owned();
                    return Element { browser: self, id };
                }
                Err(error) if begun.elapsed() > PATIENCE => panic!("{css} at {}: {error}\n{}", self.url(), self.text()),
                Err(_) => std::thread::sleep(Duration::from_millis(50)),
            }
        }
    }

    /// Waits for the link with this text.
    #[track_caller]
    pub(crate) fn link(&self, text: &str) -> Element<'_> {
        let begun = Instant::now();
        loop {
            match self.command("POST", "/element", &json!({ "using": "partial link text", "value": text })) {
                Ok(found) => {
                    let id = found[ELEMENT].as_str().expect("an element").to_owned();
                    return Element { browser: self, id };
                }
                Err(error) if begun.elapsed() > PATIENCE => {
                    panic!("{text} at {}: {error}\n{}", self.url(), self.text())
                }
                Err(_) => std::thread::sleep(Duration::from_millis(50)),
            }
        }
    }

    pub(crate) fn count(&self, css: &str) -> usize {
        let found = self.command("POST", "/elements", &json!({ "using": "css selector", "value": css }));
        found.expect("a list").as_array().expect("a list").len()
    }

    /// The whole text of the page.
    pub(crate) fn text(&self) -> String {
        let text =
            self.command("POST", "/execute/sync", &json!({ "script": "return document.body.innerText", "args": [] }));
        text.ok().and_then(|text| text.as_str().map(str::to_owned)).unwrap_or_default()
    }

    /// Waits until the page contains this text.
    #[track_caller]
    pub(crate) fn says(&self, words: &str) {
        let begun = Instant::now();
        while !self.text().contains(words) {
            assert!(begun.elapsed() < PATIENCE, "{words:?} is missing at {}:\n{}", self.url(), self.text());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    #[track_caller]
    pub(crate) fn run(&self, script: &str) -> Value {
        self.command("POST", "/execute/sync", &json!({ "script": script, "args": [] })).expect("it runs")
    }

    /// Presses keys; they go to the element with the focus.
    #[track_caller]
    pub(crate) fn press(&self, keys: &str) {
        let actions: Vec<Value> = keys
            .chars()
            .flat_map(|key| {
                [
                    json!({ "type": "keyDown", "value": key.to_string() }),
                    json!({ "type": "keyUp", "value": key.to_string() }),
                ]
            })
            .collect();
        let body = json!({ "actions": [{ "type": "key", "id": "keys", "actions": actions }] });
        self.command("POST", "/actions", &body).expect("keys");
    }

    /// Sends a command of Chromium's own protocol.
    #[track_caller]
    pub(crate) fn chromium(&self, command: &str, parameters: &Value) -> Value {
        self.command("POST", "/goog/cdp/execute", &json!({ "cmd": command, "params": parameters }))
            .expect("it is known")
    }

    /// Sets the size of the window (a desk or a telephone), and light or dark colours.
    pub(crate) fn looks(&self, width: u32, dark: bool) {
        let size = json!({ "width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false });
        self.chromium("Emulation.setDeviceMetricsOverride", &size);
        let scheme = if dark { "dark" } else { "light" };
        let media = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        self.chromium("Emulation.setEmulatedMedia", &media);
    }

    /// Saves a picture of the whole page.
    #[track_caller]
    pub(crate) fn picture(&self, file: &Path) {
        let shot = self.chromium("Page.captureScreenshot", &json!({ "format": "png", "captureBeyondViewport": true }));
        let bytes = base64::engine::general_purpose::STANDARD.decode(shot["data"].as_str().expect("a picture"));
        std::fs::write(file, bytes.expect("base64")).expect("a file");
    }

    /// The text of a dialog that a script opened, if there is one.
    pub(crate) fn dialog(&self) -> Option<String> {
        let text = self.command("GET", "/alert/text", &Value::Null).ok()?;
        text.as_str().map(str::to_owned)
    }
}

impl Element<'_> {
    #[track_caller]
    pub(crate) fn click(&self) {
        // The driver scrolls to elements that are out of view.
        self.command("/click", &json!({}));
    }

    #[track_caller]
    pub(crate) fn write(&self, text: &str) {
        self.command("/value", &json!({ "text": text }));
    }

    #[track_caller]
    fn command(&self, what: &str, body: &Value) {
        let done = self.browser.command("POST", &format!("/element/{}{what}", self.id), body);
        done.unwrap_or_else(|error| panic!("{what} at {}: {error}", self.browser.url()));
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.command("DELETE", "", &json!({}));
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

fn is_whole(answer: &[u8]) -> bool {
    let text = String::from_utf8_lossy(answer);
    let Some((head, _)) = text.split_once("\r\n\r\n") else { return false };
    let Some(start) = answer.windows(4).position(|four| four == b"\r\n\r\n") else { return false };
    let length = head
        .lines()
        .find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length:")?.trim().parse::<usize>().ok());
    length.is_some_and(|length| answer.len() >= start + 4 + length)
}
