//! A `Desk` over any store, without platforms and outgoing calls.

use std::sync::Arc;

use frontdesk_core::port::BoxFuture;
use frontdesk_core::port::bus::{Bus, NoBus};
use frontdesk_core::port::outcall::{Call, HttpAnswer, Outcall, OutcallError};
use frontdesk_core::port::store::Store;
use frontdesk_core::port::stores::Stores;
use frontdesk_core::vault::Sealer;
use frontdesk_core::{Desk, Env, Parts, Rules};
use zeroize::Zeroizing;

/// Refuses every call.
pub struct NoWay;

impl Outcall for NoWay {
    fn check(&self, _: &str) -> Result<(), OutcallError> {
        Err(OutcallError::Refused)
    }

    fn call<'a>(&'a self, _: Call<'a>) -> BoxFuture<'a, Result<HttpAnswer, OutcallError>> {
        Box::pin(std::future::ready(Err(OutcallError::Refused)))
    }
}

pub async fn desk_over(store: Arc<dyn Store>, env: Arc<dyn Env>, rules: Rules) -> Arc<Desk> {
    desk_on_bus(store, env, rules, Arc::new(NoBus)).await
}

/// A desk over the traits of a store, some of which a test has replaced.
pub async fn desk_over_stores(stores: Stores, env: Arc<dyn Env>) -> Arc<Desk> {
    let parts = Parts::new(env, sealer(), Arc::new(NoWay), Rules::default());
    Arc::new(Desk::open(stores, parts).await.unwrap())
}

/// One of several desks.
pub async fn desk_on_bus(store: Arc<dyn Store>, env: Arc<dyn Env>, rules: Rules, bus: Arc<dyn Bus>) -> Arc<Desk> {
    desk_calling(store, env, rules, bus, Arc::new(NoWay)).await
}

/// One of several desks, which calls wake URLs by this client.
pub async fn desk_calling(
    store: Arc<dyn Store>,
    env: Arc<dyn Env>,
    rules: Rules,
    bus: Arc<dyn Bus>,
    outcall: Arc<dyn Outcall>,
) -> Arc<Desk> {
    let parts = Parts { bus, ..Parts::new(env, sealer(), outcall, rules) };
    Arc::new(Desk::open(store, parts).await.unwrap())
}

fn sealer() -> Sealer {
    Sealer::new(Zeroizing::new([7; 32]))
}
