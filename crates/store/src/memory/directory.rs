//! Directory records, compared and set.

use frontdesk_core::port::store::{Change, Directory, Record, StoreError, Stored};

use super::{MemoryStore, now};

impl Directory for MemoryStore {
    fn load(&self) -> Stored<'_, Vec<Record>> {
        now(self.state().records.values().cloned().collect())
    }

    fn amend(&self, changes: Vec<Change>) -> Stored<'_, ()> {
        let mut state = self.state();
        let held = |change: &Change| {
            let key = (change.kind.clone(), change.key.clone());
            state.records.get(&key).map_or(0, |record| record.version)
        };
        if changes.iter().any(|change| held(change) != change.expect) {
            return Box::pin(std::future::ready(Err(StoreError::Conflict)));
        }
        for Change { kind, key, expect, json } in changes {
            let at = (kind.clone(), key.clone());
            match json {
                Some(json) => drop(state.records.insert(at, Record { kind, key, version: expect + 1, json })),
                None => drop(state.records.remove(&at)),
            }
        }
        now(())
    }
}
