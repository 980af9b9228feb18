//! Tests of a real, unmodified Postfix that asks Weir about its mail: as a milter, and by its policy protocol. Its settings are those of
//! docs/doors.md.

mod kills;
mod milter;
mod outbreak;
mod policy;

use crate::control::gate::{Client, Site, Up, wait_for};
use std::path::Path;
use weir_peers::{Dovecot, Postfix, free_port};

const PASSWORD: &str = crate::table1::PASSWORD;
/// The addresses that the page uses.
const MILTER: &str = "127.0.0.1:2626";
const POLICY: &str = "127.0.0.1:2627";
const BACK: &str = "127.0.0.1:2628";

/// The code of this kind in a section of docs/doors.md.
pub(crate) fn recipe(section: &str, kind: &str) -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/doors.md");
    let page = std::fs::read_to_string(page).expect("the page");
    let (_, rest) = page.split_once(&format!("\n## {section}")).expect("the section");
    let section = rest.split("\n## ").next().expect("its text");
    let (_, code) = section.split_once(&format!("\n```{kind}\n")).unwrap_or_else(|| panic!("no {kind} there"));
    code.split("```").next().expect("its end").to_owned()
}

/// The setting in the page for who is told about stops.
const ADMIN: &str = "admin = \"postmaster@example.org\"";

/// The door at which Postfix asks.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Milter,
    Policy,
}

impl Way {
    fn section(self) -> &'static str {
        match self {
            Way::Milter => "Postfix asks while it takes mail (milter)",
            Way::Policy => "Postfix asks about each recipient (policy service)",
        }
    }
}

/// Postfix, with a single Maildir for all mail; Dovecot, which knows the users; and Weir.
struct World {
    site: Site,
    up: Option<Up>,
    postfix: Postfix,
    _dovecot: Dovecot,
    port: u16,
}

impl World {
    /// Starts everything. `changed` are settings of the page that are different here; `more` is further configuration of Weir.
    fn start(way: Way, users: &[&str], changed: &[(&str, &str)], more: &str) -> World {
        let [port, back, door] = std::array::from_fn(|_| free_port());
        let place = |text: String| {
            let text = text.replace(MILTER, &format!("127.0.0.1:{door}")).replace(POLICY, &format!("127.0.0.1:{door}"));
            let text = text.replace(BACK, &format!("127.0.0.1:{back}"));
            let text = changed.iter().fold(text, |text, (from, to)| text.replace(from, to));
            // Who is told about stops is tested elsewhere. Here, notices would only be additional mail.
            text.replace(ADMIN, "silent = true")
        };
        let configuration = place(recipe(way.section(), "toml"));
        let ports = "[submission]\nlisten = [\"127.0.0.1:0\"]\nlisten_tls = [\"127.0.0.1:0\"]\nhostname = \"mail.example\"\n\
                     [web]\nlisten = [\"127.0.0.1:0\"]\n[console]\nlisten = [\"127.0.0.1:0\"]\n";
        let retries = match configuration.contains("[delivery]") {
            true => configuration.replace("[delivery]", "[delivery]\nretry = [\"200ms\"]"),
            false => configuration,
        };
        let site = Site::only(&format!("{ports}{retries}\n{more}"));
        let up = site.up_alone();
        let logins: Vec<(&str, &str)> = users.iter().map(|user| (*user, PASSWORD)).collect();
        let dovecot = Dovecot::start(&logins);
        let (uid, gid) = Postfix::owner();
        let main = format!(
            "myhostname = postfix.example.org\nmydestination =\nmynetworks = 127.0.0.99/32\n\
             virtual_mailbox_domains = static:all\nvirtual_mailbox_base = FOLDER/mail\nvirtual_mailbox_maps = static:all/\n\
             virtual_uid_maps = static:{uid}\nvirtual_gid_maps = static:{gid}\nvirtual_minimum_uid = 1\n\
             smtpd_soft_error_limit = 1000\nsmtpd_hard_error_limit = 1000\nsmtpd_sasl_auth_enable = yes\nsmtpd_sasl_type = dovecot\nsmtpd_sasl_path = {}\n{}",
            dovecot.socket().display(),
            place(recipe(way.section(), "main.cf"))
        );
        let back = match way {
            Way::Milter => place(recipe(way.section(), "master.cf")),
            Way::Policy => String::new(),
        };
        let master = format!("127.0.0.1:{port} inet n - n - - smtpd\n{back}");
        let postfix = Postfix::start(&main, &master, port);
        World { site, up: Some(up), postfix, _dovecot: dovecot, port }
    }

    fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    fn login(&self, user: &str) -> Client {
        Client::login(&self.address(), user, PASSWORD).expect("a login at Postfix")
    }

    /// The mail that has arrived: the recipient and the text of each message.
    fn mail(&self) -> Vec<(String, String)> {
        let read = |path: &std::path::PathBuf| {
            let text = String::from_utf8_lossy(&std::fs::read(path).ok()?).replace("\n\t", " ");
            let to = text.lines().find_map(|line| line.strip_prefix("Delivered-To: "))?.to_owned();
            Some((to, text))
        };
        self.postfix.maildir("all").iter().filter_map(read).collect()
    }

    /// Waits for the message to this recipient, and returns its text.
    #[track_caller]
    fn arrived(&self, to: &str) -> String {
        wait_for(&format!("mail for {to}"), || self.mail().into_iter().find(|(of, _)| of == to).map(|(_, text)| text))
    }

    /// How many recipients of a user are held.
    fn held(&self, user: &str) -> u64 {
        self.site.json(&["held", "list", "--user", user])["recipients"].as_u64().expect("a number")
    }
}
