//! Tests of newsletters and programs that send mail (docs/newsletters.md), with the pattern of real list software: one mail for each
//! subscriber in one session, as fast as it is accepted.

use crate::control::gate::{Client, Site, Up};

const SUBSCRIBERS: usize = 120;

/// Makes a user with this profile and these parameters, and logs in.
fn login(site: &Site, up: &Up, name: &str, more: &[&str]) -> Client {
    let address = format!("{name}@localhost");
    let add = [&["user", "add", name, "--address", &address, "--password-stdin"], more].concat();
    site.weir_with(&add, "a long password\n").ok();
    Client::login(&up.plain, name, "a long password").expect("a login")
}

/// Sends the newsletter. Returns how many mails were accepted, to be sent at once or to wait, and the last answer.
fn send_newsletter(client: &mut Client, name: &str) -> (usize, String) {
    let from = format!("{name}@localhost");
    for number in 0..SUBSCRIBERS {
        let to = format!("subscriber{number}@localhost");
        let text = format!(
            "From: {from}\r\nTo: {to}\r\nSubject: News of November\r\nList-Id: <news.localhost>\r\nPrecedence: bulk\r\n\
             List-Unsubscribe: <https://news.example/{number}>\r\n\r\nHello {number}"
        );
        let said = client.text(&from, &[&to], &text);
        if !said.starts_with("250 ") || said.contains("you are stopped") {
            return (number, said);
        }
    }
    (SUBSCRIBERS, String::new())
}

#[test]
fn a_newsletter_goes_out_with_the_right_profile_and_looks_like_a_worm_without() {
    // A person's throttle as in the paper, and an application whose queue drains fast enough for a test.
    let site =
        Site::new("[notices]\nadmin = \"admin@localhost\"\n[throttle]\n[throttle.application]\nrate = \"50/s\"\n");
    let up = site.up();
    let mut person = login(&site, &up, "wrong", &[]);
    let (accepted, said) = send_newsletter(&mut person, "wrong");
    assert!(accepted < 30 && said.contains("you are stopped"), "{accepted}: {said}");

    let mut news = login(&site, &up, "news", &["--profile", "application"]);
    site.weir(&["user", "set", "news", "--stop-at", "1000"]).ok();
    let mut ann = login(&site, &up, "ann", &[]);
    let (accepted, said) = send_newsletter(&mut news, "news");
    assert_eq!(accepted, SUBSCRIBERS, "{said}");
    // A person who sends at the same time is not delayed.
    let said = ann.mail("ann@localhost", &["friend@localhost"], "lunch?");
    assert!(said.contains("accepted, on its way"), "{said}");
    for number in [0, SUBSCRIBERS / 2, SUBSCRIBERS - 1] {
        site.arrived(&format!("subscriber{number}@localhost"), 1);
    }
    assert_eq!(site.json(&["user", "show", "news"])["state"], "active");
    // No notice about the newsletter: the administrator was told only about the login with the wrong profile.
    let notices = site.arrived("admin@localhost", 1);
    for notice in notices {
        let text = std::fs::read_to_string(notice).expect("text");
        assert!(text.contains("wrong") && !text.contains("Mail from news"), "{text}");
    }
}

#[test]
fn a_mail_to_a_whole_list_at_once_fits_the_profile_list() {
    let site = Site::new("[throttle.list]\nmax_multi_slack = 100\nmulti_rate = \"50/s\"\n");
    let up = site.up();
    let mut club = login(&site, &up, "club", &["--profile", "list"]);
    let to: Vec<String> = (0..SUBSCRIBERS).map(|number| format!("member{number}@localhost")).collect();
    let to: Vec<&str> = to.iter().map(String::as_str).collect();
    let said = club.mail("club@localhost", &to, "our meeting");
    assert!(said.contains("held: 20 of 120 recipients wait"), "{said}");
    for number in [0, 99, SUBSCRIBERS - 1] {
        site.arrived(&format!("member{number}@localhost"), 1);
    }
}
