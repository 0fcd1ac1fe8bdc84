//! Rules of the store port that the Postgres store follows.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;

use frontdesk_store::postgres::{Clock, PostgresStore};
use frontdesk_testkit::postgres::TestSchema;

#[tokio::test]
async fn it_opens_twice_and_keeps_its_epoch() {
    let schema = TestSchema::create();
    let _store = Arc::new(PostgresStore::open(&schema.url(), 7, Clock::Caller).unwrap());
    let _again = Arc::new(PostgresStore::open(&schema.url(), 8, Clock::Caller).unwrap());
}
