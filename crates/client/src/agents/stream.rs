//! Stream of an agent's inbox. Reconnects after an interruption, from the last message that was seen.

use std::collections::VecDeque;
use std::time::Duration;

use frontdesk_wire::agents::{Class, Fault, InboxMessage};
use reqwest::header::{ACCEPT, HeaderMap};
use reqwest::{Method, Response};

use super::http::{AgentsClient, LIMIT, read};
use frontdesk_wire::sse::{Event, Events};

const FIRST_WAIT: Duration = Duration::from_millis(250);
const LONGEST_WAIT: Duration = Duration::from_secs(15);

#[derive(Debug, Clone, PartialEq)]
pub enum InboxEvent {
    /// Connected, for the first time or again. Without `after`, and before the first message, messages between two of
    /// these may be missed; then read [`AgentsClient::inbox`].
    Ready,
    Message(InboxMessage),
}

/// While this is held and polled, its session counts as a live session of the agent.
pub struct InboxStream {
    client: AgentsClient,
    path: String,
    /// Start position; replaced by the last id once there is one.
    after: Option<u64>,
    events: Events,
    response: Option<Response>,
    seen: VecDeque<Event>,
    wait: Duration,
}

impl AgentsClient {
    /// Connects; a refusal (unknown agent, invalid token) is returned here. With `after`, messages after that number
    /// come first, otherwise only new ones.
    pub async fn inbox_stream(
        &self,
        agent_id: &str,
        session: Option<&str>,
        after: Option<u64>,
    ) -> Result<InboxStream, Fault> {
        let mut stream = InboxStream {
            client: self.clone(),
            path: Self::stream_path(agent_id, session)?,
            after,
            events: Events::default(),
            response: None,
            seen: VecDeque::new(),
            wait: FIRST_WAIT,
        };
        stream.connect().await?;
        Ok(stream)
    }
}

impl InboxStream {
    /// Waits for the next event. Fails only if a retry cannot help: the server refuses, or sent something invalid (the
    /// next call continues after it). Cancel safe.
    pub async fn next(&mut self) -> Result<InboxEvent, Fault> {
        loop {
            if let Some(event) = self.seen.pop_front() {
                match event.name.as_str() {
                    "ready" => return Ok(InboxEvent::Ready),
                    "message" => return read(event.data.as_bytes()).map(InboxEvent::Message),
                    _ => continue, // newer servers may send other events
                }
            }
            self.read_on().await?;
        }
    }

    /// Position from which a new stream would continue.
    pub fn last_id(&self) -> Option<&str> {
        self.events.last_id()
    }

    async fn read_on(&mut self) -> Result<(), Fault> {
        let Some(response) = &mut self.response else { return self.reconnect().await };
        match response.chunk().await {
            Ok(Some(bytes)) => {
                self.wait = FIRST_WAIT;
                let events = self.events.push(&bytes);
                self.seen.extend(events.map_err(|error| {
                    self.response = None;
                    Fault::new(Class::TooLargeError, error.to_string())
                })?);
            }
            Ok(None) | Err(_) => self.response = None,
        }
        Ok(())
    }

    async fn reconnect(&mut self) -> Result<(), Fault> {
        let wait = self.events.retry_ms().map_or(self.wait, Duration::from_millis).clamp(self.wait, LONGEST_WAIT);
        tokio::time::sleep(wait).await;
        self.wait = (self.wait * 2).min(LONGEST_WAIT);
        match self.connect().await {
            Err(fault) if !may_mend(&fault) => Err(fault),
            _ => Ok(()),
        }
    }

    async fn connect(&mut self) -> Result<(), Fault> {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, http::HeaderValue::from_static("text/event-stream"));
        let mut path = self.path.clone();
        match (self.events.last_id().map(http::HeaderValue::from_str), self.after) {
            (Some(Ok(id)), _) => _ = headers.insert("last-event-id", id),
            (_, Some(after)) => {
                let mark = if path.contains('?') { '&' } else { '?' };
                path.push_str(&format!("{mark}after={after}"));
            }
            _ => {}
        }
        let request = self.client.request(Method::GET, &path).headers(headers);
        let opened = tokio::time::timeout(LIMIT, self.client.open(request)).await;
        let late =
            || Fault::new(Class::UnavailableError, "the server did not respond in time").with("cause_kind", "timeout");
        let response = opened.map_err(|_| late())??;
        self.events.restart();
        self.response = Some(response);
        Ok(())
    }
}

fn may_mend(fault: &Fault) -> bool {
    fault.class.status() >= 500 || fault.class == Class::RateLimitedError
}
