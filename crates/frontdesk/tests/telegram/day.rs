//! A day at 95 % of what Telegram permits, overall, in groups and in busy chats. By default a tenth of an hour of it,
//! because unoptimised code needs much time; the whole day:
//!
//! `FRONTDESK_DAY_HOURS=24 cargo test --release -p frontdesk --test telegram day -- --nocapture`

#![allow(clippy::cast_precision_loss, reason = "counts and rates of a test")]

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use frontdesk_core::directory::Caller;
use frontdesk_core::port::store::JournalEntry;
use serde_json::json;
use tokio::time::Instant;

use super::paused::{LATENCY, World};

const TENANTS: i64 = 6;
const GROUPS_EACH: i64 = 4;
const BUSY_EACH: i64 = 1;
const PEOPLE_EACH: i64 = 40;

// The limits of the fake: one message in 34 ms, one a second in a chat, 20 a minute in a group.
const LOAD: f64 = 0.95;
const BOT_PER_S: f64 = 1_000.0 / 34.0 * LOAD;
const BUSY_PER_S: f64 = LOAD;
const GROUP_PER_S: f64 = 20.0 / 60.0 * LOAD;

/// What one tenant has seen.
#[derive(Default, Clone)]
struct Seen {
    actions: u64,
    /// Messages and edits that Telegram counts.
    counted: u64,
    finals: u64,
    streams: u64,
    long: u64,
    wait: Duration,
    longest: Duration,
}

struct Chat {
    world: Arc<World>,
    caller: Caller,
    id: i64,
    per_s: f64,
    dice: u64,
    seen: Rc<RefCell<Seen>>,
}

impl Chat {
    fn throw(&mut self, below: u64) -> u64 {
        self.dice = self.dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.dice >> 33) % below
    }

    /// One action, which must succeed. Returns the id of its message.
    async fn act(&mut self, mut action: serde_json::Value, counted: u64) -> String {
        action["chat_id"] = self.id.to_string().into();
        let began = Instant::now();
        let result = self.world.send(&self.caller, action.clone()).await;
        assert!(result.success, "chat {}: {action} after {:?}: {result:?}", self.id, began.elapsed());
        let parts = u32::try_from(counted).unwrap();
        let waited = began.elapsed().saturating_sub(LATENCY * 2 * parts);
        let mut seen = self.seen.borrow_mut();
        seen.actions += 1;
        seen.counted += counted;
        seen.wait += waited;
        seen.longest = seen.longest.max(waited);
        result.message_id.unwrap_or_default().to_string()
    }

    /// One turn of the agent; the last text of each must be there. Returns how many messages and edits it took.
    async fn turn(&mut self, number: u64) -> u64 {
        let last = format!("end {number}");
        let kind = self.throw(50);
        if kind < 5 {
            self.world.send(&self.caller, json!({"op": "typing", "chat_id": self.id.to_string()})).await; // may be dropped
        }
        let cost = match kind {
            0..=33 => {
                self.act(json!({"op": "send", "content": last}), 1).await;
                1
            }
            34..=44 => {
                let message = self.act(json!({"op": "send", "content": "..."}), 1).await;
                let edits = 1 + self.throw(4);
                for edit in 1..=edits {
                    tokio::time::sleep(Duration::from_millis(700)).await;
                    let text = if edit == edits { last.clone() } else { format!("{edit} ...") };
                    self.act(json!({"op": "edit", "message_id": message, "content": text}), 1).await;
                }
                self.seen.borrow_mut().streams += 1;
                1 + edits
            }
            45..=48 => {
                let options = json!([{"id": "y", "label": "Yes"}]);
                let prompt = json!({"op": "prompt", "prompt_id": "p", "prompt_kind": "choice", "content": last,
                    "options": options});
                self.act(prompt, 1).await;
                1
            }
            _ => {
                let text = format!("{}\n\n{last}", "A line of a long answer.\n\n".repeat(170));
                self.act(json!({"op": "send", "content": text}), 2).await;
                self.seen.borrow_mut().long += 1;
                2
            }
        };
        let shown = self.world.newest(self.id);
        assert!(shown.ends_with(&last), "chat {}: {last} is not the end of {shown:?}", self.id);
        self.seen.borrow_mut().finals += 1;
        cost
    }

    /// Turns at the chat's rate, never two at once: what is late is caught up.
    async fn run(mut self, end: Instant) {
        let interval = Duration::from_secs_f64(1.0 / self.per_s);
        let mut due = Instant::now() + interval.mul_f64(self.throw(1_000) as f64 / 1_000.0);
        let mut number = 0;
        while due < end {
            tokio::time::sleep_until(due).await;
            number += 1;
            let cost = self.turn(number).await;
            let jitter = 0.75 + self.throw(500) as f64 / 1_000.0;
            due += interval.mul_f64(cost as f64 * jitter);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_day_at_95_percent_loses_nothing_and_is_never_refused() {
    let hours: f64 = std::env::var("FRONTDESK_DAY_HOURS").map_or(0.1, |hours| hours.parse().unwrap());
    let world = World::open().await;
    let began = std::time::Instant::now();
    let groups_per_s = GROUP_PER_S * (TENANTS * GROUPS_EACH) as f64;
    let busy_per_s = BUSY_PER_S * (TENANTS * BUSY_EACH) as f64;
    let calm_per_s = (BOT_PER_S - groups_per_s - busy_per_s) / (TENANTS * (PEOPLE_EACH - BUSY_EACH)) as f64;
    let mut chats = Vec::new();
    let mut seen = Vec::new();
    for tenant in 0..TENANTS {
        let name = format!("t{tenant}");
        let caller = world.tenant(&name).await;
        let of_tenant = Rc::new(RefCell::new(Seen::default()));
        seen.push(of_tenant.clone());
        let first = 1_000 * (tenant + 1);
        let mut add = |id: i64, per_s: f64| {
            let (world, caller, seen, dice) =
                (world.clone(), caller.clone(), of_tenant.clone(), id.unsigned_abs() * 7919);
            chats.push(Chat { world, caller, id, per_s, dice, seen });
        };
        for person in 0..PEOPLE_EACH {
            world.person(&name, first + person).await;
            add(first + person, if person < BUSY_EACH { BUSY_PER_S } else { calm_per_s });
        }
        for group in 0..GROUPS_EACH {
            let id = -1_001_000_000_000 - first - group;
            world.group(&name, id, first).await;
            add(id, GROUP_PER_S);
        }
    }
    // What people have said makes the chats known; it is not refused, and not answered.
    assert_eq!(world.listen_until_empty().await, Vec::<String>::new());
    let end = Instant::now() + Duration::from_secs_f64(hours * 3_600.0);
    futures_util::future::join_all(chats.into_iter().map(|chat| chat.run(end))).await;

    let seen: Vec<Seen> = seen.iter().map(|seen| seen.borrow().clone()).collect();
    let sum = |of: fn(&Seen) -> u64| seen.iter().map(of).sum::<u64>();
    let per_s = sum(|it| it.counted) as f64 / (hours * 3_600.0);
    let waits: Vec<f64> = seen.iter().map(|it| it.wait.as_secs_f64() / it.actions as f64).collect();
    let longest: Vec<f64> = seen.iter().map(|it| it.longest.as_secs_f64()).collect();
    let (worst_wait, mean_wait) = (waits.iter().copied().fold(0.0, f64::max), mean(&waits));
    let (worst_longest, mean_longest) = (longest.iter().copied().fold(0.0, f64::max), mean(&longest));
    println!(
        "{hours} h, {} messages and edits ({per_s:.2}/s, aim {BOT_PER_S:.2}/s), {} turns, {} streams, {} long texts; \
         429: {}; waiting: mean {mean_wait:.3} s (worst tenant {worst_wait:.3} s), longest {mean_longest:.2} s (worst \
         tenant {worst_longest:.2} s); took {:.1} s",
        sum(|it| it.counted),
        sum(|it| it.finals),
        sum(|it| it.streams),
        sum(|it| it.long),
        world.fake.refused_for_rate(),
        began.elapsed().as_secs_f64()
    );
    assert_eq!(world.fake.refused_for_rate(), 0, "calls that were refused for their rate");
    assert!(per_s > BOT_PER_S * 0.99, "the load was {per_s:.2}/s instead of {BOT_PER_S:.2}/s");
    assert!(worst_wait <= 2.0 * mean_wait, "a tenant waited {worst_wait:.3} s, the mean is {mean_wait:.3} s");
    assert!(
        worst_longest <= 2.0 * mean_longest,
        "a tenant waited up to {worst_longest:.2} s, the others {mean_longest:.2} s"
    );
    let delayed = |entry: &JournalEntry| entry.note.contains("waited");
    let journal = world.desk.outbound().entries(None, 1_000).await.unwrap();
    assert!(journal.iter().any(delayed), "delays are in the journal");
}

fn mean(of: &[f64]) -> f64 {
    of.iter().sum::<f64>() / of.len() as f64
}
