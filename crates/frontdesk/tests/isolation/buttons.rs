//! Prompts: the user who presses a button is the author, and only users of the prompt's tenant can press it.

use frontdesk_testkit::world::{APART, Event};
use frontdesk_wire::Source;
use serde_json::json;

use crate::scenario::{Scenario, some_at_once};
use crate::talk::take_receipt;

/// Per tenant.
const PROMPTS: usize = 2;

impl Scenario {
    pub(crate) async fn press_buttons(&mut self) {
        for _ in 0..PROMPTS {
            for home in 0..self.homes.len() {
                self.prompt_and_press(home).await;
            }
        }
        self.receive().await;
    }

    async fn prompt_and_press(&mut self, home: usize) {
        let chat = self.any_chat();
        let user_id = self.dice.pick(&self.world.people).user_id.clone();
        let event = self.press_event(home, &chat, &user_id);
        let reached = self.prepare(home, Some(String::new()), event.clone(), String::new()).reached;
        // Often the agent of the person who presses asks, else any other one.
        let agent = match reached.first() {
            Some(own) if self.dice.chance(80) => *own,
            _ => self.any_agent(home),
        };
        let mark = self.homes[home].mark.clone();
        let options = json!([{ "id": "yes", "label": format!("{mark} yes") }, { "id": "no", "label": "no" }]);
        let prompt_id = format!("{mark}-{}", self.homes[home].next_id());
        let content = format!("{mark} asks");
        let prompt = json!({
            "op": "prompt", "chat_id": chat, "prompt_id": prompt_id, "prompt_kind": "choice", "content": content,
            "options": options,
        });
        let sent = self.agents[agent].socket.act(prompt).await;
        let message = sent["message_id"].as_str().unwrap_or_else(|| panic!("{sent}")).to_owned();

        let name = format!("{mark} {user_id}");
        let press = json!({ "prompt_id": prompt_id, "option_id": "yes", "user_id": user_id, "user_name": name });
        let path = format!("/chat/v1/chats/{chat}/messages/{message}/press");
        // The other tenants have a chat with this name, but not this prompt.
        let others = self.homes.iter().filter(|other| other.mark != mark);
        for reply in some_at_once(others.map(|other| self.harness.post(&path, &other.token, &press))).await {
            assert_eq!(reply.problem(404), "not_found");
            self.tally.count("button pressed from another tenant");
        }

        let posted = self.harness.post(&path, &self.homes[home].token, &press).await.expect(202);
        let id = posted["message_id"].as_str().unwrap();
        assert!(id.starts_with(&format!("press-{message}-")), "{id}");
        let mut said = self.prepare(home, Some(id.to_owned()), event, "/yes".into());
        said.is_press = true;
        // A button answers the agent that asked, and no other one.
        let asker = self.agents[agent].name.as_str();
        for line in said.lines.iter_mut().filter(|line| line.delivered && line.instance.as_deref() != Some(asker)) {
            (line.delivered, line.layer, line.rule, line.value) = (false, "owner", "prompt", String::new());
        }
        said.reached.retain(|reached| *reached == agent);
        self.tally.count(format!("button pressed and {}", said.outcome()));
        take_receipt(&mut said, &posted);
        let again = self.harness.post(&path, &self.homes[home].token, &press).await;
        match said.outcome() {
            "delivered" => assert_eq!(again.problem(409), "conflict"),
            // No agent received it, so the prompt is not answered; the repeated press is the same message.
            _ => assert_eq!(again.expect(202)["event_id"], said.event_id.as_str()),
        }
        self.said.push(said);
    }

    fn press_event(&self, home: usize, chat: &str, user_id: &str) -> Event {
        let types = &self.homes[home].chat_types;
        let mut source = Source {
            platform: APART.into(),
            chat_id: chat.into(),
            chat_type: types.get(chat).cloned().unwrap_or_else(|| "dm".into()),
            user_id: Some(user_id.into()),
            ..Source::default()
        };
        source.set_scope(self.homes[home].chat_scopes.get(chat).cloned());
        Event { tenant: Some(self.homes[home].tenant.clone()), source, addressed: true }
    }
}
