//! Reads the stream of the daemon.
//!
//! `signal-cli` does not repeat what it has reported. So an event is kept until it is stored, and the daemon should run with
//! `--receive-mode on-connection`: then it fetches messages only while a listener runs.

use std::time::Duration;

use frontdesk_core::port::outcall::{Body, Call};
use frontdesk_core::port::platform::{Bot, Gap, Inlet, ListenEnd};
use frontdesk_wire::sse::Events;
use futures_util::StreamExt as _;
use serde::Deserialize;
use serde_json::json;

use super::Signal;
use super::api::{Daemon, no_answer};
use super::normalize::{Me, intake_of};

/// The daemon sends a keep-alive every 15 s; one that is silent for longer counts as dead.
const SILENCE_MAX: Duration = Duration::from_mins(1);
/// Between attempts to store an event.
const STORE_PAUSE: Duration = Duration::from_secs(1);
/// The stream lasts as long as the daemon. Its events are limited one by one.
const STREAM_MAX_BYTES: usize = usize::MAX >> 1;

#[derive(Deserialize)]
struct Status {
    #[serde(default)]
    uuid: Option<String>,
}

/// A stream that is being read. On drop it reports unstored messages, because no other listener may follow here: the
/// server stops, the bot is removed, or another server takes over.
struct Reading<'a> {
    signal: &'a Signal,
    bot: &'a Bot,
    inlet: &'a dyn Inlet,
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        let now_ms = self.signal.env.now_ms();
        let left = self.signal.backlog.end(self.bot, now_ms);
        if left > 0 {
            tracing::warn!(
                bot = self.bot.id.as_str(),
                messages = left,
                "a listener ended before its messages were stored"
            );
            let reason = format!(
                "the listener was stopped before {left} messages were stored; they are lost unless this server listens to \
                 the bot again within an hour"
            );
            self.inlet.gap(Gap { since_ms: now_ms, until_ms: now_ms, reason });
        }
    }
}

impl Signal {
    pub(super) async fn read_stream(&self, bot: &Bot, inlet: &dyn Inlet) -> ListenEnd {
        let Some(daemon) = Daemon::of(&*self.outcall, bot) else {
            return ListenEnd::Misconfigured("the bot needs the settings url and account".into());
        };
        self.store_waiting(bot, daemon.account, inlet).await;
        let url = daemon.events_url();
        let accept = [("accept", "text/event-stream")];
        let call = daemon.call_of(&url, Body::Empty);
        let call = Call { endless: true, headers: &accept, max_bytes: STREAM_MAX_BYTES, ..call };
        let answer = match self.outcall.open(call).await {
            Ok(answer) => answer,
            Err(error) => return ListenEnd::Lost(no_answer(&error).text()),
        };
        match answer.status {
            200 => {}
            status @ (400 | 404) => {
                return ListenEnd::Lost(format!(
                    "signal-cli has no stream for {} (status {status}); is the account registered, and is url that of \
                     `signal-cli daemon --http`?",
                    daemon.account
                ));
            }
            status => return ListenEnd::Lost(format!("the stream of signal-cli answered status {status}")),
        }
        let aci = self.own_aci(&daemon).await;
        if let Some(since_ms) = self.backlog.begin(bot, aci, self.env.now_ms()) {
            self.note_gap(since_ms, inlet);
        }
        let _reading = Reading { signal: self, bot, inlet };
        let (mut events, mut body) = (Events::default(), answer.body);
        let why = loop {
            let piece = match tokio::time::timeout(SILENCE_MAX, body.next()).await {
                Err(_) => break format!("the stream of signal-cli was silent for {} s", SILENCE_MAX.as_secs()),
                Ok(None) => break "signal-cli ended the stream".into(),
                Ok(Some(Err(error))) => break format!("the stream of signal-cli broke off: {error}"),
                Ok(Some(Ok(piece))) => piece,
            };
            match events.push(&piece) {
                Ok(found) => {
                    for event in found.iter().filter(|event| !event.data.is_empty()) {
                        self.backlog.push(bot, &event.data);
                    }
                    self.store_waiting(bot, daemon.account, inlet).await;
                }
                Err(too_long) => break format!("{too_long}; the stream of signal-cli is opened again after it"),
            }
        };
        ListenEnd::Lost(why)
    }

    /// Retries until everything is stored, because signal-cli does not send it again.
    async fn store_waiting(&self, bot: &Bot, number: &str, inlet: &dyn Inlet) {
        while let Some((event, aci)) = self.backlog.first(bot) {
            store(inlet, &event, &Me { number, aci: aci.as_deref() }, bot).await;
            self.backlog.stored(bot);
        }
    }

    /// Reports a gap: a daemon that receives without a listener drops its messages.
    fn note_gap(&self, since_ms: u64, inlet: &dyn Inlet) {
        let reason = "the stream of signal-cli was not read; run it with --receive-mode on-connection, so that nothing \
                      is lost meanwhile";
        inlet.gap(Gap { since_ms, until_ms: self.env.now_ms(), reason: reason.into() });
    }

    /// Without it, mentions by account id are not noticed, but those by number are.
    async fn own_aci(&self, daemon: &Daemon<'_>) -> Option<String> {
        let asked = daemon.rpc::<Vec<Status>>("getUserStatus", json!({ "recipient": [daemon.account] })).await;
        match asked {
            Ok(found) => found.into_iter().next()?.uuid,
            Err(error) => {
                tracing::debug!(error = error.text(), "reading the account id of the bot failed");
                None
            }
        }
    }
}

async fn store(inlet: &dyn Inlet, text: &str, me: &Me<'_>, bot: &Bot) {
    while let Some(intake) = intake_of(text, me, bot) {
        match inlet.take(vec![intake]).await {
            Ok(_) => return,
            Err(error) => {
                tracing::warn!(%error, bot = bot.id.as_str(), "a message could not be stored; trying again");
                tokio::time::sleep(STORE_PAUSE).await;
            }
        }
    }
}
