//! Problems that agents have reported, until they take them back.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use frontdesk_wire::InstanceNo;

use crate::directory::Caller;
use crate::tail::Tail;

/// Length of a problem.
const PROBLEM_MAX_CHARS: usize = 300;
/// An agent whose problem changes all the time is logged so often.
const LOG_EVERY_MS: u64 = 5_000;

/// At most one for each instance. In memory: an agent repeats what still holds.
pub struct Reports {
    /// The problem, and when it was last logged.
    problems: Mutex<HashMap<InstanceNo, (String, u64)>>,
    tail: Arc<Tail>,
}

impl Reports {
    pub(super) fn new(tail: Arc<Tail>) -> Self {
        Self { problems: Mutex::default(), tail }
    }

    fn problems(&self) -> MutexGuard<'_, HashMap<InstanceNo, (String, u64)>> {
        self.problems.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn problem(&self, no: InstanceNo) -> Option<String> {
        self.problems().get(&no).map(|(text, _)| text.clone())
    }

    pub(super) fn forget(&self, no: InstanceNo) {
        self.problems().remove(&no);
    }

    /// An agent has a problem, or none any more.
    pub(super) fn note(&self, caller: &Caller, problem: Option<&str>, now_ms: u64) {
        let no = caller.instance.no;
        let (step, text) = match problem {
            Some(problem) => {
                let text: String = problem.chars().filter(|c| !c.is_control()).take(PROBLEM_MAX_CHARS).collect();
                let mut problems = self.problems();
                let before = problems.get(&no).cloned();
                let is_quiet = before.as_ref().is_some_and(|(_, at_ms)| now_ms.saturating_sub(*at_ms) < LOG_EVERY_MS);
                let at_ms = before.as_ref().filter(|_| is_quiet).map_or(now_ms, |(_, at_ms)| *at_ms);
                problems.insert(no, (text.clone(), at_ms));
                drop(problems);
                if is_quiet || before.is_some_and(|(before, _)| before == text) {
                    return;
                }
                let instance = caller.instance.name.as_str();
                tracing::warn!(
                    tenant = caller.tenant.as_str(),
                    instance,
                    problem = text,
                    "an agent reported a problem"
                );
                ("problem", text)
            }
            None if self.problems().remove(&no).is_none() => return,
            None => ("recovered", "the problem that it reported is resolved".to_owned()),
        };
        self.tail.publish(&caller.tenant, step, |notice| {
            notice.instance.clone_from(&caller.instance.name);
            notice.text = text;
        });
    }
}
