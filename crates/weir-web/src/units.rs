//! Reads what a response says about the cost of its request, such as the number of tokens of a language model.
//!
//! For a server that works on many requests at a time, slot time alone does not describe the cost of a request. Such a server states the
//! cost in its answer, as a number in the JSON (`usage.total_tokens`), or in a header. Only the server's own figure counts. The JSON is
//! parsed, not searched for text: a model can be made to *say* anything, but what it says is inside a string, and the number is read only
//! from its own place. If the place is there twice, the larger number counts. A stream of events is looked at event by event; if no event
//! contains a figure, each event counts as one unit, so that a client gains nothing by not asking for the figure.
//!
//! Constant memory, and a few nanoseconds for an octet.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use http::HeaderName;

/// Where the number is, and what it is worth.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Units {
    pub place: UnitsSource,
    /// This many units cost as much as one second of a slot.
    pub per_second: u32,
}

/// Where a response says what it has cost.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum UnitsSource {
    /// In a field of its head.
    Header(HeaderName),
    /// In its JSON: the keys that lead there.
    Json(Vec<String>),
}

const PER_SECOND_MAX: u32 = 1_000_000;
/// The most that one request is charged, whatever a server says.
const MOST: Duration = Duration::from_secs(3_600);

impl Units {
    /// The cost of this many units, in slot time.
    pub fn cost(&self, units: u64) -> Duration {
        Duration::try_from_secs_f64(units as f64 / f64::from(self.per_second)).map_or(MOST, |cost| cost.min(MOST))
    }

    /// Whether the body contains it: then the body must come as a whole and unencoded.
    pub fn is_in_body(&self) -> bool {
        matches!(self.place, UnitsSource::Json(_))
    }

    /// Reads the two words of a route, `units=usage.total_tokens:50/s` and `units_header=x-cost:50/s`.
    pub fn from_word(key: &str, value: &str) -> Option<Units> {
        let (place, rate) = value.rsplit_once(':')?;
        let per_second = rate.strip_suffix("/s")?.parse().ok().filter(|rate| (1..=PER_SECOND_MAX).contains(rate))?;
        let place = match key {
            "units_header" => UnitsSource::Header(HeaderName::from_str(place).ok()?),
            "units" => {
                let keys: Vec<String> = place.split('.').map(str::to_owned).collect();
                if !keys.iter().all(|key| is_plain(key)) {
                    return None;
                }
                UnitsSource::Json(keys)
            }
            _ => return None,
        };
        Some(Units { place, per_second })
    }
}

/// Whether JSON writes this key without escapes.
fn is_plain(key: &str) -> bool {
    !key.is_empty() && key.bytes().all(|octet| octet.is_ascii_graphic() && !b"\"\\".contains(&octet))
}

impl fmt::Display for Units {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            UnitsSource::Header(name) => write!(f, "units_header={name}:{}/s", self.per_second),
            UnitsSource::Json(keys) => write!(f, "units={}:{}/s", keys.join("."), self.per_second),
        }
    }
}

/// Reads the body of one response.
#[derive(Debug)]
pub struct Meter {
    reading: BodyReading,
    found: Option<u64>,
    /// How many events have come.
    events: u64,
}

#[derive(Debug)]
enum BodyReading {
    /// It is in the head.
    Nothing,
    Document(Walk),
    Events(Events),
}

impl Meter {
    /// For a response that says it in its head, or could not.
    pub fn of_header(value: Option<&[u8]>) -> Meter {
        let found = value.and_then(|value| std::str::from_utf8(value).ok()?.trim().parse().ok());
        Meter { reading: BodyReading::Nothing, found, events: 0 }
    }

    /// For a response that says it in its body: in a stream of events, or in one document.
    pub fn of_body(keys: &[String], events: bool) -> Meter {
        let walk = Walk::new(keys.to_vec());
        let reading = if events { BodyReading::Events(Events::new(walk)) } else { BodyReading::Document(walk) };
        Meter { reading, found: None, events: 0 }
    }

    /// The next piece of the body.
    pub fn see(&mut self, octets: &[u8]) {
        match &mut self.reading {
            BodyReading::Nothing => {}
            BodyReading::Document(walk) => {
                octets.iter().for_each(|octet| walk.step(*octet));
                self.found = self.found.max(walk.found);
            }
            BodyReading::Events(events) => {
                octets.iter().for_each(|octet| self.events += u64::from(events.step(*octet)));
                self.found = self.found.max(events.walk.found);
            }
        }
    }

    /// What the response has said, once it is complete.
    pub fn told(&self) -> Option<u64> {
        self.found
    }

    /// The number of events that have come. They are counted if nothing was said.
    pub fn events(&self) -> u64 {
        self.events
    }
}

/// Reads events (text/event-stream). The data of each is a document of its own.
#[derive(Debug)]
struct Events {
    walk: Walk,
    /// How much of `data:` this line begins with; a larger number if it cannot be a line of data.
    matched: usize,
    /// Whether this event has data, and whether the line has anything.
    data: bool,
    empty: bool,
    /// Whether the last octet was a carriage return, which a line feed may follow.
    returned: bool,
}

const DATA: &[u8] = b"data:";

impl Events {
    fn new(walk: Walk) -> Events {
        Events { walk, matched: 0, data: false, empty: true, returned: false }
    }

    /// Returns whether an event has ended.
    fn step(&mut self, octet: u8) -> bool {
        if std::mem::replace(&mut self.returned, octet == b'\r') && octet == b'\n' {
            return false;
        }
        if octet == b'\n' || octet == b'\r' {
            let over = self.empty && std::mem::take(&mut self.data);
            if self.empty {
                self.walk.restart();
            }
            (self.matched, self.empty) = (0, true);
            return over;
        }
        self.empty = false;
        if self.matched == DATA.len() {
            self.data = true;
            self.walk.step(octet);
        } else if DATA.get(self.matched) == Some(&octet) {
            self.matched += 1;
        } else {
            self.matched = usize::MAX;
        }
        false
    }
}

/// A walk through a JSON document, octet by octet, to one number.
///
/// `depth` is how many objects and lists are open. As long as it is `matched + 1`, the innermost is the object that the first `matched` keys lead to.
#[derive(Debug)]
struct Walk {
    keys: Vec<String>,
    depth: usize,
    matched: usize,
    state: State,
    /// In a string, after a backslash.
    escaped: bool,
    found: Option<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// Before a key of the object that matters, or elsewhere.
    Outside,
    /// In a key that may be the next one, of which this many octets agree; None if it is another.
    Key(Option<usize>),
    /// Behind the key that was looked for, and behind its colon.
    Found,
    Value,
    /// In a string that does not matter.
    Text,
    /// In the number.
    Number(u64),
    /// Behind a key or in a value that does not matter.
    Passing,
    /// The document is not an object.
    Lost,
}

impl Walk {
    fn new(keys: Vec<String>) -> Walk {
        Walk { keys, depth: 0, matched: 0, state: State::Outside, escaped: false, found: None }
    }

    fn restart(&mut self) {
        (self.depth, self.matched, self.state, self.escaped) = (0, 0, State::Outside, false);
    }

    /// Whether the innermost object is the one that the keys have led to.
    fn is_on_the_way(&self) -> bool {
        self.depth == self.matched + 1
    }

    fn step(&mut self, octet: u8) {
        match self.state {
            State::Lost => {}
            State::Text | State::Key(_) => self.in_string(octet),
            State::Number(number) if octet.is_ascii_digit() => {
                self.state = State::Number(number.saturating_mul(10).saturating_add(u64::from(octet - b'0')));
            }
            State::Number(number) => {
                // Nobody counts in the notation 1e9.
                if !b"eE".contains(&octet) {
                    self.found = self.found.max(Some(number));
                }
                self.state = State::Passing;
                self.between(octet);
            }
            _ => self.between(octet),
        }
    }

    fn in_string(&mut self, octet: u8) {
        if std::mem::take(&mut self.escaped) {
            if let State::Key(agreed) = &mut self.state {
                *agreed = None;
            }
            return;
        }
        match (octet, self.state) {
            (b'\\', _) => self.escaped = true,
            (b'"', State::Key(agreed)) => {
                let whole = agreed == self.keys.get(self.matched).map(String::len);
                self.state = if whole { State::Found } else { State::Passing };
            }
            (b'"', _) => self.state = State::Passing,
            (_, State::Key(agreed)) => {
                let next = agreed.filter(|at| self.keys[self.matched].as_bytes().get(*at) == Some(&octet));
                self.state = State::Key(next.map(|at| at + 1));
            }
            _ => {}
        }
    }

    fn between(&mut self, octet: u8) {
        match octet {
            b' ' | b'\t' | b'\r' | b'\n' => {}
            b'"' if self.state == State::Outside && self.is_on_the_way() => self.state = State::Key(Some(0)),
            b'"' => self.state = State::Text,
            b'{' => {
                if self.state == State::Value && self.matched + 1 < self.keys.len() {
                    self.matched += 1;
                    (self.depth, self.state) = (self.depth + 1, State::Outside);
                    return;
                }
                self.depth += 1;
                self.state = if self.depth == 1 { State::Outside } else { State::Passing };
            }
            b'[' => {
                self.depth += 1;
                self.state = if self.depth == 1 { State::Lost } else { State::Passing };
            }
            b'}' | b']' => {
                if self.is_on_the_way() {
                    self.matched = self.matched.saturating_sub(1);
                }
                self.depth = self.depth.saturating_sub(1);
                self.state = State::Passing;
            }
            b',' => self.state = if self.is_on_the_way() { State::Outside } else { State::Passing },
            b':' if self.state == State::Found => self.state = State::Value,
            digit @ b'0'..=b'9' if self.state == State::Value && self.matched + 1 == self.keys.len() => {
                self.state = State::Number(u64::from(digit - b'0'));
            }
            _ if self.depth == 0 => self.state = State::Lost,
            _ => self.state = State::Passing,
        }
    }
}

#[cfg(test)]
mod tests;
