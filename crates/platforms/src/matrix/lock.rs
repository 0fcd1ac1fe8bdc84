//! Locks a mutex, also after a panic of an earlier holder.

use std::sync::{Mutex, MutexGuard, PoisonError};

pub(super) fn locked<T>(it: &Mutex<T>) -> MutexGuard<'_, T> {
    it.lock().unwrap_or_else(PoisonError::into_inner)
}
