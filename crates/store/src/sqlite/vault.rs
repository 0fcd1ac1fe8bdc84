//! Encrypted capabilities, under every session key that may name them.

use frontdesk_core::port::store::{SealedCapability, StoreError, Stored, Vault};
use frontdesk_wire::{SessionKey, TenantId};
use rusqlite::{Connection, OptionalExtension as _};

use super::{SqliteStore, fault, signed, unsigned};
use crate::read_queue::of_tenant;

impl Vault for SqliteStore {
    fn capability<'a>(
        &'a self,
        tenant: &'a TenantId,
        session_key: &'a SessionKey,
        kind: &'a str,
        now_ms: u64,
    ) -> Stored<'a, Option<SealedCapability>> {
        let (session_key, name) = (session_key.clone(), [tenant.as_str(), kind].map(str::to_owned));
        self.readers.read(of_tenant(tenant), move |connection| {
            let sql = "SELECT c.id, c.tenant, c.kind, c.platform, c.bot, c.chat_id, c.sealed, c.expires_ms
                       FROM capability_key k JOIN capability c ON c.id = k.id
                       WHERE k.tenant = ?1 AND k.session_key = ?2 AND k.kind = ?3 AND c.tenant = ?1 AND c.expires_ms > ?4";
            let mut query = connection.prepare_cached(sql).map_err(fault)?;
            let [tenant, kind] = name;
            let found = query.query_row((tenant, session_key.as_str(), kind, signed(now_ms)), |row| {
                Ok(SealedCapability {
                    id: row.get(0)?,
                    tenant: row.get::<_, String>(1)?.into(),
                    kind: row.get(2)?,
                    session_keys: vec![session_key.clone()],
                    platform: row.get(3)?,
                    bot: row.get::<_, String>(4)?.into(),
                    chat_id: row.get::<_, String>(5)?.into(),
                    sealed: row.get(6)?,
                    expires_ms: unsigned(row.get(7)?),
                })
            });
            found.optional().map_err(fault)
        })
    }
}

pub(super) fn bind(connection: &Connection, it: &SealedCapability) -> Result<(), StoreError> {
    let sql = "INSERT INTO capability (id, tenant, kind, platform, bot, chat_id, sealed, expires_ms)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
    let row = (
        &it.id,
        it.tenant.as_str(),
        &it.kind,
        &it.platform,
        it.bot.as_str(),
        it.chat_id.as_str(),
        &it.sealed,
        signed(it.expires_ms),
    );
    connection.prepare_cached(sql).and_then(|mut insert| insert.execute(row)).map_err(fault)?;
    let sql = "INSERT OR REPLACE INTO capability_key (tenant, session_key, kind, id) VALUES (?1, ?2, ?3, ?4)";
    let mut insert = connection.prepare_cached(sql).map_err(fault)?;
    for session_key in &it.session_keys {
        insert.execute((it.tenant.as_str(), session_key.as_str(), &it.kind, &it.id)).map_err(fault)?;
    }
    Ok(())
}
