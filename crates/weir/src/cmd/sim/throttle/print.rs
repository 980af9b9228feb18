//! Prints the experiments as tables.

use std::io::Write;
use weir_core::throttle::{Params, Recipients};
use weir_sim::throttle::{
    DelayPoint, Fared, Figures, Habits, LocalityPoint, Outbreak, PopulationRun, Row, SiteRun, Spread, Statistics,
    Table1, ThrottleReport, UserReport, Virus, VirusFate, median, quantile,
};

/// At most this many users of a population are shown.
const USERS_SHOWN: usize = 10;

pub(super) fn virus(out: &mut dyn Write, virus: &Virus, params: &Params, seen: &Outbreak) -> anyhow::Result<()> {
    let report = &seen.report;
    writeln!(out, "A virus that sends {} mails a minute to new addresses, against the throttle", virus.rate_per_min)?;
    writeln!(out, "({}).", said(params))?;
    writeln!(out)?;
    writeln!(
        out,
        "{:>7} {:>13} {:>9} {:>7} {:>7}  stopped after",
        "mails", "sent at once", "released", "passed", "held"
    )?;
    let stopped = seen.stopped_after_s.map_or("not stopped".into(), clock);
    let (mails, at_once, released) = (report.mails, report.sent_at_once, report.released);
    writeln!(out, "{mails:>7} {at_once:>13} {released:>9} {:>7} {:>7}  {stopped}", report.passed, report.held)?;
    Ok(())
}

pub(super) fn trace(out: &mut dyn Write, params: &Params, report: &ThrottleReport) -> anyhow::Result<()> {
    let stopped = report.users.values().filter(|user| user.stops > 0).count();
    writeln!(out, "What the throttle would have done ({}).", said(params))?;
    let users_seen = report.users.len();
    let noun = if users_seen == 1 { "user" } else { "users" };
    writeln!(out, "{users_seen} {noun}, {stopped} stopped. Delays are by mail, copies by recipient.")?;
    writeln!(out)?;
    users(out, report.users.iter().map(|(name, user)| (name.as_str(), user)))
}

pub(super) fn population(out: &mut dyn Write, params: &Params, run: &PopulationRun) -> anyhow::Result<()> {
    let days = if run.days == 1 { "a day".into() } else { format!("{} days", run.days) };
    writeln!(
        out,
        "Synthetic population (seed {}): {} users for {days}, through the throttle",
        run.seed,
        run.users.len()
    )?;
    writeln!(out, "({}).", said(params))?;
    writeln!(out)?;
    statistics(out, &run.statistics)?;
    writeln!(out)?;
    let (max, mean) = (run.delay_queue.max, run.delay_queue.mean);
    let of = |f: fn(&UserReport) -> f64| run.users.values().map(f).collect::<Vec<f64>>();
    let (delayed, stops) = (of(|user| user.delayed_percent), of(|user| user.stops as f64));
    writeln!(out, "all delay queues together   mean {mean:.2} entries, at most {max}")?;
    writeln!(
        out,
        "mails delayed               median user {:.2} %, worst {:.2} %",
        median(&delayed),
        quantile(&delayed, 1.0)
    )?;
    writeln!(out, "stops (false alarms)        {} in all", stops.iter().sum::<f64>())?;
    writeln!(out)?;
    let mut by_delay: Vec<(&str, &UserReport)> = run.users.iter().map(|(name, user)| (name.as_str(), user)).collect();
    by_delay.sort_by(|a, b| b.1.mean_delay_s.total_cmp(&a.1.mean_delay_s));
    if by_delay.len() > USERS_SHOWN {
        writeln!(out, "The {USERS_SHOWN} users with the longest mean delay (--json has all):")?;
    }
    users(out, by_delay.into_iter().take(USERS_SHOWN))
}

pub(super) fn site(out: &mut dyn Write, params: &Params, run: &SiteRun) -> anyhow::Result<()> {
    writeln!(out, "Synthetic people of a site (seed {}), 20 of each role, {} days each", run.seed, run.days)?;
    writeln!(out, "({}{}).", said(params), if params.recipients == Recipients::Classed { ", classed" } else { "" })?;
    writeln!(
        out,
        "Somebody looks five minutes after each stop. On the right, the same with the paper's rules: one class.\n"
    )?;
    let heads = format!("{:>9} {:>12} {:>13}", "delayed", "stops", "notices");
    writeln!(out, "{:<11} {:>8}  {heads}   the paper's: {heads}   most in a day", "role", "mails")?;
    let units = format!("{:>9} {:>12} {:>13}", "%", "a user-year", "a user, day");
    writeln!(out, "{:<11} {:>8}  {units}                {units}   mails, strangers", "", "")?;
    let fared =
        |f: &Fared| format!("{:>9.2} {:>12.2} {:>13.4}", f.delayed_percent, f.stops_a_user_year, f.notices_a_user_day);
    for role in &run.roles {
        let (name, mails) = (role.role.name(), role.here.mails);
        let most = format!("{}, {}", role.here.most_mails_a_day, role.here.most_strangers_a_day);
        writeln!(out, "{name:<11} {mails:>8}  {}                {}   {most}", fared(&role.here), fared(&role.paper))?;
    }
    writeln!(
        out,
        "\nA worm that mails people of one class only, each once: people reached, and stopped after (min:s)\n"
    )?;
    writeln!(
        out,
        "{:>9}  {:>16}  {:>19}  {:>16}  the paper's",
        "mails/min", "strangers", "written to before", "colleagues"
    )?;
    for worm in &run.worms {
        let cell = |place: usize| {
            let stopped = worm.stopped_after_s[place].map_or("never".into(), clock);
            format!("{} {stopped:>9}", worm.reached[place])
        };
        let (rate, paper) = (worm.rate_per_min, worm.reached_in_paper);
        writeln!(out, "{rate:>9}  {:>16}  {:>19}  {:>16}  {paper}", cell(0), cell(1), cell(2))?;
    }
    for curve in &run.curves {
        writeln!(out, "\n{}: slack and threshold times a factor", curve.class)?;
        writeln!(
            out,
            "{:>7} {:>15} {:>18} {:>20} {:>18}",
            "factor", "people reached", "ordinary delayed", "assistants delayed", "stops a user-year"
        )?;
        for point in &curve.points {
            writeln!(
                out,
                "{:>7} {:>15} {:>16.2} % {:>18.2} % {:>18.2}",
                point.factor,
                point.reached,
                point.ordinary_delayed_percent,
                point.assistants_delayed_percent,
                point.stops_a_user_year
            )?;
        }
    }
    Ok(())
}

pub(super) fn table1(out: &mut dyn Write, table: &Table1) -> anyhow::Result<()> {
    writeln!(out, "Table 1: what passed of two real viruses and a test virus, and when they were stopped")?;
    writeln!(out, "(rate 1/min, working set 4, slack 1, multi-slack 15, stop above 20). Ours start with the user's")?;
    writeln!(out, "first period; \"any start\" is the range over all starts within a period.")?;
    writeln!(out)?;
    writeln!(out, "{:21}{:^25}   {:^33}", "", "passed (mails)", "stopped after (min:s)")?;
    let heads = ("virus", "mails/min", "paper", "ours", "any start");
    let (virus, rate, paper, ours, any) = heads;
    writeln!(out, "{virus:<11}{rate:>10}{paper:>8}{ours:>7}{any:>11}   {paper:>8}{ours:>9}{any:>16}  agrees")?;
    for row in &table.rows {
        writeln!(out, "{}", table1_row(row))?;
    }
    let agree = table.rows.iter().filter(|row| row.agrees).count();
    writeln!(out)?;
    writeln!(out, "{agree} of {} rows agree within 3 mails, and 15 % or 2 s of the stopping time.", table.rows.len())?;
    Ok(())
}

fn table1_row(row: &Row) -> String {
    let range = |f: &dyn Fn(&VirusFate) -> String| match (f(&row.ours_least), f(&row.ours_most)) {
        (least, most) if least == most => least,
        (least, most) => format!("{least}-{most}"),
    };
    let passed = range(&|seen| seen.passed.to_string());
    let stopped = range(&|seen| clock(seen.stopped_after_s));
    let (paper, ours) = (clock(row.paper.stopped_after_s), clock(row.ours.stopped_after_s));
    format!(
        "{:<11}{:>10}{:>8}{:>7}{passed:>11}   {paper:>8}{ours:>9}{stopped:>16}  {}",
        row.virus,
        row.rate_per_min,
        format!("~{}", row.paper.passed),
        row.ours.passed,
        if row.agrees { "yes" } else { "NO" },
    )
}

pub(super) fn figures(out: &mut dyn Write, params: &Params, figures: &Figures) -> anyhow::Result<()> {
    writeln!(
        out,
        "Stand-ins for Figures 1, 2, 5 to 8 and 13 on a synthetic population (seed {}), since the paper's",
        figures.seed
    )?;
    writeln!(out, "mail was not published. One parameter varies, the others stay the same")?;
    writeln!(out, "({}).", said(params))?;
    writeln!(out)?;
    statistics(out, &figures.statistics)?;
    locality(out, &figures.habits)?;
    delays(out, "Figure 5: single mails by working set (addresses)", &figures.figure5)?;
    delays(out, "Figure 6: mails to several by max_multi_slack (recipients)", &figures.figure6)?;
    delays(out, "Figure 7: all mails by allowed rate (recipients a minute)", &figures.figure7)?;
    writeln!(out, "\nFigure 8: false alarms a month by stop threshold (entries)")?;
    writeln!(out, "{:>7}  {:>8} {:>8} {:>8} {:>8}", "value", "best", "median", "9 in 10", "worst")?;
    for point in &figures.figure8 {
        writeln!(out, "{:>7}  {}", point.value, spread(&point.alarms_a_month, 2))?;
    }
    writeln!(out, "\nFigure 13: delay queues of 500 users together over a day, two examples")?;
    for day in &figures.figure13 {
        writeln!(out, "  mean {:.2} entries, at most {}", day.mean, day.max)?;
    }
    Ok(())
}

/// Prints Figure 2 in numbers. Figure 1 has a line for each user, which a picture shows better (--plot).
fn locality(out: &mut dyn Write, habits: &Habits) -> anyhow::Result<()> {
    writeln!(out, "\nFigure 2: recipients among the last n addresses, mean over users and standard deviation (%)")?;
    writeln!(out, "{:>7}  {:>17} {:>19}", "n", "mails to one", "mails to several")?;
    for (single, multi) in habits.single_locality.iter().zip(&habits.multi_locality) {
        let cell = |point: &LocalityPoint| format!("{:.1} ± {:.1}", point.mean_percent, point.deviation);
        writeln!(out, "{:>7}  {:>17} {:>19}", single.addresses, cell(single), cell(multi))?;
    }
    Ok(())
}

fn delays(out: &mut dyn Write, title: &str, points: &[DelayPoint]) -> anyhow::Result<()> {
    let users = format!("{:>8} {:>8} {:>8} {:>8}", "best", "median", "9 in 10", "worst");
    writeln!(out, "\n{title}")?;
    writeln!(out, "{:7}  {:^35}   {:^35}   {:^35}", "", "delayed (%)", "mean delay of all (s)", "of the delayed (s)")?;
    writeln!(out, "{:>7}  {users}   {users}   {users}", "value")?;
    for point in points {
        let (all, delayed) = (spread(&point.mean_delay_s, 1), spread(&point.mean_delay_of_delayed_s, 0));
        writeln!(out, "{:>7}  {}   {all}   {delayed}", point.value, spread(&point.delayed_percent, 2))?;
    }
    Ok(())
}

fn spread(spread: &Spread, digits: usize) -> String {
    let Spread { best, median, nine_in_ten, worst } = spread;
    format!("{best:>8.digits$} {median:>8.digits$} {nine_in_ten:>8.digits$} {worst:>8.digits$}")
}

fn statistics(out: &mut dyn Write, seen: &Statistics) -> anyhow::Result<()> {
    let range = |values: &[f64]| {
        format!("{:.0}-{:.0} %, median {:.0} %", quantile(values, 0.0), quantile(values, 1.0), median(values))
    };
    let each = seen.recipients as f64 / (seen.mails as f64).max(1.0);
    writeln!(out, "{:<38} {:>26}  the paper's data", "its mail", "here")?;
    for (what, here, paper) in [
        ("users", seen.users.to_string(), "22"),
        ("years of mail, all users together", format!("{:.1}", seen.years), "18.2"),
        ("mails", seen.mails.to_string(), "33084"),
        ("recipients", seen.recipients.to_string(), "61749"),
        ("recipients a mail", format!("{each:.2}"), "1.87"),
        ("single mails within 5 min of the last", range(&seen.single_within_5_min_percent), "10-40 %"),
        ("multiple mails within 5 min", range(&seen.multi_within_5_min_percent), "5-15 %, one outlier"),
        ("single mails to the last 5 addresses", range(&seen.single_locality_percent), "not pronounced"),
        ("the same of mails to several", range(&seen.multi_locality_percent), "less"),
    ] {
        writeln!(out, "{what:<38} {here:>26}  {paper}")?;
    }
    Ok(())
}

fn users<'a>(out: &mut dyn Write, users: impl Iterator<Item = (&'a str, &'a UserReport)>) -> anyhow::Result<()> {
    let users: Vec<(&str, &UserReport)> = users.collect();
    let width = users.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0).clamp(4, 40);
    let heads =
        format!("{:>7} {:>8} {:>8} {:>7} {:>7} {:>7}", "mails", "at once", "released", "held", "passed", "refused");
    writeln!(out, "{:<width$} {heads} {:>9} {:>9} {:>12}  stopped at", "user", "delayed %", "delay (s)", "if delayed")?;
    for (name, user) in users {
        let stopped = user.stopped_at_s.map_or("-".into(), |s| format!("{s:.1} s"));
        writeln!(
            out,
            "{name:<width$} {:>7} {:>8} {:>8} {:>7} {:>7} {:>7} {:>9.2} {:>9.1} {:>12.1}  {stopped}",
            user.mails,
            user.sent_at_once,
            user.released,
            user.held,
            user.passed,
            user.refused,
            user.delayed_percent,
            user.mean_delay_s,
            user.mean_delay_of_delayed_s,
        )?;
    }
    Ok(())
}

fn said(params: &Params) -> String {
    let period = |period: std::time::Duration| match period.as_secs_f64() {
        s if (s - 60.0).abs() < 1e-9 => "1/min".to_string(),
        s => format!("one in {s} s"),
    };
    let multi = match params.multi_rate_period {
        same if same == params.rate_period => String::new(),
        other => format!(", of mails to several {}", period(other)),
    };
    format!(
        "rate {}{multi}, working set {}, slack {}, multi-slack {}, stop above {}",
        period(params.rate_period),
        params.working_set,
        params.max_slack,
        params.max_multi_slack,
        params.stop_at
    )
}

/// Minutes and seconds, and tenths of a second below ten: 0:02.6, 0:21, 20:30.
fn clock(seconds: f64) -> String {
    if seconds < 9.95 {
        return format!("0:{seconds:04.1}");
    }
    let whole = seconds.round() as u64;
    match whole / 3600 {
        0 => format!("{}:{:02}", whole / 60, whole % 60),
        hours => format!("{hours}:{:02}:{:02}", whole / 60 % 60, whole % 60),
    }
}
