//! Directory records, compared and set.

use frontdesk_core::port::store::{Applied, Change, Directory, Record, StoreError, Stored};

use super::{MemoryStore, State, now};

impl Directory for MemoryStore {
    fn load(&self) -> Stored<'_, Vec<Record>> {
        now(self.state().records.values().cloned().collect())
    }

    fn amend(&self, changes: Vec<Change>, applied: Applied) -> Stored<'_, ()> {
        let mut state = self.state();
        let held = |change: &Change| {
            let key = (change.kind.clone(), change.key.clone());
            state.records.get(&key).map_or(0, |record| record.version)
        };
        if changes.iter().any(|change| held(change) != change.expect) {
            return Box::pin(std::future::ready(Err(StoreError::Conflict)));
        }
        if changes.iter().any(|change| state.takes_a_number(change)) {
            return Box::pin(std::future::ready(Err(StoreError::Conflict)));
        }
        for Change { kind, key, expect, json } in changes {
            let at = (kind.clone(), key.clone());
            match json {
                Some(json) => {
                    if let Some(no) = number(&kind, Some(&json)).filter(|_| kind == "instance") {
                        state.last_number = state.last_number.max(no);
                    }
                    drop(state.records.insert(at, Record { kind, key, version: expect + 1, json }));
                }
                None => drop(state.records.remove(&at)),
            }
        }
        applied(); // under the lock, so that memory changes in the order of commits
        now(())
    }

    fn draw_numbers(&self, count: u64) -> Stored<'_, u64> {
        let mut state = self.state();
        let first = state.last_number + 1;
        state.last_number += count;
        now(first)
    }
}

impl State {
    /// Whether another record has the number that this one would get.
    fn takes_a_number(&self, change: &Change) -> bool {
        let Some(no) = number(&change.kind, change.json.as_deref()) else { return false };
        let taken = |it: &Record| {
            (&it.kind, &it.key) != (&change.kind, &change.key) && number(&it.kind, Some(&it.json)) == Some(no)
        };
        self.records.values().any(taken)
    }
}

fn number(kind: &str, json: Option<&str>) -> Option<u64> {
    let numbered = ["instance", "agent"].contains(&kind);
    let json: serde_json::Value = serde_json::from_str(json.filter(|_| numbered)?).ok()?;
    json["no"].as_u64()
}
