//! Tests of identities as a whole: which requests belong to the same client, and what an attacker can and cannot pretend to be.

use super::*;
use proptest::prelude::*;
use std::collections::HashSet;
use std::time::{Duration, UNIX_EPOCH};

fn secret() -> Secret {
    Secret::from_text("the secret of this cluster").unwrap()
}

fn identities(change: impl FnOnce(&mut Settings)) -> Identities {
    let mut settings = Settings::default();
    change(&mut settings);
    Identities::new(&settings, &secret()).unwrap()
}

fn of_another_house() -> Identities {
    Identities::new(&Settings::default(), &Secret::new(b"some other secret").unwrap()).unwrap()
}

fn networks(texts: &[&str]) -> Vec<Network> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn now() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_900_000_000)
}

fn ask(identities: &Identities, peer: &str, headers: &[(&'static str, &str)]) -> Identity {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        map.append(*name, HeaderValue::from_str(value).unwrap());
    }
    identities.identify(peer.parse().unwrap(), &map, now())
}

fn cookie_of(identity: &Identity) -> String {
    let text = identity.new_cookie.as_ref().expect("a new cookie").to_str().unwrap();
    text.split(';').next().unwrap().to_owned()
}

#[test]
fn subnets_are_prefixes_and_ipv4_is_ipv4_however_written() {
    let default = identities(|_| {});
    let subnet = |text: &str| default.subnet(text.parse().unwrap());
    assert_eq!(subnet("192.0.2.1"), subnet("192.0.2.255"));
    assert_eq!(subnet("192.0.2.1"), subnet("::ffff:192.0.2.9"));
    assert_ne!(subnet("192.0.2.1"), subnet("192.0.3.1"));
    assert_eq!(subnet("2001:db8:0:ff::1"), subnet("2001:db8::1"));
    assert_ne!(subnet("2001:db8:0:100::1"), subnet("2001:db8::1"));
    let wide = identities(|settings| (settings.ipv4_prefix, settings.ipv6_prefix) = (16, 200));
    assert_eq!(wide.subnet("192.0.2.1".parse().unwrap()), wide.subnet("192.0.3.1".parse().unwrap()));
    assert_eq!(wide.network("2001:db8::1".parse().unwrap()).to_string(), "2001:db8::/64", "no finer than an address");
}

#[test]
fn a_cookies_session_begins_when_it_comes_back() {
    let gate = identities(|_| {});
    let first = ask(&gate, "192.0.2.1", &[]);
    let again = ask(&gate, "192.0.2.1", &[]);
    assert_eq!(first.session, again.session, "dropping cookies makes no sessions");
    let (one, two) = (cookie_of(&first), cookie_of(&again));
    let with = |peer: &str, cookie: &str| ask(&gate, peer, &[("cookie", cookie)]);
    let returned = with("192.0.2.1", &one);
    assert!(returned.new_cookie.is_none());
    assert_ne!(returned.session, first.session);
    assert_eq!(gate.session_from(&first, first.new_cookie.as_ref()), Some(returned.session), "it is known before");
    assert_eq!(gate.session_from(&returned, None), Some(returned.session));
    assert_eq!(gate.session_from(&first, None), None);
    assert_ne!(returned.session, with("192.0.2.1", &two).session);
    assert_eq!(with("192.0.2.77", &one).session, returned.session, "it moves within its subnet");
    assert_eq!(returned.subnet, first.subnet, "and shares its weight");
}

#[test]
fn forged_and_foreign_cookies_are_the_address_they_came_from() {
    let gate = identities(|_| {});
    let foreign = cookie_of(&ask(&gate, "192.0.2.1", &[]));
    let plain = ask(&gate, "198.51.100.1", &[]);
    let other_house = of_another_house();
    let forged = cookie_of(&ask(&other_house, "198.51.100.1", &[]));
    for cookie in [foreign.as_str(), &forged, "weir=AAAA", "weir=", "weir", "=", ";;;", &"weir=x;".repeat(5000)] {
        let identity = ask(&gate, "198.51.100.1", &[("cookie", cookie)]);
        assert_eq!((identity.session, identity.subnet), (plain.session, plain.subnet), "{cookie:.60}");
        assert!(identity.new_cookie.is_some());
    }
}

#[test]
fn a_group_counts_as_one_subnet_and_lets_its_clients_roam() {
    let gate = identities(|settings| {
        let farm = networks(&["192.0.2.0/24", "198.51.100.0/24", "2001:db8::/32"]);
        settings.groups = vec![NetworkGroup { name: "farm".into(), networks: farm }];
    });
    let here = ask(&gate, "192.0.2.1", &[]);
    let cookie = cookie_of(&here);
    let there = ask(&gate, "2001:db8:99::1", &[("cookie", &cookie)]);
    assert!(there.new_cookie.is_none());
    assert_eq!(there.subnet, here.subnet);
    assert_eq!(there.session, ask(&gate, "198.51.100.9", &[("cookie", &cookie)]).session);
    assert_ne!(ask(&gate, "203.0.113.1", &[("cookie", &cookie)]).session, there.session);
}

#[test]
fn only_listed_peers_are_believed() {
    let gate = identities(|settings| settings.trusted = networks(&["10.0.0.0/8", "fd00::/8"]));
    let header = [("x-forwarded-for", "192.0.2.1")];
    assert_eq!(ask(&gate, "10.1.1.1", &header).client.to_string(), "192.0.2.1");
    assert_eq!(ask(&gate, "::ffff:10.1.1.1", &header).client.to_string(), "192.0.2.1");
    assert_eq!(ask(&gate, "11.1.1.1", &header).client.to_string(), "11.1.1.1");
    assert_eq!(ask(&gate, "11.1.1.1", &header).subnet, ask(&gate, "11.1.1.1", &[]).subnet);
    assert_eq!(ask(&identities(|_| {}), "10.1.1.1", &header).client.to_string(), "10.1.1.1");
}

#[test]
fn front_ends_of_a_cluster_agree_and_others_do_not() {
    let (one, two) = (identities(|_| {}), identities(|_| {}));
    let cookie = cookie_of(&ask(&one, "192.0.2.1", &[]));
    let both = [&one, &two].map(|gate| ask(gate, "192.0.2.1", &[("cookie", &cookie)]));
    assert_eq!((both[0].session, both[0].subnet), (both[1].session, both[1].subnet));
    assert_eq!(one.name_key("shop"), two.name_key("shop"));
    let other = of_another_house();
    assert_ne!(ask(&other, "192.0.2.1", &[]).subnet, both[0].subnet);
    assert_ne!(other.name_key("shop"), two.name_key("shop"));
}

#[test]
fn without_cookies_and_with_tls() {
    let gate = identities(|settings| settings.cookie.name.clear());
    assert!(ask(&gate, "192.0.2.1", &[]).new_cookie.is_none());
    let tls = identities(|_| {}).on_tls();
    let text = ask(&tls, "192.0.2.1", &[]).new_cookie.unwrap();
    assert!(text.to_str().unwrap().ends_with("; Secure"));
}

#[test]
fn keys_of_all_kinds_differ() {
    let gate = identities(|settings| {
        let networks = networks(&["203.0.113.0/24"]);
        settings.groups = vec![NetworkGroup { name: "192.0.2.0".into(), networks }];
    });
    let mut keys = HashSet::new();
    for host in 0..200u8 {
        let identity = ask(&gate, &format!("192.0.{host}.{host}"), &[]);
        let back = ask(&gate, &format!("192.0.{host}.{host}"), &[("cookie", &cookie_of(&identity))]);
        assert!(keys.insert(identity.session.0) && keys.insert(identity.subnet.0) && keys.insert(back.session.0));
    }
    assert!(keys.insert(ask(&gate, "203.0.113.1", &[]).subnet.0));
    assert!(keys.insert(gate.name_key("192.0.2.0")));
}

proptest! {
    /// However many cookies, forgeries and headers an unlisted client sends, its requests carry the key of its own subnet.
    #[test]
    fn nobody_leaves_his_subnet(
        peer: std::net::Ipv4Addr,
        cookies in prop::collection::vec("[ -~]{0,80}", 0..4),
        trail in "[ -~]{0,60}",
    ) {
        let gate = identities(|_| {});
        let plain = ask(&gate, &peer.to_string(), &[]);
        let mut headers: Vec<(&'static str, &str)> = cookies.iter().map(|cookie| ("cookie", cookie.as_str())).collect();
        headers.extend([("x-forwarded-for", trail.as_str()), ("forwarded", &trail)]);
        let dressed = ask(&gate, &peer.to_string(), &headers);
        prop_assert_eq!((dressed.client, dressed.subnet, dressed.session), (plain.client, plain.subnet, plain.session));
    }
}
