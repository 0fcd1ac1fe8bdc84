//! What every plane has: clock and randomness, the settings, and the two ways to report what happened.

use std::sync::Arc;

use crate::env::Env;
use crate::lease::Lease;
use crate::meters::Meters;
use crate::port::bus::Bus;
use crate::port::store::{Desks, StoreError};
use crate::rules::Rules;
use crate::tail::Tail;

#[derive(Clone)]
pub(crate) struct Base {
    pub(crate) env: Arc<dyn Env>,
    pub(crate) rules: Arc<Rules>,
    pub(crate) tail: Arc<Tail>,
    pub(crate) meters: Arc<Meters>,
    pub(crate) lease: Arc<Lease>,
    pub(crate) bus: Arc<dyn Bus>,
}

impl Base {
    /// Registers the server in the store: others see it from now on.
    pub(crate) async fn open(
        env: Arc<dyn Env>,
        rules: Rules,
        desks: Arc<dyn Desks>,
        bus: Arc<dyn Bus>,
    ) -> Result<Self, StoreError> {
        let tail = Arc::new(Tail::new(env.clone()));
        let lease = Lease::open(env.clone(), desks, rules.desk_name.clone()).await?;
        Ok(Self { env, rules: Arc::new(rules), tail, meters: Arc::default(), lease: Arc::new(lease), bus })
    }
}
