//! `[throttle]`: the parameters of Williamson's email virus throttle, for persons, and beside them those of the
//! other profiles.

use std::collections::BTreeMap;
use std::time::Duration;
use weir_core::throttle::{PARAMS, Param, ParamKind, Params, Recipients};
use weir_settings::units::Rate;
use weir_settings::{Reader, Section, kinds};

/// The throttle of everybody.
#[derive(Debug, Clone)]
pub struct ThrottleSettings {
    /// Only learn what the throttle would do.
    pub learn_only: bool,
    /// The site's own domains, besides those that mail is taken for.
    pub own_domains: Vec<String>,
    /// Domains whose people are colleagues too.
    pub partner_domains: Vec<String>,
    /// Of a person, which is everybody without another profile.
    pub person: Params,
    /// Of somebody who writes to many people by hand: newsletters, a club's secretary.
    pub list: Params,
    /// Of a program: many single mails, each to somebody else.
    pub application: Params,
}

const SECOND: Duration = Duration::from_secs(1);

impl ThrottleSettings {
    /// Reads `[throttle]` and the sections of the profiles inside it. The keys are the rows of the core's table.
    pub fn read(reader: &mut Reader<'_>) -> ThrottleSettings {
        let paper = Params::default();
        let list = Params { max_multi_slack: 500, multi_rate_period: SECOND, stop_at: 1_000, ..paper };
        let application =
            Params { rate_period: SECOND, multi_rate_period: SECOND, max_slack: 60, stop_at: 300, ..paper };
        let (learn_only, own_domains, partner_domains, person) = reader.section(
            "throttle",
            "Outgoing mail: how many new people a user may write to, and how fast. This is for people, the usual profile",
            |section| {
                (learn_only(section), own_domains(section), partner_domains(section), params(section, usual_person()))
            },
        );
        let about = "The throttle of users with the profile list, who write to many people at once";
        let list = reader.section("throttle.list", about, |section| params(section, list));
        let about = "The throttle of users with the profile application: programs that send mail";
        let application = reader.section("throttle.application", about, |section| params(section, application));
        ThrottleSettings { learn_only, own_domains, partner_domains, person, list, application }
    }

    /// The profiles that have parameters of their own, by name.
    pub fn profiles(&self) -> BTreeMap<String, Params> {
        [("list", self.list), ("application", self.application)].map(|(name, params)| (name.to_owned(), params)).into()
    }
}

/// What a person has by default: the paper's numbers for strangers, classes for everybody else, an eye on where mail comes from, and
/// caps by the day that no ordinary user of the simulated offices meets (docs/algorithms/throttle.md).
pub fn usual_person() -> Params {
    Params {
        recipients: Recipients::Classed,
        new_networks: 6,
        messages_a_day: Some(1_000),
        new_recipients_a_day: Some(200),
        ..Params::default()
    }
}

/// As an empty configuration has it.
impl Default for ThrottleSettings {
    fn default() -> ThrottleSettings {
        ThrottleSettings::read(&mut Reader::new(""))
    }
}

fn learn_only(section: &mut Section<'_, '_>) -> bool {
    let about = "Hold nothing and stop nobody; only record what the throttle would have done (`weir held learned`)";
    section.key("learn_only", about, kinds::flag(false))
}

fn own_domains(section: &mut Section<'_, '_>) -> Vec<String> {
    let about = "The site's own domains, besides those of [inbound]: people there are colleagues, and ann+tag@ is the same person as ann@; \
                 at other domains each tag counts as another person";
    section.key("own_domains", about, kinds::list([], 1_000, "domains"))
}

fn partner_domains(section: &mut Section<'_, '_>) -> Vec<String> {
    let about = "Domains of partners, whose people are colleagues to the throttle";
    section.key("partner_domains", about, kinds::list([], 1_000, "domains"))
}

/// Every row of the core's table as a key of this section.
fn params(section: &mut Section<'_, '_>, default: Params) -> Params {
    let mut params = default;
    for param in &PARAMS {
        let value = value(section, param, param.value(&default));
        param.set(&mut params, value);
    }
    params
}

fn value(section: &mut Section<'_, '_>, param: &'static Param, default: u64) -> u64 {
    let number = u32::try_from(default).unwrap_or(u32::MAX);
    let (name, about) = (param.name, param.about);
    match &param.kind {
        ParamKind::Rate => {
            let rate = section.key(name, about, kinds::number(written(default), rate(0.003, 86_400)..=rate(1000.0, 1)));
            u64::try_from(rate.period().as_nanos()).unwrap_or(u64::MAX)
        }
        ParamKind::Count(bounds) => section.key(name, about, kinds::count(number, bounds.clone())),
        ParamKind::Cap => section.key(name, about, kinds::count(number, 0..=u32::MAX)),
        // The first word is the default.
        ParamKind::Choice([first, second]) if default == 0 => {
            section.key(name, about, kinds::choice([(*first, 0), (*second, 1)]))
        }
        ParamKind::Choice([first, second]) => section.key(name, about, kinds::choice([(*second, 1), (*first, 0)])),
    }
}

fn rate(count: f64, secs: u64) -> Rate {
    Rate { count, per: Duration::from_secs(secs) }
}

/// A default period in nanoseconds as a rate, in the unit in which it is at least one.
fn written(nanos: u64) -> Rate {
    let period_s = Duration::from_nanos(nanos).as_secs_f64();
    let unit = [1, 60, 3_600].into_iter().find(|unit| period_s <= *unit as f64).unwrap_or(86_400);
    rate(unit as f64 / period_s, unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_configuration_is_what_the_profiles_say() {
        let settings = ThrottleSettings::default();
        assert_eq!(settings.person, usual_person());
        assert_eq!((settings.list.recipients, settings.list.new_networks), (Recipients::Alike, 0));
        assert_eq!((settings.application.recipients, settings.application.messages_a_day), (Recipients::Alike, None));
    }
}
