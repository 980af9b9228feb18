use super::*;
use crate::choices::{GuestNetwork, Tlp, TypedChoices, plain_version};
use std::path::Path;

fn plugins() -> Vec<Plugin> {
    let plugin = |name: &str, more: &str| {
        Plugin::parse(&format!("name = \"{name}\"\nversion = \"3\"\n{more}"), Path::new("")).unwrap()
    };
    vec![
        plugin("archive", "exec = [\"x\"]"),
        plugin("clamav", "exec = [\"x\"]\nrequires = [\"identify\"]"),
        plugin("identify", "exec = [\"x\"]"),
        plugin("run-linux", "run = \"vm\""),
        plugin("run-windows", "run = \"vm\"\ntags = [\"windows\"]"),
    ]
}

fn typed(change: impl FnOnce(&mut TypedChoices<'static>)) -> Result<Choices, BadChoice> {
    let mut typed = TypedChoices::default();
    change(&mut typed);
    typed.read()
}

fn needs(choices: &Choices) -> Vec<String> {
    let pairs: Vec<(String, String)> = serde_json::from_str(&super::needs(choices, &plugins(), "text/plain")).unwrap();
    pairs.into_iter().map(|(name, version)| format!("{name} {version}")).collect()
}

#[test]
fn what_is_typed_is_read_or_refused_in_words() {
    assert_eq!(typed(|_| {}).unwrap(), Choices::default());
    assert_eq!(typed(|typed| typed.tlp = "TLP:Amber+Strict").unwrap().tlp, Some(Tlp::AmberStrict));
    assert_eq!(typed(|typed| typed.plugins = "yara, archive,").unwrap().plugins, ["yara", "archive"]);
    for (wrong, says) in [
        (typed(|typed| typed.tlp = "pink"), "\"pink\" is no TLP: clear, green, amber, amber+strict or red"),
        (typed(|typed| typed.guest = "dos\u{1b}"), "is no guest: linux, windows or none"),
        (typed(|typed| typed.network = "internet"), "\"internet\" is no network: simulated or none"),
    ] {
        let why = wrong.unwrap_err().to_string();
        assert!(why.contains(says) && !why.contains('\u{1b}'), "{why}");
    }
}

#[test]
fn what_a_lab_cannot_do_is_refused_in_words() {
    let check = |choices: Choices| {
        let checked = check(&choices, &plugins(), Duration::from_secs(600));
        checked.err().map(|why| why.to_string()).unwrap_or_default()
    };
    assert_eq!(check(Choices { watch_s: Some(540), guest: Some(GuestProfile::Windows), ..Choices::default() }), "");
    assert!(check(Choices { watch_s: Some(541), ..Choices::default() }).contains("540 s at most"));
    assert!(check(Choices { watch_s: Some(0), ..Choices::default() }).contains("a second at least"));
    let unknown = check(Choices { plugins: vec!["yarra".into()], ..Choices::default() });
    assert_eq!(unknown, "this lab has no plugin \"yarra\": it has archive, clamav, identify, run-linux, run-windows");
    assert!(!check(Choices { passwords: vec!["x".repeat(500)], ..Choices::default() }).is_empty());
    assert!(!check(Choices { passwords: vec!["x".into(); 100], ..Choices::default() }).is_empty());
    let only_linux = &plugins()[..4];
    let windows = Choices { guest: Some(GuestProfile::Windows), ..Choices::default() };
    assert_eq!(
        super::check(&windows, only_linux, Duration::from_secs(600)).unwrap_err().to_string(),
        "this lab has no guest for windows"
    );
}

#[test]
fn a_choice_of_plugins_brings_those_that_they_require() {
    let all = ["archive 3", "clamav 3", "identify 3", "run-linux 3", "run-windows 3"];
    assert_eq!(needs(&Choices::default()), all);
    let chosen = |plugins: &[&str]| Choices {
        plugins: plugins.iter().map(|name| (*name).to_owned()).collect(),
        ..Choices::default()
    };
    assert_eq!(needs(&chosen(&["clamav"])), ["clamav 3", "identify 3"]);
    let guest = |guest| Choices { guest: Some(guest), ..Choices::default() };
    assert_eq!(needs(&guest(GuestProfile::None)), all[..3]);
    assert_eq!(needs(&guest(GuestProfile::Linux)), all[..4]);
    assert!(!needs(&guest(GuestProfile::Windows)).contains(&"run-linux 3".to_owned()));
}

#[test]
fn results_that_depend_on_a_choice_have_a_version_of_their_own() {
    let choices = Choices {
        watch_s: Some(20),
        network: Some(GuestNetwork::None),
        guest: Some(GuestProfile::Linux),
        passwords: vec!["geheim".into()],
        ..Choices::default()
    };
    let all = needs(&choices);
    assert_eq!(all[1..], ["clamav 3", "identify 3", "run-linux 3+20s+offline"]);
    assert!(all[0].starts_with("archive 3+") && !all[0].contains("geheim"), "{}", all[0]);
    assert_eq!((plain_version("3+20s+offline"), plain_version("1.2-b")), ("3", "1.2-b"));
    let usual = Choices { tlp: Some(Tlp::Red), network: Some(GuestNetwork::Simulated), ..Choices::default() };
    assert!(needs(&usual).contains(&"run-linux 3".to_owned()), "that changes nothing");
}

#[test]
fn passwords_are_stored_and_not_shown() {
    let choices = Choices { passwords: vec!["geheim".into()], tlp: Some(Tlp::Green), ..Choices::default() };
    assert_eq!(Choices::stored(&choices.text()), choices);
    assert_eq!(Choices::default().text(), "");
    assert_eq!(Choices::stored("not at all"), Choices::default());
    let shown = format!("{:?} {:?}", choices.words(), choices.clone().told());
    assert!(!shown.contains("geheim") && shown.contains("TLP:GREEN"), "{shown}");
}
