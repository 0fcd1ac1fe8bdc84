//! Keeps the lease of this server, and reads changes of others.

use std::convert::Infallible;
use std::time::Duration;

use frontdesk_core::Desk;
use frontdesk_core::port::store::DeskNo;
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;

/// Interval between the starts of two renewals.
const RENEW_EVERY: Duration = Duration::from_secs(1);

/// Renews the lease, and concurrently reads changes of other servers, so that slow reads delay no renewal.
pub(crate) async fn keep_lease(desk: &Desk) -> Infallible {
    let (renewals, renewed) = watch::channel(None);
    let mut ticks = tokio::time::interval(RENEW_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let renewing = async {
        loop {
            ticks.tick().await;
            match desk.lease().renew().await {
                Ok(renewal) => drop(renewals.send_replace(Some(renewal))),
                Err(error) => tracing::warn!(%error, "renewing the lease of this server failed"),
            }
        }
    };
    tokio::select! {
        never = renewing => never,
        never = follow(desk, renewed) => never,
    }
}

/// Reads the changes of others after each renewal, and takes over from servers that are gone.
async fn follow(desk: &Desk, mut renewed: watch::Receiver<Option<(u64, Vec<DeskNo>)>>) -> Infallible {
    loop {
        if renewed.changed().await.is_err() {
            return std::future::pending().await; // never: the sender lives as long
        }
        let Some((version, live)) = renewed.borrow_and_update().clone() else { continue };
        if let Err(error) = desk.cluster().renewed(version, live).await {
            tracing::warn!(%error, "taking over from a server that ended failed; retrying");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use frontdesk_core::Stores;
    use frontdesk_core::port::store::{DeskRecord, Desks, Renewal, Stored};
    use frontdesk_store::memory::MemoryStore;
    use frontdesk_testkit::TestEnv;
    use frontdesk_testkit::desk::desk_over_stores;

    use super::*;

    /// A store that is slow with each renewal, and does one at a time.
    struct Slow {
        store: Arc<MemoryStore>,
        latency: Duration,
        connection: tokio::sync::Mutex<()>,
    }

    impl Desks for Slow {
        fn renew(&self, me: DeskNo, seen: u64, now_ms: u64) -> Stored<'_, Renewal> {
            Box::pin(async move {
                let _connection = self.connection.lock().await;
                tokio::time::sleep(self.latency).await;
                self.store.renew(me, seen, now_ms).await
            })
        }

        fn enlist(&self, name: String, version: String, now_ms: u64) -> Stored<'_, DeskNo> {
            self.store.enlist(name, version, now_ms)
        }

        fn take_duty(&self, me: DeskNo, duty: String, now_ms: u64) -> Stored<'_, Option<u64>> {
            self.store.take_duty(me, duty, now_ms)
        }

        fn drop_duty(&self, me: DeskNo, duty: String) -> Stored<'_, ()> {
            self.store.drop_duty(me, duty)
        }

        fn leave(&self, me: DeskNo) -> Stored<'_, ()> {
            self.store.leave(me)
        }

        fn resign(&self, me: DeskNo) -> Stored<'_, ()> {
            self.store.resign(me)
        }

        fn put_report(&self, me: DeskNo, report: String) -> Stored<'_, ()> {
            self.store.put_report(me, report)
        }

        fn absent(&self, now_ms: u64) -> Stored<'_, Vec<(DeskRecord, u64)>> {
            self.store.absent(now_ms)
        }

        fn desks(&self, now_ms: u64) -> Stored<'_, Vec<(DeskRecord, Vec<String>)>> {
            self.store.desks(now_ms)
        }
    }

    /// Keeps the lease for half a minute, and renews it besides that every two seconds, as for changes of other servers. Returns
    /// for how much of that time the directory was known to be current.
    async fn current_ms(latency: Duration) -> u64 {
        const STEP_MS: u64 = 10;
        let (store, env) = (Arc::new(MemoryStore::new(1)), Arc::new(TestEnv::default()));
        let slow = Slow { store: store.clone(), latency, connection: tokio::sync::Mutex::default() };
        let stores = Stores { desks: Arc::new(slow), ..store.into() };
        let desk = desk_over_stores(stores, env.clone()).await;
        let keeping = desk.clone();
        let keeper = tokio::spawn(async move { match keep_lease(&keeping).await {} });
        let mut current_ms = 0;
        for step in 0..30_000 / STEP_MS {
            if step % 200 == 7 {
                let desk = desk.clone();
                tokio::spawn(async move { desk.lease().renew().await });
            }
            tokio::time::sleep(Duration::from_millis(STEP_MS)).await;
            env.advance_ms(STEP_MS);
            current_ms += if desk.lease().knows_directory() { STEP_MS } else { 0 };
        }
        keeper.abort();
        current_ms
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_store_is_not_an_absent_one() {
        assert_eq!(current_ms(Duration::ZERO).await, 30_000);
        assert_eq!(current_ms(Duration::from_millis(1_400)).await, 30_000, "each renewal is late, and none is missing");
        let seldom_ms = current_ms(Duration::from_millis(1_900)).await;
        assert!(
            (3_001..25_000).contains(&seldom_ms),
            "current for {seldom_ms} ms: a late renewal counts from its beginning"
        );
        // Of two renewals, the second may be visible to others after the first has run out.
        let hardly_ms = current_ms(Duration::from_millis(2_100)).await;
        assert!(hardly_ms <= 3_000, "current for {hardly_ms} ms, with the directory of a lease that had run out");
    }
}
