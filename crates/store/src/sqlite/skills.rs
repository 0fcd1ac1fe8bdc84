//! Skills: heads, histories, bodies, and the change token of each tenant.

use frontdesk_core::port::skills::{
    Expect, HeadPage, SkillQuery, SkillWrite, Skills, VERSIONS_DROPPED_MAX, VERSIONS_MAX, next_token,
};
use frontdesk_core::port::store::{StoreError, Stored};
use frontdesk_wire::TenantId;
use frontdesk_wire::agents::{SkillMeta, SkillSource, SkillStatus, VersionInfo};
use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension as _, Row};

use super::threads::Books;
use super::{SqliteStore, fault, signed, unsigned};
use crate::read_queue::of_tenant;

const HEAD: &str = "SELECT name, version, content_hash, status, description, tags, created_at, updated_at,
                    status_changed_at, author, bag FROM skill";

/// Heads that are read in one turn. They may be large: 64 KiB each.
const HEADS_ROWS: usize = 256;

impl Skills for SqliteStore {
    fn skill_put(&self, write: SkillWrite) -> Stored<'_, ()> {
        self.writer.write(move |books: &mut Books| put(&books.connection, &write), |()| {})
    }

    fn skill<'a>(
        &'a self,
        tenant: &'a TenantId,
        name: &'a str,
        version: Option<&'a str>,
    ) -> Stored<'a, Option<SkillSource>> {
        let (tenant, name, version) = (tenant.to_owned(), name.to_owned(), version.map(str::to_owned));
        self.readers.read(of_tenant(&tenant), move |connection| {
            // One transaction, so that head and body belong together.
            let moment = connection.unchecked_transaction().map_err(fault)?;
            source(&moment, &tenant, &name, version.as_deref())
        })
    }

    fn skill_meta<'a>(&'a self, tenant: &'a TenantId, name: &'a str) -> Stored<'a, Option<SkillMeta>> {
        let (tenant, name) = (tenant.to_owned(), name.to_owned());
        self.readers.read(of_tenant(&tenant), move |connection| head(connection, &tenant, &name))
    }

    fn skill_versions<'a>(&'a self, tenant: &'a TenantId, name: &'a str) -> Stored<'a, Vec<VersionInfo>> {
        let (tenant, name) = (tenant.to_owned(), name.to_owned());
        self.readers.read(of_tenant(&tenant), move |connection| {
            let sql = "SELECT name, version, content_hash, status, previous_status, changed_at, changed_by
                       FROM skill_version WHERE tenant = ?1 AND name = ?2 ORDER BY no DESC LIMIT ?3";
            let mut query = connection.prepare_cached(sql).map_err(fault)?;
            let newest = query.query_map((tenant.as_str(), name, signed(VERSIONS_MAX as u64)), version_info);
            let mut versions: Vec<VersionInfo> = newest.and_then(Iterator::collect).map_err(fault)?;
            versions.reverse();
            Ok(versions)
        })
    }

    fn skill_query<'a>(&'a self, tenant: &'a TenantId, query: SkillQuery) -> Stored<'a, Vec<SkillMeta>> {
        Box::pin(async move {
            let (mut page, mut after) = (HeadPage::of(&query), String::new());
            // A part at a time, so that other reads come in between: most heads may not be asked for.
            loop {
                let (owner, from) = (tenant.to_owned(), after.clone());
                let part = self.readers.read(of_tenant(tenant), move |connection| {
                    let sql = format!("{HEAD} WHERE tenant = ?1 AND name > ?2 ORDER BY name LIMIT {HEADS_ROWS}");
                    let mut heads = connection.prepare_cached(&sql).map_err(fault)?;
                    let heads = heads.query_map((owner.as_str(), from), meta).map_err(fault)?;
                    heads.collect::<rusqlite::Result<Vec<SkillMeta>>>().map_err(fault)
                });
                let part = part.await?;
                let Some(last) = part.last().filter(|_| part.len() == HEADS_ROWS) else {
                    let _ = part.into_iter().all(|head| page.add(head));
                    return Ok(page.heads());
                };
                after.clone_from(&last.name);
                if !part.into_iter().all(|head| page.add(head)) {
                    return Ok(page.heads());
                }
            }
        })
    }

    fn skill_delete<'a>(&'a self, tenant: &'a TenantId, name: &'a str) -> Stored<'a, bool> {
        let (tenant, name) = (tenant.to_owned(), name.to_owned());
        let work = move |books: &mut Books| {
            let connection = &books.connection;
            let sql = "DELETE FROM skill WHERE tenant = ?1 AND name = ?2";
            let there = connection.execute(sql, (tenant.as_str(), &name)).map_err(fault)? > 0;
            if there {
                for sql in [
                    "DELETE FROM skill_version WHERE tenant = ?1 AND name = ?2",
                    "DELETE FROM skill_source WHERE tenant = ?1 AND name = ?2",
                ] {
                    connection.execute(sql, (tenant.as_str(), &name)).map_err(fault)?;
                }
                move_token(connection, &tenant, &name, None)?;
            }
            Ok(there)
        };
        self.writer.write(work, |_| {})
    }

    fn skill_token<'a>(&'a self, tenant: &'a TenantId) -> Stored<'a, String> {
        let tenant = tenant.to_owned();
        self.readers.read(of_tenant(&tenant), move |connection| token(connection, &tenant))
    }
}

/// Everything is checked before anything is written, so that a conflict changes nothing.
fn put(connection: &Connection, write: &SkillWrite) -> Result<(), StoreError> {
    let SkillWrite { tenant, expect, meta, source, version } = write;
    let old = head(connection, tenant, &meta.name)?;
    let expected = match (expect, &old) {
        (Expect::Absent, None) => true,
        (Expect::Hash(hash), Some(old)) => {
            *hash == old.content_hash && (old.author.is_none() || old.author == meta.author)
        }
        _ => false,
    };
    if !expected {
        return Err(StoreError::Conflict);
    }
    write_head(connection, tenant, meta)?;
    let sql = "INSERT OR IGNORE INTO skill_source (tenant, name, content_hash, source) VALUES (?1, ?2, ?3, ?4)";
    let mut keep = connection.prepare_cached(sql).map_err(fault)?;
    keep.execute((tenant.as_str(), &meta.name, &meta.content_hash, source)).map_err(fault)?;
    let sql =
        "INSERT INTO skill_version (tenant, name, no, version, content_hash, status, previous_status, changed_at, changed_by)
         VALUES (?1, ?2, (SELECT COALESCE(MAX(no), 0) + 1 FROM skill_version WHERE tenant = ?1 AND name = ?2),
                 ?3, ?4, ?5, ?6, ?7, ?8)";
    let mut insert = connection.prepare_cached(sql).map_err(fault)?;
    let row = (
        tenant.as_str(),
        &meta.name,
        &version.version,
        &version.content_hash,
        version.status.name(),
        version.previous_status.map(SkillStatus::name),
        signed(version.changed_at),
        &version.changed_by,
    );
    insert.execute(row).map_err(fault)?;
    drop_old_versions(connection, tenant, &meta.name)?;
    let now = (meta.status, meta.content_hash.as_str());
    if old.is_none_or(|old| (old.status, old.content_hash.as_str()) != now) {
        move_token(connection, tenant, &meta.name, Some(now))?;
    }
    Ok(())
}

/// The oldest versions above [`VERSIONS_MAX`], and bodies that no other version has.
fn drop_old_versions(connection: &Connection, tenant: &TenantId, name: &str) -> Result<(), StoreError> {
    let sql = "DELETE FROM skill_version WHERE tenant = ?1 AND name = ?2 AND no IN (
                 SELECT no FROM skill_version WHERE tenant = ?1 AND name = ?2
                 AND no <= (SELECT MAX(no) FROM skill_version WHERE tenant = ?1 AND name = ?2) - ?3 ORDER BY no LIMIT ?4)
               RETURNING version, content_hash";
    let mut drop_them = connection.prepare_cached(sql).map_err(fault)?;
    let (keep, most) = (signed(VERSIONS_MAX as u64), signed(VERSIONS_DROPPED_MAX as u64));
    let dropped = drop_them.query_map((tenant.as_str(), name, keep, most), |row| Ok((row.get(0)?, row.get(1)?)));
    let dropped: Vec<(String, String)> = dropped.and_then(Iterator::collect).map_err(fault)?;
    let sql = "DELETE FROM skill_source WHERE tenant = ?1 AND name = ?2 AND content_hash = ?4 AND NOT EXISTS (
                 SELECT 1 FROM skill_version WHERE tenant = ?1 AND name = ?2 AND version = ?3 AND content_hash = ?4)";
    let mut forget = connection.prepare_cached(sql).map_err(fault)?;
    for (version, content_hash) in dropped {
        forget.execute((tenant.as_str(), name, version, content_hash)).map_err(fault)?;
    }
    Ok(())
}

fn write_head(connection: &Connection, tenant: &TenantId, meta: &SkillMeta) -> Result<(), StoreError> {
    let sql = "INSERT INTO skill (tenant, name, version, content_hash, status, description, tags, created_at,
                                  updated_at, status_changed_at, author, bag)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)
               ON CONFLICT (tenant, name) DO UPDATE SET version = ?3, content_hash = ?4, status = ?5,
               description = ?6, tags = ?7, updated_at = ?9, status_changed_at = ?10, author = ?11, bag = ?12";
    let mut put = connection.prepare_cached(sql).map_err(fault)?;
    put.execute(rusqlite::params![
        tenant.as_str(),
        meta.name,
        meta.version,
        meta.content_hash,
        meta.status.name(),
        meta.description,
        serde_json::to_string(&meta.tags).unwrap_or_default(),
        signed(meta.created_at),
        signed(meta.updated_at),
        meta.status_changed_at.map(signed),
        meta.author,
        meta.metadata_bag.as_ref().map(|bag| serde_json::to_string(bag).unwrap_or_default()),
    ])
    .map(drop)
    .map_err(fault)
}

fn move_token(
    connection: &Connection,
    tenant: &TenantId,
    name: &str,
    now: Option<(SkillStatus, &str)>,
) -> Result<(), StoreError> {
    let moved = next_token(&token(connection, tenant)?, name, now);
    let sql = "INSERT OR REPLACE INTO skill_token (tenant, token) VALUES (?1, ?2)";
    let mut put = connection.prepare_cached(sql).map_err(fault)?;
    put.execute((tenant.as_str(), moved)).map(drop).map_err(fault)
}

fn token(connection: &Connection, tenant: &TenantId) -> Result<String, StoreError> {
    let mut query = connection.prepare_cached("SELECT token FROM skill_token WHERE tenant = ?1").map_err(fault)?;
    let kept: Option<String> = query.query_row([tenant.as_str()], |row| row.get(0)).optional().map_err(fault)?;
    Ok(kept.unwrap_or_else(|| "0".into()))
}

fn head(connection: &Connection, tenant: &TenantId, name: &str) -> Result<Option<SkillMeta>, StoreError> {
    let sql = format!("{HEAD} WHERE tenant = ?1 AND name = ?2");
    let mut query = connection.prepare_cached(&sql).map_err(fault)?;
    query.query_row((tenant.as_str(), name), meta).optional().map_err(fault)
}

fn source(
    connection: &Connection,
    tenant: &TenantId,
    name: &str,
    version: Option<&str>,
) -> Result<Option<SkillSource>, StoreError> {
    let Some(metadata) = head(connection, tenant, name)? else { return Ok(None) };
    let sql = "SELECT version, content_hash FROM skill_version
               WHERE tenant = ?1 AND name = ?2 AND version = ?3 ORDER BY no DESC LIMIT 1";
    let (version, content_hash) = match version {
        None => (metadata.version.clone(), metadata.content_hash.clone()),
        Some(version) => {
            let mut query = connection.prepare_cached(sql).map_err(fault)?;
            let pair = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?));
            let found = query.query_row((tenant.as_str(), name, version), pair).optional().map_err(fault)?;
            let Some(found) = found else { return Ok(None) };
            found
        }
    };
    let sql = "SELECT source FROM skill_source WHERE tenant = ?1 AND name = ?2 AND content_hash = ?3";
    let mut query = connection.prepare_cached(sql).map_err(fault)?;
    let source = query.query_row((tenant.as_str(), name, &content_hash), |row| row.get(0)).optional().map_err(fault)?;
    let lost = || StoreError::Corrupt(format!("the body of skill {name:?}, version {version} is missing"));
    let source = source.ok_or_else(lost)?;
    Ok(Some(SkillSource { name: name.into(), version, content_hash, source, metadata }))
}

fn meta(row: &Row<'_>) -> rusqlite::Result<SkillMeta> {
    let bag: Option<String> = row.get(10)?;
    Ok(SkillMeta {
        name: row.get(0)?,
        version: row.get(1)?,
        content_hash: row.get(2)?,
        status: status(row, 3)?,
        description: row.get(4)?,
        tags: serde_json::from_str(&row.get::<_, String>(5)?).map_err(|error| unreadable(5, error))?,
        created_at: unsigned(row.get(6)?),
        updated_at: unsigned(row.get(7)?),
        status_changed_at: row.get::<_, Option<i64>>(8)?.map(unsigned),
        author: row.get(9)?,
        metadata_bag: bag.map(|bag| serde_json::from_str(&bag)).transpose().map_err(|error| unreadable(10, error))?,
    })
}

fn version_info(row: &Row<'_>) -> rusqlite::Result<VersionInfo> {
    let previous: Option<String> = row.get(4)?;
    Ok(VersionInfo {
        name: row.get(0)?,
        version: row.get(1)?,
        content_hash: row.get(2)?,
        status: status(row, 3)?,
        previous_status: previous.as_deref().and_then(SkillStatus::read),
        changed_at: unsigned(row.get(5)?),
        changed_by: row.get(6)?,
    })
}

fn status(row: &Row<'_>, column: usize) -> rusqlite::Result<SkillStatus> {
    let word: String = row.get(column)?;
    SkillStatus::read(&word).ok_or_else(|| unreadable(column, format!("unknown status {word:?}")))
}

fn unreadable(column: usize, why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(column, Type::Text, why.into())
}
