//! The socket: how it is opened, read, kept and given up.

use std::time::Duration;

use super::*;
use crate::wecom::robot::backlog::FileLink;

#[tokio::test(start_paused = true)]
async fn messages_are_stored_in_their_order() {
    let (scene, (store, mut taken)) = (Scene::new(), Store::new());
    let mut far = scene.vendor.socket();
    let talk = async {
        far.accept().await;
        far.say.send(SocketMessage::Text("rubbish".into())).unwrap();
        far.say.send(SocketMessage::Binary(Bytes::from_static(b"x"))).unwrap();
        far.send(json!({ "cmd": "news", "headers": {} }));
        far.send(json!([1]));
        for number in 0..5 {
            far.said(&format!("m{number}"), "r", text(&number.to_string()));
        }
        for number in 0..5 {
            assert_eq!(taken.recv().await.unwrap().event.text, number.to_string());
        }
        drop(far);
    };
    let (ended, ()) = tokio::join!(scene.listen(&store), talk);
    assert_eq!(ended, ListenEnd::Lost("the connection was closed".into()));
    assert_eq!(scene.vendor.dialed.lock().unwrap()[0], ("wss://openws.work.weixin.qq.com".into(), None));
    let found = scene.robot.findings(&scene.bot);
    assert!(!found[0].ok && found[0].text.contains("closed"), "{found:?}");
}

#[tokio::test(start_paused = true)]
async fn a_message_waits_for_the_store_and_the_socket_lives_on() {
    let (scene, (store, mut taken)) = (Scene::new(), Store::new());
    let mut far = scene.vendor.socket();
    store.is_down.store(true, Ordering::SeqCst);
    let talk = async {
        far.accept().await;
        far.said("m1", "r", text("held"));
        for _ in 0..5 {
            let ping = far.received.recv().await.unwrap();
            assert_eq!(ping["cmd"], "ping");
            far.answer(&ping, 0, Value::Null);
        }
        assert!(taken.try_recv().is_err());
        store.is_down.store(false, Ordering::SeqCst);
        assert_eq!(taken.recv().await.unwrap().event.text, "held");
        drop(far);
    };
    tokio::join!(scene.listen(&store), talk);
    assert!(!store.cursors.lock().unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_file_outlives_its_link() {
    let (scene, (store, mut taken)) = (Scene::new(), Store::new());
    let mut far = scene.vendor.socket();
    let talk = async {
        far.accept().await;
        far.said("m1", "r", json!({ "msgtype": "image", "image": { "url": "https://files.example/x" } }));
        let intake = taken.recv().await.unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
        *scene.vendor.file.lock().unwrap() = Some((404, Vec::new()));
        let media = scene.robot.fetch_media(&scene.bot, &intake.remote_media[0].handle).await.ok().unwrap();
        assert_eq!((media.mime.as_str(), media.filename.as_deref()), ("image/png", Some("a.png")));
        assert_eq!(frontdesk_core::port::media::read_whole(media.body).await.unwrap(), b"a picture");
        scene.env.advance_ms(25 * 3_600_000);
        let fault = scene.robot.fetch_media(&scene.bot, &intake.remote_media[0].handle).await.err();
        assert!(matches!(fault, Some(MediaFault::Gone(why)) if why.contains("five minutes")), "after a day it is gone");
        drop(far);
    };
    tokio::join!(scene.listen(&store), talk);
}

#[tokio::test(start_paused = true)]
async fn all_files_are_kept_of_messages_that_somebody_gets() {
    let (scene, (store, mut taken)) = (Scene::new(), Store::new());
    let mut far = scene.vendor.socket();
    let fetched = || scene.vendor.dialed.lock().unwrap().iter().filter(|(url, _)| url.contains("files.")).count();
    let talk = async {
        far.accept().await;
        store.is_withheld.store(true, Ordering::SeqCst);
        far.said("m1", "r", json!({ "msgtype": "image", "image": { "url": "https://files.example/x" } }));
        taken.recv().await.unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(fetched(), 0);
        store.is_withheld.store(false, Ordering::SeqCst);
        let image =
            |number| json!({ "msgtype": "image", "image": { "url": format!("https://files.example/{number}") } });
        let items: Vec<Value> = (0..9).map(image).collect();
        far.said("m2", "r", json!({ "msgtype": "mixed", "mixed": { "msg_item": items } }));
        taken.recv().await.unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(fetched(), 9);
        drop(far);
    };
    tokio::join!(scene.listen(&store), talk);
}

#[tokio::test(start_paused = true)]
async fn slow_files_of_one_tenant_leave_places_to_others() {
    let scene = Scene::new();
    let robot = |id: &str, tenant: Option<&str>| {
        Bot::new(id, tenant.map(Into::into), BTreeMap::new(), [("secret".to_owned(), Secret::new("s"))].into())
    };
    let (second, shared, other) = (robot("wr2", Some("home")), robot("home", None), robot("wo", Some("other")));
    let hold = |bot, name: &str, age_ms| {
        let handle = json!({ "url": format!("https://files.example/{name}"), "aeskey": "" }).to_string();
        scene.robot.hold(bot, FileLink { handle, came_ms: scene.env.now_ms() - age_ms })
    };
    let fetched = || -> Vec<String> {
        let dialed = scene.vendor.dialed.lock().unwrap();
        dialed.iter().filter_map(|(url, _)| Some(url.rsplit_once('/')?.1.to_owned())).collect()
    };
    let watch = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(fetched(), ["slow-1", "slow-2"], "the others of the tenant wait");
        tokio::join!(hold(&other, "a", 0), hold(&shared, "b", 0));
        assert_eq!(
            fetched().split_off(2),
            ["a", "b"],
            "of another tenant, and of a shared robot with the tenant's name"
        );
    };
    tokio::join!(
        hold(&scene.bot, "slow-1", 0),
        hold(&second, "slow-2", 0),
        hold(&second, "slow-3", 0),
        hold(&scene.bot, "slow-4", 290_000),
        watch
    );
    assert_eq!(fetched().split_off(4), ["slow-3"], "the link of the fourth had ended before its turn");
}

#[tokio::test(start_paused = true)]
async fn messages_outlive_the_socket_that_they_came_by() {
    let (scene, (store, mut taken)) = (Scene::new(), Store::new());
    let mut far = scene.vendor.socket();
    store.is_down.store(true, Ordering::SeqCst);
    let talk = async {
        far.accept().await;
        for number in 0..3 {
            far.said(&format!("m{number}"), "r", text(&number.to_string()));
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
        drop(far);
    };
    tokio::join!(scene.listen(&store), talk);
    assert!(taken.try_recv().is_err() && store.gaps.lock().unwrap().is_empty());
    store.is_down.store(false, Ordering::SeqCst);
    let mut far = scene.vendor.socket();
    let talk = async {
        far.accept().await;
        far.said("m3", "r", text("3"));
        for number in 0..4 {
            assert_eq!(taken.recv().await.unwrap().event.text, number.to_string());
        }
        drop(far);
    };
    tokio::join!(scene.listen(&store), talk);
    assert!(taken.try_recv().is_err(), "each is stored once");
}

#[tokio::test(start_paused = true)]
async fn a_listener_that_is_stopped_tells_what_was_not_stored() {
    let (scene, (store, mut taken)) = (Scene::new(), Store::new());
    let mut far = scene.vendor.socket();
    store.is_down.store(true, Ordering::SeqCst);
    let talk = async {
        far.accept().await;
        far.said("m1", "r", text("one"));
        far.said("m2", "r", text("two"));
        tokio::time::sleep(Duration::from_secs(3)).await;
    };
    tokio::select! {
        ended = scene.listen(&store) => panic!("{ended:?}"),
        () = talk => {}
    }
    let gaps = std::mem::take(&mut *store.gaps.lock().unwrap());
    assert!(gaps.len() == 1 && gaps[0].reason.contains("2 messages"), "{gaps:?}");
    // It was not the last.
    store.is_down.store(false, Ordering::SeqCst);
    scene.listen(&store).await;
    assert_eq!(taken.recv().await.unwrap().event.text, "one");
    assert_eq!(taken.recv().await.unwrap().event.text, "two");
}

#[tokio::test(start_paused = true)]
async fn a_message_that_comes_before_the_answer_is_stored() {
    let (scene, (store, mut taken)) = (Scene::new(), Store::new());
    let mut far = scene.vendor.socket();
    let talk = async {
        far.said("m0", "r", text("early"));
        far.accept().await;
        assert_eq!(taken.recv().await.unwrap().event.text, "early");
        drop(far);
    };
    tokio::join!(scene.listen(&store), talk);
}

#[tokio::test(start_paused = true)]
async fn a_silent_socket_is_given_up() {
    let (scene, (store, _taken)) = (Scene::new(), Store::new());
    let mut far = scene.vendor.socket();
    let began = tokio::time::Instant::now();
    let (ended, ()) = tokio::join!(scene.listen(&store), far.accept());
    let ListenEnd::Lost(why) = ended else { panic!() };
    assert!(why.contains("silent"), "{why}");
    assert!(began.elapsed() < Duration::from_mins(2), "{:?}", began.elapsed());
    let mut pings = 0;
    while let Ok(frame) = far.received.try_recv() {
        pings += u32::from(frame["cmd"] == "ping");
    }
    assert!(pings >= 2, "{pings}");
}

#[tokio::test(start_paused = true)]
async fn what_is_not_accepted_is_told() {
    let (store, _taken) = Store::new();
    for (code, is_final) in [(40_001, true), (-1, false), (45_009, false)] {
        let scene = Scene::new();
        let mut far = scene.vendor.socket();
        let refuse = async {
            let hello = far.next().await;
            far.answer(&hello, code, Value::Null);
        };
        let (ended, ()) = tokio::join!(scene.listen(&store), refuse);
        let (found, why) = match ended {
            ListenEnd::Misconfigured(why) => (true, why),
            ListenEnd::Lost(why) => (false, why),
            ListenEnd::Never => panic!(),
        };
        assert_eq!(found, is_final, "{code} {why}");
        assert_eq!(why.contains("bot_id and secret"), is_final, "{why}");
        assert!(!why.contains("the-secret"), "{why}");
        assert!(scene.robot.findings(&scene.bot)[0].text.contains("did not accept"));
    }
    let scene = Scene::new();
    assert!(matches!(scene.listen(&store).await, ListenEnd::Lost(why) if why.contains("not opened")));
    let scene = Scene::new();
    let far = scene.vendor.socket();
    assert!(matches!(scene.listen(&store).await, ListenEnd::Lost(why) if why.contains("in time")), "nobody answers");
    drop(far);
}

#[tokio::test(start_paused = true)]
async fn another_connection_of_the_robot_ends_this_one_with_a_pause() {
    let (scene, (store, _taken)) = (Scene::new(), Store::new());
    let mut far = scene.vendor.socket();
    let talk = async {
        far.accept().await;
        far.send(json!({ "cmd": "aibot_event_callback", "headers": { "req_id": "e" },
            "body": { "msgtype": "event", "event": { "eventtype": "disconnected_event" } } }));
    };
    let began = tokio::time::Instant::now();
    let (ended, ()) = tokio::join!(scene.listen(&store), talk);
    assert!(matches!(&ended, ListenEnd::Lost(why) if why.contains("only one")), "{ended:?}");
    assert!(began.elapsed() >= Duration::from_mins(1));
}

#[tokio::test(start_paused = true)]
async fn an_absence_is_a_gap() {
    let (scene, (store, _taken)) = (Scene::new(), Store::new());
    let mut far = scene.vendor.socket();
    let now_ms = scene.env.now_ms();
    let talk = async {
        far.accept().await;
        drop(far);
    };
    let listening = scene.robot.listen(&scene.bot, Part::WHOLE, Some((now_ms - 90_000).to_string()), &store);
    tokio::join!(listening, talk);
    let gaps = std::mem::take(&mut *store.gaps.lock().unwrap());
    assert_eq!((gaps.len(), gaps[0].since_ms, gaps[0].until_ms), (1, now_ms - 90_000, now_ms));
    assert_eq!(
        *store.cursors.lock().unwrap(),
        [now_ms.to_string(), now_ms.to_string()],
        "at the beginning and the end"
    );
    // The next socket is opened soon after. What the store has may be older.
    scene.env.advance_ms(2_000);
    let mut far = scene.vendor.socket();
    let talk = async {
        far.accept().await;
        drop(far);
    };
    let listening = scene.robot.listen(&scene.bot, Part::WHOLE, Some((now_ms - 90_000).to_string()), &store);
    tokio::join!(listening, talk);
    assert_eq!(*store.gaps.lock().unwrap(), []);
}

#[test]
fn incomplete_bots_are_refused_when_they_are_added() {
    let robot = Scene::new().robot;
    let check = |settings: &[(&str, &str)], secret: &str| robot.check_bot(&bot_with(settings, &[("secret", secret)]));
    assert!(check(&[], "s").unwrap_err().contains("BotID"));
    assert!(check(&[("bot_id", "a b")], "s").unwrap_err().contains("BotID"));
    assert!(check(&[("bot_id", "b")], " ").unwrap_err().contains("secret"));
    assert!(check(&[("bot_id", "b"), ("socket_url", "https://x")], "s").unwrap_err().contains("wss://"));
    let bot = bot_with(&[("bot_id", "b"), ("socket_url", "ws://127.0.0.1:9/x")], &[]);
    assert_eq!(own_base(&bot).as_deref(), Some("http://127.0.0.1:9"));
    let other = Arc::new(Bot::new("other", None, [("bot_id".to_owned(), "b".to_owned())].into(), BTreeMap::new()));
    assert!(robot.clash(&bot, &[other]).unwrap_err().contains("only one connection"));
}
