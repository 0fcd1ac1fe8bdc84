//! Problems that agents have reported, until they take them back.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use frontdesk_wire::InstanceNo;

use crate::directory::Caller;
use crate::tail::Tail;

/// Length of a problem.
const PROBLEM_MAX_CHARS: usize = 300;

/// At most one for each instance. In memory: an agent repeats what still holds.
pub struct Reports {
    problems: Mutex<HashMap<InstanceNo, String>>,
    tail: Arc<Tail>,
}

impl Reports {
    pub(super) fn new(tail: Arc<Tail>) -> Self {
        Self { problems: Mutex::default(), tail }
    }

    fn problems(&self) -> MutexGuard<'_, HashMap<InstanceNo, String>> {
        self.problems.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn problem(&self, no: InstanceNo) -> Option<String> {
        self.problems().get(&no).cloned()
    }

    pub(super) fn forget(&self, no: InstanceNo) {
        self.problems().remove(&no);
    }

    /// An agent has a problem, or none any more.
    pub(super) fn note(&self, caller: &Caller, problem: Option<&str>) {
        let no = caller.instance.no;
        let (step, text) = match problem {
            Some(problem) => {
                let text: String = problem.chars().filter(|c| !c.is_control()).take(PROBLEM_MAX_CHARS).collect();
                if self.problems().insert(no, text.clone()).as_ref() == Some(&text) {
                    return;
                }
                let instance = caller.instance.name.as_str();
                tracing::warn!(tenant = %caller.tenant, instance, problem = text, "an agent reported a problem");
                ("problem", text)
            }
            None if self.problems().remove(&no).is_none() => return,
            None => ("recovered", "the problem that it reported is over".to_owned()),
        };
        self.tail.say(&caller.tenant, step, |notice| {
            notice.instance.clone_from(&caller.instance.name);
            notice.text = text;
        });
    }
}
