//! Data.
use super::SqliteStore;
use frontdesk_core::port::data::{Data, DataQuery};
use frontdesk_core::port::store::Stored;
use frontdesk_wire::agents::PortableData;
impl Data for SqliteStore {
    fn data_put<'a>(&'a self, _: &'a str, _: PortableData) -> Stored<'a, ()> {
        unimplemented!()
    }
    fn data_get<'a>(&'a self, _: &'a str, _: &'a str, _: u64) -> Stored<'a, Option<PortableData>> {
        unimplemented!()
    }
    fn data_query<'a>(&'a self, _: &'a str, _: DataQuery) -> Stored<'a, Vec<PortableData>> {
        unimplemented!()
    }
}
