//! Which server wakes which instance, for the stores of one process.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use frontdesk_core::port::store::DeskNo;
use frontdesk_wire::InstanceNo;

#[derive(Default)]
pub(crate) struct WakeClaims(Mutex<HashMap<InstanceNo, (DeskNo, u64)>>);

impl WakeClaims {
    pub(crate) fn claim(
        &self,
        instance: InstanceNo,
        me: DeskNo,
        live: &[DeskNo],
        cooldown_ms: u64,
        now_ms: u64,
    ) -> bool {
        let mut claims = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_free = claims.get(&instance).is_none_or(|(desk, at_ms)| {
            *desk == me || !live.contains(desk) || at_ms.saturating_add(cooldown_ms) <= now_ms
        });
        if is_free {
            claims.insert(instance, (me, now_ms));
        }
        is_free
    }

    pub(crate) fn end(&self, instance: InstanceNo) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&instance);
    }
}
