//! Messages of users: addressed to the bot or not, with files, in threads, with replies to messages of this chat, of
//! other chats and of other tenants. All tenants post concurrently.

use frontdesk_testkit::world::reference::{self, Line};
use frontdesk_testkit::world::{APART, Event};
use frontdesk_wire::Source;
use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::harness::Harness;
use crate::scenario::{File, Home, Said, Scenario};

const FILES_PERCENT: u64 = 10;
const REPLIES_PERCENT: u64 = 35;

/// Prefix of message ids that every tenant uses.
const TWIN: &str = "twin-";

/// How a message is addressed to the bot.
#[derive(Clone, Copy)]
enum Call {
    Name,
    Command,
    Reply,
}

impl Scenario {
    /// Posts so many events of the world, and waits for the deliveries.
    pub(crate) async fn talk(&mut self, events: usize) {
        let mut each: Vec<Vec<Said>> = self.homes.iter().map(|_| Vec::new()).collect();
        for _ in 0..events {
            let said = self.think();
            each[said.home].push(said);
        }
        let (twin, chat) = (self.next_twin(), self.dice.pick(&self.world.channels).clone());
        for (home, list) in each.iter_mut().enumerate() {
            let own_chat = self.homes[home].own_chat.clone();
            list.push(self.think_in(home, own_chat, None));
            list.push(self.think_in(home, chat.clone(), Some(twin.clone())));
        }
        let harness = &self.harness;
        let talks = self.homes.iter_mut().zip(each).map(async |(home, list)| {
            let mut done = Vec::with_capacity(list.len());
            for mut said in list {
                say(harness, home, &mut said).await;
                done.push(said);
            }
            done
        });
        let done = join_all(talks).await;
        self.said.extend(done.into_iter().flatten());
        self.receive().await;
    }

    /// An event of the world as a message; preferably one that concerns more than the author's own agent.
    fn think(&mut self) -> Said {
        let event = loop {
            let event = self.world.event_on(&mut self.dice, APART);
            let lines = reference::evaluate(&self.world, &event);
            let weight = |line: &Line| match line.layer {
                "scope" => 100,
                "principal" | "relevance" => 60,
                _ => 20,
            };
            let percent = lines.iter().map(weight).max().unwrap_or(0);
            if self.world.is_postable(&event) && self.dice.chance(percent) {
                break event;
            }
        };
        let home = self.homes.iter().position(|home| event.tenant.as_ref() == Some(&home.tenant)).unwrap();
        self.make_message(home, None, event)
    }

    /// A message in this chat.
    fn think_in(&mut self, home: usize, chat_id: String, id: Option<String>) -> Said {
        let person = self.dice.pick(&self.world.people).clone();
        let tenant = self.homes[home].tenant.clone();
        let source = Source {
            platform: APART.into(),
            chat_id: chat_id.into(),
            chat_type: "group".into(),
            user_id: Some(person.user_id),
            is_bot: person.is_bot,
            ..Source::default()
        };
        let event = Event { tenant: Some(tenant), source, addressed: self.dice.chance(50) };
        self.make_message(home, id, event)
    }

    /// A message id that every tenant uses for a message of its own.
    fn next_twin(&self) -> String {
        format!("{TWIN}{}", self.said.len())
    }

    fn make_message(&mut self, home: usize, id: Option<String>, mut event: Event) -> Said {
        event.source.message_is_edit = false; // the built-in chat has no edits by users
        let mark = self.homes[home].mark.clone();
        let mut said = self.prepare(home, id, event, String::new());
        said.text = format!("{mark} says {}", said.id);
        if said.event.addressed {
            let calls = [Call::Name, Call::Name, Call::Command, Call::Reply];
            let call = *self.dice.pick(&calls);
            self.call_the_bot(&mut said, call);
        } else if self.dice.chance(REPLIES_PERCENT) {
            self.answer_somebody(&mut said);
        }
        if self.dice.chance(FILES_PERCENT) {
            let body = format!("{mark} file of {}", said.id);
            said.file = Some(File { id: String::new(), body });
        }
        said
    }

    fn call_the_bot(&mut self, said: &mut Said, call: Call) {
        let home = &self.homes[said.home];
        match call {
            Call::Name => {
                said.mentions_bot = true;
                self.tally.count("said to the bot by name");
            }
            Call::Command => {
                said.text = format!("/ask {}", said.text);
                self.tally.count("said to the bot by a command");
            }
            Call::Reply => {
                let id = self.dice.pick(&home.bot_lines[said.chat()]).clone();
                said.reply_to = Some(id);
                said.quoted = Some(format!("{} hello", home.mark));
                self.tally.count("said to the bot by a reply");
            }
        }
    }

    /// Replies to a message of this chat, or to an id of another tenant or chat.
    fn answer_somebody(&mut self, said: &mut Said) {
        let chat = said.chat().to_owned();
        let by_people = || self.said.iter().filter(|it| !it.is_press);
        let (found, what): (Vec<(&String, Option<&String>)>, _) = match self.dice.below(4) {
            0 => {
                let here = by_people().filter(|it| it.home == said.home && it.chat() == chat);
                (here.map(|it| (&it.id, Some(&it.text))).collect(), "quoted from this chat")
            }
            1 => {
                let there = by_people().filter(|it| it.home != said.home && it.chat() == chat && !it.is_twin());
                (there.map(|it| (&it.id, None)).collect(), "quoted from another tenant")
            }
            2 => {
                // A message of the bot in another tenant: a reply to it does not address the bot here.
                let others = self.homes.iter().enumerate().filter(|(at, _)| *at != said.home);
                let there = others.filter_map(|(_, home)| home.bot_lines.get(&chat)).flatten();
                (there.map(|id| (id, None)).collect(), "quoted from another tenant")
            }
            _ => {
                let there = by_people().filter(|it| it.home == said.home && it.chat() != chat);
                (there.map(|it| (&it.id, None)).collect(), "quoted from another chat")
            }
        };
        if found.is_empty() {
            return;
        }
        let (id, quoted) = *self.dice.pick(&found);
        (said.reply_to, said.quoted) = (Some(id.clone()), quoted.cloned());
        self.tally.count(what);
    }
}

impl Said {
    pub(crate) fn is_twin(&self) -> bool {
        self.id.starts_with(TWIN)
    }
}

/// Posts the message; the server's verdict must equal the reference.
pub(crate) async fn say(harness: &Harness, home: &mut Home, said: &mut Said) {
    let source = &said.event.source;
    let mut post = json!({
        "user_id": source.user_id,
        "user_name": format!("{} {}", home.mark, source.user_id.as_deref().unwrap()),
        "text": said.text,
        "chat_type": source.chat_type,
        "is_bot": source.is_bot,
        "mentions_bot": said.mentions_bot,
        "message_id": said.id,
    });
    for (field, value) in
        [("scope_id", &source.scope_id), ("thread_id", &source.thread_id), ("reply_to", &said.reply_to)]
    {
        if let Some(value) = value {
            post[field] = json!(value);
        }
    }
    if let Some(file) = &mut said.file {
        file.id = upload(harness, home, file.body.clone()).await;
        home.files.push(file.id.clone());
        post["media"] = json!([{ "id": file.id }]);
    }
    if let Some(scope) = &source.scope_id {
        home.chat_scopes.insert(source.chat_id.to_string(), scope.clone());
    }
    home.chat_types.entry(source.chat_id.to_string()).or_insert_with(|| source.chat_type.clone());
    let path = format!("/chat/v1/chats/{}/messages", source.chat_id);
    let posted = harness.post(&path, &home.token, &post).await.expect(202);
    take_receipt(said, &posted);
}

/// Stores the event id and compares the verdict.
pub(crate) fn take_receipt(said: &mut Said, posted: &Value) {
    assert_eq!(posted["message_id"], said.id.as_str());
    posted["event_id"].as_str().unwrap().clone_into(&mut said.event_id);
    let lines = &said.lines;
    assert_eq!(posted["verdict"]["outcome"], said.outcome(), "{posted}, but the reference: {lines:#?}");
}

async fn upload(harness: &Harness, home: &Home, body: String) -> String {
    let request = harness.request("POST", "/chat/v1/media").bearer_auth(&home.token);
    let request = request.header("content-type", "image/png").header("x-media-filename", format!("{}.png", home.mark));
    let reply = harness.send(request.body(body)).await.expect(200);
    reply["id"].as_str().unwrap().to_owned()
}
