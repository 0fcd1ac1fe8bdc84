//! A lock whose holder cannot leave half a change behind.

use std::sync::{Mutex, MutexGuard, PoisonError};

pub(super) fn locked<T>(it: &Mutex<T>) -> MutexGuard<'_, T> {
    it.lock().unwrap_or_else(PoisonError::into_inner)
}
