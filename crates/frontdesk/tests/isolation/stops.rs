//! `/stop` of users and interrupts of gateways. A session key contains no tenant, so the same key often exists in
//! several tenants.

use frontdesk_wire::{session_aliases, turn_names};
use serde_json::json;
use tokio::time::timeout;

use crate::harness::TIME_LIMIT;
use crate::scenario::{Said, Scenario};
use crate::talk::say;

/// Rounds, with one stop per tenant.
const STOPS: usize = 3;
const INTERRUPTS: usize = 3;

impl Scenario {
    pub(crate) async fn stop_turns(&mut self) {
        for _ in 0..STOPS {
            for home in 0..self.homes.len() {
                if let Some(mut said) = self.want_stop(home) {
                    say(&self.harness, &mut self.homes[home], &mut said).await;
                    self.said.push(said);
                }
            }
            self.receive().await;
        }
        for _ in 0..INTERRUPTS {
            self.interrupt_by_gateways().await;
        }
    }

    /// A `/stop` in a chat with messages, by their author or another user.
    fn want_stop(&mut self, home: usize) -> Option<Said> {
        let own: Vec<&Said> = self.said.iter().filter(|said| said.home == home && !said.is_press).collect();
        if own.is_empty() {
            return None;
        }
        let mut event = self.dice.pick(&own).event.clone();
        if self.dice.chance(60) {
            let person = self.dice.pick(&self.world.people);
            event.source.user_id = Some(person.user_id.clone());
            event.source.is_bot = person.is_bot;
        }
        event.addressed = true; // like every command
        let mut said = self.prepare(home, None, event, "/stop".into());
        let reached = said.receivers().iter().copied();
        let running: Vec<usize> = reached.filter(|at| self.runs(*at, &said.session_key)).collect();
        self.tally.count(match (said.receivers().is_empty(), running.is_empty()) {
            (true, _) => "stop of nobody",
            (_, true) => "stop without a turn",
            _ => "stop of a running turn",
        });
        said.is_interrupt = !running.is_empty();
        // With every name that a gateway may use for the turn.
        let names = turn_names(&said.event.source);
        assert!(names.iter().any(|name| *name == said.session_key));
        for at in running {
            let stops = names.iter().map(|name| (name.to_string(), said.chat().to_owned()));
            self.agents[at].stops_due.extend(stops);
        }
        Some(said)
    }

    /// Whether the agent received something of this session.
    fn runs(&self, agent: usize, key: &str) -> bool {
        self.said.iter().any(|said| said.session_key == key && said.receivers().contains(&agent))
    }

    /// A gateway of each tenant interrupts a turn: its own, or that of another gateway of its tenant.
    async fn interrupt_by_gateways(&mut self) {
        let mut due: Vec<Vec<usize>> = Vec::new();
        for home in 0..self.homes.len() {
            // Any session: it may exist in this tenant, in another, or in both.
            let key = self.dice.pick(&self.said).session_key.clone();
            let asker = self.any_agent(home);
            let of = |key: &str| self.agents_of(home).into_iter().filter(|at| self.runs(*at, key)).collect::<Vec<_>>();
            let mut running = of(&key);
            if running.is_empty() {
                // Gateways use different names for one session.
                running = session_aliases(&key.as_str().into()).iter().flat_map(|alias| of(alias)).collect();
            }
            if running.contains(&asker) {
                running = vec![asker];
            }
            let elsewhere = (0..self.agents.len()).any(|at| self.agents[at].home != home && self.runs(at, &key));
            match (running.as_slice(), elsewhere) {
                ([], true) => self.tally.count("interrupt of a turn elsewhere"),
                ([], false) => self.tally.count("interrupt of nothing"),
                ([one], _) if *one == asker => self.tally.count("interrupt of an own turn"),
                _ => self.tally.count("interrupt of a neighbour's turn"),
            }
            let frame = json!({ "type": "interrupt", "session_key": key, "reason": null });
            self.agents[asker].socket.frame(&frame).await;
            due.push(running);
        }
        // Waits for the expected ones; unexpected ones are found by the check of all deliveries.
        let coming = async {
            while (0..due.len()).any(|home| !due[home].is_empty() && self.surplus(home).is_empty()) {
                self.receive().await;
            }
        };
        timeout(TIME_LIMIT, coming).await.expect("an interrupt is missing");
        for (home, running) in due.into_iter().enumerate() {
            for at in self.surplus(home) {
                assert!(running.contains(&at), "{} was interrupted, not one of {running:?}", self.agents[at].name);
                let stop = self.agents[at].stops.last().unwrap().clone();
                self.agents[at].stops_due.push(stop);
            }
            assert!(self.surplus(home).is_empty(), "one turn was interrupted twice");
        }
    }

    /// Agents that were interrupted more often than expected so far.
    fn surplus(&self, home: usize) -> Vec<usize> {
        let own = self.agents_of(home).into_iter();
        own.filter(|at| self.agents[*at].stops.len() > self.agents[*at].stops_due.len()).collect()
    }
}
