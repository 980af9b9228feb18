//! Weir and Postfix are killed while mail comes in through the milter. Every mail that was answered with `250` must arrive.
//!
//! `WEIR_DOOR_KILLS` says how often each of them is killed (3).

use super::{PASSWORD, Way, World};
use crate::control::gate::{Client, wait_for};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use weir_sim::rng::Rng;

/// How much one kill may repeat: deliveries that were under way, and mail that Weir took over but whose client got no answer.
const REPEATED_MAX: usize = 40;
const SENDERS: [&str; 3] = ["s0", "s1", "s2"];

/// Sends mail after mail, each until it is accepted. Notes the names of those that were answered with `250`.
fn send(address: &str, user: &str, enough: &AtomicBool, taken: &Mutex<Vec<String>>) {
    let (from, mut number) = (format!("{user}@here.example"), 0);
    let mut client = None;
    while !enough.load(Ordering::SeqCst) {
        if client.is_none() {
            client = Client::login_now(address, user, PASSWORD);
        }
        let Some(session) = &mut client else {
            std::thread::sleep(Duration::from_millis(50));
            continue;
        };
        // Each mail goes to two new people: one may be sent now, and the others have to wait.
        let to = [format!("{user}-{number}-a@there.example"), format!("{user}-{number}-b@there.example")];
        let said = session.mail(&from, &[&to[0], &to[1]], "hello");
        if said.starts_with("250 ") {
            taken.lock().unwrap_or_else(PoisonError::into_inner).extend(to);
            number += 1;
        } else {
            client = None;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Sets the flag when it is dropped.
struct AtEnd<'a>(&'a AtomicBool);

impl Drop for AtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[test]
fn nothing_is_lost_when_weir_or_postfix_is_killed() {
    let kills: usize = std::env::var("WEIR_DOOR_KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(3);
    let seed = std::env::var("WEIR_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(21);
    let mut rng = Rng::new(seed);
    let throttle = "[throttle]\nrate = \"1200/min\"\nmulti_rate = \"1200/min\"\nmax_multi_slack = 1\nstop_at = 100000\n\
                    messages_a_day = 0\nnew_recipients_a_day = 0\n";
    let mut world = World::start(Way::Milter, &SENDERS, &[("scan = true", "scan = false")], throttle);
    let (address, enough, taken) = (world.address(), AtomicBool::new(false), Mutex::<Vec<String>>::default());
    std::thread::scope(|scope| {
        // The senders must end however this block ends; otherwise its failure would not be reported.
        let _end = AtEnd(&enough);
        for user in SENDERS {
            let (address, enough, taken) = (&address, &enough, &taken);
            scope.spawn(move || send(address, user, enough, taken));
        }
        let count = || taken.lock().unwrap_or_else(PoisonError::into_inner).len();
        for kill in 0..2 * kills {
            let before = count();
            wait_for("some mail", || (count() >= before + 20).then_some(()));
            std::thread::sleep(Duration::from_millis(rng.between(0, 400)));
            if kill % 2 == 0 {
                world.up.take().expect("it runs").kill();
                world.up = Some(world.site.up_alone());
            } else {
                let port = world.port;
                world.postfix.kill_and_restart(port);
            }
        }
    });
    let taken = taken.into_inner().unwrap_or_else(PoisonError::into_inner);
    let copies = || {
        let mut copies = BTreeMap::<String, usize>::new();
        world.mail().into_iter().for_each(|(to, _)| *copies.entry(to).or_default() += 1);
        copies
    };
    wait_for("everything that was taken", || {
        let copies = copies();
        taken.iter().all(|to| copies.contains_key(to)).then_some(())
    });
    wait_for("the delay queues", || SENDERS.iter().all(|user| world.held(user) == 0).then_some(()));
    let extra: usize = copies().values().map(|count| count - 1).sum();
    eprintln!("{kills} kills of each: {} recipients taken, 0 lost, {extra} extra copies", taken.len());
    assert!(extra <= 2 * kills * REPEATED_MAX, "{extra} extra copies");
}
