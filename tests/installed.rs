//! Weir as the package installs it, in a world of its own: where commands look for its data, and what a lab needs from systemd.

use crate::neighbours::FUNCTIONS;
use crate::world::World;
use std::path::Path;

fn in_world(script: &str) {
    let mut world = World::new();
    let program = Path::new(env!("CARGO_BIN_EXE_weir"));
    world.read(program.parent().expect("a folder"), "/usr/local/bin");
    world.read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging"), "/packaging");
    let output = world.run(&format!("{FUNCTIONS}{WORDS}{script}"));
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}");
}

/// The shell function `says WORDS COMMAND…` checks that a command prints these words, however it ends; `stranger` runs a command as a user
/// without rights.
const WORDS: &str = r#"
says() { local words=$1; shift; "$@" > said 2>&1 || true; grep -qF -- "$words" said || fail "not said by $*: $words"; }
stranger() { setpriv --reuid=65534 --regid=65534 --clear-groups "$@"; }
wait_until() { for _ in $(seq 1200); do "$@" 2>/dev/null && return; sleep 0.1; done; fail "waited in vain for $*"; }
"#;

#[test]
fn commands_find_the_data_of_the_installed_service() {
    in_world(
        r#"
chmod 0755 /etc /etc/weir
install -m 0640 /packaging/weir.toml /etc/weir/weir.toml
says 'there is no data folder at /home/you/weir-data' weir status
mkdir -m 0700 /var/lib/weir
says 'Weir has never run on /var/lib/weir' weir status
says 'systemctl start weir' weir status
weir up --config /etc/weir/weir.toml --data /var/lib/weir > up 2>&1 & up=$!
wait_until test -S /var/lib/weir/control.sock
says ' on /var/lib/weir' weir status
says 'demo' weir user add demo --address demo@localhost --generate
says 'demo' weir user list
says 'may not be read by you' stranger weir status
says 'sudo' stranger weir status
chmod 0644 /etc/weir/weir.toml
says 'you are not allowed to look into /var/lib/weir' stranger weir status
# A folder that is named counts, and so does one that is here.
says 'there is no data folder at /srv/other' env WEIR_DATA=/srv/other weir status
printf '[store]\nfolder = "/srv/named"\n' > named.toml
says 'there is no data folder at /srv/named' weir status --config named.toml
echo '# another Weir' > other.toml
says 'there is no data folder at /home/you/weir-data' weir status --config other.toml
kill $up; wait $up || true
mkdir /home/you/elsewhere && cd /home/you/elsewhere
weir up > up 2>&1 & up=$!
wait_until test -S weir-data/control.sock
says ' on /home/you/elsewhere/weir-data' weir status
kill $up; wait $up || true
"#,
    );
}

#[test]
fn a_lab_is_told_what_its_unit_needs_and_why_the_verdict_is_what_it_is() {
    in_world(
        r#"
weir quickstart lab --vms 0 --no-start > said
! grep -q systemd/system said || fail "there is no unit here"
install -D -m 0644 /packaging/weir.service /etc/systemd/system/weir.service
says 'install -D -m 0644 /usr/share/doc/weir/examples/weir-lab.conf /etc/systemd/system/weir.service.d/lab.conf' weir quickstart lab --vms 0 --no-start
grep -q 'systemctl daemon-reload' said || fail "not all of it"
install -D -m 0644 /packaging/weir-lab.conf /etc/systemd/system/weir.service.d/lab.conf
weir quickstart lab --vms 0 --no-start > said
! grep -q weir-lab.conf said || fail "it is there already"
quickstart lab --vms 0
grep -q 'Tried the lab: a harmless sample is done, its verdict: unknown, because nothing speaks against it' said || fail "no reason"
stop
"#,
    );
}
