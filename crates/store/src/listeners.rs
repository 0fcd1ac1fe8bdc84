//! Who is notified of rows after their commit.

use std::sync::{Arc, PoisonError, RwLock};

use frontdesk_core::port::store::{NewRow, RowListener};

/// One listener per server in this process; several only in tests.
#[derive(Clone, Default)]
pub(crate) struct Listeners(Arc<RwLock<Vec<Arc<dyn RowListener>>>>);

impl Listeners {
    pub(crate) fn attach(&self, listener: Arc<dyn RowListener>) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).push(listener);
    }

    pub(crate) fn rows_committed(&self, rows: &[NewRow]) {
        if rows.is_empty() {
            return;
        }
        for listener in &*self.0.read().unwrap_or_else(PoisonError::into_inner) {
            listener.rows_committed(rows);
        }
    }
}
