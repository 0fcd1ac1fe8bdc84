//! The loops of the server: waking, alarms, typing, listeners, fragments, lists of commands, retention. They spawn and
//! wait; the rules are in the core.
//!
//! Each task is tracked and ends when the server stops.

mod agents;
mod alarms;
mod cluster;
mod commands;
mod fragments;
mod lease;
mod listeners;
mod pacing;
mod retention;
mod typing;

use std::sync::Arc;

use frontdesk_core::delivery::wake::POKES_MAX;
use frontdesk_core::{Desk, RetentionDays};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub(crate) use lease::keep_lease;
pub(crate) use retention::{Explain, Journal, Ledger};

/// Returns the loops that have duties which others wait for. They end when the server is `leaving`, the rest at its `stop`.
pub(crate) fn begin(
    desk: &Arc<Desk>,
    retention: RetentionDays,
    tracker: &TaskTracker,
    stop: &CancellationToken,
    leaving: &CancellationToken,
) -> Vec<JoinHandle<()>> {
    tracker.spawn(run_wakes(desk.clone(), tracker.clone(), stop.clone()));
    if desk.cluster().has_others() {
        tracker.spawn(agents::run_handoffs(desk.clone(), stop.clone()));
    }
    tracker.spawn(agents::poke_agents(desk.clone(), tracker.clone(), stop.clone()));
    tracker.spawn(alarms::run(desk.clone(), tracker.clone(), stop.clone()));
    tracker.spawn(pacing::release(desk.clone(), stop.clone()));
    tracker.spawn(typing::repeat(desk.clone(), stop.clone()));
    tracker.spawn(fragments::join(desk.clone(), tracker.clone(), stop.clone()));
    tracker.spawn(commands::declare(desk.clone(), tracker.clone(), stop.clone()));
    tracker.spawn(cluster::listen(desk.clone(), stop.clone()));
    vec![
        tracker.spawn(listeners::listen(desk.clone(), tracker.clone(), leaving.clone())),
        tracker.spawn(retention::forget_old(desk.clone(), retention, leaving.clone())),
    ]
}

async fn run_wakes(desk: Arc<Desk>, tracker: TaskTracker, stop: CancellationToken) {
    let mut waker = desk.delivery().new_waker().await;
    let (done, mut ended) = mpsc::channel(POKES_MAX);
    loop {
        tokio::select! {
            () = desk.delivery().unserved() => {}
            Some((call, how)) = ended.recv() => waker.ended(call, how, desk.env().steady_ms()),
            () = tokio::time::sleep(desk.delivery().pause(&waker)) => {}
            () = stop.cancelled() => return,
        }
        for task in desk.delivery().due_wake_tasks(&mut waker).await {
            let (desk, done) = (desk.clone(), done.clone());
            drop(tracker.spawn(async move {
                let ended = desk.delivery().run(task).await;
                let _ = done.send(ended).await; // the loop may have ended
            }));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::time::Duration;

    use frontdesk_core::directory::Identity;
    use frontdesk_core::port::BoxFuture;
    use frontdesk_core::port::outcall::{Call, HttpAnswer, Outcall, OutcallError};
    use frontdesk_core::port::store::{Acceptance, Delivery};
    use frontdesk_core::vault::Sealer;
    use frontdesk_core::{Env as _, Parts, Rules};
    use frontdesk_store::memory::MemoryStore;
    use frontdesk_testkit::TestEnv;
    use frontdesk_wire::api::ProvisionRequest;
    use frontdesk_wire::{BotId, EventId, Seq};
    use zeroize::Zeroizing;

    use super::*;

    /// A network without any agent: calls are refused, or hang.
    #[derive(Default)]
    struct Nobody {
        called: Mutex<Vec<String>>,
        hangs: AtomicBool,
        open: AtomicUsize,
    }

    impl Outcall for Nobody {
        fn check(&self, _: &str) -> Result<(), OutcallError> {
            Ok(())
        }

        fn call<'a>(&'a self, call: Call<'a>) -> BoxFuture<'a, Result<HttpAnswer, OutcallError>> {
            self.called.lock().unwrap().push(call.url.to_owned());
            Box::pin(async move {
                self.open.fetch_add(1, Ordering::SeqCst);
                if self.hangs.load(Ordering::SeqCst) {
                    std::future::pending::<()>().await;
                }
                self.open.fetch_sub(1, Ordering::SeqCst);
                Ok(HttpAnswer::of(503))
            })
        }
    }

    impl Nobody {
        fn calls_to(&self, name: &str) -> usize {
            self.called.lock().unwrap().iter().filter(|url| url.ends_with(name)).count()
        }
    }

    struct Sleepers {
        desk: Arc<Desk>,
        env: Arc<TestEnv>,
        network: Arc<Nobody>,
        stop: CancellationToken,
        mails: AtomicUsize,
    }

    impl Sleepers {
        async fn watched() -> Self {
            let (env, network) = (Arc::new(TestEnv::default()), Arc::new(Nobody::default()));
            let (store, sealer) = (Arc::new(MemoryStore::new(1)), Sealer::new(Zeroizing::new([1; 32])));
            let desk = Desk::open(store, Parts::new(env.clone(), sealer, network.clone(), Rules::default()));
            let (desk, stop) = (Arc::new(desk.await.unwrap()), CancellationToken::new());
            desk.directory().create_tenant(&"home".into()).await.unwrap();
            tokio::spawn(run_wakes(desk.clone(), TaskTracker::new(), stop.clone()));
            Self { desk, env, network, stop, mails: AtomicUsize::new(0) }
        }

        /// Mail for an agent of this name, which is made if it is not there.
        async fn mail(&self, name: &str) {
            let found = self.desk.directory().read(|view| view.instance(&"home".into(), &name.into()).cloned());
            if found.is_none() {
                let ask = ProvisionRequest {
                    gateway_id: name.into(),
                    platform: "relay".into(),
                    bot_id: BotId::default(),
                    gateway_endpoint: None,
                    route_keys: Vec::new(),
                    instance_id: Some(name.into()),
                    wake_url: Some(format!("https://wake.example/{name}")),
                };
                let who = Identity { tenant: "home".into(), instance: None };
                self.desk.directory().provision(&who, ask).await.unwrap();
            }
            let instance =
                self.desk.directory().read(|view| view.instance(&"home".into(), &name.into()).cloned()).unwrap();
            let number = self.mails.fetch_add(1, Ordering::SeqCst);
            let delivery = Delivery {
                event: EventId(0),
                at_ms: self.env.now_ms(),
                passthrough: false,
                json: "{}".into(),
                platform: "relay".into(),
                bot: "desk".into(),
                chat_id: "c".into(),
                session_key: "k".into(),
                message_id: number.to_string().into(),
            };
            let dedup = number.to_be_bytes().to_vec();
            let unreceived = Acceptance::unreceived(&"home".into(), dedup, delivery, String::new());
            let acceptance = Acceptance { receivers: vec![instance.no], ..unreceived };
            self.desk.stores().ledger.accept(vec![acceptance]).await.unwrap();
        }

        /// Time passes, second by second, on every clock.
        async fn pass(&self, seconds: u64) {
            for _ in 0..seconds {
                self.env.advance_ms(1_000);
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_clock_set_back_does_not_stop_wakes() {
        let sleepers = Sleepers::watched().await;
        sleepers.mail("ann").await;
        sleepers.pass(4).await; // tried at once, after one second and after two more
        let before = sleepers.network.calls_to("/ann");
        assert_eq!(before, 3);
        sleepers.env.set_ms(sleepers.env.now_ms() - 2 * 3_600_000);
        sleepers.pass(30).await; // after four, eight and sixteen
        assert!(sleepers.network.calls_to("/ann") >= before + 2, "{}", sleepers.network.calls_to("/ann"));
        sleepers.mail("ben").await;
        sleepers.pass(1).await;
        assert!(sleepers.network.calls_to("/ben") >= 1, "a new wait begins at once");
        sleepers.stop.cancel();
    }

    #[tokio::test(start_paused = true)]
    async fn wake_calls_are_bounded_and_agents_that_do_not_come_do_not_hold_up_others() {
        let sleepers = Sleepers::watched().await;
        for number in 0..200 {
            sleepers.mail(&format!("absent-{number}")).await;
        }
        sleepers.pass(1).await;
        assert_eq!(sleepers.network.called.lock().unwrap().iter().collect::<std::collections::HashSet<_>>().len(), 200);
        sleepers.network.hangs.store(true, Ordering::SeqCst);
        sleepers.pass(60).await;
        assert_eq!(sleepers.network.open.load(Ordering::SeqCst), 24, "their retries hang, as many as may");
        for number in 0..100 {
            sleepers.mail(&format!("new-{number}")).await;
        }
        sleepers.pass(1).await;
        assert_eq!(sleepers.network.calls_to("/new-0"), 1, "a new one does not wait behind them");
        assert_eq!(sleepers.network.open.load(Ordering::SeqCst), 32, "and all of a tenant are bounded");
        sleepers.stop.cancel();
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_settled_meanwhile_wakes_nobody() {
        let sleepers = Sleepers::watched().await;
        sleepers.mail("ann").await;
        sleepers.pass(1).await;
        let called = sleepers.network.calls_to("/ann");
        let ann = sleepers.desk.directory().read(|view| view.instance(&"home".into(), &"ann".into()).cloned()).unwrap();
        let position = frontdesk_core::port::store::Position { through: Seq(1), above: Vec::new(), sent: Seq(1) };
        sleepers.desk.stores().ledger.settle(ann.no, position.into()).await.unwrap();
        sleepers.pass(600).await;
        assert_eq!(sleepers.network.calls_to("/ann"), called);
        sleepers.stop.cancel();
    }
}
