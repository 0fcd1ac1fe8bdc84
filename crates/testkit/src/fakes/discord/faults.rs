//! Faults that tests queue for REST calls: the next calls of a route fail in the way that the plan says.

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "fault", rename_all = "snake_case")]
pub enum Fault {
    /// 429 without effect. The scope is user, global or shared.
    RateLimited {
        retry_after_ms: u64,
        #[serde(default)]
        scope: Scope,
    },
    /// This error, without effect.
    Status {
        status: u16,
        #[serde(default)]
        code: u64,
        message: String,
    },
    /// 502 with an HTML page, without effect.
    BadGateway,
    /// 429 with an HTML page, as the proxy answers a banned address.
    Banned { retry_after_s: u64 },
    /// The connection is closed before the call has an effect.
    DropBefore,
    /// The call has its effect, then the connection is closed without an answer.
    DropAfter,
    /// The call has its effect at once, the answer comes later.
    Slow { delay_ms: u64 },
    /// The answer is JSON that ends in the middle. The call has its effect.
    Cut,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    #[default]
    User,
    Global,
    Shared,
}

impl Scope {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Global => "global",
            Self::Shared => "shared",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FaultRule {
    /// Name of the route, as in the record of calls (`POST channels/:id/messages`); `*` is every route.
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

    /// The fault for this call of the route, which is then used up.
    pub(super) fn take(&mut self, route: &str) -> Option<Fault> {
        let at = self.rules.iter().position(|rule| rule.method == "*" || rule.method == route)?;
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
        plan.push(rule(r#"{"method":"POST a","fault":"rate_limited","retry_after_ms":300,"times":2}"#));
        plan.push(rule(r#"{"method":"*","fault":"drop_after"}"#));
        for _ in 0..2 {
            assert_eq!(plan.take("POST a"), Some(Fault::RateLimited { retry_after_ms: 300, scope: Scope::User }));
        }
        assert_eq!(plan.take("GET b"), Some(Fault::DropAfter));
        assert_eq!((plan.take("POST a"), plan.waiting()), (None, 0));
    }
}
