//! The order of the queue, its limits and its bounds.

use super::*;

const SLOW: Rate = Rate { burst: 1, every_ms: 1_000 };
const WAIT_MS: u64 = 25_000;

fn cost(priority: Priority) -> Cost {
    Cost { priority, buckets: Vec::new(), of_bot: Vec::new(), droppable: priority == Priority::Typing, replaces: None }
}

/// In a chat of its own unless it is named, limited by one bucket for the whole bot.
struct Bot {
    scheduler: Scheduler,
    chats: u64,
    now_ms: u64,
}

impl Bot {
    fn new() -> Self {
        Self { scheduler: Scheduler::default(), chats: 0, now_ms: 1_000_000 }
    }

    fn ask(&mut self, tenant: &str, cost: Cost) -> Result<Admission, Refusal> {
        self.chats += 1;
        let chat_id = format!("c{}", self.chats);
        self.ask_in(tenant, &chat_id, cost)
    }

    fn ask_in(&mut self, tenant: &str, chat_id: &str, cost: Cost) -> Result<Admission, Refusal> {
        let deadline_ms = self.now_ms + WAIT_MS;
        let ask = Ask { tenant: tenant.into(), chat_id: chat_id.into(), cost, bytes: 10, more: 0, deadline_ms };
        self.scheduler.ask(ask, self.now_ms)
    }

    fn slow(&mut self, tenant: &str, priority: Priority) -> Ticket {
        self.ask(tenant, cost(priority).in_bucket("bot", SLOW)).unwrap().ticket
    }

    fn start(&mut self) -> Vec<Ticket> {
        self.scheduler.grants(self.now_ms).start
    }

    fn end(&mut self, tickets: &[Ticket]) {
        for ticket in tickets {
            self.scheduler.finished(*ticket, &Pace::default(), self.now_ms);
        }
    }

    /// What begins, one a second, until nothing waits.
    fn run(&mut self) -> Vec<Ticket> {
        let mut order = Vec::new();
        while self.scheduler.waiting() > 0 {
            let started = self.start();
            self.end(&started);
            order.extend(started);
            self.now_ms += 1_000;
        }
        order
    }
}

#[test]
fn priority_decides_then_turns_between_tenants_then_the_order() {
    let mut bot = Bot::new();
    let typing = bot.slow("a", Priority::Typing);
    assert_eq!(bot.start(), [typing], "the bucket has one token at first");
    bot.end(&[typing]);
    let edit = bot.slow("a", Priority::Edit);
    let reaction = bot.slow("a", Priority::Reaction);
    let (a1, a2, a3) = (bot.slow("a", Priority::Text), bot.slow("a", Priority::Text), bot.slow("a", Priority::Text));
    let b1 = bot.slow("b", Priority::Text);
    let prompt = bot.slow("b", Priority::Prompt);
    let c1 = bot.slow("c", Priority::Text);
    bot.now_ms += 1_000;
    assert_eq!(bot.run(), [a1, b1, c1, a2, a3, prompt, edit, reaction]);
    assert!(bot.scheduler.is_idle(bot.now_ms));
}

#[test]
fn one_chat_keeps_its_order_and_others_do_not_wait_for_it() {
    let mut bot = Bot::new();
    let first = bot.ask_in("a", "x", cost(Priority::Text)).unwrap().ticket;
    let second = bot.ask_in("a", "x", cost(Priority::Text)).unwrap().ticket;
    let other = bot.ask_in("a", "y", cost(Priority::Text)).unwrap().ticket;
    let same_name = bot.ask_in("b", "x", cost(Priority::Text)).unwrap().ticket;
    let typing = bot.ask_in("a", "x", cost(Priority::Typing)).unwrap().ticket;
    assert_eq!(bot.start(), [first, same_name, other]);
    bot.end(&[first]);
    assert_eq!(bot.start(), [second], "typing waits for the text before it");
    bot.end(&[second]);
    assert_eq!(bot.start(), [typing]);
}

#[test]
fn an_edit_that_waits_is_replaced_by_a_later_one_of_the_same_message() {
    let mut bot = Bot::new();
    let edit = |message: &str| Cost { replaces: Some(message.into()), ..cost(Priority::Edit).in_bucket("bot", SLOW) };
    let running = bot.ask("a", edit("m")).unwrap();
    assert_eq!(bot.start(), [running.ticket]);
    let first = bot.ask("a", edit("m")).unwrap();
    assert_eq!(first.supersedes, None, "one that has begun is not replaced");
    let between = bot.ask("a", edit("n")).unwrap();
    let second = bot.ask("a", edit("m")).unwrap();
    assert_eq!(second.supersedes, Some(first.ticket));
    let third = bot.ask("a", edit("m")).unwrap();
    assert_eq!(third.supersedes, Some(second.ticket));
    assert_eq!(bot.ask("b", edit("m")).unwrap().supersedes, None, "another tenant's is another message");
    bot.end(&[running.ticket]);
    bot.now_ms += 1_000;
    let order = bot.run();
    assert_eq!(order[0], third.ticket, "it has the place of the first");
    assert!(order.contains(&between.ticket) && !order.contains(&first.ticket) && !order.contains(&second.ticket));
    assert!(bot.scheduler.is_idle(bot.now_ms));
}

#[test]
fn a_wait_that_would_be_too_long_is_refused_before_it_begins() {
    let mut bot = Bot::new();
    let first = bot.slow("a", Priority::Text);
    assert_eq!(bot.start(), [first]);
    for _ in 0..25 {
        bot.slow("a", Priority::Text);
    }
    let refused = bot.ask("a", cost(Priority::Text).in_bucket("bot", SLOW));
    assert_eq!(refused, Err(Refusal::TooLong { wait_ms: 26_000 }));
    assert!(bot.ask("b", cost(Priority::Text).in_bucket("other", SLOW)).is_ok(), "another bucket is free");
    // Another tenant's turn comes after one of a's, however many a has waiting.
    assert!(bot.ask("b", cost(Priority::Text).in_bucket("bot", SLOW)).is_ok());
    let long = Ask {
        tenant: "c".into(),
        chat_id: "c".into(),
        cost: cost(Priority::Text).in_bucket("parts", SLOW),
        bytes: 1,
        more: 26,
        deadline_ms: bot.now_ms + WAIT_MS,
    };
    assert_eq!(
        bot.scheduler.ask(long, bot.now_ms),
        Err(Refusal::TooLong { wait_ms: 26_000 }),
        "all of its parts count"
    );
    let paused = Pace { pause_ms: Some(30_000), ..Pace::default() };
    bot.scheduler.finished(first, &paused, bot.now_ms);
    assert_eq!(bot.ask("b", cost(Priority::Text)), Err(Refusal::TooLong { wait_ms: 30_000 }), "the whole bot pauses");
}

#[test]
fn the_vendors_word_on_the_pace_is_obeyed() {
    let mut bot = Bot::new();
    let wide = Rate { burst: 5, every_ms: 10 };
    let ask = |bot: &mut Bot, bucket: &str| bot.ask("a", cost(Priority::Text).in_bucket(bucket, wide)).unwrap().ticket;
    let (limited, free) = (ask(&mut bot, "x"), ask(&mut bot, "y"));
    assert_eq!(bot.start(), [limited, free]);
    let pace = Pace { retry_after_ms: Some(3_000), bucket: Some("x".into()), pause_ms: None };
    assert!(bot.scheduler.again(limited, &pace, bot.now_ms), "it can still be sent in time");
    bot.end(&[free]);
    let next = ask(&mut bot, "x");
    let other = ask(&mut bot, "y");
    assert_eq!(bot.start(), [other], "the other bucket goes on");
    assert_eq!(bot.scheduler.grants(bot.now_ms).again_ms, Some(bot.now_ms + 3_000));
    bot.now_ms += 3_000;
    assert_eq!(bot.start(), [limited, next], "the refused one first");
    let late = Pace { retry_after_ms: Some(60_000), bucket: None, pause_ms: None };
    assert!(!bot.scheduler.again(next, &late, bot.now_ms), "its time would come too late");
    assert!(bot.scheduler.grants(bot.now_ms + 1).start.is_empty());
}

#[test]
fn what_waits_is_bounded_per_tenant_and_a_withdrawn_one_frees_its_place() {
    let mut bot = Bot::new();
    let rate = Rate { burst: 1, every_ms: 1 };
    let ask = |bot: &mut Bot, tenant: &str| bot.ask(tenant, cost(Priority::Text).in_bucket("bot", rate));
    let tickets: Vec<Ticket> = (0..WAITING_MAX).map(|_| ask(&mut bot, "a").unwrap().ticket).collect();
    assert_eq!(ask(&mut bot, "a"), Err(Refusal::Full));
    assert!(ask(&mut bot, "b").is_ok(), "another tenant has its own room");
    bot.scheduler.withdraw(tickets[7]);
    let last = ask(&mut bot, "a").unwrap().ticket;
    let large = Ask {
        tenant: "c".into(),
        chat_id: "c".into(),
        cost: cost(Priority::Text),
        bytes: WAITING_MAX_BYTES + 1,
        more: 0,
        deadline_ms: bot.now_ms + WAIT_MS,
    };
    assert_eq!(bot.scheduler.ask(large, bot.now_ms), Err(Refusal::Full), "bytes are bounded too");
    let order = bot.run();
    assert_eq!(order.len(), WAITING_MAX + 1);
    assert!(!order.contains(&tickets[7]) && order.contains(&last));
}

#[test]
fn an_edit_that_replaces_another_one_is_bounded_in_bytes() {
    let mut bot = Bot::new();
    let now_ms = bot.now_ms;
    let edit = |bytes: usize| {
        let cost = Cost { replaces: Some("m".into()), ..cost(Priority::Edit).in_bucket("bot", SLOW) };
        Ask { tenant: "a".into(), chat_id: "c".into(), cost, bytes, more: 0, deadline_ms: now_ms + WAIT_MS }
    };
    let running = bot.slow("a", Priority::Text);
    assert_eq!(bot.start(), [running]);
    let first = bot.scheduler.ask(edit(WAITING_MAX_BYTES / 2), now_ms).unwrap();
    let second = bot.scheduler.ask(edit(WAITING_MAX_BYTES / 2 + 1), now_ms).unwrap();
    assert_eq!(second.supersedes, Some(first.ticket), "what is replaced does not count");
    assert_eq!(bot.scheduler.ask(edit(WAITING_MAX_BYTES + 1), now_ms), Err(Refusal::Full));
    assert!(bot.scheduler.is_waiting(second.ticket), "it stays");
}

#[test]
fn so_many_of_one_tenant_are_on_their_way_at_once_and_others_do_not_wait_for_it() {
    let mut bot = Bot::new();
    for _ in 0..IN_FLIGHT_MAX + 20 {
        bot.ask("a", cost(Priority::Text)).unwrap();
    }
    let started = bot.start();
    assert_eq!(started.len(), IN_FLIGHT_MAX);
    let other = bot.ask("b", cost(Priority::Text)).unwrap().ticket;
    assert_eq!(bot.start(), [other]);
    bot.scheduler.withdraw(started[0]);
    bot.end(&started[1..3]);
    assert_eq!(bot.start().len(), 3);
}

/// Whatever happens, nothing is granted twice, what waits is counted, and buckets are not overdrawn.
#[test]
fn random_use_keeps_the_counts() {
    use proptest::prelude::*;
    use proptest::test_runner::TestRunner;
    let steps = proptest::collection::vec((0_u8..6, 0_u8..3, 0_usize..5, 0_u64..700), 1..300);
    TestRunner::default()
        .run(&steps, |steps| {
            let mut bot = Bot::new();
            let (mut in_flight, mut waiting, mut begun) = (Vec::new(), Vec::new(), Vec::new());
            for (what, tenant, priority, pass_ms) in steps {
                bot.now_ms += pass_ms;
                let priority = Priority::ALL[priority];
                match what {
                    0..=2 => {
                        let replaces = (priority == Priority::Edit).then(|| "m".to_owned());
                        let cost = Cost { replaces, ..cost(priority).in_bucket("bot", SLOW) };
                        if let Ok(asked) = bot.ask_in(&format!("t{tenant}"), &format!("c{tenant}"), cost) {
                            waiting.retain(|ticket| Some(*ticket) != asked.supersedes);
                            waiting.push(asked.ticket);
                        }
                    }
                    3 if !in_flight.is_empty() => bot.end(&[in_flight.remove(0)]),
                    4 if !waiting.is_empty() => bot.scheduler.withdraw(waiting.remove(0)),
                    5 if !in_flight.is_empty() => {
                        let ticket = in_flight.remove(0);
                        let pace = Pace { retry_after_ms: Some(500), ..Pace::default() };
                        if bot.scheduler.again(ticket, &pace, bot.now_ms) {
                            waiting.push(ticket);
                        }
                    }
                    _ => {}
                }
                let started = bot.start();
                for ticket in &started {
                    prop_assert!(waiting.contains(ticket), "granted what did not wait");
                    begun.push(bot.now_ms);
                }
                waiting.retain(|ticket| !started.contains(ticket));
                in_flight.extend(started);
                prop_assert_eq!(bot.scheduler.waiting(), waiting.len());
            }
            for pair in begun.windows(2) {
                prop_assert!(pair[1] - pair[0] >= 1_000, "one a second: {:?}", pair);
            }
            bot.end(&in_flight);
            bot.now_ms += 1_000_000;
            let rest = bot.run();
            prop_assert_eq!(rest.len(), waiting.len());
            prop_assert!(bot.scheduler.is_idle(bot.now_ms + 1_000_000));
            Ok(())
        })
        .unwrap();
}
