//! Faults that tests queue: the next calls of a method fail in the way that the plan says.

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "fault", rename_all = "snake_case")]
pub enum Fault {
    /// 429 without effect.
    RetryAfter { seconds: u64 },
    /// This error in the envelope, without effect.
    Status { code: u16, description: String },
    /// 502 with an HTML page, without effect.
    BadGateway,
    /// The connection is closed before the call has an effect.
    DropBefore,
    /// The call has its effect, then the connection is closed without an answer.
    DropAfter,
    /// The call has its effect at once, the answer comes later.
    Slow { delay_ms: u64 },
    /// The answer is JSON that ends in the middle. The call has its effect.
    Cut,
    /// `getUpdates`, or a webhook delivery: every update comes twice.
    DuplicateUpdates,
    /// `getUpdates`: the updates come in reverse order.
    ReverseUpdates,
}

impl Fault {
    /// Whether the call is answered without being carried out.
    pub(super) fn is_before_effect(&self) -> bool {
        matches!(self, Self::RetryAfter { .. } | Self::Status { .. } | Self::BadGateway | Self::DropBefore)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FaultRule {
    /// Name of the method without regard to case; `*` is every method but `getUpdates`; `webhook` is a delivery.
    pub method: String,
    #[serde(flatten)]
    pub fault: Fault,
    #[serde(default = "once")]
    pub times: u32,
}

fn once() -> u32 {
    1
}

/// Rules are used up in the order in which they were queued. At most `MAX_RULES` wait; the oldest is dropped.
#[derive(Debug, Default)]
pub(super) struct FaultPlan {
    rules: Vec<FaultRule>,
}

const MAX_RULES: usize = 10_000;

impl FaultPlan {
    pub(super) fn push(&mut self, rule: FaultRule) {
        if self.rules.len() == MAX_RULES {
            self.rules.remove(0);
        }
        self.rules.push(rule);
    }

    /// The fault for this call of the method, which is then used up.
    pub(super) fn take(&mut self, method: &str) -> Option<Fault> {
        self.take_if(method, |_| true)
    }

    /// Only if it is of the kind that is asked for.
    pub(super) fn take_if(&mut self, method: &str, wanted: impl Fn(&Fault) -> bool) -> Option<Fault> {
        let is_meant = |rule: &FaultRule| {
            let any = rule.method == "*" && !method.eq_ignore_ascii_case("getUpdates") && method != "webhook";
            any || rule.method.eq_ignore_ascii_case(method)
        };
        let at = self.rules.iter().position(is_meant).filter(|at| wanted(&self.rules[*at].fault))?;
        let fault = self.rules[at].fault.clone();
        self.rules[at].times = self.rules[at].times.saturating_sub(1);
        if self.rules[at].times == 0 {
            self.rules.remove(at);
        }
        Some(fault)
    }

    pub(super) fn waiting(&self) -> usize {
        self.rules.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_used_up_in_order() {
        let mut plan = FaultPlan::default();
        let rule = |text: &str| serde_json::from_str::<FaultRule>(text).unwrap();
        plan.push(rule(r#"{"method":"sendMessage","fault":"retry_after","seconds":3,"times":2}"#));
        plan.push(rule(r#"{"method":"*","fault":"drop_after"}"#));
        assert_eq!(plan.take("getUpdates"), None);
        for _ in 0..2 {
            assert_eq!(plan.take("SENDMESSAGE"), Some(Fault::RetryAfter { seconds: 3 }));
        }
        assert_eq!(plan.take("sendMessage"), Some(Fault::DropAfter));
        assert_eq!((plan.take("sendMessage"), plan.waiting()), (None, 0));
    }
}
