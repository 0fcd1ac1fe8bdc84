//! Several workspaces with one app.

use frontdesk_core::port::platform::{Change, GrantedSecret, Inlet as _};
use frontdesk_testkit::folder::{files, holds};
use frontdesk_wire::Secret;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use super::*;

/// A browser goes from `/install` to Slack, where a person agrees. Returns the way back, and the cookie of the browser.
async fn agree(scene: &Scene, team: &str) -> (String, String) {
    let begun = scene.harness.get("/slack/sl/install", "").await;
    assert_eq!(begun.status, 302, "{}", begun.text());
    let location = url::Url::parse(begun.header("location")).unwrap();
    assert!(location.as_str().starts_with(scene.server.base_url.trim_end_matches("/api")), "{location}");
    let state = location.query_pairs().find(|(name, _)| name == "state").unwrap().1.into_owned();
    let cookie = begun.header("set-cookie").split(';').next().unwrap().to_owned();
    let code = scene.act(json!({"act": "agree", "team": team}))["code"].as_str().unwrap().to_owned();
    (format!("/slack/sl/oauth?code={code}&state={state}"), cookie)
}

/// The same, and the browser comes back; returns the page.
async fn install(scene: &Scene, team: &str) -> Reply {
    let (path, cookie) = agree(scene, team).await;
    let strange = scene.harness.get(&path, "").await;
    assert_eq!(strange.status, 403, "another browser: {}", strange.text());
    scene.harness.send(scene.harness.request("GET", &path).header("cookie", cookie)).await
}

/// Until the server has the tokens of these workspaces, and no others.
async fn until_granted(scene: &Scene, teams: &[&str]) {
    let granted = || {
        let bot = scene.harness.app.desk.directory().bots().added("slack", &"sl".into()).unwrap();
        bot.granted("workspace:").map(|(team, _)| team.to_owned()).collect::<Vec<_>>()
    };
    while granted() != teams {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn workspaces_install_the_app_and_each_is_served_with_its_own_token() {
    let scene = Scene::without_bot("sl").await;
    scene.act(json!({"act": "uninstall", "team": "T1"})); // the app begins without a workspace
    scene.add_bot(json!({ "mode": "events", "client_id": "11.22" }), None).await;
    for team in ["T1", "T2"] {
        let page = install(&scene, team).await;
        assert_eq!(page.status, 200, "{}", page.text());
        assert!(page.text().contains(&format!("Workspace {team} ({team})")), "{}", page.text());
        let route = json!({ "platform": "slack", "key": team, "tenant": FIRST_TENANT });
        scene.harness.admin("POST", "/routes", &route).await.expect(201);
    }
    scene.link("UZOE", "ben").await;
    let (mut of_ann, mut of_ben) = (scene.agent().await, scene.agent_of(&scene.ben).await);
    scene.say("C1", "UANN", "<@UBOT> from one");
    scene.say("C2", "UZOE", "<@UBOT2> from two");
    let (first, second) = (of_ann.event().await, of_ben.event().await);
    assert_eq!((first.text(), &first.json["event"]["source"]["scope_id"]), ("from one", &json!("T1")));
    assert_eq!((second.text(), &second.json["event"]["source"]["scope_id"]), ("from two", &json!("T2")));
    assert_eq!(of_ben.act(send("C2", "to two", None)).await["success"], true);
    assert_eq!(of_ann.act(send("C1", "to one", None)).await["success"], true);
    let teams: Vec<Value> = scene.calls("chat.postMessage").iter().map(|call| call["team"].clone()).collect();
    assert_eq!(teams, ["T2", "T1"], "each with the token of its workspace");
    // What the operator gives cannot take the place of what a workspace granted.
    let ask = json!({ "platform": "slack", "id": "sl", "settings": {}, "secrets": { "workspace:T9": "xoxb-9" } });
    assert_eq!(scene.harness.admin("POST", "/bots", &ask).await.status, 400);
    // The operator adds the bot again, and the workspaces stay.
    scene.add_bot(json!({ "mode": "events", "client_id": "11.22" }), None).await;
    assert_eq!(of_ben.act(send("C2", "still here", None)).await["success"], true);
    // A report about a token that was replaced meanwhile.
    let (desk, old) = (&scene.harness.app.desk, Secret::new("xoxb-old"));
    let bot = desk.directory().bots().added("slack", &"sl".into()).unwrap();
    desk.inbound().inlet("slack", &bot).changed(Change::grant_ended("workspace:T2".into(), &old)).await.unwrap();
    assert_eq!(of_ben.act(send("C2", "and here", None)).await["success"], true);
    scene.act(json!({"act": "uninstall", "team": "T2"}));
    timeout(TIME_LIMIT, until_granted(&scene, &["T1"]))
        .await
        .expect("the token of a workspace that removed the app is kept");
    let refused = of_ben.act(send("C2", "gone", None)).await;
    assert_eq!(refused["success"], false, "{refused}");
    let folder = scene.harness.folder.path().to_owned();
    for secret in [TOKEN, SECOND_TOKEN] {
        for (name, bytes) in files(&folder) {
            assert!(!holds(&bytes, secret), "{name} holds a token");
        }
    }
    scene.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_installation_is_completed_if_the_browser_disconnects() {
    let scene = Scene::without_bot("sl").await;
    scene.add_bot(json!({ "mode": "events", "client_id": "11.22" }), None).await;
    let (path, cookie) = agree(&scene, "T2").await;
    let mut browser = TcpStream::connect(scene.harness.url.trim_start_matches("http://")).await.unwrap();
    let head = format!("GET {path} HTTP/1.1\r\nHost: desk.example\r\nCookie: {cookie}\r\n\r\n");
    browser.write_all(head.as_bytes()).await.unwrap();
    let is_asked = |scene: &Scene| (!scene.calls("oauth.v2.access").is_empty()).then_some(());
    scene.until("the code is used", is_asked).await; // before that nothing has begun
    drop(browser);
    timeout(TIME_LIMIT, until_granted(&scene, &["T2"])).await.expect("the code was used, and its token is lost");
    scene.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_workspace_without_a_route_reaches_nobody() {
    let scene = Scene::without_bot("sl").await;
    scene.add_bot(json!({ "mode": "events", "client_id": "11.22" }), None).await;
    assert_eq!(install(&scene, "T2").await.status, 200);
    scene.link("UZOE", "ben").await;
    let mut of_ben = scene.agent_of(&scene.ben).await;
    let said = scene.say("C2", "UZOE", "<@UBOT2> hello?");
    assert!(said["ts"].is_string());
    scene.until("an answer", |scene| (scene.server.fake.deliveries().len() >= 2).then_some(())).await;
    assert_eq!(of_ben.unread().await, 0, "nobody said whose workspace it is");
    scene.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_workspace_comes_and_goes_while_a_socket_is_open() {
    let scene = Scene::without_bot("").await;
    scene.add_bot(json!({ "mode": "socket", "client_id": "11.22" }), None).await;
    assert_eq!(install(&scene, "T2").await.status, 200);
    scene.link("UZOE", "ben").await;
    let route = json!({ "platform": "slack", "key": "T2", "tenant": FIRST_TENANT });
    scene.harness.admin("POST", "/routes", &route).await.expect(201);
    let mut of_ben = scene.agent_of(&scene.ben).await;
    scene.say("C2", "UZOE", "<@UBOT2> hello");
    assert_eq!(of_ben.event().await.text(), "hello");
    scene.act(json!({"act": "uninstall", "team": "T2"}));
    timeout(TIME_LIMIT, until_granted(&scene, &[])).await.expect("the token is kept");
    let refused = of_ben.act(send("C2", "are you there?", None)).await;
    assert!(refused["error"].as_str().unwrap().contains("no workspace has installed"), "{refused}");
    scene.finish().await;
}

/// It learns of a removal by a report, which may come late or never. The other workspaces need the socket meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn a_workspace_whose_token_has_ended_does_not_cut_off_the_others() {
    let scene = Scene::without_bot("").await;
    scene.add_bot(json!({ "mode": "socket", "client_id": "11.22" }), None).await;
    let ended = GrantedSecret { name: "workspace:T0".into(), value: Secret::new("xoxb-ended") };
    let bots = scene.harness.app.desk.directory().bots();
    bots.keep_granted("slack", &"sl".into(), &[ended]).await.unwrap();
    assert_eq!(install(&scene, "T2").await.status, 200);
    let bot = bots.added("slack", &"sl".into()).unwrap();
    assert_eq!(bot.granted("workspace:").map(|(team, _)| team).collect::<Vec<_>>(), ["T0", "T2"]);
    scene.link("UZOE", "ben").await;
    let route = json!({ "platform": "slack", "key": "T2", "tenant": FIRST_TENANT });
    scene.harness.admin("POST", "/routes", &route).await.expect(201);
    let mut of_ben = scene.agent_of(&scene.ben).await;
    scene.say("C2", "UZOE", "<@UBOT2> hello");
    assert_eq!(of_ben.event().await.text(), "hello");
    scene.finish().await;
}
