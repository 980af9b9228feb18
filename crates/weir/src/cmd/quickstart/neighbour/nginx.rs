//! What nginx must change: either it listens behind Weir instead of at ports 80 and 443, or it passes on the requests of the certificate
//! authority.
//!
//! This parses only as much of nginx's language as is needed: directives, blocks, comments and quotes. nginx itself checks the rest,
//! because the result must pass `nginx -t`.

use super::marked::Change;
use super::{Edit, FileChange, NeighbourProgram};
use anyhow::{Context, bail};
use std::collections::BTreeSet;
use std::fs;
use std::ops::Range;
use std::path::PathBuf;
use std::process::Command;

/// A `server { … }` block of a site.
#[derive(Debug, Default)]
struct ServerBlock {
    listens: Vec<Listen>,
    names: BTreeSet<String>,
    /// The position after its opening brace.
    body: usize,
    directives: BTreeSet<String>,
}

#[derive(Debug, Clone)]
struct Listen {
    span: Range<usize>,
    words: Vec<String>,
}

impl Listen {
    /// The TCP port; none for a Unix socket.
    fn port(&self) -> Option<u16> {
        let at = self.words.first()?;
        if at.starts_with("unix:") {
            return None;
        }
        let last = at.rsplit(':').next().unwrap_or(at);
        Some(last.parse().unwrap_or(80))
    }
}

impl ServerBlock {
    /// A block without a listen directive listens at port 80.
    fn has_port(&self, port: u16) -> bool {
        (self.listens.is_empty() && port == 80) || self.listens.iter().any(|listen| listen.port() == Some(port))
    }
}

/// The edit that makes every site on these ports listen at `backend` instead.
pub(super) fn behind(plain: u16, secure: u16, backend: &str) -> anyhow::Result<Edit> {
    let files = files()?;
    let sites: Vec<(&PathBuf, &String, Vec<ServerBlock>)> =
        files.iter().map(|(path, text)| Ok((path, text, servers(text)?))).collect::<anyhow::Result<_>>()?;
    let all = || sites.iter().flat_map(|(_, _, servers)| servers);
    if all().any(|server| server.directives.contains("ssl")) {
        bail!("it has `ssl on`, which quickstart does not change");
    }
    // Usually the block at port 80 only redirects people to HTTPS. Weir does that now, and behind Weir both blocks would have the same
    // address.
    let encrypted: BTreeSet<&String> =
        all().filter(|server| server.has_port(secure)).flat_map(|it| &it.names).collect();
    let two = all().any(|server| server.has_port(secure));
    let realip = has_realip();
    let mut changes = Vec::new();
    for (path, text, servers) in &sites {
        let mut of_file = Vec::new();
        for server in servers.iter().filter(|server| server.has_port(plain) || server.has_port(secure)) {
            let parked = two && !server.has_port(secure);
            if parked && !server.names.iter().all(|name| encrypted.contains(name)) {
                let names: Vec<&str> = server.names.iter().map(String::as_str).collect();
                bail!(
                    "{} is served over plain HTTP only, beside sites with HTTPS; quickstart leaves that to you",
                    names.join(" ")
                );
            }
            let at = if parked { aside(backend)? } else { backend.to_owned() };
            of_file.extend(moved(server, &[plain, secure], &at, realip));
        }
        if !of_file.is_empty() {
            changes.push(FileChange::of((*path).clone(), text, &of_file));
        }
    }
    if changes.is_empty() {
        bail!("no server block with these ports was found");
    }
    Ok(Edit { program: NeighbourProgram::Nginx, files: changes, ports: vec![plain, secure] })
}

/// The edit that makes every site at port 80 pass the authority's requests on.
pub(super) fn questions(to: &str) -> anyhow::Result<Edit> {
    let mut changes = Vec::new();
    for (path, text) in files()? {
        let location = format!(
            "\n    location /.well-known/acme-challenge/ {{ proxy_pass http://{to}; proxy_set_header Host $host; }}\n"
        );
        let of_file: Vec<Change> = servers(&text)?
            .iter()
            .filter(|server| server.has_port(80))
            .map(|server| Change { span: server.body..server.body, by: location.clone() })
            .collect();
        if !of_file.is_empty() {
            changes.push(FileChange::of(path, &text, &of_file));
        }
    }
    if changes.is_empty() {
        bail!("no server block with port 80 was found");
    }
    Ok(Edit { program: NeighbourProgram::Nginx, files: changes, ports: Vec::new() })
}

/// An address for a block that is no longer needed. It cannot simply lose its listen directive, because then it would listen at port 80.
fn aside(backend: &str) -> anyhow::Result<String> {
    let (host, port) = backend.rsplit_once(':').context("the server behind has no port")?;
    Ok(format!("{host}:{}", port.parse::<u16>().ok().and_then(|port| port.checked_add(1)).context("no port")?))
}

/// Makes a block listen at one loopback address instead of at these ports.
fn moved(server: &ServerBlock, ports: &[u16], at: &str, realip: bool) -> Vec<Change> {
    let theirs: Vec<&Listen> =
        server.listens.iter().filter(|it| it.port().is_some_and(|port| ports.contains(&port))).collect();
    let default = theirs.iter().any(|listen| listen.words.iter().any(|word| word == "default_server"));
    let mut line = format!("listen {at}{};", if default { " default_server" } else { "" });
    if realip && !server.directives.contains("real_ip_header") {
        line.push_str(" set_real_ip_from 127.0.0.1; real_ip_header X-Forwarded-For;");
    }
    let Some((first, others)) = theirs.split_first() else {
        return vec![Change { span: server.body..server.body, by: format!(" {line}") }];
    };
    let mut changes = vec![Change { span: first.span.clone(), by: line }];
    changes.extend(others.iter().map(|listen| Change { span: listen.span.clone(), by: String::new() }));
    changes
}

fn has_realip() -> bool {
    let output = Command::new("nginx").arg("-V").output();
    output.is_ok_and(|output| String::from_utf8_lossy(&output.stderr).contains("--with-http_realip_module"))
}

/// Every file of nginx's configuration, as nginx itself lists them.
fn files() -> anyhow::Result<Vec<(PathBuf, String)>> {
    let output =
        Command::new("nginx").args(["-T", "-q"]).output().context("nginx cannot be asked for its configuration")?;
    if !output.status.success() {
        bail!("its present configuration is not valid: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    let dump = String::from_utf8_lossy(&output.stdout);
    let names = dump.lines().filter_map(|line| line.strip_prefix("# configuration file ")?.strip_suffix(':'));
    // Files in sites-enabled are usually links.
    let paths: BTreeSet<PathBuf> = names.map(|name| fs::canonicalize(name).unwrap_or_else(|_| name.into())).collect();
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).with_context(|| format!("{} cannot be read", path.display()))?;
        Ok((path, text))
    };
    paths.into_iter().map(read).collect()
}

/// The server blocks for HTTP in a file.
fn servers(text: &str) -> anyhow::Result<Vec<ServerBlock>> {
    let (mut found, mut stack) = (Vec::new(), Vec::<(String, Option<ServerBlock>)>::new());
    let (mut words, mut start) = (Vec::<String>::new(), None);
    for token in tokens(text) {
        match text.get(token.clone()).unwrap_or_default() {
            ";" => {
                let directive = std::mem::take(&mut words);
                let begun = start.take().unwrap_or(token.start);
                if let Some((_, Some(server))) = stack.last_mut() {
                    server.learn(&directive, begun..token.end);
                }
            }
            "{" => {
                let name = words.first().cloned().unwrap_or_default();
                let other = stack.iter().any(|(outer, _)| outer == "stream" || outer == "mail");
                let server =
                    (name == "server" && !other).then(|| ServerBlock { body: token.end, ..ServerBlock::default() });
                stack.push((name, server));
                words.clear();
                start = None;
            }
            "}" => {
                let (_, server) = stack.pop().context("a closing brace has no opening one")?;
                found.extend(server);
                words.clear();
                start = None;
            }
            word => {
                start.get_or_insert(token.start);
                words.push(word.trim_matches(['"', '\'']).to_owned());
            }
        }
    }
    Ok(found)
}

impl ServerBlock {
    fn learn(&mut self, directive: &[String], span: Range<usize>) {
        let Some((name, words)) = directive.split_first() else { return };
        self.directives.insert(name.clone());
        match name.as_str() {
            "listen" => self.listens.push(Listen { span, words: words.to_vec() }),
            "server_name" => self.names.extend(words.iter().cloned()),
            _ => {}
        }
    }
}

/// The words and the three signs `;`, `{` and `}`; comments and white space are left out.
fn tokens(text: &str) -> Vec<Range<usize>> {
    let (mut found, mut begun, mut quote, mut comment) = (Vec::new(), None, None, false);
    for (at, letter) in text.char_indices() {
        if comment {
            comment = letter != '\n';
        } else if let Some(open) = quote {
            if letter == open {
                quote = None;
            }
        } else if letter.is_whitespace() || ";{}".contains(letter) || (letter == '#' && begun.is_none()) {
            // `${name}` belongs to one word.
            let variable = letter == '{' && begun.is_some() && text[..at].ends_with('$');
            let in_variable = letter == '}' && begun.is_some_and(|begun: usize| text[begun..at].contains("${"));
            if variable || in_variable {
                continue;
            }
            if let Some(begun) = begun.take() {
                found.push(begun..at);
            }
            comment = letter == '#';
            if ";{}".contains(letter) {
                found.push(at..at + 1);
            }
        } else {
            if matches!(letter, '"' | '\'') && begun.is_none() {
                quote = Some(letter);
            }
            begun.get_or_insert(at);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::marked::put_in;
    use super::*;

    const SITE: &str = "upstream app { server 127.0.0.1:80; }\nstream { server { listen 80; } }\nserver {\n    listen 80 default_server; # all\n    listen [::]:80 default_server;\n    server_name _ \"a.test\";\n    location ~ ^/x{2} { return 200 'a; } b'; }\n    set $x ${y}z;\n}\n# server { listen 80; }\n";

    #[test]
    fn server_blocks_are_found_and_others_are_not() {
        let servers = servers(SITE).unwrap();
        let [server] = servers.as_slice() else { panic!("{servers:?}") };
        assert_eq!(server.listens.iter().map(Listen::port).collect::<Vec<_>>(), [Some(80), Some(80)]);
        assert!(server.names.contains("a.test") && server.directives.contains("set"), "{server:?}");
    }

    #[test]
    fn a_site_moves_behind() {
        let server = &servers(SITE).unwrap()[0];
        let now = put_in(SITE, &moved(server, &[80, 443], "127.0.0.1:8080", true));
        assert!(now.contains("\n    listen 127.0.0.1:8080 default_server; set_real_ip_from"), "{now}");
        assert_eq!(now.matches("#weir#").count(), 2, "{now}");
        let again = &servers(&now).unwrap()[0];
        assert!(!again.has_port(80) && again.has_port(8080), "{again:?}");
    }

    #[test]
    fn a_block_that_says_nothing_listens_at_port_80() {
        let text = "server {\n  root x;\n}\n";
        let server = &servers(text).unwrap()[0];
        assert!(server.has_port(80));
        let now = put_in(text, &moved(server, &[80], "127.0.0.1:8080", false));
        assert!(servers(&now).unwrap()[0].has_port(8080), "{now}");
    }

    #[test]
    fn ports_are_read_in_every_form() {
        let port = |at: &str| Listen { span: 0..0, words: vec![at.to_owned()] }.port();
        assert_eq!(["80", "*:81", "[::]:82", "localhost", "10.0.0.1:83"].map(port), [80, 81, 82, 80, 83].map(Some));
        assert_eq!(port("unix:/run/x:80"), None);
    }
}
