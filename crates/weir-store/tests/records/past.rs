//! The past of a site on both databases.

use weir_store::past::{Past, PastStep};
use weir_store::records::Records;

pub(crate) async fn kept_and_bounded(records: Records) {
    let folder = tempfile::tempdir().unwrap();
    let past = |relay: &str| Past::new(records.clone(), folder.path().join("past.db"), relay);
    let (one, two) = (past("one"), past("two"));
    let week = 7 * 86_400;
    for (at, figures) in [(0, "a"), (60, "b"), (60, "c"), (120, "d")] {
        one.write(PastStep::Minute, at, figures).await.unwrap();
    }
    one.write(PastStep::Hour, 0, "hour").await.unwrap();
    two.write(PastStep::Minute, 60, "another relay").await.unwrap();
    let rows = |from| {
        let past = past("one");
        async move { past.since(PastStep::Minute, from).await.unwrap() }
    };
    let row = |at: i64, figures: &str| (at, figures.to_owned());
    assert_eq!(rows(60).await, [row(60, "c"), row(120, "d")], "the last word of a minute counts");
    one.write(PastStep::Minute, 60 + week, "e").await.unwrap();
    assert_eq!(rows(0).await, [row(60, "c"), row(120, "d"), row(60 + week, "e")], "a week is kept");
    assert_eq!(one.since(PastStep::Hour, 0).await.unwrap(), [row(0, "hour")], "and an hour for longer");
    assert_eq!(two.since(PastStep::Minute, 0).await.unwrap(), [row(60, "another relay")]);
}
