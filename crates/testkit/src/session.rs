//! Drives a relay session without a socket.

use std::collections::BTreeMap;
use std::sync::Arc;

use frontdesk_core::Desk;
use frontdesk_core::delivery::session::{Effect, Ending, Leftover, Session, Write};
use frontdesk_core::directory::Caller;
use frontdesk_wire::Secret;
use frontdesk_wire::api::{BotNew, GatewayNew};
use frontdesk_wire::token::mint;
use serde_json::{Value, json};

/// The gateway `gw` of the tenant `acme`, both of which are created.
pub async fn caller(desk: &Desk) -> Caller {
    desk.directory().create_tenant(&"acme".into()).await.unwrap();
    let (settings, secrets) = (BTreeMap::default(), BTreeMap::default());
    let bot = BotNew { platform: "relay".into(), id: "desk".into(), tenant: None, settings, secrets };
    desk.directory().bots().add(bot).await.unwrap();
    let ask = GatewayNew { id: "gw".into(), tenant: "acme".into(), instance: None, wake_url: None };
    let made = desk.directory().add_gateway(ask).await.unwrap();
    let bearer = mint("gw", &Secret::new(made.secret.as_str()), u64::from(u32::MAX) * 1_000);
    desk.directory().prove_gateway(&bearer).unwrap()
}

/// A session that has said hello and serves.
pub async fn serving(desk: &Arc<Desk>, caller: &Caller, now_ms: u64) -> Session {
    let mut session = Session::new(desk.delivery(), caller.clone(), now_ms);
    session.take_text(&hello(), now_ms);
    carry_out(desk, &mut session, now_ms).await;
    let frames = written(&mut session, now_ms);
    assert_eq!(frames[0]["type"], "descriptor");
    session
}

pub fn line(frame: &Value) -> String {
    format!("{frame}\n")
}

pub fn hello() -> String {
    line(&json!({ "type": "hello", "platform": "relay", "botId": "" }))
}

/// Carries out all effects, like the edge does.
pub async fn carry_out(desk: &Desk, session: &mut Session, now_ms: u64) {
    let (delivery, caller) = (desk.delivery(), session.caller().clone());
    let no = caller.instance.no;
    loop {
        session.turn(now_ms);
        let Some(effect) = session.next_effect() else { return };
        match effect {
            Effect::Begin(beginning) => session.begun(delivery.begin(&caller, beginning).await, now_ms),
            Effect::Read { after, limit } => {
                session.read(delivery.read_rows(no, after, limit).await, limit, now_ms);
            }
            Effect::Save(settlement) => session.saved(delivery.settle(no, settlement).await),
            Effect::GoIdle(mailbox) => delivery.go_idle(&caller, &mailbox).await,
            Effect::Interrupt { mailbox, .. } => mailbox.interrupt_done(),
            _ => {}
        }
    }
}

/// Ends it, like the edge does. With the lanes that were not started.
pub async fn end(desk: &Desk, session: Session) -> (Ending, Option<Leftover>) {
    let mut ending = session.end();
    let left = desk.delivery().release(&mut ending).await;
    (ending, left)
}

/// All frames that are to be written now.
pub fn written(session: &mut Session, now_ms: u64) -> Vec<Value> {
    let mut frames = Vec::new();
    while let Some(Write::Text(message)) = session.next_message() {
        frames.extend(message.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()));
        session.written(now_ms);
    }
    frames
}
