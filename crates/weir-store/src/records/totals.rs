//! Counts over all records (users, locks, held mail), for the overview and the metrics.

use super::{Records, RecordsError, read};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sqlx::Row;

/// Counts over all users.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
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
    /// Recipients that are decided and not yet carried out.
    pub decided: i64,
}

impl Records {
    /// Counts everything.
    pub async fn totals(&self) -> Result<Totals, RecordsError> {
        let sql = "select (select count(*) from users), (select count(*) from users where locked_at is not null),
            (select count(*) from throttles where stopped_at is not null),
            (select count(*) from held where fate = 'held'),
            (select count(*) from (select distinct message from held where fate = 'held') as waiting),
            (select count(*) from held where fate <> 'held')";
        let row = |row: [i64; 6]| {
            let [users, locked, stopped, held_recipients, held_messages, decided] = row;
            Totals { users, locked, stopped, held_recipients, held_messages, decided }
        };
        Ok(read!(self, pool => {
            let found = sqlx::query(sql).fetch_one(pool).await?;
            let count = |column: usize| found.try_get(column);
            row([count(0)?, count(1)?, count(2)?, count(3)?, count(4)?, count(5)?])
        }))
    }
}
