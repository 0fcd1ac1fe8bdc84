//! A cache of answers of a vendor: bounded in count, and each kept for some time.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::sync::{Mutex, PoisonError};

pub(crate) struct BoundedCache<K, V> {
    max: usize,
    ttl_ms: u64,
    inner: Mutex<Inner<K, V>>,
}

struct Inner<K, V> {
    values: HashMap<K, (u64, V)>,
    /// The oldest first.
    order: VecDeque<K>,
}

impl<K: Eq + Hash + Clone, V> Inner<K, V> {
    fn put(&mut self, max: usize, key: K, value: V, now_ms: u64) {
        if self.values.insert(key.clone(), (now_ms, value)).is_none() {
            self.order.push_back(key);
        }
        while self.order.len() > max {
            if let Some(oldest) = self.order.pop_front() {
                self.values.remove(&oldest);
            }
        }
    }
}

impl<K: Eq + Hash + Clone, V: Clone> BoundedCache<K, V> {
    pub(crate) fn new(max: usize, ttl_ms: u64) -> Self {
        let inner = Inner { values: HashMap::new(), order: VecDeque::new() };
        Self { max, ttl_ms, inner: Mutex::new(inner) }
    }

    pub(crate) fn get(&self, key: &K, now_ms: u64) -> Option<V> {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let (at_ms, value) = inner.values.get(key)?;
        (now_ms.saturating_sub(*at_ms) < self.ttl_ms).then(|| value.clone())
    }

    /// The cached value, or the one that is made now, in one step.
    pub(crate) fn get_or_put(&self, key: K, now_ms: u64, make: impl FnOnce() -> V) -> V {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at_ms, value)) = inner.values.get(&key)
            && now_ms.saturating_sub(*at_ms) < self.ttl_ms
        {
            return value.clone();
        }
        let value = make();
        inner.put(self.max, key, value.clone(), now_ms);
        value
    }

    pub(crate) fn put(&self, key: K, value: V, now_ms: u64) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.put(self.max, key, value, now_ms);
    }

    pub(crate) fn forget(&self, key: &K) {
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
        let kept = BoundedCache::new(2, 100);
        for (key, at) in [("a", 0), ("b", 10), ("a", 20), ("c", 30)] {
            kept.put(key, at, at);
        }
        assert_eq!((kept.get(&"a", 40), kept.get(&"b", 40), kept.get(&"c", 40)), (None, Some(10), Some(30)));
        assert_eq!((kept.get(&"b", 109), kept.get(&"b", 110)), (Some(10), None));
        assert_eq!(
            (kept.get_or_put("b", 40, || 7), kept.get_or_put("b", 110, || 7), kept.get(&"b", 111)),
            (10, 7, Some(7))
        );
        kept.forget(&"c");
        assert_eq!(kept.get(&"c", 40), None);
    }
}
