//! A private OpenLDAP server (slapd) with a few people and groups.

use crate::{TestAuthority, free_port, spawn_bound};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The server. Its entries are below `dc=example,dc=org`; `cn=reader` may read them with the password `reads`.
#[derive(Debug)]
pub struct Slapd {
    folder: tempfile::TempDir,
    server: Option<Child>,
    plain: u16,
    secure: u16,
    tls: bool,
}

/// People have the password `known to ldap` and an address `NAME@localhost`, and are in these groups.
const PEOPLE: [(&str, &[&str]); 4] =
    [("ann", &["admins", "staff"]), ("bob", &["staff"]), ("cat", &[]), ("admin", &["admins"])];
const GROUPS: [&str; 2] = ["admins", "staff"];

impl Slapd {
    /// Starts one. With an authority, it speaks TLS, and its name is `localhost`.
    pub fn start(authority: Option<&TestAuthority>) -> Slapd {
        let folder = tempfile::tempdir().expect("a temporary folder");
        std::fs::create_dir(folder.path().join("db")).expect("a folder");
        std::fs::write(folder.path().join("slapd.conf"), configuration(folder.path(), authority)).expect("settings");
        std::fs::write(folder.path().join("data.ldif"), entries()).expect("entries");
        let mut add = Command::new("slapadd");
        add.env("PATH", PATH).arg("-f").arg(folder.path().join("slapd.conf"));
        let added = add.arg("-l").arg(folder.path().join("data.ldif")).output().expect("slapadd runs: `make setup`");
        assert!(added.status.success(), "{}", String::from_utf8_lossy(&added.stderr));
        let mut slapd =
            Slapd { folder, server: None, plain: free_port(), secure: free_port(), tls: authority.is_some() };
        slapd.restart();
        slapd
    }

    /// Its address without TLS, or for StartTLS.
    pub fn plain(&self) -> String {
        format!("ldap://localhost:{}", self.plain)
    }

    /// Its address for TLS.
    pub fn secure(&self) -> String {
        format!("ldaps://localhost:{}", self.secure)
    }

    /// Stops it.
    pub fn stop(&mut self) {
        let Some(mut server) = self.server.take() else { return };
        let _ = server.kill();
        let _ = server.wait();
    }

    /// Starts it (again), and waits until it listens.
    pub fn restart(&mut self) {
        self.stop();
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig=KILL", "slapd", "-d", "0", "-f"]).arg(self.folder.path().join("slapd.conf"));
        let secure = if self.tls { format!(" ldaps://127.0.0.1:{}", self.secure) } else { String::new() };
        command.arg("-h").arg(format!("ldap://127.0.0.1:{}{secure}", self.plain)).env("PATH", PATH);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        self.server = Some(spawn_bound(command));
        let begun = Instant::now();
        while TcpStream::connect(("127.0.0.1", self.plain)).is_err() {
            assert!(
                begun.elapsed() < Duration::from_secs(60),
                "slapd did not start: is it installed? Run `make setup`"
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Lets it hang: it runs, but does not answer.
    pub fn freeze(&self) {
        self.signal("-STOP");
    }

    /// Ends the hanging.
    pub fn thaw(&self) {
        self.signal("-CONT");
    }

    fn signal(&self, signal: &str) {
        if let Some(server) = &self.server {
            let sent = Command::new("kill").arg(signal).arg(server.id().to_string()).status();
            assert!(sent.is_ok_and(|status| status.success()));
        }
    }
}

impl Drop for Slapd {
    fn drop(&mut self) {
        self.stop();
    }
}

const PATH: &str = "/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin";

/// A bind with a name and an empty password counts as anonymous and succeeds, as in many directories.
fn configuration(folder: &Path, authority: Option<&TestAuthority>) -> String {
    let tls = authority.map_or_else(String::new, |authority| {
        let (chain, key) = authority.sign("slapd", &["localhost"]);
        format!("TLSCertificateFile {}\nTLSCertificateKeyFile {}\n", chain.display(), key.display())
    });
    let folder = folder.display();
    let schemas: String = ["core", "cosine", "inetorgperson"]
        .iter()
        .map(|name| format!("include /etc/ldap/schema/{name}.schema\n"))
        .collect();
    format!(
        "{schemas}pidfile {folder}/pid\n{tls}modulepath /usr/lib/ldap\nmoduleload back_mdb\nallow bind_anon_dn\n\
         database mdb\nsuffix \"dc=example,dc=org\"\ndirectory {folder}/db\n\
         access to attrs=userPassword by anonymous auth by * none\n\
         access to * by dn.exact=\"cn=reader,dc=example,dc=org\" read by self read by * none\n"
    )
}

fn entries() -> String {
    let mut text = "dn: dc=example,dc=org\nobjectClass: dcObject\nobjectClass: organization\ndc: example\no: Example\n\n\
         dn: cn=reader,dc=example,dc=org\nobjectClass: organizationalRole\nobjectClass: simpleSecurityObject\ncn: reader\n\
         userPassword: reads\n\n\
         dn: ou=people,dc=example,dc=org\nobjectClass: organizationalUnit\nou: people\n\n\
         dn: ou=groups,dc=example,dc=org\nobjectClass: organizationalUnit\nou: groups\n\n"
        .to_owned();
    for (name, _) in PEOPLE {
        text.push_str(&format!(
            "dn: uid={name},ou=people,dc=example,dc=org\nobjectClass: inetOrgPerson\nuid: {name}\ncn: {name}\nsn: {name}\n\
             mail: {name}@localhost\nuserPassword: known to ldap\n\n"
        ));
    }
    for group in GROUPS {
        text.push_str(&format!("dn: cn={group},ou=groups,dc=example,dc=org\nobjectClass: groupOfNames\ncn: {group}\n"));
        for (name, _) in PEOPLE.iter().filter(|(_, groups)| groups.contains(&group)) {
            text.push_str(&format!("member: uid={name},ou=people,dc=example,dc=org\n"));
        }
        text.push('\n');
    }
    text
}
