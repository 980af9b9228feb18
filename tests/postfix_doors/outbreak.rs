//! Table 1 of the paper through both doors: a virus that sends through Postfix is stopped after as many mails as one that sends through
//! Weir itself.

use super::{Way, World};
use crate::table1::{Sent, VIRUSES, Virus};

fn world(way: Way) -> World {
    let names: Vec<&str> = VIRUSES.iter().map(|virus| virus.name).collect();
    let world = World::start(way, &names, &[("scan = true", "scan = false")], "[throttle]\nworking_set = 4\n");
    VIRUSES.iter().for_each(|virus| virus.user(&world.site));
    world
}

#[test]
fn the_papers_table_through_a_milter() {
    let world = world(Way::Milter);
    let runs = side_by_side(|virus| {
        let (mut client, from) = (world.login(virus.name), format!("{}@localhost", virus.name));
        virus.outbreak(|to| match client.mail(&from, &[to], "hello") {
            taken if taken.starts_with("250 ") => Sent::Taken,
            refused if refused.contains("is stopped") => Sent::Refused,
            other => panic!("{}: {other}", virus.name),
        })
    });
    for (virus, run) in VIRUSES.iter().zip(runs) {
        let passed = virus.judge_counts(&run, &world.site);
        let suffix = format!("@{}.example", virus.name);
        let arrived = || world.mail().iter().filter(|(to, _)| to.ends_with(&suffix)).count() as u64;
        crate::control::gate::wait_for("what passed to arrive", || (arrived() >= passed).then_some(()));
        assert_eq!(arrived(), passed, "{}: nothing but what passed arrives", virus.name);
    }
}

#[test]
fn the_papers_table_through_the_policy_service() {
    let world = world(Way::Policy);
    let runs = side_by_side(|virus| {
        let (mut client, from) = (world.login(virus.name), format!("{}@localhost", virus.name));
        virus.outbreak(|to| {
            client.say("RSET");
            client.say(&format!("MAIL FROM:<{from}>"));
            match client.say(&format!("RCPT TO:<{to}>")) {
                taken if taken.starts_with("250 ") || taken.starts_with("450 4.7.1 ") => Sent::Taken,
                stopped if stopped.contains("is stopped") => Sent::LastOne,
                other => panic!("{}: {other}", virus.name),
            }
        })
    });
    for (virus, run) in VIRUSES.iter().zip(runs) {
        virus.judge_counts(&run, &world.site);
    }
}

/// Runs all rows at the same time, each with its own clock.
fn side_by_side<T: Send>(run: impl Fn(&'static Virus) -> T + Sync) -> Vec<T> {
    std::thread::scope(|scope| {
        let running: Vec<_> = VIRUSES.iter().map(|virus| scope.spawn(|| run(virus))).collect();
        running.into_iter().map(|run| run.join().expect("no panic")).collect()
    })
}
