//! `weir quickstart web`: sets Weir up in front of a web site.

use super::neighbour::nginx_behind;
use super::plan::{Neighbour, Plan, Trial, everywhere};
use super::questions::{Questions, host_name, mail_address, server};
use crate::assembly::machine_name;
use crate::machine::{Listening, Machine};
use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

#[derive(clap::Args)]
pub(crate) struct WebArgs {
    /// A host name of the site; may be given several times
    #[arg(long = "host", value_name = "NAME")]
    hosts: Vec<String>,
    /// The web server behind Weir, host:port [default: the one that runs on this machine, else 127.0.0.1:8080]
    #[arg(long, value_name = "ADDRESS")]
    backend: Option<String>,
    /// The port for plain HTTP
    #[arg(long, default_value_t = 80)]
    http_port: u16,
    /// The port for HTTPS
    #[arg(long, default_value_t = 443)]
    https_port: u16,
    #[command(flatten)]
    certificate: CertificateArgs,
}

/// Where certificates come from.
#[derive(clap::Args)]
pub(super) struct CertificateArgs {
    /// Agree to the terms of service of the certificate authority
    #[arg(long)]
    pub(super) agree: bool,
    /// Your mail address, for the certificate authority
    #[arg(long, value_name = "MAIL")]
    pub(super) contact: Option<String>,
    /// The ACME directory of another certificate authority than Let's Encrypt
    #[arg(long, value_name = "URL")]
    pub(super) authority: Option<String>,
    /// A PEM file with the certificates to trust when Weir connects to that authority
    #[arg(long, value_name = "FILE")]
    pub(super) authority_ca: Option<PathBuf>,
    /// Use a self-signed certificate, without asking an authority
    #[arg(long)]
    pub(super) self_signed: bool,
}

impl CertificateArgs {
    /// The section `[certificates]` for these names, and whether an authority will be asked. `more` contains further lines for it.
    pub(super) fn section(&self, names: &[String], more: &str, ask: &Questions) -> anyhow::Result<(String, bool)> {
        let question = "The certificate authority requires that you agree to its terms of service \
                        (https://letsencrypt.org/repository/ for Let's Encrypt). Do you agree?";
        if self.self_signed || !ask.agreed(self.agree, question)? {
            let text = format!(
                "\n# No authority is asked for a certificate, so Weir signs its own. To get a real one, agree to the authority's terms:\n\
                 # [certificates]\n# names = {}\n# accept_terms = true\n",
                super::plan::list(names)
            );
            return Ok((text, false));
        }
        let mut text =
            "\n# Certificates come from an authority by themselves and are renewed early (docs/certificates.md).\n\
                        [certificates]\n"
                .to_owned();
        writeln!(text, "names = {}\naccept_terms = true", super::plan::list(names))?;
        if let Some(contact) = &self.contact {
            writeln!(text, "contact = {:?}", mail_address(contact)?)?;
        }
        if let Some(authority) = &self.authority {
            writeln!(text, "directory = {:?}", server(authority)?)?;
        }
        if let Some(file) = &self.authority_ca {
            writeln!(text, "ca_file = {:?}", std::path::absolute(file)?)?;
        }
        text.push_str(more);
        Ok((text, true))
    }
}

impl WebArgs {
    pub(super) fn plan(&self, machine: &Machine, ask: &Questions) -> anyhow::Result<Plan> {
        let hosts = self.hosts(ask)?;
        let (http, https) = (self.http_port, self.https_port);
        let servers = machine.web_servers();
        let free = |listening: &&&Listening| ![http, https].contains(&listening.address.port());
        let proposal =
            servers.iter().find(free).map_or_else(|| "127.0.0.1:8080".to_owned(), |it| it.local().to_string());
        let question = "Where does your site answer plain HTTP?";
        let backend = server(&ask.ask(self.backend.as_deref(), question, Some(&proposal), "--backend HOST:PORT")?)?;
        let (certificates, authority) = self.certificate.section(&hosts, "", ask)?;
        let found = servers.iter().map(|it| format!("{} listens at {}", it.who(), it.address)).collect();
        let config = format!(
            "[web]\n# Visitors come here; plain HTTP is redirected to HTTPS.\nlisten = {}\nlisten_tls = {}\n\
             redirect_port = {https}\n\
             # Your site. `slots=N` lets N requests in at once; without it Weir finds the number by measuring.\n\
             backends = [\"site {backend}\"]\n\
             # To see for a day who would have to wait, before anybody does:\n# observe = true\n{certificates}",
            everywhere(http, machine.ipv6),
            everywhere(https, machine.ipv6),
        );
        let neighbours: Vec<Neighbour> =
            [http, https].iter().filter_map(|port| in_the_way(machine, *port, &backend)).collect();
        let nginx = [http, https]
            .iter()
            .any(|port| machine.on_port(*port).is_some_and(|taken| taken.program.as_deref() == Some("nginx")));
        let here = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let host = hosts.first().cloned().unwrap_or_default();
        Ok(Plan {
            found,
            config,
            dns: hosts
                .iter()
                .map(|host| format!("{host}.  A  the public address of this machine (AAAA too, if it has one)"))
                .collect(),
            neighbours,
            edits: if nginx { vec![nginx_behind(http, https, &backend)] } else { Vec::new() },
            next: vec![
                "weir web status              who is served, who waits".to_owned(),
                "weir top                     the same, drawn again every second".to_owned(),
                "weir doctor                  what is wrong on this machine".to_owned(),
                "docs: /usr/share/doc/weir/web.md and operating.md".to_owned(),
            ],
            trial: Trial::Web { host, plain: here(http), secure: here(https), authority },
        })
    }

    fn hosts(&self, ask: &Questions) -> anyhow::Result<Vec<String>> {
        if !self.hosts.is_empty() {
            return self.hosts.iter().map(|host| host_name(host)).collect();
        }
        let name = machine_name();
        let proposal = Some(name.as_str()).filter(|name| name.contains('.'));
        let typed = ask.ask(None, "Which host name does the site have?", proposal, "--host NAME")?;
        Ok(vec![host_name(&typed)?])
    }
}

/// A hint if another program uses a port that Weir needs.
fn in_the_way(machine: &Machine, port: u16, backend: &str) -> Option<Neighbour> {
    let taken = machine.on_port(port).filter(|taken| taken.program.as_deref() != Some("weir"))?;
    let why = format!(
        "{} listens at {}, and Weir needs port {port}. Let it listen at {backend}:",
        taken.who(),
        taken.address
    );
    let lines = match taken.program.as_deref() {
        Some("nginx") => vec![
            "# in the server block of your site, such as /etc/nginx/sites-enabled/default".to_owned(),
            format!("listen {backend};              # instead of listen 80 and listen 443"),
            "set_real_ip_from 127.0.0.1;    # the client's address comes from Weir, in this header".to_owned(),
            "real_ip_header X-Forwarded-For;".to_owned(),
        ],
        Some("apache2" | "httpd") => vec![
            "# /etc/apache2/ports.conf, and the same in <VirtualHost …> of your site".to_owned(),
            format!("Listen {backend}"),
            "# the client's address comes from Weir: a2enmod remoteip".to_owned(),
            "RemoteIPHeader X-Forwarded-For".to_owned(),
            "RemoteIPInternalProxy 127.0.0.1".to_owned(),
        ],
        _ => vec!["stop it, or give Weir another port: --http-port, --https-port".to_owned()],
    };
    Some(Neighbour { why, lines, blocks: true })
}
