//! Callers that wait for the answer of an agent. In memory only: a waiter lives as long as its request. The question
//! itself is stored, so an agent that reconnects can still answer it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use frontdesk_wire::agents::AgentReply;
use frontdesk_wire::{ChatId, InstanceId, InstanceNo, TenantId};
use tokio::sync::oneshot;

/// Exchanges in progress per process; each is an open request.
const WAITERS_MAX: usize = 10_000;
/// Exchanges in progress per tenant, so that one tenant cannot block the others.
const TENANT_WAITERS_MAX: usize = 2_500;

/// Tenant and correlation id.
type Name = (TenantId, String);

struct Waiter {
    agent: InstanceNo,
    agent_id: InstanceId,
    /// The stored question, and the chat and instances from which a socket would answer it.
    delivery_id: String,
    chat_id: ChatId,
    instances: Vec<InstanceNo>,
    number: u64,
    /// `None`: it was answered, and the answer is being committed.
    answer: Option<oneshot::Sender<AgentReply>>,
}

#[derive(Default)]
struct Board {
    waiters: HashMap<Name, Waiter>,
    last: u64,
}

#[derive(Default, Clone)]
pub struct Waiters {
    board: Arc<Mutex<Board>>,
}

/// Why a caller cannot wait.
#[derive(Debug, PartialEq, Eq)]
pub enum Refused {
    InFlight,
    TooMany,
}

/// Why a reply was not accepted.
#[derive(Debug, PartialEq, Eq)]
pub enum Unheard {
    NobodyWaits,
    /// Another reply came first.
    Answered,
    OtherAgent,
}

/// Slot of a waiting caller; freed on drop.
pub struct Ticket {
    waiters: Waiters,
    name: Name,
    number: u64,
}

/// Receives the reply. Closed without one: the asked agent was deleted.
pub type Answer = oneshot::Receiver<AgentReply>;

impl Drop for Ticket {
    fn drop(&mut self) {
        self.leave();
    }
}

impl Ticket {
    /// Frees the slot; later replies get `NobodyWaits`.
    pub fn leave(&self) {
        let mut board = self.waiters.board();
        if board.waiters.get(&self.name).is_some_and(|waiter| waiter.number == self.number) {
            board.waiters.remove(&self.name);
        }
    }

    /// Sets the delivery id of the question, and the chat and instances to which it was sent.
    pub fn asked(&self, delivery_id: &str, chat_id: &str, instances: Vec<InstanceNo>) {
        let mut board = self.waiters.board();
        let waiter = board.waiters.get_mut(&self.name).filter(|waiter| waiter.number == self.number);
        if let Some(waiter) = waiter {
            waiter.delivery_id = delivery_id.into();
            waiter.chat_id = chat_id.into();
            waiter.instances = instances;
        }
    }
}

impl Waiters {
    fn board(&self) -> MutexGuard<'_, Board> {
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn wait(
        &self,
        tenant: &str,
        correlation_id: &str,
        agent: InstanceNo,
        agent_id: &str,
    ) -> Result<(Ticket, Answer), Refused> {
        let name = (TenantId::from(tenant), correlation_id.to_owned());
        let mut board = self.board();
        if board.waiters.get(&name).is_some_and(|waiter| waiter.answer.is_some()) {
            return Err(Refused::InFlight);
        }
        let own = || board.waiters.keys().filter(|(owner, _)| owner == tenant).count();
        if board.waiters.len() >= WAITERS_MAX || own() >= TENANT_WAITERS_MAX {
            return Err(Refused::TooMany);
        }
        board.last += 1;
        let number = board.last;
        let (sender, answer) = oneshot::channel();
        let waiter = Waiter {
            agent,
            agent_id: agent_id.into(),
            delivery_id: String::new(),
            chat_id: ChatId::default(),
            instances: Vec::new(),
            number,
            answer: Some(sender),
        };
        board.waiters.insert(name.clone(), waiter);
        drop(board);
        Ok((Ticket { waiters: self.clone(), name, number }, answer))
    }

    /// Removes all waiters of a deleted agent.
    pub fn forget(&self, agent: InstanceNo) {
        self.board().waiters.retain(|_, waiter| waiter.agent != agent);
    }

    /// Only the agent that was asked may reply, and only its first reply is accepted.
    pub fn reply(
        &self,
        tenant: &str,
        correlation_id: &str,
        agent: InstanceNo,
        content: String,
        now_ms: u64,
    ) -> Result<(), Unheard> {
        let name = (TenantId::from(tenant), correlation_id.to_owned());
        let mut board = self.board();
        let waiter = match board.waiters.get_mut(&name) {
            None => return Err(Unheard::NobodyWaits),
            Some(waiter) if waiter.agent != agent => return Err(Unheard::OtherAgent),
            Some(waiter) => waiter,
        };
        let answer = waiter.answer.take().ok_or(Unheard::Answered)?;
        let reply = AgentReply {
            correlation_id: correlation_id.to_owned(),
            content,
            sent_at: now_ms,
            agent_id: waiter.agent_id.to_string(),
        };
        answer.send(reply).map_err(|_| Unheard::NobodyWaits)
    }

    /// The exchange that a chat message answers: the one it names, or the one whose message it replies to (or whose
    /// thread it is in). A message with neither is not taken as an answer.
    pub fn meant(
        &self,
        tenant: &str,
        instance: InstanceNo,
        chat_id: &str,
        named: Option<&str>,
        message: Option<&str>,
    ) -> Option<(String, InstanceNo)> {
        let board = self.board();
        let asks = |waiter: &Waiter| {
            waiter.answer.is_some() && waiter.instances.contains(&instance) && waiter.chat_id == chat_id
        };
        let mine: Vec<_> =
            board.waiters.iter().filter(|((owner, _), waiter)| owner == tenant && asks(waiter)).collect();
        let by_name = mine.iter().find(|((_, id), _)| named == Some(id));
        let by_message = || mine.iter().find(|(_, waiter)| message == Some(waiter.delivery_id.as_str()));
        by_name.or_else(by_message).map(|((_, id), waiter)| (id.clone(), waiter.agent))
    }

    pub fn len(&self) -> usize {
        self.board().waiters.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn rule_16_one_waiter_one_agent_one_reply() {
        let waiters = Waiters::default();
        let (ticket, answer) = waiters.wait("t", "c1", InstanceNo(7), "alice").unwrap();
        assert!(matches!(waiters.wait("t", "c1", InstanceNo(8), "bob"), Err(Refused::InFlight)));
        assert!(waiters.wait("other", "c1", InstanceNo(9), "eve").is_ok(), "tenants do not share ids");
        assert_eq!(waiters.reply("t", "c1", InstanceNo(8), "no".into(), 5), Err(Unheard::OtherAgent));
        assert_eq!(waiters.reply("t", "c2", InstanceNo(7), "no".into(), 5), Err(Unheard::NobodyWaits));
        assert_eq!(waiters.reply("t", "c1", InstanceNo(7), "yes".into(), 5), Ok(()));
        assert_eq!(waiters.reply("t", "c1", InstanceNo(7), "late".into(), 6), Err(Unheard::Answered));
        let reply = answer.await.unwrap();
        assert_eq!((reply.content.as_str(), reply.sent_at, reply.agent_id.as_str()), ("yes", 5, "alice"));
        let again = waiters.wait("t", "c1", InstanceNo(7), "alice").unwrap();
        drop(ticket); // dropping an old ticket keeps the new waiter
        assert!(matches!(waiters.wait("t", "c1", InstanceNo(7), "alice"), Err(Refused::InFlight)));
        drop(again);
        let (_gone, answer) = waiters.wait("t", "c1", InstanceNo(7), "alice").unwrap();
        let _stays = waiters.wait("t", "c2", InstanceNo(8), "bob").unwrap();
        waiters.forget(InstanceNo(7));
        assert!(answer.await.is_err() && waiters.len() == 1);
    }

    #[test]
    fn the_limit_per_tenant_leaves_room_for_other_tenants() {
        let waiters = Waiters::default();
        let ask = |tenant: &str, number: usize| waiters.wait(tenant, &format!("c{number}"), InstanceNo(7), "alice");
        let mut held: Vec<_> = (0..TENANT_WAITERS_MAX).map(|number| ask("t", number).unwrap()).collect();
        assert!(matches!(ask("t", TENANT_WAITERS_MAX), Err(Refused::TooMany)) && ask("u", 0).is_ok());
        held.pop();
        assert!(ask("t", TENANT_WAITERS_MAX).is_ok());
    }

    #[test]
    fn an_answered_question_does_not_change_the_next_one_of_its_name() {
        let waiters = Waiters::default();
        let (first, _answer) = waiters.wait("t", "c1", InstanceNo(7), "alice").unwrap();
        waiters.reply("t", "c1", InstanceNo(7), "quick".into(), 5).unwrap();
        let (second, _answer) = waiters.wait("t", "c1", InstanceNo(7), "alice").unwrap();
        second.asked("dl_2", "agent:bob", vec![InstanceNo(70)]);
        first.asked("dl_1", "agent:eve", vec![]); // its commit returns only now
        let meant = waiters.meant("t", InstanceNo(70), "agent:bob", None, Some("dl_2"));
        assert_eq!(meant.map(|(id, _)| id).as_deref(), Some("c1"));
    }

    #[test]
    fn a_chat_message_is_matched_to_its_question() {
        let waiters = Waiters::default();
        let (one, _) = waiters.wait("t", "c1", InstanceNo(7), "alice").unwrap();
        one.asked("dl_1", "agent:bob", vec![InstanceNo(70)]);
        let meant =
            |named, reply_to| waiters.meant("t", InstanceNo(70), "agent:bob", named, reply_to).map(|(id, _)| id);
        assert_eq!(meant(None, None), None, "no reference to a question");
        assert_eq!(meant(None, Some("dl_1")).as_deref(), Some("c1"));
        assert_eq!(meant(None, Some("dl_0")), None, "a reply to another message");
        assert_eq!(meant(Some("c1"), None).as_deref(), Some("c1"));
        assert_eq!(meant(Some("c9"), None), None);
        let (two, _) = waiters.wait("t", "c2", InstanceNo(7), "alice").unwrap();
        two.asked("dl_2", "agent:bob", vec![InstanceNo(70)]);
        assert_eq!(meant(None, Some("dl_2")).as_deref(), Some("c2"));
        assert_eq!(waiters.meant("t", InstanceNo(71), "agent:bob", None, Some("dl_2")), None);
        assert_eq!(waiters.meant("u", InstanceNo(70), "agent:bob", None, Some("dl_2")), None);
    }
}
