//! Faults that tests queue: the next calls of a method fail in the way that the plan says.

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "fault", rename_all = "snake_case")]
pub enum Fault {
    /// Too many requests, without effect.
    Limited { seconds: u64 },
    /// This code, without effect.
    Code { code: i64 },
    /// 502 with an HTML page, without effect.
    BadGateway,
    /// The connection is closed before the call has an effect.
    DropBefore,
    /// The call has its effect, then the connection is closed without an answer.
    DropAfter,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FaultRule {
    /// As in the record of a call: `POST im/v1/messages`.
    pub method: String,
    #[serde(flatten)]
    pub fault: Fault,
    #[serde(default = "once")]
    pub times: u32,
}

fn once() -> u32 {
    1
}

#[derive(Debug, Default)]
pub(super) struct FaultPlan(Vec<FaultRule>);

const RULES_MAX: usize = 10_000;

impl FaultPlan {
    pub(super) fn push(&mut self, rule: FaultRule) {
        if self.0.len() < RULES_MAX {
            self.0.push(rule);
        }
    }

    /// The fault for this call of the method, which is then used up.
    pub(super) fn take(&mut self, method: &str) -> Option<Fault> {
        let at = self.0.iter().position(|rule| rule.method == method)?;
        let fault = self.0[at].fault.clone();
        self.0[at].times = self.0[at].times.saturating_sub(1);
        if self.0[at].times == 0 {
            self.0.remove(at);
        }
        Some(fault)
    }
}
