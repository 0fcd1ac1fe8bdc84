//! The buses over a network, each with the same tests: which server gets a hint, and what happens when a connection is
//! lost.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use frontdesk_core::port::bus::{Bus as _, BusEvent, Hint, To};
use frontdesk_store::bus::{NetworkBus, notify_bus, redis_bus};
use frontdesk_testkit::proxy::{CUT_TO_CLIENT, CUT_TO_SERVER, Proxy};
use frontdesk_testkit::{postgres, redis};
use frontdesk_wire::{DeskNo, InstanceNo, SessionNo};
use tokio::time::timeout;

const SOON: Duration = Duration::from_secs(15);
const HINT_EVERY: Duration = Duration::from_millis(50);

#[derive(Clone, Copy)]
enum Network {
    Notify,
    Redis,
}

impl Network {
    fn url(self) -> String {
        match self {
            Self::Notify => postgres::server(),
            Self::Redis => redis::url(),
        }
    }

    fn connect(self, url: &str, epoch: u32) -> NetworkBus {
        match self {
            Self::Notify => notify_bus(url, epoch).unwrap(),
            Self::Redis => redis_bus(url, epoch).unwrap(),
        }
    }

    /// Sends a text as a server of another version would.
    async fn send_raw(self, channel: &str, text: &str) {
        match self {
            Self::Notify => postgres::run(&self.url(), format!("SELECT pg_notify('{channel}', '{text}')")),
            Self::Redis => {
                let client = ::redis::Client::open(self.url()).unwrap();
                let mut connection = client.get_multiplexed_async_connection().await.unwrap();
                let sent = ::redis::cmd("PUBLISH").arg(channel).arg(text).query_async::<u64>(&mut connection).await;
                assert!(sent.unwrap() > 0, "nobody hears {channel}");
            }
        }
    }
}

/// An epoch that no other test uses: they share the servers.
fn new_epoch() -> u32 {
    static LAST: AtomicU32 = AtomicU32::new(0);
    (std::process::id() << 8) | LAST.fetch_add(1, Ordering::Relaxed)
}

struct Server {
    bus: NetworkBus,
    me: DeskNo,
}

impl Server {
    async fn start(network: Network, url: &str, epoch: u32, me: u64) -> Self {
        let server = Self { bus: network.connect(url, epoch), me: DeskNo(me) };
        server.bus.listen_as(server.me);
        server.receives_its_own_hints().await;
        server
    }

    /// Sends itself a hint, as servers do every second, until something else than a hint of others comes.
    async fn until(&self, what: &str, is_it: impl Fn(&BusEvent) -> bool) {
        let wait = async {
            loop {
                self.bus.send(To::Desk(self.me), Hint::Echo(self.me));
                if timeout(HINT_EVERY, self.bus.next_event()).await.is_ok_and(|received| is_it(&received)) {
                    return;
                }
            }
        };
        timeout(SOON, wait).await.unwrap_or_else(|_| panic!("not within {SOON:?}: {what}"));
    }

    async fn receives_its_own_hints(&self) {
        self.until("it gets its own hint", |received| *received == BusEvent::Hint(Hint::Echo(self.me))).await;
    }

    async fn missed(&self) {
        self.until("it is told that hints were lost", |received| *received == BusEvent::Missed).await;
    }

    /// The next hint that is not an echo. None may have been lost.
    async fn next(&self) -> Hint {
        let wait = async {
            loop {
                match self.bus.next_event().await {
                    BusEvent::Hint(Hint::Echo(of)) => assert_eq!(of, self.me, "of another server"),
                    BusEvent::Hint(hint) => return hint,
                    BusEvent::Missed => panic!("the connection was lost"),
                }
            }
        };
        timeout(SOON, wait).await.expect("a hint")
    }

    fn send(&self, to: To, hint: Hint) {
        self.bus.send(to, hint);
    }
}

fn rows(number: u64) -> Hint {
    Hint::Rows(vec![InstanceNo(number)])
}

async fn two_servers(network: Network) -> (Server, Server) {
    let (url, epoch) = (network.url(), new_epoch());
    (Server::start(network, &url, epoch, 1).await, Server::start(network, &url, epoch, 2).await)
}

async fn a_hint_reaches_the_server_that_is_named(network: Network) {
    let (a, b) = two_servers(network).await;
    a.send(To::Desk(b.me), rows(7));
    assert_eq!(b.next().await, rows(7));
    b.send(To::Desk(a.me), Hint::Replaced(InstanceNo(8), SessionNo(9)));
    assert_eq!(a.next().await, Hint::Replaced(InstanceNo(8), SessionNo(9)), "and not the one before");
    a.send(To::Desk(b.me), Hint::Interrupt(InstanceNo(1), "key \"quoted\" \\ 'é'".into(), "chat".into()));
    assert_eq!(b.next().await, Hint::Interrupt(InstanceNo(1), "key \"quoted\" \\ 'é'".into(), "chat".into()));
}

async fn a_hint_to_all_reaches_each_server_and_the_sender(network: Network) {
    let (a, b) = two_servers(network).await;
    a.send(To::All, Hint::Directory(3));
    assert_eq!((a.next().await, b.next().await), (Hint::Directory(3), Hint::Directory(3)));
}

async fn servers_of_another_store_are_not_heard(network: Network) {
    let (a, b) = two_servers(network).await;
    let other = Server::start(network, &network.url(), new_epoch(), 1).await;
    b.send(To::All, Hint::Directory(3));
    b.send(To::Desk(a.me), rows(7));
    let received = BTreeSet::from([format!("{:?}", a.next().await), format!("{:?}", a.next().await)]);
    assert_eq!(received, BTreeSet::from([format!("{:?}", Hint::Directory(3)), format!("{:?}", rows(7))]));
    other.send(To::All, Hint::Directory(4));
    assert_eq!(other.next().await, Hint::Directory(4), "the first that it hears");
}

async fn a_server_is_heard_by_its_new_number_only(network: Network) {
    let (a, mut b) = two_servers(network).await;
    let before = std::mem::replace(&mut b.me, DeskNo(3));
    b.bus.listen_as(b.me);
    b.until("the new number is known", |received| *received == BusEvent::Hint(Hint::Echo(DeskNo(3)))).await;
    a.send(To::Desk(before), rows(7));
    a.send(To::Desk(a.me), rows(8));
    assert_eq!(a.next().await, rows(8), "sent together with the other, or after it");
    a.send(To::Desk(b.me), rows(9));
    assert_eq!(b.next().await, rows(9));
}

async fn many_rows_come_in_messages_of_limited_length(network: Network) {
    let (a, b) = two_servers(network).await;
    let all: Vec<InstanceNo> = (0..2_000).map(|number| InstanceNo(u64::MAX - number)).collect();
    a.send(To::Desk(b.me), Hint::Rows(all.clone()));
    let mut received = BTreeSet::new();
    while received.len() < all.len() {
        let Hint::Rows(some) = b.next().await else { panic!("another hint") };
        received.extend(some);
    }
    assert_eq!(received, all.into_iter().collect());
    a.send(To::Desk(b.me), Hint::Platform("too long".into(), "x".repeat(9_000)));
    a.send(To::Desk(b.me), Hint::Platform("long".into(), "x".repeat(6_900)));
    assert_eq!(b.next().await, Hint::Platform("long".into(), "x".repeat(6_900)));
}

async fn a_hint_of_a_newer_server_is_skipped(network: Network) {
    let epoch = new_epoch();
    let a = Server::start(network, &network.url(), epoch, 1).await;
    let channel = format!("frontdesk_{epoch:08x}_all");
    network.send_raw(&channel, r#"{"something_new":[1,2]}"#).await;
    network.send_raw(&channel, "not even JSON").await;
    network.send_raw(&channel, r#"{"directory":5}"#).await;
    assert_eq!(a.next().await, Hint::Directory(5));
}

async fn a_server_whose_connection_ended_connects_again_and_is_told(network: Network) {
    let (epoch, (proxy, url)) = (new_epoch(), Proxy::before(&network.url()).await);
    let a = Server::start(network, &url, epoch, 1).await;
    let b = Server::start(network, &network.url(), epoch, 2).await;
    proxy.hang_up();
    a.missed().await;
    a.receives_its_own_hints().await;
    b.send(To::Desk(a.me), rows(7));
    assert_eq!(a.next().await, rows(7));
    a.send(To::Desk(b.me), rows(8));
    assert_eq!(b.next().await, rows(8));
}

/// The peer is gone, or a firewall dropped the connection: neither end is notified.
async fn a_connection_that_fell_silent_is_replaced(network: Network) {
    let started = async |epoch| {
        let (proxy, url) = Proxy::before(&network.url()).await;
        (Server::start(network, &url, epoch, 1).await, proxy)
    };
    let connections = started(new_epoch()).await.1.connections();
    let cases = (0..connections).flat_map(|number| [CUT_TO_CLIENT, CUT_TO_SERVER].map(|cut| (number, cut)));
    let recovers = async |(number, cut)| {
        let (a, proxy) = started(new_epoch()).await;
        proxy.cut_connection(number, cut);
        a.missed().await;
        a.receives_its_own_hints().await;
    };
    futures_util::future::join_all(cases.map(recovers)).await;
}

macro_rules! on_each_network {
    ($($test:ident)*) => {
        mod notify {
            $(#[tokio::test]
            async fn $test() {
                super::$test(super::Network::Notify).await;
            })*
        }
        mod over_redis {
            $(#[tokio::test]
            async fn $test() {
                super::$test(super::Network::Redis).await;
            })*
        }
    };
}

on_each_network! {
    a_hint_reaches_the_server_that_is_named
    a_hint_to_all_reaches_each_server_and_the_sender
    servers_of_another_store_are_not_heard
    a_server_is_heard_by_its_new_number_only
    many_rows_come_in_messages_of_limited_length
    a_hint_of_a_newer_server_is_skipped
    a_server_whose_connection_ended_connects_again_and_is_told
    a_connection_that_fell_silent_is_replaced
}
