//! Which agents get a message in a chat: owner, grant, principal, visibility, relevance.

use serde_json::{Value, json};

use crate::harness::{GatewayAccount, Harness, Socket, Source};
use crate::scene::{
    PLAIN, PLATFORM, channel, explain, has_had, manage, managed, members, open_to_all, receives, ruling, say,
    set_policy, set_wake_url, to_the_bot, write,
};

/// Ann, Bob and the team, each with a connected agent of that name and a linked user (`u-ann` and so on).
struct Crew {
    harness: Harness,
    ann: GatewayAccount,
    bob: GatewayAccount,
    team: GatewayAccount,
    anns: Socket,
    bobs: Socket,
    teams: Socket,
    /// Rows that each agent has received so far.
    had: [usize; 3],
}

impl Crew {
    async fn gather() -> Self {
        let harness = Harness::open().await;
        let (ann, bob, team) =
            (harness.add_gateway("ann").await, harness.add_gateway("bob").await, harness.add_gateway("team").await);
        let (anns, bobs, teams) = (harness.socket(&ann).await, harness.socket(&bob).await, harness.socket(&team).await);
        Self { harness, ann, bob, team, anns, bobs, teams, had: [0; 3] }
    }

    async fn say(&self, user: &str, text: &str, more: Value) -> Value {
        say(&self.harness, &self.ann, "room", user, text, more).await
    }

    /// Exactly these agents (for example `ann team`) get the message, and nothing else arrives.
    async fn only(&mut self, names: &str, text: &str) {
        for (number, (account, socket)) in
            [(&self.ann, &mut self.anns), (&self.bob, &mut self.bobs), (&self.team, &mut self.teams)]
                .into_iter()
                .enumerate()
        {
            if names.split_whitespace().any(|name| name == account.gateway) {
                receives(socket, text).await;
                self.had[number] += 1;
            }
            has_had(&self.harness, account, socket, self.had[number]).await;
        }
    }

    /// Posts a message and checks the explanation and the receivers.
    async fn check(&mut self, user: &str, more: Value, expected: &str) {
        let text = format!("{user} {more}");
        let posted = self.say(user, &text, more).await;
        assert_eq!(ruling(&self.harness, &posted).await, expected, "{text}");
        let received: Vec<&str> =
            expected.split(' ').filter_map(|line| line.split_once('+').map(|(name, _)| name)).collect();
        assert_eq!(posted["verdict"]["outcome"], if received.is_empty() { "withheld" } else { "delivered" });
        self.only(&received.join(" "), &text).await;
    }
}

// ---- owner ------------------------------------------------------------------------------------

#[tokio::test(flavor = "multi_thread")]
async fn two_users_in_a_group_each_reach_only_their_own_agent() {
    let mut crew = Crew::gather().await;
    for _ in 0..2 {
        crew.check("u-ann", PLAIN, "ann+owner/linked").await;
        crew.check("u-bob", PLAIN, "bob+owner/linked").await;
        crew.check("u-bob", to_the_bot(), "bob+owner/linked").await;
        crew.check("stranger", to_the_bot(), "nobody-owner/linked").await;
    }
    crew.harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_users_own_agent_gets_all_their_messages_despite_its_policy() {
    let mut crew = Crew::gather().await;
    set_policy(&crew.harness, &crew.ann, json!({ "requireAddress": true, "allowOtherBots": false })).await;
    managed(&crew.harness, &crew.ann, "principal", json!({ "policy": "allow-list", "allow": ["u-bob"] })).await;
    crew.check("u-ann", PLAIN, "ann+owner/linked").await;
    crew.check("u-ann", json!({ "is_bot": true }), "ann+owner/linked").await;
    // The same if it holds the channel, and if another agent does.
    managed(&crew.harness, &crew.ann, "scope", channel("room")).await;
    crew.check("u-ann", PLAIN, "ann+owner/linked").await;
    managed(&crew.harness, &crew.ann, "scope/release", channel("room")).await;
    managed(&crew.harness, &crew.team, "scope", channel("room")).await;
    crew.check("u-ann", PLAIN, "ann+owner/linked team-principal/policy").await;
    crew.harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_several_links_the_holder_wins_then_the_default_then_the_latest() {
    let mut crew = Crew::gather().await;
    crew.harness.bind("home", "u-ann", "bob").await;
    crew.harness.bind("home", "u-ann", "team").await;
    let dm = || json!({ "chat_type": "dm" });
    crew.check("u-ann", dm(), "team+owner/linked ann-owner/latest bob-owner/latest").await;
    crew.check("u-ann", PLAIN, "team+owner/linked ann-owner/latest bob-owner/latest").await;
    let person = json!({ "platform": PLATFORM, "user_id": "u-ann" });
    managed(&crew.harness, &crew.ann, "dm-default", person.clone()).await;
    crew.check("u-ann", dm(), "ann+owner/linked bob-owner/dm-default team-owner/dm-default").await;
    crew.check("u-ann", PLAIN, "ann+owner/linked bob-owner/dm-default team-owner/dm-default").await;
    managed(&crew.harness, &crew.bob, "scope", channel("room")).await;
    crew.check("u-ann", dm(), "ann+owner/linked bob-owner/dm-default team-owner/dm-default").await;
    crew.check("u-ann", PLAIN, "bob+owner/linked ann-owner/granted team-owner/granted").await;
    managed(&crew.harness, &crew.bob, "scope/release", channel("room")).await;
    managed(&crew.harness, &crew.bob, "dm-default", person).await;
    crew.check("u-ann", dm(), "bob+owner/linked ann-owner/dm-default team-owner/dm-default").await;
    // After a new link the first agent is the latest; the default still applies.
    crew.harness.bind("home", "u-ann", "ann").await;
    crew.check("u-ann", dm(), "bob+owner/linked team-owner/dm-default ann-owner/dm-default").await;
    write(&crew.harness, &crew.ann, "d", "u-ann", "/unlink bob").await;
    crew.check("u-ann", dm(), "ann+owner/linked team-owner/latest").await;
    crew.harness.finish().await;
}

// ---- grant and principal ----------------------------------------------------------------------

#[tokio::test(flavor = "multi_thread")]
async fn a_holder_gets_messages_of_others_only_if_its_principal_admits_them() {
    let mut crew = Crew::gather().await;
    managed(&crew.harness, &crew.team, "principal", json!({ "policy": "any" })).await;
    crew.check("u-ann", PLAIN, "ann+owner/linked").await; // open to all, but it holds no channel
    managed(&crew.harness, &crew.team, "scope", channel("room")).await;
    crew.check("u-ann", PLAIN, "ann+owner/linked team+scope/granted").await;
    crew.check("u-bob", PLAIN, "bob+owner/linked team+scope/granted").await;
    crew.check("u-team", PLAIN, "team+owner/linked").await; // once, although two reasons apply
    crew.check("stranger", PLAIN, "nobody-owner/linked").await; // not linked
    managed(&crew.harness, &crew.team, "principal", json!({ "policy": "owner-only", "allow": ["u-ann"] })).await;
    crew.check("u-ann", to_the_bot(), "ann+owner/linked team-principal/policy").await;
    crew.check("u-team", PLAIN, "team+owner/linked").await;
    managed(&crew.harness, &crew.team, "principal", json!({ "policy": "allow-list", "allow": ["u-ann"] })).await;
    crew.check("u-ann", PLAIN, "ann+owner/linked team+scope/granted").await;
    crew.check("u-bob", PLAIN, "bob+owner/linked team-principal/policy").await;
    crew.check("u-team", PLAIN, "team+owner/linked").await;
    managed(&crew.harness, &crew.team, "principal", json!({ "policy": "allow-list" })).await;
    crew.check("u-ann", PLAIN, "ann+owner/linked team-principal/policy").await;
    managed(&crew.harness, &crew.team, "principal", json!({ "policy": "any" })).await;
    managed(&crew.harness, &crew.team, "scope/release", channel("room")).await;
    crew.check("u-ann", PLAIN, "ann+owner/linked").await;
    crew.harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_without_settings_gets_only_messages_of_its_own_users() {
    let mut crew = Crew::gather().await;
    managed(&crew.harness, &crew.team, "scope", channel("room")).await;
    crew.check("u-ann", to_the_bot(), "ann+owner/linked team-principal/policy").await;
    crew.check("u-team", PLAIN, "team+owner/linked").await;
    crew.harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grant_covers_one_channel_in_one_scope_and_no_direct_messages() {
    let mut crew = Crew::gather().await;
    open_to_all(&crew.harness, &crew.team, "room").await;
    let wing = json!({ "platform": PLATFORM, "scope_id": "wing", "channel_id": "hall" });
    managed(&crew.harness, &crew.team, "scope", wing).await;
    let cases = [
        ("room", PLAIN, true),
        ("room", json!({ "thread_id": "t1" }), true), // a thread belongs to its chat
        ("room", json!({ "scope_id": "wing" }), false),
        ("room", json!({ "chat_type": "dm" }), false),
        ("hall", json!({ "scope_id": "wing" }), true),
        ("hall", PLAIN, false),
        ("hall", json!({ "scope_id": "attic" }), false),
        ("cellar", PLAIN, false),
    ];
    for (chat, more, granted) in cases {
        let text = format!("{chat} {more}");
        let posted = say(&crew.harness, &crew.ann, chat, "u-ann", &text, more).await;
        let expected = if granted { "ann+owner/linked team+scope/granted" } else { "ann+owner/linked" };
        assert_eq!(ruling(&crew.harness, &posted).await, expected, "{text}");
        crew.only(if granted { "ann team" } else { "ann" }, &text).await;
    }
    // The same channel id in another tenant is another channel.
    let rival = crew.harness.add_gateway_in("rival", "r").await;
    let posted = say(&crew.harness, &rival, "room", "u-r", "elsewhere", PLAIN).await;
    assert_eq!(ruling(&crew.harness, &posted).await, "r+owner/linked");
    crew.only("", "").await;
    crew.harness.finish().await;
}

// ---- visibility -------------------------------------------------------------------------------

#[tokio::test(flavor = "multi_thread")]
async fn changes_of_chat_members_take_effect_at_once() {
    let mut crew = Crew::gather().await;
    open_to_all(&crew.harness, &crew.team, "room").await;
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
        members(&crew.harness, &crew.ann, "room", who).await;
        for more in [PLAIN, to_the_bot()] {
            crew.check(author, more, expected).await;
        }
    }
    // A new name does not change the members, and other chats have their own members.
    crew.harness.call("PUT", "/chat/v1/chats/room", &crew.ann.chat, &json!({ "name": "Room" })).await.expect(200);
    crew.check("u-bob", PLAIN, "bob-visibility/can_see team+scope/granted").await;
    say(&crew.harness, &crew.ann, "other", "u-bob", "elsewhere", PLAIN).await;
    crew.only("bob", "elsewhere").await;
    crew.harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_direct_chat_with_members_is_closed_to_others() {
    let mut crew = Crew::gather().await;
    members(&crew.harness, &crew.ann, "room", &["u-ann"]).await;
    let dm = || json!({ "chat_type": "dm" });
    crew.check("u-ann", dm(), "ann+owner/linked").await;
    crew.check("u-bob", dm(), "bob-visibility/can_see").await;
    crew.harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn visibility_of_a_holder_is_that_of_its_first_linked_user() {
    let mut crew = Crew::gather().await;
    open_to_all(&crew.harness, &crew.team, "room").await;
    crew.harness.bind("home", "u-later", "team").await;
    members(&crew.harness, &crew.ann, "room", &["u-ann", "u-later"]).await;
    crew.check("u-ann", PLAIN, "ann+owner/linked team-visibility/can_see").await;
    crew.check("u-later", PLAIN, "team+owner/linked").await;
    // A repeated link does not become an earlier one.
    crew.harness.bind("home", "u-team", "team").await;
    crew.check("u-ann", PLAIN, "ann+owner/linked team-visibility/can_see").await;
    let gone = json!({ "platform": PLATFORM, "user_id": "u-team", "tenant": "home", "instance": "team" });
    assert_eq!(crew.harness.admin("DELETE", "/bindings", &gone).await.status, 204);
    crew.check("u-ann", PLAIN, "ann+owner/linked team+scope/granted").await;
    let gone = json!({ "platform": PLATFORM, "user_id": "u-later", "tenant": "home", "instance": "team" });
    assert_eq!(crew.harness.admin("DELETE", "/bindings", &gone).await.status, 204);
    crew.check("u-ann", PLAIN, "ann+owner/linked team-visibility/owner").await; // no linked user at all
    crew.harness.finish().await;
}

// ---- relevance --------------------------------------------------------------------------------

#[tokio::test(flavor = "multi_thread")]
async fn only_mentions_replies_to_the_bot_and_commands_count_as_addressed() {
    let mut crew = Crew::gather().await;
    open_to_all(&crew.harness, &crew.team, "room").await;
    set_policy(&crew.harness, &crew.team, json!({ "requireAddress": true })).await;
    let (received, not) = ("ann+owner/linked team+scope/granted", "ann+owner/linked team-relevance/requireAddress");
    crew.check("u-ann", PLAIN, not).await;
    crew.check("u-ann", to_the_bot(), received).await;
    crew.check("u-ann", json!({ "mentions_bot": false }), not).await;
    let sent = crew.teams.act(json!({ "op": "send", "chat_id": "room", "content": "which one?" })).await;
    crew.check("u-ann", json!({ "reply_to": sent["message_id"] }), received).await;
    let posted = crew.say("u-bob", "that one", PLAIN).await;
    crew.only("bob", "that one").await;
    crew.check("u-ann", json!({ "reply_to": posted["message_id"] }), not).await;
    crew.check("u-ann", json!({ "reply_to": "never" }), not).await;
    for (text, addressed) in [("/weather oslo", true), ("/stop", true), ("/ not one", false), ("say /weather", false)] {
        let posted = crew.say("u-ann", text, PLAIN).await;
        assert_eq!(ruling(&crew.harness, &posted).await, if addressed { received } else { not }, "{text}");
        if text != "/stop" {
            crew.only(if addressed { "ann team" } else { "ann" }, text).await;
        }
    }
    crew.harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn in_a_free_response_scope_no_address_is_needed() {
    let mut crew = Crew::gather().await;
    open_to_all(&crew.harness, &crew.team, "room").await;
    let (received, not) = ("ann+owner/linked team+scope/granted", "ann+owner/linked team-relevance/requireAddress");
    for (policy, expected) in [
        (json!({}), received),
        (json!({ "requireAddress": false }), received),
        (json!({ "requireAddress": true }), not),
        (json!({ "requireAddress": true, "freeResponseScopes": ["cellar", "roo", "room2", "ROOM", ""] }), not),
        (json!({ "requireAddress": true, "freeResponseScopes": ["cellar", "room"] }), received),
        (json!({ "requireAddress": true, "freeResponseScopes": ["*"] }), received),
        (json!({ "requireAddress": true, "freeResponseScopes": [] }), not),
        (json!({}), received),
    ] {
        set_policy(&crew.harness, &crew.team, policy).await;
        crew.check("u-ann", PLAIN, expected).await;
        crew.check("u-ann", to_the_bot(), received).await;
    }
    crew.harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_of_other_bots_are_delivered_only_if_the_policy_allows_them() {
    let mut crew = Crew::gather().await;
    open_to_all(&crew.harness, &crew.team, "room").await;
    let bot = |mentions: bool| json!({ "is_bot": true, "mentions_bot": mentions });
    let received = "ann+owner/linked team+scope/granted";
    let (bots, address) =
        ("ann+owner/linked team-relevance/allowOtherBots", "ann+owner/linked team-relevance/requireAddress");
    crew.check("u-ann", bot(true), bots).await; // no policy
    for (policy, plain, mentioned) in [
        (json!({ "allowOtherBots": false }), bots, bots),
        (json!({ "allowOtherBots": false, "freeResponseScopes": ["room"] }), bots, bots),
        (json!({ "allowOtherBots": true }), received, received),
        (json!({ "allowOtherBots": true, "requireAddress": true }), address, received),
    ] {
        set_policy(&crew.harness, &crew.team, policy).await;
        crew.check("u-ann", bot(false), plain).await;
        crew.check("u-ann", bot(true), mentioned).await;
    }
    // An unlinked bot is treated like any unlinked user.
    crew.check("robot", bot(true), "nobody-owner/linked").await;
    crew.harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_irrelevant_message_wakes_no_agent() {
    let harness = Harness::open().await;
    let (ann, team) = (harness.add_gateway("ann").await, harness.add_gateway("team").await);
    let (anns, teams) = (Source::open("text/plain", b"ok").await, Source::open("text/plain", b"ok").await);
    for (account, sink) in [(&ann, &anns), (&team, &teams)] {
        sink.answer(100);
        set_wake_url(&harness, account, &sink.url).await;
    }
    open_to_all(&harness, &team, "room").await;
    set_policy(&harness, &team, json!({ "requireAddress": true })).await;
    let posted = say(&harness, &ann, "room", "u-ann", "by the way", PLAIN).await;
    assert_eq!(ruling(&harness, &posted).await, "ann+owner/linked team-relevance/requireAddress");
    // Both agents are asleep. Ann's has a message and is woken; the other one would be woken at the same time.
    anns.asked().await;
    assert!(!teams.was_asked());
    assert_eq!(harness.mail(&team).await.len(), 0);
    assert_eq!(harness.metric("frontdesk_verdicts_total{verdict=\"withheld\",layer=\"relevance\"}").await, 1);
    assert_eq!(harness.metric("frontdesk_verdicts_total{verdict=\"delivered\",layer=\"owner\"}").await, 1);
    let waiting = harness.admin("GET", "/instances", &Value::Null).await.expect(200);
    let of_team = waiting["instances"].as_array().unwrap().iter().find(|it| it["instance"] == "team").unwrap();
    assert_eq!((&of_team["waiting"], &of_team["wake_url"]), (&json!(0), &json!(true)));

    say(&harness, &ann, "room", "u-ann", "and you, team?", to_the_bot()).await;
    teams.asked().await;
    assert!(!teams.was_asked(), "one wake call for one message");
    assert_eq!(harness.mail(&team).await.len(), 1);
    let mut socket = harness.socket(&team).await;
    receives(&mut socket, "and you, team?").await;
    harness.finish().await;
}

// ---- explaining -------------------------------------------------------------------------------

#[tokio::test(flavor = "multi_thread")]
async fn explain_lists_every_considered_agent_with_the_deciding_rule() {
    let crew = Crew::gather().await;
    let harness = &crew.harness;
    open_to_all(harness, &crew.team, "room").await;
    set_policy(harness, &crew.team, json!({ "requireAddress": true })).await;
    harness.bind("home", "u-ann", "bob").await;
    managed(harness, &crew.ann, "dm-default", json!({ "platform": PLATFORM, "user_id": "u-ann" })).await;
    let posted = crew.say("u-ann", "aside", PLAIN).await;
    let response = explain(harness, &posted).await;
    assert_eq!(
        (&response["event_id"], &response["tenant"], &response["outcome"]),
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
    assert_eq!(response["instances"], expected);
    assert_eq!(posted["verdict"], json!({ "outcome": "delivered", "text": expected[0]["text"], "delivery": "pushed" }));

    // The texts of the other reasons name what to check.
    let reason = async |posted: Value, name: &str| {
        let response = explain(harness, &posted).await;
        let lines = response["instances"].as_array().unwrap();
        let line = lines.iter().find(|line| line["instance"] == name).unwrap().clone();
        assert_eq!(line["outcome"], "withheld");
        (line["value"].as_str().unwrap().to_owned(), line["text"].as_str().unwrap().to_owned())
    };
    let (value, text) = reason(crew.say("stranger", "x", PLAIN).await, "").await;
    assert_eq!(value, "stranger");
    assert!(text.contains("/link CODE") && text.contains("frontdesk bind relay stranger --tenant home"), "{text}");
    managed(harness, &crew.team, "principal", json!({ "policy": "allow-list" })).await;
    let (value, text) = reason(crew.say("u-ann", "x", to_the_bot()).await, "team").await;
    assert_eq!(value, "allow-list");
    assert!(text.contains("not on its allow-list"), "{text}");
    managed(harness, &crew.team, "principal", json!({ "policy": "owner-only" })).await;
    let (value, text) = reason(crew.say("u-ann", "x", to_the_bot()).await, "team").await;
    assert_eq!(value, "owner-only");
    assert!(text.contains("owner-only"), "{text}");
    managed(harness, &crew.team, "principal", json!({ "policy": "any" })).await;
    members(harness, &crew.ann, "room", &["u-ann"]).await;
    let (value, text) = reason(crew.say("u-ann", "x", to_the_bot()).await, "team").await;
    assert_eq!(value, "u-team");
    assert!(text.contains("cannot see this chat"), "{text}");
    crew.harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn why_tells_an_agent_only_about_itself() {
    let crew = Crew::gather().await;
    let harness = &crew.harness;
    open_to_all(harness, &crew.team, "room").await;
    set_policy(harness, &crew.team, json!({ "requireAddress": true })).await;
    harness.bind("home", "u-ann", "bob").await;
    managed(harness, &crew.ann, "dm-default", json!({ "platform": PLATFORM, "user_id": "u-ann" })).await;
    let other = harness.add_gateway("other").await;
    let posted = crew.say("u-ann", "aside", json!({ "message_id": "m-1" })).await;
    let why = async |account: &GatewayAccount, message: &str| {
        let response = harness.get(&format!("/manage/why?message_id={message}"), &account.bearer()).await.expect(200);
        assert_eq!(response["tenant"], "home");
        let lines = response["instances"].as_array().unwrap().clone();
        assert_eq!((lines.len(), &lines[0]["instance"]), (1, &json!(account.gateway)), "{response}");
        assert_eq!(lines[0]["outcome"], response["outcome"]);
        (response, lines[0].clone())
    };
    let cases = [
        (&crew.ann, "delivered", "owner", "linked", "u-ann"),
        (&crew.bob, "withheld", "owner", "dm-default", ""),
        (&crew.team, "withheld", "relevance", "requireAddress", "true"),
        (&other, "withheld", "scope", "granted", ""),
    ];
    for (account, outcome, layer, rule, value) in cases {
        let (response, line) = why(account, "m-1").await;
        assert_eq!(response["event_id"], posted["event_id"]);
        assert_eq!(
            (&line["outcome"], &line["layer"], &line["rule"], &line["value"]),
            (&json!(outcome), &json!(layer), &json!(rule), &json!(value)),
            "{line}"
        );
        for name in ["ann", "bob", "team", "other"].iter().filter(|name| **name != account.gateway) {
            let quoted = format!("{name:?}");
            assert!(!response.to_string().contains(&quoted), "{} reads of {name}: {response}", account.gateway);
        }
        if outcome == "withheld" {
            assert!(!response.to_string().contains("u-ann"), "{response}");
        }
        assert!(!line["text"].as_str().unwrap().is_empty());
    }
    // For a message that no agent could get, the author is not revealed.
    crew.say("stranger", "hello?", json!({ "message_id": "m-2" })).await;
    for account in [&crew.ann, &crew.team] {
        let (response, line) = why(account, "m-2").await;
        assert_eq!((&line["layer"], &line["rule"], &line["value"]), (&json!("owner"), &json!("linked"), &json!("")));
        assert!(!response.to_string().contains("stranger"), "{response}");
    }
    crew.harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn why_finds_messages_of_the_own_tenant_by_full_id_and_chat() {
    let harness = Harness::open().await;
    let (ann, rival) = (harness.add_gateway("ann").await, harness.add_gateway_in("rival", "r").await);
    let long = "m".repeat(200);
    for id in ["m-1", "m-10", "m-100", long.as_str()] {
        let posted = say(&harness, &ann, "room", "u-ann", id, json!({ "message_id": id })).await;
        let response = harness.get(&format!("/manage/why?message_id={id}"), &ann.bearer()).await.expect(200);
        assert_eq!((&response["event_id"], &response["outcome"]), (&posted["event_id"], &json!("delivered")), "{id}");
    }
    let secret = say(&harness, &rival, "room", "u-r", "theirs", json!({ "message_id": "r-1" })).await;
    let there = harness.get("/manage/why?message_id=r-1", &ann.bearer()).await.error(404);
    let never = harness.get("/manage/why?message_id=r-2", &ann.bearer()).await.error(404);
    assert_eq!(there.replace("r-1", "?"), never.replace("r-2", "?"), "must not reveal that the message exists");
    for id in ["m", "m-", "m-1000", "M-1", "", &"m".repeat(199)] {
        let status = harness.get(&format!("/manage/why?message_id={id}"), &ann.bearer()).await.status;
        assert_eq!(status, if id.is_empty() { 400 } else { 404 }, "{id}");
    }
    // The same id in both tenants, and in two chats of one tenant.
    let theirs = say(&harness, &rival, "room", "u-r", "same id", json!({ "message_id": "m-1" })).await;
    let response = harness.get("/manage/why?message_id=m-1", &rival.bearer()).await.expect(200);
    assert_eq!(response["event_id"], theirs["event_id"]);
    assert_ne!(theirs["event_id"], secret["event_id"]);
    let here = say(&harness, &ann, "cellar", "stranger", "same id", json!({ "message_id": "m-1" })).await;
    for (chat, outcome) in [("room", "delivered"), ("cellar", "withheld")] {
        let path = format!("/manage/why?message_id=m-1&chat_id={chat}");
        let response = harness.get(&path, &ann.bearer()).await.expect(200);
        assert_eq!(response["outcome"], outcome, "{chat}");
        assert_eq!(response["event_id"] == here["event_id"], chat == "cellar");
    }
    harness.get("/manage/why?message_id=m-1&chat_id=attic", &ann.bearer()).await.error(404);
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_withheld_message_stays_withheld_after_the_rules_change() {
    let mut crew = Crew::gather().await;
    crew.check("late", PLAIN, "nobody-owner/linked").await;
    managed(&crew.harness, &crew.team, "scope", channel("room")).await;
    crew.check("u-ann", json!({ "message_id": "m-1" }), "ann+owner/linked team-principal/policy").await;
    crew.harness.bind("home", "late", "ann").await;
    managed(&crew.harness, &crew.team, "principal", json!({ "policy": "any" })).await;
    // A repeated message is the same event, with its first verdict.
    let text = format!("u-ann {}", json!({ "message_id": "m-1" }));
    let again = crew.say("u-ann", &text, json!({ "message_id": "m-1" })).await;
    assert_eq!(ruling(&crew.harness, &again).await, "ann+owner/linked team-principal/policy");
    crew.only("", "").await;
    crew.check("late", PLAIN, "ann+owner/linked team+scope/granted").await;
    manage(&crew.harness, &crew.team, "deprovision", json!({})).await.expect(200);
    let posted = crew.say("late", "and now", PLAIN).await;
    assert_eq!(ruling(&crew.harness, &posted).await, "ann+owner/linked");
    crew.harness.finish().await;
}
