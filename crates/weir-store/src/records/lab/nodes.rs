//! The machines that are registered in the lab.

use crate::records::{Database, RecordsError, read, write};
use sqlx::Row;

/// One machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeRow {
    /// Its id.
    pub node: String,
    /// Its name, for people.
    pub name: String,
    /// `eligible`, `dispatcher` or `external`.
    pub role: String,
    /// Its priority in elections: the lowest number leads.
    pub priority: i64,
    /// Where it listens; empty if it cannot be reached from the lab.
    pub address: String,
    /// SHA-256 of its public key; empty for the machine of a lab of one, which has none.
    pub fingerprint: String,
    /// Its processing index as last measured.
    pub processing_index: Option<i64>,
    /// Whether it gets no new samples.
    pub drained: bool,
    /// When it was registered.
    pub registered_at: i64,
    /// When it last reported that it runs.
    pub seen_at: i64,
}

const COLUMNS: &str =
    "select node, name, role, priority, address, fingerprint, processing_index, drained, registered_at, seen_at
  from lab_nodes order by node";

/// The lab's machines. Cheap to clone.
#[derive(Debug, Clone)]
pub struct NodeRecords {
    pub(in crate::records) db: Database,
}

impl NodeRecords {
    /// Registers a machine; false if the id or the key is taken. An id without a key is not: a lab of one machine becomes one of several.
    pub async fn register(&self, node: &NodeRow) -> Result<bool, RecordsError> {
        let added: Option<String> = write!(self, pool => sqlx::query_scalar(
            "insert into lab_nodes (node, name, role, priority, address, fingerprint, processing_index, drained, registered_at, seen_at)
             select $1, $2, $3, $4, $5, $6, $7, $8, $9, $10
             where not exists (select 1 from lab_nodes where fingerprint = $6)
             on conflict (node) do update set name = excluded.name, role = excluded.role, priority = excluded.priority,
               address = excluded.address, fingerprint = excluded.fingerprint, processing_index = excluded.processing_index,
               drained = excluded.drained, registered_at = excluded.registered_at, seen_at = excluded.seen_at
             where lab_nodes.fingerprint = '' returning node")
            .bind(&node.node).bind(&node.name).bind(&node.role).bind(node.priority).bind(&node.address).bind(&node.fingerprint)
            .bind(node.processing_index).bind(i64::from(node.drained)).bind(node.registered_at).bind(node.seen_at)
            .fetch_optional(pool).await?);
        Ok(added.is_some())
    }

    /// All machines, by id.
    pub async fn all(&self) -> Result<Vec<NodeRow>, RecordsError> {
        macro_rules! node {
            () => {
                |row| {
                    Ok::<_, sqlx::Error>(NodeRow {
                        node: row.try_get(0)?,
                        name: row.try_get(1)?,
                        role: row.try_get(2)?,
                        priority: row.try_get(3)?,
                        address: row.try_get(4)?,
                        fingerprint: row.try_get(5)?,
                        processing_index: row.try_get(6)?,
                        drained: row.try_get::<i64, _>(7)? != 0,
                        registered_at: row.try_get(8)?,
                        seen_at: row.try_get(9)?,
                    })
                }
            };
        }
        Ok(
            read!(self, pool => sqlx::query(COLUMNS).fetch_all(pool).await?.iter().map(node!()).collect::<Result<_, _>>()?),
        )
    }

    /// A machine runs, by the database's clock; with its address, and its index if it was measured. False if it is not registered with
    /// this key, role and priority: a machine that the others ignore does not count as being there.
    pub async fn seen(&self, node: &NodeRow) -> Result<bool, RecordsError> {
        let sql = self.db.either(
            "update lab_nodes set seen_at = cast(unixepoch('subsec') * 1000 as integer) * 1000000, address = $2,
               processing_index = coalesce($3, processing_index)
             where node = $1 and fingerprint = $4 and role = $5 and priority = $6 returning node",
            "update lab_nodes set seen_at = (extract(epoch from clock_timestamp()) * 1000)::bigint * 1000000, address = $2,
               processing_index = coalesce($3, processing_index)
             where node = $1 and fingerprint = $4 and role = $5 and priority = $6 returning node",
        );
        let seen: Option<String> = write!(self, pool => sqlx::query_scalar(sql)
            .bind(&node.node).bind(&node.address).bind(node.processing_index)
            .bind(&node.fingerprint).bind(&node.role).bind(node.priority).fetch_optional(pool).await?);
        Ok(seen.is_some())
    }

    /// Another priority for the machine of this name and key; false if there is none.
    pub async fn set_priority(&self, node: &str, fingerprint: &str, priority: i64) -> Result<bool, RecordsError> {
        let found: Option<String> = write!(self, pool => sqlx::query_scalar(
            "update lab_nodes set priority = $3 where node = $1 and fingerprint = $2 returning node")
            .bind(node).bind(fingerprint).bind(priority).fetch_optional(pool).await?);
        Ok(found.is_some())
    }

    /// Removes a machine from the lab, unless it leads; false if there is no such machine, or if it leads.
    pub async fn remove(&self, node: &str) -> Result<bool, RecordsError> {
        let sql = self.db.either(
            "delete from lab_nodes where node = $1 and not exists (select 1 from lab_leader where holder = $1
               and expires_at > cast(unixepoch('subsec') * 1000 as integer)) returning node",
            "delete from lab_nodes where node = $1 and not exists (select 1 from lab_leader where holder = $1
               and expires_at > (extract(epoch from clock_timestamp()) * 1000)::bigint) returning node",
        );
        let removed: Option<String> =
            write!(self, pool => sqlx::query_scalar(sql).bind(node).fetch_optional(pool).await?);
        Ok(removed.is_some())
    }

    /// The length of this content, if a machine has a running attempt on it.
    pub async fn works_on(&self, node: &str, hash: &str) -> Result<Option<i64>, RecordsError> {
        Ok(read!(self, pool => sqlx::query_scalar(
            "select s.size from lab_samples s join lab_attempts a on a.sample = s.id
             where s.hash = $2 and a.node = $1 and a.ended_at is null limit 1")
            .bind(node).bind(hash).fetch_optional(pool).await?))
    }

    /// How many machines inside the lab, without `node`, were seen within the last milliseconds (this many), by the database's clock.
    /// One that was seen in the future was seen before the clock was set back, and will be seen again if it runs.
    pub async fn others(&self, node: &str, within_ms: i64) -> Result<i64, RecordsError> {
        let sql = self.db.either(
            "select count(*) from lab_nodes where node <> $1 and role <> 'external' and fingerprint <> ''
               and seen_at > (cast(unixepoch('subsec') * 1000 as integer) - $2) * 1000000
               and seen_at <= cast(unixepoch('subsec') * 1000 as integer) * 1000000",
            "select count(*) from lab_nodes where node <> $1 and role <> 'external' and fingerprint <> ''
               and seen_at > ((extract(epoch from clock_timestamp()) * 1000)::bigint - $2) * 1000000
               and seen_at <= (extract(epoch from clock_timestamp()) * 1000)::bigint * 1000000",
        );
        Ok(read!(self, pool => sqlx::query_scalar(sql).bind(node).bind(within_ms).fetch_one(pool).await?))
    }

    /// Whether a machine gets new samples from now on; false if there is no such machine.
    pub async fn drain(&self, node: &str, drained: bool) -> Result<bool, RecordsError> {
        let found: Option<String> = write!(self, pool => sqlx::query_scalar(
            "update lab_nodes set drained = $2 where node = $1 returning node")
            .bind(node).bind(i64::from(drained)).fetch_optional(pool).await?);
        Ok(found.is_some())
    }

    /// The same for the machine of a lab of one, which has a row only while it is drained; a registered machine is not changed.
    pub async fn drain_alone(&self, node: &str, drained: bool) -> Result<(), RecordsError> {
        let drain = self.db.either(
            "insert into lab_nodes (node, name, role, priority, address, fingerprint, drained, registered_at, seen_at)
             select $1, $1, 'eligible', 10, '', '', 1, clock.ns, clock.ns
             from (select cast(unixepoch('subsec') * 1000 as integer) * 1000000 as ns) clock
             where true on conflict (node) do nothing",
            "insert into lab_nodes (node, name, role, priority, address, fingerprint, drained, registered_at, seen_at)
             select $1, $1, 'eligible', 10, '', '', 1, clock.ns, clock.ns
             from (select (extract(epoch from clock_timestamp()) * 1000)::bigint * 1000000 as ns) clock
             where true on conflict (node) do nothing",
        );
        let undo = "delete from lab_nodes where node = $1 and fingerprint = ''";
        let sql = if drained { drain } else { undo };
        write!(self, pool => sqlx::query(sql).bind(node).execute(pool).await.map(drop)?);
        Ok(())
    }
}
