//! Daily caps, proposed from past mail.
//!
//! The past may already contain what the caps should prevent: an account thief who mailed a stranger every minute for weeks was not stopped
//! then, and must not count as normal. So a day counts only if it is close to what the same user did before, or to what others do. The
//! other days are named, and a person decides about them.

use serde::Serialize;
use std::collections::BTreeMap;

/// Caps by the day, for the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ProposedCaps {
    /// `throttle.messages_a_day`.
    pub messages_a_day: u64,
    /// `throttle.new_recipients_a_day`.
    pub new_recipients_a_day: u64,
}

/// What a user did on one day.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct UserDay {
    /// The date.
    pub date: String,
    /// Mails.
    pub mails: u64,
    /// Recipients who were never written to before and are no colleagues.
    pub strangers: u64,
}

/// A day that has no say in the caps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct OutlyingDay {
    /// Whose.
    pub user: String,
    /// What happened.
    #[serde(flatten)]
    pub day: UserDay,
    /// Mails on nine of ten days of this user before; nothing if there are too few.
    pub usual_mails: Option<u64>,
    /// Strangers on nine of ten of these days.
    pub usual_strangers: Option<u64>,
}

/// Days of the past from which on a user's own past says something, and days of others from which on theirs does.
const OWN_DAYS_LEAST: usize = 5;
const OTHER_DAYS_LEAST: usize = 20;
/// A day with more than this many times what is usual is an outlier.
const FAR: u64 = 5;
/// A user who hardly ever writes is not an outlier because of ten mails.
const USUAL_LEAST: u64 = 4;

/// The caps that the users' days suggest, and the days that were left out.
pub(crate) fn propose(users: &BTreeMap<&str, &[UserDay]>) -> (Option<ProposedCaps>, Vec<OutlyingDay>) {
    let (mut most, mut outlying) = (None::<(u64, u64)>, Vec::new());
    let everybody = Site::of(users.values().copied().flatten());
    for (name, days) in users {
        let others = everybody.without(days);
        let mut usual: Vec<&UserDay> = Vec::new();
        for day in *days {
            match others.judge(&usual, day) {
                None => {
                    let (mails, strangers) = most.unwrap_or_default();
                    most = Some((mails.max(day.mails), strangers.max(day.strangers)));
                    usual.push(day);
                }
                Some((usual_mails, usual_strangers)) => {
                    outlying.push(OutlyingDay {
                        user: (*name).to_owned(),
                        day: day.clone(),
                        usual_mails,
                        usual_strangers,
                    });
                }
            }
        }
    }
    // Twice what the busiest user did, so that a busier day stops nobody, as a round number; not less than a person may well do.
    let proposed = most.map(|(mails, strangers)| ProposedCaps {
        messages_a_day: round_up(2 * mails).max(200),
        new_recipients_a_day: round_up(2 * strangers).max(50),
    });
    (proposed, outlying)
}

/// How often a day had so many mails, and so many strangers.
#[derive(Default)]
struct Site {
    days: usize,
    mails: BTreeMap<u64, usize>,
    strangers: BTreeMap<u64, usize>,
}

impl Site {
    fn of<'a>(days: impl Iterator<Item = &'a UserDay>) -> Site {
        let mut site = Site::default();
        for day in days {
            site.days += 1;
            *site.mails.entry(day.mails).or_default() += 1;
            *site.strangers.entry(day.strangers).or_default() += 1;
        }
        site
    }

    fn without<'a>(&'a self, own: &[UserDay]) -> Others<'a> {
        Others { site: self, own: Site::of(own.iter()) }
    }
}

/// Everybody's days but one user's.
struct Others<'a> {
    site: &'a Site,
    own: Site,
}

impl Others<'_> {
    /// If the day is far outside of what is usual, what that is: mails and strangers on nine of ten days before.
    fn judge(&self, before: &[&UserDay], day: &UserDay) -> Option<(Option<u64>, Option<u64>)> {
        let own = |of: fn(&UserDay) -> u64| {
            let mut values: Vec<u64> = before.iter().map(|day| of(day)).collect();
            values.sort_unstable();
            (values.len() >= OWN_DAYS_LEAST).then(|| values[values.len() * 9 / 10])
        };
        let (mails, strangers) = (own(|day| day.mails), own(|day| day.strangers));
        let far = self.is_far(day.mails, mails, |site| &site.mails)
            || self.is_far(day.strangers, strangers, |site| &site.strangers);
        far.then_some((mails, strangers))
    }

    fn is_far(&self, value: u64, own: Option<u64>, of: fn(&Site) -> &BTreeMap<u64, usize>) -> bool {
        let others = self.highest_of_hundred(of);
        match (own, others) {
            (Some(own), others) => value > FAR * own.max(USUAL_LEAST) && value > 2 * others.unwrap_or(0),
            (None, Some(others)) => value > FAR * others.max(USUAL_LEAST),
            (None, None) => false,
        }
    }

    /// What others stay below on 99 of 100 days; nothing if there are too few.
    fn highest_of_hundred(&self, of: fn(&Site) -> &BTreeMap<u64, usize>) -> Option<u64> {
        let days = self.site.days - self.own.days;
        let mut above = days / 100;
        let left = of(self.site).iter().rev().map(|(value, days)| {
            let own = of(&self.own).get(value).copied().unwrap_or(0);
            (*value, days - own)
        });
        let mut found = None;
        for (value, days) in left.filter(|(_, days)| *days > 0) {
            found = Some(value);
            if days > above {
                break;
            }
            above -= days;
        }
        found.filter(|_| days >= OTHER_DAYS_LEAST)
    }
}

/// The next of 1, 2, 5, 10, 20, 50 …
fn round_up(number: u64) -> u64 {
    let steps = (0..18).flat_map(|power| [1, 2, 5].map(|step| step * 10u64.pow(power)));
    steps.into_iter().find(|step| *step >= number).unwrap_or(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_numbers_are_those_of_money() {
        assert_eq!([0, 1, 3, 11, 100, 101].map(round_up), [1, 1, 5, 20, 100, 200]);
    }

    #[test]
    fn what_others_stay_below_leaves_the_user_out() {
        let day = |mails| UserDay { date: String::new(), mails, strangers: 0 };
        let own = [day(900), day(900)];
        let days: Vec<UserDay> = (1..=200).map(day).chain(own.iter().cloned()).collect();
        let site = Site::of(days.iter());
        assert_eq!(site.without(&own).highest_of_hundred(|site| &site.mails), Some(198), "two of 200 are higher");
        let few = Site::of(days[..10].iter());
        assert_eq!(few.without(&[]).highest_of_hundred(|site| &site.mails), None);
    }
}
