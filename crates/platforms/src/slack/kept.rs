//! What is remembered of the vendor's answers: at most so many, and each for some time.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::sync::{Mutex, PoisonError};

pub(super) struct Kept<K, V> {
    max: usize,
    ttl_ms: u64,
    inner: Mutex<Inner<K, V>>,
}

struct Inner<K, V> {
    values: HashMap<K, (u64, V)>,
    /// The oldest first.
    order: VecDeque<K>,
}

impl<K: Eq + Hash + Clone, V: Clone> Kept<K, V> {
    pub(super) fn new(max: usize, ttl_ms: u64) -> Self {
        let inner = Inner { values: HashMap::new(), order: VecDeque::new() };
        Self { max, ttl_ms, inner: Mutex::new(inner) }
    }

    pub(super) fn get(&self, key: &K, now_ms: u64) -> Option<V> {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let (at_ms, value) = inner.values.get(key)?;
        (now_ms.saturating_sub(*at_ms) < self.ttl_ms).then(|| value.clone())
    }

    pub(super) fn put(&self, key: K, value: V, now_ms: u64) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        if inner.values.insert(key.clone(), (now_ms, value)).is_none() {
            inner.order.push_back(key);
        }
        while inner.order.len() > self.max {
            if let Some(oldest) = inner.order.pop_front() {
                inner.values.remove(&oldest);
            }
        }
    }

    pub(super) fn forget(&self, key: &K) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        if inner.values.remove(key).is_some() {
            inner.order.retain(|other| other != key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_bounded_in_count_and_time() {
        let kept = Kept::new(2, 100);
        for (key, at) in [("a", 0), ("b", 10), ("a", 20), ("c", 30)] {
            kept.put(key, at, at);
        }
        assert_eq!((kept.get(&"a", 40), kept.get(&"b", 40), kept.get(&"c", 40)), (None, Some(10), Some(30)));
        assert_eq!((kept.get(&"b", 109), kept.get(&"b", 110)), (Some(10), None));
        kept.forget(&"c");
        assert_eq!(kept.get(&"c", 40), None);
    }
}
