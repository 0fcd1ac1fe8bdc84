//! Egress: an agent may send to every chat of its tenant, whoever its users are, and to no other.

use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::agents::Agent;
use crate::harness::{Frame, Harness};
use crate::scenario::Scenario;

const DECLINED: &str = "{\"success\":false,\"error\":\"relay egress declined: target is not an approved destination for \
                        this connection\",\"code\":\"egress_declined\"}}";
/// Kind of the capability of a command.
const CAPABILITY: &str = "relay.interaction_token";
/// Chats of other tenants that each agent tries.
const FOREIGN_CHATS: usize = 1;

/// The attempts of one agent.
struct Attempts {
    mark: String,
    /// A chat of its own tenant; every other tenant has one of the same name.
    chat: String,
    chat_name: String,
    /// A message of a user in that chat, if there is one.
    message: Option<String>,
    /// A message of the bot, sent by another agent of the tenant.
    bot_line: String,
    /// A message in a chat of the same name in another tenant.
    foreign_message: String,
    /// Chats that only other tenants have, with a message in each.
    foreign_chats: Vec<(String, String)>,
    own_file: Option<String>,
    foreign_file: Option<String>,
    /// Session key of a turn in another tenant that began with a command, and whether this tenant may have one of the
    /// same name.
    foreign_turn: Option<(String, bool)>,
}

/// The results.
#[derive(Default)]
struct Outcome {
    done: u64,
    declined: u64,
    deleted: String,
}

impl Scenario {
    pub(crate) async fn speak_everywhere(&mut self) {
        let before = self.own_chats().await;
        let attempts: Vec<Attempts> = (0..self.agents.len()).map(|at| self.attempts_of(at)).collect();
        let harness = &self.harness;
        let going = self.agents.iter_mut().zip(&attempts).map(|(agent, attempts)| attempts.run(harness, agent));
        let done = join_all(going).await;
        for (agent, Outcome { done, declined, deleted }) in self.agents.iter().zip(done) {
            self.homes[agent.home].deleted.push(deleted);
            (0..done).for_each(|_| self.tally.count("act done"));
            (0..declined).for_each(|_| self.tally.count("act declined"));
        }
        assert_eq!(self.own_chats().await, before, "an agent changed a chat of another tenant");
        self.type_in_one_tenant().await;
    }

    /// The typing indicator of a chat is not shown in other tenants' chats of the same name.
    async fn type_in_one_tenant(&mut self) {
        let (chat, home) = (self.any_chat(), self.dice.below(self.homes.len()));
        let agent = self.any_agent(home);
        self.agents[agent].does(json!({ "op": "typing", "chat_id": chat })).await;
        for (at, other) in self.homes.iter().enumerate() {
            let history = self.harness.get(&format!("/chat/v1/chats/{chat}/messages"), &other.token).await.expect(200);
            assert_eq!(history["typing"], at == home, "{chat} of {}", other.tenant);
        }
        self.agents[agent].does(json!({ "op": "typing", "chat_id": chat, "content": "" })).await;
    }

    /// Histories of the chats that only one tenant has, as its users see them.
    async fn own_chats(&self) -> Vec<Value> {
        let mut all = Vec::new();
        for home in &self.homes {
            let path = format!("/chat/v1/chats/{}/messages", home.own_chat);
            all.push(self.harness.get(&path, &home.token).await.expect(200));
        }
        all
    }

    fn attempts_of(&mut self, agent: usize) -> Attempts {
        let at = self.agents[agent].home;
        let chat = self.any_chat();
        let in_chat = self.said.iter().filter(|said| said.chat() == chat && !said.is_press && !said.is_twin());
        let (own, others): (Vec<_>, Vec<_>) = in_chat.partition(|said| said.home == at);
        let home = &self.homes[at];
        let mut elsewhere: Vec<_> = self.homes.iter().filter(|other| other.mark != home.mark).collect();
        let mut foreign_messages: Vec<String> = others.iter().map(|said| said.id.clone()).collect();
        foreign_messages.extend(elsewhere.iter().flat_map(|other| &other.bot_lines[&chat]).cloned());
        self.dice.shuffle(&mut elsewhere);
        let foreign_chats = elsewhere.iter().take(FOREIGN_CHATS);
        let foreign_files: Vec<&String> = elsewhere.iter().flat_map(|other| &other.files).collect();
        let commands = || self.said.iter().filter(|said| said.text.starts_with('/') && !said.is_press);
        let foreign_turns: Vec<_> = commands().filter(|said| said.home != at).collect();
        let foreign_turn = (!foreign_turns.is_empty()).then(|| {
            let turn = *self.dice.pick(&foreign_turns);
            (turn.session_key.clone(), commands().any(|said| said.home == at && said.chat() == turn.chat()))
        });
        Attempts {
            mark: home.mark.clone(),
            foreign_turn,
            chat_name: home.chat_name(&chat),
            message: (!own.is_empty()).then(|| self.dice.pick(&own).id.clone()),
            bot_line: home.bot_lines[&chat][0].clone(),
            foreign_message: self.dice.pick(&foreign_messages).clone(),
            foreign_chats: foreign_chats
                .map(|it| (it.own_chat.clone(), it.bot_lines[&it.own_chat][0].clone()))
                .collect(),
            own_file: (!home.files.is_empty()).then(|| self.dice.pick(&home.files).clone()),
            foreign_file: (!foreign_files.is_empty()).then(|| (*self.dice.pick(&foreign_files)).clone()),
            chat,
        }
    }
}

impl Attempts {
    async fn run(&self, harness: &Harness, agent: &mut Agent) -> Outcome {
        let mut so_far = Outcome::default();
        self.speak_at_home(harness, agent, &mut so_far).await;
        self.reach_elsewhere(agent, &mut so_far).await;
        for (chat, message) in &self.foreign_chats {
            for act in self.every_act(chat, message) {
                let what = act.to_string();
                assert_eq!(agent.act(act).await.result(), DECLINED, "{what}");
                so_far.declined += 1;
            }
        }
        so_far
    }

    async fn speak_at_home(&self, harness: &Harness, agent: &mut Agent, so_far: &mut Outcome) {
        let chat = &self.chat;
        let info = agent.act(json!({ "op": "get_chat_info", "chat_id": chat })).await;
        assert_eq!(info.json["result"]["chat_info"]["name"], self.chat_name.as_str(), "{}", info.raw);
        let send = json!({ "op": "send", "chat_id": chat, "content": format!("{} sends", self.mark) });
        let sent = agent.does(send).await["message_id"].as_str().unwrap().to_owned();
        let mut acts = vec![
            json!({ "op": "edit", "chat_id": chat, "message_id": sent, "content": format!("{} edits", self.mark) }),
            json!({ "op": "react", "chat_id": chat, "message_id": sent, "emoji": self.mark }),
            json!({ "op": "react", "chat_id": chat, "message_id": self.bot_line, "emoji": self.mark }),
            json!({ "op": "delete", "chat_id": chat, "message_id": sent }),
            json!({ "op": "typing", "chat_id": chat }),
            json!({ "op": "typing", "chat_id": chat, "content": "" }),
        ];
        if let Some(message) = &self.message {
            acts.push(json!({ "op": "react", "chat_id": chat, "message_id": message, "emoji": self.mark }));
        }
        let file = |id: &String| {
            let url = format!("{}/relay/media/{id}", harness.url);
            json!({ "op": "send_media", "chat_id": chat, "media_kind": "image", "source_url": url })
        };
        acts.extend(self.own_file.as_ref().map(file));
        so_far.done += 2 + u64::try_from(acts.len()).unwrap();
        for act in acts {
            agent.does(act).await;
        }
        so_far.deleted = sent;
        if let Some(act) = self.foreign_file.as_ref().map(file) {
            assert_eq!(agent.act(act).await.json["result"]["code"], "not_found");
            so_far.declined += 1;
        }
    }

    /// Tries messages and turns of another tenant in a chat that has the same name here.
    async fn reach_elsewhere(&self, agent: &mut Agent, so_far: &mut Outcome) {
        let (chat, message) = (&self.chat, &self.foreign_message);
        for act in [
            json!({ "op": "edit", "chat_id": chat, "message_id": message, "content": self.mark }),
            json!({ "op": "react", "chat_id": chat, "message_id": message, "emoji": self.mark }),
        ] {
            assert_eq!(agent.act(act).await.json["result"]["code"], "not_found");
        }
        // Deleting a missing message succeeds; the history of the other tenant shows that it still exists.
        agent.does(json!({ "op": "delete", "chat_id": chat, "message_id": message })).await;
        so_far.declined += 3;
        if let Some((key, here_too)) = &self.foreign_turn {
            // If both tenants have a turn with this key, the own one is used; the other tenant's history shows that
            // nothing went there.
            let result = agent.socket.follow_up(key, CAPABILITY, &self.mark).await;
            let declined = result.json["result"]["code"] == "capability_unavailable";
            assert!(declined || *here_too, "{key}: {}", result.raw);
            so_far.declined += u64::from(declined);
        }
    }

    fn every_act(&self, chat: &str, message: &str) -> Vec<Value> {
        let options = json!([{ "id": "a", "label": self.mark }]);
        vec![
            json!({ "op": "send", "chat_id": chat, "content": self.mark }),
            json!({ "op": "edit", "chat_id": chat, "message_id": message, "content": self.mark }),
            json!({ "op": "react", "chat_id": chat, "message_id": message, "emoji": self.mark }),
            json!({ "op": "delete", "chat_id": chat, "message_id": message }),
            json!({ "op": "typing", "chat_id": chat }),
            json!({ "op": "get_chat_info", "chat_id": chat }),
            json!({ "op": "prompt", "chat_id": chat, "prompt_id": "p", "content": self.mark, "options": options }),
        ]
    }
}

impl Agent {
    async fn act(&mut self, action: Value) -> Frame {
        self.socket.act_frame(action).await
    }

    /// Performs an action that must succeed.
    async fn does(&mut self, action: Value) -> Value {
        let what = action.to_string();
        let result = self.socket.act(action).await;
        assert_eq!(result["success"], true, "{what}: {result}");
        result
    }
}
