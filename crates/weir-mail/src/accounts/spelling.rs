//! Names that differ only in capitals.
//!
//! A mail server that vouches for its users hands on what the client typed, and so does Dovecot if it is told to. `ANN` must not have
//! another throttle than `ann`, nor escape her lock. An account of exactly this name counts; then one that differs in capitals alone; then
//! a throttle, for many users have no account here. Of several throttles a stopped one counts, so that no spelling leads around a stop.

use weir_store::records::{RecordsError, ThrottleRecords, UserRecords};

/// Under which name somebody is known here, if at all.
pub(crate) async fn known_as(
    users: &UserRecords,
    throttles: &ThrottleRecords,
    name: &str,
) -> Result<Option<String>, RecordsError> {
    if users.find(name).await?.is_some() {
        return Ok(Some(name.to_owned()));
    }
    let lower = name.to_lowercase();
    if let Some(account) = users.alike(&lower).await?.into_iter().next() {
        return Ok(Some(account));
    }
    if let Some((throttle, _)) = throttles.alike(&lower).await?.into_iter().next() {
        return Ok(Some(throttle));
    }
    // What is a small letter is not the same for every database; exactly this name is.
    Ok(throttles.find(name).await?.map(|throttle| throttle.identity))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accounts::guest;
    use weir_store::records::{Changes, Records, UserRow};

    struct Known {
        records: Records,
        _folder: tempfile::TempDir,
    }

    impl Known {
        async fn new() -> Known {
            let folder = tempfile::tempdir().unwrap();
            Known { records: Records::sqlite(&folder.path().join("records.db")).await.unwrap(), _folder: folder }
        }

        async fn account(&self, name: &str, profile: &str) {
            let user = UserRow { profile: profile.to_owned(), ..guest(name) };
            assert!(self.records.users().add(&user).await.unwrap());
        }

        async fn throttle(&self, name: &str, is_stopped: bool) {
            let (throttles, name) = (self.records.throttles(), [name.to_owned()]);
            let decided = throttles.decide(&name, |rows| {
                rows[0].stopped_at = is_stopped.then_some(7);
                (Changes::default(), ())
            });
            decided.await.unwrap();
        }

        async fn of(&self, name: &str) -> String {
            let known = known_as(&self.records.users(), &self.records.throttles(), name).await.unwrap();
            known.unwrap_or_else(|| "nobody".to_owned())
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn letters_outside_ascii_have_capitals_too() {
        let known = Known::new().await;
        known.account("Ärger", "person").await;
        known.throttle("Öl", false).await;
        known.throttle("ÖL@example.org", false).await;
        known.throttle("öl@example.org", true).await;
        for (spelled, is) in [
            ("Ärger", "Ärger"),
            ("ärger", "Ärger"),
            ("ÄRGER", "Ärger"),
            ("Öl", "Öl"),
            ("ÖL", "Öl"),
            ("Öl@Example.org", "öl@example.org"),
            ("ÖL@example.org", "öl@example.org"),
            ("arger", "nobody"),
            ("Ä", "nobody"),
        ] {
            assert_eq!(known.of(spelled).await, is, "{spelled}");
        }
    }
}
