//! `weir quickstart relay` and `weir quickstart mx`: sets Weir up in front of a mail server.

use super::neighbour::{Edit, nginx_questions, postfix_leaves};
use super::plan::{Neighbour, Plan, Trial, everywhere, list};
use super::questions::{Questions, host_name, mail_address, server};
use super::web::CertificateArgs;
use crate::assembly::machine_name;
use crate::machine::Machine;
use std::net::{Ipv4Addr, SocketAddr};

#[derive(clap::Args)]
pub(crate) struct RelayArgs {
    #[command(flatten)]
    common: MailArgs,
    /// The server that delivers the mail, host:port, or "mx" to deliver it directly to the recipients' servers
    /// [default: the mail server that runs on this machine, else mx]
    #[arg(long, value_name = "ADDRESS")]
    next: Option<String>,
    /// The port for submission with STARTTLS
    #[arg(long, default_value_t = 587)]
    port: u16,
    /// The port for submission over TLS
    #[arg(long, default_value_t = 465)]
    tls_port: u16,
}

#[derive(clap::Args)]
pub(crate) struct MxArgs {
    #[command(flatten)]
    common: MailArgs,
    /// A domain whose mail is accepted here; may be given several times
    #[arg(long = "domain", value_name = "DOMAIN")]
    domains: Vec<String>,
    /// The server with the mailboxes: host:port for SMTP, or unix:PATH for LMTP [default: the one that runs on this
    /// machine]
    #[arg(long, value_name = "ADDRESS")]
    to: Option<String>,
    /// The port for mail from outside
    #[arg(long, default_value_t = 25)]
    port: u16,
}

#[derive(clap::Args)]
struct MailArgs {
    /// The name of this mail server in the DNS
    #[arg(long = "host", value_name = "NAME")]
    host: Option<String>,
    /// The mail address of the person who is told when something needs a decision
    #[arg(long, value_name = "MAIL")]
    admin: Option<String>,
    #[command(flatten)]
    certificate: CertificateArgs,
}

struct Common {
    host: String,
    admin: String,
    certificates: String,
    neighbours: Vec<Neighbour>,
    edits: Vec<anyhow::Result<Edit>>,
}

impl MailArgs {
    fn answers(&self, machine: &Machine, ask: &Questions) -> anyhow::Result<Common> {
        let name = machine_name();
        let proposal = Some(name.as_str()).filter(|name| name.contains('.'));
        let question = "Which name does this mail server have in the DNS?";
        let host = host_name(&ask.ask(self.host.as_deref(), question, proposal, "--host NAME")?)?;
        let postmaster = format!("postmaster@{}", host.split_once('.').map_or(host.as_str(), |(_, domain)| domain));
        let question = "Which mail address is told when something needs a decision?";
        let admin = mail_address(&ask.ask(self.admin.as_deref(), question, Some(&postmaster), "--admin MAIL")?)?;
        let listen = format!(
            "# The authority asks at port 80, where only this is answered.\nlisten = {}\n",
            everywhere(80, machine.ipv6)
        );
        let port = machine.on_port(80).filter(|_| !self.certificate.self_signed);
        let (mut neighbours, mut edits) = (Vec::new(), Vec::new());
        let more = match port.filter(|taken| taken.program.as_deref() != Some("weir")) {
            None => listen,
            Some(taken) => {
                let why = format!(
                    "{} uses port 80, where the certificate authority asks. Let it pass these requests on:",
                    taken.who()
                );
                let lines = vec![
                    "# nginx, in the server block of port 80".to_owned(),
                    "location /.well-known/acme-challenge/ { proxy_pass http://127.0.0.1:2480; proxy_set_header Host $host; }".to_owned(),
                ];
                neighbours.push(Neighbour { why, lines, blocks: false });
                if taken.program.as_deref() == Some("nginx") {
                    edits.push(nginx_questions("127.0.0.1:2480"));
                }
                "# Another program has port 80 and passes the authority's questions on.\nlisten = [\"127.0.0.1:2480\"]\n".to_owned()
            }
        };
        let (certificates, _) = self.certificate.section(std::slice::from_ref(&host), &more, ask)?;
        Ok(Common { host, admin, certificates, neighbours, edits })
    }
}

impl RelayArgs {
    pub(super) fn plan(&self, machine: &Machine, ask: &Questions) -> anyhow::Result<Plan> {
        let Common { host, admin, certificates, mut neighbours, mut edits } = self.common.answers(machine, ask)?;
        let here = machine.on_port(25).map(|_| "127.0.0.1:25");
        let question = "Which server delivers the mail that Weir lets through? (host:port, or mx to deliver directly)";
        let next = server(&ask.ask(self.next.as_deref(), question, here.or(Some("mx")), "--next HOST:PORT")?)?;
        let delivery = match next.as_str() {
            "mx" => format!("way = \"mx\"\npostmaster = {admin:?}\n"),
            at if is_loopback(at) => format!("way = \"smarthost\"\nhosts = {}\ntls = \"off\"\n", list([at])),
            at => format!("way = \"smarthost\"\nhosts = {}\n", list([at])),
        };
        let config = format!(
            "[submission]\n# Our name in greetings, and the one that users have in their mail program.\nhostname = {host:?}\n\
             listen = {}\nlisten_tls = {}\n\n\
             [throttle]\n# People at your own domains are not strangers to each other.\nown_domains = {}\n\
             # To see for some weeks whose mail would have to wait, before any does:\n# learn_only = true\n\n\
             [delivery]\n# Where mail goes that is not held.\n{delivery}\n\
             [notices]\n# Who is told that an account was stopped.\nadmin = {admin:?}\n{certificates}",
            everywhere(self.port, machine.ipv6),
            everywhere(self.tls_port, machine.ipv6),
            list([host.split_once('.').map_or(host.as_str(), |(_, domain)| domain)]),
        );
        for port in [self.port, self.tls_port] {
            neighbours.extend(port_taken(machine, port, "submission"));
        }
        let taken: Vec<u16> =
            [self.port, self.tls_port].into_iter().filter(|port| is_of_postfix(machine, *port)).collect();
        if !taken.is_empty() {
            edits.push(postfix_leaves(&taken, None));
        }
        let next_hop = (next != "mx").then(|| next.clone());
        Ok(Plan {
            found: found(machine),
            config,
            dns: vec![
                format!("{host}.  A  the public address of this machine"),
                "your domain's SPF record must include the server that delivers the mail in the end".to_owned(),
            ],
            neighbours,
            edits,
            next: vec![
                "weir user add ann --address ann@example.org      somebody who may send; asks for the password"
                    .to_owned(),
                "weir dkim add example.org                        signs mail; prints the DNS record to publish"
                    .to_owned(),
                "weir replay /var/log/mail.log                    what the throttle would have done to your past mail"
                    .to_owned(),
                "weir held list                                   what waits, and why".to_owned(),
                "weir doctor                                      what is wrong on this machine".to_owned(),
            ],
            trial: Trial::Smtp { at: SocketAddr::from((Ipv4Addr::LOCALHOST, self.port)), own: None, next_hop },
        })
    }
}

impl MxArgs {
    pub(super) fn plan(&self, machine: &Machine, ask: &Questions) -> anyhow::Result<Plan> {
        let Common { host, admin, certificates, mut neighbours, mut edits } = self.common.answers(machine, ask)?;
        let domains = match &self.domains[..] {
            [] => {
                let proposal = host.split_once('.').map(|(_, domain)| domain);
                let question = "For which domain is mail accepted here?";
                vec![host_name(&ask.ask(None, question, proposal, "--domain DOMAIN")?)?]
            }
            given => given.iter().map(|domain| host_name(domain)).collect::<Result<_, _>>()?,
        };
        let lmtp = machine.lmtp.as_ref().map(|path| format!("unix:{}", path.display()));
        // If Postfix uses the port that we need, it moves behind Weir.
        let postfix = is_of_postfix(machine, self.port);
        let proposal = lmtp.or_else(|| postfix.then(|| BEHIND.to_owned()));
        let question = "Which server has the mailboxes? (host:port, or unix:PATH for LMTP)";
        let to = server(&ask.ask(self.to.as_deref(), question, proposal.as_deref(), "--to HOST:PORT")?)?;
        let way = if to.starts_with("unix:") { "lmtp" } else { "smtp" };
        let routes = list(domains.iter().map(|domain| format!("{domain} {way}:{to}")));
        let scanner = match &machine.clamd {
            Some(path) => format!("\n[scan.clamav]\naddresses = [\"unix:{}\"]\n", path.display()),
            None => "\n# clamd was not found here: attachments are judged by their kind and by YARA rules alone.\n\
                     # [scan.clamav]\n# addresses = [\"unix:/run/clamav/clamd.ctl\"]\n"
                .to_owned(),
        };
        let config = format!(
            "[submission]\nhostname = {host:?}\n# Users hand in mail from this machine only.\nlisten = [\"127.0.0.1:2587\"]\nlisten_tls = []\n\n\
             [inbound]\nlisten = {}\n# Mail for these domains is taken, and where it goes.\ndomains = {routes}\n\
             # Whether a recipient exists is asked of that server.\nrecipients = \"callout\"\n\n\
             [scan]\nenabled = true\n{scanner}\n[delivery]\nway = \"mx\"\npostmaster = {admin:?}\n\n\
             [notices]\nadmin = {admin:?}\n{certificates}",
            everywhere(self.port, machine.ipv6),
        );
        neighbours.extend(port_taken(machine, self.port, "mail from outside"));
        if postfix {
            let new = if is_loopback(&to) { to.as_str() } else { BEHIND };
            edits.push(postfix_leaves(&[self.port], Some(new)));
        }
        let own = domains.first().map(|domain| format!("postmaster@{domain}"));
        let mut dns = vec![format!("{host}.  A  the public address of this machine")];
        dns.extend(domains.iter().map(|domain| format!("{domain}.  MX  10 {host}.      once everything below works")));
        Ok(Plan {
            found: found(machine),
            config,
            dns,
            neighbours,
            edits,
            next: vec![
                "weir quarantine list         what was kept, and why".to_owned(),
                "weir scan FILE               what the scanners say about a file".to_owned(),
                "weir trace ID                the whole way of a message".to_owned(),
                "weir doctor                  what is wrong on this machine".to_owned(),
            ],
            trial: Trial::Smtp {
                at: SocketAddr::from((Ipv4Addr::LOCALHOST, self.port)),
                own,
                next_hop: (way == "smtp").then_some(to),
            },
        })
    }
}

/// The address to which Postfix moves if Weir takes its port.
const BEHIND: &str = "127.0.0.1:2525";

/// Whether Postfix listens on this port; its process there is called `master`.
fn is_of_postfix(machine: &Machine, port: u16) -> bool {
    let taken = machine.on_port(port).and_then(|taken| taken.program.as_deref());
    machine.runs_postfix() && matches!(taken, Some("master" | "smtpd"))
}

fn is_loopback(server: &str) -> bool {
    server.parse::<SocketAddr>().is_ok_and(|at| at.ip().is_loopback()) || server.starts_with("localhost:")
}

fn found(machine: &Machine) -> Vec<String> {
    let mut found = Vec::new();
    if machine.runs_postfix() {
        found.push("Postfix runs".to_owned());
    }
    if let Some(path) = &machine.lmtp {
        found.push(format!("Dovecot takes mail at {}", path.display()));
    }
    if let Some(path) = &machine.clamd {
        found.push(format!("clamd answers at {}", path.display()));
    }
    found
}

fn port_taken(machine: &Machine, port: u16, what: &str) -> Option<Neighbour> {
    let taken = machine.on_port(port).filter(|taken| taken.program.as_deref() != Some("weir"))?;
    let why = format!("{} listens at {}, and Weir needs port {port} for {what}:", taken.who(), taken.address);
    let lines = match (machine.runs_postfix(), port) {
        (true, 25) => vec![
            "# /etc/postfix/master.cf: Postfix moves to a port of the loopback".to_owned(),
            "127.0.0.1:2525 inet n - y - - smtpd      # instead of: smtp inet n - y - - smtpd".to_owned(),
            "# then: weir quickstart mx --to 127.0.0.1:2525 …".to_owned(),
        ],
        (true, _) => vec![
            "# /etc/postfix/master.cf: comment these out, Weir takes their place".to_owned(),
            "# submission inet n - y - - smtpd".to_owned(),
            "# submissions inet n - y - - smtpd".to_owned(),
        ],
        _ => vec!["stop it, or give Weir another port with --port".to_owned()],
    };
    Some(Neighbour { why, lines, blocks: true })
}
