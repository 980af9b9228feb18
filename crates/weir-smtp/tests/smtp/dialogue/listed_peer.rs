//! Tests of XCLIENT and XFORWARD: what a listed peer may say about others.

use super::{MESSAGE, greeted, talk};
use crate::shell::settings;
use weir_smtp::session::CloseReason;
use weir_smtp::settings::{Auth, Settings};

#[test]
fn xclient_and_xforward_are_for_listed_peers() {
    let mut stranger = greeted(settings());
    assert!(!stranger.say("EHLO me\r\n").contains("XCLIENT"));
    talk(&mut stranger, &[("XCLIENT ADDR=192.0.2.9\r\n", &["550 5.7.0"]), ("XFORWARD NAME=x\r\n", &["550 5.7.0"])]);

    let trusted = || Settings { trusted: vec!["127.0.0.0/8".parse().unwrap()], auth: Auth::Required, ..settings() };
    let mut proxy = greeted(trusted());
    let ehlo = proxy.say("EHLO me\r\n");
    assert!(ehlo.contains("XCLIENT NAME ADDR PORT PROTO HELO LOGIN") && ehlo.contains("XFORWARD"), "{ehlo}");
    talk(
        &mut proxy,
        &[
            ("XFORWARD NAME=spike.example ADDR=192.0.2.3 IDENT=ABC\r\n", &["250 2.0.0"]),
            ("XCLIENT ADDR=nonsense\r\n", &["501 5.5.4"]),
            ("XCLIENT ADDR=192.0.2.9 NAME=home.example LOGIN=ann PROTO=ESMTP\r\n", &["220 mx.example"]),
            ("MAIL FROM:<a@a>\r\n", &["503 5.5.1 say EHLO"]),
        ],
    );
    assert!(!proxy.say("EHLO me\r\n").contains("XCLIENT"), "the client itself is not listed");
    talk(&mut proxy, &[("XCLIENT ADDR=127.0.0.1\r\n", &["550 5.7.0"])]);
    talk(&mut proxy, MESSAGE);
    let peer = &proxy.kept[0].peer;
    assert_eq!((peer.client.to_string().as_str(), peer.user.as_deref()), ("192.0.2.9", Some("ann")));
    assert_eq!((peer.name.as_deref(), peer.socket.ip().to_string().as_str()), (Some("home.example"), "127.0.0.1"));
    assert_eq!(proxy.kept[0].envelope.forwarded, None, "XFORWARD came before the session began anew");

    let mut locked = greeted(trusted());
    talk(&mut locked, &[("XCLIENT ADDR=192.0.2.9 LOGIN=locked\r\n", &["550 5.7.1"])]);
    assert_eq!(locked.closed, Some(CloseReason::Refused));
}

#[test]
fn xforward_belongs_to_one_message() {
    let mut proxy = greeted(Settings { trusted: vec!["127.0.0.1".parse().unwrap()], ..settings() });
    talk(&mut proxy, &[("XFORWARD NAME=spike ADDR=192.0.2.3\r\n", &["250"]), ("XFORWARD IDENT=ABC\r\n", &["250"])]);
    talk(&mut proxy, MESSAGE);
    talk(&mut proxy, MESSAGE);
    let forwarded = proxy.kept[0].envelope.forwarded.as_ref().unwrap();
    assert_eq!((forwarded.name.as_deref(), forwarded.ident.as_deref()), (Some("spike"), Some("ABC")));
    assert_eq!(proxy.kept[1].envelope.forwarded, None);
    talk(
        &mut proxy,
        &[("MAIL FROM:<a@a>\r\n", &["250"]), ("XFORWARD NAME=x\r\n", &["503"]), ("XCLIENT NAME=x\r\n", &["503"])],
    );
}
