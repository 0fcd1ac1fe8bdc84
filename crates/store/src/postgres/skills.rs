//! Skills: heads, histories, bodies, and the change token of each tenant.

use frontdesk_core::port::skills::{
    Expect, HeadPage, SkillQuery, SkillWrite, Skills, VERSIONS_DROPPED_MAX, VERSIONS_MAX, next_token,
};
use frontdesk_core::port::store::{StoreError, Stored};
use frontdesk_wire::TenantId;
use frontdesk_wire::agents::{SkillMeta, SkillSource, SkillStatus, VersionInfo};
use tokio_postgres::Row;

use super::connection::{Connection, Fault};
use super::text::{given, kept};
use super::{PostgresStore, signed, unsigned};
use crate::read_queue::of_tenant;

/// Heads that are read at once, in count and in bytes.
const HEADS_ROWS: i64 = 200;
const HEADS_BYTES: i64 = 1 << 20;

macro_rules! head {
    () => {
        "k.name, k.version, k.content_hash, k.status, k.description, k.tags, k.created_at, k.updated_at,
         k.status_changed_at, k.author, k.bag"
    };
}

impl Skills for PostgresStore {
    fn skill_put(&self, write: SkillWrite) -> Stored<'_, ()> {
        self.worker.write(async move |connection| put(connection, &write).await)
    }

    fn skill<'a>(
        &'a self,
        tenant: &'a TenantId,
        name: &'a str,
        version: Option<&'a str>,
    ) -> Stored<'a, Option<SkillSource>> {
        let (tenant, name, version) = (tenant.to_owned(), name.to_owned(), version.map(str::to_owned));
        self.worker.read(of_tenant(&tenant), async move |connection| {
            source(connection, &tenant, &name, version.as_deref()).await
        })
    }

    fn skill_meta<'a>(&'a self, tenant: &'a TenantId, name: &'a str) -> Stored<'a, Option<SkillMeta>> {
        let (tenant, name) = (tenant.to_owned(), name.to_owned());
        self.worker.read(of_tenant(&tenant), async move |connection| head(connection, &tenant, &name).await)
    }

    fn skill_versions<'a>(&'a self, tenant: &'a TenantId, name: &'a str) -> Stored<'a, Vec<VersionInfo>> {
        let (tenant, name) = (tenant.to_owned(), name.to_owned());
        self.worker.read(of_tenant(&tenant), async move |connection| {
            let sql = "SELECT name, version, content_hash, status, previous_status, changed_at, changed_by
                       FROM skill_version WHERE tenant = $1 AND name = $2 ORDER BY no DESC LIMIT $3";
            let rows = connection.query(sql, &[&kept(&tenant), &kept(&name), &signed(VERSIONS_MAX as u64)]).await?;
            Ok(rows.iter().rev().map(version_info).collect::<Result<_, _>>()?)
        })
    }

    fn skill_query<'a>(&'a self, tenant: &'a TenantId, query: SkillQuery) -> Stored<'a, Vec<SkillMeta>> {
        let tenant = tenant.to_owned();
        self.worker.read(of_tenant(&tenant), async move |connection| {
            // Heads are read a few at a time, because they may be large and most may not be asked for.
            let sql = concat!(
                "SELECT ",
                head!(),
                " FROM (
                   SELECT *, sum(size) OVER (ORDER BY name) - size AS before FROM (
                     SELECT *, octet_length(tags) + coalesce(octet_length(description), 0) + coalesce(octet_length(bag), 0)
                            AS size
                     FROM skill WHERE tenant = $1 AND name > $2 ORDER BY name LIMIT $3) AS heads) AS k
                 WHERE before < $4 ORDER BY name"
            );
            let mut page = HeadPage::of(&query);
            let mut after = String::new();
            loop {
                let rows = connection.query(sql, &[&kept(&tenant), &after, &HEADS_ROWS, &HEADS_BYTES]).await?;
                let Some(last) = rows.last() else { return Ok(page.heads()) };
                after = last.get(0);
                for row in &rows {
                    if !page.add(meta(row)?) {
                        return Ok(page.heads());
                    }
                }
            }
        })
    }

    fn skill_delete<'a>(&'a self, tenant: &'a TenantId, name: &'a str) -> Stored<'a, bool> {
        let (tenant, name) = (tenant.to_owned(), name.to_owned());
        self.worker.write(async move |connection| {
            let token = lock_token(connection, &tenant).await?;
            let which = (kept(&tenant), kept(&name));
            let sql = "DELETE FROM skill WHERE tenant = $1 AND name = $2";
            if connection.execute(sql, &[&which.0, &which.1]).await? == 0 {
                return Ok(false);
            }
            for sql in [
                "DELETE FROM skill_version WHERE tenant = $1 AND name = $2",
                "DELETE FROM skill_source WHERE tenant = $1 AND name = $2",
            ] {
                connection.execute(sql, &[&which.0, &which.1]).await?;
            }
            write_token(connection, &tenant, &next_token(&token, &name, None)).await?;
            Ok(true)
        })
    }

    fn skill_token<'a>(&'a self, tenant: &'a TenantId) -> Stored<'a, String> {
        let tenant = tenant.to_owned();
        self.worker.read(of_tenant(&tenant), async move |connection| {
            let sql = "SELECT token FROM skill_token WHERE tenant = $1";
            let found = connection.query_opt(sql, &[&kept(&tenant)]).await?;
            Ok(found.map_or_else(|| "0".into(), |row| row.get(0)))
        })
    }
}

async fn put(connection: &Connection, write: &SkillWrite) -> Result<(), Fault> {
    let SkillWrite { tenant, expect, meta, source, version } = write;
    let token = lock_token(connection, tenant).await?;
    let old = head(connection, tenant, &meta.name).await?;
    let expected = match (expect, &old) {
        (Expect::Absent, None) => true,
        (Expect::Hash(hash), Some(old)) => {
            *hash == old.content_hash && (old.author.is_none() || old.author == meta.author)
        }
        _ => false,
    };
    if !expected {
        return Err(StoreError::Conflict.into());
    }
    write_head(connection, tenant, meta).await?;
    let (owner, name) = (kept(tenant), kept(&meta.name));
    let sql =
        "INSERT INTO skill_source (tenant, name, content_hash, source) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING";
    connection.execute(sql, &[&owner, &name, &kept(&meta.content_hash), &kept(source)]).await?;
    let sql =
        "INSERT INTO skill_version (tenant, name, no, version, content_hash, status, previous_status, changed_at, changed_by)
         VALUES ($1, $2, (SELECT coalesce(max(no), 0) + 1 FROM skill_version WHERE tenant = $1 AND name = $2),
                 $3, $4, $5, $6, $7, $8)";
    let (number, hash) = (kept(&version.version), kept(&version.content_hash));
    let (status, previous) = (version.status.name(), version.previous_status.map(SkillStatus::name));
    let (changed_at, changed_by) = (signed(version.changed_at), version.changed_by.as_deref().map(kept));
    connection.execute(sql, &[&owner, &name, &number, &hash, &status, &previous, &changed_at, &changed_by]).await?;
    // The oldest versions above the limit, and bodies that no other version has.
    let sql = "WITH gone AS (
                 DELETE FROM skill_version WHERE tenant = $1 AND name = $2 AND no IN (
                   SELECT no FROM skill_version WHERE tenant = $1 AND name = $2
                   AND no <= (SELECT max(no) FROM skill_version WHERE tenant = $1 AND name = $2) - $3 ORDER BY no LIMIT $4)
                 RETURNING no, version, content_hash)
               DELETE FROM skill_source s USING gone WHERE s.tenant = $1 AND s.name = $2
               AND s.content_hash = gone.content_hash AND NOT EXISTS (
                 SELECT 1 FROM skill_version v WHERE v.tenant = $1 AND v.name = $2 AND v.version = gone.version
                 AND v.content_hash = gone.content_hash AND v.no NOT IN (SELECT no FROM gone))";
    let (keep, most) = (signed(VERSIONS_MAX as u64), signed(VERSIONS_DROPPED_MAX as u64));
    connection.execute(sql, &[&owner, &name, &keep, &most]).await?;
    let now = (meta.status, meta.content_hash.as_str());
    if old.is_none_or(|old| (old.status, old.content_hash.as_str()) != now) {
        write_token(connection, tenant, &next_token(&token, &meta.name, Some(now))).await?;
    }
    Ok(())
}

async fn write_head(connection: &Connection, tenant: &TenantId, meta: &SkillMeta) -> Result<(), Fault> {
    let sql = "INSERT INTO skill (tenant, name, version, content_hash, status, description, tags, created_at,
                                  updated_at, status_changed_at, author, bag)
               VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)
               ON CONFLICT (tenant, name) DO UPDATE SET version = $3, content_hash = $4, status = $5,
               description = $6, tags = $7, updated_at = $9, status_changed_at = $10, author = $11, bag = $12";
    let tags = serde_json::to_string(&meta.tags).unwrap_or_default();
    let bag = meta.metadata_bag.as_ref().map(|bag| serde_json::to_string(bag).unwrap_or_default());
    connection
        .execute(
            sql,
            &[
                &kept(tenant),
                &kept(&meta.name),
                &kept(&meta.version),
                &kept(&meta.content_hash),
                &meta.status.name(),
                &meta.description.as_deref().map(kept),
                &kept(&tags),
                &signed(meta.created_at),
                &signed(meta.updated_at),
                &meta.status_changed_at.map(signed),
                &meta.author.as_deref().map(kept),
                &bag.as_deref().map(kept),
            ],
        )
        .await
        .map(drop)
}

/// The token of a tenant, locked: all changes of its heads are made one after the other.
async fn lock_token(connection: &Connection, tenant: &TenantId) -> Result<String, Fault> {
    let sql = "INSERT INTO skill_token AS t (tenant, token) VALUES ($1, '0')
               ON CONFLICT (tenant) DO UPDATE SET token = t.token RETURNING token";
    Ok(connection.query_one(sql, &[&kept(tenant)]).await?.get(0))
}

async fn write_token(connection: &Connection, tenant: &TenantId, token: &str) -> Result<(), Fault> {
    let sql = "UPDATE skill_token SET token = $2 WHERE tenant = $1";
    connection.execute(sql, &[&kept(tenant), &token]).await.map(drop)
}

async fn head(connection: &Connection, tenant: &TenantId, name: &str) -> Result<Option<SkillMeta>, Fault> {
    let sql = concat!("SELECT ", head!(), " FROM skill k WHERE tenant = $1 AND name = $2");
    let found = connection.query_opt(sql, &[&kept(tenant), &kept(name)]).await?;
    Ok(found.as_ref().map(meta).transpose()?)
}

/// One statement, so that head and body belong together.
async fn source(
    connection: &Connection,
    tenant: &TenantId,
    name: &str,
    version: Option<&str>,
) -> Result<Option<SkillSource>, Fault> {
    let sql = concat!(
        "SELECT ",
        head!(),
        ", v.version, v.content_hash, s.source FROM skill k
         CROSS JOIN LATERAL (
           SELECT k.version, k.content_hash WHERE $3::text IS NULL
           UNION ALL
           (SELECT version, content_hash FROM skill_version
            WHERE tenant = k.tenant AND name = k.name AND version = $3 ORDER BY no DESC LIMIT 1)) AS v
         LEFT JOIN skill_source s ON s.tenant = k.tenant AND s.name = k.name AND s.content_hash = v.content_hash
         WHERE k.tenant = $1 AND k.name = $2"
    );
    let version = version.map(kept);
    let Some(row) = connection.query_opt(sql, &[&kept(tenant), &kept(name), &version]).await? else { return Ok(None) };
    let (version, content_hash) = (given(row.get(11)), given(row.get(12)));
    let lost = || StoreError::Corrupt(format!("the body of skill {name:?}, version {version} is missing"));
    let source = given(row.get::<_, Option<String>>(13).ok_or_else(lost)?);
    Ok(Some(SkillSource { name: name.into(), version, content_hash, source, metadata: meta(&row)? }))
}

fn meta(row: &Row) -> Result<SkillMeta, StoreError> {
    let text = |column| given(row.get(column));
    let maybe = |column| row.get::<_, Option<String>>(column).map(given);
    let bag = maybe(10).map(|bag| serde_json::from_str(&bag)).transpose();
    Ok(SkillMeta {
        name: text(0),
        version: text(1),
        content_hash: text(2),
        status: status(row, 3)?,
        description: maybe(4),
        tags: serde_json::from_str(&text(5)).map_err(|error| unreadable(row, &error))?,
        created_at: unsigned(row.get(6)),
        updated_at: unsigned(row.get(7)),
        status_changed_at: row.get::<_, Option<i64>>(8).map(unsigned),
        author: maybe(9),
        metadata_bag: bag.map_err(|error| unreadable(row, &error))?,
    })
}

fn version_info(row: &Row) -> Result<VersionInfo, StoreError> {
    let previous: Option<String> = row.get(4);
    Ok(VersionInfo {
        name: given(row.get(0)),
        version: given(row.get(1)),
        content_hash: given(row.get(2)),
        status: status(row, 3)?,
        previous_status: previous.as_deref().and_then(SkillStatus::read),
        changed_at: unsigned(row.get(5)),
        changed_by: row.get::<_, Option<String>>(6).map(given),
    })
}

fn status(row: &Row, column: usize) -> Result<SkillStatus, StoreError> {
    let word: String = row.get(column);
    SkillStatus::read(&word).ok_or_else(|| unreadable(row, &format!("unknown status {word:?}")))
}

fn unreadable(row: &Row, why: &dyn std::fmt::Display) -> StoreError {
    let name: &str = row.get(0);
    StoreError::Corrupt(format!("skill {name:?} cannot be read: {why}"))
}
