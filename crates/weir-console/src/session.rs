//! Sessions: who is logged in. They live in memory only, so a restart ends them all.
//!
//! A session's id is 256 random bits that its cookie carries; it is made at login and never before, so nobody can plant a session id on
//! somebody else. A second secret, in every form, shows that a request comes from a page of ours. Sessions are bounded in time, and in
//! number: of one name, and of all. They end after [`IDLE`] without a request, and after [`LIFE`] in any case.

use crate::logins::Logins;
use crate::steps::Steps;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use weir_foundation::Actor;
use weir_foundation::clock::wall_clock;
use weir_foundation::console_accounts::{KnownAccount, Role};
use weir_foundation::date::rfc3339;
use weir_foundation::secret::fresh_token;

/// The field of a form that carries the session's token.
pub(crate) const TOKEN_FIELD: &str = "token";
/// A session ends after this time without a request.
pub const IDLE: Duration = Duration::from_secs(3600);
/// A session ends after this time in any case; then the password is needed again.
pub const LIFE: Duration = Duration::from_secs(12 * 3600);
/// If one name has more sessions than this, the one of them that was idle for longest ends. A right login costs nothing, so whoever begins
/// sessions without end must only end their own.
const OWN_MAX: usize = 20;
/// If there are more sessions than this, one ends of the name that has the most.
const SESSIONS_MAX: usize = 10_000;

/// All sessions, and the logins that are under way or have failed. None of it ends when the pages are made anew because a gate was
/// restarted.
#[derive(Debug, Default)]
pub struct Sessions {
    pub(crate) logins: Logins,
    pub(crate) steps: Steps,
    open: Mutex<HashMap<String, OpenSession>>,
    /// How many there have been.
    begun: AtomicU64,
}

#[derive(Debug)]
struct OpenSession {
    /// The number by which people refer to it, because its id is a secret.
    number: u64,
    /// Where its login came from.
    from: Option<IpAddr>,
    known: KnownAccount,
    way: Way,
    token: String,
    begun: Instant,
    seen: Instant,
    /// What the last action did, to be shown once.
    said: Option<Said>,
}

/// The result of an action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Said {
    /// In words.
    pub words: String,
    /// Whether it was done.
    pub done: bool,
}

/// A session in the form in which it is shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "ConsoleSession")]
pub struct SessionLine {
    /// Its number.
    pub number: u64,
    /// Who is logged in.
    pub name: String,
    /// Their role.
    pub role: Role,
    /// Where the login came from.
    pub from: String,
    /// Whether they came by the link in a notice instead of with a password.
    pub by_link: bool,
    /// When they logged in.
    #[schemars(extend("format" = "date-time"))]
    pub since: String,
    /// Seconds since the last request.
    pub quiet_s: u64,
}

/// How somebody logged in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// With a password.
    Password,
    /// By an identity provider.
    Provider,
    /// By a link that was sent to their contact address, which malware that sends mail in their name has not seen.
    Link {
        /// The situation of their throttle when they came. The link allows decisions only about the mail of that situation.
        situation: u32,
    },
}

/// The visitor who makes a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Visit {
    /// The session's id.
    pub id: String,
    /// Who they are.
    pub known: KnownAccount,
    /// How they came in.
    pub way: Way,
    /// The token that all their forms must carry.
    pub token: String,
}

impl Visit {
    /// Their name in the audit trail.
    pub fn actor(&self) -> Actor {
        Actor::new(&format!("console:{}", self.known.name))
    }

    /// The same visit without its session: a page that is drawn again for a live stream must not use up a message that is meant for the
    /// person.
    pub(crate) fn unheard(&self) -> Visit {
        Visit { id: String::new(), ..self.clone() }
    }

    /// The situation of the link that they came by, if they did.
    pub fn link(&self) -> Option<u32> {
        match self.way {
            Way::Link { situation } => Some(situation),
            Way::Password | Way::Provider => None,
        }
    }

    /// Whether they may do something that needs this role.
    pub fn may(&self, role: Role) -> bool {
        self.known.role >= role
    }
}

impl Sessions {
    /// Begins a session for somebody who has just logged in.
    pub fn begin(&self, known: KnownAccount, way: Way, now: Instant) -> Visit {
        let (id, token) = (fresh_token(), fresh_token());
        let mut open = self.lock();
        open.retain(|_, session| session.lives(now));
        make_room(&mut open, &known.name, way);
        let session = OpenSession {
            number: self.begun.fetch_add(1, Ordering::Relaxed) + 1,
            from: None,
            known: known.clone(),
            way,
            token: token.clone(),
            begun: now,
            seen: now,
            said: None,
        };
        open.insert(id.clone(), session);
        Visit { id, known, way, token }
    }

    /// The session with this id, which counts as used now.
    pub fn find(&self, id: &str, now: Instant) -> Option<Visit> {
        let mut open = self.lock();
        let session = open.get_mut(id)?;
        if !session.lives(now) {
            open.remove(id);
            return None;
        }
        session.seen = now;
        let (known, token) = (session.known.clone(), session.token.clone());
        Some(Visit { id: id.to_owned(), known, way: session.way, token })
    }

    /// Whether it is still open; this does not count as using it.
    pub fn is_open(&self, id: &str, now: Instant) -> bool {
        self.lock().get(id).is_some_and(|session| session.lives(now))
    }

    /// Whether anybody has made a request recently.
    pub(crate) fn any_seen(&self, now: Instant, lately: Duration) -> bool {
        self.lock().values().any(|session| now.duration_since(session.seen) < lately)
    }

    /// Ends one.
    pub fn end(&self, id: &str) {
        self.lock().remove(id);
    }

    /// Notes where the login of a session came from.
    pub fn came_from(&self, id: &str, from: IpAddr) {
        if let Some(session) = self.lock().get_mut(id) {
            session.from = Some(from);
        }
    }

    /// All that are open, the newest first.
    pub fn list(&self, now: Instant) -> Vec<SessionLine> {
        let open = self.lock();
        let lines = open.values().filter(|session| session.lives(now)).map(|session| session.line(now));
        let mut lines: Vec<SessionLine> = lines.collect();
        lines.sort_by_key(|line| std::cmp::Reverse(line.number));
        lines
    }

    /// The number of a session that is open.
    pub fn number_of(&self, id: &str) -> Option<u64> {
        self.lock().get(id).map(|session| session.number)
    }

    /// Ends the one with this number; returns whose it was.
    pub fn end_number(&self, number: u64) -> Option<String> {
        let mut open = self.lock();
        let id = open.iter().find(|(_, session)| session.number == number).map(|(id, _)| id.clone())?;
        open.remove(&id).map(|session| session.known.name)
    }

    /// Stores a message for the next page.
    pub fn say(&self, id: &str, said: Said) {
        if let Some(session) = self.lock().get_mut(id) {
            session.said = Some(said);
        }
    }

    /// The message for the next page, once.
    pub fn said(&self, id: &str) -> Option<Said> {
        self.lock().get_mut(id)?.said.take()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, OpenSession>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends a session where there are too many. Those by a link and those with a password are counted apart: a notice goes to a contact, who may be
/// somebody else.
fn make_room(open: &mut HashMap<String, OpenSession>, name: &str, way: Way) {
    let mut counts: HashMap<(&str, bool), usize> = HashMap::new();
    for session in open.values() {
        *counts.entry(session.holder()).or_default() += 1;
    }
    let own = (name, way.is_link());
    let crowded = if counts.get(&own).is_some_and(|count| *count >= OWN_MAX) {
        Some(own)
    } else if open.len() >= SESSIONS_MAX {
        counts.into_iter().max_by_key(|(_, count)| *count).map(|(holder, _)| holder)
    } else {
        None
    };
    let Some(crowded) = crowded else { return };
    let theirs = open.iter().filter(|(_, session)| session.holder() == crowded);
    let quietest = theirs.min_by_key(|(_, session)| session.seen).map(|(id, _)| id.clone());
    if let Some(quietest) = quietest {
        open.remove(&quietest);
    }
}

impl Way {
    /// Whether they came by a link.
    pub(crate) fn is_link(self) -> bool {
        matches!(self, Way::Link { .. })
    }
}

impl OpenSession {
    /// By whom it is counted.
    fn holder(&self) -> (&str, bool) {
        (&self.known.name, self.way.is_link())
    }

    fn line(&self, now: Instant) -> SessionLine {
        let ago = now.duration_since(self.begun);
        SessionLine {
            number: self.number,
            name: self.known.name.clone(),
            role: self.known.role,
            from: self.from.map(|from| from.to_string()).unwrap_or_default(),
            by_link: self.way.is_link(),
            since: rfc3339((wall_clock().0 as i64).saturating_sub(ago.as_nanos() as i64)),
            quiet_s: now.duration_since(self.seen).as_secs(),
        }
    }

    fn lives(&self, now: Instant) -> bool {
        now.duration_since(self.seen) < IDLE && now.duration_since(self.begun) < LIFE
    }
}

/// Whether two secrets are equal, in a time that does not depend on where they differ.
pub fn same(one: &str, other: &str) -> bool {
    let differs = one.bytes().zip(other.bytes()).fold(0, |sum, (a, b)| sum | (a ^ b));
    one.len() == other.len() && differs == 0 && !one.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ann() -> KnownAccount {
        KnownAccount { name: "ann".into(), role: Role::Operator, stamp: [1; 32], code: false }
    }

    #[test]
    fn a_session_lives_as_long_as_it_is_used_and_not_for_ever() {
        let (sessions, start) = (Sessions::default(), Instant::now());
        let visit = sessions.begin(ann(), Way::Password, start);
        assert_eq!(visit.id.len(), 64);
        assert_ne!(visit.id, visit.token);
        let mut now = start;
        while now + IDLE / 2 < start + LIFE {
            now += IDLE / 2;
            assert_eq!(sessions.find(&visit.id, now).as_ref(), Some(&visit));
        }
        assert_eq!(sessions.find(&visit.id, start + LIFE), None);
        let other = sessions.begin(ann(), Way::Password, start);
        assert!(sessions.any_seen(start, IDLE) && !sessions.any_seen(start + IDLE, IDLE));
        assert!(sessions.is_open(&other.id, start) && !sessions.is_open(&other.id, start + IDLE));
        assert_eq!(sessions.find(&other.id, start + IDLE), None);
    }

    #[test]
    fn nobody_brings_an_id_of_their_own_and_no_two_are_the_same() {
        let (sessions, now) = (Sessions::default(), Instant::now());
        assert_eq!(sessions.find("planted", now), None);
        let (one, two) = (sessions.begin(ann(), Way::Password, now), sessions.begin(ann(), Way::Password, now));
        assert!(one.id != two.id && one.token != two.token);
        sessions.end(&one.id);
        assert_eq!((sessions.find(&one.id, now), sessions.is_open(&two.id, now)), (None, true));
    }

    #[test]
    fn whoever_logs_in_without_end_ends_only_sessions_of_their_own() {
        let (sessions, start) = (Sessions::default(), Instant::now());
        let bob = KnownAccount { name: "bob".into(), role: Role::User, ..ann() };
        let other = sessions.begin(ann(), Way::Password, start);
        let first = sessions.begin(bob.clone(), Way::Password, start);
        let second = sessions.begin(bob.clone(), Way::Password, start);
        let later = start + Duration::from_secs(1);
        sessions.find(&first.id, later);
        (0..OWN_MAX - 1).for_each(|_| drop(sessions.begin(bob.clone(), Way::Password, later)));
        assert!(sessions.is_open(&first.id, start) && !sessions.is_open(&second.id, start), "the quietest goes");
        // With the link of a notice one ends no session of a password.
        let last = sessions.begin(bob.clone(), Way::Password, later);
        (0..2 * OWN_MAX).for_each(|_| drop(sessions.begin(bob.clone(), Way::Link { situation: 1 }, later)));
        assert!(sessions.is_open(&last.id, start) && sessions.is_open(&other.id, start));
        assert_eq!(sessions.list(later).len(), 2 * OWN_MAX + 1);
    }

    #[test]
    fn where_all_sessions_are_taken_one_goes_of_the_name_with_the_most() {
        let (sessions, start) = (Sessions::default(), Instant::now());
        let named = |name: String| KnownAccount { name, role: Role::User, ..ann() };
        let two = [(); 2].map(|()| sessions.begin(named("bob".into()), Way::Password, start));
        {
            let mut open = sessions.lock();
            while open.len() < SESSIONS_MAX {
                let (number, known) = (open.len() as u64, named(format!("u{}", open.len())));
                let (token, way) = (String::new(), Way::Password);
                let session =
                    OpenSession { number, from: None, known, way, token, begun: start, seen: start, said: None };
                open.insert(number.to_string(), session);
            }
        }
        sessions.find(&two[0].id, start + Duration::from_secs(1));
        let ann = sessions.begin(ann(), Way::Password, start);
        assert_eq!(sessions.lock().len(), SESSIONS_MAX);
        assert!(sessions.is_open(&ann.id, start) && sessions.is_open(&two[0].id, start));
        assert!(!sessions.is_open(&two[1].id, start));
    }

    #[test]
    fn sessions_are_listed_and_ended_by_number_and_their_secret_is_not_shown() {
        let (sessions, now) = (Sessions::default(), Instant::now());
        let (one, two) = (sessions.begin(ann(), Way::Password, now), sessions.begin(ann(), Way::Password, now));
        sessions.came_from(&two.id, [192, 0, 2, 7].into());
        let lines = sessions.list(now + Duration::from_secs(5));
        assert_eq!(lines.iter().map(|line| line.number).collect::<Vec<_>>(), [2, 1]);
        assert_eq!((lines[0].from.as_str(), lines[0].quiet_s, lines[0].by_link), ("192.0.2.7", 5, false));
        let shown = serde_json::to_string(&lines).unwrap();
        assert!(!shown.contains(&one.id) && !shown.contains(&one.token), "{shown}");
        assert_eq!(sessions.number_of(&one.id), Some(1));
        assert_eq!((sessions.end_number(1).as_deref(), sessions.end_number(1)), (Some("ann"), None));
        assert!(sessions.find(&one.id, now).is_none() && sessions.find(&two.id, now).is_some());
        assert!(sessions.list(now + IDLE).is_empty(), "what is over is not listed");
    }

    #[test]
    fn words_are_said_once() {
        let (sessions, now) = (Sessions::default(), Instant::now());
        let visit = sessions.begin(ann(), Way::Password, now);
        sessions.say(&visit.id, Said { words: "done".into(), done: true });
        assert_eq!(sessions.said(&visit.id).map(|said| said.words).as_deref(), Some("done"));
        assert_eq!(sessions.said(&visit.id), None);
    }

    #[test]
    fn secrets_are_compared_whole() {
        assert!(same("abc", "abc") && !same("abc", "abd") && !same("ab", "abc") && !same("", ""));
    }

    #[test]
    fn roles_are_ordered() {
        let visit = Sessions::default().begin(ann(), Way::Password, Instant::now());
        assert!(visit.may(Role::User) && visit.may(Role::Operator) && !visit.may(Role::Admin));
        assert_eq!(visit.actor().as_str(), "console:ann");
    }
}
