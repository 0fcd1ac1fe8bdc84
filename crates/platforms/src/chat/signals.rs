//! Live changes of chats, for the streams of the chat page. A stream that does not read loses its queue and must read the
//! history again. What waits is bounded per stream and per tenant.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use frontdesk_wire::api::ChatMessage;
use frontdesk_wire::{ChatId, TenantId};
use serde_json::json;
use tokio::sync::Notify;

/// Events that wait for one stream.
const EVENTS_MAX: usize = 1024;
const EVENTS_MAX_BYTES: usize = 4 << 20;
/// Events that wait for all streams of a tenant. One that waits for several streams counts for each.
const TENANT_MAX_BYTES: usize = 64 << 20;
/// Reserved for each stream even if the tenant's limit is used up, so that streams that are not read do not end others.
const EVENTS_FREE_BYTES: usize = 16 << 10;

/// A change of a chat.
#[derive(Debug, Clone)]
pub(super) enum Signal {
    Message(Box<ChatMessage>),
    Typing(bool),
}

impl Signal {
    fn event(&self) -> ChatEvent {
        match self {
            Self::Message(message) => {
                ChatEvent { name: "message", json: serde_json::to_string(message).unwrap_or_default() }
            }
            Self::Typing(typing) => ChatEvent { name: "typing", json: json!({ "typing": typing }).to_string() },
        }
    }
}

/// An event of the stream of a chat.
#[derive(Debug)]
pub struct ChatEvent {
    pub name: &'static str,
    pub json: String,
}

#[derive(Default)]
pub(super) struct Signals {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    last: u64,
    watchers: HashMap<(TenantId, ChatId), Vec<Queue>>,
    /// Queued bytes of each tenant that has watchers.
    bytes: HashMap<TenantId, usize>,
}

struct Queue {
    watcher: u64,
    notify: Arc<Notify>,
    events: VecDeque<Arc<ChatEvent>>,
    bytes: usize,
    /// Events were lost.
    is_behind: bool,
}

impl Queue {
    fn pop(&mut self) -> Option<Arc<ChatEvent>> {
        let event = self.events.pop_front()?;
        self.bytes -= event.json.len();
        Some(event)
    }

    fn push(&mut self, event: &Arc<ChatEvent>, tenant_bytes: &mut usize) {
        let size = event.json.len();
        let is_full = self.events.len() >= EVENTS_MAX
            || self.bytes + size > EVENTS_MAX_BYTES
            || (self.bytes + size > EVENTS_FREE_BYTES && *tenant_bytes + size > TENANT_MAX_BYTES);
        if is_full && !self.is_behind {
            *tenant_bytes -= self.bytes;
            (self.events, self.bytes, self.is_behind) = (VecDeque::new(), 0, true);
        }
        if !self.is_behind {
            self.events.push_back(event.clone());
            self.bytes += size;
            *tenant_bytes += size;
        }
        self.notify.notify_one();
    }
}

/// Gets the changes of one chat.
pub struct ChatWatcher {
    signals: Arc<Signals>,
    chat: (TenantId, ChatId),
    number: u64,
    notify: Arc<Notify>,
}

impl Signals {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn watch(self: &Arc<Self>, tenant: &TenantId, chat_id: &ChatId) -> ChatWatcher {
        let (chat, notify) = ((tenant.clone(), chat_id.clone()), Arc::new(Notify::new()));
        let mut state = self.state();
        state.last += 1;
        let number = state.last;
        let (events, bytes, is_behind) = (VecDeque::new(), 0, false);
        let queue = Queue { watcher: number, notify: notify.clone(), events, bytes, is_behind };
        state.watchers.entry(chat.clone()).or_default().push(queue);
        drop(state);
        ChatWatcher { signals: self.clone(), chat, number, notify }
    }

    pub(super) fn is_watched(&self, tenant: &TenantId, chat_id: &ChatId) -> bool {
        let state = self.state();
        !state.watchers.is_empty() && state.watchers.contains_key(&(tenant.clone(), chat_id.clone()))
    }

    pub(super) fn send(&self, tenant: &TenantId, chat_id: &ChatId, signal: &Signal) {
        if !self.is_watched(tenant, chat_id) {
            return;
        }
        let event = Arc::new(signal.event());
        let mut state = self.state();
        let State { watchers, bytes, .. } = &mut *state;
        let queues = watchers.get_mut(&(tenant.clone(), chat_id.clone()));
        let tenant_bytes = bytes.entry(tenant.clone()).or_default();
        queues.into_iter().flatten().for_each(|queue| queue.push(&event, tenant_bytes));
    }
}

enum Next {
    Event(Arc<ChatEvent>),
    Nothing,
    /// Events were lost.
    Behind,
}

impl ChatWatcher {
    /// `None`: the watcher fell behind and lost changes.
    pub async fn next(&self) -> Option<Arc<ChatEvent>> {
        loop {
            match self.take() {
                Next::Event(event) => return Some(event),
                Next::Behind => return None,
                Next::Nothing => {}
            }
            self.notify.notified().await;
        }
    }

    fn take(&self) -> Next {
        let mut state = self.signals.state();
        let State { watchers, bytes, .. } = &mut *state;
        let mut queues = watchers.get_mut(&self.chat).into_iter().flatten();
        let Some(queue) = queues.find(|queue| queue.watcher == self.number) else { return Next::Nothing };
        if queue.is_behind {
            return Next::Behind;
        }
        let Some(event) = queue.pop() else { return Next::Nothing };
        if let Some(bytes) = bytes.get_mut(&self.chat.0) {
            *bytes -= event.json.len();
        }
        Next::Event(event)
    }
}

impl Drop for ChatWatcher {
    fn drop(&mut self) {
        let mut state = self.signals.state();
        let State { watchers, bytes, .. } = &mut *state;
        let Some(queues) = watchers.get_mut(&self.chat) else { return };
        let freed: usize = queues.extract_if(.., |it| it.watcher == self.number).map(|it| it.bytes).sum();
        if queues.is_empty() {
            watchers.remove(&self.chat);
        }
        if let Some(waiting) = bytes.get_mut(&self.chat.0) {
            *waiting -= freed;
            if *waiting == 0 {
                bytes.remove(&self.chat.0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    fn message(bytes: usize) -> Signal {
        Signal::Message(Box::new(ChatMessage { text: "x".repeat(bytes), ..ChatMessage::default() }))
    }

    fn is_behind(watcher: &ChatWatcher) -> bool {
        watcher.next().now_or_never().is_some_and(|next| next.is_none())
    }

    #[test]
    fn a_watcher_that_falls_behind_loses_its_queue_and_nobody_else_does() {
        let signals = Arc::new(Signals::default());
        let (slow, fast) = (signals.watch(&"a".into(), &"c".into()), signals.watch(&"a".into(), &"c".into()));
        let other = signals.watch(&"b".into(), &"c".into());
        signals.send(&"b".into(), &"c".into(), &Signal::Typing(true));
        for _ in 0..5 {
            signals.send(&"a".into(), &"c".into(), &message(1 << 20));
            assert_eq!(fast.next().now_or_never().unwrap().unwrap().name, "message");
        }
        assert!(is_behind(&slow) && !is_behind(&fast));
        assert_eq!(signals.state().bytes.get("a"), Some(&0));
        assert_eq!(other.next().now_or_never().unwrap().unwrap().json, r#"{"typing":true}"#);
        for _ in 0..=EVENTS_MAX {
            signals.send(&"b".into(), &"c".into(), &Signal::Typing(false));
        }
        assert!(is_behind(&other));
    }

    #[test]
    fn what_waits_for_all_streams_of_a_tenant_is_bounded() {
        let signals = Arc::new(Signals::default());
        let chats: Vec<ChatId> = (0..100).map(|chat| format!("c{chat}").into()).collect();
        let watchers: Vec<_> = chats.iter().map(|chat| signals.watch(&"a".into(), chat)).collect();
        for chat in &chats {
            signals.send(&"a".into(), chat, &message(1 << 20));
        }
        let bytes = signals.state().bytes["a"];
        assert!(bytes <= TENANT_MAX_BYTES && bytes > TENANT_MAX_BYTES / 2, "{bytes}");
        assert!(is_behind(&watchers[99]) && !is_behind(&watchers[0]));
        let healthy = signals.watch(&"a".into(), &"h".into());
        signals.send(&"a".into(), &"h".into(), &message(10 << 10));
        assert!(!is_behind(&healthy));
        let other = signals.watch(&"b".into(), &"c".into());
        signals.send(&"b".into(), &"c".into(), &message(1 << 20));
        assert!(!is_behind(&other));
        drop((watchers, other, healthy));
        let state = signals.state();
        assert!(state.watchers.is_empty() && state.bytes.is_empty());
    }
}
