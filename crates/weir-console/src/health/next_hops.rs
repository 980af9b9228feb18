//! The state of the servers that mail is delivered to, as the deliveries have found them.

use super::HealthPart;
use crate::words::{count, cut, now, parsed, seconds};
use weir_mail::delivery::next_hops::{NextHopView, NextHopsView};

/// How many servers are named; the others are counted.
const NAMED: usize = 5;
/// A server that answers may defer a mail. If it accepts nothing this many times in a row, somebody should look.
const PUT_OFF_MAX: u32 = 5;
/// How much of a server's answer is shown, because it may be long.
const SAID_MAX: usize = 200;

pub(super) fn look(part: &mut HealthPart, view: &NextHopsView) {
    let hops = &view.hops;
    let away: Vec<&NextHopView> = hops.iter().filter(|hop| hop.is_away()).collect();
    for hop in away.iter().take(NAMED) {
        part.fail(format!("{} {}", hop.name, failing("cannot be reached", hop)), "/queue");
    }
    if away.len() > NAMED {
        part.fail(format!("{} cannot be reached in all", count(away.len(), "next hop")), "/queue");
    }
    for hop in hops.iter().filter(|hop| hop.answers && hop.failures >= PUT_OFF_MAX).take(NAMED) {
        part.look(format!("{} {}", hop.name, failing("answers and takes no mail", hop)), "/queue");
    }
    let untried = hops.iter().filter(|hop| hop.tried.is_none());
    part.untried.extend(untried.map(|hop| hop.name.clone()));
    let all = hops.len() + view.more;
    let answering = hops.iter().filter(|hop| hop.answers).count();
    if answering > 0 {
        let more = if view.more > 0 { "at least " } else { "" };
        part.say(format!("{more}{answering} of {} answered when last tried", count(all, "next hop")));
    }
}

fn failing(how: &str, hop: &NextHopView) -> String {
    let ago = |at: &Option<String>| at.as_deref().and_then(parsed).map_or(0, |at| (now() - at).max(0));
    let (since, last) = (seconds(ago(&hop.failing_since) as f64), seconds(ago(&hop.tried) as f64));
    let problem = cut(hop.problem.as_deref().unwrap_or_default(), SAID_MAX);
    let row = if hop.failures > 1 { " in a row" } else { "" };
    let failed = count(hop.failures, "failed attempt");
    format!("{how} for {since} ({failed}{row}, the last one {last} ago): {problem}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::health::HealthVerdict;

    fn hop(number: usize, answers: bool, failures: u32) -> NextHopView {
        let at = || Some("2026-11-18T12:00:00Z".to_owned());
        NextHopView {
            name: format!("the server 10.0.0.{number}:25"),
            tried: at(),
            answers,
            failures,
            failing_since: if failures > 0 { at() } else { None },
            problem: (failures > 0).then(|| "4.4.1 refused".to_owned()),
        }
    }

    fn seen(hops: Vec<NextHopView>) -> HealthPart {
        let mut part = HealthPart::empty("mail");
        look(&mut part, &NextHopsView { hops, more: 0 });
        part
    }

    #[test]
    fn one_failure_to_reach_a_server_counts_and_a_few_mails_put_off_do_not() {
        let part = seen(vec![hop(1, false, 1), hop(2, true, PUT_OFF_MAX - 1), hop(3, true, 0)]);
        assert_eq!(part.line().verdict, HealthVerdict::Failing);
        let words = &part.problems[0].says;
        assert!(
            part.problems.len() == 1 && words.starts_with("the server 10.0.0.1:25 cannot be reached for "),
            "{words}"
        );
        assert!(words.contains("(1 failed attempt, the last one ") && words.ends_with("): 4.4.1 refused"), "{words}");
        assert_eq!(part.says, ["2 of 3 next hops answered when last tried"]);
        assert_eq!(seen(vec![hop(1, true, PUT_OFF_MAX)]).line().verdict, HealthVerdict::Look);
    }

    #[test]
    fn many_are_counted_and_what_was_not_tried_is_named() {
        let mut hops: Vec<NextHopView> = (0..NAMED + 3).map(|number| hop(number, false, 2)).collect();
        let untried = NextHopView { tried: None, ..hop(99, false, 0) };
        hops.push(untried.clone());
        let part = seen(hops);
        assert_eq!(part.problems.len(), NAMED + 1);
        assert_eq!(part.problems[NAMED].says, format!("{} next hops cannot be reached in all", NAMED + 3));
        let alone = seen(vec![untried]);
        assert_eq!((alone.line().verdict, alone.says.len()), (HealthVerdict::Well, 0));
        assert_eq!(alone.line().says, "not tried yet: the server 10.0.0.99:25");
    }
}
