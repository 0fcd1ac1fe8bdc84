//! Memory and the database after the cuts.

use frontdesk_core::directory::Fact;
use frontdesk_wire::{ChatId, GatewayId, MessageId, TenantId, UserId};

use super::*;

/// Everything in the directory, as it is stored.
pub(crate) async fn stored(desk: &Desk) -> Vec<Record> {
    let mut records = desk.stores().directory.changed_since(0).await.unwrap().records;
    records.sort_by(|a, b| (&a.kind, &a.key).cmp(&(&b.kind, &b.key)));
    records
}

#[track_caller]
pub(crate) fn assert_same(memory: &[Record], stored: &[Record]) {
    let missing: Vec<_> = stored.iter().filter(|it| !memory.contains(it)).map(|it| (&it.kind, &it.key)).collect();
    let extra: Vec<_> = memory.iter().filter(|it| !stored.contains(it)).map(|it| (&it.kind, &it.key)).collect();
    assert!(missing.is_empty() && extra.is_empty(), "memory lacks {missing:?}, and has {extra:?} that is not stored");
}

/// The id of the message of an attempt.
type IdOf = fn(usize) -> String;

/// What a platform's door took is an event with a row for its agent.
async fn compare_platforms(scene: &Scene) {
    let desk = scene.desk();
    let (events, phone) = (&desk.stores().events, format!("+{PHONE_USER}"));
    let instance = desk.directory().find_instance(&"home-gw".into(), None).unwrap().no;
    let rows = desk.stores().mail.mail(instance, None, Seq(0), 99_999).await.unwrap();
    let telegram_user = TG_USER.to_string();
    let wecom_chat = format!("{WC_CORP}:wanda");
    let ids: [(&str, &str, IdOf); 8] = [
        ("hooks", HOOK, |n| format!("hook-{n}")),
        ("telegram", &telegram_user, |n| (n + 1).to_string()),
        ("matrix", MX_ROOM, |n| format!("$mx-{n}")),
        ("discord", DC_CHAT, |n| (n + 1).to_string()),
        ("feishu", "oc_ann", |n| format!("om_{n}")),
        ("sms", &phone, |n| format!("SM-{n}")),
        ("wecom_callback", &wecom_chat, |n| format!("wc-{n}")),
        ("whatsapp_cloud", PHONE_USER, |n| format!("wamid-{n}")),
    ];
    let slack_ids = scene.slack_ids.lock().unwrap().clone();
    let ids = ids.map(|(platform, chat_id, id_of)| {
        (platform, chat_id, (0..scene.most_cuts()).map(id_of).collect::<Vec<String>>())
    });
    let compared: Vec<_> = ids.into_iter().chain([("slack", SLACK_CHAT, slack_ids)]).collect();
    for platform in desk.platforms().all().filter(|it| !it.doors().is_empty()) {
        let name = &platform.descriptor().platform;
        assert!(compared.iter().any(|(compared, ..)| compared == name), "the events of {name} must be compared here");
    }
    for (platform, chat_id, ids) in compared {
        let mut stored = 0;
        for id in ids {
            let event = events
                .event_named(
                    &TenantId::from(FIRST_TENANT),
                    prefix(&id),
                    &MessageId::from(&id),
                    Some(&ChatId::from(chat_id)),
                )
                .await
                .unwrap();
            let answers = [b"answer in ".as_slice(), &frontdesk_core::short_hash(&[chat_id])].concat();
            let answer = events
                .event_named(
                    &TenantId::from(FIRST_TENANT),
                    answers,
                    &MessageId::from(&id),
                    Some(&ChatId::from(chat_id)),
                )
                .await
                .unwrap();
            stored += usize::from(event.is_some() || answer.is_some());
        }
        let rows = rows.iter().filter(|row| row.delivery.platform == platform).count();
        assert_eq!((rows, rows > 0), (stored, true), "a row for each event of {platform} that is stored");
    }
}

/// Alarms that are armed are in the schedule. Those that the operator revived were due at once and have been fired.
async fn compare_alarms(scene: &Scene) {
    let desk = scene.desk();
    let instance = desk.directory().find_instance(&"sleeper".into(), None).unwrap().no;
    let alarms = &desk.stores().alarms;
    let mut fired = 0;
    let firing = async {
        for job in (0..scene.cuts_of("POST /admin/v1/alarms/{id}/replay")).map(|n| format!("replay-{n}").into()) {
            loop {
                match alarms.alarm(instance, &job).await.unwrap().unwrap().state {
                    AlarmState::Armed => tokio::time::sleep(Duration::from_millis(10)).await,
                    AlarmState::Fired => {
                        fired += 1;
                        break;
                    }
                    AlarmState::Dead => break,
                }
            }
        }
    };
    timeout(TIME_LIMIT, firing).await.expect("an alarm that was revived was not fired");
    // Those that an external scheduler called: fired with their row, or armed as before.
    let mut called = 0;
    for job in (0..scene.cuts_of("POST /api/agent-cron/relay")).map(|n| format!("called-{n}").into()) {
        called += usize::from(alarms.alarm(instance, &job).await.unwrap().unwrap().state == AlarmState::Fired);
    }
    let rows = desk.stores().mail.mail(instance, None, Seq(0), 99_999).await.unwrap();
    assert_eq!(rows.len(), fired + called, "a row for each alarm that was fired");
    assert!(fired > 0 && called > 0, "{fired} were revived and fired, {called} called");

    let armed = desk.cron().armed(instance, 9_999).await.unwrap();
    assert!(armed.iter().any(|it| it.job_id.starts_with("arm-")), "no alarm was armed");
    let missing = desk.cron().clock().schedule().missing(armed.iter().map(|it| it.id));
    assert!(missing.is_empty(), "{missing:?} of {} armed alarms are not in the schedule", armed.len());
}

/// The texts in an agent's inbox.
async fn inbox_texts(desk: &Desk, agent: &str) -> Vec<String> {
    let no = desk.inboxes().inbox_of(&TenantId::from(FIRST_TENANT), agent).unwrap().1.unwrap();
    let (mut texts, mut after) = (Vec::new(), InboxSeq(0));
    loop {
        let page = desk.stores().inbox.messages(no, after, 500).await.unwrap();
        let Some(last) = page.last() else { return texts };
        after = last.place;
        texts.extend(page.into_iter().map(|it| it.message.text));
    }
}

/// Messages of tools and replies are in the inbox once or not at all. A question is closed exactly if its reply is there.
async fn compare_replies(scene: &Scene) {
    let desk = scene.desk();
    let texts = inbox_texts(desk, "bob").await;
    let unique: HashSet<&str> = texts.iter().map(String::as_str).collect();
    assert_eq!(unique.len(), texts.len(), "a message is in the inbox twice: {texts:?}");
    for kind in ["mcp-", "reply-"] {
        assert!(texts.iter().any(|text| text.starts_with(kind)), "no {kind} message in {texts:?}");
    }
    for n in 0..scene.cuts_of("POST /v1/agents/{id}/replies") {
        let is_answered = unique.contains(format!("reply-{n}").as_str());
        let question = format!("asked-{n}");
        let again = Box::pin(desk.exchanges().reply(as_operator(), "alice", &question, "again".into())).await;
        assert_eq!(again.is_ok(), !is_answered, "a second reply to {question}: {again:?}");
    }
}

/// Chat lines have their event; presses have line, event and the mark on their prompt.
async fn compare_chat(scene: &Scene) {
    let (desk, t) = (scene.desk(), FIRST_TENANT);
    let is_stored = async |id: &str| {
        let line = desk
            .stores()
            .chat
            .chat_line(&TenantId::from(t), &ChatId::from(CHAT), &MessageId::from(id))
            .await
            .unwrap()
            .is_some();
        let event = desk
            .stores()
            .events
            .event_named(&TenantId::from(t), prefix(id), &MessageId::from(id), Some(&ChatId::from(CHAT)))
            .await
            .unwrap()
            .is_some();
        assert_eq!(line, event, "{id}: a line and its event");
        line
    };
    let (mut posted, mut pressed) = (0, 0);
    for n in 0..scene.cuts_of("POST /chat/v1/chats/{chat_id}/messages") {
        posted += usize::from(is_stored(&format!("cut-{n}")).await);
    }
    let user = hex::encode(frontdesk_core::short_hash(&[scene.account.user.as_str()]));
    for n in 0..scene.cuts_of("POST /chat/v1/chats/{chat_id}/messages/{message_id}/press") {
        let prompt = desk
            .stores()
            .chat
            .chat_line(&TenantId::from(t), &ChatId::from(CHAT), &format!("ask-{n}").into())
            .await
            .unwrap()
            .unwrap();
        let prompt: Value = serde_json::from_str(&prompt.json).unwrap();
        let press = format!("press-ask-{n}-{user}");
        let is_pressed = is_stored(&press).await;
        assert_eq!(prompt["prompt"]["chosen"] == "yes", is_pressed, "{press}: the mark on its prompt");
        pressed += usize::from(is_pressed);
    }
    assert!(posted > 0 && pressed > 0, "{posted} posted, {pressed} pressed");
}

pub(crate) async fn compare(scene: &Scene) {
    let (desk, t) = (scene.desk(), FIRST_TENANT);
    let memory = desk.directory().read(View::records);
    assert_same(&memory, &stored(desk).await);

    // Instance numbers are unique.
    let numbers: Vec<InstanceNo> = desk.directory().read(|view| view.instances().map(|it| it.no).collect());
    assert_eq!(numbers.iter().collect::<HashSet<_>>().len(), numbers.len());

    // Gateways have their instance, enrollments their gateway, links their instance.
    let whole = desk.directory().read(|view| {
        let has_instances = view.gateways().all(|it| view.instance(&it.tenant, &it.instance).is_some());
        let used_by = |fact| match fact {
            Fact::Enrollment(it) => it.used_by,
            _ => None,
        };
        let used: HashSet<GatewayId> = view.facts().into_iter().filter_map(used_by).collect();
        let enrolled = view.gateways().filter(|it| it.id.starts_with("enroll-")).all(|it| used.contains(&it.id))
            && used.iter().all(|id| view.gateway(id).is_some());
        let bound = (0..scene.most_cuts()).map(|n| format!("bound-{n}"));
        let linked = bound.clone().all(|name| {
            view.links(&TenantId::from(t), "relay", &UserId::from(&name)).len()
                == usize::from(view.instance(&TenantId::from(t), &name.as_str().into()).is_some())
        });
        [has_instances, enrolled, linked]
    });
    assert_eq!(whole, [true; 3], "with instances, enrolled, linked");

    compare_chat(scene).await;
    compare_platforms(scene).await;
    compare_alarms(scene).await;
    compare_replies(scene).await;

    // Messages between agents: none is still in flight, and none belongs to a deleted agent.
    for no in desk.stores().inbox.inboxes().await.unwrap() {
        assert!(desk.directory().read(|view| view.agent_no(no).is_some()), "an inbox without its agent");
        let mut after = InboxSeq(0);
        loop {
            let page = desk.stores().inbox.messages(no, after, 500).await.unwrap();
            let Some(last) = page.last() else { break };
            after = last.place;
            assert!(page.iter().all(|stored| !is_in_flight(stored)), "a message is still in flight");
        }
    }

    // Files and their rows. A shared store has the files itself.
    if is_shared() {
        return;
    }
    let database = rusqlite::Connection::open(scene.harness.folder.path().join("data/frontdesk.db")).unwrap();
    let mut ids = database.prepare("SELECT id FROM media").unwrap();
    let rows: HashSet<String> = ids.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    let files = std::fs::read_dir(scene.harness.folder.path().join("data/media")).unwrap();
    let files: HashSet<String> = files.map(|it| it.unwrap().file_name().into_string().unwrap()).collect();
    assert_eq!(rows, files);
    assert!(!rows.is_empty());

    // Planned wakes and their alarms.
    let count = |sql: &str| database.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap();
    assert!(count("SELECT count(*) FROM planned_wake") > 0);
    let without_alarm = "SELECT count(*) FROM planned_wake WHERE key NOT IN (SELECT job_id FROM alarm)";
    assert_eq!(count(without_alarm), 0, "planned wakes without an alarm");
    let without_plan = "SELECT count(*) FROM alarm WHERE callback LIKE 'wake:%' AND state = 'armed'
                        AND job_id NOT IN (SELECT key FROM planned_wake)";
    assert_eq!(count(without_plan), 0, "alarms without what they are to say");
}

/// The mark by which the ledger indexes a message: its id, or a hash of a long one.
fn prefix(id: &str) -> Vec<u8> {
    if id.len() <= 48 {
        return id.as_bytes().to_vec();
    }
    [&[0][..], &frontdesk_core::short_hash(&[id])].concat()
}
