//! Faults that tests queue: the next calls fail in this way, in this order.

use serde::{Deserialize, Serialize};
use serde_json::Value;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "fault", rename_all = "snake_case")]
pub enum Fault {
    /// This answer, without effect.
    Status { status: u16, body: Value },
    /// The connection is closed before the call has an effect.
    DropBefore,
    /// The call has its effect, then the connection is closed without an answer.
    DropAfter,
    /// The answer comes later.
    Slow { delay_ms: u64 },
}
