//! A console without gates, and somebody who asks it.

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Method, Request, StatusCode, header};
use http_body_util::BodyExt;
use std::sync::Arc;
use std::time::Duration;
use tower::ServiceExt;
use weir_console::api;
use weir_console::gates::Gates;
use weir_console::site::{Configuration, CurrentSettings, SettingView, Site};
use weir_foundation::Actor;
use weir_foundation::Foundation;
use weir_foundation::StoreSettings;
use weir_foundation::administration::Administration;
use weir_foundation::console_accounts::{NewAccount, Role};
use weir_foundation::passwords::Passwords;
use weir_foundation::supervision::GateStates;
use weir_mail::gate::{Settings, operations_at_rest};
use weir_mail::operations::{MailOperations, NewUser};
use weir_store::folder::DataFolder;
use weir_store::records::{Fate, QuarantineRow, Records};

pub(crate) const HOST: &str = "127.0.0.1:8025";
pub(crate) const NAME: &str = "console.example.org";
pub(crate) const PASSWORD: &str = "correct horse battery";

pub(crate) struct House {
    home: tempfile::TempDir,
    pub(crate) administration: Administration,
    pub(crate) mail: MailOperations,
    pub(crate) records: Records,
    pub(crate) router: Router,
    gates: Gates,
    configuration: Configuration,
}

pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

impl Answer {
    /// The value of a cookie that was set.
    pub(crate) fn cookie(&self, name: &str) -> Option<String> {
        let lines = self.headers.get_all(header::SET_COOKIE).into_iter().filter_map(|line| line.to_str().ok());
        let pairs = lines.filter_map(|line| line.split(';').next()?.split_once('='));
        pairs.filter(|(key, _)| *key == name).map(|(_, value)| value.to_owned()).next()
    }

    /// The token in the page's forms.
    pub(crate) fn token(&self) -> String {
        let (_, rest) = self.text.split_once("name=\"token\" value=\"").expect("a form");
        rest.split('"').next().expect("a value").to_owned()
    }

    pub(crate) fn location(&self) -> &str {
        self.headers.get(header::LOCATION).and_then(|to| to.to_str().ok()).unwrap_or_default()
    }
}

pub(crate) async fn house() -> House {
    let home = tempfile::tempdir().unwrap();
    let folder = DataFolder::open(home.path().join("data")).unwrap();
    let foundation = Foundation::lay(folder, None, "mail.example").await.unwrap();
    let passwords = Passwords::new(2, [7; 32]).unwrap();
    let mail = operations_at_rest(&foundation, passwords.clone(), &Settings::default());
    let store = StoreSettings { backup_due: Duration::ZERO, ..StoreSettings::default() };
    let administration = Administration::new(&foundation, passwords, Some(mail.backup.clone()), &store);
    let actor = Actor::new("test");
    for (name, role) in [("root", Role::Admin), ("olga", Role::Operator)] {
        let new = NewAccount { name: name.into(), role, password: PASSWORD.into() };
        administration.accounts.add(new, &actor).await.unwrap();
    }
    for name in ["ann@example.org", "<b>bob</b>"] {
        let addresses = vec!["x@example.org".to_owned()];
        let new = NewUser { name: name.into(), password: Some(PASSWORD.into()), addresses, ..NewUser::default() };
        mail.users.add(new, &actor).await.unwrap();
    }
    let setting = SettingView {
        section: "store".into(),
        key: "records".into(),
        value: "\"postgres://weir:hunter2@db/weir\"".into(),
        default: "\"\"".into(),
        bounds: "a URL".into(),
        about: "Where records are".into(),
        line: Some(3),
        by_demo: false,
        waits: false,
    };
    let gates = Gates {
        administration: administration.clone(),
        mail: mail.clone(),
        web: None,
        lab: None,
        states: GateStates::default(),
        sessions: Arc::default(),
        certificates: Default::default(),
        demo: false,
    };
    let configuration = Configuration {
        settings: CurrentSettings::new(vec![setting]),
        settings_file: Some("/etc/weir/weir.toml".into()),
        hosts: vec!["console.example.org".into()],
        identity_provider: None,
    };
    let records = foundation.records.clone();
    let router = router(&gates, &configuration);
    House { home, administration, mail, records, router, gates, configuration }
}

fn router(gates: &Gates, configuration: &Configuration) -> Router {
    let site = Site::new(gates.clone(), configuration.clone(), HOST.parse().unwrap());
    weir_console::router(site, api::router(gates))
}

impl House {
    /// A gate is restarted: the pages are made anew, as `weir up` does it.
    pub(crate) fn gate_restarted(&mut self) {
        self.router = router(&self.gates, &self.configuration);
    }

    /// Changes the records behind everybody's back.
    pub(crate) fn in_records(&self, statement: &str) {
        let program = "import sqlite3, sys; sqlite3.connect(sys.argv[1]).executescript(sys.argv[2])";
        let mut python = std::process::Command::new("python3");
        python.args(["-c", program]).arg(self.home.path().join("data/records.db")).arg(statement);
        assert!(python.status().expect("python3 runs").success(), "{statement}");
    }

    pub(crate) async fn send(&self, method: Method, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        let mut request = Request::builder().method(method).uri(path);
        if !headers.iter().any(|(name, _)| *name == "host") {
            request = request.header(header::HOST, HOST);
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let answer = self.router.clone().oneshot(request.body(Body::from(body.to_owned())).unwrap()).await.unwrap();
        let (parts, body) = answer.into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        Answer { status: parts.status, headers: parts.headers, text: String::from_utf8_lossy(&bytes).into_owned() }
    }

    pub(crate) async fn get(&self, path: &str, cookie: &str) -> Answer {
        self.send(Method::GET, path, &[("cookie", cookie)], "").await
    }

    pub(crate) async fn post(&self, path: &str, cookie: &str, body: &str) -> Answer {
        self.send(Method::POST, path, &[("cookie", cookie)], body).await
    }

    /// Logs in; the answer, and the cookie to go on with.
    pub(crate) async fn log_in(&self, name: &str, password: &str, cookie: &str) -> (Answer, String) {
        let page = self.get("/login", cookie).await;
        let bound = page.cookie("weir-8025-login").expect("a form is bound to its browser");
        let body = format!("token={}&name={}&password={}", page.token(), encoded(name), encoded(password));
        let cookies = format!("weir-8025-login={bound}; {cookie}");
        let answer = self.post("/login", &cookies, &body).await;
        let session = answer.cookie("weir-8025").map(|id| format!("weir-8025={id}")).unwrap_or_default();
        (answer, session)
    }

    pub(crate) async fn as_role(&self, name: &str) -> String {
        let (answer, session) = self.log_in(name, PASSWORD, "").await;
        assert_eq!(answer.status, StatusCode::SEE_OTHER, "{}", answer.text);
        session
    }
}

pub(crate) const MESSAGES: [&str; 3] = ["38exjmr5c8wmgwtgr3zn", "38exjmr5c8wmgwtgr3zp", "38exjmr5c8wmgwtgr3zq"];

pub(crate) fn quarantined(message: &str, queue: &str) -> QuarantineRow {
    QuarantineRow {
        message: message.into(),
        place: 0,
        relay: "here".into(),
        queue: queue.into(),
        fate: Fate::Held,
        recipient: "ann@example.org".into(),
        sender: "eve@example.net".into(),
        subject: "win".into(),
        source: "192.0.2.1".into(),
        owner: String::new(),
        origin: "received".into(),
        size: 100,
        at: 5,
        reason: "why".into(),
        decided_by: String::new(),
        release_to: String::new(),
    }
}

pub(crate) fn encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}
