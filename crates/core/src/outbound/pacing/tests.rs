//! Waiting for a bot: each action starts when it is due, and its result tells whether it was sent.

use std::sync::atomic::{AtomicU64, Ordering};

use super::*;
use crate::port::platform::{Cost, Priority, Rate};

const WAIT_MS: u64 = 25_000;

/// The paused clock of the runtime.
struct PausedClock(tokio::time::Instant, AtomicU64);

impl Env for PausedClock {
    fn now_ms(&self) -> u64 {
        1_000_000 + u64::try_from(self.0.elapsed().as_millis()).unwrap()
    }

    fn fill(&self, bytes: &mut [u8]) {
        bytes.fill(u8::try_from(self.1.fetch_add(1, Ordering::SeqCst) % 251).unwrap());
    }
}

fn paced() -> Arc<Pacer> {
    let pacer = Arc::new(Pacer::new(Arc::new(PausedClock(tokio::time::Instant::now(), AtomicU64::new(0)))));
    let timer = pacer.clone();
    tokio::spawn(async move {
        loop {
            let now_ms = timer.timer.env.steady_ms();
            let pause = timer.release_due().map_or(3_600_000, |at_ms| at_ms.saturating_sub(now_ms));
            let _ = tokio::time::timeout(Duration::from_millis(pause), timer.earlier()).await;
        }
    });
    pacer
}

fn now_ms(pacer: &Pacer) -> u64 {
    pacer.timer.env.steady_ms()
}

fn ask(pacer: &Pacer, chat: &str, cost: Cost) -> Ask {
    let deadline_ms = now_ms(pacer) + WAIT_MS;
    Ask { tenant: "t".into(), chat_id: chat.into(), cost, bytes: 1, more: 0, deadline_ms }
}

fn text(rate: Option<Rate>) -> Cost {
    let cost =
        Cost { priority: Priority::Text, buckets: Vec::new(), of_bot: Vec::new(), droppable: false, replaces: None };
    rate.map_or(cost.clone(), |rate| cost.in_bucket("bot", rate))
}

/// Enters, waits, takes so long and ends. Returns when it began, or why it did not.
async fn act(pacer: Arc<Pacer>, ask: Ask, takes_ms: u64, pace: Pace) -> Result<u64, NotBegun> {
    let mut passage = pacer.enter("p", &"b".into(), ask)?;
    match passage.turn(u64::MAX).await {
        TurnOutcome::Go => {}
        TurnOutcome::NotBegun(why) => return Err(why),
        TurnOutcome::Superseded(_) => panic!("nothing is replaced here"),
    }
    let began_ms = now_ms(&pacer);
    tokio::time::sleep(Duration::from_millis(takes_ms)).await;
    passage.end(&Acted { result: ActionResult::done(), pace, receipt_id: None });
    Ok(began_ms)
}

/// Lets the tasks that were spawned run until they wait.
async fn settle() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}

#[tokio::test(start_paused = true)]
async fn who_waits_behind_another_in_its_chat_is_let_go_when_its_own_time_comes() {
    let pacer = paced();
    let began = now_ms(&pacer);
    let rate = Some(Rate { burst: 1, every_ms: 1_000 });
    // The first holds the chat for 300 ms; the second then waits for the token, which comes after one second.
    let first = tokio::spawn(act(pacer.clone(), ask(&pacer, "c", text(rate)), 300, Pace::default()));
    settle().await;
    let second = tokio::spawn(act(pacer.clone(), ask(&pacer, "c", text(rate)), 300, Pace::default()));
    let third = tokio::spawn(act(pacer.clone(), ask(&pacer, "c", text(rate)), 300, Pace::default()));
    let starts = [first.await.unwrap(), second.await.unwrap(), third.await.unwrap()].map(|at| at.unwrap() - began);
    assert_eq!(starts, [0, 1_000, 2_000]);
    // A pause that the platform asks for although the action went out.
    let began = now_ms(&pacer);
    let pause = Pace { pause_ms: Some(5_000), ..Pace::default() };
    let first = tokio::spawn(act(pacer.clone(), ask(&pacer, "d", text(None)), 10, pause));
    settle().await;
    let second = tokio::spawn(act(pacer.clone(), ask(&pacer, "d", text(None)), 0, Pace::default()));
    assert_eq!(first.await.unwrap(), Ok(began));
    assert_eq!(second.await.unwrap().map(|at| at - began), Ok(5_010));
}

#[tokio::test(start_paused = true)]
async fn a_place_that_is_given_up_lets_the_next_go() {
    let pacer = paced();
    let stuck = tokio::spawn(act(pacer.clone(), ask(&pacer, "c", text(None)), u64::MAX / 2, Pace::default()));
    settle().await;
    let waits = tokio::spawn(act(pacer.clone(), ask(&pacer, "c", text(None)), 0, Pace::default()));
    let leaves = tokio::spawn(act(pacer.clone(), ask(&pacer, "c", text(None)), 0, Pace::default()));
    settle().await;
    leaves.abort();
    stuck.abort();
    let began = now_ms(&pacer);
    assert_eq!(waits.await.unwrap().map(|at| at - began), Ok(0));
    assert!(pacer.bot("p", &"b".into()).lock().scheduler.is_idle(now_ms(&pacer)));
}

#[tokio::test(start_paused = true)]
async fn what_cannot_begin_in_time_is_not_begun_and_says_why() {
    let pacer = paced();
    let stuck = tokio::spawn(act(pacer.clone(), ask(&pacer, "c", text(None)), 60_000, Pace::default()));
    settle().await;
    let late = act(pacer.clone(), ask(&pacer, "c", text(None)), 0, Pace::default()).await;
    assert_eq!(late, Err(NotBegun::Late { waited_ms: WAIT_MS }));
    let waits = tokio::spawn(act(pacer.clone(), ask(&pacer, "c", text(None)), 0, Pace::default()));
    settle().await;
    pacer.close();
    assert_eq!(waits.await.unwrap(), Err(NotBegun::Closed));
    assert_eq!(act(pacer.clone(), ask(&pacer, "x", text(None)), 0, Pace::default()).await, Err(NotBegun::Closed));
    assert!(matches!(pacer.enter("p", &"another".into(), ask(&pacer, "x", text(None))), Err(NotBegun::Closed)));
    assert!(stuck.await.unwrap().is_ok(), "what is at the platform goes on");
}

#[tokio::test(start_paused = true)]
async fn a_replaced_edit_has_the_result_of_its_successor() {
    let pacer = paced();
    let rate = Rate { burst: 1, every_ms: 1_000 };
    let edit = || Cost { priority: Priority::Edit, replaces: Some("m".into()), ..text(Some(rate)) };
    let mut running = pacer.enter("p", &"b".into(), ask(&pacer, "c", edit())).unwrap();
    assert!(matches!(running.turn(u64::MAX).await, TurnOutcome::Go));
    let mut first = pacer.enter("p", &"b".into(), ask(&pacer, "c", edit())).unwrap();
    let first = tokio::spawn(async move { first.turn(u64::MAX).await });
    settle().await;
    let mut second = pacer.enter("p", &"b".into(), ask(&pacer, "c", edit())).unwrap();
    running.end(&ActionResult::sent("m0").into());
    assert!(matches!(second.turn(u64::MAX).await, TurnOutcome::Go));
    second.end(&ActionResult::sent("m2").into());
    let TurnOutcome::Superseded(result) = first.await.unwrap() else { panic!("it was done itself") };
    assert_eq!(result.message_id.as_deref(), Some("m2"));
    // A successor that is given up before it began was not sent; one that began may have been.
    for begins in [false, true] {
        tokio::time::sleep(Duration::from_secs(9)).await;
        let mut blocker = pacer.enter("p", &"b".into(), ask(&pacer, "c", edit())).unwrap();
        assert!(matches!(blocker.turn(u64::MAX).await, TurnOutcome::Go));
        let mut first = pacer.enter("p", &"b".into(), ask(&pacer, "c", edit())).unwrap();
        let first = tokio::spawn(async move { first.turn(u64::MAX).await });
        settle().await;
        let mut second = pacer.enter("p", &"b".into(), ask(&pacer, "c", edit())).unwrap();
        blocker.end(&ActionResult::done().into());
        if begins {
            assert!(matches!(second.turn(u64::MAX).await, TurnOutcome::Go));
        }
        drop(second);
        let TurnOutcome::Superseded(result) = first.await.unwrap() else { panic!("it was done itself") };
        assert_eq!((result.success, result.ambiguous), (false, begins));
    }
}

#[tokio::test(start_paused = true)]
async fn a_refusal_for_the_rate_is_tried_again_after_the_time_that_the_platform_names() {
    let pacer = paced();
    let began = now_ms(&pacer);
    let mut passage = pacer.enter("p", &"b".into(), ask(&pacer, "c", text(None))).unwrap();
    assert!(matches!(passage.turn(u64::MAX).await, TurnOutcome::Go));
    // It names a bucket that is not counted.
    let pace = Pace { retry_after_ms: Some(3_000), bucket: Some("hash".into()), pause_ms: None };
    let limited = Acted { result: ActionResult::refused(Code::RateLimited, "slow down"), pace, receipt_id: None };
    assert!(matches!(passage.end(&limited), Next::Again));
    assert!(matches!(passage.turn(u64::MAX).await, TurnOutcome::Go));
    assert_eq!(now_ms(&pacer) - began, 3_000);
    let late = Pace { retry_after_ms: Some(60_000), ..Pace::default() };
    let limited = Acted { pace: late, ..limited };
    assert!(matches!(passage.end(&limited), Next::Limited { retry_after_ms: 60_000 }));
}
