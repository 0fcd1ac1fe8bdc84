//! Collects and acks everything that reaches an agent, and compares it with the reference.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex};

use frontdesk_core::directory::facts::Binding;
use frontdesk_testkit::world::APART;
use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::harness::{Frame, Socket, TIME_LIMIT};
use crate::scenario::{Said, Scenario};

pub(crate) struct Agent {
    pub(crate) home: usize,
    pub(crate) name: String,
    pub(crate) bearer: String,
    pub(crate) socket: Socket,
    /// All bytes received on its socket.
    pub(crate) raw: Arc<Mutex<Vec<u8>>>,
    /// Deliveries, in order.
    pub(crate) got: Vec<Frame>,
    /// How many deliveries were checked.
    pub(crate) seen: usize,
    /// Received interrupts (session key and chat), and those that were expected.
    pub(crate) stops: Vec<(String, String)>,
    pub(crate) stops_due: Vec<(String, String)>,
}

impl Agent {
    pub(crate) fn new(home: usize, name: String, bearer: String, socket: Socket, raw: Arc<Mutex<Vec<u8>>>) -> Self {
        let (got, stops, stops_due) = (Vec::new(), Vec::new(), Vec::new());
        Self { home, name, bearer, socket, raw, got, seen: 0, stops, stops_due }
    }

    /// Takes and acks everything that is there.
    async fn receive(&mut self) {
        self.socket.settle().await;
        while self.socket.came() > 0 {
            let frame = self.socket.next().await;
            if frame.is("inbound") {
                self.socket.ack(&frame).await;
                self.got.push(frame);
            } else if frame.is("interrupt_inbound") {
                let text = |field: &str| frame.json[field].as_str().unwrap().to_owned();
                self.stops.push((text("session_key"), text("chat_id")));
            } else {
                panic!("unexpected frame for {}: {}", self.name, frame.raw);
            }
        }
    }

    pub(crate) fn has_had(&self, id: &str) -> bool {
        self.got.iter().any(|frame| frame.json["event"]["message_id"] == id)
    }
}

impl Scenario {
    /// Every agent takes what is there, until the server reports that nothing is waiting.
    pub(crate) async fn receive(&mut self) {
        let quiet = async {
            join_all(self.agents.iter_mut().map(Agent::receive)).await;
            loop {
                let response = self.harness.admin("GET", "/instances", &Value::Null).await.expect(200);
                let waiting = response["instances"].as_array().unwrap().iter().filter(|it| it["waiting"] != 0);
                let waiting: Vec<_> = waiting.map(|it| (it["tenant"].as_str(), it["instance"].as_str())).collect();
                if waiting.is_empty() {
                    return;
                }
                let homes = &self.homes;
                let is_due =
                    |agent: &&mut Agent| waiting.contains(&(Some(&homes[agent.home].tenant), Some(&agent.name)));
                join_all(self.agents.iter_mut().filter(is_due).map(Agent::receive)).await;
            }
        };
        timeout(TIME_LIMIT, quiet).await.expect("deliveries are still waiting");
    }

    /// Every agent got exactly what the reference delivers, once.
    pub(crate) fn check_deliveries(&mut self) {
        let mut due: Vec<BTreeMap<&str, u32>> = self.agents.iter().map(|_| BTreeMap::new()).collect();
        for said in &self.said {
            for at in said.receivers() {
                *due[*at].entry(&said.id).or_default() += 1;
            }
        }
        for (agent, due) in self.agents.iter().zip(due) {
            let mut got: BTreeMap<&str, u32> = BTreeMap::new();
            for frame in &agent.got {
                *got.entry(frame.json["event"]["message_id"].as_str().unwrap()).or_default() += 1;
            }
            let who = format!("{} of {}", agent.name, self.homes[agent.home].tenant);
            let only = |a: &BTreeMap<&str, u32>, b: &BTreeMap<&str, u32>| -> Vec<String> {
                let differs = a.iter().filter(|(id, count)| b.get(*id) != Some(count));
                differs.map(|(id, count)| format!("{count} x {id}")).collect()
            };
            assert!(got == due, "{who} got {:?}, and should have got {:?}", only(&got, &due), only(&due, &got));
            let (mut stops, mut stops_due) = (agent.stops.clone(), agent.stops_due.clone());
            stops.sort();
            stops_due.sort();
            assert_eq!(stops, stops_due, "interrupts of {who}");
        }
        self.check_events();
        for said in &self.said[self.explained..] {
            for line in &said.lines {
                let outcome = if line.delivered { "delivered" } else { "withheld" };
                self.tally.count(format!("{outcome} {}/{}", line.layer, line.rule));
            }
        }
    }

    /// Checks the content of events received since the last check.
    fn check_events(&mut self) {
        let by_id: HashMap<(usize, &str), usize> =
            self.said.iter().enumerate().map(|(at, said)| ((said.home, said.id.as_str()), at)).collect();
        let mut counts = Vec::new();
        for agent in &self.agents {
            let earlier = agent.got[..agent.seen].iter().flat_map(|frame| context(&frame.json["event"]));
            let mut shown: BTreeSet<&str> = earlier.map(message_id).collect();
            for frame in &agent.got[agent.seen..] {
                let event = &frame.json["event"];
                let find = |id: &Value| by_id.get(&(agent.home, id.as_str().unwrap())).copied();
                let at = find(&event["message_id"]).unwrap_or_else(|| panic!("unknown message in {event}"));
                let said = &self.said[at];
                let source = &said.event.source;
                assert_eq!(event["text"], said.text.as_str(), "{event}");
                for (field, value) in [
                    ("chat_id", Some(source.chat_id.as_str())),
                    ("chat_type", Some(source.chat_type.as_str())),
                    ("user_id", source.user_id.as_deref()),
                    ("thread_id", source.thread_id.as_deref()),
                    ("scope_id", source.scope_id.as_deref()),
                    ("guild_id", source.scope_id.as_deref()),
                ] {
                    assert_eq!(event["source"][field].as_str(), value, "{field} in {event}");
                }
                assert_eq!(event["reply_to"]["text"].as_str(), said.quoted.as_deref(), "{event}");
                assert!(event["context_error"].is_null(), "{event}");
                let lines = context(event);
                for line in lines {
                    let nearby =
                        find(&line["source"]["message_id"]).unwrap_or_else(|| panic!("unknown message in {line}"));
                    assert!(nearby < at, "context is newer than its message: {line}");
                    assert!(shown.insert(message_id(line)), "{} got {line} twice", agent.name);
                    self.check_context(agent, said, &self.said[nearby], line);
                }
                let layer = said.lines.iter().find(|line| line.instance.as_ref() == Some(&agent.name)).unwrap().layer;
                let to = if layer == "owner" { "an own agent" } else { "a holder" };
                counts.extend(std::iter::repeat_n(format!("context line to {to}"), lines.len()));
            }
        }
        for count in counts {
            self.tally.count(count);
        }
        for agent in &mut self.agents {
            agent.seen = agent.got.len();
        }
    }

    /// Checks one line of context of `asked`.
    fn check_context(&self, agent: &Agent, asked: &Said, nearby: &Said, line: &Value) {
        let (here, there) = (&asked.event.source, &nearby.event.source);
        let why = |what: &str| format!("{what}: {} got {line} along with {}", agent.name, asked.id);
        assert_eq!(line["text"], nearby.text.as_str(), "{}", why("other words"));
        assert_eq!(line["source"]["user_id"].as_str(), there.user_id.as_deref(), "{}", why("another author"));
        assert_eq!((&here.chat_id, &here.thread_id), (&there.chat_id, &there.thread_id), "{}", why("from elsewhere"));
        assert!(!here.is_direct() && asked.event.addressed, "{}", why("not asked for"));
        assert!(!nearby.event.addressed && !nearby.is_press, "{}", why("it was a turn"));
        assert!(!agent.has_had(&nearby.id), "{}", why("it was had as an event"));
        // The owner of this agent can see the chat.
        let tenant = &self.homes[agent.home].tenant;
        let own = asked.lines.iter().any(|it| it.layer == "owner" && it.instance.as_ref() == Some(&agent.name));
        let viewer = if own { here.user_id.as_deref() } else { self.owner(agent).map(|it| it.user_id.as_str()) };
        let sees = viewer.and_then(|viewer| self.world.sees(tenant, APART, &here.chat_id, viewer));
        assert_eq!(sees, Some(true), "{}", why("it cannot be seen"));
    }

    /// The first user who was linked to it.
    fn owner(&self, agent: &Agent) -> Option<&Binding> {
        let tenant = &self.homes[agent.home].tenant;
        let links = self.world.links.iter().filter(|it| it.platform == APART && it.tenant == *tenant);
        links.filter(|it| it.instance == agent.name).min_by_key(|it| (it.since_ms, it.user_id.clone()))
    }

    // ---- marks ---------------------------------------------------------------------------

    /// No mark of a tenant is in any byte that another tenant's agent got, nor in another tenant's chats.
    pub(crate) async fn check_marks(&mut self) {
        for agent in &self.agents {
            let raw = String::from_utf8(agent.raw.lock().unwrap().clone()).unwrap();
            let whose = format!("the socket of {}", agent.name);
            self.check_no_marks(agent.home, &raw, &whose);
        }
        for (at, home) in self.homes.iter().enumerate() {
            let mut chats: Vec<&String> = self.homes.iter().map(|home| &home.own_chat).collect();
            chats.extend(self.world.channels.iter().chain(&self.world.threads).chain(&self.world.directs));
            for chat in chats {
                let mut after = 0;
                loop {
                    let path = format!("/chat/v1/chats/{chat}/messages?after={after}");
                    let page = self.harness.get(&path, &home.token).await;
                    let lines = page.expect(200)["messages"].as_array().unwrap().clone();
                    let Some(last) = lines.last() else { break };
                    after = last["seq"].as_u64().unwrap();
                    assert!(*chat == home.own_chat || !chat.starts_with("den-"), "{} has {chat}", home.tenant);
                    self.check_no_marks(at, &page.text(), chat);
                    let deleted = lines.iter().filter(|line| line["deleted"] == true);
                    for line in deleted.map(|line| line["message_id"].as_str().unwrap()) {
                        assert!(home.deleted.iter().any(|id| id == line), "{line} in {chat} was deleted from outside");
                    }
                }
            }
            let chats = self.harness.get("/chat/v1/chats", &home.token).await;
            self.check_no_marks(at, &chats.text(), "the list of chats");
        }
        self.check_streams().await;
    }

    async fn check_streams(&mut self) {
        for home in 0..self.homes.len() {
            let agent = self.any_agent(home);
            let end = format!("{} says no more", self.homes[home].mark);
            let send = json!({ "op": "send", "chat_id": self.world.channels[0], "content": end });
            assert_eq!(self.agents[agent].socket.act(send).await["success"], true);
            let ended = self.homes[home].stream.wait_for(|text| text.contains(&end));
            let text =
                timeout(TIME_LIMIT, ended).await.expect("the stream timed out").expect("the stream ended").clone();
            self.check_no_marks(home, &text, "the live chat");
        }
    }

    fn check_no_marks(&self, home: usize, text: &str, whose: &str) {
        let own = &self.homes[home];
        for other in self.homes.iter().filter(|other| other.tenant != own.tenant) {
            for mark in other.files.iter().chain([&other.mark]) {
                if let Some(at) = text.find(mark.as_str()) {
                    let near = text[..at].rfind('\n').map_or(0, |line| line + 1);
                    let line: String = text[near..].chars().take(600).collect();
                    panic!("{mark} of {} in {whose}, of {}: {line}", other.tenant, own.tenant);
                }
            }
        }
    }
}

/// The context of an event.
fn context(event: &Value) -> &[Value] {
    event["context"].as_array().map_or(&[], Vec::as_slice)
}

fn message_id(line: &Value) -> &str {
    line["source"]["message_id"].as_str().unwrap()
}
