//! How much there is of everything, for a look at the whole.

use super::{Records, RecordsError, read};
use serde::Serialize;
use sqlx::Row;

/// Counts over all users.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Totals {
    /// Users.
    pub users: i64,
    /// Users locked by a person.
    pub locked: i64,
    /// Throttles that have stopped their user.
    pub stopped: i64,
    /// Recipients that wait in delay queues.
    pub held_recipients: i64,
    /// Messages that these belong to.
    pub held_messages: i64,
}

impl Records {
    /// Counts everything.
    pub async fn totals(&self) -> Result<Totals, RecordsError> {
        let sql = "select (select count(*) from users), (select count(*) from users where locked_at is not null),
            (select count(*) from throttles where stopped_at is not null),
            (select count(*) from held where fate = 'held'),
            (select count(distinct message) from held where fate = 'held')";
        let row = |row: [i64; 5]| {
            let [users, locked, stopped, held_recipients, held_messages] = row;
            Totals { users, locked, stopped, held_recipients, held_messages }
        };
        Ok(read!(self, pool => {
            let found = sqlx::query(sql).fetch_one(pool).await?;
            row([found.try_get(0)?, found.try_get(1)?, found.try_get(2)?, found.try_get(3)?, found.try_get(4)?])
        }))
    }
}
