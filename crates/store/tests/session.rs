//! The relay session without a socket: frames, ticks and store results in, messages and effects out.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;

use frontdesk_core::delivery::interrupt::InterruptRequest;
use frontdesk_core::delivery::session::{ARRIVING_FREE_BYTES, Effect, Session};
use frontdesk_core::directory::Caller;
use frontdesk_core::port::store::{Store, StoreError};
use frontdesk_core::{Desk, Env as _, Rules};
use frontdesk_store::memory::MemoryStore;
use frontdesk_testkit::TestEnv;
use frontdesk_testkit::desk::desk_over;
use frontdesk_testkit::session::{caller, carry_out, end, hello, line, serving, written};
use frontdesk_testkit::store_suite::acceptance;
use frontdesk_wire::{Close, DeskNo, Seq};
use serde_json::{Value, json};

struct Scene {
    env: Arc<TestEnv>,
    desk: Arc<Desk>,
    caller: Caller,
}

impl Scene {
    async fn new() -> Self {
        Self::with(Rules::default()).await
    }

    async fn with(rules: Rules) -> Self {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new(1));
        let rules = Rules { settle_ms: 0, ..rules };
        let env = Arc::new(TestEnv::default());
        let desk = desk_over(store, env.clone(), rules).await;
        let caller = caller(&desk).await;
        Self { env, desk, caller }
    }

    fn session(&self) -> Session {
        Session::new(self.desk.delivery(), self.caller.clone(), 0)
    }

    /// A session that has sent hello and serves.
    async fn serving(&self) -> Session {
        serving(&self.desk, &self.caller, 0).await
    }

    /// A session that has requested the one waiting row.
    async fn reading(&self) -> (Session, u64, usize) {
        self.message(1).await;
        let mut session = self.session();
        session.take_text(&hello(), 0);
        session.turn(0);
        let Some(Effect::Begin(beginning)) = session.next_effect() else { panic!("expected the effect Begin") };
        session.begun(self.desk.delivery().begin(&self.caller, beginning).await, 0);
        kinds(&mut session);
        session.turn(1);
        let Some(Effect::Read { after, limit }) = session.next_effect() else { panic!("expected the effect Read") };
        (session, after.0, limit)
    }

    /// A session that has sent its one row and got the ack, at 20.
    async fn acked(&self) -> Session {
        let mut session = self.serving().await;
        self.message(1).await;
        self.carry_out(&mut session, 10).await;
        let frames = written(&mut session, 10);
        session.take_text(&ack(&frames[0]), 20);
        session
    }

    async fn message(&self, number: u64) {
        self.desk.stores().ledger.accept(vec![acceptance(number, &[self.caller.instance.no.0])]).await.unwrap();
    }

    async fn carry_out(&self, session: &mut Session, now_ms: u64) {
        carry_out(&self.desk, session, now_ms).await;
    }
}

fn ack(frame: &Value) -> String {
    line(&json!({ "type": "inbound_ack", "bufferId": frame["bufferId"] }))
}

fn kinds(session: &mut Session) -> Vec<String> {
    written(session, 0).iter().map(|frame: &Value| frame["type"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn a_row_is_sent_acked_and_saved() {
    let scene = Scene::new().await;
    let mut session = scene.serving().await;
    scene.message(1).await;
    scene.message(2).await;
    scene.carry_out(&mut session, 10).await;
    let frames = written(&mut session, 10);
    assert_eq!(frames.len(), 2);
    for frame in &frames {
        assert_eq!(frame["type"], "inbound");
        session.take_text(&ack(frame), 20);
    }
    scene.carry_out(&mut session, 20).await;
    let no = scene.caller.instance.no;
    assert_eq!(scene.desk.stores().ledger.position(no).await.unwrap().through, Seq(2));
    let (ending, left) = end(&scene.desk, session).await;
    assert!(ending.close.is_none() && left.is_none());
    assert!(!scene.desk.delivery().sockets().is_live(no));
}

#[tokio::test]
async fn acks_in_quick_succession_are_saved_together_and_before_going_idle() {
    let scene = Scene::new().await;
    let mut session = scene.serving().await;
    for number in 1..=4 {
        scene.message(number).await;
    }
    scene.carry_out(&mut session, 10).await;
    let frames = written(&mut session, 10);
    let mut acks = frames.iter().map(ack);
    let mut take_ack = |session: &mut Session, now_ms| {
        session.take_text(&acks.next().unwrap(), now_ms);
        session.turn(now_ms);
        session.next_effect()
    };
    let saved = |effect| match effect {
        Some(Effect::Save(settlement)) => settlement.acked.through,
        _ => panic!("expected the effect Save"),
    };
    assert_eq!(saved(take_ack(&mut session, 20)), Seq(1), "the first at once");
    session.saved(Ok(true));
    assert!(take_ack(&mut session, 21).is_none() && take_ack(&mut session, 22).is_none());
    assert_eq!(session.next_tick_ms(22), 30);
    session.tick(30);
    session.turn(30);
    assert_eq!(saved(session.next_effect()), Seq(3), "two at once");
    session.saved(Ok(true));
    session.take_text(&line(&json!({ "type": "going_idle" })), 31);
    assert_eq!(saved(take_ack(&mut session, 31)), Seq(4), "not after the pause");
    session.turn(32);
    assert!(session.next_effect().is_none(), "a sleeping agent is not woken for what it has acked");
    session.saved(Ok(true));
    assert!(matches!(session.next_effect(), Some(Effect::GoIdle(_))));
}

#[tokio::test]
async fn a_gateway_that_goes_idle_and_hangs_up_is_idle() {
    let scene = Scene::new().await;
    let mut session = scene.acked().await;
    session.take_text(&line(&json!({ "type": "going_idle" })), 20);
    session.hang_up();
    let Some(Effect::Save(_)) = session.next_effect() else { panic!("expected the effect Save") };
    session.saved(Ok(true));
    assert!(matches!(session.next_effect(), Some(Effect::GoIdle(_))));
    assert!(session.next_effect().is_none());
}

#[tokio::test]
async fn frames_after_a_hello_wait_until_it_is_answered() {
    let scene = Scene::new().await;
    let mut session = scene.session();
    let action = json!({ "type": "outbound", "requestId": "r1", "action": { "op": "bake", "chat_id": "c" } });
    session.take_text(&format!("{}{}", hello(), line(&action)), 0);
    session.turn(0);
    let Some(Effect::Begin(beginning)) = session.next_effect() else { panic!("expected the effect Begin") };
    assert!(session.next_message().is_none() && !session.may_read(), "nothing is accepted before it serves");
    session.turn(1);
    assert!(session.next_effect().is_none(), "nothing is done twice");
    session.begun(scene.desk.delivery().begin(&scene.caller, beginning).await, 2);
    session.turn(2);
    assert_eq!(kinds(&mut session), ["descriptor", "outbound_result"]);
    assert!(session.may_read());
}

#[tokio::test]
async fn a_failing_store_ends_the_session_and_loses_nothing() {
    let scene = Scene::new().await;
    let mut session = scene.acked().await;
    session.turn(20);
    let Some(Effect::Save(_)) = session.next_effect() else { panic!("expected the effect Save") };
    session.saved(Err(StoreError::Unavailable("disk full".into())));
    assert_eq!(session.closing(), Some(Close::TryLater));
    end(&scene.desk, session).await; // the store works again, so the last acks are saved here
    assert_eq!(scene.desk.stores().ledger.position(scene.caller.instance.no).await.unwrap().through, Seq(1));
}

#[tokio::test]
async fn rows_read_while_going_idle_wait_for_the_next_session() {
    let scene = Scene::new().await;
    let (mut session, after, limit) = scene.reading().await;
    session.take_text(&line(&json!({ "type": "going_idle" })), 2);
    let rows = scene.desk.delivery().read_rows(scene.caller.instance.no, Seq(after), limit).await;
    assert_eq!(rows.as_ref().unwrap().len(), 1);
    session.read(rows, limit, 3);
    let waits = scene.desk.delivery().sockets().unserved().take();
    assert!(waits.contains_key(&scene.caller.instance.no), "the instance must be woken");
    scene.carry_out(&mut session, 3).await;
    assert_eq!(kinds(&mut session), ["going_idle_ack"]);
    end(&scene.desk, session).await;
    let mut next = scene.serving().await;
    scene.carry_out(&mut next, 10).await;
    assert_eq!(kinds(&mut next), ["inbound"], "the row is sent once");
}

#[tokio::test]
async fn a_peer_that_disconnects_during_begin_leaves_no_state() {
    let scene = Scene::new().await;
    let mut session = scene.session();
    session.take_text(&hello(), 0);
    session.turn(0);
    let Some(Effect::Begin(beginning)) = session.next_effect() else { panic!("expected the effect Begin") };
    // The socket is closed; work in progress is still finished, then the session ends.
    session.begun(scene.desk.delivery().begin(&scene.caller, beginning).await, 1);
    end(&scene.desk, session).await;
    let sockets = scene.desk.delivery().sockets();
    let no = scene.caller.instance.no;
    assert!(!sockets.is_live(no) && sockets.presence(no).served_by == DeskNo(0));
}

#[tokio::test]
async fn rows_read_for_a_finished_session_are_not_counted_as_sent() {
    let scene = Scene::new().await;
    let (mut session, after, limit) = scene.reading().await;
    session.hang_up();
    session.read(scene.desk.delivery().read_rows(scene.caller.instance.no, Seq(after), limit).await, limit, 2);
    assert_eq!(scene.desk.meters().frames_pushed(), 0);
    let (mut ending, _) = end(&scene.desk, session).await;
    assert!(ending.next_message().is_none());
    let mut next = scene.serving().await;
    scene.carry_out(&mut next, 10).await;
    assert_eq!(kinds(&mut next), ["inbound"]);
}

#[tokio::test]
async fn a_message_that_is_not_written_in_a_minute_ends_the_session() {
    let scene = Scene::new().await;
    let mut session = scene.serving().await;
    session.writing(1_000);
    let at_ms = session.next_tick_ms(55_000);
    assert!(at_ms <= 61_000);
    session.tick(60_999);
    assert_eq!(session.closing(), None);
    session.tick(61_000);
    assert_eq!(session.closing(), Some(Close::Unresponsive));
}

/// Regression: a gateway that loaded its agent for its first message was closed after 8 s, and 0.17 does not reconnect.
#[tokio::test]
async fn a_peer_that_stalls_at_its_first_message_has_half_a_minute() {
    let scene = Scene::new().await;
    let no = scene.caller.instance.no;
    let mut session = scene.serving().await;
    scene.message(1).await;
    scene.carry_out(&mut session, 10).await;
    assert_eq!(written(&mut session, 10).len(), 1);
    session.tick(5_010);
    session.tick(35_009);
    assert_eq!(session.closing(), None);
    session.tick(35_010);
    assert_eq!(session.closing(), Some(Close::Unresponsive));
    end(&scene.desk, session).await;
    let presence = scene.desk.delivery().sockets().presence(no);
    assert_eq!(
        presence.seen_ms,
        scene.desk.env().now_ms() - 35_010,
        "when it was last received, not when that was noticed"
    );
    // One that has acked on its socket is left sooner.
    let mut session = scene.serving().await;
    scene.carry_out(&mut session, 10).await;
    let again = written(&mut session, 10);
    session.take_text(&ack(&again[0]), 20);
    scene.message(2).await;
    scene.carry_out(&mut session, 30).await;
    assert_eq!(written(&mut session, 30).len(), 1);
    session.tick(5_030);
    session.tick(8_029);
    assert_eq!(session.closing(), None);
    session.tick(8_030);
    assert_eq!(session.closing(), Some(Close::Unresponsive));
}

/// Regression: a frame of which parts came for ever was held for ever.
#[tokio::test]
async fn a_large_frame_that_is_not_complete_in_a_minute_ends_the_session() {
    let scene = Scene::new().await;
    let mut session = scene.serving().await;
    let tick = |session: &mut Session, at_ms: u64| {
        session.note_received(at_ms, true); // it answers pings
        session.tick(at_ms);
        session.closing()
    };
    session.arriving(ARRIVING_FREE_BYTES, 0);
    assert_eq!(tick(&mut session, 70_000), None, "not large");
    session.arriving(ARRIVING_FREE_BYTES + 1, 100_000);
    session.arriving(3 * ARRIVING_FREE_BYTES, 130_000);
    assert_eq!(tick(&mut session, 159_999), None);
    session.arriving(0, 159_999);
    assert_eq!(tick(&mut session, 160_000), None, "it was complete");
    // Many messages that are no frame together, too. When a frame is complete, the next one has its own time.
    let part = "x".repeat(ARRIVING_FREE_BYTES - 1);
    session.take_text(&part, 200_000);
    session.take_text(&part, 200_001);
    session.take_text(&format!("\n{part}"), 250_000);
    session.take_text(&part, 255_000);
    assert_eq!(tick(&mut session, 260_001), None);
    assert_eq!(tick(&mut session, 314_999), None);
    assert!(session.next_tick_ms(314_999) <= 345_000);
    assert_eq!(tick(&mut session, 315_000), Some(Close::PolicyViolation));
}

/// With enough sockets, what each of them may have above the limit has no bound.
#[tokio::test]
async fn far_above_the_memory_limit_only_messages_that_are_not_complete_end_a_session() {
    let scene = Scene::with(Rules { flight_tenant_bytes: 100, ..Rules::default() }).await;
    let (mut large, mut other) = (scene.session(), scene.session());
    other.arriving(10, 0);
    assert_eq!(other.closing(), None, "a little is free");
    large.arriving(17 << 20, 0);
    assert_eq!(large.closing(), None, "the only large one");
    other.arriving(0, 1);
    assert_eq!(other.closing(), None, "it is complete");
    other.arriving(10, 2);
    assert_eq!(other.closing(), Some(Close::TryLater));
}

#[tokio::test]
async fn a_silent_peer_is_disconnected() {
    let scene = Scene::new().await;
    let mut session = scene.session();
    let at_ms = session.next_tick_ms(0);
    session.tick(at_ms - 1);
    assert_eq!(session.closing(), None);
    session.tick(at_ms);
    assert_eq!((at_ms, session.closing()), (30_000, Some(Close::PolicyViolation)));
}

#[tokio::test]
async fn interrupts_are_looked_up_one_at_a_time_and_a_flood_is_dropped() {
    let scene = Scene::new().await;
    let mut session = scene.serving().await;
    scene.carry_out(&mut session, 0).await; // the session has read its rows
    let stop = |number: usize| line(&json!({ "type": "interrupt", "session_key": format!("k-{number}") }));
    let flood: String = (0..100).map(stop).collect();
    session.take_text(&flood, 1);
    let mut asked = Vec::new();
    loop {
        session.turn(1);
        let Some(effect) = session.next_effect() else { break };
        let Effect::Interrupt { asked: InterruptRequest { session_key, .. }, mailbox } = effect else {
            panic!("expected the effect Interrupt")
        };
        assert!(session.next_effect().is_none(), "one at a time");
        asked.push(session_key);
        mailbox.interrupt_done();
    }
    assert_eq!(asked.len(), 17, "one lookup and the queue limit");
    assert_eq!(asked[16], "k-16");
    // It has the time at which it came, however long it waits.
    let came_ms = scene.env.steady_ms();
    session.take_text(&[stop(1), stop(2)].concat(), 2);
    session.turn(2);
    let Some(Effect::Interrupt { mailbox, .. }) = session.next_effect() else {
        panic!("expected the effect Interrupt")
    };
    mailbox.interrupt_done();
    scene.env.advance_ms(30_000);
    session.turn(30_002);
    assert!(matches!(session.next_effect(), Some(Effect::Interrupt { asked, .. }) if asked.at_ms == came_ms));
    mailbox.interrupt_done();
    session.turn(30_003);
    assert!(session.next_effect().is_none());
    // Waiting interrupts are kept when the socket ends.
    session.take_text(&[stop(1), stop(2), stop(3)].concat(), 30_004);
    session.turn(30_004);
    assert!(matches!(session.next_effect(), Some(Effect::Interrupt { .. })));
    session.hang_up();
    let left: Vec<_> =
        end(&scene.desk, session).await.0.interrupts.into_iter().map(|asked| asked.session_key).collect();
    assert_eq!(left, ["k-2", "k-3"]);
}

#[tokio::test]
async fn repeated_going_idle_is_stored_one_at_a_time() {
    let scene = Scene::new().await;
    let mut session = scene.serving().await;
    scene.carry_out(&mut session, 0).await;
    session.take_text(&line(&json!({ "type": "going_idle" })).repeat(1_000), 1);
    session.turn(1);
    assert!(matches!(session.next_effect(), Some(Effect::GoIdle(_))) && session.next_effect().is_none());
    let mailbox = session.mailbox().unwrap().clone();
    scene.desk.delivery().go_idle(&scene.caller, &mailbox).await;
    session.turn(2);
    assert_eq!(kinds(&mut session), ["going_idle_ack"]);
    session.take_text(&line(&json!({ "type": "going_idle" })), 3);
    scene.carry_out(&mut session, 3).await;
    assert_eq!(kinds(&mut session), ["going_idle_ack"], "a repeated frame is acked again");
}

#[tokio::test]
async fn a_peer_that_does_not_read_is_not_read_from() {
    let scene = Scene::new().await;
    let mut session = scene.serving().await;
    let action = line(&json!({ "type": "outbound", "requestId": "r", "action": { "op": "bake", "chat_id": "c" } }));
    let mut taken = 0;
    while session.may_read() {
        session.take_text(&action, 1);
        session.turn(1);
        taken += 1;
        assert!(taken < 100_000, "unread answers are not bounded");
    }
    assert!(session.next_message().is_some());
    while session.next_message().is_some() {}
    session.written(2);
    session.turn(2);
    assert!(session.may_read(), "the peer has read");
}

/// Regression: a message whose ack was on its way when the server stopped came twice.
#[tokio::test]
async fn a_server_that_stops_waits_for_acks_and_sends_nothing_new() {
    let scene = Scene::new().await;
    let no = scene.caller.instance.no;
    let mut session = scene.serving().await;
    scene.message(1).await;
    scene.carry_out(&mut session, 10).await;
    let sent = written(&mut session, 10);
    session.leave(20);
    scene.message(2).await;
    scene.carry_out(&mut session, 30).await;
    assert_eq!((written(&mut session, 30).len(), session.closing()), (0, None));
    assert!(session.next_tick_ms(30) <= 100, "it does not sleep past its end");
    session.take_text(&ack(&sent[0]), 40);
    scene.carry_out(&mut session, 40).await;
    assert_eq!(session.closing(), Some(Close::GoingAway), "at once after the last ack");
    end(&scene.desk, session).await;
    assert_eq!(scene.desk.stores().ledger.position(no).await.unwrap().through, Seq(1));

    // One that does not ack is not waited for long, and one that owes nothing not at all.
    let mut session = scene.serving().await;
    scene.carry_out(&mut session, 0).await;
    assert_eq!(written(&mut session, 0).len(), 1);
    session.leave(0);
    session.leave(400);
    session.turn(499);
    assert_eq!(session.closing(), None);
    session.turn(500);
    assert_eq!(session.closing(), Some(Close::GoingAway));
    end(&scene.desk, session).await;
    let mut idle = scene.session();
    idle.leave(0);
    idle.turn(0);
    assert_eq!(idle.closing(), Some(Close::GoingAway));
}
