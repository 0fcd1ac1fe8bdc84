//! Encrypted capabilities, under every session key that may name them.

use frontdesk_core::port::store::{SealedCapability, Stored, Vault};
use frontdesk_wire::{SessionKey, TenantId};

use super::connection::{Connection, Fault};
use super::text::{given, kept};
use super::{PostgresStore, signed, unsigned};
use crate::read_queue::of_tenant;

impl Vault for PostgresStore {
    fn capability<'a>(
        &'a self,
        tenant: &'a TenantId,
        session_key: &'a SessionKey,
        kind: &'a str,
        now_ms: u64,
    ) -> Stored<'a, Option<SealedCapability>> {
        let (session_key, [tenant, kind]) = (session_key.clone(), [tenant.as_str(), kind].map(str::to_owned));
        self.worker.read(of_tenant(&tenant), async move |connection| {
            let sql = "SELECT c.id, c.tenant, c.kind, c.platform, c.bot, c.chat_id, c.sealed, c.expires_ms
                       FROM capability_key k JOIN capability c ON c.id = k.id
                       WHERE k.tenant = $1 AND k.session_key = $2 AND k.kind = $3 AND c.tenant = $1 AND c.expires_ms > $4";
            let key = (kept(&tenant), kept(&session_key), kept(&kind));
            let found = connection.query_opt(sql, &[&key.0, &key.1, &key.2, &signed(now_ms)]).await?;
            Ok(found.map(|row| {
                let text = |column| given(row.get(column));
                SealedCapability {
                    id: text(0),
                    tenant: text(1).into(),
                    kind: text(2),
                    session_keys: vec![session_key.clone()],
                    platform: text(3),
                    bot: text(4).into(),
                    chat_id: text(5).into(),
                    sealed: row.get(6),
                    expires_ms: unsigned(row.get(7)),
                }
            }))
        })
    }
}

/// Stores a capability under its keys, inside the transaction of the caller.
pub(super) async fn bind(connection: &Connection, it: &SealedCapability) -> Result<(), Fault> {
    let sql = "INSERT INTO capability (id, tenant, kind, platform, bot, chat_id, sealed, expires_ms)
               VALUES ($1, $2, $3, $4, $5, $6, $7, $8)";
    let (id, tenant, kind) = (kept(&it.id), kept(&it.tenant), kept(&it.kind));
    let (platform, bot, chat_id) = (kept(&it.platform), kept(&it.bot), kept(&it.chat_id));
    let expires = signed(it.expires_ms);
    connection.execute(sql, &[&id, &tenant, &kind, &platform, &bot, &chat_id, &it.sealed, &expires]).await?;
    // In the order of keys: another server may bind the same ones.
    let mut keys: Vec<_> = it.session_keys.iter().map(|key| kept(key)).collect();
    keys.sort_unstable();
    keys.dedup();
    let sql = "INSERT INTO capability_key (tenant, session_key, kind, id)
               SELECT $1, session_key, $2, $3 FROM unnest($4::text[]) WITH ORDINALITY AS keys (session_key, no) ORDER BY no
               ON CONFLICT (tenant, session_key, kind) DO UPDATE SET id = excluded.id";
    connection.execute(sql, &[&tenant, &kind, &id, &keys]).await.map(drop)
}
