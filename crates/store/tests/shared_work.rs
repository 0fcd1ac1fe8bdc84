//! Two servers over one store share work: alarms, results of actions, budgets of bots, limits of guesses.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::{Arc, Mutex};

use frontdesk_core::cron::AlarmLoop;
use frontdesk_core::delivery::session::{Session, Write};
use frontdesk_core::directory::{Caller, Identity, ProvenInstance};
use frontdesk_core::port::BoxFuture;
use frontdesk_core::port::bus::{BusEvent, Hint};
use frontdesk_core::port::outcall::{Call, HttpAnswer, Outcall, OutcallError};
use frontdesk_core::port::store::LEASE_MS;
use frontdesk_core::{Desk, Env as _, Rules};
use frontdesk_store::bus::LocalHub;
use frontdesk_store::memory::MemoryStore;
use frontdesk_testkit::TestEnv;
use frontdesk_testkit::desk::desk_calling;
use frontdesk_testkit::session::{caller, carry_out, end, hello, line, serving, written};
use frontdesk_testkit::store_suite::acceptance;
use frontdesk_wire::Close;
use frontdesk_wire::cron::ProvisionAlarm;
use serde_json::{Value, json};

/// Accepts every call, and notes the host.
#[derive(Default)]
struct Calls(Mutex<Vec<String>>);

impl Calls {
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

impl Outcall for Calls {
    fn check(&self, _: &str) -> Result<(), OutcallError> {
        Ok(())
    }

    fn call<'a>(&'a self, call: Call<'a>) -> BoxFuture<'a, Result<HttpAnswer, OutcallError>> {
        let host = call.url.split('/').nth(2).unwrap_or_default().to_owned();
        self.0.lock().unwrap().push(host);
        Box::pin(std::future::ready(Ok(HttpAnswer::of(202))))
    }
}

struct Pair {
    env: Arc<TestEnv>,
    desks: [Arc<Desk>; 2],
    calls: [Arc<Calls>; 2],
    caller: Caller,
    proven: ProvenInstance,
}

impl Pair {
    async fn open() -> Self {
        let (store, env, hub) = (Arc::new(MemoryStore::new(1)), Arc::new(TestEnv::default()), LocalHub::default());
        let calls = [Arc::new(Calls::default()), Arc::new(Calls::default())];
        let rules = || Rules { settle_ms: 0, ..Rules::default() };
        let one = desk_calling(store.clone(), env.clone(), rules(), hub.join(), calls[0].clone()).await;
        let caller = caller(&one).await;
        let who = Identity { tenant: "acme".into(), instance: Some("sleeper".into()) };
        let proven = one.directory().proven_instance(&who).await.unwrap();
        let other = desk_calling(store, env.clone(), rules(), hub.join(), calls[1].clone()).await;
        let pair = Self { env, desks: [one, other], calls, caller, proven };
        pair.renew(&[0, 1]).await;
        pair
    }

    async fn renew(&self, who: &[usize]) {
        for at in who {
            self.desks[*at].lease().renew().await.unwrap();
        }
    }

    async fn pass(&self, ms: u64, who: &[usize]) {
        for _ in 0..ms / 500 {
            self.env.advance_ms(500);
            self.renew(who).await;
        }
    }

    /// Hints that wait for a server are taken until one of this kind came.
    async fn take_until(&self, at: usize, is_it: impl Fn(&Hint) -> bool) {
        loop {
            let received = self.desks[at].cluster().next_event().await;
            let is_last = matches!(&received, BusEvent::Hint(hint) if is_it(hint));
            self.desks[at].cluster().take(received).await.unwrap();
            if is_last {
                return;
            }
        }
    }

    async fn arm(&self, at: usize, host: &str, in_ms: u64) {
        let due_ms = i64::try_from(self.env.now_ms() + in_ms).unwrap();
        let ask = ProvisionAlarm {
            job_id: host.into(),
            fire_at: jiff::Timestamp::from_millisecond(due_ms).unwrap().to_string(),
            agent_callback_url: format!("https://{host}"),
            dedup_key: None,
            misfire: None,
        };
        self.desks[at].cron().provision_alarm(&self.proven, ask).await.unwrap();
    }

    /// Everything that a server has to fire now.
    async fn fire(&self, at: usize, state: &mut AlarmLoop) -> Vec<String> {
        loop {
            let round = self.desks[at].cron().round(state).await;
            for claimed in round.claimed {
                self.desks[at].cron().fire_claimed(claimed).await;
            }
            if round.pause.is_some() {
                let mut fired = self.calls[at].take();
                fired.sort();
                return fired;
            }
        }
    }
}

fn hosts() -> Vec<String> {
    let mut hosts: Vec<String> = (0..40).map(|number| format!("h{number}.example")).collect();
    hosts.sort();
    hosts
}

/// The socket at the other server kept the row, and sent it again.
#[tokio::test]
async fn a_row_that_is_dropped_at_one_server_is_not_sent_again_at_another() {
    const RESEND_MS: u64 = 30_000;
    let pair = Pair::open().await;
    let (other, instance) = (&pair.desks[1], pair.caller.instance.no);
    let mut session = serving(other, &pair.caller, 0).await;
    let rows = (1..=3).map(|number| acceptance(number, &[instance.0])).collect();
    other.stores().ledger.accept(rows).await.unwrap();
    carry_out(other, &mut session, 10).await;
    let ids = |frames: Vec<Value>| frames.iter().map(|it| it["bufferId"].clone()).collect::<Vec<_>>();
    let sent = ids(written(&mut session, 10));
    let ack = line(&json!({ "type": "inbound_ack", "bufferId": sent[2] }));
    session.take_text(&ack, 20);
    carry_out(other, &mut session, 20).await;
    pair.desks[0].delivery().drop_mail(&format!("{instance}.1"), "not needed").await.unwrap();
    pair.take_until(1, |hint| matches!(hint, Hint::Dropped(..))).await;
    let later_ms = 10 + RESEND_MS;
    session.take_text(&ack, later_ms); // it is alive
    other.lease().note_directory(other.directory().version());
    carry_out(other, &mut session, later_ms).await;
    session.tick(later_ms);
    carry_out(other, &mut session, later_ms).await;
    assert!(matches!(session.next_message(), Some(Write::Ping)), "it is late");
    assert_eq!(ids(written(&mut session, later_ms)), sent[1..2], "only the one that is still owed");
}

#[tokio::test]
async fn each_host_is_called_by_one_server_and_in_time() {
    let pair = Pair::open().await;
    let mut loops = [pair.desks[0].cron().new_loop(), pair.desks[1].cron().new_loop()];
    for (at, state) in loops.iter_mut().enumerate() {
        pair.fire(at, state).await; // both have read what is armed: nothing
    }
    for host in hosts() {
        pair.arm(0, &host, 10_000).await;
    }
    let mut hints = 0;
    // The other one learns of its share by hints.
    while let Some(received) = futures_util::FutureExt::now_or_never(pair.desks[1].cluster().next_event()) {
        hints += usize::from(matches!(received, BusEvent::Hint(Hint::Alarm(..))));
        pair.desks[1].cluster().take(received).await.unwrap();
    }
    pair.pass(12_000, &[0, 1]).await;
    let (one, other) = (pair.fire(0, &mut loops[0]).await, pair.fire(1, &mut loops[1]).await);
    assert_eq!(other.len(), hints);
    assert!(one.len() > 5 && other.len() > 5, "{one:?} {other:?}");
    let mut all = [one, other].concat();
    all.sort();
    assert_eq!(all, hosts());
    pair.pass(6_000, &[0, 1]).await;
    assert!(pair.fire(0, &mut loops[0]).await.is_empty() && pair.fire(1, &mut loops[1]).await.is_empty(), "once");
}

#[tokio::test]
async fn an_alarm_that_its_server_does_not_know_is_fired_by_the_one_that_armed_it() {
    let pair = Pair::open().await;
    let mut state = pair.desks[0].cron().new_loop();
    pair.fire(0, &mut state).await;
    for host in hosts() {
        pair.arm(0, &host, 10_000).await;
    }
    // The other server hears nothing and fires nothing.
    pair.pass(12_000, &[0, 1]).await;
    let own = pair.fire(0, &mut state).await;
    pair.pass(5_000, &[0, 1]).await;
    let late = pair.fire(0, &mut state).await;
    let mut all = [own, late].concat();
    all.sort();
    assert_eq!(all, hosts());
}

#[tokio::test]
async fn alarms_of_a_server_that_is_gone_are_fired_by_the_other() {
    let pair = Pair::open().await;
    for host in hosts() {
        pair.arm(0, &host, 10_000).await;
    }
    let mut state = pair.desks[1].cron().new_loop();
    pair.fire(1, &mut state).await;
    pair.pass(LEASE_MS + 7_000, &[1]).await;
    let mut all = pair.fire(1, &mut state).await;
    all.sort();
    assert_eq!(all, hosts(), "all of them, without the wait for another server");
}

#[tokio::test]
async fn a_result_follows_its_gateway_to_another_server() {
    let pair = Pair::open().await;
    let (no, [one, other]) = (pair.caller.instance.no, &pair.desks);
    let result = |id: &str| format!("{{\"type\":\"outbound_result\",\"requestId\":\"{id}\"}}\n");
    // The action ends while the gateway has no socket.
    end(one, serving(one, &pair.caller, 0).await).await;
    one.delivery().served().answer(no, result("before")).await;
    let mut session = serving_again(other, &pair.caller).await;
    assert_eq!(ids(&mut session), ["before"]);
    // It ends while the gateway is at the other server.
    one.delivery().served().answer(no, result("during")).await;
    pair.take_until(1, |hint| matches!(hint, Hint::Results(_))).await;
    carry_out(other, &mut session, 0).await;
    assert_eq!(ids(&mut session), ["during"]);
    // The hint is lost.
    one.delivery().served().answer(no, result("later")).await;
    other.cluster().sweep().await.unwrap();
    carry_out(other, &mut session, 0).await;
    assert_eq!(ids(&mut session), ["later"]);
}

/// Like `serving`, but with frames behind the first one.
async fn serving_again(desk: &Arc<Desk>, caller: &Caller) -> Session {
    let mut session = Session::new(desk.delivery(), caller.clone(), 0);
    session.take_text(&hello(), 0);
    carry_out(desk, &mut session, 0).await;
    session
}

fn ids(session: &mut Session) -> Vec<String> {
    let results = written(session, 0).into_iter().filter(|frame| frame["type"] == "outbound_result");
    results.map(|frame| frame["requestId"].as_str().unwrap().to_owned()).collect()
}

/// The hint about it was lost.
#[tokio::test]
async fn a_replaced_socket_is_closed_by_the_next_sweep() {
    let pair = Pair::open().await;
    let [one, other] = &pair.desks;
    let mut old = serving(one, &pair.caller, 0).await;
    one.cluster().sweep().await.unwrap();
    carry_out(one, &mut old, 0).await;
    assert_eq!(old.closing(), None);
    let mut new = serving(other, &pair.caller, 0).await;
    for (desk, session) in [(one, &mut old), (other, &mut new)] {
        desk.cluster().sweep().await.unwrap();
        carry_out(desk, session, 0).await;
    }
    assert_eq!((old.closing(), new.closing()), (Some(Close::Replaced), None));
}

#[tokio::test]
async fn servers_that_send_as_one_bot_divide_its_budget() {
    let pair = Pair::open().await;
    let [one, other] = &pair.desks;
    let is_sending = |hint: &Hint| matches!(hint, Hint::Sending(..));
    assert_eq!(one.outbound().share_bot("p", &"b".into()), 1);
    pair.take_until(1, is_sending).await;
    assert_eq!(other.outbound().share_bot("p", &"c".into()), 1, "another bot");
    assert_eq!(other.outbound().share_bot("p", &"b".into()), 2);
    for _ in 0..3 {
        pair.take_until(0, is_sending).await; // its own as well
    }
    assert_eq!(one.outbound().share_bot("p", &"b".into()), 2);
    pair.pass(3_000, &[0, 1]).await;
    assert_eq!(one.outbound().share_bot("p", &"b".into()), 1, "nothing came from the other one for a while");
    // Nothing comes at all: every live server may be sending.
    one.cluster().tick().await.unwrap();
    assert!(one.lease().is_cut_off());
    assert_eq!(one.outbound().share_bot("p", &"b".into()), 2);
}
