//! Data: an in-memory `SQLite` database with the statements of the embedded store, so that queries behave the same.

use frontdesk_core::port::data::{Data, DataQuery};
use frontdesk_core::port::store::{StoreError, Stored};
use frontdesk_wire::TenantId;
use frontdesk_wire::agents::PortableData;
use rusqlite::Connection;

use super::{MemoryStore, State};
use crate::sqlite::{data, fault, schema};

impl State {
    /// Created on first use.
    fn data(&mut self) -> Result<&Connection, StoreError> {
        let kept = self.data.take();
        let connection = kept.map_or_else(made, Ok)?;
        Ok(self.data.insert(connection))
    }

    /// A partial write is rolled back, as in the embedded store.
    fn put_data(&mut self, tenant: &TenantId, row: PortableData) -> Result<(), StoreError> {
        let transaction = self.data()?.unchecked_transaction().map_err(fault)?;
        data::put(&transaction, tenant, row)?;
        transaction.commit().map_err(fault)
    }

    pub(super) fn expire_data(&mut self, now_s: u64) -> Result<usize, StoreError> {
        let transaction = self.data()?.unchecked_transaction().map_err(fault)?;
        let gone = data::expire(&transaction, now_s)?;
        transaction.commit().map_err(fault)?;
        Ok(gone)
    }
}

fn made() -> Result<Connection, StoreError> {
    let connection = Connection::open_in_memory().map_err(fault)?;
    connection.execute_batch(schema::SKILLS_AND_DATA).map_err(fault)?;
    Ok(connection)
}

impl Data for MemoryStore {
    fn data_put<'a>(&'a self, tenant: &'a TenantId, row: PortableData) -> Stored<'a, ()> {
        let written = self.state().put_data(tenant, row);
        Box::pin(std::future::ready(written))
    }

    fn data_get<'a>(&'a self, tenant: &'a TenantId, id: &'a str, now_s: u64) -> Stored<'a, Option<PortableData>> {
        let found = self.state().data().and_then(|connection| data::get(connection, tenant, id, now_s));
        Box::pin(std::future::ready(found))
    }

    fn data_query<'a>(&'a self, tenant: &'a TenantId, query: DataQuery) -> Stored<'a, Vec<PortableData>> {
        let found = self.state().data().and_then(|connection| data::find(connection, tenant, &query));
        Box::pin(std::future::ready(found))
    }
}
