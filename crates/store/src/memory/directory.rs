//! Directory records with a common version.

use frontdesk_core::port::store::{Applied, Change, Changes, Directory, Record, StoreError, Stored};

use super::{MemoryStore, State, now};

impl Directory for MemoryStore {
    fn changed_since(&self, version: u64) -> Stored<'_, Changes> {
        let state = self.state();
        let changed = state.records.values().filter(|it| it.version > version && (version > 0 || it.json.is_some()));
        let records = changed.cloned().collect();
        now(Changes { version: state.directory_version, records, whole: version == 0 })
    }

    fn amend(&self, seen: u64, changes: Vec<Change>, applied: Applied) -> Stored<'_, u64> {
        let mut state = self.state();
        if state.directory_version != seen || changes.iter().any(|change| state.takes_a_number(change)) {
            return Box::pin(std::future::ready(Err(StoreError::Conflict)));
        }
        let version = seen + 1;
        state.directory_version = version;
        for Change { kind, key, json } in changes {
            if let Some(no) = number(&kind, json.as_deref()).filter(|_| kind == "instance") {
                state.last_number = state.last_number.max(no);
            }
            let at = (kind.clone(), key.clone());
            state.records.insert(at, Record { kind, key, version, json });
        }
        applied(version); // under the lock, to keep the order of commits
        now(version)
    }

    fn draw_numbers(&self, count: u64) -> Stored<'_, u64> {
        let mut state = self.state();
        let first = state.last_number + 1;
        state.last_number += count;
        now(first)
    }
}

impl State {
    /// Whether another record has the number of this one.
    fn takes_a_number(&self, change: &Change) -> bool {
        let Some(no) = number(&change.kind, change.json.as_deref()) else { return false };
        let taken = |it: &Record| {
            (&it.kind, &it.key) != (&change.kind, &change.key) && number(&it.kind, it.json.as_deref()) == Some(no)
        };
        self.records.values().any(taken)
    }
}

fn number(kind: &str, json: Option<&str>) -> Option<u64> {
    let numbered = ["instance", "agent"].contains(&kind);
    let json: serde_json::Value = serde_json::from_str(json.filter(|_| numbered)?).ok()?;
    json["no"].as_u64()
}
