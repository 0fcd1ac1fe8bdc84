//! Rules of the store port that the Postgres store follows.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;

use frontdesk_core::port::store::Store;
use frontdesk_store::postgres::{Clock, PostgresStore};
use frontdesk_testkit::postgres::TestSchema;
use frontdesk_testkit::store_contract;
use frontdesk_testkit::store_suite::Harness;

fn in_schema() -> Harness {
    let schema = TestSchema::create();
    let mut times_opened = 0;
    Harness::new(move |held| -> Arc<dyn Store> {
        drop(held);
        times_opened += 1; // a new seed each time: only the first may count
        Arc::new(PostgresStore::open(&schema.url(), times_opened, Clock::Caller).unwrap())
    })
}

store_contract!(postgres, in_schema);
