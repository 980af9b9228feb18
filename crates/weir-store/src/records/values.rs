//! Small values that a relay stores for itself, or that all relays share: computed limits, bans, when something was last done.

use super::{Database, RecordsError, read, write};

/// Single values, each by relay and name. Cheap to clone.
#[derive(Debug, Clone)]
pub struct ValueRecords {
    pub(in crate::records) db: Database,
}

impl ValueRecords {
    /// A value that a relay keeps for itself, such as the limits that it found; None if it never stored one.
    pub async fn get(&self, relay: &str, name: &str) -> Result<Option<String>, RecordsError> {
        Ok(read!(self, pool => sqlx::query_scalar("select value from kept where relay = $1 and name = $2")
            .bind(relay).bind(name).fetch_optional(pool).await?))
    }

    /// Stores such a value.
    pub async fn set(&self, relay: &str, name: &str, value: &str) -> Result<(), RecordsError> {
        write!(self, pool => sqlx::query(
            "insert into kept (relay, name, value) values ($1, $2, $3) on conflict (relay, name) do update set value = excluded.value")
            .bind(relay).bind(name).bind(value).execute(pool).await.map(drop)?);
        Ok(())
    }

    /// Stores such a value if the stored one is still `was`, or if there still is none. Returns whether it did. So a value that several
    /// relays read, change and write loses no change: whoever comes too late reads it again.
    pub async fn replace(&self, relay: &str, name: &str, was: Option<&str>, value: &str) -> Result<bool, RecordsError> {
        let stored = match was {
            None => write!(self, pool => sqlx::query(
                "insert into kept (relay, name, value) values ($1, $2, $3) on conflict (relay, name) do nothing")
                .bind(relay).bind(name).bind(value).execute(pool).await?.rows_affected()),
            Some(was) => write!(self, pool => sqlx::query(
                "update kept set value = $3 where relay = $1 and name = $2 and value = $4")
                .bind(relay).bind(name).bind(value).bind(was).execute(pool).await?.rows_affected()),
        };
        Ok(stored == 1)
    }

    /// Takes the turn for something that `relay` does now and then, or all relays together if that is empty. Returns when it was taken last. None if
    /// that was after `before`, or if another was faster, or the first time: then the time begins to count.
    pub async fn take_turn(&self, relay: &str, name: &str, before: i64, now: i64) -> Result<Option<i64>, RecordsError> {
        let Some(last) = self.get(relay, name).await? else {
            self.replace(relay, name, None, &now.to_string()).await?;
            return Ok(None);
        };
        let at = last.parse::<i64>().ok();
        if at.is_some_and(|at| at > before) {
            return Ok(None);
        }
        let taken = self.replace(relay, name, Some(&last), &now.to_string()).await?;
        Ok(at.filter(|_| taken))
    }

    /// Takes or extends a lease of all relays together: true if `owner` has it until `until` now, false while another has it.
    pub async fn lease(&self, name: &str, owner: &str, now: i64, until: i64) -> Result<bool, RecordsError> {
        let wanted = format!("{until} {owner}");
        if self.replace("", name, None, &wanted).await? {
            return Ok(true);
        }
        let Some(last) = self.get("", name).await? else { return Ok(false) };
        let (end, holder) = last.split_once(' ').unwrap_or_default();
        if holder != owner && end.parse::<i64>().is_ok_and(|end| end > now) {
            return Ok(false);
        }
        self.replace("", name, Some(&last), &wanted).await
    }
}
