//! Users: who may submit mail, as whom, and under which throttle.

use super::{Database, RecordsError, read, write};
use sqlx::Row;

/// Each failed try to change a user means that somebody else has changed the same one, which people do by hand.
const TRIES_MAX: usize = 100;

/// A user as stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserRow {
    /// The login.
    pub name: String,
    /// The argon2id hash.
    pub password: String,
    /// Addresses the user may send as: `ann@example.org`, or `@example.org` for a whole domain.
    pub addresses: Vec<String>,
    /// Where notices go: an address outside the mailbox; empty if none is known.
    pub contact: String,
    /// The profile: person, list, application, exempt.
    pub profile: String,
    /// The user's own throttle parameters as JSON; `{}` for the profile's.
    pub params: String,
    /// Since when the account is locked by a person.
    pub locked_at: Option<i64>,
    /// Why.
    pub locked_reason: String,
    /// When the account was made.
    pub created_at: i64,
}

/// The users of the mail gate. Cheap to clone.
#[derive(Debug, Clone)]
pub struct UserRecords {
    pub(in crate::records) db: Database,
}

impl UserRecords {
    /// Makes a user; false if the name is taken.
    pub async fn add(&self, user: &UserRow) -> Result<bool, RecordsError> {
        let addresses = serde_json::json!(user.addresses).to_string();
        let added = write!(self, pool => sqlx::query(
            "insert into users (name, password, addresses, contact, profile, params, locked_at, locked_reason, created_at)
             values ($1, $2, $3, $4, $5, $6, $7, $8, $9) on conflict (name) do nothing")
            .bind(&user.name).bind(&user.password).bind(&addresses).bind(&user.contact).bind(&user.profile)
            .bind(&user.params).bind(user.locked_at).bind(&user.locked_reason).bind(user.created_at)
            .execute(pool).await?.rows_affected());
        Ok(added == 1)
    }

    /// Changes a user. It is written only if it is still what was read; otherwise `change` is called once more, with what somebody else,
    /// such as another relay, has written meanwhile. Returns what `change` returned; None if there is none of that name.
    pub async fn change<R: Send, E: From<RecordsError>>(
        &self,
        name: &str,
        mut change: impl FnMut(&mut UserRow) -> Result<R, E> + Send,
    ) -> Result<Option<R>, E> {
        for _ in 0..TRIES_MAX {
            let found = self.rows_where("where name = $1", name).await?.into_iter().next();
            let Some((was, addresses)) = found else { return Ok(None) };
            let mut user = was.clone();
            let done = change(&mut user)?;
            if user == was || self.replace((&was, &addresses), &user).await? {
                return Ok(Some(done));
            }
        }
        Err(RecordsError::Contended(name.to_owned()).into())
    }

    /// Replaces a user that is still `was`, with the addresses as they are stored. Returns whether it did.
    async fn replace(&self, (was, stored): (&UserRow, &str), user: &UserRow) -> Result<bool, RecordsError> {
        let addresses = serde_json::json!(user.addresses).to_string();
        let changed = write!(self, pool => sqlx::query(
            "update users set password = $2, addresses = $3, contact = $4, profile = $5, params = $6, locked_at = $7,
             locked_reason = $8 where name = $1 and password = $9 and addresses = $10 and contact = $11 and profile = $12
             and params = $13 and locked_at is not distinct from $14 and locked_reason = $15")
            .bind(&user.name).bind(&user.password).bind(&addresses).bind(&user.contact).bind(&user.profile)
            .bind(&user.params).bind(user.locked_at).bind(&user.locked_reason)
            .bind(&was.password).bind(stored).bind(&was.contact).bind(&was.profile)
            .bind(&was.params).bind(was.locked_at).bind(&was.locked_reason)
            .execute(pool).await?.rows_affected());
        Ok(changed == 1)
    }

    /// Replaces everything about a user except the name, whatever it is now; false if there is none of that name. What was read must be
    /// changed with [`UserRecords::change`].
    pub async fn update(&self, user: &UserRow) -> Result<bool, RecordsError> {
        let addresses = serde_json::json!(user.addresses).to_string();
        let changed = write!(self, pool => sqlx::query(
            "update users set password = $2, addresses = $3, contact = $4, profile = $5, params = $6, locked_at = $7,
             locked_reason = $8 where name = $1")
            .bind(&user.name).bind(&user.password).bind(&addresses).bind(&user.contact).bind(&user.profile)
            .bind(&user.params).bind(user.locked_at).bind(&user.locked_reason)
            .execute(pool).await?.rows_affected());
        Ok(changed == 1)
    }

    /// Removes a user and the memory of whom they have written to; false if there is none of that name. Their throttle stays for a while:
    /// [`UserRecords::forget_removed`] removes it.
    pub async fn remove(&self, name: &str) -> Result<bool, RecordsError> {
        let removed = self.remove_account(name).await?;
        write!(self, pool => sqlx::query("delete from correspondents where owner = $1")
            .bind(name).execute(pool).await?.rows_affected());
        Ok(removed)
    }

    /// Removes the account alone: whom they have written to stays. For somebody who goes on sending without an account here. False if there
    /// is none of that name.
    pub async fn remove_account(&self, name: &str) -> Result<bool, RecordsError> {
        let removed = write!(self, pool => sqlx::query("delete from users where name = $1")
            .bind(name).execute(pool).await?.rows_affected());
        Ok(removed == 1)
    }

    /// Forgets the throttles of removed users that hold nothing and were last used before `time`. Who has sent since the removal is
    /// somebody whom another system knows, and is not forgotten.
    pub async fn forget_removed(&self, time: i64) -> Result<u64, RecordsError> {
        Ok(write!(self, pool => sqlx::query(
            "delete from throttles where held = 0 and updated_at < $1 and identity not in (select name from users)
             and updated_at <= (select max(at) from audit where subject = throttles.identity and action = 'user.remove')")
            .bind(time).execute(pool).await?.rows_affected()))
    }

    /// When a user of this name was last removed.
    pub async fn removed_at(&self, name: &str) -> Result<Option<i64>, RecordsError> {
        Ok(read!(self, pool => sqlx::query_scalar(
            "select max(at) from audit where subject = $1 and action = 'user.remove'").bind(name).fetch_one(pool).await?))
    }

    /// One user.
    pub async fn find(&self, name: &str) -> Result<Option<UserRow>, RecordsError> {
        let found = self.users_where("where name = $1", name).await?;
        Ok(found.into_iter().next())
    }

    /// Whether somebody of this name has a password here. Names that differ only in case count as the same, because people confuse them.
    pub async fn has_own_password(&self, name: &str) -> Result<bool, RecordsError> {
        let alike = self.alike(&name.to_lowercase()).await?;
        for name in std::iter::once(name).chain(alike.iter().map(String::as_str)) {
            if self.find(name).await?.is_some_and(|user| !user.password.is_empty()) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The names of accounts that are `lower` but for capitals, in order. SQLite knows the small letters of ASCII alone, and PostgreSQL those
    /// of its locale, so other letters are compared here: that reads all names, and is only done for a name that has such letters.
    pub async fn alike(&self, lower: &str) -> Result<Vec<String>, RecordsError> {
        if lower.is_ascii() {
            return Ok(read!(self, pool => sqlx::query_scalar(
                "select name from users where lower(name) = $1 order by name limit 100")
                .bind(lower).fetch_all(pool).await?));
        }
        let mut names: Vec<String> = read!(self, pool => sqlx::query_scalar(
            "select name from users where octet_length(name) > length(name) order by name").fetch_all(pool).await?);
        names.retain(|name| name.to_lowercase() == lower);
        Ok(names)
    }

    /// All users in order of name, from the first after `after`.
    pub async fn after(&self, after: &str) -> Result<Vec<UserRow>, RecordsError> {
        self.users_where("where name > $1 order by name limit 1000", after).await
    }

    /// Whether this address, which must be in lower case, belongs to a user. ASCII letters match in either case; a whole
    /// domain that belongs to a user does not count. This reads all users, so remember the answer.
    pub async fn has_address(&self, address: &str) -> Result<bool, RecordsError> {
        let quoted = serde_json::json!(address).to_string();
        let literal: String = quoted.chars().fold(String::new(), |mut text, c| {
            if matches!(c, '%' | '_' | '!') {
                text.push('!');
            }
            text.push(c);
            text
        });
        let sql = "select count(*) from users where lower(addresses) like $1 escape '!'";
        let found: i64 = read!(self, pool => {
            sqlx::query(sql).bind(format!("%{literal}%")).fetch_one(pool).await?.try_get(0)?
        });
        Ok(found > 0)
    }

    async fn users_where(&self, clause: &'static str, argument: &str) -> Result<Vec<UserRow>, RecordsError> {
        Ok(self.rows_where(clause, argument).await?.into_iter().map(|(user, _)| user).collect())
    }

    /// Users, and their addresses as they are stored.
    async fn rows_where(&self, clause: &'static str, argument: &str) -> Result<Vec<(UserRow, String)>, RecordsError> {
        let select = "select name, password, addresses, contact, profile, params, locked_at, locked_reason, created_at from users ";
        let sql = sqlx::AssertSqlSafe(format!("{select}{clause}"));
        read!(self, pool => {
            let rows = sqlx::query(sql).bind(argument).fetch_all(pool).await?;
            rows.iter().map(|row| {
                let addresses: String = row.try_get(2)?;
                let user = UserRow {
                    name: row.try_get(0)?,
                    password: row.try_get(1)?,
                    addresses: serde_json::from_str(&addresses).map_err(|e| RecordsError::Corrupt(e.to_string()))?,
                    contact: row.try_get(3)?,
                    profile: row.try_get(4)?,
                    params: row.try_get(5)?,
                    locked_at: row.try_get(6)?,
                    locked_reason: row.try_get(7)?,
                    created_at: row.try_get(8)?,
                };
                Ok((user, addresses))
            }).collect()
        })
    }
}
