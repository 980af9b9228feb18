//! Single-use tokens that let a person do something by a mail or a link. Only their digests are stored.

use super::{Database, RecordsError, read, write};

/// One-time tokens, such as those in the links of notices. Cheap to clone.
#[derive(Debug, Clone)]
pub struct TokenRecords {
    pub(in crate::records) db: Database,
}

impl TokenRecords {
    /// Remembers a token by its digest, and forgets those that have expired.
    pub async fn add(&self, digest: &str, purpose: &str, expires_at: i64, now: i64) -> Result<(), RecordsError> {
        write!(self, pool => sqlx::query("delete from tokens where expires_at < $1").bind(now).execute(pool).await.map(drop)?);
        write!(self, pool => sqlx::query(
            "insert into tokens (digest, purpose, expires_at) values ($1, $2, $3) on conflict (digest) do nothing")
            .bind(digest).bind(purpose).bind(expires_at).execute(pool).await.map(drop)?);
        Ok(())
    }

    /// The purpose of a token if it is valid now. The token stays valid.
    pub async fn purpose(&self, digest: &str, now: i64) -> Result<Option<String>, RecordsError> {
        Ok(read!(self, pool => sqlx::query_scalar("select purpose from tokens where digest = $1 and expires_at >= $2")
            .bind(digest).bind(now).fetch_optional(pool).await?))
    }

    /// Uses a token up. Returns its purpose the first time; None later, or if it has expired.
    pub async fn redeem(&self, digest: &str, now: i64) -> Result<Option<String>, RecordsError> {
        Ok(
            write!(self, pool => sqlx::query_scalar("delete from tokens where digest = $1 and expires_at >= $2 returning purpose")
            .bind(digest).bind(now).fetch_optional(pool).await?),
        )
    }
}
