//! Kills at random moments: nothing is lost, nothing goes out unscanned, no message can end the process for ever.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

#[tokio::test]
async fn a_message_whose_scan_never_survives_ends_in_the_error_queue() {
    let folder = home();
    let life = Life::new(&folder, Settings::default()).await;
    let poison = life.send(submitted(), "poison body").await;
    let mut lives = 0;
    let mut life = life;
    loop {
        life.until(|life| life.plan.under_way.load(Ordering::SeqCst) == 1 || life.spool.stats().messages == 0).await;
        if life.spool.stats().messages == 0 {
            break;
        }
        lives += 1;
        life.kill();
        life = Life::new(&folder, Settings::default()).await;
        life.take_up();
    }
    assert_eq!(lives, 5);
    let rows = life.rows().await;
    assert!(rows.iter().all(|row| row.message == poison.to_string() && row.queue == "error"), "{rows:?}");
    assert!(rows[0].reason.contains("interrupted 5 times") && life.sink.came().is_empty());
    life.stage.stop(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn an_orderly_stop_is_no_attempt() {
    let folder = home();
    let life = Life::new(&folder, Settings::default()).await;
    life.send(submitted(), "poison body").await;
    let mut life = life;
    for _ in 0..8 {
        life.until(|life| life.plan.under_way.load(Ordering::SeqCst) == 1).await;
        life.stage.stop(Duration::ZERO).await;
        drop(life);
        life = Life::new(&folder, Settings::default()).await;
        life.take_up();
    }
    life.until(|life| life.plan.under_way.load(Ordering::SeqCst) == 1).await;
    assert!(life.rows().await.is_empty());
    life.stage.stop(Duration::ZERO).await;
}

/// What happens between two kills: messages by the first word of their body, then so many milliseconds.
type Episode = (Vec<&'static str>, u64);

async fn check(episodes: Vec<Episode>) -> Result<(), String> {
    let folder = home();
    let settings = || Settings { attempts: 50, ..Settings::default() };
    let (mut sent, mut scans): (BTreeMap<MessageId, &str>, BTreeMap<String, usize>) = Default::default();
    let mut out = BTreeMap::<MessageId, usize>::new();
    let kills = episodes.len();
    for (bodies, millis) in episodes.into_iter().chain([(Vec::new(), u64::MAX)]) {
        let plan = Planned { t0_ts_s: (0.003, 0.0), ..Planned::default() };
        let life = Life::with(&folder, settings(), plan).await;
        life.take_up();
        for body in bodies {
            sent.insert(life.send(submitted(), body).await, body);
        }
        if millis == u64::MAX {
            life.settle().await;
        } else {
            tokio::time::sleep(Duration::from_millis(millis)).await;
        }
        life.plan.seen().into_iter().for_each(|(id, _)| *scans.entry(id).or_default() += 1);
        for (id, ..) in life.sink.came() {
            *out.entry(id).or_default() += 1;
            if !scans.contains_key(&id.to_string()) {
                return Err(format!("{id} went out unscanned"));
            }
        }
        if millis == u64::MAX {
            let kept: BTreeSet<String> = life.rows().await.into_iter().map(|row| row.message).collect();
            for (id, body) in &sent {
                let (went, stayed) = (out.contains_key(id), kept.contains(&id.to_string()));
                if went == stayed || stayed != (*body == "virus") {
                    return Err(format!("{id} ({body}): out {went}, kept {stayed}"));
                }
            }
            if let Some((id, count)) = scans.iter().find(|(_, count)| **count > kills + 1) {
                return Err(format!("{id} was scanned {count} times in {kills} kills"));
            }
            life.stage.stop(Duration::from_secs(5)).await;
            return Ok(());
        }
        life.kill();
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn kills_lose_nothing_and_let_nothing_out_unscanned(
        episodes in proptest::collection::vec(
            (proptest::collection::vec(prop_oneof![Just("clean"), Just("virus")], 0..12), 0_u64..25), 1..5)
    ) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(check(episodes)).map_err(TestCaseError::fail)?;
    }
}
