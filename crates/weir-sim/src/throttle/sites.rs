//! Simulates the people of a site under the throttle, and under the paper's setting for comparison: who is delayed, stopped or notified,
//! and whom worms reach.

use super::outbox::COLLEAGUE;
use super::params_error;
use super::roles::{Role, person};
use super::user_run::UserRun;
use crate::input::InputError;
use serde::Serialize;
use std::time::Duration;
use weir_core::throttle::{Class, Params, RecipientKey, Recipients};
use weir_core::time::Instant;

/// In a population without a worm, somebody looks so soon after a stop and releases what is held.
const REVIEW_AFTER: Duration = Duration::from_secs(300);
/// People of each role.
const PEOPLE: u32 = 20;
/// The rates of Table 1 and those beside it, in mails a minute.
pub const WORM_RATES: [f64; 7] = [455.0, 109.0, 60.0, 30.0, 10.0, 5.0, 2.0];
/// A delay that the user is told of (`notices.tell_delays_over`).
const TOLD_FROM: Duration = Duration::from_secs(300);

/// The whole experiment.
#[derive(Debug, Clone, Serialize)]
pub struct SiteRun {
    /// Always true: no real mail is in this.
    pub synthetic: bool,
    /// The seed that makes the same people again.
    pub seed: u64,
    /// How many days.
    pub days: u32,
    /// How the roles fared.
    pub roles: Vec<RoleRun>,
    /// Whom worms reach that mail one class only.
    pub worms: Vec<Worm>,
    /// False alarms against people reached.
    pub curves: Vec<Curve>,
}

/// One role, under the given setting and under the paper's.
#[derive(Debug, Clone, Serialize)]
pub struct RoleRun {
    /// Which.
    pub role: Role,
    /// Under the given setting.
    pub here: Fared,
    /// Under the paper's: one class, five remembered, no caps, no eye on networks.
    pub paper: Fared,
}

/// How people fared.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Fared {
    /// Mails of all of them.
    pub mails: u64,
    /// Of these, in percent, those of which any recipient had to wait.
    pub delayed_percent: f64,
    /// Stops in a user's year.
    pub stops_a_user_year: f64,
    /// Notices a user and day, working days and weekends alike.
    pub notices_a_user_day: f64,
    /// The most recipients of a stranger's class on one day of one user.
    pub most_strangers_a_day: u64,
    /// The most mails on one day of one user.
    pub most_mails_a_day: u64,
}

/// A worm that mails people of one class, each once.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Worm {
    /// Mails a minute.
    pub rate_per_min: f64,
    /// People reached: strangers, people written to before (or who wrote), colleagues.
    pub reached: [u64; 3],
    /// When it was stopped, in seconds; none if it was not within a day.
    pub stopped_after_s: [Option<f64>; 3],
    /// Strangers reached under the paper's setting.
    pub reached_in_paper: u64,
}

/// False alarms against people reached, while the numbers of one class are made smaller and larger.
#[derive(Debug, Clone, Serialize)]
pub struct Curve {
    /// Which class.
    pub class: &'static str,
    /// For each factor: the factor, the most people that a worm of Table 1 reaches, delayed mail of ordinary people and of assistants in
    /// percent, and stops in a user's year of all of them.
    pub points: Vec<CurvePoint>,
}

/// A point of a curve.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct CurvePoint {
    /// Slack and threshold of the class are so many times as large.
    pub factor: f64,
    /// The most people that a worm of any rate reaches in this class.
    pub reached: u64,
    /// Mail of office, sales and helpdesk that is delayed.
    pub ordinary_delayed_percent: f64,
    /// Mail of assistants that is delayed.
    pub assistants_delayed_percent: f64,
    /// Stops in a user's year, newsletters not counted.
    pub stops_a_user_year: f64,
}

/// Lets the people of these roles mail for `days` days.
pub fn run_site(roles: &[Role], days: u32, seed: u64, params: Params, curves: bool) -> Result<SiteRun, InputError> {
    let runs = roles.iter().map(|role| {
        let here = fared(*role, days, seed, params)?;
        Ok(RoleRun { role: *role, here, paper: fared(*role, days, seed, paper(params))? })
    });
    let roles = runs.collect::<Result<_, InputError>>()?;
    let worms = WORM_RATES.iter().map(|rate| worm(*rate, params)).collect::<Result<_, _>>()?;
    let curves = if curves { all_curves(days.min(60), seed, params)? } else { Vec::new() };
    Ok(SiteRun { synthetic: true, seed, days, roles, worms, curves })
}

/// The paper's setting beside the given one: its rates and thresholds, but one class and nothing else.
fn paper(params: Params) -> Params {
    Params {
        recipients: Recipients::Alike,
        new_networks: 0,
        messages_a_day: None,
        new_recipients_a_day: None,
        ..params
    }
}

fn fared(role: Role, days: u32, seed: u64, params: Params) -> Result<Fared, InputError> {
    let mut all = Fared::default();
    let (mut delayed, mut stops, mut notices) = (0.0, 0, 0);
    for number in 0..PEOPLE {
        let person = person(seed, role, number, days);
        let mut run = UserRun::new(params, person.outbox.first_seen(), Some(REVIEW_AFTER))
            .map_err(|error| params_error(&error))?
            .knowing(&person.known)
            .telling_from(TOLD_FROM);
        person.outbox.mails.iter().for_each(|mail| run.send(mail.at, &mail.to));
        notices += run.notices();
        let (strangers, mails) = run.most_a_day();
        all.most_strangers_a_day = all.most_strangers_a_day.max(strangers);
        all.most_mails_a_day = all.most_mails_a_day.max(mails);
        let (report, _) = run.finish();
        all.mails += report.mails;
        delayed += report.delayed_percent / 100.0 * report.mails as f64;
        stops += report.stops;
    }
    let user_days = f64::from(PEOPLE) * f64::from(days);
    all.delayed_percent = 100.0 * delayed / (all.mails as f64).max(1.0);
    all.stops_a_user_year = stops as f64 * 365.25 / user_days;
    all.notices_a_user_day = notices as f64 / user_days;
    Ok(all)
}

/// People reached and the time of the stop, of a worm that mails one class only, at the start of a period and in the middle of one:
/// the worse of the two.
fn reached(rate_per_min: f64, class: Class, params: Params) -> Result<(u64, Option<f64>), InputError> {
    let one = |phase_s: f64| {
        let victims: Vec<RecipientKey> = (0..3_000u64)
            .map(|n| RecipientKey(if class == Class::Colleague { COLLEAGUE | n } else { (1 << 30) + n }))
            .collect();
        let known: &[RecipientKey] = if class == Class::Correspondent { &victims } else { &[] };
        let mut run = UserRun::new(params, Instant::ZERO, None).map_err(|error| params_error(&error))?.knowing(known);
        let mut stopped = None;
        for (n, to) in victims.iter().enumerate() {
            let after = Duration::from_secs_f64(phase_s + n as f64 * 60.0 / rate_per_min);
            run.send(Instant::ZERO + after, std::slice::from_ref(to));
            if run.stopped() {
                stopped = Some(after.as_secs_f64() - phase_s);
                break;
            }
        }
        Ok::<_, InputError>((run.finish().0.passed, stopped))
    };
    let (start, middle) = (one(0.0)?, one(25.0)?);
    Ok(if start.0 >= middle.0 { start } else { middle })
}

fn worm(rate_per_min: f64, params: Params) -> Result<Worm, InputError> {
    let [strangers, known, colleagues] = [Class::Stranger, Class::Correspondent, Class::Colleague]
        .map(|class| reached(rate_per_min, class, Params { messages_a_day: None, ..params }));
    let (strangers, known, colleagues) = (strangers?, known?, colleagues?);
    let reached_in_paper = reached(rate_per_min, Class::Stranger, paper(params))?.0;
    Ok(Worm {
        rate_per_min,
        reached: [strangers.0, known.0, colleagues.0],
        stopped_after_s: [strangers.1, known.1, colleagues.1],
        reached_in_paper,
    })
}

const FACTORS: [f64; 7] = [0.125, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0];

fn all_curves(days: u32, seed: u64, params: Params) -> Result<Vec<Curve>, InputError> {
    let scaled = |number: u32, factor: f64| ((f64::from(number) * factor).round() as u32).max(1);
    let strangers = |factor: f64| Params {
        max_slack: scaled(params.max_slack, factor),
        max_multi_slack: scaled(params.max_multi_slack, factor),
        stop_at: scaled(params.stop_at, factor),
        ..params
    };
    let known = |factor: f64| {
        let mut scaled_params = params;
        scaled_params.correspondents.slack = scaled(params.correspondents.slack, factor);
        scaled_params.correspondents.stop_at = scaled(params.correspondents.stop_at, factor);
        scaled_params
    };
    let colleagues = |factor: f64| {
        let mut scaled_params = params;
        scaled_params.colleagues.slack = scaled(params.colleagues.slack, factor);
        scaled_params.colleagues.stop_at = scaled(params.colleagues.stop_at, factor);
        scaled_params
    };
    let paper_too = |factor: f64| paper(strangers(factor));
    type Scaled<'a> = (&'static str, Class, &'a dyn Fn(f64) -> Params);
    let classes: [Scaled<'_>; 4] = [
        ("strangers", Class::Stranger, &strangers),
        ("written to before", Class::Correspondent, &known),
        ("colleagues", Class::Colleague, &colleagues),
        ("the paper's one class", Class::Stranger, &paper_too),
    ];
    let curve = |(name, class, params): Scaled<'_>| {
        let points = FACTORS.iter().map(|factor| point(*factor, class, days, seed, params(*factor)));
        Ok(Curve { class: name, points: points.collect::<Result<_, InputError>>()? })
    };
    classes.into_iter().map(curve).collect()
}

fn point(factor: f64, class: Class, days: u32, seed: u64, params: Params) -> Result<CurvePoint, InputError> {
    let mut most = 0;
    for rate in WORM_RATES {
        most = most.max(reached(rate, class, params)?.0);
    }
    let ordinary = [Role::Office, Role::Sales, Role::Helpdesk].map(|role| fared(role, days, seed, params));
    let assistants = fared(Role::Assistants, days, seed, params)?;
    let (mut mails, mut delayed, mut stops) = (0, 0.0, assistants.stops_a_user_year / 4.0);
    for role in ordinary {
        let role = role?;
        mails += role.mails;
        delayed += role.delayed_percent * role.mails as f64;
        stops += role.stops_a_user_year / 4.0;
    }
    Ok(CurvePoint {
        factor,
        reached: most,
        ordinary_delayed_percent: delayed / (mails as f64).max(1.0),
        assistants_delayed_percent: assistants.delayed_percent,
        stops_a_user_year: stops,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usual() -> Params {
        Params {
            recipients: Recipients::Classed,
            messages_a_day: Some(1_000),
            new_recipients_a_day: Some(200),
            ..Params::default()
        }
    }

    #[test]
    fn ordinary_people_do_not_notice_it_and_every_worm_is_stopped() {
        let site = run_site(&Role::ALL, 365, 1, usual(), false).unwrap();
        for run in &site.roles {
            let (delayed, stops) = match run.role {
                Role::Assistants => (2.0, 0.5),
                // Now and then a mail goes to forty customers at once.
                Role::Helpdesk => (0.5, 0.5),
                Role::Newsletter => continue,
                Role::Office | Role::Sales => (0.5, 0.0),
            };
            assert!(run.here.delayed_percent <= delayed, "{run:?}");
            assert!(run.here.stops_a_user_year <= stops, "{run:?}");
            assert!(run.here.notices_a_user_day <= 0.05, "{run:?}");
            assert!(run.here.most_mails_a_day < 1_000 && run.here.most_strangers_a_day < 200, "{run:?}");
        }
        let newsletter = site.roles.iter().find(|run| run.role == Role::Newsletter).unwrap();
        assert!(newsletter.here.stops_a_user_year > 10.0, "a newsletter needs a profile: {newsletter:?}");
        for worm in &site.worms {
            assert!(worm.stopped_after_s.iter().all(Option::is_some), "{worm:?}");
            assert!(worm.reached.iter().all(|reached| *reached <= 60), "{worm:?}");
            assert!(worm.reached[0] <= worm.reached_in_paper, "{worm:?}");
        }
    }
}
