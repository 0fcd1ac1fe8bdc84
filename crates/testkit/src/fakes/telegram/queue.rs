//! Updates that wait for a bot, by the rules of `getUpdates`.

use std::collections::VecDeque;

use serde_json::Value;

/// More than that are dropped, oldest first.
const MAX_WAITING: usize = 100_000;
/// Left out unless they are asked for by name.
const ON_DEMAND: [&str; 3] = ["chat_member", "message_reaction", "message_reaction_count"];

#[derive(Debug)]
pub(super) struct Queue {
    waiting: VecDeque<(i64, Value)>,
    last_id: i64,
    /// `None` is the default set.
    pub(super) allowed: Option<Vec<String>>,
    /// The poll that holds the queue. An older one is ended.
    pub(super) poll: u64,
    /// Why the holder of an older number is ended.
    pub(super) ended_by: &'static str,
}

impl Queue {
    pub(super) fn new(first_id: i64) -> Self {
        Self { waiting: VecDeque::new(), last_id: first_id - 1, allowed: None, poll: 0, ended_by: "other getUpdates" }
    }

    /// Numbers the update and keeps it, unless this bot does not want updates of this kind.
    pub(super) fn push(&mut self, kind: &str, body: Value) -> Option<i64> {
        let wanted = match &self.allowed {
            None => !ON_DEMAND.contains(&kind),
            Some(kinds) => kinds.iter().any(|it| it == kind),
        };
        wanted.then(|| {
            self.last_id += 1;
            let mut update = serde_json::Map::new();
            update.insert("update_id".into(), self.last_id.into());
            update.insert(kind.into(), body);
            self.keep(Value::Object(update))
        })
    }

    /// As it is, also what no client can read. Only the number is set, where it is an object.
    pub(super) fn push_raw(&mut self, mut update: Value) -> i64 {
        self.last_id += 1;
        if let Some(fields) = update.as_object_mut() {
            fields.entry("update_id").or_insert(self.last_id.into());
        }
        self.keep(update)
    }

    fn keep(&mut self, update: Value) -> i64 {
        if self.waiting.len() == MAX_WAITING {
            self.waiting.pop_front();
        }
        self.waiting.push_back((self.last_id, update));
        self.last_id
    }

    /// A positive offset confirms what is before it; a negative one keeps only that many from the end.
    pub(super) fn confirm(&mut self, offset: i64) {
        if offset > 0 {
            while self.waiting.front().is_some_and(|(id, _)| *id < offset) {
                self.waiting.pop_front();
            }
        } else if offset < 0 {
            let kept = usize::try_from(offset.unsigned_abs()).unwrap_or(usize::MAX);
            while self.waiting.len() > kept {
                self.waiting.pop_front();
            }
        }
    }

    pub(super) fn first(&self, limit: usize) -> Vec<Value> {
        self.waiting.iter().take(limit).map(|(_, update)| update.clone()).collect()
    }

    pub(super) fn next(&self) -> Option<(i64, Value)> {
        self.waiting.front().cloned()
    }

    pub(super) fn remove(&mut self, id: i64) {
        self.waiting.retain(|(known, _)| *known != id);
    }

    pub(super) fn clear(&mut self) {
        self.waiting.clear();
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn ids(queue: &Queue) -> Vec<i64> {
        queue.first(100).iter().filter_map(|it| it["update_id"].as_i64()).collect()
    }

    #[test]
    fn offsets_confirm() {
        let mut queue = Queue::new(10);
        for _ in 0..5 {
            queue.push("message", json!({}));
        }
        assert_eq!(ids(&queue), [10, 11, 12, 13, 14]);
        queue.confirm(12);
        queue.confirm(0);
        assert_eq!((ids(&queue), queue.first(1).len()), (vec![12, 13, 14], 1));
        queue.confirm(-1);
        assert_eq!(ids(&queue), [14]);
    }

    #[test]
    fn kinds_are_filtered_when_they_happen() {
        let mut queue = Queue::new(1);
        assert_eq!(queue.push("chat_member", json!({})), None);
        queue.allowed = Some(vec!["chat_member".into()]);
        assert_eq!(queue.push("message", json!({})), None);
        assert_eq!(queue.push("chat_member", json!({})), Some(1));
    }
}
