//! Sessions of the gateway.

use super::*;

const ALL: u64 = 0x7fff | 1 << 15;

fn resume(fake: &FakeDiscord, session: &Value, seq: u64) -> u64 {
    let connection = fake.connect(NOW).unwrap();
    let data = json!({"token": TOKEN, "session_id": session, "seq": seq});
    fake.receive(NOW, connection, &json!({"op": 6, "d": data}).to_string());
    connection
}

#[test]
fn a_session_begins_with_ready_and_its_guilds() {
    let fake = world();
    let frames = frames(&fake, socket(&fake, ALL));
    assert_eq!(frames[0]["op"], 10);
    assert_eq!((&frames[1]["t"], &frames[1]["s"]), (&json!("READY"), &json!(1)));
    assert_eq!(frames[1]["d"]["guilds"][0], json!({"id": GUILD.to_string(), "unavailable": true}));
    assert_eq!((&frames[2]["t"], &frames[2]["s"]), (&json!("GUILD_CREATE"), &json!(2)));
    assert_eq!(frames[2]["d"]["channels"].as_array().unwrap().len(), 3);
}

#[test]
fn only_those_who_see_a_channel_are_told() {
    let fake = world();
    let connection = socket(&fake, ALL);
    frames(&fake, connection);
    act(&fake, json!({"act": "say", "channel": HIDDEN, "from": ANN, "text": "x"}));
    assert_eq!(dispatched(&fake, connection), [""; 0]);
    let open = json!({"act": "change_channel", "channel": HIDDEN, "permission_overwrites": []});
    act(&fake, open);
    assert_eq!(dispatched(&fake, connection), ["CHANNEL_UPDATE", "THREAD_LIST_SYNC"]);
    act(&fake, json!({"act": "say", "channel": HIDDEN, "from": ANN, "text": "x"}));
    assert_eq!(dispatched(&fake, connection), ["MESSAGE_CREATE"]);
}

#[test]
fn what_was_missed_is_replayed_with_its_numbers() {
    let fake = world();
    let connection = socket(&fake, ALL);
    let session = frames(&fake, connection)[1]["d"]["session_id"].clone();
    fake.disconnected(NOW, connection, Some(4000));
    say(&fake, "one");
    say(&fake, "two");
    let seen = frames(&fake, resume(&fake, &session, 2));
    let named: Vec<(&str, u64)> =
        seen[1..].iter().map(|frame| (frame["t"].as_str().unwrap(), frame["s"].as_u64().unwrap())).collect();
    assert_eq!(named, [("MESSAGE_CREATE", 3), ("MESSAGE_CREATE", 4), ("RESUMED", 5)]);
}

#[test]
fn sessions_end_with_good_byes_with_time_and_with_gaps() {
    let fake = world();
    let invalid = |connection| frames(&fake, connection)[1]["op"] == 9;
    let begin = || {
        let connection = socket(&fake, ALL);
        (connection, frames(&fake, connection)[1]["d"]["session_id"].clone())
    };
    let (connection, session) = begin();
    fake.disconnected(NOW, connection, Some(1000));
    assert!(invalid(resume(&fake, &session, 2)), "the client said good-bye");

    let (connection, session) = begin();
    fake.disconnected(NOW - 180_000, connection, None);
    assert!(invalid(resume(&fake, &session, 2)), "too late");

    fake.set_gateway(GatewaySettings { identify_every_ms: 0, kept_dispatches: 3, ..GatewaySettings::default() });
    let (connection, session) = begin();
    fake.disconnected(NOW, connection, None);
    (0..4).for_each(|_| _ = say(&fake, "x"));
    assert!(invalid(resume(&fake, &session, 2)), "one is no longer kept");
}

#[test]
fn a_bot_may_not_identify_too_often() {
    let fake = world();
    fake.set_gateway(GatewaySettings::default());
    assert_eq!(frames(&fake, socket(&fake, ALL))[1]["t"], "READY");
    assert_eq!(frames(&fake, socket(&fake, ALL))[1]["op"], 9);
}

#[test]
fn a_socket_without_heartbeats_is_closed() {
    let fake = world();
    let connection = socket(&fake, ALL);
    frames(&fake, connection);
    assert_eq!(fake.take_out(NOW + 62_000, connection), []);
    assert!(matches!(fake.take_out(NOW + 64_000, connection)[..], [Out::Close(4009, _)]));
}

#[test]
fn shards_have_their_own_guilds() {
    let fake = world();
    let mine = (GUILD >> 22) % 2;
    for shard in 0..2 {
        let connection = fake.connect(NOW).unwrap();
        let data = json!({"token": TOKEN, "intents": ALL, "shard": [shard, 2]});
        fake.receive(NOW, connection, &json!({"op": 2, "d": data}).to_string());
        let names = dispatched(&fake, connection);
        let wanted: &[&str] = if shard == mine { &["READY", "GUILD_CREATE"] } else { &["READY"] };
        assert_eq!(names, wanted, "shard {shard}");
    }
}

#[test]
fn shards_identify_at_the_same_time_only_as_far_as_it_is_allowed() {
    let fake = world();
    fake.set_gateway(GatewaySettings { shards: 4, max_concurrency: 2, ..GatewaySettings::default() });
    let response = done(&fake, "GET", "gateway/bot", json!(null));
    assert_eq!((&response["shards"], &response["session_start_limit"]["max_concurrency"]), (&json!(4), &json!(2)));
    let begins = |shard: u64| {
        let connection = fake.connect(NOW).unwrap();
        let data = json!({"token": TOKEN, "intents": ALL, "shard": [shard, 4]});
        fake.receive(NOW, connection, &json!({"op": 2, "d": data}).to_string());
        frames(&fake, connection)[1]["t"] == "READY"
    };
    assert_eq!([0, 1, 2, 3].map(begins), [true, true, false, false]);
}

#[test]
fn direct_messages_come_to_the_first_shard() {
    let fake = world();
    let sockets = [0, 1].map(|shard| {
        let connection = fake.connect(NOW).unwrap();
        let data = json!({"token": TOKEN, "intents": ALL, "shard": [shard, 2]});
        fake.receive(NOW, connection, &json!({"op": 2, "d": data}).to_string());
        frames(&fake, connection);
        connection
    });
    act(&fake, json!({"act": "say", "bot": BOT, "from": ANN, "text": "x"}));
    assert!(dispatched(&fake, sockets[0]).contains(&"MESSAGE_CREATE".to_owned()));
    assert_eq!(dispatched(&fake, sockets[1]), [""; 0]);
    assert_eq!(fake.socket_fault(BOT, &SocketFault::CutShard { shard: 1 }), 1);
}
