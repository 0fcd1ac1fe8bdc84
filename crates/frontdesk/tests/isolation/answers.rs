//! Explanations of who received an event, and the files of events.

use std::collections::{BTreeSet, HashMap};

use frontdesk_testkit::world::reference::Line;
use serde_json::{Value, json};

use crate::agents::Agent;
use crate::harness::Reply;
use crate::scenario::{Said, Scenario, some_at_once};

/// One in so many events is queried by every agent of every tenant, the rest by the agents concerned.
const ASKED_BY_ALL: usize = 20;

impl Scenario {
    /// Explanations equal the reference; an agent sees only its own line, and nothing of other tenants.
    pub(crate) async fn check_answers(&mut self) {
        let fresh = &self.said[self.explained..];
        let harness = &self.harness;
        let explain = |said: &Said| format!("/admin/v1/events/{}/explain", said.event_id);
        let calls = fresh.iter().map(async |said| harness.get(&explain(said), &harness.admin).await);
        for (said, reply) in fresh.iter().zip(some_at_once(calls).await) {
            self.check_explanation(said, &reply);
            self.tally.count("explained");
        }
        let mut asked: Vec<(&Said, &Agent)> = Vec::new();
        for (at, said) in fresh.iter().enumerate() {
            let concerns = |agent: &&Agent| {
                let named = said.lines.iter().any(|line| line.instance.as_ref() == Some(&agent.name));
                let is_own = agent.home == said.home;
                (named && is_own) || (at % ASKED_BY_ALL == 0 && (is_own || !said.is_twin()))
            };
            asked.extend(self.agents.iter().filter(concerns).map(|agent| (said, agent)));
        }
        let why = |said: &Said| format!("/manage/why?message_id={}", said.id);
        let calls = asked.iter().map(async |(said, agent)| harness.get(&why(said), &agent.bearer).await);
        for ((said, agent), reply) in asked.iter().zip(some_at_once(calls).await) {
            if said.home == agent.home {
                self.check_why(said, agent, &reply);
                self.tally.count("explained to an agent");
            } else {
                let response = reply.error(404);
                assert!(response.contains(&said.id), "{response}");
                self.tally.count("not explained to another tenant");
            }
        }
        self.explained = self.said.len();
    }

    fn check_explanation(&self, said: &Said, reply: &Reply) {
        let response = reply.expect(200);
        assert_eq!((&response["event_id"], &response["tenant"]), (&json!(said.event_id), &json!(self.tenant_of(said))));
        assert_eq!(response["outcome"], said.outcome(), "{response}");
        let text = |line: &Value, field: &str| line[field].as_str().unwrap().to_owned();
        let fields = ["instance", "outcome", "layer", "rule", "value"];
        let lines = response["instances"].as_array().unwrap().iter();
        let lines: BTreeSet<[String; 5]> = lines.map(|line| fields.map(|field| text(line, field))).collect();
        let due: BTreeSet<[String; 5]> = said.lines.iter().map(explained_line).collect();
        assert_eq!(lines, due, "{} by {:?}", said.id, said.event);
        assert_eq!(response["instances"].as_array().unwrap().len(), said.lines.len(), "{response}");
    }

    fn check_why(&self, said: &Said, agent: &Agent, reply: &Reply) {
        let response = reply.expect(200);
        let lines = response["instances"].as_array().unwrap();
        assert_eq!(lines.len(), 1, "{response}");
        assert_eq!((&response["tenant"], &lines[0]["instance"]), (&json!(self.tenant_of(said)), &json!(agent.name)));
        match said.lines.iter().find(|line| line.instance.as_ref() == Some(&agent.name)) {
            None => {
                assert_eq!((&lines[0]["outcome"], &lines[0]["value"]), (&json!("withheld"), &json!("")), "{response}");
            }
            Some(line) => {
                let [_, outcome, layer, rule, value] = explained_line(line);
                // The choice of another agent is visible to the user only.
                let value = if line.layer == "owner" && !line.delivered { String::new() } else { value };
                for (field, due) in [("outcome", outcome), ("layer", layer), ("rule", rule), ("value", value)] {
                    assert_eq!(lines[0][field], due, "{field} in {response}");
                }
            }
        }
        // Names no other agent, of any tenant, and no other tenant.
        let text = reply.text();
        let words: BTreeSet<&str> = text.split(|c: char| !c.is_alphanumeric()).collect();
        for other in self.world.instances.iter().filter(|other| other.name != agent.name) {
            assert!(!words.contains(other.name.as_str()), "{} reads of {}: {text}", agent.name, other.name);
        }
        for other in self.homes.iter().filter(|other| other.tenant != self.tenant_of(said)) {
            // An id could equal the name of another tenant, but not in this scenario.
            assert!(!words.contains(other.tenant.as_str()), "{} reads of {}: {text}", agent.name, other.tenant);
        }
    }

    fn tenant_of(&self, said: &Said) -> &str {
        &self.homes[said.home].tenant
    }

    // ---- files ---------------------------------------------------------------------------

    /// Every file of an event can be read by its receiver, and by no client of another tenant.
    pub(crate) async fn check_files(&mut self) {
        let by_id: HashMap<(usize, &str), &Said> =
            self.said.iter().map(|said| ((said.home, said.id.as_str()), said)).collect();
        let (mut own, mut seen) = (Vec::new(), BTreeSet::new());
        for agent in &self.agents {
            for event in agent.got.iter().map(|frame| &frame.json["event"]) {
                let said = by_id[&(agent.home, event["message_id"].as_str().unwrap())];
                let urls = event["media_urls"].as_array().map_or(&[][..], Vec::as_slice);
                let media = event["media"].as_array().map_or(&[][..], Vec::as_slice);
                assert!(urls.iter().eq(media.iter().map(|it| &it["url"])), "{event}");
                let due = said.file.iter().map(|file| format!("{}/relay/media/{}", self.harness.url, file.id));
                assert!(urls.iter().map(|url| url.as_str().unwrap()).eq(due), "{event}");
                if let Some(file) = said.file.as_ref().filter(|_| said.part == self.part) {
                    own.push((agent, file));
                    seen.insert((said.home, file.id.as_str()));
                }
            }
        }
        let harness = &self.harness;
        let path = |id: &str| format!("/relay/media/{id}");
        let calls = own.iter().map(async |(agent, file)| harness.get(&path(&file.id), &agent.bearer).await);
        for ((agent, file), reply) in own.iter().zip(some_at_once(calls).await) {
            let body = (reply.status, reply.text());
            assert_eq!(body, (200, file.body.clone()), "{}", agent.name);
            self.tally.count("file fetched by its receiver");
        }
        let mut foreign = Vec::new();
        for (home, id) in seen {
            for (at, other) in self.homes.iter().enumerate().filter(|(at, _)| *at != home) {
                let own = self.agents_of(at);
                let agent = &self.agents[*self.dice.pick(&own)];
                foreign.push((path(id), &agent.bearer));
                foreign.push((format!("/chat/v1/media/{id}"), &other.token));
            }
        }
        let calls = foreign.iter().map(async |(path, bearer)| harness.get(path, bearer).await);
        for ((path, _), reply) in foreign.iter().zip(some_at_once(calls).await) {
            assert_eq!(reply.status, 404, "{path}: {}", reply.text());
            self.tally.count("file refused to another tenant");
        }
        self.offer_foreign_files().await;
    }

    /// A message with a file of another tenant is refused.
    async fn offer_foreign_files(&mut self) {
        for (at, home) in self.homes.iter().enumerate() {
            let others = self.homes.iter().enumerate().filter(|(other, _)| *other != at);
            let files: Vec<&String> = others.flat_map(|(_, other)| &other.files).collect();
            if files.is_empty() {
                continue;
            }
            let text = format!("{} steals", home.mark);
            let media = json!([{ "id": self.dice.pick(&files) }]);
            let post = json!({ "user_id": "u1", "text": text, "media": media, "mentions_bot": true });
            let path = format!("/chat/v1/chats/{}/messages", home.own_chat);
            self.harness.post(&path, &home.token, &post).await.expect(404);
            self.tally.count("file of another tenant not taken");
        }
    }
}

/// A line in the form of an explanation.
fn explained_line(line: &Line) -> [String; 5] {
    let outcome = if line.delivered { "delivered" } else { "withheld" };
    let instance = line.instance.as_deref().unwrap_or_default();
    [instance, outcome, line.layer, line.rule, &line.value].map(str::to_owned)
}
