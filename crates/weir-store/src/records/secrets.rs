//! Secrets that all relays on these records share, such as the key with which recipients are hashed and the key with which tickets are
//! signed.

use super::{Database, RecordsError, read, write};

/// Secrets that the processes of a site share. Cheap to clone.
#[derive(Debug, Clone)]
pub struct SecretRecords {
    pub(in crate::records) db: Database,
}

impl SecretRecords {
    /// The secret of this name, if there is one.
    pub async fn find(&self, name: &str) -> Result<Option<String>, RecordsError> {
        Ok(read!(self, pool => sqlx::query_scalar("select value from secrets where name = $1")
            .bind(name).fetch_optional(pool).await?))
    }

    /// All secrets whose names begin in this way, with their names.
    pub async fn with_prefix(&self, prefix: &str) -> Result<Vec<(String, String)>, RecordsError> {
        Ok(
            read!(self, pool => sqlx::query_as("select name, value from secrets where substr(name, 1, $2) = $1 order by name")
            .bind(prefix).bind(prefix.len() as i32).fetch_all(pool).await?),
        )
    }

    /// Makes this the secret of this name, whatever it was.
    pub async fn set(&self, name: &str, value: &str) -> Result<(), RecordsError> {
        write!(self, pool => sqlx::query("insert into secrets (name, value) values ($1, $2)
             on conflict (name) do update set value = excluded.value")
            .bind(name).bind(value).execute(pool).await.map(drop)?);
        Ok(())
    }

    /// The secret of this name; the first caller sets it to `fresh`.
    pub async fn find_or_set(&self, name: &str, fresh: &str) -> Result<String, RecordsError> {
        write!(self, pool => sqlx::query("insert into secrets (name, value) values ($1, $2) on conflict (name) do nothing")
            .bind(name).bind(fresh).execute(pool).await.map(drop)?);
        Ok(write!(self, pool => sqlx::query_scalar("select value from secrets where name = $1")
            .bind(name).fetch_one(pool).await?))
    }
}
