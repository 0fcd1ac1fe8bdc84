//! Who gets what is said in a chat: owner, grant, principal, visibility, relevance.

use serde_json::{Value, json};

use crate::harness::{Harness, Seat, Socket, Source};
use crate::scene::{
    PLAIN, PLATFORM, channel, explain, has_had, hears, manage, managed, members, open_to_all, ruling, say, set_policy,
    set_wake_url, to_the_bot, write,
};

/// Ann, Bob and the team, each with an agent of that name that is awake. Their people are `u-ann` and so on.
struct Crew {
    house: Harness,
    ann: Seat,
    bob: Seat,
    team: Seat,
    anns: Socket,
    bobs: Socket,
    teams: Socket,
    /// Rows that each of them has had so far.
    had: [usize; 3],
}

impl Crew {
    async fn gather() -> Self {
        let house = Harness::open().await;
        let (ann, bob, team) = (house.seat("ann").await, house.seat("bob").await, house.seat("team").await);
        let (anns, bobs, teams) = (house.socket(&ann).await, house.socket(&bob).await, house.socket(&team).await);
        Self { house, ann, bob, team, anns, bobs, teams, had: [0; 3] }
    }

    async fn say(&self, user: &str, text: &str, more: Value) -> Value {
        say(&self.house, &self.ann, "room", user, text, more).await
    }

    /// Exactly these hear it, as `ann team`, and nobody hears anything else.
    async fn only(&mut self, names: &str, text: &str) {
        for (number, (seat, socket)) in
            [(&self.ann, &mut self.anns), (&self.bob, &mut self.bobs), (&self.team, &mut self.teams)]
                .into_iter()
                .enumerate()
        {
            if names.split_whitespace().any(|name| name == seat.gateway) {
                hears(socket, text).await;
                self.had[number] += 1;
            }
            has_had(&self.house, seat, socket, self.had[number]).await;
        }
    }

    /// Says it, and it is ruled and heard like this.
    async fn check(&mut self, user: &str, more: Value, expected: &str) {
        let text = format!("{user} {more}");
        let posted = self.say(user, &text, more).await;
        assert_eq!(ruling(&self.house, &posted).await, expected, "{text}");
        let heard: Vec<&str> =
            expected.split(' ').filter_map(|line| line.split_once('+').map(|(name, _)| name)).collect();
        assert_eq!(posted["verdict"]["outcome"], if heard.is_empty() { "withheld" } else { "delivered" });
        self.only(&heard.join(" "), &text).await;
    }
}

// ---- owner ------------------------------------------------------------------------------------

#[tokio::test(flavor = "multi_thread")]
async fn two_people_in_one_group_each_reach_their_own_agent_only() {
    let mut crew = Crew::gather().await;
    for _ in 0..2 {
        crew.check("u-ann", PLAIN, "ann+owner/linked").await;
        crew.check("u-bob", PLAIN, "bob+owner/linked").await;
        crew.check("u-bob", to_the_bot(), "bob+owner/linked").await;
        crew.check("stranger", to_the_bot(), "nobody-owner/linked").await;
    }
    crew.house.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ones_own_agent_hears_everything_of_theirs_whatever_its_policy() {
    let mut crew = Crew::gather().await;
    set_policy(&crew.house, &crew.ann, json!({ "requireAddress": true, "allowOtherBots": false })).await;
    managed(&crew.house, &crew.ann, "principal", json!({ "policy": "allow-list", "allow": ["u-bob"] })).await;
    crew.check("u-ann", PLAIN, "ann+owner/linked").await;
    crew.check("u-ann", json!({ "is_bot": true }), "ann+owner/linked").await;
    // Also where it holds the channel, and where somebody else does.
    managed(&crew.house, &crew.ann, "scope", channel("room")).await;
    crew.check("u-ann", PLAIN, "ann+owner/linked").await;
    managed(&crew.house, &crew.ann, "scope/release", channel("room")).await;
    managed(&crew.house, &crew.team, "scope", channel("room")).await;
    crew.check("u-ann", PLAIN, "ann+owner/linked team-principal/policy").await;
    crew.house.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_several_links_the_channels_holder_then_the_chosen_one_then_the_latest() {
    let mut crew = Crew::gather().await;
    crew.house.bind("home", "u-ann", "bob").await;
    crew.house.bind("home", "u-ann", "team").await;
    let dm = || json!({ "chat_type": "dm" });
    crew.check("u-ann", dm(), "team+owner/linked ann-owner/latest bob-owner/latest").await;
    crew.check("u-ann", PLAIN, "team+owner/linked ann-owner/latest bob-owner/latest").await;
    let person = json!({ "platform": PLATFORM, "user_id": "u-ann" });
    managed(&crew.house, &crew.ann, "dm-default", person.clone()).await;
    crew.check("u-ann", dm(), "ann+owner/linked bob-owner/dm-default team-owner/dm-default").await;
    crew.check("u-ann", PLAIN, "ann+owner/linked bob-owner/dm-default team-owner/dm-default").await;
    managed(&crew.house, &crew.bob, "scope", channel("room")).await;
    crew.check("u-ann", dm(), "ann+owner/linked bob-owner/dm-default team-owner/dm-default").await;
    crew.check("u-ann", PLAIN, "bob+owner/linked ann-owner/granted team-owner/granted").await;
    managed(&crew.house, &crew.bob, "scope/release", channel("room")).await;
    managed(&crew.house, &crew.bob, "dm-default", person).await;
    crew.check("u-ann", dm(), "bob+owner/linked ann-owner/dm-default team-owner/dm-default").await;
    // Linked again, the first one is the latest; the choice still stands.
    crew.house.bind("home", "u-ann", "ann").await;
    crew.check("u-ann", dm(), "bob+owner/linked team-owner/dm-default ann-owner/dm-default").await;
    write(&crew.house, &crew.ann, "d", "u-ann", "/unlink bob").await;
    crew.check("u-ann", dm(), "ann+owner/linked team-owner/latest").await;
    crew.house.finish().await;
}

// ---- grant and principal ----------------------------------------------------------------------

#[tokio::test(flavor = "multi_thread")]
async fn a_holder_hears_others_only_as_far_as_its_principal_admits_them() {
    let mut crew = Crew::gather().await;
    managed(&crew.house, &crew.team, "principal", json!({ "policy": "any" })).await;
    crew.check("u-ann", PLAIN, "ann+owner/linked").await; // it is open to all, but holds nothing
    managed(&crew.house, &crew.team, "scope", channel("room")).await;
    crew.check("u-ann", PLAIN, "ann+owner/linked team+scope/granted").await;
    crew.check("u-bob", PLAIN, "bob+owner/linked team+scope/granted").await;
    crew.check("u-team", PLAIN, "team+owner/linked").await; // once, not once for each reason
    crew.check("stranger", PLAIN, "nobody-owner/linked").await; // even so
    managed(&crew.house, &crew.team, "principal", json!({ "policy": "owner-only", "allow": ["u-ann"] })).await;
    crew.check("u-ann", to_the_bot(), "ann+owner/linked team-principal/policy").await;
    crew.check("u-team", PLAIN, "team+owner/linked").await;
    managed(&crew.house, &crew.team, "principal", json!({ "policy": "allow-list", "allow": ["u-ann"] })).await;
    crew.check("u-ann", PLAIN, "ann+owner/linked team+scope/granted").await;
    crew.check("u-bob", PLAIN, "bob+owner/linked team-principal/policy").await;
    crew.check("u-team", PLAIN, "team+owner/linked").await;
    managed(&crew.house, &crew.team, "principal", json!({ "policy": "allow-list" })).await;
    crew.check("u-ann", PLAIN, "ann+owner/linked team-principal/policy").await;
    managed(&crew.house, &crew.team, "principal", json!({ "policy": "any" })).await;
    managed(&crew.house, &crew.team, "scope/release", channel("room")).await;
    crew.check("u-ann", PLAIN, "ann+owner/linked").await;
    crew.house.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_said_nothing_about_itself_hears_its_own_people_only() {
    let mut crew = Crew::gather().await;
    managed(&crew.house, &crew.team, "scope", channel("room")).await;
    crew.check("u-ann", to_the_bot(), "ann+owner/linked team-principal/policy").await;
    crew.check("u-team", PLAIN, "team+owner/linked").await;
    crew.house.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grant_is_of_one_channel_in_one_scope_and_never_of_a_direct_message() {
    let mut crew = Crew::gather().await;
    open_to_all(&crew.house, &crew.team, "room").await;
    let wing = json!({ "platform": PLATFORM, "scope_id": "wing", "channel_id": "hall" });
    managed(&crew.house, &crew.team, "scope", wing).await;
    let cases = [
        ("room", PLAIN, true),
        ("room", json!({ "thread_id": "t1" }), true), // a thread is in its chat
        ("room", json!({ "scope_id": "wing" }), false),
        ("room", json!({ "chat_type": "dm" }), false),
        ("hall", json!({ "scope_id": "wing" }), true),
        ("hall", PLAIN, false),
        ("hall", json!({ "scope_id": "attic" }), false),
        ("cellar", PLAIN, false),
    ];
    for (chat, more, granted) in cases {
        let text = format!("{chat} {more}");
        let posted = say(&crew.house, &crew.ann, chat, "u-ann", &text, more).await;
        let expected = if granted { "ann+owner/linked team+scope/granted" } else { "ann+owner/linked" };
        assert_eq!(ruling(&crew.house, &posted).await, expected, "{text}");
        crew.only(if granted { "ann team" } else { "ann" }, &text).await;
    }
    // The same channel of another tenant is another channel.
    let rival = crew.house.seat_in("rival", "r").await;
    let posted = say(&crew.house, &rival, "room", "u-r", "elsewhere", PLAIN).await;
    assert_eq!(ruling(&crew.house, &posted).await, "r+owner/linked");
    crew.only("", "").await;
    crew.house.finish().await;
}

// ---- visibility -------------------------------------------------------------------------------

#[tokio::test(flavor = "multi_thread")]
async fn members_of_a_chat_take_effect_at_once_in_both_directions() {
    let mut crew = Crew::gather().await;
    open_to_all(&crew.house, &crew.team, "room").await;
    let both = "ann+owner/linked team+scope/granted";
    crew.check("u-ann", PLAIN, both).await;
    let steps: [(&[&str], &str, &str); 8] = [
        (&["u-ann"], "u-ann", "ann+owner/linked team-visibility/can_see"),
        (&["u-ann"], "u-bob", "bob-visibility/can_see team-visibility/can_see"),
        (&["u-ann", "u-bob", "u-team"], "u-bob", "bob+owner/linked team+scope/granted"),
        (&["u-bob", "u-team"], "u-ann", "ann-visibility/can_see team+scope/granted"),
        (&["u-bob", "u-team"], "u-team", "team+owner/linked"),
        (&[], "u-team", "team-visibility/can_see"),
        (&["U-ANN", "ann", "team"], "u-ann", "ann-visibility/can_see team-visibility/can_see"),
        (&["u-team", "u-ann"], "u-ann", both),
    ];
    for (who, author, expected) in steps {
        members(&crew.house, &crew.ann, "room", who).await;
        for more in [PLAIN, to_the_bot()] {
            crew.check(author, more, expected).await;
        }
    }
    // A name changes nothing about who is in, and other chats have members of their own.
    crew.house.call("PUT", "/chat/v1/chats/room", &crew.ann.chat, &json!({ "name": "Room" })).await.expect(200);
    crew.check("u-bob", PLAIN, "bob-visibility/can_see team+scope/granted").await;
    say(&crew.house, &crew.ann, "other", "u-bob", "elsewhere", PLAIN).await;
    crew.only("bob", "elsewhere").await;
    crew.house.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_direct_chat_of_members_is_closed_to_others_too() {
    let mut crew = Crew::gather().await;
    members(&crew.house, &crew.ann, "room", &["u-ann"]).await;
    let dm = || json!({ "chat_type": "dm" });
    crew.check("u-ann", dm(), "ann+owner/linked").await;
    crew.check("u-bob", dm(), "bob-visibility/can_see").await;
    crew.house.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_holder_looks_with_the_eyes_of_whoever_was_linked_to_it_first() {
    let mut crew = Crew::gather().await;
    open_to_all(&crew.house, &crew.team, "room").await;
    crew.house.bind("home", "u-later", "team").await;
    members(&crew.house, &crew.ann, "room", &["u-ann", "u-later"]).await;
    crew.check("u-ann", PLAIN, "ann+owner/linked team-visibility/can_see").await;
    crew.check("u-later", PLAIN, "team+owner/linked").await;
    // Linked again is not linked earlier.
    crew.house.bind("home", "u-team", "team").await;
    crew.check("u-ann", PLAIN, "ann+owner/linked team-visibility/can_see").await;
    let gone = json!({ "platform": PLATFORM, "user_id": "u-team", "tenant": "home", "instance": "team" });
    assert_eq!(crew.house.admin("DELETE", "/bindings", &gone).await.status, 204);
    crew.check("u-ann", PLAIN, "ann+owner/linked team+scope/granted").await;
    let gone = json!({ "platform": PLATFORM, "user_id": "u-later", "tenant": "home", "instance": "team" });
    assert_eq!(crew.house.admin("DELETE", "/bindings", &gone).await.status, 204);
    crew.check("u-ann", PLAIN, "ann+owner/linked team-visibility/owner").await; // nobody's eyes at all
    crew.house.finish().await;
}

// ---- relevance --------------------------------------------------------------------------------

#[tokio::test(flavor = "multi_thread")]
async fn a_mention_a_reply_to_the_bot_and_a_command_count_as_addressed_and_nothing_else_does() {
    let mut crew = Crew::gather().await;
    open_to_all(&crew.house, &crew.team, "room").await;
    set_policy(&crew.house, &crew.team, json!({ "requireAddress": true })).await;
    let (heard, not) = ("ann+owner/linked team+scope/granted", "ann+owner/linked team-relevance/requireAddress");
    crew.check("u-ann", PLAIN, not).await;
    crew.check("u-ann", to_the_bot(), heard).await;
    crew.check("u-ann", json!({ "mentions_bot": false }), not).await;
    let sent = crew.teams.act(json!({ "op": "send", "chat_id": "room", "content": "which one?" })).await;
    crew.check("u-ann", json!({ "reply_to": sent["message_id"] }), heard).await;
    let posted = crew.say("u-bob", "that one", PLAIN).await;
    crew.only("bob", "that one").await;
    crew.check("u-ann", json!({ "reply_to": posted["message_id"] }), not).await;
    crew.check("u-ann", json!({ "reply_to": "never" }), not).await;
    for (text, addressed) in [("/weather oslo", true), ("/stop", true), ("/ not one", false), ("say /weather", false)] {
        let posted = crew.say("u-ann", text, PLAIN).await;
        assert_eq!(ruling(&crew.house, &posted).await, if addressed { heard } else { not }, "{text}");
        if text != "/stop" {
            crew.only(if addressed { "ann team" } else { "ann" }, text).await;
        }
    }
    crew.house.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn where_the_scope_is_free_nobody_needs_to_be_addressed() {
    let mut crew = Crew::gather().await;
    open_to_all(&crew.house, &crew.team, "room").await;
    let (heard, not) = ("ann+owner/linked team+scope/granted", "ann+owner/linked team-relevance/requireAddress");
    for (policy, expected) in [
        (json!({}), heard),
        (json!({ "requireAddress": false }), heard),
        (json!({ "requireAddress": true }), not),
        (json!({ "requireAddress": true, "freeResponseScopes": ["cellar", "roo", "room2", "ROOM", ""] }), not),
        (json!({ "requireAddress": true, "freeResponseScopes": ["cellar", "room"] }), heard),
        (json!({ "requireAddress": true, "freeResponseScopes": ["*"] }), heard),
        (json!({ "requireAddress": true, "freeResponseScopes": [] }), not),
        (json!({}), heard),
    ] {
        set_policy(&crew.house, &crew.team, policy).await;
        crew.check("u-ann", PLAIN, expected).await;
        crew.check("u-ann", to_the_bot(), heard).await;
    }
    crew.house.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn other_bots_are_heard_only_where_the_policy_says_so() {
    let mut crew = Crew::gather().await;
    open_to_all(&crew.house, &crew.team, "room").await;
    let bot = |mentions: bool| json!({ "is_bot": true, "mentions_bot": mentions });
    let heard = "ann+owner/linked team+scope/granted";
    let (bots, address) =
        ("ann+owner/linked team-relevance/allowOtherBots", "ann+owner/linked team-relevance/requireAddress");
    crew.check("u-ann", bot(true), bots).await; // no policy at all
    for (policy, plain, mentioned) in [
        (json!({ "allowOtherBots": false }), bots, bots),
        (json!({ "allowOtherBots": false, "freeResponseScopes": ["room"] }), bots, bots),
        (json!({ "allowOtherBots": true }), heard, heard),
        (json!({ "allowOtherBots": true, "requireAddress": true }), address, heard),
    ] {
        set_policy(&crew.house, &crew.team, policy).await;
        crew.check("u-ann", bot(false), plain).await;
        crew.check("u-ann", bot(true), mentioned).await;
    }
    // A bot that nobody is linked as is a stranger like any other.
    crew.check("robot", bot(true), "nobody-owner/linked").await;
    crew.house.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_relevant_wakes_nobody() {
    let house = Harness::open().await;
    let (ann, team) = (house.seat("ann").await, house.seat("team").await);
    let (anns, teams) = (Source::open("text/plain", b"ok").await, Source::open("text/plain", b"ok").await);
    for (seat, sink) in [(&ann, &anns), (&team, &teams)] {
        sink.answer(100);
        set_wake_url(&house, seat, &sink.url).await;
    }
    open_to_all(&house, &team, "room").await;
    set_policy(&house, &team, json!({ "requireAddress": true })).await;
    let posted = say(&house, &ann, "room", "u-ann", "by the way", PLAIN).await;
    assert_eq!(ruling(&house, &posted).await, "ann+owner/linked team-relevance/requireAddress");
    // Both sleep. Ann's agent has mail and is poked; the other one would be in the same breath.
    anns.asked().await;
    assert!(!teams.was_asked());
    assert_eq!(house.mail(&team).await.len(), 0);
    assert_eq!(house.metric("frontdesk_verdicts_total{verdict=\"withheld\",layer=\"relevance\"}").await, 1);
    assert_eq!(house.metric("frontdesk_verdicts_total{verdict=\"delivered\",layer=\"owner\"}").await, 1);
    let waiting = house.admin("GET", "/instances", &Value::Null).await.expect(200);
    let of_team = waiting["instances"].as_array().unwrap().iter().find(|it| it["instance"] == "team").unwrap();
    assert_eq!((&of_team["waiting"], &of_team["wake_url"]), (&json!(0), &json!(true)));

    say(&house, &ann, "room", "u-ann", "and you, team?", to_the_bot()).await;
    teams.asked().await;
    assert!(!teams.was_asked(), "one poke, for the one message");
    assert_eq!(house.mail(&team).await.len(), 1);
    let mut socket = house.socket(&team).await;
    hears(&mut socket, "and you, team?").await;
    house.finish().await;
}

// ---- explaining -------------------------------------------------------------------------------

#[tokio::test(flavor = "multi_thread")]
async fn everyone_who_was_considered_is_explained_with_the_rule_that_decided() {
    let crew = Crew::gather().await;
    let house = &crew.house;
    open_to_all(house, &crew.team, "room").await;
    set_policy(house, &crew.team, json!({ "requireAddress": true })).await;
    house.bind("home", "u-ann", "bob").await;
    managed(house, &crew.ann, "dm-default", json!({ "platform": PLATFORM, "user_id": "u-ann" })).await;
    let posted = crew.say("u-ann", "aside", PLAIN).await;
    let told = explain(house, &posted).await;
    assert_eq!(
        (&told["event_id"], &told["tenant"], &told["outcome"]),
        (&posted["event_id"], &json!("home"), &json!("delivered"))
    );
    let line = |name: &str, outcome: &str, layer: &str, rule: &str, value: &str, text: &str| json!({ "instance": name, "outcome": outcome, "layer": layer, "rule": rule, "value": value, "text": text });
    let expected = json!([
        line("ann", "delivered", "owner", "linked", "u-ann", "\"u-ann\" is linked to \"ann\""),
        line("bob", "withheld", "owner", "dm-default", "ann", "the author is linked to \"bob\" too, but chose \"ann\""),
        line(
            "team",
            "withheld",
            "relevance",
            "requireAddress",
            "true",
            "the bot was not addressed, and \"team\" requires that here"
        ),
    ]);
    assert_eq!(told["instances"], expected);
    assert_eq!(posted["verdict"], json!({ "outcome": "delivered", "text": expected[0]["text"], "delivery": "pushed" }));

    // Each other reason, in words that name what to look at.
    let reason = async |posted: Value, name: &str| {
        let told = explain(house, &posted).await;
        let lines = told["instances"].as_array().unwrap();
        let line = lines.iter().find(|line| line["instance"] == name).unwrap().clone();
        assert_eq!(line["outcome"], "withheld");
        (line["value"].as_str().unwrap().to_owned(), line["text"].as_str().unwrap().to_owned())
    };
    let (value, text) = reason(crew.say("stranger", "x", PLAIN).await, "").await;
    assert_eq!(value, "stranger");
    assert!(text.contains("/link CODE") && text.contains("frontdesk bind relay stranger --tenant home"), "{text}");
    managed(house, &crew.team, "principal", json!({ "policy": "allow-list" })).await;
    let (value, text) = reason(crew.say("u-ann", "x", to_the_bot()).await, "team").await;
    assert_eq!(value, "allow-list");
    assert!(text.contains("not on its allow-list"), "{text}");
    managed(house, &crew.team, "principal", json!({ "policy": "owner-only" })).await;
    let (value, text) = reason(crew.say("u-ann", "x", to_the_bot()).await, "team").await;
    assert_eq!(value, "owner-only");
    assert!(text.contains("owner-only"), "{text}");
    managed(house, &crew.team, "principal", json!({ "policy": "any" })).await;
    members(house, &crew.ann, "room", &["u-ann"]).await;
    let (value, text) = reason(crew.say("u-ann", "x", to_the_bot()).await, "team").await;
    assert_eq!(value, "u-team");
    assert!(text.contains("cannot see this chat"), "{text}");
    crew.house.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_asks_why_is_told_about_itself_only() {
    let crew = Crew::gather().await;
    let house = &crew.house;
    open_to_all(house, &crew.team, "room").await;
    set_policy(house, &crew.team, json!({ "requireAddress": true })).await;
    house.bind("home", "u-ann", "bob").await;
    managed(house, &crew.ann, "dm-default", json!({ "platform": PLATFORM, "user_id": "u-ann" })).await;
    let other = house.seat("other").await;
    let posted = crew.say("u-ann", "aside", json!({ "message_id": "m-1" })).await;
    let why = async |seat: &Seat, message: &str| {
        let told = house.get(&format!("/manage/why?message_id={message}"), &seat.bearer()).await.expect(200);
        assert_eq!(told["tenant"], "home");
        let lines = told["instances"].as_array().unwrap().clone();
        assert_eq!((lines.len(), &lines[0]["instance"]), (1, &json!(seat.gateway)), "{told}");
        assert_eq!(lines[0]["outcome"], told["outcome"]);
        (told, lines[0].clone())
    };
    let cases = [
        (&crew.ann, "delivered", "owner", "linked", "u-ann"),
        (&crew.bob, "withheld", "owner", "dm-default", ""),
        (&crew.team, "withheld", "relevance", "requireAddress", "true"),
        (&other, "withheld", "scope", "granted", ""),
    ];
    for (seat, outcome, layer, rule, value) in cases {
        let (told, line) = why(seat, "m-1").await;
        assert_eq!(told["event_id"], posted["event_id"]);
        assert_eq!(
            (&line["outcome"], &line["layer"], &line["rule"], &line["value"]),
            (&json!(outcome), &json!(layer), &json!(rule), &json!(value)),
            "{line}"
        );
        for name in ["ann", "bob", "team", "other"].iter().filter(|name| **name != seat.gateway) {
            let quoted = format!("{name:?}");
            assert!(!told.to_string().contains(&quoted), "{} reads of {name}: {told}", seat.gateway);
        }
        if outcome == "withheld" {
            assert!(!told.to_string().contains("u-ann"), "{told}");
        }
        assert!(!line["text"].as_str().unwrap().is_empty());
    }
    // Of a message that nobody could have, nobody learns whose it was.
    crew.say("stranger", "hello?", json!({ "message_id": "m-2" })).await;
    for seat in [&crew.ann, &crew.team] {
        let (told, line) = why(seat, "m-2").await;
        assert_eq!((&line["layer"], &line["rule"], &line["value"]), (&json!("owner"), &json!("linked"), &json!("")));
        assert!(!told.to_string().contains("stranger"), "{told}");
    }
    crew.house.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn why_finds_a_message_of_its_own_tenant_by_its_whole_id_and_chat() {
    let house = Harness::open().await;
    let (ann, rival) = (house.seat("ann").await, house.seat_in("rival", "r").await);
    let long = "m".repeat(200);
    for id in ["m-1", "m-10", "m-100", long.as_str()] {
        let posted = say(&house, &ann, "room", "u-ann", id, json!({ "message_id": id })).await;
        let told = house.get(&format!("/manage/why?message_id={id}"), &ann.bearer()).await.expect(200);
        assert_eq!((&told["event_id"], &told["outcome"]), (&posted["event_id"], &json!("delivered")), "{id}");
    }
    let secret = say(&house, &rival, "room", "u-r", "theirs", json!({ "message_id": "r-1" })).await;
    let there = house.get("/manage/why?message_id=r-1", &ann.bearer()).await.error(404);
    let never = house.get("/manage/why?message_id=r-2", &ann.bearer()).await.error(404);
    assert_eq!(there.replace("r-1", "?"), never.replace("r-2", "?"), "it does not tell that there is one");
    for id in ["m", "m-", "m-1000", "M-1", "", &"m".repeat(199)] {
        let status = house.get(&format!("/manage/why?message_id={id}"), &ann.bearer()).await.status;
        assert_eq!(status, if id.is_empty() { 400 } else { 404 }, "{id}");
    }
    // The same id in both tenants, and in two chats of one.
    let theirs = say(&house, &rival, "room", "u-r", "same id", json!({ "message_id": "m-1" })).await;
    let told = house.get("/manage/why?message_id=m-1", &rival.bearer()).await.expect(200);
    assert_eq!(told["event_id"], theirs["event_id"]);
    assert_ne!(theirs["event_id"], secret["event_id"]);
    let here = say(&house, &ann, "cellar", "stranger", "same id", json!({ "message_id": "m-1" })).await;
    for (chat, outcome) in [("room", "delivered"), ("cellar", "withheld")] {
        let path = format!("/manage/why?message_id=m-1&chat_id={chat}");
        let told = house.get(&path, &ann.bearer()).await.expect(200);
        assert_eq!(told["outcome"], outcome, "{chat}");
        assert_eq!(told["event_id"] == here["event_id"], chat == "cellar");
    }
    house.get("/manage/why?message_id=m-1&chat_id=attic", &ann.bearer()).await.error(404);
    house.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_withheld_stays_withheld_after_the_rules_change() {
    let mut crew = Crew::gather().await;
    crew.check("late", PLAIN, "nobody-owner/linked").await;
    managed(&crew.house, &crew.team, "scope", channel("room")).await;
    crew.check("u-ann", json!({ "message_id": "m-1" }), "ann+owner/linked team-principal/policy").await;
    crew.house.bind("home", "late", "ann").await;
    managed(&crew.house, &crew.team, "principal", json!({ "policy": "any" })).await;
    // The same message again is the same event, with the verdict that it had.
    let text = format!("u-ann {}", json!({ "message_id": "m-1" }));
    let again = crew.say("u-ann", &text, json!({ "message_id": "m-1" })).await;
    assert_eq!(ruling(&crew.house, &again).await, "ann+owner/linked team-principal/policy");
    crew.only("", "").await;
    crew.check("late", PLAIN, "ann+owner/linked team+scope/granted").await;
    manage(&crew.house, &crew.team, "deprovision", json!({})).await.expect(200);
    let posted = crew.say("late", "and now", PLAIN).await;
    assert_eq!(ruling(&crew.house, &posted).await, "ann+owner/linked");
    crew.house.finish().await;
}
