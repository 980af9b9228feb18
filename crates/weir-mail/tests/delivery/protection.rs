//! DANE and MTA-STS with real parts: Knot signs, Unbound checks, Postfix takes the mail with a certificate of a test authority, nginx has the
//! policies.

use super::memory_ledger::{MemoryLedger, PATIENCE, settings_for, start};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use weir_mail::delivery::queue::Selection;
use weir_mail::delivery::resolver::{Dns, Ourselves};
use weir_mail::delivery::route::Route;
use weir_peers::{Knot, Postfix, TestAuthority, Unbound, free_port};
use weir_smtp::client::approach::Approach;

/// What becomes of mail for a domain.
#[derive(Debug, Clone, Copy)]
enum Fate {
    Delivered,
    /// It waits, and the answer says this.
    Waits(&'static str),
}

const UNPROVED: Fate = Fate::Waits("the TLS handshake failed");
const STRIPPED: Fate = Fate::Waits("the server does not offer TLS");

/// The domain, its records beside MX and address, whether its server has TLS, its policy, and what becomes of its mail.
struct Case {
    domain: &'static str,
    tlsa: Option<&'static str>,
    tls: bool,
    policy: Option<&'static str>,
    fate: Fate,
}

const fn case(domain: &'static str, fate: Fate) -> Case {
    Case { domain, tlsa: None, tls: true, policy: None, fate }
}

const WRONG: &str = "3 1 1 0000000000000000000000000000000000000000000000000000000000000000";
const ENFORCE: &str = "version: STSv1\nmode: enforce\nmx: mx.DOMAIN\nmax_age: 86400\n";
const OTHERS: &str = "version: STSv1\nmode: enforce\nmx: *.elsewhere.example\nmax_age: 86400\n";
const TESTING: &str = "version: STSv1\nmode: testing\nmx: *.elsewhere.example\nmax_age: 86400\n";

fn cases() -> Vec<Case> {
    let dane = |domain, tlsa, fate| Case { tlsa: Some(tlsa), ..case(domain, fate) };
    let sts = |domain, policy, fate| Case { policy: Some(policy), ..case(domain, fate) };
    vec![
        case("absent.example", Fate::Delivered),
        Case { tls: false, ..case("plain.example", Fate::Delivered) },
        dane("dane-key.example", "3 1 1 KEY", Fate::Delivered),
        dane("dane-authority.example", "2 0 1 AUTHORITY", Fate::Delivered),
        dane("dane-wrong.example", WRONG, UNPROVED),
        // The authority has signed it, but not for this name.
        dane("unnamed-authority.example", "2 0 1 AUTHORITY", UNPROVED),
        // A record that names the certificate itself needs no name in it.
        dane("unnamed-key.example", "3 1 1 KEY", Fate::Delivered),
        Case { tls: false, ..dane("dane-stripped.example", "3 1 1 KEY", STRIPPED) },
        // Kinds of records that mail servers do not use: TLS is a must, the certificate is not.
        dane("dane-unusable.example", "1 1 1 KEY", Fate::Delivered),
        Case { tls: false, ..dane("dane-unusable-stripped.example", "1 1 1 KEY", STRIPPED) },
        sts("sts-good.example", ENFORCE, Fate::Delivered),
        sts("sts-others.example", OTHERS, Fate::Waits("policy (MTA-STS) names")),
        sts("unnamed-sts.example", ENFORCE, UNPROVED),
        Case { tls: false, ..sts("sts-stripped.example", ENFORCE, STRIPPED) },
        Case { tls: false, ..sts("sts-testing.example", TESTING, Fate::Delivered) },
        // Announced in the DNS, and not there.
        sts("sts-missing.example", "", Fate::Delivered),
        // A policy weakens no DANE.
        Case { tlsa: Some(WRONG), ..sts("both.example", ENFORCE, UNPROVED) },
    ]
}

struct Nginx {
    _folder: tempfile::TempDir,
    server: Child,
}

impl Nginx {
    /// Serves `FOLDER/HOST/.well-known/mta-sts.txt` under TLS.
    fn start(policies: &[(String, String)], chain: &Path, key: &Path, port: u16) -> Nginx {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path().display();
        for (domain, policy) in policies.iter().filter(|(_, policy)| !policy.is_empty()) {
            let known = folder.path().join(format!("mta-sts.{domain}/.well-known"));
            std::fs::create_dir_all(&known).unwrap();
            std::fs::write(known.join("mta-sts.txt"), policy).unwrap();
        }
        let lines = format!(
            "daemon off;\nuser root;\nworker_processes 1;\npid {at}/pid;\nerror_log {at}/error.log;\nevents {{}}\nhttp {{\n  access_log off;\n  \
             client_body_temp_path {at}/b;\n  proxy_temp_path {at}/p;\n  fastcgi_temp_path {at}/f;\n  uwsgi_temp_path {at}/u;\n  scgi_temp_path {at}/s;\n  \
             server {{\n    listen 127.0.0.1:{port} ssl;\n    ssl_certificate {};\n    ssl_certificate_key {};\n    root {at}/$host;\n  }}\n}}\n",
            chain.display(),
            key.display()
        );
        std::fs::write(folder.path().join("nginx.conf"), lines).unwrap();
        let mut command = Command::new("/usr/sbin/nginx");
        command.arg("-c").arg(folder.path().join("nginx.conf")).stderr(Stdio::null());
        let server = command.spawn().expect("nginx is not installed: run `make setup`");
        let begun = std::time::Instant::now();
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(begun.elapsed() < PATIENCE, "nginx does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
        Nginx { _folder: folder, server }
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // Asked politely, the master ends its worker; killed, it would leave it.
        let _ = Command::new("kill").arg(self.server.id().to_string()).status();
        let _ = self.server.wait();
    }
}

fn zone(cases: &[Case], port: u16, authority: &TestAuthority) -> String {
    let (key, root) = (authority.key_digest("server"), authority.digest());
    let mut zone = String::new();
    for Case { domain, tlsa, tls, policy, .. } in cases {
        let address = if *tls { "127.0.0.1" } else { "127.0.0.2" };
        zone += &format!("{domain}. MX 1 mx.{domain}.\nmx.{domain}. A {address}\n");
        if let Some(tlsa) = tlsa {
            let data = tlsa.replace("KEY", &key).replace("AUTHORITY", &root);
            zone += &format!("_{port}._tcp.mx.{domain}. TLSA {data}\n");
        }
        if policy.is_some() {
            zone += &format!("_mta-sts.{domain}. TXT \"v=STSv1; id=1;\"\nmta-sts.{domain}. A 127.0.0.1\n");
        }
    }
    zone
}

fn postfix(port: u16, cases: &[Case], chain: &Path, key: &Path) -> Postfix {
    let (uid, gid) = Postfix::owner();
    let domains: Vec<&str> = cases.iter().map(|case| case.domain).chain(["unsigned.example"]).collect();
    let main = format!(
        "myhostname = postfix.example.org\nmydestination =\nmynetworks = 127.0.0.0/8\nsmtpd_tls_loglevel = 1\n\
         virtual_mailbox_domains = {}\nvirtual_mailbox_base = FOLDER/mail\nvirtual_mailbox_maps = static:box/\n\
         virtual_uid_maps = static:{uid}\nvirtual_gid_maps = static:{gid}\nvirtual_minimum_uid = 1\n\
         smtpd_tls_security_level = may\nsmtpd_tls_cert_file = {}\nsmtpd_tls_key_file = {}\n",
        domains.join(", "),
        chain.display(),
        key.display()
    );
    let master = format!(
        "127.0.0.1:{port} inet n - n - - smtpd\n127.0.0.2:{port} inet n - n - - smtpd\n  -o smtpd_tls_security_level=none\n"
    );
    Postfix::start(&main, &master, port)
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_prove_what_their_domain_says_that_they_can() {
    let (cases, authority) = (cases(), TestAuthority::new());
    let (port, web_port) = (free_port(), free_port());
    let named: Vec<String> = cases
        .iter()
        .filter(|case| !case.domain.starts_with("unnamed"))
        .map(|case| format!("mx.{}", case.domain))
        .collect();
    let named: Vec<&str> = named.iter().map(String::as_str).collect();
    let (chain, key) = authority.sign("server", &named);
    let hosts: Vec<String> = cases.iter().map(|case| format!("mta-sts.{}", case.domain)).collect();
    let (web_chain, web_key) = authority.sign("web", &hosts.iter().map(String::as_str).collect::<Vec<_>>());
    let policy = |case: &Case| Some((case.domain.to_owned(), case.policy?.replace("DOMAIN", case.domain)));
    let policies: Vec<(String, String)> = cases.iter().filter_map(policy).collect();
    let _nginx = Nginx::start(&policies, &web_chain, &web_key, web_port);
    // Nobody signs this zone: what it says of certificates may be anybody's.
    let unsigned = format!("@ MX 1 mx\nmx A 127.0.0.1\n_{port}._tcp.mx TLSA {WRONG}\n");
    let knot = Knot::start_signed(&zone(&cases, port, &authority), &unsigned);
    let unbound = Unbound::start(&knot);
    let postfix = postfix(port, &cases, &chain, &key);

    let ledger = MemoryLedger::default();
    let mut settings = settings_for(Route::Mx(Approach::default()));
    settings.dns = Dns::Server(unbound.address(), Duration::from_secs(20));
    settings.ourselves = Ourselves { port, loopback: true, ..Ourselves::default() };
    settings.roots = Some(authority.certificate());
    settings.sts_port = Some(web_port);
    let delivery = start(settings, &ledger);
    let everybody = cases.iter().map(|case| (case.domain, case.fate)).chain([("unsigned.example", Fate::Delivered)]);
    for (domain, fate) in everybody {
        let message = ledger.message("<a@sender.example>", &[&format!("<b@{domain}>")], "Subject: x\r\n\r\nx\r\n");
        let id = message.id;
        delivery.enqueue(message);
        match fate {
            Fate::Delivered => ledger.finished(id).await,
            Fate::Waits(why) => {
                let begun = std::time::Instant::now();
                let mut said = String::new();
                while !said.contains(why) {
                    assert!(begun.elapsed() < PATIENCE, "{domain}: {said:?}");
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    let selection = Selection { messages: [id].into(), ..Selection::default() };
                    let listed = delivery.list(&selection, 0, 1).messages;
                    assert!(!ledger.state().finished.contains(&id), "{domain} got its mail");
                    said = listed.first().and_then(|one| one.recipients[0].last_answer.clone()).unwrap_or_default();
                }
            }
        }
    }
    delivery.shutdown(Duration::from_secs(5)).await;
    let log = postfix.log();
    for domain in
        ["dane-wrong.example", "dane-stripped.example", "sts-others.example", "sts-stripped.example", "both.example"]
    {
        assert!(!log.contains(&format!("to=<b@{domain}>")), "{domain} in\n{log}");
    }
    assert!(ledger.state().reports.is_empty(), "mail that waits is no failure");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resolver_elsewhere_is_not_believed_unless_it_is_said_to_be_trusted() {
    use weir_mail::delivery::protection::SecureDns;
    let server = |address: &str| Dns::Server(address.parse().unwrap(), Duration::from_secs(1));
    for (address, trusted, believed) in [
        ("127.0.0.53:53", false, true),
        ("[::1]:53", false, true),
        ("[::ffff:127.0.0.1]:53", false, true),
        ("192.0.2.1:53", false, false),
        ("[2001:db8::1]:53", false, false),
        ("192.0.2.1:53", true, true),
    ] {
        assert_eq!(SecureDns::of(&server(address), trusted).is_some(), believed, "{address} {trusted}");
    }
}
