//! Tests with kills at random moments: nothing is lost, nothing is delivered unscanned, and no message can crash the process again and
//! again.

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
    life.pipeline.stop(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn an_orderly_stop_is_no_attempt() {
    let folder = home();
    let life = Life::new(&folder, Settings::default()).await;
    life.send(submitted(), "poison body").await;
    let mut life = life;
    for _ in 0..8 {
        life.until(|life| life.plan.under_way.load(Ordering::SeqCst) == 1).await;
        life.pipeline.stop(Duration::ZERO).await;
        drop(life);
        life = Life::new(&folder, Settings::default()).await;
        life.take_up();
    }
    life.until(|life| life.plan.under_way.load(Ordering::SeqCst) == 1).await;
    assert!(life.rows().await.is_empty());
    life.pipeline.stop(Duration::ZERO).await;
}

/// What happens between two kills: messages by the first word of their body, then so many milliseconds.
type Episode = (Vec<&'static str>, u64);

async fn check(episodes: Vec<Episode>) -> Result<(), String> {
    let folder = home();
    let settings = || Settings { attempts: 50, ..Settings::default() };
    let (mut sent, mut books): (BTreeMap<MessageId, &str>, Books) = Default::default();
    let kills = episodes.len();
    for (bodies, millis) in episodes {
        let life = Life::with(&folder, settings(), slow()).await;
        life.take_up();
        for body in bodies {
            sent.insert(life.send(submitted(), body).await, body);
        }
        tokio::time::sleep(Duration::from_millis(millis)).await;
        books.lives.push((Arc::clone(&life.sink.came), Arc::clone(&life.plan)));
        life.kill();
    }
    // The spool opens only when the last task of the life before has ended: then its books are closed.
    let life = Life::with(&folder, settings(), slow()).await;
    books.lives.push((Arc::clone(&life.sink.came), Arc::clone(&life.plan)));
    life.take_up();
    life.settle().await;
    let kept: BTreeSet<String> = life.rows().await.into_iter().map(|row| row.message).collect();
    life.pipeline.stop(Duration::from_secs(5)).await;
    let (out, scans) = books.add_up()?;
    for (id, body) in &sent {
        let (went, stayed) = (out.contains(id), kept.contains(&id.to_string()));
        if went == stayed || stayed != (*body == "virus") {
            return Err(format!("{id} ({body}): out {went}, kept {stayed}"));
        }
    }
    match scans.iter().find(|(_, count)| **count > kills + 1) {
        Some((id, count)) => Err(format!("{id} was scanned {count} times in {kills} kills")),
        None => Ok(()),
    }
}

fn slow() -> Planned {
    Planned { t0_ts_s: (0.003, 0.0), ..Planned::default() }
}

/// What came out of one life.
type CameOut = Arc<Mutex<Vec<Came>>>;

/// What came out of each life, and what was scanned in it.
#[derive(Default)]
struct Books {
    lives: Vec<(CameOut, Arc<Planned>)>,
}

impl Books {
    /// Everything that went out, which must have been scanned by then, and how often each message was scanned.
    fn add_up(&self) -> Result<(BTreeSet<MessageId>, BTreeMap<String, usize>), String> {
        let (mut out, mut scans) = (BTreeSet::new(), BTreeMap::<String, usize>::new());
        for (came, plan) in &self.lives {
            plan.seen().into_iter().for_each(|(id, _)| *scans.entry(id).or_default() += 1);
            for (id, ..) in came.lock().unwrap().iter() {
                if !scans.contains_key(&id.to_string()) {
                    return Err(format!("{id} went out unscanned"));
                }
                out.insert(*id);
            }
        }
        Ok((out, scans))
    }
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
