//! The page of the scan's feeds: how long mail waits, the size limits, and what better limits would bring.

use super::{Asking, PageResult, Sent, Trouble, ended, query};
use crate::frame::{Here, NARROW, Sheet, WIDE, back, empty, numbers, plot, status, times, token};
use crate::html;
use crate::html::Html;
use crate::past::Over;
use crate::session::Visit;
use crate::site::Site;
use crate::words::{count, grouped, percent, rate, seconds, size};
use axum::Extension;
use axum::extract::{RawQuery, State};
use axum::response::Response;
use std::time::Instant;
use weir_chart::{Axis, Chart};
use weir_foundation::Actor;
use weir_foundation::console_accounts::Role;
use weir_mail::scan::{ClassBesideLine, FeedTimes, FeedsStatus, ServiceTimes, TuneView};
use weir_scan::health::Health;

pub(super) async fn page(State(site): State<Site>, Extension(visit): Asking, asked: RawQuery) -> PageResult {
    let Some(feeds) = site.mail.feeds.status().ok().filter(|feeds| feeds.enabled) else {
        let how =
            html!("Set <code>scan.enabled = true</code> and start Weir again; <code>make run</code> does it too.");
        let body = html!("<h1>Feeds</h1>{}", empty("Mail is not scanned.", &how));
        return Ok(Sheet::new("Feeds", Here::Feeds, body).page(&site, &visit).await);
    };
    let proposal = match query(&asked).has("propose") {
        true => match site.mail.feeds.tune(false, &Actor::new("console")).await {
            Ok(tune) => proposed(&visit, &tune),
            Err(error) => html!("<p class=\"said not\" role=\"status\">{}</p>", Trouble::from(error).words()),
        },
        false => html!(
            "<form class=\"actions\"><button name=\"propose\" value=\"yes\">Look for better limits</button></form>\
             <p class=\"faint\">Weir replays the last {} through other limits, which takes a second, and shows what each class would wait. Nothing changes until you say so.</p>",
            count(feeds.remembered as u64, "arrival")
        ),
    };
    let now = Instant::now();
    let over = Over::named(query(&asked).value("over"));
    let history = site.history_over(over).await;
    let scanned = history.rate(|reading| reading.scanned, now).into_iter().map(|(x, y)| (x, y * 60.0));
    let mut traffic = history
        .chart(now, "Messages scanned", ("scanned", "messages/min"))
        .line("scanned", scanned)
        .when_empty("mail would fill this");
    if let Some(most) = feeds.lambda_max_per_s.filter(|most| most * 60.0 < 6_000.0) {
        traffic = traffic.level("the most that these feeds can handle", most * 60.0);
    }
    let waiting = history
        .chart(now, "Messages waiting", ("waiting", "messages"))
        .steps("waiting", history.gauge(|reading| reading.scan_waiting, now))
        .when_empty("mail would fill this");
    let parts = [
        html!("<h1>Feeds</h1><p class=\"lead\">{}</p>", lead(&feeds)),
        figures(&feeds),
        html!("<div class=\"two\">{}{}</div>", plot(&traffic, NARROW), plot(&waiting, NARROW)),
        times("feeds", over),
        beside_one_line(&site.mail.feeds.beside_one_line().await?),
        html!("<section><h2>The feeds</h2>{}</section>", table(&feeds)),
        services(&feeds.services),
        scanners(&feeds.scanners),
        html!("<section><h2 id=\"tune\">Better limits</h2>{}</section>", proposal),
    ];
    Ok(Sheet::live("Feeds", Here::Feeds, &parts).page(&site, &visit).await)
}

/// Each scanner: whether it answers, how old its signatures are, and what should be looked at.
fn scanners(scanners: &[Health]) -> Html {
    if scanners.is_empty() {
        return Html::none();
    }
    let row = |scanner: &Health| {
        let (kind, word) = match (scanner.up, scanner.problem.as_str()) {
            (false, _) => ("down", "down"),
            (true, "") => ("up", "up"),
            (true, _) => ("waiting", "up, look at it"),
        };
        let words = [scanner.problem.as_str(), scanner.advice.as_str()];
        let words: Vec<&str> = words.into_iter().filter(|words| !words.is_empty()).collect();
        html!(
            "<tr><td class=\"main\">{}<br><small>{}</small></td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            scanner.scanner,
            if scanner.address.is_empty() { "in workers of Weir's own" } else { &scanner.address },
            status(kind, word),
            scanner.version,
            scanner.signature_age_s.map_or_else(|| "–".to_owned(), |age| seconds(age as f64)),
            words.join(" ")
        )
    };
    html!(
        "<section><h2 id=\"scanners\">Scanners</h2><div class=\"scroll\" tabindex=\"0\"><table class=\"rows\"><thead><tr><th>Scanner</th><th>State</th><th>Version</th><th>Signatures are</th><th>To look at</th></tr></thead>\
         <tbody>{}</tbody></table></div></section>",
        scanners.iter().map(row).collect::<Html>()
    )
}

/// The scan times of each scanner; empty while none was measured.
fn services(services: &[ServiceTimes]) -> Html {
    if services.is_empty() {
        return Html::none();
    }
    let others = if services.iter().any(|service| service.feed.is_some()) { "all others" } else { "all" };
    let row = |service: &ServiceTimes| {
        html!(
            "<tr><td>{}</td><td>{}</td><td class=\"number\">{}</td><td class=\"number\">{}</td></tr>",
            if service.scanner.is_empty() { "a scan" } else { &service.scanner },
            service.feed.map_or_else(|| others.to_owned(), |feed| feed.to_string()),
            seconds(service.t0_s),
            seconds(service.ts_s_per_byte * 1_048_576.0)
        )
    };
    html!(
        "<section><h2 id=\"services\">What a scan takes</h2><div class=\"scroll\" tabindex=\"0\"><table class=\"rows\"><thead><tr><th>Scanner</th><th>Feed</th>\
         <th class=\"number\">A message</th><th class=\"number\">And each MiB</th></tr></thead><tbody>{}</tbody></table></div></section>",
        services.iter().map(row).collect::<Html>()
    )
}

fn lead(feeds: &FeedsStatus) -> String {
    if let Some(outage) = &feeds.outage {
        let long = seconds(outage.for_s);
        let waiting = count(feeds.unscanned() as u64, "message");
        let problem = outage.problem.trim_end_matches('.');
        return format!("Scans have failed for {long}: {problem}. {waiting} wait, nothing passes unscanned.");
    }
    let waiting = match feeds.unscanned() {
        0 => "No message waits for a worker.".to_owned(),
        waiting => format!("{} wait, the oldest for {}.", count(waiting as u64, "message"), seconds(feeds.oldest_s)),
    };
    match feeds.pending.as_ref().filter(|pending| pending.messages > 0) {
        None => waiting,
        Some(pending) => format!(
            "{waiting} {} for the lab's verdict, the oldest for {}; without one after {} it is {}.",
            match pending.messages {
                1 => "1 message waits".to_owned(),
                many => format!("{many} messages wait"),
            },
            seconds(pending.oldest_s),
            seconds(pending.wait_s as f64),
            if pending.then == "pass" { "delivered with a mark" } else { "quarantined" }
        ),
    }
}

fn figures(feeds: &FeedsStatus) -> Html {
    numbers(&[
        ("arriving", rate(feeds.lambda_per_s)),
        ("these feeds bear", feeds.lambda_max_per_s.map_or_else(|| "not known yet".to_owned(), rate)),
        (
            "a scan takes",
            format!("{} and {} for each MiB", seconds(feeds.t0_s), seconds(feeds.ts_s_per_byte * 1_048_576.0)),
        ),
        ("under way", grouped(feeds.under_way as u64)),
        ("came", grouped(feeds.counts.arrived)),
        ("passed", grouped(feeds.counts.passed)),
        ("quarantined", grouped(feeds.counts.quarantined)),
        ("attempts failed", grouped(feeds.counts.failed)),
    ])
}

/// The sizes between two limits.
fn range(from: Option<u64>, to: Option<u64>) -> String {
    match (from, to) {
        (None, Some(to)) => format!("up to {}", size(to)),
        (Some(from), Some(to)) => format!("{} to {}", size(from), size(to)),
        (Some(from), None) => format!("over {}", size(from)),
        (None, None) => "every size".to_owned(),
    }
}

fn table(feeds: &FeedsStatus) -> Html {
    let mut from = None;
    let mut row = |(feed, class): (&FeedTimes, Option<&FeedTimes>)| {
        let sizes = range(from, feed.up_to);
        from = feed.up_to.or(from);
        // With shortest first, mail waits by class: there is one queue, and no feed has its own.
        let waiting = feed.waiting.or_else(|| class?.waiting);
        html!(
            "<tr><td>{}</td><td class=\"number\">{}</td><td class=\"number\">{}</td><td class=\"number\">{}</td><td class=\"number\">{}</td><td class=\"number\">{}</td><td class=\"number\">{}</td></tr>",
            sizes,
            feed.workers.map(|workers| grouped(workers as u64)),
            waiting.map(|waiting| grouped(waiting as u64)),
            grouped(feed.scanned),
            seconds(feed.wait.mean_s),
            seconds(feed.wait.p95_s),
            seconds(feed.scan.mean_s)
        )
    };
    let rows: Html = feeds.feeds.iter().enumerate().map(|(at, feed)| row((feed, feeds.classes.get(at)))).collect();
    let strategy = match feeds.strategy.as_str() {
        "size" => "by size alone",
        "size-load" => "by size and load",
        _ => "the shortest first",
    };
    html!(
        "<div class=\"scroll\" tabindex=\"0\"><table class=\"rows\"><thead><tr><th>Messages of</th><th class=\"number\">Workers</th><th class=\"number\">Waiting</th><th class=\"number\">Scanned</th>\
         <th class=\"number\">Mean wait</th><th class=\"number\">95 % wait less than</th><th class=\"number\">Mean scan</th></tr></thead><tbody>{}</tbody></table></div>\
         <p class=\"faint\">A message finds its worker {}. {} {}{}docs/algorithms/feeds.md explains it.</p>",
        rows,
        strategy,
        match (feeds.auto_tune, feeds.tuned) {
            (true, _) => "The limits are adapted to the traffic automatically.",
            (false, true) => "The limits were found by tuning.",
            (false, false) => "The limits are those of the configuration.",
        },
        match (feeds.open, feeds.kept_feeds) {
            (true, _) =>
                "For now every worker takes every size, because the limits would not save any waiting. ".to_owned(),
            (_, Some(1)) => {
                "For now one feed is reserved for small messages, and all other workers take every size: all limits would save less. "
                    .to_owned()
            }
            (_, Some(kept)) => format!(
                "For now {kept} feeds are reserved for small messages, and the other workers take every size: all limits would save less. "
            ),
            _ => String::new(),
        },
        match feeds.saved.filter(|_| !feeds.open) {
            Some(saved) => format!(
                "Lately the limits saved {} of the time that one line would have held mail up. ",
                percent(saved)
            ),
            None => String::new(),
        }
    )
}

/// How long each class of size waits, and how long the same mail would have waited in one line before the same workers.
fn beside_one_line(classes: &[ClassBesideLine]) -> Html {
    if classes.is_empty() {
        return Html::none();
    }
    let mut from = None;
    let mut row = |class: &ClassBesideLine| {
        let sizes = range(from, class.up_to);
        from = class.up_to.or(from);
        html!(
            "<tr><td>{}</td><td class=\"number\">{}</td><td class=\"number\">{}</td><td class=\"number\">{}</td><td class=\"number\">{}</td><td class=\"number\">{}</td></tr>",
            sizes,
            grouped(class.messages as u64),
            seconds(class.mean_wait_s),
            seconds(class.line_mean_wait_s),
            seconds(class.p95_wait_s),
            seconds(class.line_p95_wait_s)
        )
    };
    let rows: Html = classes.iter().map(&mut row).collect();
    let points = |wait: fn(&ClassBesideLine) -> f64| {
        let place = |(at, class)| (at as f64 + 1.0, wait(class) * 1e3);
        classes.iter().enumerate().map(place).collect::<Vec<_>>()
    };
    let x = Axis::linear("class of size, the smallest first", "").range(0.5, classes.len() as f64 + 0.5);
    let chart = Chart::new("Mean wait by class of size", x, Axis::linear("mean wait", "ms").range(0.0, 1.0))
        .dots("in these feeds", points(|class| class.mean_wait_s))
        .dots("in one line", points(|class| class.line_mean_wait_s));
    let count_of: usize = classes.iter().map(|class| class.messages).sum();
    html!(
        "<section><h2>Beside one line</h2><div class=\"two\">{}<div class=\"scroll\" tabindex=\"0\"><table class=\"rows\"><thead><tr><th>Messages of</th><th class=\"number\">Came</th>\
         <th class=\"number\">Mean wait</th><th class=\"number\">In one line</th><th class=\"number\">95 % less than</th><th class=\"number\">In one line</th></tr></thead><tbody>{}</tbody></table></div></div>\
         <p class=\"faint\">The last {} are replayed, through these feeds and through one line before the same workers.</p></section>",
        plot(&chart, NARROW),
        rows,
        count(count_of as u64, "arrival")
    )
}

fn proposed(visit: &Visit, tune: &TuneView) -> Html {
    let class = |(today, better): (&weir_mail::scan::ClassWait, &weir_mail::scan::ClassWait)| {
        html!(
            "<tr><td class=\"number\">{}</td><td class=\"number\">{}</td><td class=\"number\">{}</td><td class=\"number\">{}</td><td class=\"number\">{}</td><td class=\"number\">{}</td></tr>",
            today.up_to.map_or_else(|| "no limit".to_owned(), size),
            percent(today.share),
            seconds(today.mean_wait_s),
            better.up_to.map_or_else(|| "no limit".to_owned(), size),
            percent(better.share),
            seconds(better.mean_wait_s)
        )
    };
    let rows: Html = tune.today.classes.iter().zip(&tune.proposed.classes).map(class).collect();
    let points = |predicted: &weir_mail::scan::Predicted, shift: f64| {
        let waits: Vec<(f64, f64)> = predicted
            .classes
            .iter()
            .enumerate()
            .map(|(at, class)| (at as f64 + 1.0 + shift, class.mean_wait_s * 1e3))
            .collect();
        waits
    };
    let waits =
        Chart::new("Predicted mean wait by class", Axis::linear("class of size", ""), Axis::linear("mean wait", "ms"))
            .dots("today", points(&tune.today, 0.0))
            .dots("proposed", points(&tune.proposed, 0.0));
    let apply = if visit.may(Role::Admin) {
        html!(
            "<form class=\"actions\" method=\"post\" action=\"/feeds/tune\">{}{}<button class=\"main\">Apply these limits</button></form>",
            token(visit),
            back("/feeds")
        )
    } else {
        html!("<p class=\"faint\">An administrator can apply them.</p>")
    };
    html!(
        "<p>{} With these limits the mean wait of the last {} would have been {} instead of {}.</p>{}<div class=\"scroll\" tabindex=\"0\"><table class=\"rows\"><thead>\
         <tr><th class=\"number\">Limit today</th><th class=\"number\">Share</th><th class=\"number\">Mean wait</th><th class=\"number\">Proposed limit</th><th class=\"number\">Share</th><th class=\"number\">Mean wait</th></tr></thead>\
         <tbody>{}</tbody></table></div>{}",
        if tune.better {
            "They save enough to be worth it."
        } else {
            "They save little: today's limits are about as good."
        },
        count(tune.arrivals as u64, "message"),
        seconds(tune.proposed.mean_wait_s),
        seconds(tune.today.mean_wait_s),
        plot(&waits, WIDE),
        rows,
        apply
    )
}

pub(super) async fn apply(State(site): State<Site>, Extension(visit): Asking, Extension(sent): Sent) -> Response {
    let words = site.mail.feeds.tune(true, &visit.actor()).await.map(|tune| {
        let limits: Vec<String> = tune.proposed.classes.iter().filter_map(|class| class.up_to).map(size).collect();
        match limits.is_empty() {
            true => "The limits are now none: every feed takes every size.".to_owned(),
            false => format!("The limits are now {}; the other feeds take every size.", limits.join(", ")),
        }
    });
    ended(&site, &visit, &sent, ("/feeds", words))
}
