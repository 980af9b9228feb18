//! What is known of the next hops that the configuration names: smarthosts, LMTP servers, the servers of single domains.
//!
//! Nobody is asked for this: it is what deliveries and questions about recipients have shown since the start. There is one entry for each
//! route, so its size is bounded by the configuration. Servers that the DNS names (MX) are left out: that one of the world's servers is away
//! is no trouble of this site.

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
use weir_smtp::outcome::{DeliveryOutcome, Fate};

/// Next hops that are shown; those in trouble come first.
const SHOWN_MAX: usize = 100;

/// What is known of all next hops.
#[derive(Debug, Default)]
pub struct NextHops(Mutex<HashMap<u16, Known>>);

/// What is known of one.
#[derive(Debug, Clone)]
struct Known {
    tried_at: Instant,
    /// Failures since it last took something.
    failures: u32,
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
        self.failed(target, outcome, false, now);
    }

    /// A delivery in a session has ended.
    pub(super) fn ended(&self, target: &Target, attempt: &Attempt, now: Instant) {
        let put_off = attempt.outcomes.iter().find(|outcome| outcome.fate == Fate::Temporary);
        let took = attempt.outcomes.iter().any(|outcome| outcome.fate == Fate::Delivered);
        match put_off.filter(|_| !took) {
            Some(outcome) => self.failed(target, outcome, attempt.feedback == Feedback::Reached, now),
            // Also if it refused the mail for good: that is a word about the mail, and its sender hears it.
            None => self.worked(target, now),
        }
    }

    /// It has answered a question about a recipient.
    pub(super) fn answered(&self, target: &Target, said: &Result<DeliveryOutcome, DeliveryOutcome>, now: Instant) {
        match said {
            Ok(_) => self.worked(target, now),
            Err(outcome) => self.failed(target, outcome, true, now),
        }
    }

    /// As people see them.
    pub(super) fn view(&self, routes: &Routes) -> NextHopsView {
        let known = self.known();
        let mut all: Vec<(u16, Option<&Known>)> = routes.servers().map(|route| (route, known.get(&route))).collect();
        all.sort_by_key(|(route, known)| (Reverse(known.map_or(0, |known| known.failures)), known.is_some(), *route));
        let shown = |(route, known): &(u16, Option<&Known>)| view(routes.described(*route), *known);
        NextHopsView {
            hops: all.iter().take(SHOWN_MAX).map(shown).collect(),
            more: all.len().saturating_sub(SHOWN_MAX),
        }
    }

    fn worked(&self, target: &Target, now: Instant) {
        let fine = Known { tried_at: now, failures: 0, since: now, answers: true, problem: None };
        self.known().insert(target.route, fine);
    }

    fn failed(&self, target: &Target, outcome: &DeliveryOutcome, answers: bool, now: Instant) {
        let mut known = self.known();
        let before = known.get(&target.route).filter(|before| before.failures > 0);
        let (failures, since) = before.map_or((0, now), |before| (before.failures, before.since));
        let failures = failures.saturating_add(1);
        let problem = Some(outcome.clone());
        known.insert(target.route, Known { tried_at: now, failures, since, answers, problem });
    }

    fn known(&self) -> MutexGuard<'_, HashMap<u16, Known>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn view(name: String, known: Option<&Known>) -> NextHopView {
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
    use weir_smtp::outcome::Status;

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
        let (hops, routes) = (NextHops::default(), routes());
        let later = DeliveryOutcome::temporary(Status(4, 3, 2), "not now");
        let never = DeliveryOutcome::permanent(Status(5, 1, 1), "no such user");
        let now = |outcomes: Vec<DeliveryOutcome>, feedback, time| {
            hops.ended(&to(0), &attempt(outcomes, feedback), at(time));
            let hop = hops.view(&routes).hops.into_iter().find(|hop| hop.name.contains("smarthost")).unwrap();
            (hop.answers, hop.failures)
        };
        assert_eq!(now(vec![later.clone()], Feedback::Reached, 1), (true, 1));
        assert_eq!(now(vec![later.clone()], Feedback::Lost, 2), (false, 2));
        assert_eq!(now(vec![never.clone()], Feedback::Reached, 3), (true, 0));
        let some = vec![later.clone(), DeliveryOutcome::delivered("ok")];
        assert_eq!(now(some, Feedback::Reached, 4), (true, 0));
        hops.answered(&to(0), &Err(later), at(5));
        hops.answered(&to(0), &Ok(never), at(6));
        assert_eq!(hops.view(&routes).hops[1].failures, 0);
    }
}
