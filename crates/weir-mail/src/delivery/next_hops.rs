//! The state of the next hops that the configuration names: smarthosts, LMTP servers, the servers of single domains.
//!
//! Nothing is probed for this: it is what deliveries and callouts about recipients have shown since the start. There is one entry for each
//! route, so its size is bounded by the configuration. Servers that the DNS names (MX) are left out: if some server on the internet is
//! down, that is not a problem of this site.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weir_core::time::Instant;
use weir_foundation::date::Date;

use super::queue::Attempt;
use super::route::{Routes, Target};
use super::window::Feedback;
use weir_smtp::outcome::{DeliveryOutcome, Fate, Status};

/// Next hops that are shown; those in trouble come first.
const SHOWN_MAX: usize = 100;

/// What is known of all next hops.
#[derive(Debug, Default)]
pub struct NextHops(Mutex<HashMap<u16, HopHistory>>);

/// What is known of one.
#[derive(Debug, Clone)]
struct HopHistory {
    tried_at: Instant,
    /// Failures since it last took something.
    failures: u32,
    /// One of these was a mail. That it answers questions about recipients does not end them.
    took_no_mail: bool,
    /// The first of these.
    since: Instant,
    /// Whether it answered at the last attempt.
    answers: bool,
    /// What came of the last failure.
    problem: Option<DeliveryOutcome>,
}

/// The next hops of the configuration, those in trouble first, then those that were not tried yet.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "NextHops")]
pub struct NextHopsView {
    /// The first hundred.
    pub hops: Vec<NextHopView>,
    /// How many there are besides.
    pub more: usize,
}

/// One next hop, as deliveries have found it since the start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "NextHop")]
pub struct NextHopView {
    /// What it is and where, such as `the smarthost mail.example:25`.
    pub name: String,
    /// When it was last tried; nothing if it was not yet.
    #[schemars(extend("format" = "date-time"))]
    pub tried: Option<String>,
    /// Whether it answered then; false if it was not tried.
    pub answers: bool,
    /// Attempts in a row that have failed: it could not be reached, or it answered and took nothing for now.
    pub failures: u32,
    /// When the first of these was.
    #[schemars(extend("format" = "date-time"))]
    pub failing_since: Option<String>,
    /// What came of the last of these.
    pub problem: Option<String>,
}

impl NextHopView {
    /// Whether it was tried and did not answer.
    pub fn is_away(&self) -> bool {
        self.tried.is_some() && !self.answers
    }
}

impl NextHops {
    /// It could not be reached, or did not want to talk to us.
    pub(super) fn unreachable(&self, target: &Target, outcome: &DeliveryOutcome, now: Instant) {
        self.failed(target, outcome, Failure::Question { answers: false }, now);
    }

    /// A delivery in a session has ended.
    pub(super) fn ended(&self, target: &Target, attempt: &Attempt, now: Instant) {
        let outcomes = || attempt.outcomes.iter();
        if outcomes().any(|outcome| outcome.fate == Fate::Delivered) {
            return self.worked(target, now);
        }
        let lost = attempt.feedback == Feedback::Lost;
        let trouble = |outcome: &&DeliveryOutcome| outcome.fate == Fate::Temporary && is_its_trouble(outcome, lost);
        if let Some(outcome) = outcomes().find(trouble) {
            return self.failed(target, outcome, Failure::Mail { answers: !lost }, now);
        }
        // If it refused the mail for good, that is a word about the mail, and its sender hears it. What is left then is trouble of ours,
        // such as a mail that cannot be read, and recipients that are put off.
        let refused = |outcome: &DeliveryOutcome| outcome.fate == Fate::Permanent && outcome.code.is_some();
        if outcomes().any(refused) { self.worked(target, now) } else { self.seen(target, now) }
    }

    /// A question about a recipient has ended: with an answer, or with what went wrong.
    pub(super) fn answered(&self, target: &Target, said: &Result<DeliveryOutcome, DeliveryOutcome>, now: Instant) {
        match said {
            Err(outcome) if outcome.code.is_none() || is_about_server(outcome) => {
                self.failed(target, outcome, Failure::Question { answers: outcome.code.is_some() }, now);
            }
            _ => self.seen(target, now),
        }
    }

    /// As people see them.
    pub(super) fn view(&self, routes: &Routes) -> NextHopsView {
        let known = self.known();
        let mut all: Vec<(u16, Option<&HopHistory>)> =
            routes.servers().map(|route| (route, known.get(&route))).collect();
        all.sort_by_key(|(route, known)| (Reverse(known.map_or(0, |known| known.failures)), known.is_some(), *route));
        let shown = |(route, known): &(u16, Option<&HopHistory>)| view(routes.described(*route), *known);
        NextHopsView {
            hops: all.iter().take(SHOWN_MAX).map(shown).collect(),
            more: all.len().saturating_sub(SHOWN_MAX),
        }
    }

    fn worked(&self, target: &Target, now: Instant) {
        self.known().insert(target.route, HopHistory::well(now));
    }

    /// It has answered, and nothing is known of how it takes mail.
    fn seen(&self, target: &Target, now: Instant) {
        match self.known().entry(target.route).or_insert_with(|| HopHistory::well(now)) {
            known if known.took_no_mail => (known.tried_at, known.answers) = (now, true),
            known => *known = HopHistory::well(now),
        }
    }

    fn failed(&self, target: &Target, outcome: &DeliveryOutcome, failure: Failure, now: Instant) {
        let mut all = self.known();
        let known = all.entry(target.route).or_insert_with(|| HopHistory::well(now));
        if known.failures == 0 {
            known.since = now;
        }
        known.failures = known.failures.saturating_add(1);
        (known.tried_at, known.problem) = (now, Some(outcome.clone()));
        match failure {
            Failure::Mail { answers } => (known.answers, known.took_no_mail) = (answers, true),
            Failure::Question { answers } => known.answers = answers,
        }
    }

    fn known(&self) -> MutexGuard<'_, HashMap<u16, HopHistory>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What has failed, and whether the server answered.
#[derive(Clone, Copy)]
enum Failure {
    /// A mail was put off.
    Mail { answers: bool },
    /// No mail was spoken of: there was no session, or a recipient could not be asked about.
    Question { answers: bool },
}

impl HopHistory {
    fn well(now: Instant) -> HopHistory {
        HopHistory { tried_at: now, failures: 0, took_no_mail: false, since: now, answers: true, problem: None }
    }
}

/// Whether a failure for now is a server's: it said so, or `lost` and it is known which host was lost. Everything else went wrong here.
fn is_its_trouble(outcome: &DeliveryOutcome, lost: bool) -> bool {
    match outcome.code {
        Some(_) => !is_about_recipient(outcome),
        None => lost && outcome.peer.is_some(),
    }
}

/// Whether a reply is about one recipient, such as a mailbox that is full: addresses (but not the sender's), and mailboxes that are
/// disabled or full (RFC 3463). `4.2.0` may be anything.
fn is_about_recipient(outcome: &DeliveryOutcome) -> bool {
    outcome.code.is_some() && matches!(outcome.status, Status(_, 1, 0..=6 | 9..) | Status(_, 2, 1..=3))
}

/// Whether a reply to a question is about the server. The session does not say whether the sender was put off or the recipient: of the two
/// only the sender can be refused for good here, a server that closes says so, and otherwise the status tells (RFC 3463, the mail system
/// and the network).
fn is_about_server(outcome: &DeliveryOutcome) -> bool {
    matches!(outcome.code, Some(421 | 500..)) || matches!(outcome.status, Status(_, 3 | 4, _))
}

fn view(name: String, known: Option<&HopHistory>) -> NextHopView {
    let date = |at: Instant| Date::new(at).rfc3339();
    NextHopView {
        name,
        tried: known.map(|known| date(known.tried_at)),
        answers: known.is_some_and(|known| known.answers),
        failures: known.map_or(0, |known| known.failures),
        failing_since: known.filter(|known| known.failures > 0).map(|known| date(known.since)),
        problem: known.and_then(|known| known.problem.as_ref()).map(ToString::to_string),
    }
}

#[cfg(test)]
mod tests {
    use super::super::route::{Endpoint, HostOrder, Route, Smarthost};
    use super::*;
    use std::time::Duration;
    use weir_smtp::client::approach::Approach;

    fn at(seconds: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(seconds)
    }

    fn to(route: u16) -> Target {
        Target { route, domain: Box::default() }
    }

    fn server(port: u16) -> Route {
        let hosts = vec![Endpoint::Host("mail.example".into(), port)];
        Route::Smarthost(Smarthost { hosts, order: HostOrder::Failover, approach: Approach::default() })
    }

    /// A smarthost, two domains with one server, one that goes by MX.
    fn routes() -> Routes {
        let routes = Routes::new(server(25)).with("a.example", server(26)).with("b.example", server(26));
        routes.with("c.example", Route::Mx(Approach::default()))
    }

    fn attempt(outcomes: Vec<DeliveryOutcome>, feedback: Feedback) -> Attempt {
        Attempt { outcomes, feedback, untried: false, reports_itself: false, arrived: false }
    }

    /// The same as a server's reply.
    fn said(outcome: DeliveryOutcome) -> DeliveryOutcome {
        let code = Some(if outcome.fate == Fate::Temporary { 451 } else { 550 });
        DeliveryOutcome { code, ..outcome.by(&"mail.example".into()) }
    }

    fn smarthost(hops: &NextHops) -> NextHopView {
        hops.view(&routes()).hops.into_iter().find(|hop| hop.name.contains("smarthost")).unwrap()
    }

    #[test]
    fn what_was_not_tried_is_not_called_well_and_what_fails_comes_first() {
        let (hops, routes) = (NextHops::default(), routes());
        let names = |view: &NextHopsView| view.hops.iter().map(|hop| hop.name.clone()).collect::<Vec<_>>();
        let view = hops.view(&routes);
        assert_eq!(
            names(&view),
            ["the smarthost mail.example:25", "the server mail.example:26 for a.example and 1 other domain"]
        );
        assert!(view.hops.iter().all(|hop| hop.tried.is_none() && !hop.answers && hop.failures == 0));

        let away = DeliveryOutcome::temporary(Status(4, 4, 1), "connection refused");
        hops.unreachable(&to(1), &away, at(10));
        hops.unreachable(&to(1), &away, at(40));
        hops.unreachable(&to(2), &away, at(40));
        let view = hops.view(&routes);
        assert_eq!(view.hops.len(), 2, "servers of the DNS are left out: {view:?}");
        let first = &view.hops[0];
        assert!(first.name.contains(":26") && !first.answers, "{first:?}");
        assert_eq!((first.failures, first.failing_since.as_deref()), (2, Some("1970-01-01T00:00:10Z")));
        assert_eq!(first.problem.as_deref(), Some("4.4.1 connection refused"));
        assert_eq!(first.tried.as_deref(), Some("1970-01-01T00:00:40Z"));

        let fine = attempt(vec![DeliveryOutcome::delivered("ok")], Feedback::Reached);
        hops.ended(&to(1), &fine, at(50));
        let view = hops.view(&routes);
        assert!(view.hops[0].tried.is_none(), "what was not tried comes before what is well: {view:?}");
        assert_eq!((view.hops[1].answers, view.hops[1].failures, &view.hops[1].problem), (true, 0, &None));
    }

    #[test]
    fn a_refusal_for_good_is_about_the_mail_and_one_for_now_about_the_server() {
        let hops = NextHops::default();
        let later = said(DeliveryOutcome::temporary(Status(4, 3, 2), "not now"));
        let never = said(DeliveryOutcome::permanent(Status(5, 1, 1), "no such user"));
        let now = |outcomes: Vec<DeliveryOutcome>, feedback, time| {
            hops.ended(&to(0), &attempt(outcomes, feedback), at(time));
            (smarthost(&hops).answers, smarthost(&hops).failures)
        };
        assert_eq!(now(vec![later.clone()], Feedback::Reached, 1), (true, 1));
        assert_eq!(now(vec![later.clone()], Feedback::Lost, 2), (false, 2));
        assert_eq!(now(vec![never.clone()], Feedback::Reached, 3), (true, 0));
        let some = vec![later.clone(), DeliveryOutcome::delivered("ok")];
        assert_eq!(now(some, Feedback::Reached, 4), (true, 0));
        hops.answered(&to(0), &Err(later), at(5));
        assert_eq!(smarthost(&hops).failures, 1);
        hops.answered(&to(0), &Ok(never), at(6));
        assert_eq!(smarthost(&hops).failures, 0);
    }

    #[test]
    fn a_word_about_a_recipient_is_not_one_about_mail() {
        let hops = NextHops::default();
        let full = said(DeliveryOutcome::temporary(Status(4, 2, 2), "full"));
        let busy = said(DeliveryOutcome::temporary(Status(4, 3, 0), "busy"));
        let greylisted = said(DeliveryOutcome::temporary(Status(4, 7, 1), "come again"));
        let wordless = said(DeliveryOutcome::temporary(Status(4, 0, 0), "the mailbox is full"));
        for time in 0..5 {
            for put_off in [&full, &greylisted, &wordless] {
                hops.answered(&to(0), &Err(put_off.clone()), at(time));
            }
            hops.answered(&to(0), &Ok(busy.clone()), at(time));
            hops.ended(&to(0), &attempt(vec![full.clone()], Feedback::Reached), at(time));
        }
        assert_eq!((smarthost(&hops).answers, smarthost(&hops).failures), (true, 0));
        // It wants no mail of `<>`, and so answers no question.
        let proud = said(DeliveryOutcome::permanent(Status(5, 7, 1), "no bounces here")).softened();
        hops.answered(&to(0), &Err(proud), at(6));
        assert_eq!((smarthost(&hops).answers, smarthost(&hops).failures), (true, 1));
        hops.answered(&to(0), &Ok(full), at(7));
        assert_eq!(smarthost(&hops).failures, 0);
        // It takes every recipient, and puts every mail off.
        for time in 10..15 {
            hops.answered(&to(0), &Ok(DeliveryOutcome::delivered("ok")), at(time));
            hops.ended(&to(0), &attempt(vec![busy.clone()], Feedback::Reached), at(time));
        }
        hops.answered(&to(0), &Ok(DeliveryOutcome::delivered("ok")), at(20));
        let hop = smarthost(&hops);
        assert_eq!((hop.answers, hop.failures, hop.failing_since.as_deref()), (true, 5, Some("1970-01-01T00:00:10Z")));
        assert_eq!(hop.tried.as_deref(), Some("1970-01-01T00:00:20Z"));
        // One that was away and answers again is there again.
        hops.ended(&to(0), &attempt(vec![DeliveryOutcome::delivered("ok")], Feedback::Reached), at(30));
        hops.unreachable(&to(0), &DeliveryOutcome::temporary(Status(4, 4, 1), "connection refused"), at(31));
        assert_eq!((smarthost(&hops).answers, smarthost(&hops).failures), (false, 1));
        hops.answered(&to(0), &Ok(DeliveryOutcome::delivered("ok")), at(32));
        assert_eq!((smarthost(&hops).answers, smarthost(&hops).failures), (true, 0));
    }

    #[test]
    fn trouble_of_ours_is_not_the_servers() {
        let hops = NextHops::default();
        let unread = || DeliveryOutcome::temporary(Status(4, 3, 0), "the store is not available");
        for (outcome, feedback) in [
            (unread(), Feedback::Reached),
            (unread().by(&"mail.example".into()), Feedback::Reached),
            (unread(), Feedback::Lost),
        ] {
            hops.ended(&to(0), &attempt(vec![outcome], feedback), at(1));
            assert_eq!((smarthost(&hops).answers, smarthost(&hops).failures), (true, 0));
        }
        let broke = DeliveryOutcome::temporary(Status(4, 4, 2), "connection reset").by(&"mail.example".into());
        hops.ended(&to(0), &attempt(vec![broke.clone()], Feedback::Lost), at(2));
        assert_eq!((smarthost(&hops).answers, smarthost(&hops).failures), (false, 1));
        // It was not the server that refused this for good, so it is not well for that.
        let damaged = DeliveryOutcome::permanent(Status(5, 3, 0), "the message cannot be read");
        hops.ended(&to(0), &attempt(vec![damaged], Feedback::Reached), at(3));
        assert_eq!((smarthost(&hops).answers, smarthost(&hops).failures), (true, 1));
        hops.answered(&to(0), &Err(broke), at(4));
        assert_eq!((smarthost(&hops).answers, smarthost(&hops).failures), (false, 2));
    }
}
