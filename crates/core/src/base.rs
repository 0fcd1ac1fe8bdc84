//! What every plane has: the clock and the dice, the settings, and the two ways to say what happened.

use std::sync::Arc;

use crate::env::Env;
use crate::meters::Meters;
use crate::rules::Rules;
use crate::tail::Tail;

#[derive(Clone)]
pub(crate) struct Base {
    pub(crate) env: Arc<dyn Env>,
    pub(crate) rules: Arc<Rules>,
    pub(crate) tail: Arc<Tail>,
    pub(crate) meters: Arc<Meters>,
}

impl Base {
    pub(crate) fn new(env: Arc<dyn Env>, rules: Rules) -> Self {
        let tail = Arc::new(Tail::new(env.clone()));
        Self { env, rules: Arc::new(rules), tail, meters: Arc::default() }
    }
}
