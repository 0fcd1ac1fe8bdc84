//! Context: earlier messages of a chat that were not addressed to the bot are sent along with an addressed one. Only
//! from the same chat and thread, which the receivers can see, and only messages that an instance has not received:
//! neither as an event, nor as context of an earlier one.

use std::sync::Arc;

use frontdesk_wire::event::ContextLine;
use frontdesk_wire::{InstanceId, InstanceNo, MessageEvent, TenantId};
use serde_json::json;

use super::{InboundPlane, Marks};
use crate::directory::facts::Instance;
use crate::gate;
use crate::port::platform::{ActingAs, LOOK_LIMIT, Nearby};
use crate::port::store::StoreError;

/// Maximum number of context lines, and how far back they are searched.
const LINES_MAX: usize = 20;
const LOOK_BACK: usize = 50;
/// Their total size as JSON.
const BYTES_MAX: usize = 16 * 1024;

/// The context lines of each receiver.
pub(super) enum Context {
    None,
    /// It could not be read, which is marked in the event.
    Failed,
    Of(Vec<(InstanceNo, Vec<ContextLine>)>),
}

impl InboundPlane {
    pub(super) async fn context(
        &self,
        tenant: &TenantId,
        marks: &Marks<'_>,
        event: &MessageEvent,
        receivers: &[Arc<Instance>],
        room_bytes: usize,
    ) -> Context {
        let source = &event.source;
        let platform = self.platforms.get(&source.platform).filter(|found| found.descriptor().supports_context);
        let (Some(platform), false, false) = (platform, source.is_direct(), receivers.is_empty()) else {
            return Context::None;
        };
        let bot = self.directory.bots().bot(&source.platform, marks.bot);
        let acting_as = ActingAs::new(tenant, &bot);
        let asked = async {
            let said = platform.nearby(acting_as, &source.chat_id, source.thread_id.as_deref(), LOOK_BACK).await?;
            let others: Vec<Nearby> =
                said.into_iter().filter(|line| event.message_id.as_ref() != Some(&line.message_id)).collect();
            let had = self.had_by(tenant, marks, event, &others).await?;
            Ok::<_, StoreError>((others, had))
        };
        let (others, had) = match tokio::time::timeout(LOOK_LIMIT, asked).await {
            Ok(Ok(found)) => found,
            failed => {
                let error = match failed {
                    Ok(Err(error)) => error.to_string(),
                    _ => "it took too long".into(),
                };
                tracing::warn!(
                    error,
                    platform = source.platform,
                    "reading the context of a message failed; it is left out"
                );
                self.meters.context_failed.inc();
                return Context::Failed;
            }
        };
        let room_bytes = room_bytes.min(BYTES_MAX);
        let each = |instance: &Arc<Instance>| {
            let had_it = |at: usize| had[at].iter().any(|name| *name == instance.name);
            // Lines before its last turn were sent with that turn.
            let since = (0..others.len()).rev().find(|at| others[*at].addressed && had_it(*at)).map_or(0, |at| at + 1);
            let unseen = (since..others.len()).filter(|at| !others[*at].addressed && !had_it(*at));
            (instance.no, latest(unseen.map(|at| &others[at]), room_bytes))
        };
        Context::Of(receivers.iter().map(each).collect())
    }

    /// The instances that received each line as an event, from the stored verdicts.
    async fn had_by(
        &self,
        tenant: &TenantId,
        marks: &Marks<'_>,
        event: &MessageEvent,
        lines: &[Nearby],
    ) -> Result<Vec<Vec<InstanceId>>, StoreError> {
        let dedups = lines.iter().map(|line| marks.dedup(&event.source, &line.message_id, "")).collect();
        let receivers = |record: Option<crate::port::store::EventRecord>| {
            let read = record.and_then(|record| gate::read_verdict(&record.verdict, &record.tenant));
            // An interrupt is not a turn: it was not delivered, and had no context.
            let lines = read.filter(|read| !read.interrupted).map(|read| read.instances).unwrap_or_default();
            lines.into_iter().filter(|line| line.outcome == "delivered").map(|line| line.instance).collect()
        };
        Ok(self.events.events_marked(tenant, dedups).await?.into_iter().map(receivers).collect())
    }
}

/// The last lines that fit, oldest first. A line that is too long is skipped; earlier ones may still fit.
fn latest<'a>(lines: impl DoubleEndedIterator<Item = &'a Nearby>, room_bytes: usize) -> Vec<ContextLine> {
    let mut room = room_bytes;
    let mut taken = Vec::new();
    for line in lines.rev() {
        if taken.len() == LINES_MAX {
            break;
        }
        let source = json!({
            "user_id": line.user_id,
            "user_name": line.user_name,
            "is_bot": line.is_bot,
            "message_id": line.message_id,
        });
        let shown = ContextLine { text: line.text.clone(), source };
        let size = serde_json::to_string(&shown).map_or(usize::MAX, |json| json.len() + 1);
        if size > room {
            continue;
        }
        room -= size;
        taken.push(shown);
    }
    taken.reverse();
    taken
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(number: usize, text: &str) -> Nearby {
        Nearby {
            message_id: format!("m{number}").into(),
            user_id: "ann".into(),
            text: text.into(),
            ..Nearby::default()
        }
    }

    #[test]
    fn the_latest_lines_oldest_first_bounded_in_number_and_bytes() {
        let lines: Vec<Nearby> = (0..30).map(|number| said(number, "x")).collect();
        let taken = latest(lines.iter(), BYTES_MAX);
        assert_eq!(taken.len(), LINES_MAX);
        assert_eq!((&taken[0].source["message_id"], &taken[19].source["message_id"]), (&json!("m10"), &json!("m29")));
        let long: Vec<Nearby> = (0..5).map(|number| said(number, &"\"".repeat(4_000))).collect();
        let taken = latest(long.iter(), BYTES_MAX);
        assert_eq!(taken.len(), 2, "each is over 8,000 bytes as JSON");
        let size: usize = taken.iter().map(|line| serde_json::to_string(line).unwrap().len()).sum();
        assert!(size <= BYTES_MAX);
        assert!(latest(lines.iter(), 10).is_empty());
    }
}
