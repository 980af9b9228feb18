//! Names that differ only in capitals.
//!
//! A mail server that vouches for its users hands on what the client typed, and so does Dovecot if it is told to. `ANN` must not have
//! another throttle than `ann`, nor escape her lock. An account of exactly this name counts; then one that differs in capitals alone; then
//! a throttle, for many users have no account here. Of several throttles a stopped one counts, so that no spelling leads around a stop.
//!
//! A throttle may be older than the account and be written otherwise. While it is stopped and has no account of its own, it counts for mail
//! before the account, or else to make an account would end a stop. What people in charge say of a name is about the account all the
//! same; to unlock it ends such a stop as well ([`stops_beside`]). An exempt account has no stop, not this one either.

use weir_store::records::{RecordsError, ThrottleRecords, UserRecords, UserRow};

/// Under which name mail of somebody counts here, if they are known at all.
pub(crate) async fn known_as(
    users: &UserRecords,
    throttles: &ThrottleRecords,
    name: &str,
) -> Result<Option<String>, RecordsError> {
    let Some(account) = account_of(users, name).await? else {
        let alike = throttles.alike(&name.to_lowercase()).await?.into_iter().next();
        // What is a small letter is not the same for every database; exactly this name is.
        return match alike {
            Some((throttle, _)) => Ok(Some(throttle)),
            None => Ok(throttles.find(name).await?.map(|throttle| throttle.identity)),
        };
    };
    if account.profile == "exempt" {
        return Ok(Some(account.name));
    }
    let beside = stops_beside(users, throttles, &account.name).await?.into_iter().next();
    Ok(Some(beside.unwrap_or(account.name)))
}

/// The account that is meant by a name: the one of exactly this name, or the first that differs in capitals alone.
pub(crate) async fn account_of(users: &UserRecords, name: &str) -> Result<Option<UserRow>, RecordsError> {
    if let Some(account) = users.find(name).await? {
        return Ok(Some(account));
    }
    match users.alike(&name.to_lowercase()).await?.first() {
        Some(alike) => users.find(alike).await,
        None => Ok(None),
    }
}

/// Stopped throttles whose names differ from this one in capitals alone, and which have no account of their own.
pub(crate) async fn stops_beside(
    users: &UserRecords,
    throttles: &ThrottleRecords,
    name: &str,
) -> Result<Vec<String>, RecordsError> {
    let alike = throttles.alike(&name.to_lowercase()).await?;
    let mut beside = Vec::new();
    for (throttle, _) in alike.into_iter().filter(|(throttle, stopped)| stopped.is_some() && throttle != name) {
        if users.find(&throttle).await?.is_none() {
            beside.push(throttle);
        }
    }
    Ok(beside)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accounts::guest;
    use weir_store::records::{Changes, Records};

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

    #[tokio::test(flavor = "multi_thread")]
    async fn an_account_counts_before_a_throttle_and_does_not_end_its_stop() {
        let known = Known::new().await;
        known.account("Anna", "person").await;
        known.throttle("anna", false).await;
        let spellings = ["Anna", "anna", "ANNA"];
        for spelled in spellings {
            assert_eq!(known.of(spelled).await, "Anna");
        }
        known.throttle("anna", true).await;
        for spelled in spellings {
            assert_eq!(known.of(spelled).await, "anna", "stopped before there was an account: {spelled}");
        }
        // Two people, each with a throttle of their own.
        known.account("anna", "person").await;
        assert_eq!((known.of("Anna").await, known.of("anna").await), ("Anna".to_owned(), "anna".to_owned()));
        // Nothing stops an exempt account.
        known.account("Bot", "exempt").await;
        known.throttle("bot", true).await;
        assert_eq!(known.of("BOT").await, "Bot");
    }
}
