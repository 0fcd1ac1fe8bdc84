//! Two servers over one store, in memory and on disk. A file of `SQLite` is opened by one store only, which both share; two
//! stores on one database are in `postgres_shared.rs`.
#![allow(clippy::unwrap_used, reason = "tests")]

/// Runs each test over both stores.
macro_rules! over_each_store {
    ($($test:ident),* $(,)?) => {
        mod memory {
            use frontdesk_store::memory::MemoryStore;

            $(#[tokio::test]
            async fn $test() {
                super::$test(std::sync::Arc::new(MemoryStore::new(1))).await;
            })*
        }

        mod sqlite {
            use frontdesk_store::sqlite::SqliteStore;

            $(#[tokio::test]
            async fn $test() {
                let folder = tempfile::tempdir().unwrap();
                super::$test(std::sync::Arc::new(SqliteStore::open(folder.path(), 1).unwrap())).await;
            })*
        }
    };
}

mod changes;
mod served;
mod work;
