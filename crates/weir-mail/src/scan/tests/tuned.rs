//! Compares the predictions of the tuning with what is measured, under a virtual clock.

use super::*;
use weir_chart::{Axis, Chart, sheet};
use weir_core::feeds::{Limits, Plan, Strategy};

/// t0 and ts of the paper's first server, with sizes a tenth of the paper's: fewer bytes to write, the same times.
const T0_TS_S: (f64, f64) = (0.1, 0.002);

/// A stream of mail: when each message comes, and its size.
struct Mail {
    state: u64,
    lambda_per_s: f64,
    /// The share of large messages, and the size of small and large ones.
    mix: (f64, f64, f64),
}

impl Mail {
    fn unit(&mut self) -> f64 {
        self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.state >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn next(&mut self) -> (Duration, usize) {
        let gap = -(1.0 - self.unit()).ln() / self.lambda_per_s;
        let bell = (0..12).map(|_| self.unit()).sum::<f64>() - 6.0;
        let (large, small_size, large_size) = self.mix;
        let size = if self.unit() < large { large_size } else { small_size } * (1.0 + 0.2 * bell);
        (Duration::from_secs_f64(gap), size.max(8.0) as usize)
    }
}

fn settings(limits: &[u64], auto_tune: bool) -> Settings {
    let plan = Plan::new(Limits::new(limits.to_vec()).unwrap(), Strategy::Shortest);
    // Scans that sleep share no processor.
    Settings { plan, cpus: 64, auto_tune, ..Settings::default() }
}

/// Sends so many messages and waits until all are scanned; the wait of each in seconds, and when it came.
async fn run(life: &Life, mail: &mut Mail, count: usize) -> Vec<(f64, f64)> {
    run_with_sizes(life, mail, count).await.into_iter().map(|(wait, came, _)| (wait, came)).collect()
}

/// The same, with the size of each.
async fn run_with_sizes(life: &Life, mail: &mut Mail, count: usize) -> Vec<(f64, f64, usize)> {
    let mut came = BTreeMap::new();
    let body = "clean ".repeat(200_000);
    let begun = life.stage.shared.begun.1;
    let before = life.plan.seen().len();
    // Written in bunches ahead of time: the disk has a clock of its own.
    for bunch in 0..count.div_ceil(500) {
        let size = 500.min(count - bunch * 500);
        tokio::time::resume();
        let mut letters = Vec::new();
        for chunk in (0..size).map(|_| mail.next()).collect::<Vec<_>>().chunks(50) {
            let mut writing = tokio::task::JoinSet::new();
            for (order, (gap, size)) in chunk.iter().copied().enumerate() {
                let letter = letter(LetterOrigin::Submitted, &format!("user{}", order % 7), 1);
                let (spool, text) = (life.spool.clone(), body[..size.min(body.len())].to_owned());
                writing.spawn(async move {
                    let mut draft = spool.draft().unwrap();
                    draft.write(text.as_bytes()).await.unwrap();
                    (order, (gap, size), draft.commit(letter.write()).await.unwrap(), letter)
                });
            }
            let mut written = writing.join_all().await;
            written.sort_by_key(|(order, ..)| *order);
            letters.extend(written);
        }
        tokio::time::pause();
        for (_, (gap, size), id, letter) in letters {
            tokio::time::sleep(gap).await;
            came.insert(id.to_string(), (tokio::time::Instant::now(), size));
            life.pipeline.send(Transit { id, letter: Arc::new(letter), places: vec![0] });
        }
    }
    while life.stage.feeds_status().under_way + life.stage.feeds_status().waiting > 0 {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let seen = life.plan.seen();
    let wait = |(id, at): &(String, tokio::time::Instant)| {
        let (came, size) = came.get(id)?;
        Some(((*at - *came).as_secs_f64(), (*came - begun).as_secs_f64(), *size))
    };
    seen[before..].iter().filter_map(wait).collect()
}

fn mean(waits: &[(f64, f64)]) -> f64 {
    waits.iter().map(|(wait, _)| wait).sum::<f64>() / waits.len().max(1) as f64
}

#[tokio::test]
async fn the_predicted_mean_wait_is_the_measured_one_within_a_fifth() {
    let folder = home();
    let plan = Planned { t0_ts_s: T0_TS_S, ..Planned::default() };
    // About seven tenths of what feeds with these limits bear: the larger half of the large has one feed.
    let life = Life::with(&folder, settings(&[200, 1_000, 5_000, 25_000], false), plan).await;
    tokio::time::pause();
    let mut mail = Mail { state: 11, lambda_per_s: 1.2, mix: (0.1, 200.0, 5_000.0) };
    let measured = mean(&run(&life, &mut mail, 10_000).await);
    let status = life.stage.feeds_status();
    assert!((status.t0_s / T0_TS_S.0 - 1.0).abs() < 0.05, "{}", status.t0_s);
    assert!((status.ts_s_per_byte / T0_TS_S.1 - 1.0).abs() < 0.05, "{}", status.ts_s_per_byte);
    let times = |of: &ServiceTimes| (of.t0_s / T0_TS_S.0 - 1.0).abs() < 0.05 && of.feed.is_none();
    assert_eq!(status.services.iter().map(|of| of.scanner.as_str()).collect::<Vec<_>>(), ["", "plan"]);
    assert!(status.services.iter().all(times), "{:?}", status.services);
    let load = mail.lambda_per_s / status.lambda_max_per_s.unwrap();
    let tuned = in_real_time(life.stage.feeds_tune(true, "test")).await.unwrap();
    eprintln!("load {load:.2}: predicted {:.4} s, measured {measured:.4} s", tuned.today.mean_wait_s);
    assert!((tuned.today.mean_wait_s / measured - 1.0).abs() < 0.2, "{} {measured}", tuned.today.mean_wait_s);
    // And of limits that nothing has been measured with, on mail that no search has seen.
    let after = mean(&run(&life, &mut mail, 10_000).await);
    eprintln!(
        "limits {:?}: predicted {:.4} s, measured {after:.4} s",
        tuned.proposed.limits, tuned.proposed.mean_wait_s
    );
    assert!((tuned.proposed.mean_wait_s / after - 1.0).abs() < 0.2, "{} {after}", tuned.proposed.mean_wait_s);
    assert!(after < measured && (0.6..0.8).contains(&load), "{after} {measured} {load}");
    let configured = Limits::new(vec![200, 1_000, 5_000, 25_000]).unwrap();
    let values = life.records.values();
    let stored = in_real_time(stored_limits(&values, "r1", &configured)).await.unwrap().unwrap();
    assert_eq!(stored.bytes(), tuned.proposed.limits, "they survive a restart");
    let other = Limits::new(vec![1, 2, 3, 4]).unwrap();
    let changed = in_real_time(stored_limits(&values, "r1", &other)).await.unwrap();
    assert_eq!(changed, None, "unless the configuration changes");
    life.pipeline.stop(Duration::from_secs(5)).await;
}

/// What the same mail would wait in one line, first come, first served, before so many workers.
fn mean_in_one_line(mail: &[(f64, f64, usize)], workers: usize) -> f64 {
    let mut mail = mail.to_vec();
    mail.sort_by(|a, b| a.1.total_cmp(&b.1));
    let (mut free_at, mut total) = (vec![0.0_f64; workers], 0.0);
    for (_, came, size) in &mail {
        let next = (0..workers).min_by(|a, b| free_at[*a].total_cmp(&free_at[*b])).unwrap();
        let start = free_at[next].max(*came);
        free_at[next] = start + T0_TS_S.0 + T0_TS_S.1 * *size as f64;
        total += start - came;
    }
    total / mail.len() as f64
}

#[tokio::test]
async fn by_default_mail_waits_no_longer_than_in_one_line() {
    let folder = home();
    let plan = Planned { t0_ts_s: T0_TS_S, ..Planned::default() };
    let usual = Settings::default();
    // The limits of the configuration for sizes a tenth of the usual; all else is as it is shipped.
    let limits = Limits::new(usual.plan.limits.bytes().iter().map(|limit| limit / 10).collect()).unwrap();
    let settings = Settings { plan: Plan { limits, ..usual.plan.clone() }, cpus: 64, auto_tune: false, ..usual };
    let life = Life::with(&folder, settings, plan).await;
    tokio::time::pause();
    let mut mail = Mail { state: 7, lambda_per_s: 0.75, mix: (0.1, 200.0, 5_000.0) };
    // A little mail, much mail, and mail that is all too large for the first feeds.
    for (lambda_per_s, mix) in
        [(0.75, (0.1, 200.0, 5_000.0)), (2.2, (0.1, 200.0, 5_000.0)), (0.2, (0.3, 6_000.0, 16_000.0))]
    {
        (mail.lambda_per_s, mail.mix) = (lambda_per_s, mix);
        let waits = run_with_sizes(&life, &mut mail, 3_000).await;
        let feeds = waits.iter().map(|(wait, ..)| wait).sum::<f64>() / waits.len() as f64;
        let line = mean_in_one_line(&waits, 5);
        eprintln!("{lambda_per_s} a second: feeds {feeds:.4} s, one line {line:.4} s");
        assert!(feeds <= (1.03 * line).max(line + 0.001), "{lambda_per_s}: {feeds} {line}");
    }
    assert!(
        life.stage.feeds_status().open,
        "limits that would keep four of five workers from all mail are not in force"
    );
    life.pipeline.stop(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn when_the_mix_shifts_the_limits_follow_and_the_wait_falls() {
    let mut results = Vec::new();
    for auto_tune in [false, true] {
        let folder = home();
        let plan = Planned { t0_ts_s: T0_TS_S, ..Planned::default() };
        let life = Life::with(&folder, settings(&[700, 15_000, 18_000, 25_000], auto_tune), plan).await;
        tokio::time::pause();
        let mut mail = Mail { state: 5, lambda_per_s: 1.6, mix: (0.1, 200.0, 5_000.0) };
        let mut waits = run(&life, &mut mail, 4_000).await;
        // The small are larger now, so that all of them miss the feed that was kept for them, and rarer come the large.
        (mail.lambda_per_s, mail.mix) = (0.4, (0.12, 1_600.0, 16_000.0));
        let shifted = waits.last().unwrap().1;
        waits.extend(run(&life, &mut mail, 8_000).await);
        let limits = life.stage.feeds_status().limits;
        let late = mean(&waits[waits.len() - 4_000..]);
        life.pipeline.stop(Duration::from_secs(5)).await;
        tokio::time::resume();
        results.push((waits, shifted, limits, late));
    }
    plot(&results);
    let [(.., fixed_limits, fixed), (.., tuned_limits, tuned)] = &results[..] else { panic!() };
    eprintln!("after the shift: fixed {fixed:.3} s, tuned {tuned:.3} s with {tuned_limits:?}");
    assert_eq!(fixed_limits, &[700, 15_000, 18_000, 25_000]);
    assert!(tuned_limits != fixed_limits && *tuned < 0.8 * fixed, "{tuned} {fixed}");
}

type Run = (Vec<(f64, f64)>, f64, Vec<u64>, f64);

/// The mean wait of each quarter of an hour, with and without tuning.
fn plot(results: &[Run]) {
    let mut chart =
        Chart::new("Mean wait of a quarter of an hour", Axis::linear("time", "h"), Axis::linear("mean wait", "s"));
    for (name, (waits, ..)) in ["fixed limits", "auto-tuned"].into_iter().zip(results) {
        let mut quarters: BTreeMap<u64, (f64, u32)> = BTreeMap::new();
        for (wait, at) in waits {
            let (sum, count) = quarters.entry((at / 900.0) as u64).or_default();
            (*sum, *count) = (*sum + wait, *count + 1);
        }
        chart = chart.line(name, quarters.iter().map(|(at, (sum, n))| (*at as f64 / 4.0, sum / f64::from(*n))));
    }
    let chart =
        results.first().map_or(chart.clone(), |(_, shifted, ..)| chart.mark("the mix shifts", shifted / 3600.0));
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/plots");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("auto_tune.svg"), sheet("Limits that follow the traffic", &[chart])).unwrap();
}
