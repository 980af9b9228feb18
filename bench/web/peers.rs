//! The proxies that are compared, and the backend: their configurations and their processes.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A running server.
pub(crate) struct Peer {
    pub(crate) name: &'static str,
    pub(crate) at: SocketAddr,
    process: Child,
    /// Its files, which go when it does.
    _folder: tempfile::TempDir,
}

impl Peer {
    /// Memory that it and its children hold now, in KiB.
    pub(crate) fn rss_kib(&self) -> u64 {
        self.pids().iter().map(|pid| resident_kib(*pid)).sum()
    }

    /// Its process, and those that it has started.
    fn pids(&self) -> Vec<u32> {
        let mut pids = vec![self.process.id()];
        let mut at = 0;
        while at < pids.len() {
            let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", pids[at])).unwrap_or_default();
            pids.extend(children.split_whitespace().filter_map(|pid| pid.parse::<u32>().ok()));
            at += 1;
        }
        pids
    }

    /// Processor time that it and its children have used, in seconds.
    pub(crate) fn cpu_s(&self) -> f64 {
        self.pids().iter().map(|pid| used_ticks(*pid)).sum::<u64>() as f64 / TICKS_PER_SECOND
    }
}

/// What the kernel counts in, on every Linux that there is.
const TICKS_PER_SECOND: f64 = 100.0;

fn used_ticks(pid: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let behind_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    // Time in user space and in the kernel are the 14th and 15th values of all.
    behind_name.split_whitespace().skip(11).take(2).filter_map(|ticks| ticks.parse::<u64>().ok()).sum()
}

fn resident_kib(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

impl Drop for Peer {
    fn drop(&mut self) {
        // nginx and Weir end in order when they are asked to; whoever does not is killed.
        let _ = Command::new("kill").arg(self.process.id().to_string()).stderr(Stdio::null()).status();
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(5) {
            if matches!(self.process.try_wait(), Ok(Some(_))) {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// An address that nobody listens on.
pub(crate) fn free_address() -> io::Result<SocketAddr> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()
}

fn start(name: &'static str, at: SocketAddr, folder: tempfile::TempDir, mut command: Command) -> io::Result<Peer> {
    let log = fs::File::create(folder.path().join("output"))?;
    let process = command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).spawn().map_err(|error| {
        io::Error::new(
            error.kind(),
            format!("{name} cannot be started ({error}); `make setup` installs what is needed"),
        )
    })?;
    let mut peer = Peer { name, at, process, _folder: folder };
    let begun = Instant::now();
    while TcpStream::connect(at).is_err() {
        let ended = peer.process.try_wait()?;
        if ended.is_some() || begun.elapsed() > Duration::from_secs(20) {
            let said = fs::read_to_string(peer._folder.path().join("output")).unwrap_or_default();
            return Err(io::Error::other(format!("{name} did not start: {said}")));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(peer)
}

const NGINX_HEAD: &str = "daemon off; pid nginx.pid; error_log error.log crit; worker_rlimit_nofile 65535;\n";
const NGINX_HTTP: &str = "  access_log off; keepalive_requests 100000000; keepalive_timeout 300s; client_body_temp_path t1; \
                          proxy_temp_path t2; fastcgi_temp_path t3; uwsgi_temp_path t4; scgi_temp_path t5;\n";

fn nginx(name: &'static str, at: SocketAddr, folder: tempfile::TempDir, text: &str) -> io::Result<Peer> {
    fs::write(folder.path().join("nginx.conf"), text)?;
    let mut command = Command::new("nginx");
    command.arg("-p").arg(folder.path()).args(["-c", "nginx.conf", "-e", "error.log"]);
    start(name, at, folder, command)
}

/// nginx as the server behind all proxies: `/tiny` and `/64k`.
pub(crate) fn backend() -> io::Result<Peer> {
    let (folder, at) = (tempfile::tempdir()?, free_address()?);
    world_readable(folder.path())?;
    fs::write(folder.path().join("64k"), vec![b'x'; 64 << 10])?;
    let root = folder.path().display();
    let text = format!(
        "{NGINX_HEAD}worker_processes 1;\nevents {{ worker_connections 16384; }}\nhttp {{\n{NGINX_HTTP}  sendfile on;\n  \
         open_file_cache max=10 inactive=1h;\n  server {{ listen {at} backlog=4096;\n    location = /tiny {{ return 200 \
         'hello, world\\n'; }}\n    location / {{ root {root}; }}\n  }}\n}}\n"
    );
    nginx("backend", at, folder, &text)
}

/// The workers of nginx are not root.
fn world_readable(folder: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755))
}

/// nginx as a proxy; `extra` goes into the location, `zones` before the server. With `proxied`, clients begin with a PROXY header.
pub(crate) fn nginx_proxy(
    backend: SocketAddr,
    threads: usize,
    (zones, extra): (&str, &str),
    proxied: bool,
) -> io::Result<Peer> {
    let (folder, at) = (tempfile::tempdir()?, free_address()?);
    let proxied = if proxied { " proxy_protocol" } else { "" };
    let text = format!(
        "{NGINX_HEAD}worker_processes {threads};\nevents {{ worker_connections 16384; }}\nhttp {{\n{NGINX_HTTP}  {zones}\n  upstream b \
         {{ server {backend}; keepalive 1024; keepalive_requests 100000000; }}\n  server {{ listen {at} reuseport backlog=4096{proxied};\n    \
         location / {{ {extra} proxy_pass http://b; proxy_http_version 1.1; proxy_set_header Connection ''; proxy_set_header Host \
         $host; proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for; }}\n  }}\n}}\n"
    );
    nginx("nginx", at, folder, &text)
}

/// A certificate that all proxies show, so that all do the same work.
pub(crate) struct Certificate {
    folder: tempfile::TempDir,
}

impl Certificate {
    pub(crate) fn new() -> io::Result<Certificate> {
        let folder = tempfile::tempdir()?;
        world_readable(folder.path())?;
        let made = Command::new("openssl")
            .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"])
            .args(["-subj", "/CN=bench.example", "-keyout", "key.pem", "-out", "chain.pem"])
            .current_dir(folder.path())
            .output()?;
        if !made.status.success() {
            return Err(io::Error::other(format!("openssl: {}", String::from_utf8_lossy(&made.stderr))));
        }
        let both = [fs::read(folder.path().join("chain.pem"))?, fs::read(folder.path().join("key.pem"))?].concat();
        fs::write(folder.path().join("both.pem"), both)?;
        Ok(Certificate { folder })
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }
}

/// nginx as a proxy to which clients speak TLS.
pub(crate) fn nginx_tls(backend: SocketAddr, threads: usize, certificate: &Certificate) -> io::Result<Peer> {
    let (folder, at) = (tempfile::tempdir()?, free_address()?);
    let (chain, key) = (certificate.path("chain.pem"), certificate.path("key.pem"));
    let text = format!(
        "{NGINX_HEAD}worker_processes {threads};\nevents {{ worker_connections 16384; }}\nhttp {{\n{NGINX_HTTP}  upstream b {{ server {backend}; \
         keepalive 1024; keepalive_requests 100000000; }}\n  server {{ listen {at} ssl reuseport backlog=4096; ssl_certificate {chain}; \
         ssl_certificate_key {key}; ssl_session_cache shared:s:10m;\n    location / {{ proxy_pass http://b; proxy_http_version 1.1; \
         proxy_set_header Connection ''; proxy_set_header Host $host; proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for; }}\n  }}\n}}\n"
    );
    nginx("nginx", at, folder, &text)
}

/// HAProxy to which clients speak TLS.
pub(crate) fn haproxy_tls(backend: SocketAddr, threads: usize, certificate: &Certificate) -> io::Result<Peer> {
    haproxy_at(backend, threads, ("", ""), &format!(" ssl crt {}", certificate.path("both.pem")))
}

/// Weir to which clients speak TLS.
pub(crate) fn weir_tls(
    weir: &Path,
    backend: SocketAddr,
    threads: usize,
    extra: &str,
    certificate: &Certificate,
) -> io::Result<Peer> {
    let files =
        format!("certificate = \"{}\"\nkey = \"{}\"\n", certificate.path("chain.pem"), certificate.path("key.pem"));
    weir_at(weir, backend, threads, ("listen = []\nlisten_tls", &format!("{files}{extra}")), "")
}

/// HAProxy; `frontend` and `server` are added to those parts.
pub(crate) fn haproxy(
    backend: SocketAddr,
    threads: usize,
    (frontend, server): (&str, &str),
    proxied: bool,
) -> io::Result<Peer> {
    haproxy_at(backend, threads, (frontend, server), if proxied { " accept-proxy" } else { "" })
}

fn haproxy_at(backend: SocketAddr, threads: usize, (frontend, server): (&str, &str), bind: &str) -> io::Result<Peer> {
    let (folder, at) = (tempfile::tempdir()?, free_address()?);
    let text = format!(
        "global\n  nbthread {threads}\n  maxconn 8192\ndefaults\n  mode http\n  option forwardfor\n  option http-keep-alive\n  \
         http-reuse always\n  timeout connect 5s\n  timeout client 300s\n  timeout server 300s\n  timeout queue 30s\nfrontend f\n  bind {at} \
         backlog 4096{bind}\n{frontend}  default_backend b\nbackend b\n  server s {backend} {server}\n"
    );
    fs::write(folder.path().join("haproxy.cfg"), text)?;
    let mut command = Command::new("haproxy");
    command.arg("-db").arg("-f").arg(folder.path().join("haproxy.cfg"));
    start("HAProxy", at, folder, command)
}

/// Weir, with everything on: fair queue, cookies, metrics.
/// `extra` follows what is in `[web]`, and `limits` what is in `[web.limits]`.
pub(crate) fn weir(weir: &Path, backend: SocketAddr, threads: usize, extra: &str, limits: &str) -> io::Result<Peer> {
    weir_at(weir, backend, threads, ("listen", extra), limits)
}

fn weir_at(
    weir: &Path,
    backend: SocketAddr,
    threads: usize,
    (listen, extra): (&str, &str),
    limits: &str,
) -> io::Result<Peer> {
    let (folder, at) = (tempfile::tempdir()?, free_address()?);
    let text = format!(
        "[submission]\nlisten = [\"127.0.0.1:0\"]\nlisten_tls = []\n[web]\n{listen} = [\"{at}\"]\nthreads = {threads}\nbackends = [\"b \
         {backend}\"]\n{extra}\n[web.limits]\nconnections_per_address = 16384\n{limits}"
    );
    let config = folder.path().join("weir.toml");
    fs::write(&config, text)?;
    let mut command = Command::new(absolute(weir)?);
    command.arg("up").arg("--config").arg(config).arg("--data").arg(folder.path().join("data"));
    start("Weir", at, folder, command)
}

/// Weir that other proxies ask at `questions`, and whose log it hears at `logs`, if they send one.
pub(crate) fn weir_asked(
    weir: &Path,
    slots: usize,
    (questions, logs): (SocketAddr, Option<SocketAddr>),
    extra: &str,
) -> io::Result<Peer> {
    let folder = tempfile::tempdir()?;
    let logs = logs.map_or_else(String::new, |logs| format!("log_listen = [\"{logs}\"]\n"));
    let text = format!(
        "[submission]\nlisten = [\"127.0.0.1:0\"]\nlisten_tls = []\n[web]\nlisten = [\"127.0.0.1:0\"]\nthreads = 1\nbackends = [\"b \
         forward_auth slots={slots}\"]\n{extra}\n[web.forward_auth]\nlisten = [\"{questions}\"]\n{logs}"
    );
    let config = folder.path().join("weir.toml");
    fs::write(&config, text)?;
    let mut command = Command::new(absolute(weir)?);
    command.arg("up").arg("--config").arg(config).arg("--data").arg(folder.path().join("data"));
    start("Weir", questions, folder, command)
}

/// nginx that asks Weir whose turn it is, as docs/doors.md sets it up. Clients begin with a PROXY header.
pub(crate) fn nginx_asking(backend: SocketAddr, (questions, logs): (SocketAddr, SocketAddr)) -> io::Result<Peer> {
    let (folder, at) = (tempfile::tempdir()?, free_address()?);
    world_readable(folder.path())?;
    let inner = folder.path().join("inner.sock").display().to_string();
    let told = "proxy_set_header X-Forwarded-Host $host; proxy_set_header X-Forwarded-Uri $request_uri; proxy_set_header X-Forwarded-For \
                $http_x_forwarded_for; proxy_set_header X-Forwarded-Proto $http_x_forwarded_proto; proxy_pass_request_body off; \
                proxy_set_header Content-Length '';";
    let text = format!(
        "{NGINX_HEAD}worker_processes 1;\nevents {{ worker_connections 16384; }}\nhttp {{\n{NGINX_HTTP}  log_format weir '$request_id $status';\n  \
         map \"$upstream_http_cache_control|$upstream_http_expires\" $weir_new_cookie {{ default \"\"; \"|\" $weir_cookie; \
         \"~*private|no-store|no-cache|max-age=0\" $weir_cookie; }}\n  \
         set_real_ip_from 127.0.0.0/8; real_ip_header proxy_protocol;\n  \
         server {{ listen {at} backlog=4096 proxy_protocol;\n    location / {{ proxy_pass http://unix:{inner}; proxy_set_header Host $host; \
         proxy_set_header X-Forwarded-For $remote_addr; proxy_set_header X-Forwarded-Proto $scheme; }}\n  }}\n  \
         server {{ listen unix:{inner} backlog=4096; access_log syslog:server={logs},nohostname weir;\n    \
         location / {{ auth_request /weir/ask; auth_request_set $weir_method $request_method; auth_request_set $weir_cookie \
         $upstream_http_x_weir_cookie; add_header Set-Cookie $weir_new_cookie always; error_page 401 = /weir/page; proxy_ignore_client_abort on; \
         proxy_pass http://{backend}; proxy_set_header Host $host; }}\n    \
         location = /weir/ask {{ internal; proxy_pass http://{questions}/ask/nginx; {told} proxy_set_header X-Forwarded-Method $request_method; \
         proxy_set_header X-Weir-Request $request_id; }}\n    \
         location = /weir/page {{ internal; proxy_pass http://{questions}/page; {told} proxy_set_header X-Forwarded-Method $weir_method; }}\n  }}\n}}\n"
    );
    nginx("nginx", at, folder, &text)
}

/// A recipe of docs/doors.md in this language, with other addresses in place of those of the page.
fn recipe(language: &str, changed: &[(&str, &str)]) -> String {
    const DOORS: &str = include_str!("../../docs/doors.md");
    let block = DOORS.split(&format!("```{language}\n")).nth(1).and_then(|rest| rest.split("```").next());
    let mut text = block.unwrap_or_default().to_owned();
    for (written, here) in changed {
        assert!(text.contains(written), "{written} is not in the recipe");
        text = text.replace(written, here);
    }
    text
}

/// Caddy, alone or asking Weir as docs/doors.md sets it up, with its log or without. It does not know PROXY headers: clients tell their address in a field.
pub(crate) fn caddy(backend: SocketAddr, asked: Option<(SocketAddr, Option<SocketAddr>)>) -> io::Result<Peer> {
    let (folder, at) = (tempfile::tempdir()?, free_address()?);
    let site = format!("http://:{} {{\n\tbind 127.0.0.1", at.port());
    let text = match asked {
        None => format!("{site}\n\treverse_proxy {backend}\n}}\n"),
        Some((questions, logs)) => {
            let logs = logs.map(|logs| logs.to_string());
            let asks =
                format!("forward_auth {questions} {{\n\t\t\theader_up X-Forwarded-For {{header.X-Forwarded-For}}");
            let text = recipe(
                "caddy",
                &[
                    ("http://shop.example {", &site),
                    ("forward_auth 127.0.0.1:2481 {", &asks),
                    ("127.0.0.1:2482", logs.as_deref().unwrap_or("127.0.0.1:9")),
                    ("127.0.0.1:8000", &backend.to_string()),
                ],
            );
            match logs {
                Some(_) => text,
                None => text.replace("output net udp/127.0.0.1:9", "output discard"),
            }
        }
    };
    fs::write(
        folder.path().join("Caddyfile"),
        format!("{{\n\tadmin off\n\tauto_https off\n\tlog {{\n\t\tlevel ERROR\n\t}}\n}}\n{text}"),
    )?;
    let mut command = Command::new("caddy");
    command.args(["run", "--adapter", "caddyfile", "--config"]).arg(folder.path().join("Caddyfile"));
    command.env("XDG_DATA_HOME", folder.path()).env("XDG_CONFIG_HOME", folder.path()).env("HOME", folder.path());
    start("Caddy", at, folder, command)
}

/// HAProxy that asks Weir, as docs/doors.md sets it up. Clients begin with a PROXY header.
pub(crate) fn haproxy_asking(backend: SocketAddr, (questions, logs): (SocketAddr, SocketAddr)) -> io::Result<Peer> {
    let (folder, at) = (tempfile::tempdir()?, free_address()?);
    let script = folder.path().join("weir.lua");
    fs::write(&script, recipe("lua", &[("127.0.0.1:2481", &questions.to_string())]))?;
    let text = recipe(
        "haproxy",
        &[
            ("global\n", "global\n    nbthread 1\n    maxconn 8192\n"),
            ("bind :80", &format!("bind {at} backlog 4096 accept-proxy")),
            ("/etc/haproxy/weir.lua", &script.display().to_string()),
            ("127.0.0.1:2482", &logs.to_string()),
            ("127.0.0.1:8000", &backend.to_string()),
        ],
    );
    fs::write(folder.path().join("haproxy.cfg"), text)?;
    let mut command = Command::new("haproxy");
    command.arg("-db").arg("-f").arg(folder.path().join("haproxy.cfg"));
    start("HAProxy", at, folder, command)
}

/// The history that Weir learns from an access log; its file stays until the bench ends.
pub(crate) fn learn(weir: &Path, log: &str) -> io::Result<PathBuf> {
    let folder = tempfile::tempdir()?.keep();
    fs::write(folder.join("access.log"), log)?;
    let history = folder.join("history.json");
    let mut command = Command::new(absolute(weir)?);
    command.args(["web", "learn"]).arg(folder.join("access.log")).arg("--output").arg(&history);
    let learnt = command.stdin(Stdio::null()).stdout(Stdio::null()).output()?;
    if learnt.status.success() {
        return Ok(history);
    }
    Err(io::Error::other(format!("weir web learn: {}", String::from_utf8_lossy(&learnt.stderr))))
}

fn absolute(path: &Path) -> io::Result<PathBuf> {
    std::path::absolute(path)
}
