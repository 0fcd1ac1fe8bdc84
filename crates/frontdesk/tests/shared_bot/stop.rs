//! A `/stop` whose interrupt cannot be sent.

use frontdesk_core::delivery::sockets::Order;
use frontdesk_testkit::metrics::metric;
use frontdesk_testkit::store_suite::sent;

use super::*;

#[tokio::test]
async fn a_stop_that_was_not_sent_is_not_reported_as_sent() {
    let scene = Scene::open().await;
    let ann = scene.gateway("red", "ann").await;
    scene.bind("red", "u-ann", "ann").await;
    let event = |text: &str| scene.message("red-chat", Some("red-guild"), "u-ann", text);
    scene.take(event("go")).await;
    scene.store.settle(ann.instance.no, sent(1).into()).await.unwrap();
    let (mailbox, _) = scene.desk.delivery().sockets().attach(ann.instance.no, &"red-ann".into(), &"red".into());
    while mailbox.order(Order::Line(String::new())) {} // its queue is full

    let (stop, mut watcher) = (event("/stop"), scene.desk.tail().watch());
    let receipt = scene.take(stop.clone()).await;
    let text = receipt.verdict.text.as_str();
    assert!(text.starts_with("the turn was not interrupted (") && text.ends_with("send /stop again"), "{text}");
    let notice = watcher.recv().await.unwrap();
    assert_eq!((notice.step, notice.text.as_str()), ("not_interrupted", text));
    assert_eq!(metric(scene.desk.meters(), "interrupts_total"), Some(0));

    mailbox.take_orders();
    let repeated = scene.take(stop).await; // by a client that got no answer
    assert!(repeated.verdict.text.contains("was received before and is not repeated"), "{}", repeated.verdict.text);
    assert!(mailbox.take_orders().is_empty(), "a repeated one interrupts nothing");

    assert_eq!(scene.take(event("/stop")).await.verdict.text, "interrupt sent");
    assert!(!mailbox.take_orders().is_empty());
}
