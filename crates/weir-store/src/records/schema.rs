//! The schema, and how an older one becomes today's.
//!
//! Each migration is a list of SQL statements. The table `weir_schema` holds the number of the last one applied. A database from a newer
//! program is refused and not touched.

use super::{RecordsError, begin_in_postgres};
use sqlx::{Connection, PgPool, SqliteConnection};

/// 1: the tables, in the dialect of each database.
const SQLITE: &str = include_str!("sql/sqlite.sql");
const POSTGRES: &str = include_str!("sql/postgres.sql");
/// 2 and later: statements that both understand.
const LATER: [&str; 15] = [
    SECRETS,
    TOLD,
    QUARANTINE,
    LAB,
    VERDICTS,
    CHILDREN,
    LAB_INDEXES,
    RULES,
    LOOKED_FOR,
    AUDIT_CHAIN,
    CORRESPONDENTS,
    INCIDENTS,
    CHOICES,
    SENDERS,
    ALIKE,
];
/// 2: secrets that all relays share and that must not be known to anybody else.
const SECRETS: &str = "create table secrets (name text primary key, value text not null)";
/// 3: which of the notices that are due have been written.
const TOLD: &str = "alter table throttles add column told bigint not null default 0";
/// 4: quarantined mail, and values that a relay keeps for itself. Both databases understand these statements.
const QUARANTINE: &str = include_str!("sql/quarantine.sql");
/// 5: the lab. `IDENTITY` stands for a number that the database generates.
const LAB: &str = include_str!("sql/lab.sql");
/// 6: the verdict on a quarantined message is a file beside it, not a copy for each recipient.
const VERDICTS: &str = "alter table quarantine drop column detail";
/// 8: indexes of results by sample and by content, including results that do not count: pruning samples looks for both.
const LAB_INDEXES: &str = "create index if not exists lab_results_of_sample on lab_results (sample);
create index if not exists lab_results_of_content on lab_results (hash);";

/// 7: children of samples in the lab, and verdicts.
const CHILDREN: &str = include_str!("sql/children.sql");
/// 9: rules that people made for the scan, and indexes for lists of everything.
const RULES: &str = include_str!("sql/rules.sql");
/// 10: what a relay has held lately, which every start asks for, without reading all that is held; quarantined mail by its sender.
const LOOKED_FOR: &str = "create index held_since on held (relay, held_at, message);
create index quarantine_sender on quarantine (sender);";
/// 11: every line of the audit trail seals those before it, the newest seal stands apart, and so do changes that have begun.
const AUDIT_CHAIN: &str = include_str!("sql/audit_chain.sql");
/// 12: to whom users have written (`OCTETS` stands for the type of octets, and `PACKED` stores a row only in its index), and who has written to them.
const CORRESPONDENTS: &str = "create table correspondents (
  owner text not null, pack bigint not null, entries OCTETS not null, primary key (owner, pack)) PACKED;
create table letters (address text primary key, entries text not null);";
/// 13: incidents.
const INCIDENTS: &str = include_str!("sql/incidents.sql");

/// 14: the choices that were made when a sample was submitted, and whether its verdict therefore does not count for its content.
const CHOICES: &str = "alter table lab_samples add column choices text not null default '';
alter table lab_samples add column partial bigint not null default 0;";

/// 15: senders that people allow or block, and to whom quarantined mail is released instead of its recipients.
const SENDERS: &str = "create table sender_rules (
  who text primary key, rule text not null, about text not null, made_by text not null, made_at bigint not null);
alter table quarantine add column release_to text not null default '';";

/// 16: users and throttles by their names in small letters.
const ALIKE: &str = "create index users_alike on users (lower(name));
create index throttles_alike on throttles (lower(identity));";

/// A migration in the dialect of one database: its words for a generated number, for octets, and for a table that is its own index.
fn worded(statements: &str, words: [&str; 3]) -> sqlx::AssertSqlSafe<String> {
    let names = ["IDENTITY", "OCTETS", "PACKED"];
    let worded = names.iter().zip(words).fold(statements.to_owned(), |text, (name, word)| text.replace(name, word));
    sqlx::AssertSqlSafe(worded)
}

const SQLITE_WORDS: [&str; 3] = ["integer primary key autoincrement", "blob", "without rowid"];
const POSTGRES_WORDS: [&str; 3] = ["bigint generated always as identity primary key", "bytea", ""];

pub(super) async fn migrate_sqlite(connection: &mut SqliteConnection) -> Result<(), RecordsError> {
    let mut tx = connection.begin_with("begin immediate").await?;
    sqlx::raw_sql("create table if not exists weir_schema (version integer not null)").execute(&mut *tx).await?;
    let version: i64 =
        sqlx::query_scalar("select coalesce(max(version), 0) from weir_schema").fetch_one(&mut *tx).await?;
    for (number, statements) in pending(SQLITE, version)? {
        sqlx::raw_sql(worded(statements, SQLITE_WORDS)).execute(&mut *tx).await?;
        sqlx::query("insert into weir_schema (version) values ($1)").bind(number).execute(&mut *tx).await?;
    }
    Ok(tx.commit().await?)
}

pub(super) async fn migrate_postgres(pool: &PgPool) -> Result<(), RecordsError> {
    let mut tx = begin_in_postgres(pool).await?;
    // Several relays may start at once: the first creates the tables, and the others wait.
    sqlx::raw_sql("select pg_advisory_xact_lock(7345921)").execute(&mut *tx).await?;
    sqlx::raw_sql("create table if not exists weir_schema (version bigint not null)").execute(&mut *tx).await?;
    let version: i64 =
        sqlx::query_scalar("select coalesce(max(version), 0) from weir_schema").fetch_one(&mut *tx).await?;
    for (number, statements) in pending(POSTGRES, version)? {
        sqlx::raw_sql(worded(statements, POSTGRES_WORDS)).execute(&mut *tx).await?;
        sqlx::query("insert into weir_schema (version) values ($1)").bind(number).execute(&mut *tx).await?;
    }
    Ok(tx.commit().await?)
}

fn pending(first: &'static str, version: i64) -> Result<impl Iterator<Item = (i64, &'static str)>, RecordsError> {
    let known = LATER.len() as i64 + 1;
    if version > known {
        return Err(RecordsError::Newer { found: version, known });
    }
    Ok((1..).zip(std::iter::once(first).chain(LATER)).skip(version.max(0) as usize))
}
