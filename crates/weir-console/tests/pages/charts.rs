//! Charts and how far they look back.

use super::house::house;
use std::time::{SystemTime, UNIX_EPOCH};
use weir_store::past::{Past, PastStep};

#[tokio::test]
async fn charts_look_back_as_far_as_one_asks_over_a_restart_too() {
    let house = house().await;
    let foundation = &house.administration.foundation;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64;
    // What a former life wrote down.
    let past = Past::new(foundation.records.clone(), foundation.folder.past(), &foundation.relay);
    let (minute, hour) = (now - 7_200 - now % 60, now - 90 * 86_400 - now % 3_600);
    past.write(PastStep::Minute, minute, r#"{"held":4711.0}"#).await.unwrap();
    past.write(PastStep::Hour, hour, r#"{"held":90210.0}"#).await.unwrap();
    let session = house.as_role("olga").await;
    for (page, ago, peak) in
        [("?over=day", "−24 h", ">5000<"), ("?over=week", "−8 d", ">5000<"), ("?over=year", "−365 d", ">100k<")]
    {
        let text = house.get(&format!("/throttle{page}"), &session).await.text;
        assert!(text.contains(ago) && text.contains(peak), "{page}: {text}");
        let text = house.get(&format!("/{page}"), &session).await.text;
        assert!(text.contains(ago) && text.contains("id=\"gate-throttle\""), "{page}: {text}");
    }
    for page in ["/throttle", "/throttle?over=", "/throttle?over=nonsense", "/"] {
        let text = house.get(page, &session).await.text;
        assert!(text.contains("10 minutes</a>") && !text.contains(">5000<") && !text.contains("−24 h"), "{page}");
    }
}
