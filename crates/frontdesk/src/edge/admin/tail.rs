//! The event stream of all servers.

use std::convert::Infallible;
use std::sync::Arc;

use axum::extract::{Query, State};
use axum::response::sse::{Event, KeepAlive, Sse};
use frontdesk_core::tail::Notice;
use futures_util::stream::{self, Stream};
use serde_json::{Value, json};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

use super::{Admin, Of};
use crate::edge::App;

struct Watch {
    app: App,
    of: Of,
    here: Receiver<Arc<Notice>>,
    elsewhere: Receiver<Arc<Value>>,
}

/// Live events of all servers on the store. A client that is too slow is told how many it missed.
pub(super) async fn tail(
    _: Admin,
    State(app): State<App>,
    Query(of): Query<Of>,
) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let (here, elsewhere) = (app.desk.tail().watch(), app.desk.tail().watch_others());
    let watch = Watch { app, of, here, elsewhere };
    let events = stream::unfold(watch, |mut watch| async move {
        let entry = watch.next().await?;
        Some((Ok(Event::default().data(entry.to_string())), watch))
    });
    Sse::new(events).keep_alive(KeepAlive::default())
}

impl Watch {
    async fn next(&mut self) -> Option<Value> {
        loop {
            let stop = self.app.stop.clone();
            let received = tokio::select! {
                notice = self.here.recv() => notice.map(|notice| self.show(&notice)),
                entry = self.elsewhere.recv() => entry.map(|entry| (*entry).clone()),
                () = stop.cancelled() => return None,
            };
            match received {
                Ok(entry) if self.is_wanted(&entry) => return Some(entry),
                Ok(_) => {}
                Err(RecvError::Lagged(missed)) => {
                    let text = format!("{missed} events dropped: client too slow");
                    return Some(json!({ "step": "missed", "text": text }));
                }
                Err(RecvError::Closed) => return None,
            }
        }
    }

    /// With the name of this server, if there are others.
    fn show(&self, notice: &Notice) -> Value {
        let mut entry = serde_json::to_value(notice).unwrap_or_default();
        let lease = self.app.desk.lease();
        if !lease.is_alone() {
            entry["desk"] = lease.name().into();
        }
        entry
    }

    fn is_wanted(&self, entry: &Value) -> bool {
        let text = |name: &str| entry[name].as_str().unwrap_or_default();
        let Of { tenant, instance, .. } = &self.of;
        text("step") == "missed"
            || tenant.as_ref().is_none_or(|tenant| text("tenant") == tenant.as_str())
                && instance.as_ref().is_none_or(|it| text("instance").is_empty() || text("instance") == it.as_str())
    }
}
