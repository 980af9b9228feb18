//! Names that differ only in capitals.

use super::user;
use std::collections::BTreeSet;
use weir_store::records::*;

pub(super) async fn in_other_letters(records: Records) {
    let users = records.users();
    for name in ["ann", "ANN", "Ärger", "ÄRGER", "Änn", "Жук@example.org"] {
        let password = if name == "Ärger" { "x".to_owned() } else { String::new() };
        assert!(users.add(&UserRow { password, ..user(name) }).await.unwrap());
    }
    let sorted = async |lower: &str| users.alike(lower).await.unwrap().into_iter().collect::<BTreeSet<_>>();
    for (lower, names) in [
        ("ann", &["ANN", "ann"][..]),
        ("ärger", &["ÄRGER", "Ärger"]),
        ("änn", &["Änn"]),
        ("жук@example.org", &["Жук@example.org"]),
        ("argër", &[]),
    ] {
        assert_eq!(sorted(lower).await, names.iter().map(|name| (*name).to_owned()).collect(), "{lower}");
    }
    for (name, has) in [("ärger", true), ("ÄrGeR", true), ("Änn", false), ("ann", false)] {
        assert_eq!(users.has_own_password(name).await.unwrap(), has, "{name}");
    }
    let throttles = records.throttles();
    for (name, stopped_at) in [("Öl", None), ("ÖL", Some(7)), ("Ol", Some(8))] {
        let stop = |rows: &mut [ThrottleRow]| {
            rows[0].stopped_at = stopped_at;
            (Changes::default(), ())
        };
        throttles.decide(&[name.to_owned()], stop).await.unwrap();
    }
    assert_eq!(throttles.alike("öl").await.unwrap(), [("ÖL".to_owned(), Some(7)), ("Öl".to_owned(), None)]);
    assert_eq!(throttles.alike("ol").await.unwrap(), [("Ol".to_owned(), Some(8))]);
}
