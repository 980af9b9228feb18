//! Tests of `weir quickstart --edit-neighbour` with a real nginx and a real Postfix on the ports that Weir needs: their configuration is
//! changed, Weir takes their place, and `weir quickstart undo` restores every octet.

use crate::world::World;
use std::path::Path;

/// Shell functions. One starts quickstart, which keeps running with the Weir that it started, and waits until it has printed everything;
/// `stop` ends Weir.
pub(crate) const FUNCTIONS: &str = r#"
set -eu
cd /home/you
fail() { echo "FAILED: $*"; cat said 2>/dev/null; exit 1; }
quickstart() {
  weir quickstart "$@" --start > said 2>&1 & quickstart=$!
  for _ in $(seq 1200); do
    grep -q 'weir doctor' said && return
    kill -0 $quickstart 2>/dev/null || fail "quickstart ended"
    sleep 0.1
  done
  fail "quickstart does not end"
}
stop() { kill $(cat /proc/$quickstart/task/$quickstart/children); wait $quickstart || true; }
answers() { for _ in $(seq 300); do (exec 3<>/dev/tcp/127.0.0.1/$1 && head -c 4 <&3) 2>/dev/null | grep -q "$2" && return; sleep 0.1; done; fail "port $1 does not answer $2"; }
silent() { ! (exec 3<>/dev/tcp/127.0.0.1/$1) 2>/dev/null || fail "somebody is at port $1"; }
"#;

const NGINX: &str = r#"
mkdir -p /etc/nginx/sites-available /etc/nginx/sites-enabled /var/lib/nginx /var/log/nginx /srv/www
echo 'our page' > /srv/www/index.html
cat > /etc/nginx/nginx.conf <<'END'
user root;
pid /run/nginx.pid;
events {}
http {
  log_format who '$remote_addr $request';
  access_log /var/log/nginx/access.log who;
  include /etc/nginx/sites-enabled/*;
}
END
ln -s /etc/nginx/sites-available/default /etc/nginx/sites-enabled/default
"#;

fn in_world(parts: &[&str]) -> String {
    let mut world = World::new();
    let program = Path::new(env!("CARGO_BIN_EXE_weir"));
    world.read(program.parent().expect("a folder"), "/usr/local/bin");
    if Path::new("/etc/postfix").exists() {
        world.read(Path::new("/etc/postfix"), "/of-this-machine/postfix");
    }
    let output = world.run(&[&[FUNCTIONS], parts].concat().concat());
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}");
    said
}

#[test]
fn nginx_goes_behind_weir_and_comes_back() {
    in_world(&[
        NGINX,
        r#"
cat > /etc/nginx/sites-available/default <<'END'
# The site.
server {
	listen 80 default_server;
	listen [::]:80 default_server;
	server_name _;
	root /srv/www;
}
END
cp /etc/nginx/sites-available/default before
nginx && [ "$(curl -s http://127.0.0.1/)" = 'our page' ] || fail "nginx itself"
# Without leave it only says what to do.
weir quickstart web --host www.site.test --self-signed --start > said && grep -q 'add --replace --edit-neighbour' said || fail "no hint"
cmp before /etc/nginx/sites-available/default && rm /etc/weir/weir.toml
quickstart web --host www.site.test --self-signed --edit-neighbour
grep -q 'Changed /etc/nginx/sites-available/default' said || fail "nothing was changed"
grep -q 'Tried https://www.site.test: HTTP/1.1 200' said || fail "no page"
grep -q 'with a certificate that is valid for more than a hundred years' said || fail "no time in words"
page() { curl -sk --interface 127.0.9.9 --resolve www.site.test:443:127.0.0.1 https://www.site.test/; }
[ "$(page)" = 'our page' ] || fail "another page"
grep -q '^127.0.9.9 GET' /var/log/nginx/access.log || fail "nginx does not see who asks: $(cat /var/log/nginx/access.log)"
cmp before /etc/weir/neighbours/*default* || fail "no copy"
# Whoever is not at port 80 any more cannot get it back while Weir has it.
! weir quickstart undo > undone 2>&1 && grep -q 'weir uses port 80' undone || fail "$(cat undone)"
[ "$(page)" = 'our page' ] || fail "it was changed"
# What somebody adds meanwhile stays.
echo '# a note' >> /etc/nginx/sites-available/default
stop
weir quickstart undo
{ cat before; echo '# a note'; } | cmp - /etc/nginx/sites-available/default || fail "another file"
for _ in $(seq 300); do [ "$(curl -s http://127.0.0.1/)" = 'our page' ] && break; sleep 0.1; done
[ "$(curl -s http://127.0.0.1/)" = 'our page' ] || fail "nginx is not back"
weir quickstart undo | grep -q 'Nothing was put' || fail "twice"
"#,
    ]);
}

#[test]
fn a_site_that_had_https_is_served_without_going_in_circles() {
    in_world(&[
        NGINX,
        r#"
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout /etc/nginx/key -out /etc/nginx/cert -subj /CN=x 2>/dev/null
cat > /etc/nginx/sites-available/default <<'END'
server { listen 80; server_name www.site.test; return 301 https://$host$request_uri; }
server {
  listen 443 ssl http2; listen [::]:443 ssl;
  server_name www.site.test;
  ssl_certificate /etc/nginx/cert; ssl_certificate_key /etc/nginx/key;
  root /srv/www;
}
END
cp /etc/nginx/sites-available/default before
nginx
quickstart web --host www.site.test --self-signed --edit-neighbour
grep -q 'Tried http://www.site.test: HTTP/1.1 30' said && grep -q 'Tried https://www.site.test: HTTP/1.1 200' said || fail "no page"
stop
weir quickstart undo
cmp before /etc/nginx/sites-available/default || fail "another file"
"#,
    ]);
}

#[test]
fn what_nginx_refuses_is_undone() {
    in_world(&[
        NGINX,
        r#"
cat > /etc/nginx/sites-available/default <<'END'
server { listen 80; location /.well-known/acme-challenge/ { root /srv/www; } }
END
cp /etc/nginx/sites-available/default before
nginx
quickstart relay --host mail.site.test --next 127.0.0.1:2526 --port 5587 --tls-port 5465 --agree --authority https://127.0.0.1:1/dir --edit-neighbour
grep -q 'by hand' said && grep -q 'duplicate location' said && grep -q 'the old one was put back' said || fail "it was not refused"
cmp before /etc/nginx/sites-available/default || fail "another file"
! ls /etc/weir/neighbours.json 2>/dev/null || fail "something is left"
nginx -t
stop
"#,
    ]);
}

const POSTFIX: &str = r#"
cp -r /of-this-machine/postfix /etc/postfix
cat > /etc/postfix/main.cf <<'END'
compatibility_level = 3.6
myhostname = postfix.site.test
mydestination = site.test
inet_interfaces = loopback-only
inet_protocols = ipv4
alias_maps =
alias_database =
local_recipient_maps = inline:{ postmaster=x }
local_transport = discard
maillog_file = /var/log/mail.log
END
cat > /etc/postfix/master.cf <<'END'
smtp      inet  n       -       n       -       -       smtpd
submission inet n       -       n       -       -       smtpd
  -o syslog_name=postfix/submission
  -o smtpd_tls_security_level=may
submissions     inet  n -       n       -       -       smtpd
  -o syslog_name=postfix/submissions
pickup    unix  n       -       n       60      1       pickup
cleanup   unix  n       -       n       -       0       cleanup
qmgr      unix  n       -       n       300     1       qmgr
rewrite   unix  -       -       n       -       -       trivial-rewrite
bounce    unix  -       -       n       -       0       bounce
defer     unix  -       -       n       -       0       bounce
trace     unix  -       -       n       -       0       bounce
verify    unix  -       -       n       -       1       verify
proxymap  unix  -       -       n       -       -       proxymap
tlsmgr    unix  -       -       n       1000?   1       tlsmgr
error     unix  -       -       n       -       -       error
retry     unix  -       -       n       -       -       error
discard   unix  -       -       n       -       -       discard
anvil     unix  -       -       n       -       1       anvil
smtp      unix  -       -       n       -       -       smtp
postlog   unix-dgram n  -       n       -       1       postlogd
END
cp /etc/postfix/master.cf before
mkdir -p /var/spool/postfix /var/lib/postfix && chown postfix /var/lib/postfix
# Its master goes into the background and would keep the output open.
postfix start > /dev/null 2>&1 || { cat /var/log/mail.log; fail "Postfix itself"; }
answers 25 220; answers 587 220
"#;

#[test]
fn postfix_goes_behind_weir_as_the_mx_and_comes_back() {
    in_world(&[
        POSTFIX,
        r#"
quickstart mx --host mx.site.test --domain site.test --self-signed --edit-neighbour
grep -q 'Changed /etc/postfix/master.cf' said || fail "nothing was changed"
grep -q 'Tried the server behind, 127.0.0.1:2525: 220 postfix.site.test' said || fail "Postfix is not behind"
grep -q 'Tried SMTP at 127.0.0.1:25: it answers with TLS, and refuses to relay mail from strangers; postmaster@site.test: 250' said || fail "Weir is not there"
stop
weir quickstart undo
cmp before /etc/postfix/master.cf || fail "another file"
answers 25 220; silent 2525
postfix stop > /dev/null 2>&1
"#,
    ]);
}

#[test]
fn postfix_leaves_submission_to_weir_and_gets_it_back() {
    in_world(&[
        POSTFIX,
        r#"
quickstart relay --host mail.site.test --self-signed --edit-neighbour
grep -q 'Tried the server behind, 127.0.0.1:25: 220 postfix.site.test' said || fail "no Postfix"
grep -q 'Tried SMTP at 127.0.0.1:587: it answers with TLS' said || fail "Weir is not there"
grep -q '^submission' /etc/postfix/master.cf && fail "it is still there"
stop
weir quickstart undo
cmp before /etc/postfix/master.cf || fail "another file"
answers 587 220
postfix stop > /dev/null 2>&1
"#,
    ]);
}
