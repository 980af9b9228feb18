//! Tests of the waiting page in front of a real gunicorn: newcomers who wait as they are told are admitted, whoever else sends requests.

use super::floods::{Site, rest_of, run};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::io::AsyncWriteExt;

/// A browser with its cookie.
pub(super) struct Browser {
    from: [u8; 4],
    pub(super) cookie: Option<String>,
}

impl Browser {
    pub(super) fn at(from: [u8; 4]) -> Browser {
        Browser { from, cookie: None }
    }

    pub(super) async fn ask(&mut self, site: &Site) -> String {
        let cookie = self.cookie.as_ref().map_or_else(String::new, |cookie| format!("Cookie: {cookie}\r\n"));
        let ask = format!(
            "GET /page?20 HTTP/1.1\r\nHost: a\r\nAccept: text/html,*/*;q=0.8\r\n{cookie}Connection: close\r\n\r\n"
        );
        let mut stream = site.connect(self.from).await;
        stream.write_all(ask.as_bytes()).await.unwrap();
        let said = rest_of(&mut stream).await;
        // Other proxies write the names of fields with other capitals.
        let said = said.replace("Set-Cookie: ", "set-cookie: ").replace("Retry-After: ", "retry-after: ");
        if let Some(given) = said.split("set-cookie: weir=").nth(1).and_then(|rest| rest.split(';').next()) {
            self.cookie = Some(format!("weir={given}"));
        }
        said
    }

    /// Requests the page again whenever it says so, until it is admitted. Returns the times that it was told to wait.
    pub(super) async fn get_in(&mut self, site: &Site) -> Vec<u64> {
        let (mut told, begun) = (Vec::new(), Instant::now());
        loop {
            let said = self.ask(site).await;
            if said.starts_with("HTTP/1.1 200 OK\r\n") {
                return told;
            }
            let again = refresh(&said);
            told.push(again);
            assert!(begun.elapsed() < Duration::from_secs(120), "never let in: {told:?}");
            tokio::time::sleep(Duration::from_secs(again)).await;
        }
    }
}

/// After how many seconds a waiting page reloads.
pub(super) fn refresh(said: &str) -> u64 {
    assert!(said.starts_with("HTTP/1.1 503 "), "{said}");
    let after = said.split("http-equiv=\"refresh\" content=\"").nth(1).and_then(|rest| rest.split('"').next());
    after.and_then(|after| after.parse().ok()).unwrap_or_else(|| panic!("no waiting page: {said}"))
}

/// Sends requests without a pause and without a cookie, from a new network each time, or from a single /24.
pub(super) fn flood(site: &Arc<Site>, connections: usize, one_network: bool, accept: &'static str) -> Flood {
    let (answered, next) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let tasks = (0..connections).map(|_| {
        let (site, answered, next) = (Arc::clone(site), Arc::clone(&answered), Arc::clone(&next));
        tokio::spawn(async move {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let from = if one_network {
                    [127, 9, 9, 2 + (number % 250) as u8]
                } else {
                    [127, 20 + (number / 250 % 200) as u8, (number % 250) as u8, 1]
                };
                let mut stream = site.connect(from).await;
                let ask = format!("GET /page?50 HTTP/1.1\r\nHost: a\r\nAccept: {accept}\r\nConnection: close\r\n\r\n");
                let _ = stream.write_all(ask.as_bytes()).await;
                rest_of(&mut stream).await;
                answered.fetch_add(1, Ordering::Relaxed);
            }
        })
    });
    Flood { tasks: tasks.collect(), answered }
}

pub(super) struct Flood {
    tasks: Vec<tokio::task::JoinHandle<()>>,
    answered: Arc<AtomicUsize>,
}

impl Flood {
    pub(super) async fn begun(&self) {
        while self.answered.load(Ordering::Relaxed) < 8 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        self.tasks.iter().for_each(tokio::task::JoinHandle::abort);
    }
}

/// One flood fills the queue from new networks, and another one comes from the newcomer's own /24. Neither reads the page.
#[test]
fn a_newcomer_who_waits_as_told_gets_in_even_from_the_attackers_own_network() {
    run(async {
        let site = Arc::new(Site::new("queue = 60\nwaiting_page_after = \"1s\"\nwaiting_page_name = \"The <Wiki>\"\n"));
        for one_network in [false, true] {
            let flood = flood(&site, 120, one_network, "text/html");
            flood.begun().await;
            let mut newcomer = Browser::at([127, 9, 9, 1]);
            let said = newcomer.ask(&site).await;
            if said.starts_with("HTTP/1.1 503 ") {
                assert!(said.contains("The &lt;Wiki&gt;") && said.contains("retry-after: "), "{said}");
                assert!(newcomer.cookie.is_some(), "its place is in the cookie: {said}");
                tokio::time::sleep(Duration::from_secs(refresh(&said))).await;
            }
            newcomer.get_in(&site).await;
        }
        let status = super::json(site.up.weir(&["web", "status", "--json"]));
        assert!(status["backends"][0]["queue"]["room"]["let_in"].as_u64().unwrap() >= 1, "{status}");
    });
}

#[test]
fn programs_hear_503_with_a_time_and_no_page() {
    run(async {
        let site = Arc::new(Site::new("queue = 4\nwaiting_page_after = \"1s\"\n"));
        let flood = flood(&site, 60, false, "*/*");
        flood.begun().await;
        let begun = Instant::now();
        loop {
            let said = site.ask([127, 1, 1, 1], "/page?1").await;
            if said.starts_with("HTTP/1.1 503 ") {
                let after = said.split("retry-after: ").nth(1).and_then(|rest| rest.split("\r\n").next());
                assert!(after.is_some_and(|after| (1..=120).contains(&after.parse().unwrap_or(0))), "{said}");
                assert!(!said.contains("http-equiv"), "{said}");
                break;
            }
            assert!(begun.elapsed() < super::PATIENCE, "nobody is refused");
        }
        drop(flood);
    });
}

/// A cookie of the page works only for the client that it was given to. A forged one, or one from another client, counts for nothing.
#[test]
fn forged_and_foreign_cookies_gain_no_place() {
    run(async {
        let site = Arc::new(Site::new("queue = 20\nwaiting_page_after = \"1s\"\n"));
        let flood = flood(&site, 80, false, "*/*");
        flood.begun().await;
        let mut honest = Browser::at([127, 1, 1, 1]);
        while honest.cookie.is_none() {
            honest.ask(&site).await;
        }
        let stolen = honest.cookie.clone().unwrap();
        let let_in = |site: &Site| {
            super::json(site.up.weir(&["web", "status", "--json"]))["backends"][0]["queue"]["room"]["let_in"].as_u64()
        };
        let before = let_in(&site);
        for cookie in [stolen.clone(), format!("{}AAAA", &stolen[..stolen.len() - 4])] {
            let mut thief = Browser { from: [127, 2, 2, 2], cookie: Some(cookie.clone()) };
            thief.ask(&site).await;
            assert_ne!(thief.cookie, Some(cookie), "it is given one of its own");
        }
        assert_eq!(let_in(&site), before, "neither of them was let in as somebody who had waited");
        honest.get_in(&site).await;
        assert!(let_in(&site) > before);
        drop(flood);
    });
}

/// More obedient programs than there are slots, all in one network, delay a newcomer of another network only by as long as their turns
/// take.
#[test]
fn obedient_bots_take_turns_with_everybody_else() {
    run(async {
        let site = Arc::new(Site::new("waiting_page_after = \"1s\"\n"));
        let served = Arc::new(AtomicUsize::new(0));
        let bots: Vec<_> = (0..60)
            .map(|number| {
                let (site, served) = (Arc::clone(&site), Arc::clone(&served));
                tokio::spawn(async move {
                    let mut bot = Browser::at([127, 9, 9, 2 + number]);
                    loop {
                        bot.get_in(&site).await;
                        served.fetch_add(1, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        while served.load(Ordering::Relaxed) < 200 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let mut newcomer = Browser::at([127, 1, 1, 1]);
        newcomer.ask(&site).await;
        let before = served.load(Ordering::Relaxed);
        newcomer.get_in(&site).await;
        let went = served.load(Ordering::Relaxed) - before;
        assert!(went <= 600, "{went} of the bots went before it");
        bots.iter().for_each(tokio::task::JoinHandle::abort);
    });
}
